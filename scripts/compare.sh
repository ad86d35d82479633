#!/usr/bin/env bash
# Times the collectives of this library and of the others on this machine, interleaved, and writes a table and a plot.
#
#   scripts/compare.sh [OPTIONS]
#     --ranks 2,4,8            numbers of ranks
#     --collectives LIST       of all_reduce, reduce_scatter, all_gather, broadcast
#     --min-bytes 8  --max-bytes 64M  --factor 4
#     --buffers KINDS          of ours: ordinary, allocated, or both with a comma [ordinary,allocated]
#     --in-place no|yes|both   broadcast has no other form
#     --rounds 7               one round is each contender once over all sizes; the order rotates from round to round
#     --peers LIST             of openmpi, openmpi-ucx, mpich, gloo
#     --best-settings          also Open MPI with the settings that were found best for it
#     --rotate BYTES           take buffers in turn from so many bytes per rank, so that they do not stay in the cache
#     --fail-below R           exit 1 if, in any cell, the whole 95 % interval of best peer / ours lies below R
#     --output FOLDER          default build/compare
#     --build FOLDER           default build/release
#
# What is timed, and what counts as slower, is said in bench/compare/harness.hpp and analysis.hpp. Every contender is
# timed by that harness. What is not installed is left out with a line.
set -eu
cd "$(dirname "$0")/.."
command_line="scripts/compare.sh $*"

ranks=2,4,8
buffers=ordinary,allocated
peers=openmpi,openmpi-ucx,mpich,gloo
rounds=7
best_settings=false
output=build/compare
build=build/release
fail_below=()
sizes=(--back-to-back 8)
timeout=600 # seconds for one contender in one round

refuse() {
  echo "compare.sh: $1" >&2
  exit 2
}

# known WORDS LIST: every word of the LIST (a,b,c) is one of the WORDS (a b c).
known() {
  local word
  for word in ${2//,/ }; do
    [[ " $1 " == *" $word "* ]] || refuse "\"$word\" is none of: $1"
  done
}

while [ $# -gt 0 ]; do
  [ "$1" = --best-settings ] || [ "$1" = --help ] || [ $# -ge 2 ] || refuse "$1 needs a value (see --help)"
  case "$1" in
    --ranks) ranks=$2 ;;
    --collectives) known 'all_reduce reduce_scatter all_gather broadcast' "$2" && sizes+=("$1" "$2") ;;
    --buffers) buffers=$2 ;;
    --in-place) known 'no yes both' "$2" && sizes+=("$1" "$2") ;;
    --peers) known 'openmpi openmpi-ucx mpich gloo' "$2" && peers=$2 ;;
    --min-bytes | --max-bytes | --factor | --rotate) sizes+=("$1" "$2") ;;
    --rounds) rounds=$2 ;;
    --fail-below) fail_below=("$1" "$2") ;;
    --output) output=$2 ;;
    --build) build=$2 ;;
    --best-settings)
      best_settings=true
      shift
      continue
      ;;
    --help)
      sed -n '2,/^set -eu/{/^set -eu/!s/^# \{0,1\}//p}' "$0"
      exit 0
      ;;
    *) refuse "\"$1\" is no option (see --help)" ;;
  esac
  shift 2
