#!/usr/bin/env bash
# Compares simulated all-reduces with measured ones between hosts that are namespaces of this machine. The program
# `collectives_info simulate` runs the same plans with the same numbers. With libsimgrid-dev SimGrid does so, too
# (tests/multi_host/smpi.sh). Needs root.
#
#   tests/manual/simulation_error.sh [OPTIONS]
#     --hosts 2,4            numbers of hosts with one rank each
#     --rate 1gbit           rate of each link
#     --burst B  --packet B  bytes that a link passes at once, see hosts.sh --help
#     --rounds 5             measurements of each size; the table has medians
#     --smpi-up-to 4194304   bytes; SimGrid takes minutes for longer vectors
#     --build build/release
#
# The rate of the simulated links is a payload rate that is measured in the same run, by two opposite TCP streams
# between all pairs of hosts at once. The latency, and the CPU time of a message, are the numbers that the library
# measured at its start. The other numbers are built in.
set -eu -o pipefail
cd "$(dirname "$0")/../.."
refuse() {
  echo "simulation_error.sh: $1" >&2
  exit 2
}

hosts=2,4 rate=1gbit rounds=5 smpi_up_to=4194304 build=build/release link=()
while [ $# -gt 0 ]; do
  [ $# -ge 2 ] || refuse "$1 needs a value"
  case "$1" in
    --hosts) hosts=$2 ;;
    --rate) rate=$2 ;;
    --burst | --packet) link+=("$1" "$2") ;;
    --rounds) rounds=$2 ;;
    --smpi-up-to) smpi_up_to=$2 ;;
    --build) build=$2 ;;
    *) refuse "\"$1\" is no option" ;;
  esac
  shift 2
done
hosts_sh=tests/multi_host/hosts.sh
unset HOSTS_BED COLLECTIVES_TUNING # settings of the caller
[[ "$hosts" =~ ^([2-9]|[1-9][0-9])(,([2-9]|[1-9][0-9]))*$ ]] || refuse "--hosts $hosts: numbers from 2 on, such as 2,4"
why=$("$hosts_sh" possible) || refuse "hosts cannot be made here: $why"
[ -x "$build/bin/collectives_bench" ] || refuse "nothing has been built in $build"
scratch=$(mktemp -d)
down() {
  [ -z "${HOSTS_BED:-}" ] || "$hosts_sh" down || true
  rm -rf "$scratch"
}
trap down EXIT

median() { sort -g | awk '{ all[NR] = $1 } END { print all[int((NR + 1) / 2)] }'; }

# probe: prints the megabytes per second of all pairs of hosts at once.
probe() {
  local i pid pids=()
  for ((i = 1; i < count; i += 2)); do
    "$hosts_sh" run "h$((i + 1))" "$build/bin/wire_probe" serve >/dev/null 2>&1 &
    pids+=($!)
  done
  for ((i = 1; i < count; i += 2)); do
    "$hosts_sh" run "h$i" "$build/bin/wire_probe" measure "h$((i + 1))" >"$scratch/pair$i" &
    pids+=($!)
  done
  for pid in "${pids[@]}"; do wait "$pid"; done
  cat "$scratch"/pair* | awk '{ sum += $2 + $3 } END { print sum / NR / 2 }'
}

bench() {
  "$hosts_sh" each "$places" "$build/bin/collectives_bench" all_reduce --min-bytes 64K --max-bytes 64M --factor 4 \
    --in-place no
}

# field NAME FILE: prints a number of the tuning that the library measured.
field() { sed -n "s/.*\"$1\": \([0-9.e-]*\).*/\1/p" "$2" | tail -n 1; }

for count in ${hosts//,/ }; do
  places=$(printf '1,%.0s' $(seq "$count"))
  places=${places%,}
  HOSTS_BED=$("$hosts_sh" up "$count" --rate "$rate" ${link[@]+"${link[@]}"} --owner $$)
  export HOSTS_BED
  cache=${TMPDIR:-/tmp}/collectives-hosts.$HOSTS_BED/cache/collectives/tuning.json
  "$hosts_sh" each "$places" "$build/bin/collectives_bench" all_reduce --max-bytes 8 >/dev/null # measures the wire
  rm -f "$scratch"/rates "$scratch"/times "$scratch"/pair*
  probe >>"$scratch/rates"
  # All rounds use the same plans. The rate is near that of the simulations, which use the median.
  tuning=$scratch/tuning.json
  awk -v rate="$(tail -n 1 "$scratch/rates")" -v us="$(field wire_us "$cache")" -v message="$(field wire_message_us "$cache")" \
    'BEGIN { printf "{\"wire_us\": %s, \"wire_message_us\": %s, \"wire_us_per_byte\": %.6g}\n", us, message, 1 / rate }' >"$tuning"
  for ((round = 1; round <= rounds; ++round)); do
    probe >>"$scratch/rates"
    COLLECTIVES_TUNING=$tuning bench | awk '/^ +[0-9]/ { print $1, $6, $NF }' >>"$scratch/times"
  done
  "$hosts_sh" down
  unset HOSTS_BED
  measured_rate=$(median <"$scratch/rates")
  sed -i "s/\"wire_us_per_byte\": [0-9.e-]*/\"wire_us_per_byte\": $(awk -v r="$measured_rate" 'BEGIN { print 1 / r }')/" "$tuning"

  echo "$count hosts x 1 rank, links of $rate: $measured_rate Mbyte/s each way with all pairs at once (median of" \
    "$((rounds + 1)): $(tr '\n' ' ' <"$scratch/rates")); $(cat "$tuning")"
  printf '%10s  %-24s %12s %12s %8s %12s %8s\n' bytes plan 'measured us' 'simulated us' error 'SimGrid us' error
  for bytes in $(cut -d ' ' -f 1 "$scratch/times" | sort -gu); do
    plan=$(awk -v bytes="$bytes" '$1 == bytes { print $3; exit }' "$scratch/times")
    measured=$(awk -v bytes="$bytes" '$1 == bytes { print $2 }' "$scratch/times" | median)
    simulated=$("$build/bin/collectives_info" simulate all_reduce --bytes "$bytes" --hosts "$count" --tuning "$tuning" \
      --backend "$plan" | sed -n 's/.*simulated: \([0-9.]*\) us.*/\1/p')
    smpi=-
    if [ "$bytes" -le "$smpi_up_to" ] && [ -e "$build/lib/simulated_program.so" ]; then
      smpi=$(COLLECTIVES_TUNING=$tuning tests/multi_host/smpi.sh "$count" --backend "$plan" --rate "${measured_rate}e6" --test 2e-6 \
        --latency "$(awk -v us="$(field wire_us "$tuning")" 'BEGIN { print us / 2e6 }')" --build "$build" "$bytes" |
        sed -n 's/.*: \([0-9.]*\) us.*/\1/p')
    fi
    awk -v bytes="$bytes" -v plan="$plan" -v m="$measured" -v s="$simulated" -v g="$smpi" 'BEGIN {
      printf "%10d  %-24s %12.1f %12.1f %+7.1f%% ", bytes, plan, m, s, 100 * (s / m - 1)
      if (g == "-") printf "%12s %8s\n", "-", "-"; else printf "%12.1f %+7.1f%%\n", g, 100 * (g / m - 1) }'
  done
done
