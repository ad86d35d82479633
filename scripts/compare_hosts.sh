#!/usr/bin/env bash
# Times the collectives of this library and of its peers between hosts, interleaved. Hosts are network namespaces of
# this machine on links of a given rate (tests/multi_host/hosts.sh). Needs root.
#
#   scripts/compare_hosts.sh [OPTIONS]
#     --hosts 2x1,4x1,2x2      hosts x ranks on each
#     --rate 1gbit             rate of each link in each direction, as tc writes it; or unshaped
#     --burst B  --packet B    bytes that a link passes at once, see hosts.sh --help [7000, 14000]
#     --wires tcp              our wires between hosts: tcp, ucx, mpi [those that this build has]
#     --backends LIST          our backends by the first wire, in turns with auto in one start
#     --collectives LIST       as for compare.sh [all_reduce,broadcast]
#     --min-bytes 8  --max-bytes 64M  --factor 4
#     --peers LIST             openmpi, openmpi-ucx, openmpi-han, mpich, gloo [all five]
#     --stolen 5               repeats cells that met more than this percentage of stolen time
#     --rounds 7               a round runs each contender once over all sizes; the order rotates between rounds
#     --fail-below R           exits with 1 if the 95 % interval of best peer / ours lies below R in any cell
#     --timeout 600            seconds for one contender, and for each backend, in one round
#     --output FOLDER          default build/compare_hosts; a folder for each shape in it, such as 2x1-1gbit
#     --build FOLDER           default build/release
#
# --burst: use 1600 if 28 KiB take less than 0.22 ms one way. If timers are late, use --burst 16kb --packet 64kb for
# megabytes.
#
# --backends: each backend is compared with auto like a peer. `--peers none --backends ring,hierarchical_halving` shows
# the quality of the selection.
#
# --stolen: the hypervisor may give the cores of a virtual machine to other guests. A start repeats cells for up to a
# minute, and another minute for each backend. A sample records the stolen share that it met. --timeout leaves out a
# peer that hangs.
#
# Before each round tests/multi_host/wire_probe.cpp measures the wire: the rate of two opposite TCP streams between two
# hosts. The column "roofline" uses a bound for H hosts. An all-reduce takes at least 2 (H - 1) / H x bytes / rate, and
# a reduce-scatter, all-gather, gather or scatter half of that, and an all-to-all of k ranks on each host k times that
# half. A scan and a message take at least bytes / rate if they cross the wire. A broadcast takes at least bytes / rate. All hosts share the cores of
# this machine, which also do the work of network adapters and switches.
set -eu
cd "$(dirname "$0")/.."
command_line="scripts/compare_hosts.sh $*"
. scripts/compare_common.sh
unset_peer_settings

shapes=2x1,4x1,2x2
rate=1gbit
link=()
wires=
backends=
peers=openmpi,openmpi-ucx,openmpi-han,mpich,gloo
rounds=7
folder=build/compare_hosts
build=build/release
fail_below=()
collectives=all_reduce,broadcast
sizes=(--patience 60 --seconds-per-cell 0.2) # patience in seconds for the five calls of a large vector
stolen=5
timeout=600

while [ $# -gt 0 ]; do
  [ "$1" = --help ] || [ $# -ge 2 ] || refuse "$1 needs a value (see --help)"
  case "$1" in
    --hosts) shapes=$2 ;;
    --rate) rate=$2 ;;
    --burst | --packet) link+=("$1" "$2") ;;
    --wires) known 'tcp ucx mpi' "$2" && wires=$2 ;;
    --backends) backends=$2 ;;
    --collectives) known "$operations" "$2" && collectives=$2 ;;
    --peers) known 'openmpi openmpi-ucx openmpi-han mpich gloo none' "$2" && peers=$2 ;;
    --min-bytes | --max-bytes | --factor) sizes+=("$1" "$2") ;;
    --stolen)
      [[ "$2" =~ ^[0-9]+$ ]] && [ "$2" -le 100 ] || refuse "--stolen $2: not a percentage"
      stolen=$2
      ;;
    --rounds) rounds=$2 ;;
    --fail-below) fail_below=("$1" "$2") ;;
    --timeout) timeout=$2 ;;
    --output) folder=$2 ;;
    --build) build=$2 ;;
    --help) print_help ;;
    *) refuse "\"$1\" is no option (see --help)" ;;
  esac
  shift 2
