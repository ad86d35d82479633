#!/usr/bin/env bash
# Times all-reduce with and without compression between hosts that are namespaces of this machine, on links of a given rate
# (tests/multi_host/hosts.sh): many calls back to back, the time for coding included. Needs root.
#
#   scripts/compare_compression.sh [OPTIONS]
#     --hosts 1,1            ranks of each host
#     --rate 1gbit           of each link; or unshaped
#     --burst B  --packet B  what a link lets pass at once, as hosts.sh --help says [16kb, 64kb]
#     --compress LIST        of none, bf16, f16, int8, top_k:DENSITY [none,bf16,int8,top_k:1%]
#     --min-bytes 1M  --max-bytes 64M  --factor 4
#     --sets 4               different gradients that are taken in turn, so that top-k meets another one in each call
#     --force                compress also where the library would rather send everything
#     --rounds 5             each is everything once; medians of rounds count
#     --output FILE          the table [stdout]
#     --build build/release
set -eu -o pipefail
cd "$(dirname "$0")/.."
command_line="scripts/compare_compression.sh $*"
refuse() {
  echo "compare_compression.sh: $1" >&2
  exit 2
}

hosts=1,1 rate=1gbit burst=16kb packet=64kb compress=none,bf16,int8,top_k:1% rounds=5 sets=4 build=build/release output=
least=1M most=64M factor=4 force=()
while [ $# -gt 0 ]; do
  case "$1" in
    --help)
      sed -n '2,/^set -eu/{/^set -eu/!s/^# \{0,1\}//p}' "$0"
      exit 0
      ;;
    --force)
      force=(--force)
      shift
      continue
      ;;
  esac
  [ $# -ge 2 ] || refuse "$1 needs a value (see --help)"
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
for number in "$rounds" "$sets" "$factor"; do
  [[ "$number" =~ ^[1-9][0-9]*$ ]] || refuse "\"$number\" is no number (see --help)"
done
hosts_sh=tests/multi_host/hosts.sh
unset HOSTS_BED COLLECTIVES_TUNING # of whoever calls
why=$("$hosts_sh" possible) || refuse "hosts cannot be made here: $why"
for program in collectives_bench wire_probe; do
  [ -x "$build/bin/$program" ] || refuse "there is no $program in $build/bin"
done
count=$(tr , '\n' <<<"$hosts" | wc -l)
# bytes TEXT: 4M as a number.
bytes() {
  case "$1" in
    *K) echo $((${1%K} * 1024)) ;;
    *M) echo $((${1%M} * 1024 * 1024)) ;;
    *G) echo $((${1%G} * 1024 * 1024 * 1024)) ;;
    *) echo "$1" ;;
  esac
}
first=$(bytes "$least") last=$(bytes "$most")

scratch=$(mktemp -d)
down() {
  [ -z "${HOSTS_BED:-}" ] || "$hosts_sh" down || true
  rm -rf "$scratch"
}
trap down EXIT
options=(--burst "$burst" --packet "$packet")
if [ "$rate" != unshaped ]; then options+=(--rate "$rate"); fi
HOSTS_BED=$("$hosts_sh" up "$count" "${options[@]}" --owner $$)
export HOSTS_BED

probe() {
  "$hosts_sh" run h2 "$build/bin/wire_probe" serve >/dev/null 2>&1 &
  "$hosts_sh" run h1 "$build/bin/wire_probe" measure h2
  wait
}

: >"$scratch/results"
: >"$scratch/wire"
for ((round = 1; round <= rounds; ++round)); do
  probe >>"$scratch/wire"
  # Each size by itself, so that as many gradients are in turn everywhere: inputs and outputs.
  for ((size = first; size <= last; size *= factor)); do
    "$hosts_sh" each "$hosts" "$build/bin/collectives_bench" --compress "$compress" ${force[@]+"${force[@]}"} --in-place no \
      --min-bytes "$size" --max-bytes "$size" --back-to-back --rotate $((sets * 2 * size)) --seconds-per-size 2 \
      --json "$scratch/json" >"$scratch/table" || refuse "collectives_bench failed: $(tail -n 1 "$scratch/table")"
    grep '"kind":"result"' "$scratch/json" >>"$scratch/results"
  done
  echo "round $round of $rounds" >&2
done

table() {
  echo "\$ $command_line"
  echo "$(date -u '+%Y-%m-%d'), $(nproc) cores, commit $(git rev-parse --short HEAD 2>/dev/null || echo unknown)"
  echo "ranks of each host: $hosts; links: $("$hosts_sh" run h1 tc qdisc show dev eth0 | head -n 1)"
  awk '{ rate[NR] = ($2 + $3) / 2; way[NR] = $5 }
    END { for (i = 1; i <= NR; ++i) { sum += rate[i]; one += way[i] }
      printf "two opposite TCP streams: %.1f Mbyte/s in each direction; 28 KiB one way: %.3f ms\n", sum / NR, one / NR }' \
    "$scratch/wire"
  awk '
    function field(name, rest) {
      rest = substr($0, index($0, "\"" name "\":") + length(name) + 3)
      sub(/[,}].*/, "", rest)
      gsub(/"/, "", rest)
      return rest
    }
    function median(size, how, n, i, j, t, a) {
      n = number[size, how]
      for (i = 1; i <= n; ++i) a[i] = times[size, how, i]
      for (i = 2; i <= n; ++i) for (j = i; j > 1 && a[j] < a[j - 1]; --j) { t = a[j]; a[j] = a[j - 1]; a[j - 1] = t }
      return n == 0 ? 0 : n % 2 ? a[(n + 1) / 2] : (a[n / 2] + a[n / 2 + 1]) / 2
    }
    function times_faster(other, time) { return other > 0 ? sprintf("%.2f", other / time) : "-" }
    {
      size = field("size_bytes")
      how = field("compress")
      if (!(size in known)) { known[size] = 1; sizes[++rows] = size }
      if (!(how in seen)) { seen[how] = 1; ways[++columns] = how }
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
        size = sizes[r]; how = ways[c]; time = median(size, how)
        none = median(size, "none"); bf16 = median(size, "bf16")
        printf "%12d %-10s %12.0f %9s %9s %14d %12s  %s\n", size, how, time, times_faster(none, time), times_faster(bf16, time),
          sent[size, how], (coding[size, how] + 0 > 0 ? sprintf("%.0f", coding[size, how]) : "-"), plan[size, how]
      }
      printf "wrong elements: %d\n", wrong
    }' "$scratch/results"
}
if [ -n "$output" ]; then table >"$output"; else table; fi
