#!/usr/bin/env bash
# Times all-reduce with and without compression between hosts that are namespaces of this machine
# (tests/multi_host/hosts.sh). Many calls run back to back. The times include coding. Needs root.
#
#   scripts/compare_compression.sh [OPTIONS]
#     --hosts 1,1            ranks of each host
#     --rate 1gbit           rate of each link; or unshaped
#     --burst B  --packet B  bytes that a link passes at once, see hosts.sh --help [16kb, 64kb]
#     --compress LIST        none, bf16, f16, int8, top_k:DENSITY [none,bf16,int8,top_k:1%]
#     --min-bytes 1M  --max-bytes 64M  --factor 4
#     --sets 4               gradients that take turns, so that top-k gets another one in each call
#     --force                compress even if the library predicts no gain
#     --rounds 5             a round measures everything once; the table has medians of rounds
#     --output FILE          the table [stdout]
#     --build build/release
set -eu -o pipefail
cd "$(dirname "$0")/.."
command_line="scripts/compare_compression.sh $*"
. scripts/compare_common.sh

hosts=1,1 rate=1gbit burst=16kb packet=64kb compress=none,bf16,int8,top_k:1% rounds=5 sets=4 build=build/release output=
least=1M most=64M factor=4 force=()
while [ $# -gt 0 ]; do
  case "$1" in
    --help) print_help ;;
    --force)
      force=(--force)
      shift
      continue
      ;;
  esac
  require_value "$@"
  case "$1" in
    --hosts) hosts=$2 ;;
    --rate) rate=$2 ;;
    --burst) burst=$2 ;;
    --packet) packet=$2 ;;
    --compress) compress=$2 ;;
    --min-bytes) least=$2 ;;
    --max-bytes) most=$2 ;;
    --factor) factor=$2 ;;
    --sets) sets=$2 ;;
    --rounds) rounds=$2 ;;
    --output) output=$2 ;;
    --build) build=$2 ;;
    *) refuse "\"$1\" is no option (see --help)" ;;
  esac
  shift 2
done
[[ "$hosts" =~ ^[1-9][0-9]*(,[1-9][0-9]*)+$ ]] || refuse "--hosts $hosts: ranks of at least two hosts, such as 1,1 or 2,2"
require_counts "--rounds $rounds" "--sets $sets" "--factor $factor"
require_hosts
unset COLLECTIVES_TUNING
require_programs collectives_bench wire_probe
count=$(tr , '\n' <<<"$hosts" | wc -l)
# bytes TEXT: prints a size such as 4M as a number.
bytes() {
  case "$1" in
    *K) echo $((${1%K} * 1024)) ;;
    *M) echo $((${1%M} * 1024 * 1024)) ;;
    *G) echo $((${1%G} * 1024 * 1024 * 1024)) ;;
    *) echo "$1" ;;
  esac
}
first=$(bytes "$least") last=$(bytes "$most")

raise_hosts "$count"

: >"$scratch/results"
: >"$scratch/wire"
for ((round = 1; round <= rounds; ++round)); do
  probe_pair 1 2 >>"$scratch/wire"
  # Sizes are measured one by one, so that each has the same number of gradients. A gradient has an input and an output.
  for ((size = first; size <= last; size *= factor)); do
    "$hosts_sh" each "$hosts" "$build/bin/collectives_bench" --compress "$compress" ${force[@]+"${force[@]}"} --in-place no \
      --min-bytes "$size" --max-bytes "$size" --back-to-back --rotate $((sets * 2 * size)) --seconds-per-size 2 \
      --json "$scratch/json" >"$scratch/table" || refuse "collectives_bench failed: $(tail -n 1 "$scratch/table")"
    grep '"kind":"result"' "$scratch/json" >>"$scratch/results"
  done
  echo "round $round of $rounds" >&2
done

table() {
  describe_run
  describe_link "ranks of each host: $hosts; links: "
  describe_wire "$scratch/wire"
  awk "$awk_functions"'
    function times_faster(other, time) { return other > 0 ? sprintf("%.2f", other / time) : "-" }
    {
      size = field("size_bytes")
      how = field("compress")
      if (!(size in known)) { known[size] = 1; sizes[++rows] = size }
      if (!(how in seen)) { seen[how] = 1; kinds[++columns] = how }
      times[size, how, ++number[size, how]] = field("time_us") + 0
      sent[size, how] = field("wire_bytes")
      coding[size, how] = field("coding_us")
      plan[size, how] = field("plan")
      wrong += field("wrong")
    }
    END {
      printf "%12s %-10s %12s %9s %9s %14s %12s  %s\n", "bytes", "compress", "us", "none/this", "bf16/this", "sent by a rank", "coding us",
        "plan"
      for (r = 1; r <= rows; ++r) for (c = 1; c <= columns; ++c) {
        size = sizes[r]; how = kinds[c]; time = median(size, how)
        none = median(size, "none"); bf16 = median(size, "bf16")
        printf "%12d %-10s %12.0f %9s %9s %14d %12s  %s\n", size, how, time, times_faster(none, time), times_faster(bf16, time),
          sent[size, how], (coding[size, how] + 0 > 0 ? sprintf("%.0f", coding[size, how]) : "-"), plan[size, how]
      }
      printf "wrong elements: %d\n", wrong
    }' "$scratch/results"
}
if [ -n "$output" ]; then table >"$output"; else table; fi