done
[[ "$shapes" =~ ^[1-9][0-9]*x[1-9][0-9]*(,[1-9][0-9]*x[1-9][0-9]*)*$ ]] || refuse "--hosts $shapes: not shapes such as 2x1,4x2"
[[ "$rounds" =~ ^[1-9][0-9]*$ ]] || refuse "--rounds $rounds: not a number"
[ ${#fail_below[@]} -eq 0 ] || [ "$rounds" -ge 7 ] || refuse "--fail-below needs at least 7 rounds"
sizes+=(--collectives "$collectives" --stolen "$stolen")
IFS=, read -ra backend_list <<<"$backends"
timeout=$((timeout * (1 + ${#backend_list[@]})))

[ "$(id -u)" -ne 0 ] || scripts/install_packages.sh
require_hosts

output=$folder
targets=(wire_probe)
prepare libhwy-dev
programs=$(cd "$programs" && pwd)
if [ -z "$wires" ]; then
  wires=tcp
  if compgen -G "$build/lib/libcollectives_ucx.so*" >/dev/null; then wires=tcp,ucx; fi
fi

# --- Contenders

ours=()
for wire in ${wires//,/ }; do ours+=("collectives-$wire"); done
if [ "$peers" = none ]; then peers=; fi
asked=$peers
if wants openmpi-han && ! wants openmpi; then peers=$peers,openmpi; fi # the same program
contenders=()
find_peers
peers=$asked
if ! wants openmpi; then # it was added only to be built
  for i in "${!contenders[@]}"; do
    if [ "${contenders[i]}" = openmpi ]; then unset "contenders[i]"; fi
  done
fi
contenders=("${ours[@]}" ${contenders[@]+"${contenders[@]}"})

# All contenders get the name of the interface between the hosts, because finding it is not part of the comparison.
# Ranks are not bound to cores, because all hosts share them.
export COMPARE_INTERFACE=eth0 UCX_NET_DEVICES=eth0 FI_TCP_IFACE=eth0 FI_SOCKETS_IFACE=eth0

# launch CONTENDER RANKS: sets $launch, the command without the harness's arguments, and $role.
launch() {
  local program=compare_openmpi settings=() variant=() starter=mpirun environment=()
  role=peer
  case "$1" in
    collectives-mpi) role=ours program=compare_collectives_mpi variant=(--variant ordinary) environment=(COLLECTIVES_WIRE=mpi) ;;
    collectives-*)
      role=ours program=compare_collectives variant=(--variant ordinary)
      environment=(COLLECTIVES_WIRE="${1#collectives-}" MASTER_ADDR="$("$hosts_sh" address h1)" MASTER_PORT=29400)
      ;;
    openmpi) ;;
    openmpi-ucx) settings=("${ucx[@]}") ;;
    openmpi-han) role=best-setting settings=(--mca coll_han_priority 100) ;;
    mpich) starter=mpich program=compare_mpich ;;
    gloo-*) program=compare_gloo variant=(--variant "${1#gloo-}") ;;
  esac
  if [ "$1" = "${ours[0]}" ] && [ -n "$backends" ]; then variant+=(--backends "$backends"); fi
  launch=(env ${environment[@]+"${environment[@]}"} "$hosts_sh" "$starter" "$places" ${settings[@]+"${settings[@]}"}
    "$programs/$program" ${variant[@]+"${variant[@]}"})
}

# --- The wire

mean_rate() { awk '{ sum += $2 + $3 } END { printf "%.1f", sum / NR / 2 }'; }

# core_ticks: prints the time of all cores and the stolen part of it. stolen_since CORE_TICKS: prints the stolen
# percentage.
core_ticks() { awk '/^cpu / { for (i = 2; i <= 9; ++i) all += $i; printf "%.0f %.0f\n", all, $9; exit }' /proc/stat; }
stolen_since() { echo "$1" "$(core_ticks)" | awk '{ printf "%.0f", ($3 > $1 ? 100 * ($4 - $2) / ($3 - $1) : 0) }'; }

# probe: sets $wire_rate in bytes per microsecond, the mean of both directions, and $transit in milliseconds. With
# several pairs of hosts it also measures all pairs at once, because they share the cores of this machine.
probe() {
  local line i pairs=() before
  for ((i = 0; i < 5; ++i)); do
    before=$(core_ticks)
    line=$(probe_pair 1 2)
    [ "$(stolen_since "$before")" -gt "$stolen" ] || break
  done
  read -r _ _ _ _ transit _ short <<<"$line"
  wire_rate=$(mean_rate <<<"$line")
  rates+=("$wire_rate")
  transits+=("$transit")
  shorts+=("$short")
  if [ "$hosts" -lt 4 ]; then return; fi
  for ((i = 1; i < hosts; i += 2)); do
    probe_pair $i $((i + 1)) >"$scratch/pair$i" &
    pairs+=($!)
  done
  wait "${pairs[@]}"
  at_once+=("$(cat "$scratch"/pair* | mean_rate)")
}

median() { printf '%s\n' "$@" | sort -g | awk '{ all[NR] = $1 } END { print all[int((NR + 1) / 2)] }'; }

