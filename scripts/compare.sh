#!/usr/bin/env bash
# Times the collectives of this library and of its peers on this machine, interleaved. Writes a table and a plot.
#
#   scripts/compare.sh [OPTIONS]
#     --ranks 2,4,8            numbers of ranks
#     --collectives LIST       all_reduce, reduce_scatter, all_gather, broadcast (these if LIST is missing), all_to_all,
#                              all_to_all_v, gather, gather_v, scatter, scatter_v, scan, exclusive_scan, sendrecv,
#                              ping_pong (between ranks 2k and 2k + 1; the time of one message)
#     --min-bytes 8  --max-bytes 64M  --factor 4
#     --buffers KINDS          our memory: ordinary, allocated, or both with a comma [ordinary,allocated]
#     --in-place no|yes|both   a broadcast is always in place, a message never
#     --rounds 7               a round runs each contender once over all sizes; the order rotates between rounds
#     --peers LIST             openmpi, openmpi-ucx, mpich, gloo
#     --best-settings          also Open MPI with the settings that were found best for it
#     --rotate BYTES           uses buffers in turn from this many bytes per rank, so that they do not stay in the cache
#     --near NS                times cells only while a barrier takes at most this many nanoseconds
#     --fail-below R           exits with 1 if the 95 % interval of best peer / ours lies below R in any cell
#     --output FOLDER          default build/compare
#     --build FOLDER           default build/release
#
# --near is for virtual machines, whose cores may move between caches; a contender then takes twice as long. Every
# sample records its barrier (barrier_ns). With more ranks than cores it is the barrier of two ranks.
#
# bench/compare/harness.hpp describes the measurement, analysis.hpp the ratios and the meaning of "slower". The harness
# times every contender. A contender that is not installed is left out with a line.
set -eu
cd "$(dirname "$0")/.."
command_line="scripts/compare.sh $*"
. scripts/compare_common.sh
unset_peer_settings

ranks=2,4,8
buffers=ordinary,allocated
peers=openmpi,openmpi-ucx,mpich,gloo
rounds=7
best_settings=false
output=build/compare
build=build/release
fail_below=()
near=()
sizes=(--back-to-back 8)
timeout=600 # seconds for one contender in one round

while [ $# -gt 0 ]; do
  [ "$1" = --best-settings ] || [ "$1" = --help ] || [ $# -ge 2 ] || refuse "$1 needs a value (see --help)"
  case "$1" in
    --ranks) ranks=$2 ;;
    --collectives) known "$operations" "$2" && sizes+=("$1" "$2") ;;
    --buffers) buffers=$2 ;;
    --in-place) known 'no yes both' "$2" && sizes+=("$1" "$2") ;;
    --peers) known 'openmpi openmpi-ucx mpich gloo' "$2" && peers=$2 ;;
    --min-bytes | --max-bytes | --factor | --rotate) sizes+=("$1" "$2") ;;
    --rounds) rounds=$2 ;;
    --near)
      [[ "$2" =~ ^[1-9][0-9]*$ ]] || refuse "--near $2: not a number of nanoseconds"
      near=(--near "$2")
      ;;
    --fail-below) fail_below=("$1" "$2") ;;
    --output) output=$2 ;;
    --build) build=$2 ;;
    --best-settings)
      best_settings=true
      shift
      continue
      ;;
    --help) print_help ;;
    *) refuse "\"$1\" is no option (see --help)" ;;
  esac
  shift 2
done
[[ "$ranks" =~ ^[1-9][0-9]*(,[1-9][0-9]*)*$ ]] || refuse "--ranks $ranks: not numbers such as 2,4,8"
[[ "$rounds" =~ ^[1-9][0-9]*$ ]] || refuse "--rounds $rounds: not a number"
[ ${#fail_below[@]} -eq 0 ] || [ "$rounds" -ge 7 ] || refuse "--fail-below needs at least 7 rounds"

targets=()
prepare libhwy-dev

# --- Contenders: a name, a role, and how it is started

contenders=()
for kind in ${buffers//,/ }; do
  contenders+=("collectives-$kind")
done
find_peers
if [ -x "$programs/compare_roofline" ]; then
  contenders+=(roofline-plain roofline-stream roofline-lines)
else
  without+=(roofline)
fi

# forced ALL_REDUCE REDUCE_SCATTER ALL_GATHER BROADCAST: sets $settings to Open MPI's algorithms with these numbers. The
# numbers used below have won at some size on some machine:
#
#   all-reduce      3 recursive doubling, 4 ring, 5 segmented ring, 6 Rabenseifner
#   reduce-scatter  2 recursive doubling, 3 recursive halving, 4 butterfly
#   all-gather      3 recursive doubling, 4 ring, 6 for two ranks only
#   broadcast       1 linear, 2 chain, 3 pipeline, 6 binomial
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

# mpirun refuses root, and more ranks than cores, without these variables.
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1

# launch CONTENDER RANKS: sets $launch, the command without the harness's arguments, and $role. Ranks are bound to cores
# if there are enough. Gloo is not bound, because each rank has two threads, one of which would wait for the other.
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

write_header

# --- Rounds

for name in ${without[@]+"${without[@]}"}; do
  leave_out "$name" 'not installed'
done
for count in ${ranks//,/ }; do
  more=(${near[@]+"${near[@]}"})
  if [ "$count" -gt "$(nproc)" ]; then more+=(--oversubscribed); fi
  active=("${contenders[@]}")
  for ((round = 1; round <= rounds; ++round)); do
    echo "== $count ranks, round $round of $rounds"
    run_round "$count" "$round"
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
