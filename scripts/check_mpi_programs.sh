#!/usr/bin/env bash
# Runs unchanged MPI programs of Debian with and without the drop-in. Compares the results of their own checks and the
# numbers that they print.
#
#   scripts/check_mpi_programs.sh [-b build/release] [-n "1 2 3 4 8"] [-p "xdlu lammps_melt"] [-m "openmpi mpich"]
#                                 [--calls] [--time] [--pairs 7] [--limit 600] [--prepare]
#
# Prints one line for each program, MPI and number of ranks. The line has the seconds without and with the drop-in, and
# the calls taken over. The largest relative difference of the numbers and the verdict follow.
#
# --calls also prints the calls of rank 0 by function: taken over, and forwarded with the reason. With -b, the calls of
# two versions of the drop-in can be compared.
#
# Sums may be added in another order, so numbers agree within ten times the difference between the two MPIs without the
# drop-in. For programs of one MPI it is the difference between two algorithms of Open MPI's all-reduce. A unit of the
# last printed digit is allowed as well. Communicators are taken over from their first call, so that as many calls as
# possible are tested.
#
# --time measures pairs of runs with and without the drop-in, in turn, with the drop-in's defaults and inputs that take
# seconds. It prints the time with over the time without: the geometric mean and its 95 % interval by bootstrap over the
# pairs. It also prints the calls taken over. --prepare only installs packages. No run lasts longer than --limit
# seconds.
#
# Waiting ranks yield their core, with and without the drop-in. For Open MPI its own setting does that. With --time Open
# MPI decides, and also yields if there are more ranks than cores. For MPICH scripts/mpi_programs/yield_when_idle.c
# makes ranks yield. With --time it is used only if there are more ranks than cores, because it adds code between MPI
# and UCX.
#
# The exit status is 1 if anything differs. scripts/mpi_programs/ has a file for each program with its input and the
# relevant output. Its packages are installed if possible.
set -eu
root=$(cd "$(dirname "$0")/.." && pwd)
build=$root/build/release ranks_list='1 2 3 4 8' mpi_list='openmpi mpich' size=check pairs=7 limit=600
prepare_only=false calls=false
programs='xdlu xdllt xdqr xdinv xdsep xdsvd hpcc lammps_melt lammps_ewald lammps_field nwchem examl mpi4py
  mpi4py_forwarded'
while [ $# -gt 0 ]; do
  case $1 in
    -b) build=$(realpath "$2") && shift ;;
    -n) ranks_list=$2 && shift ;;
    -p) programs=$2 && shift ;;
    -m) mpi_list=$2 && shift ;;
    --calls) calls=true ;;
    --time) size=time ;;
    --pairs) pairs=$2 && shift ;;
    --limit) limit=$2 && shift ;;
    --prepare) prepare_only=true ;;
    *) echo "unknown option $1" >&2 && exit 2 ;;
  esac
  shift
done
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1
export OMPI_MCA_hwloc_base_binding_policy=none OPENBLAS_NUM_THREADS=1 OMP_NUM_THREADS=1 COLLECTIVES_LOG=warning
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
failed=0

# Sources the file of scripts/mpi_programs/ that describes a program.
describe() {
  local file=$1
  least_ranks=1 preload=''
  case $1 in
    x*) file=scalapack ;;
    mpi4py*) file=mpi4py ;;
    lammps_*) file=lammps ;;
  esac
  . "$root/scripts/mpi_programs/$file.sh"
}

# hands_cores_on: returns whether waiting ranks yield their core.
hands_cores_on() { [ "$size" = check ] || [ "$ranks" -gt "$(nproc)" ]; }

# run NAME MPI stock|drop_in [VARIABLE=VALUE...]: runs $program on $ranks ranks in the folder $scratch/NAME, which keeps
# its output. Sets status and seconds.
run() {
  local folder=$scratch/$1 mpi=$2 libraries='' start command
  [ "$3" = stock ] || libraries="$build/lib/libcollectives_mpi_$mpi.so $preload"
  [ "$mpi" != mpich ] || ! hands_cores_on || libraries+=" $scratch/yield_when_idle.so"
  shift 3
  rm -rf "$folder" && mkdir "$folder" && cd "$folder"
  describe "$program"
  prepare
  [ "$size" = time ] || export OMPI_MCA_mpi_yield_when_idle=1
  start=$(date +%s.%N)
  status=0
  timeout "$limit" "mpirun.$mpi" -np "$ranks" env LD_PRELOAD="$libraries" "$@" "${command[@]}" >out 2>&1 </dev/null ||
    status=$?
  seconds=$(awk "BEGIN { printf \"%.2f\", $(date +%s.%N) - $start }")
}

# said NAME checks, said NAME digits: prints the checks or the numbers of a run.
said() { (cd "$scratch/$1" && describe "$program" && "$2" || true); }

# Prints the largest difference between the numbers of two runs, relative to the larger number or to a scale in a third
# column.
difference() {
  paste -d' ' <(said "$1" digits | awk '{ print $1, $2, (NF > 2 ? $3 : 0) }') <(said "$2" digits | awk '{ print $1, $2 }') |
    awk 'function abs(x) { return x < 0 ? -x : x }
         function larger(x, y) { return x > y ? x : y }
         $1 != $4 || NF != 5 { print "others"; odd = 1; exit }
         { scale = larger($3, larger(abs($2), abs($5))); if (scale > 0) most = larger(most, abs($2 - $5) / scale) }
         END { if (!odd) print NR == 0 ? "-" : most + 0 }'
}

# Prints the calls of a run by function, from its statistics.
calls_of() { grep '^collectives: MPI_' "$scratch/$1/out" | sed 's/^collectives:/   /' || true; }