done
[[ "$ranks" =~ ^[1-9][0-9]*(,[1-9][0-9]*)*$ ]] || refuse "--ranks $ranks: not numbers such as 2,4,8"
[[ "$rounds" =~ ^[1-9][0-9]*$ ]] || refuse "--rounds $rounds: not a number"
[ ${#fail_below[@]} -eq 0 ] || [ "$rounds" -ge 7 ] || refuse "--fail-below needs at least 7 rounds"

# --- Packages and programs

wants() { [[ ",$peers," == *",$1,"* ]]; }
packages=(libhwy-dev)
if wants mpich; then packages+=(mpich libmpich-dev); fi
if wants gloo; then packages+=(libgloo-dev); fi
scripts/install_packages.sh "${packages[@]}" || echo "Not everything could be installed: comparing with what is there"

mkdir -p "$build" "$output"
output=$(cd "$output" && pwd)
echo "== Building (log: $build/compare_build.log)"
{
  if [ -e "$build/CMakeCache.txt" ]; then
    cmake "$build"
  else
    cmake -S . -B "$build" -G Ninja -DCMAKE_BUILD_TYPE=Release -DCOLLECTIVES_DEVELOPER_MODE=ON
  fi
  cmake --build "$build" -j "$(nproc)" --target compare
} >"$build/compare_build.log" 2>&1 || {
  tail -n 40 "$build/compare_build.log"
  exit 1
}
programs=$build/bin
samples=$output/samples.jsonl
header=$output/header.txt
: >"$samples"

# leave_out CONTENDER WHY: a line here and in the report.
leave_out() {
  echo "left out: $1: $2"
  printf '{"contender":"%s","left_out":"%s"}\n' "$1" "$2" >>"$samples"
}

# compile_peer PROGRAM SOURCE COMPILER LIBRARIES...: false, with the reason in the build log, when it cannot be.
compile_peer() {
  local program=$programs/$1 source=bench/compare/$2 compiler=$3
  shift 3
  local parts=("$build/bench/compare/libcompare_harness.a" "$build/bench/libcollectives_bench_parts.a")
  if [ "$program" -nt "$source" ] && [ "$program" -nt "${parts[0]}" ]; then return 0; fi
  command -v "$compiler" >/dev/null && "$compiler" -std=c++20 -O3 -DNDEBUG -DOMPI_SKIP_MPICXX -DMPICH_SKIP_MPICXX \
    "$source" -o "$program" "${parts[@]}" -lfmt -lpthread "$@" >>"$build/compare_build.log" 2>&1
}

# --- Contenders: a name, a role, and how it is started

contenders=()
for kind in ${buffers//,/ }; do
  contenders+=("collectives-$kind")
done
without=()
if wants openmpi || wants openmpi-ucx; then
  if ! compile_peer compare_openmpi peer_mpi.cpp mpicxx.openmpi; then
    without+=(openmpi)
  else
    if wants openmpi; then contenders+=(openmpi); fi
    if wants openmpi-ucx; then
      if ompi_info --parsable 2>/dev/null | grep -q '^mca:pml:ucx'; then
        contenders+=(openmpi-ucx)
      else
        without+=(openmpi-ucx)
      fi
    fi
  fi
fi
if wants mpich; then
  if compile_peer compare_mpich peer_mpi.cpp mpicxx.mpich; then contenders+=(mpich); else without+=(mpich); fi
fi
if wants gloo; then
  if compile_peer compare_gloo peer_gloo.cpp g++ -lgloo; then
    contenders+=(gloo-ring gloo-bcube)
  else
    without+=(gloo)
  fi
fi
if [ -x "$programs/compare_roofline" ]; then
  contenders+=(roofline-plain roofline-stream)
else
  without+=(roofline)
fi

ucx=(--mca pml ucx --mca pml_ucx_tls any --mca pml_ucx_devices any)
# forced ALL_REDUCE REDUCE_SCATTER ALL_GATHER BROADCAST: sets $settings to Open MPI's algorithms of these numbers. Those
# that won at some size on some machine: all-reduce 3 recursive doubling, 4 ring, 5 segmented ring, 6 Rabenseifner;
# reduce-scatter 2 recursive doubling, 3 recursive halving, 4 butterfly; all-gather 3 recursive doubling, 4 ring, 6 for two
# ranks only; broadcast 1 linear, 2 chain, 3 pipeline, 6 binomial.
forced() {
  settings=(--mca coll_tuned_use_dynamic_rules 1
    --mca coll_tuned_allreduce_algorithm "$1" --mca coll_tuned_allreduce_algorithm_segmentsize 65536
    --mca coll_tuned_reduce_scatter_block_algorithm "$2" --mca coll_tuned_allgather_algorithm "$3"
    --mca coll_tuned_bcast_algorithm "$4" --mca coll_tuned_bcast_algorithm_segmentsize 1048576)
}
if $best_settings; then
  if [[ " ${contenders[*]} " == *" openmpi "* ]]; then contenders+=(openmpi-sm openmpi-forced); fi
  if [[ " ${contenders[*]} " == *" openmpi-ucx "* ]]; then contenders+=(openmpi-ucx-forced-{1,2,3}); fi
fi

# Root in a container, and more ranks than cores, which mpirun refuses unless told.
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1

# launch CONTENDER RANKS: sets $launch, the command without the harness's arguments, and $role. Everybody is bound to
# cores when there are enough, except Gloo, of whose two threads per rank one would wait for the other.
launch() {
  local count=$2 bind=(--bind-to core) program=compare_openmpi
  local hydra_bind=(-bind-to core) settings=() variant=()
  if [ "$count" -gt "$(nproc)" ]; then
    bind=(--bind-to none --mca mpi_yield_when_idle 1)
    hydra_bind=(-bind-to none)
  fi
  role=peer
  case "$1" in
    collectives-*) role=ours program=compare_collectives variant=(--variant "${1#collectives-}") ;;
    openmpi) ;;
    openmpi-ucx) settings=("${ucx[@]}") ;;
    mpich)
      launch=(mpirun.mpich -np "$count" "${hydra_bind[@]}" "$programs/compare_mpich")
      return
      ;;
    gloo-*) program=compare_gloo bind=(--bind-to none) variant=(--variant "${1#gloo-}") ;;
    roofline-*) role=bound program=compare_roofline variant=(--variant "${1#roofline-}") ;;
    openmpi-sm) role=best-setting settings=(--mca coll_sm_priority 100) ;;
    openmpi-forced) role=best-setting && forced 5 3 4 3 ;;
    openmpi-ucx-forced-1) role=best-setting && forced 3 3 4 6 && settings+=("${ucx[@]}") ;;
    openmpi-ucx-forced-2) role=best-setting && forced 4 4 $((count == 2 ? 6 : 3)) 2 && settings+=("${ucx[@]}") ;;
    openmpi-ucx-forced-3) role=best-setting && forced 6 2 3 1 && settings+=("${ucx[@]}") ;;
  esac
  launch=(mpirun.openmpi -np "$count" "${bind[@]}" "${settings[@]}" "$programs/$program" "${variant[@]}")
}

