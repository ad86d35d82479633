# NWChem: quantum chemistry, energy and gradient of water.
packages="nwchem-$mpi"
mpis='openmpi mpich'
last_digit=1e-12
prepare() {
  local basis=sto-3g
  [ "$size" = check ] || basis=aug-cc-pvtz
  cat >water.nw <<END
start water
memory 200 mb
geometry units angstrom
  O  0.000  0.000  0.117
  H  0.000  0.757 -0.470
  H  0.000 -0.757 -0.470
end
basis
  * library $basis
end
scf
  direct
  thresh 1e-8
end
task scf gradient
END
  command=("nwchem.$mpi" water.nw)
}
checks() { grep -oE 'Total SCF energy|RHF ENERGY GRADIENTS|Task +times|[Ee]rror.*' out | sort | uniq -c; }
# digits: prints the numbers. Gradients have six decimals.
digits() {
  awk '/Total SCF energy =/ { print "energy", $NF } /Nuclear repulsion energy =/ { print "repulsion", $NF }
       /RHF ENERGY GRADIENTS/ { rows = 1; next }
       rows && NF == 8 && $2 ~ /^[OH]$/ { for (i = 6; i <= 8; ++i) print "gradient" $1 "." i, $i, 1 }' out
}