# add_bound ROUND: adds the time that the wire alone takes, for every cell of ours in this round.
add_bound() {
  awk -v rate="$wire_rate" -v hosts="$hosts" -v each="$each" -v round="$1" -v name="\"${ours[0]}\"" '
    index($0, "\"contender\":" name) && index($0, "\"round\":" round ",") && match($0, /"microseconds":[0-9.e+-]+/) {
      time = substr($0, RSTART, RLENGTH)
      match($0, /"bytes":[0-9]+/)
      bytes = substr($0, RSTART + 8, RLENGTH - 8)
      share = (hosts - 1) / hosts
      factor = /"all_reduce"/ ? 2 * share : /"(broadcast|scan|exclusive_scan|sendrecv|ping_pong)"/ ? 1 : share
      if (/"all_to_all/) factor *= each
      sub(/"microseconds":[0-9.e+-]+/, sprintf("\"microseconds\":%.4f", factor * bytes / rate))
      sub(name, "\"wire\"")
      sub(/"role":"ours"/, "\"role\":\"bound\"")
      print
    }' "$samples" >"$scratch/bound"
  cat "$scratch/bound" >>"$samples"
}

# contender_table: prints microseconds and the fraction of the bound, with a row for each cell and a column for each
# contender.
contender_table() {
  awk "$awk_functions"'
    /"microseconds"/ {
      cell = field("collective") "\t" field("bytes")
      who = field("contender")
      if (!(cell in seen)) { seen[cell] = 1; cells[++rows] = cell }
      if (!(who in known) && who != "wire") { known[who] = 1; contenders[++columns] = who }
      times[cell, who, ++number[cell, who]] = field("microseconds") + 0
    }
    END {
      printf "All contenders, microseconds and the fraction of the bound\n%-14s %9s", "", "bytes"
      for (i = 1; i <= columns; ++i) printf " %20s", contenders[i]
      printf "\n"
      for (r = 1; r <= rows; ++r) {
        split(cells[r], part, "\t")
        printf "%-14s %9d", part[1], part[2]
        bound = median(cells[r], "wire")
        for (i = 1; i <= columns; ++i) {
          time = median(cells[r], contenders[i])
          printf " %20s", time == 0 ? "-" : sprintf(time < 1000 ? "%.1f (%.2f)" : "%.0f (%.2f)", time, bound / time)
        }
        printf "\n"
      }
    }' "$samples"
}

# --- Shapes

worst=0
all_contenders=("${contenders[@]}")
all_samples=$samples
for shape in ${shapes//,/ }; do
  hosts=${shape%x*}
  each=${shape#*x}
  [ "$hosts" -ge 2 ] || refuse "--hosts $shape: at least two hosts"
  places=$(printf "$each,%.0s" $(seq "$hosts"))
  places=${places%,}
  count=$((hosts * each))
  output=$folder/$shape-$rate
  mkdir -p "$output"
  output=$(cd "$output" && pwd)
  samples=$output/samples.jsonl
  header=$output/header.txt
  : >"$samples"
  rates=() transits=() shorts=() at_once=()
  HOSTS_BED=$("$hosts_sh" up "$hosts" --rate "$rate" ${link[@]+"${link[@]}"} --owner $$)
  export HOSTS_BED

  write_header
  active=("${all_contenders[@]}")
  if [[ ",$peers," == *,openmpi-han,* ]] && [ "$each" -gt 1 ]; then active+=(openmpi-han); fi
  for name in ${without[@]+"${without[@]}"}; do leave_out "$name" 'not installed'; done
  more=()
  if [ "$count" -gt "$(nproc)" ]; then more=(--oversubscribed); fi
  for ((round = 1; round <= rounds; ++round)); do
    probe
    echo "== $shape, $rate, round $round of $rounds: the wire reaches $wire_rate Mbyte/s in each direction, 28 KiB one way take" \
      "$transit ms"
    run_round "$count" "$round"
    add_bound "$round"
  done
  "$hosts_sh" down
  unset HOSTS_BED

  {
    echo "$hosts hosts x $each ranks, links of $rate: two opposite TCP streams reach $(median "${rates[@]}") Mbyte/s in each"
    echo "direction (by round: ${rates[*]}); one way 28 KiB take $(median "${transits[@]}") ms, 8 bytes $(median "${shorts[@]}") us"
    [ ${#at_once[@]} -eq 0 ] || echo "all pairs of hosts at once reach $(median "${at_once[@]}") Mbyte/s in each direction"
    awk -v most="$stolen" '!/"role":"bound"/ && match($0, /"stolen":[0-9.e-]+/) {
        ++all
        disturbed += 100 * substr($0, RSTART + 9, RLENGTH - 9) > most
      }
      END { if (disturbed) printf "of %d samples %d are of times in which the host took more than %d %% of the cores away\n", all, disturbed, most }' "$samples"
    echo 'roofline here: the time that the bytes alone take on the wire at that rate / ours'
  } >>"$header"
  status=0
  "$programs/compare_report" --samples "$samples" --header "$header" --output "$output" \
    ${fail_below[@]+"${fail_below[@]}"} || status=$?
  if [ "$status" -ne 0 ]; then worst=$status; fi
  contender_table >"$output/contenders.txt"
  cat "$output/contenders.txt"
  echo "Tables: $output/table.txt, table.md, contenders.txt.  Every sample: samples.jsonl"
done
rm -f "$all_samples"
exit "$worst"
