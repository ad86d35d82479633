# LAMMPS: molecular dynamics. Its only checks are that no atom is lost and that it reaches its end.
#
#   lammps_melt   a Lennard-Jones melt; sums the thermodynamic state at every step
#   lammps_ewald  a small salt with Ewald sums; all-reduces structure factors and the thermodynamic state at every step
#   lammps_field  density, velocity and temperature of the melt on a grid; all-reduces vectors as long as the grid at
#                 every step, which takes most of the time
packages='lammps'
mpis='openmpi'
last_digit=1e-14
prepare() {
  "${program}_input" >in.lmp
  command=(lmp -in in.lmp -log none)
}
steps() { [ "$size" = check ] && echo "$1" || echo "$2"; }
lammps_melt_input() {
  cat <<END
units lj
atom_style atomic
lattice fcc 0.8442
region box block 0 8 0 8 0 8
create_box 1 box
create_atoms 1 box
mass 1 1.0
velocity all create 3.0 87287 loop geom
pair_style lj/cut 2.5
pair_coeff 1 1 1.0 1.0 2.5
neighbor 0.3 bin
neigh_modify every 20 delay 0 check no
fix 1 all nvt temp 3.0 3.0 0.5
thermo 1
thermo_modify norm no format float %.15g
run $(steps 40 5000)
END
}
lammps_field_input() {
  local cell
  cell=$([ "$size" = check ] && echo 0.0625 || echo 0.015625)  # of the box
  lammps_melt_input | sed '/^run/d; s/^thermo .*/thermo '"$(steps 1 100)"'/'
  cat <<END
compute cells all chunk/atom bin/3d x lower $cell y lower $cell z lower $cell units reduced
fix field all ave/chunk 1 1 1 cells density/number vx vy vz temp norm sample
variable atoms equal sum(f_field[4])
variable velocity equal max(f_field[6])
variable temperature equal sum(f_field[9])
thermo_style custom step temp epair etotal press v_atoms v_velocity v_temperature
thermo_modify norm no format float %.15g
run $(steps 40 300)
END
}
lammps_ewald_input() {
  cat <<END
units lj
atom_style charge
lattice custom 0.5 basis 0 0 0 basis 0.5 0.5 0 basis 0.5 0 0.5 basis 0 0.5 0.5 &
                   basis 0.5 0 0 basis 0 0.5 0 basis 0 0 0.5 basis 0.5 0.5 0.5
region box block 0 2 0 2 0 2
create_box 2 box
create_atoms 1 box basis 5 2 basis 6 2 basis 7 2 basis 8 2
mass * 1.0
set type 1 charge 1.0
set type 2 charge -1.0
velocity all create 0.5 87287 loop geom
pair_style lj/cut/coul/long 2.5
pair_coeff * * 1.0 1.0
kspace_style ewald 1e-4
timestep 0.002
fix 1 all nvt temp 0.5 0.5 0.2
thermo 1
thermo_modify norm no format float %.15g
run $(steps 40 20000)
END
}
checks() { grep -oE 'Loop time|ERROR.*|with [0-9]+ atoms' out | sort | uniq -c; }
# digits: prints the rows of a table below its heading, up to the 40th step. Later steps amplify rounding, because
# trajectories are chaotic.
digits() {
  awk '$1 == "Step" { split($0, names); table = 1; next } /^Loop/ { table = 0 }
       table && $1 <= 40 { for (i = 2; i <= NF; ++i) print names[i] "@" $1, $i, 1 }' out
}