# --- The header

version() { dpkg-query -W -f '${Version}' "$1" 2>/dev/null || echo 'not installed'; }
commit=$(git rev-parse --short HEAD 2>/dev/null || echo unknown)
[ -z "$(git status --porcelain 2>/dev/null)" ] || commit="$commit with changes"
{
  echo "$(uname -n), $(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -n 1), $(nproc) cores," \
    "$(awk '/MemTotal/ {printf "%.0f GiB", $2 / 1048576}' /proc/meminfo), $(. /etc/os-release && echo "$PRETTY_NAME")," \
    "Linux $(uname -r), load average $(cut -d ' ' -f 1 /proc/loadavg) at the start"
  echo "collectives $commit ($(sed -n 's/^CMAKE_BUILD_TYPE:[A-Z]*=//p' "$build/CMakeCache.txt")), Open MPI" \
    "$(version openmpi-bin), UCX $(version libucx0), MPICH $(version mpich), Gloo $(version libgloo-dev)," \
    "$(g++ --version | head -n 1)"
  echo "$(date -u '+%Y-%m-%d %H:%M:%S UTC'), $command_line"
} >"$header"

# --- Rounds

child=
scratch=
cleanup() {
  if [ -n "$child" ] && kill -TERM "$child" 2>/dev/null; then wait "$child" 2>/dev/null || true; fi
  if [ -n "$scratch" ]; then rm -rf "$scratch"; fi
}
trap cleanup EXIT
trap 'exit 130' INT
trap 'exit 143' TERM
scratch=$(mktemp -d -p "$([ -w /dev/shm ] && echo /dev/shm || echo "${TMPDIR:-/tmp}")" compare.XXXXXX)

for name in ${without[@]+"${without[@]}"}; do
  leave_out "$name" 'not installed'
done
for count in ${ranks//,/ }; do
  crowded=()
  if [ "$count" -gt "$(nproc)" ]; then crowded=(--crowded); fi
  active=("${contenders[@]}")
  for ((round = 1; round <= rounds; ++round)); do
    echo "== $count ranks, round $round of $rounds"
    failed=()
    for ((turn = 0; turn < ${#active[@]}; ++turn)); do
      name=${active[(turn + round - 1) % ${#active[@]}]}
      launch "$name" "$count"
      : >"$scratch/meeting"
      begun=$SECONDS
      timeout --kill-after=10 "$timeout" "${launch[@]}" --meeting "$scratch/meeting" --output "$samples" \
        --contender "$name" --role "$role" --round "$round" "${sizes[@]}" ${crowded[@]+"${crowded[@]}"} \
        >"$scratch/log" 2>&1 &
      child=$!
      status=0
      wait "$child" || status=$?
      child=
      printf '   %-22s %3d s\n' "$name" $((SECONDS - begun))
      if [ $status -ne 0 ]; then
        tail -n 20 "$scratch/log" >&2
        [ "$role" != ours ] || { echo "compare.sh: $name failed" >&2; exit 1; }
        leave_out "$name" "failed with $count ranks in round $round (status $status)"
        failed+=("$name")
      fi
      : >"$scratch/meeting"
    done
    for name in ${failed[@]+"${failed[@]}"}; do
      remaining=()
      for each in "${active[@]}"; do
        if [ "$each" != "$name" ]; then remaining+=("$each"); fi
      done
      active=("${remaining[@]}")
    done
  done
done

# --- The report

status=0
"$programs/compare_report" --samples "$samples" --header "$header" --output "$output" \
  ${fail_below[@]+"${fail_below[@]}"} || status=$?
if command -v gnuplot >/dev/null; then
  for count in ${ranks//,/ }; do
    gnuplot "$output/plot_${count}_ranks.gnuplot"
  done
fi
echo "Tables: $output/table.txt, table.md.  Plots: plot_RANKS_ranks.svg.  Every sample: samples.jsonl"
exit $status
