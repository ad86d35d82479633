#!/usr/bin/env bash
# Runs MPI programs of Debian, unchanged, with and without the drop-in, and compares what they say of their own checks:
# the testers of ScaLAPACK with each MPI, and the HPC Challenge with Open MPI.
#
#   scripts/check_mpi_programs.sh [-b build/release] [-n "1 2 4"] [-p "xdlu xdqr"] [-m "openmpi mpich"]
#
# A line for each: program, ranks, seconds without and with, calls taken over, and whether the checks agree. Exit status
# 1 when any does not. Installs the programs where it can.
set -eu
root=$(cd "$(dirname "$0")/.." && pwd)
build=$root/build/release ranks='1 2 4' mpis='openmpi mpich' programs='xdlu xdllt xdqr xdinv xdsep xdsvd'
while getopts b:n:p:m: option; do
  case $option in
    b) build=$(realpath "$OPTARG") ;;
    n) ranks=$OPTARG ;;
    p) programs=$OPTARG ;;
    m) mpis=$OPTARG ;;
    *) exit 2 ;;
  esac
done
"$root/scripts/install_packages.sh" scalapack-mpi-test hpcc
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1
export OMPI_MCA_hwloc_base_binding_policy=none OMPI_MCA_mpi_yield_when_idle=1 OPENBLAS_NUM_THREADS=1
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
failed=0

# run MPI RANKS OUTPUT PROGRAM [VARIABLE=VALUE...]: seconds it took; the program's status is in $scratch/status.
run() {
  local mpi=$1 n=$2 output=$3 program=$4 start
  shift 4
  start=$(date +%s.%N)
  timeout 600 "mpirun.$mpi" -np "$n" env "$@" "$program" >"$output" 2>&1 </dev/null
  echo $? >"$scratch/status"
  awk "BEGIN { printf \"%.1f\", $(date +%s.%N) - $start }"
}

# What a program says of its own checks: how many have passed and failed.
checks() {
  grep -v '^collectives:' "$1" | grep -oE 'PASSED|FAILED|[0-9]+ tests? completed.*|[A-Za-z_]+Success=[01]|Success=[01]' |
    sort | uniq -c || true
}

# compare MPI RANKS NAME PROGRAM [RESULT-FILE]
compare() {
  local mpi=$1 n=$2 name=$3 program=$4 result=${5:-} plain taken plain_status status calls verdict=agrees
  plain=$(run "$mpi" "$n" "$scratch/plain" "$program" COLLECTIVES_LOG=warning || true)
  plain_status=$(cat "$scratch/status")
  [ -z "$result" ] || mv "$result" "$scratch/plain"
  taken=$(run "$mpi" "$n" "$scratch/taken" "$program" "LD_PRELOAD=$build/lib/libcollectives_mpi_$mpi.so" \
    COLLECTIVES_MPI_STATS=1 || true)
  status=$(cat "$scratch/status")
  calls=$(awk '/^collectives: MPI_/ { for (i = 3; i <= NF; ++i) if ($i == "taken") sum += $(i - 1) } END { print sum + 0 }' \
    "$scratch/taken")
  [ -z "$result" ] || mv "$result" "$scratch/taken"
  if [ "$status" != "$plain_status" ] || [ -z "$(checks "$scratch/plain")" ] ||
    [ "$(checks "$scratch/plain")" != "$(checks "$scratch/taken")" ]; then
    verdict="DIFFERS (status $plain_status, $status)"
    failed=1
    diff <(checks "$scratch/plain") <(checks "$scratch/taken") | head -5 || true
  fi
  printf '%-8s %-10s %2d ranks %7s s %7s s %8d taken over  %s\n' "$mpi" "$name" "$n" "$plain" "$taken" "$calls" "$verdict"
}

for mpi in $mpis; do
  tests=/usr/lib/$(gcc -print-multiarch)/scalapack/$mpi-tests
  for n in $ranks; do
    for name in $programs; do
      cd "$tests"
      compare "$mpi" "$n" "$name" "$tests/$name"
    done
    [ "$mpi" = openmpi ] || continue
    mkdir -p "$scratch/hpcc" && cd "$scratch/hpcc"
    # The example with a small matrix, on a grid of these ranks.
    sed -E "s/^[0-9]+ +(Ns)/400 \1/; s/^[0-9]+ +(NBs)/32 \1/; s/^[0-9 ]+ +(Ps)/1 \1/; s/^[0-9 ]+ +(Qs)/$n \1/" \
      /usr/share/doc/hpcc/examples/_hpccinf.txt >hpccinf.txt
    compare "$mpi" "$n" hpcc hpcc hpccoutf.txt
    rm -f hpccoutf.txt
  done
done
exit $failed
