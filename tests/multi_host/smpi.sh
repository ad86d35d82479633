#!/usr/bin/env bash
# Runs the library over MPI on hosts that SimGrid simulates (its SMPI). SimGrid simulates every message of every rank.
# All results are checked.
#
#   smpi.sh RANKS [OPTIONS] BYTES...
#     --collective all_reduce   or reduce_scatter, all_gather, broadcast
#     --backend auto            of the library
#     --rate 119e6              payload bytes per second of each host's link, each way
#     --latency 7.5e-6          seconds through a link; a message goes through two
#     --test 1e-5               seconds that pass when a rank looks for a message and finds none: the resolution of the
#                               result. A smaller value makes the simulation slower
#     --build build/release     where the library has been built, with libsimgrid-dev installed
#
# SMPI_TIMEOUT=600 is the limit of the whole run in seconds.
#
# The network is a switch with a full-duplex link to every host. Links have plain latency and bandwidth. The simulation
# has no factors for protocols of MPI implementations, and no contention between the two directions of a link.
set -eu
refuse() {
  echo "smpi.sh: $1" >&2
  exit 2
}

ranks=${1:-}
[[ "$ranks" =~ ^[1-9][0-9]*$ ]] || refuse 'smpi.sh RANKS [OPTIONS] BYTES...'
shift
collective=all_reduce backend=auto rate=119e6 latency=7.5e-6 test=1e-5
build=$(cd "$(dirname "$0")/../.." && pwd)/build/release
sizes=()
while [ $# -gt 0 ]; do
  case "$1" in
    --*)
      [ $# -ge 2 ] || refuse "$1 needs a value"
      case "$1" in
        --collective) collective=$2 ;;
        --backend) backend=$2 ;;
        --rate) rate=$2 ;;
        --latency) latency=$2 ;;
        --test) test=$2 ;;
        --build) build=$2 ;;
        *) refuse "\"$1\" is no option" ;;
      esac
      shift 2
      ;;
    *)
      [[ "$1" =~ ^[0-9]+$ ]] || refuse "\"$1\" is no number of bytes"
      sizes+=("$1")
      shift
      ;;
  esac
done
[ ${#sizes[@]} -gt 0 ] || refuse 'no BYTES'
program=$build/lib/simulated_program.so
world=$build/lib/libsimulated_world.so
[ -e "$program" ] && [ -e "$world" ] || refuse "$build has no simulated_program: was libsimgrid-dev installed?"

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
cat >"$scratch/platform.xml" <<XML
<?xml version='1.0'?>
<!DOCTYPE platform SYSTEM "https://simgrid.org/simgrid.dtd">
<platform version="4.1">
  <cluster id="hosts" prefix="h" suffix="" radical="0-$((ranks - 1))" speed="1Gf" bw="${rate}Bps" lat="${latency}s"
           sharing_policy="SPLITDUPLEX"/>
</platform>
XML
seq -f 'h%.0f' 0 $((ranks - 1)) >"$scratch/hosts"

# contexts/factory:thread gives each rank its own thread_local variables. COLLECTIVES_CORES is larger than the number of
# ranks, because simulated ranks do not share the cores of this machine.
TMPDIR=$scratch COLLECTIVES_CORES=1024 XDG_CACHE_HOME=$scratch timeout --kill-after=5 "${SMPI_TIMEOUT:-600}" \
  smpirun -no-privatize -np "$ranks" -platform "$scratch/platform.xml" -hostfile "$scratch/hosts" \
  -wrapper "env LD_PRELOAD=$world" \
  --cfg=contexts/factory:thread --cfg=contexts/stack-size:256 --cfg=smpi/simulate-computation:no \
  --cfg=smpi/test:"$test" --cfg=smpi/iprobe:"$test" --cfg=smpi/grow-injected-times:no \
  --cfg=smpi/coll-selector:ompi --cfg=network/crosstraffic:0 --cfg=smpi/bw-factor:0:1 --cfg=smpi/lat-factor:0:1 \
  --cfg=network/TCP-gamma:1e12 --log=root.thres:warning \
  "$program" "$backend" "$collective" "${sizes[@]}"