# Prints the number of calls taken over, from the statistics of a run.
taken_over() {
  awk '/^collectives: I?MPI_/ { for (i = 3; i <= NF; ++i) if ($i == "taken") sum += $(i - 1) } END { print sum + 0 }' \
    "$scratch/$1/out"
}

# other_order N: runs stock MPI with another order of summation, as the run "other". It uses the other MPI, or another
# algorithm of Open MPI's all-reduce and reduce for programs of Open MPI only. Returns false if there is no N-th order.
other_order() {
  local other
  if [ "$1" -gt 1 ] || ! grep -q ' ' <<<"$mpis"; then
    [ "$mpi" = openmpi ] && [ "$1" -le 4 ] || return 1
    OMPI_MCA_coll_tuned_use_dynamic_rules=1 OMPI_MCA_coll_tuned_allreduce_algorithm=$1 \
      OMPI_MCA_coll_tuned_reduce_algorithm=1 run other openmpi stock
  else
    other=$([ "$mpi" = openmpi ] && echo mpich || echo openmpi)
    run other "$other" stock
  fi
}

# Returns whether stock MPI with any other order has the same results of its checks as the run with the drop-in.
stock_says_so() {
  local order
  for ((order = 1; ; ++order)); do
    other_order "$order" || return 1
    [ "$(said taken checks)" != "$(said other checks)" ] || return 0
  done
}

compare() {
  local plain plain_status taken taken_status differ stock=- verdict=agrees
  run plain "$mpi" stock
  plain=$seconds plain_status=$status
  run taken "$mpi" drop_in COLLECTIVES_MPI_STATS=1 COLLECTIVES_MPI_AFTER=0
  taken=$seconds taken_status=$status
  differ=$(difference plain taken)
  if [ "$differ" != - ] && [ "$differ" != 0 ]; then
    stock=$(other_order 1 && difference plain other || echo 0)
    awk -v ours="$differ" -v theirs="$stock" -v digit="$last_digit" \
      'BEGIN { exit ours == "others" || !(ours <= 10 * theirs || ours <= digit) }' || verdict="DIFFERS in its numbers"
  fi
  if [ "$taken_status" != 0 ] || [ "$plain_status" != 0 ] || [ -z "$(said plain checks)" ]; then
    verdict="DIFFERS (status $plain_status without, $taken_status with)"
    grep '^collectives: rank' "$scratch/taken/out" | head -3 || true
  elif [ "$(said plain checks)" != "$(said taken checks)" ]; then
    diff <(said plain checks) <(said taken checks) | grep '^[<>]' || true
    if stock_says_so; then
      verdict='agrees with stock MPI that adds in another order'
    else
      verdict='DIFFERS in its checks'
    fi
  fi
  [ "${verdict%%S*}" != DIFFER ] || failed=1
  printf '%-8s %-13s %2d ranks %7s s %7s s %8d taken over  numbers by %-12s stock MPIs by %-12s %s\n' "$mpi" "$program" \
    "$ranks" "$plain" "$taken" "$(taken_over taken)" "$differ" "$stock" "$verdict"
  if $calls; then calls_of taken; fi
}

# Prints the geometric mean of lines of two times, second over first, and its 95 % interval over resampled pairs.
ratio() {
  awk '{ log_ratio[NR] = log($2 / $1); sum += log_ratio[NR] }
       END {
         srand(1)
         for (b = 0; b < 10000; ++b) {
           mean = 0
           for (i = 0; i < NR; ++i) mean += log_ratio[1 + int(NR * rand())]
           print exp(mean / NR) | "sort -g >'"$scratch"'/resampled"
         }
         close("sort -g >'"$scratch"'/resampled")
         printf "%.3f", exp(sum / NR)
       }' "$1"
  awk 'NR == 250 || NR == 9750 { printf " %.3f", $1 }' "$scratch/resampled"
}

measure() {
  local plain taken mean least most pair
  run warm "$mpi" drop_in COLLECTIVES_MPI_STATS=1
  [ "$status" = 0 ] || { echo "$mpi $program: status $status" && failed=1 && return; }
  : >"$scratch/times"
  for ((pair = 0; pair < pairs; ++pair)); do
    if ((pair % 2 == 0)); then
      run plain "$mpi" stock && plain=$seconds
      run taken "$mpi" drop_in && taken=$seconds
    else
      run taken "$mpi" drop_in && taken=$seconds
      run plain "$mpi" stock && plain=$seconds
    fi
    echo "$plain $taken" >>"$scratch/times"
  done
  read -r mean least most <<<"$(ratio "$scratch/times")"
  printf '%-8s %-13s %2d ranks  with / without %s [%s, %s]  seconds:%s\n' "$mpi" "$program" "$ranks" "$mean" "$least" \
    "$most" "$(awk '{ printf " %s/%s", $2, $1 }' "$scratch/times")"
  calls_of warm
}

"$root/scripts/install_packages.sh" gcc
gcc -O2 -shared -fPIC "$root/scripts/mpi_programs/yield_when_idle.c" -o "$scratch/yield_when_idle.so" -ldl

for program in $programs; do
  for mpi in $mpi_list; do
    describe "$program"
    grep -q "$mpi" <<<"$mpis" || continue
    # shellcheck disable=SC2086  # a list
    "$root/scripts/install_packages.sh" $packages
    $prepare_only && continue
    for ranks in $ranks_list; do
      [ "$ranks" -ge "$least_ranks" ] || continue
      if [ "$size" = time ]; then measure; else compare; fi
    done
  done
done
exit $failed
