#!/usr/bin/env bash
# Several hosts on one machine: a bed of network namespaces on one bridge, for tests and measurements between hosts.
#
#   hosts.sh up N [--rate 1gbit] [--burst 7000] [--packet 14000] [--delay 1ms] [--owner PID]
#                                 makes N hosts and prints the bed's id. They last until `down`, or until the owner
#                                 (the process that called hosts.sh) ends
#   hosts.sh run HOST COMMAND...  runs COMMAND on HOST: h1, h2, ..., or sw, the switch, which reaches all hosts
#   hosts.sh mpirun L1,L2,... ARGUMENTS...
#                                 runs Open MPI's mpirun with ARGUMENTS: L1 ranks on h1, L2 on h2, ...
#   hosts.sh mpich L1,L2,... ARGUMENTS...
#                                 runs MPICH's mpirun in the same manner
#   hosts.sh each L1,L2,... COMMAND...
#                                 runs COMMAND for every rank, with RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT. When
#                                 all have ended, ends with the first status that is not 0
#   hosts.sh tf_config L1,L2,... COMMAND...
#                                 runs COMMAND for every rank, with TF_CONFIG
#   hosts.sh cut HOST [silently]  takes HOST's link down; silently: the link stays up, the switch drops all packets
#   hosts.sh mend HOST            undoes both
#   hosts.sh stall HOST SECONDS   cuts silently, waits, mends
#   hosts.sh block HOST HOST      each drops packets of the other silently; other hosts stay reachable
#   hosts.sh drop_datagrams HOST  HOST silently drops all UDP packets that arrive
#   hosts.sh kill HOST            kills all processes of HOST at once
#   hosts.sh decoys               gives every host interfaces without a route: a bridge with one address on all hosts,
#                                 and an interface that is down
#   hosts.sh address HOST         prints its IPv4 address
#   hosts.sh name HOST            prints its host name
#   hosts.sh with N [OPTIONS of up] -- COMMAND...
#                                 makes a bed, runs COMMAND with HOSTS_BED set, removes the bed
#   hosts.sh down                 removes the bed
#   hosts.sh sweep                removes the rest of beds whose keeper was killed
#   hosts.sh possible [RATE]      ends with 1, and a reason, if hosts (on links of that rate) cannot be made here
#
# HOSTS_BED names the bed. It may be unset if there is only one bed. A host is a set of namespaces of its own (network,
# PID, IPC, UTS, mounts), held by one process, so programs take it for a machine of its own. Hosts share the files of
# this machine, apart from the caches of programs ($XDG_CACHE_HOME), because measurements on these links do not hold
# elsewhere. In the file system a bed has a folder in $TMPDIR and nothing else. It ends with its keeper, a process that
# watches the owner. Requires root, iproute2 (5.17 for links of a rate), ethtool and util-linux.
#
# The rate holds in each direction of each host's link. A token bucket at both ends (tc htb) limits it, in place of a
# network interface and a switch. The kernel may join packets to one of up to --packet bytes. That packet leaves at once
# if the bucket has tokens. An idle link saves up --burst bytes more. A link carries both without charge, so they are
# small. With 14000 and 7000, 28 KiB take 0.22 to 0.23 ms one way at 1 Gbit/s, which is the time at the full rate. But
# each packet that waits costs a timer. On some virtual machines a timer takes 50 us of a core and is late by as much,
# and bytes that the bucket cannot hold in this time are lost. With prompt timers 28 KiB take 0.18 ms, and 0.23 ms at
# the full rate with --burst 1600. Vectors of megabytes on slow timers need --packet 64kb --burst 16kb. Two cores then
# keep four links full in both directions, and 28 KiB take half of the time. tc tbf is not used for two reasons. It sets
# its timer again whenever another packet waits, which took half of both cores. Its burst must hold a whole packet
# before it sends at all. Hosts use cubic.
set -eu
self=$(cd "$(dirname "$0")" && pwd)/$(basename "$0")
beds=${TMPDIR:-/tmp}/collectives-hosts
subnet=10.77.0

refuse() {
  echo "hosts.sh: $1" >&2
  exit 2
}

# ---- A bed: a folder $bed with the files keeper, sw, h1, h2, ... (process ids), hosts, options

# read_start PID: sets $start to the time at which the process began, or fails if it has ended. alive PID [START]: fails
# unless that process runs, and began at START. Neither starts a process, because the keeper calls them during
# measurements.
read_start() {
  local stat
  { read -r stat <"/proc/$1/stat"; } 2>/dev/null || return 1 # in a trap, a plain return keeps the old status
  read -ra stat <<<"${stat##*) }"
  [[ "${stat[0]}" != [ZX] ]] && start=${stat[19]}
}
alive() { read_start "$1" && { [ -z "${2:-}" ] || [ "$start" = "$2" ]; }; }

find_bed() {
  if [ -z "${HOSTS_BED:-}" ]; then
    set -- "$beds".*/
    [ $# -eq 1 ] && [ -e "$1" ] || refuse 'there is no bed, or more than one: set HOSTS_BED (hosts.sh up prints it)'
    HOSTS_BED=${1%/}
    HOSTS_BED=${HOSTS_BED#"$beds".}
  fi
  bed=$beds.$HOSTS_BED
  [ -e "$bed/ready" ] || refuse "no bed $HOSTS_BED"
  count=$(cat "$bed/count")
}

holder() {
  [[ "$1" =~ ^(sw|h[0-9]+)$ ]] && [ -e "$bed/$1" ] || refuse "no host \"$1\": they are h1 to h$count, and sw"
  cat "$bed/$1"
}

number() {
  [[ "$1" =~ ^h[0-9]+$ ]] && [ -e "$bed/$1" ] || refuse "no host \"$1\": they are h1 to h$count"
  echo "${1#h}"
}

# Replaces this process by a command on a host. The switch has no PID namespace, so launchers there reach all hosts.
enter() {
  local pid
  pid=$(holder "$1")
  local namespaces=(--net --uts --ipc --mount)
  [ "$1" = sw ] || namespaces+=(--pid)
  shift
  exec nsenter --target "$pid" "${namespaces[@]}" --wd="$PWD" -- env XDG_CACHE_HOME="$bed/cache" "$@"
}
on() { (enter "$@"); }

# ---- The keeper and the holders

# Runs inside new namespaces, as the first process of a host.
hold() {
  local name=$1
  # /proc is still that of the machine, so this is the process id in the namespace of the machine.
  read -r pid _ </proc/self/stat
  mount --make-rprivate /
  mount --bind "$bed/hosts" /etc/hosts
  # No name server answers here, and waiting for one takes long.
  [ ! -e "$bed/nsswitch.conf" ] || mount --bind "$bed/nsswitch.conf" /etc/nsswitch.conf
  hostname "$name-$HOSTS_BED"
  mount -t sysfs sysfs /sys # shows the network of the process that mounts it
  if [ "$name" != sw ]; then mount -t proc proc /proc; fi
  setting() { [ ! -e "/proc/sys/net/$1" ] || echo "$2" >"/proc/sys/net/$1"; }
  setting ipv6/conf/all/disable_ipv6 1
  setting ipv6/conf/default/disable_ipv6 1
  setting ipv4/tcp_congestion_control cubic 2>/dev/null || true # the default of Linux; this machine may have another
  setting ipv4/tcp_no_metrics_save 1
  ip link set lo up
  echo "$pid" >"$bed/$name.new"
  mv "$bed/$name.new" "$bed/$name"
  [ "$name" != sw ] || exec sleep infinity
  while :; do # collects orphans
    sleep 3600 &
    wait $! || true
  done
}

holders=()
start_holder() {
  local name=$1 pid=()
  [ "$name" = sw ] || pid=(--pid --fork --kill-child)
  HOSTS_BED=$HOSTS_BED setpriv --pdeathsig KILL unshare --net --uts --ipc --mount "${pid[@]}" \
    "$self" --hold "$name" </dev/null >>"$bed/log" 2>&1 9<&- &
  holders+=($!)
  for _ in $(seq 250); do
    if [ -e "$bed/$name" ]; then return; fi
    (alive $!) || break # to exit out of a read makes bash crash
    sleep 0.02
  done
  echo "no namespaces for $name" >>"$bed/log"
  return 1
}

# Keeps packets of a device in order. The core that sends a packet takes it to the other end at once. A packet that a
# bucket holds back leaves by the core whose timer is due, and may overtake a packet of another core. These ends
# therefore have one queue for all cores: NAPI. A veth uses NAPI if it may join packets and the other end does not send
# joined packets. One core for all packets (rps_cpus) would do, too. But it interrupts that core for each packet, which
# takes longer than the packet on a virtual machine: 8 bytes take 30 to 60 us one way in place of 7 us.
in_order() { # HOST DEVICE
  on "$1" ethtool -K "$2" gro on tso off
}

# A packet consists of Ethernet frames of equal length, each of at most 9000 bytes (jumbo frames).
frames() { echo $(((packet + 8999) / 9000)); }
frame() { echo $((packet / $(frames))); }

shape() { # HOST DEVICE
  local queue=(bfifo limit 1mb)
  [ -z "$delay" ] || queue=(netem delay "$delay" limit 1000) # packets: 100 ms at 1 Gbit/s
  [ "$rate$delay" = unshaped ] || in_order "$1" "$2"
  if [ "$rate" = unshaped ]; then
    [ -z "$delay" ] || on "$1" tc qdisc add dev "$2" root handle 2: netem delay "$delay" limit 100000
    return
  fi
  on "$1" ip link set dev "$2" mtu "$(frame)" gso_max_segs "$(frames)" gro_max_size "$packet"
  on "$1" tc qdisc add dev "$2" root handle 1: htb default 1
  on "$1" tc class add dev "$2" parent 1: classid 1:1 htb rate "$rate" burst "$burst" cburst "$burst" quantum "$packet"
  on "$1" tc qdisc add dev "$2" parent 1:1 handle 2: "${queue[@]}"
}

# Allows cubic to all processes of the machine while COMMAND runs, because a namespace cannot choose it otherwise.
allowing_cubic() {
  local file=/proc/sys/net/ipv4/tcp_allowed_congestion_control allowed
  exec 9<"$self"
  flock 9
  allowed=$(cat "$file" 2>/dev/null || true)
  if [[ " $allowed " == *" cubic "* ]] || [ ! -w "$file" ] || ! echo "$allowed cubic" 2>/dev/null >"$file"; then
    "$@" # cubic is allowed, or hosts use the congestion control of the machine
  else
    trap 'echo "$allowed" >"$file"; cleanup' EXIT
    "$@"
    echo "$allowed" >"$file"
    trap cleanup EXIT
  fi
  exec 9<&-
}

start_holders() {
  local i
  start_holder sw
  for i in $(seq "$count"); do start_holder "h$i"; done
}

build() {
  local i
  for i in $(seq "$count"); do echo "$subnet.$i h$i-$HOSTS_BED h$i"; done >"$bed/hosts"
  echo "$subnet.254 sw-$HOSTS_BED sw" >>"$bed/hosts"
  echo '127.0.0.1 localhost' >>"$bed/hosts"
  [ ! -e /etc/nsswitch.conf ] || sed 's/^hosts:.*/hosts: files/' /etc/nsswitch.conf >"$bed/nsswitch.conf"
  printf '#!/bin/sh\nHOSTS_BED=%s exec "%s" --agent "$@"\n' "$HOSTS_BED" "$self" >"$bed/agent"
  chmod 755 "$bed/agent"
  allowing_cubic start_holders
  on sw ip link add sw type bridge stp_state 0 forward_delay 0
  on sw ip address add "$subnet.254/24" dev sw
  on sw ip link set sw up
  for i in $(seq "$count"); do
    on sw ip link add "p$i" type veth peer name eth0 netns "$(cat "$bed/h$i")"
    on sw ip link set "p$i" master sw up
    on "h$i" ip address add "$subnet.$i/24" broadcast + dev eth0
    on "h$i" ip link set eth0 up
    on "h$i" ip route add default via "$subnet.254"
    shape "h$i" eth0
    shape sw "p$i"
  done
}

# Prints the processes on the switch, such as launchers. The switch has no PID namespace that would end them.
processes_of_switch() {
  local switch
  switch=$(readlink "/proc/$(cat "$bed/sw" 2>/dev/null)/ns/net" 2>/dev/null) || return 0
  # Its holder has ended, and a process outside the bed has its process id now.
  [ "$switch" != "$(readlink /proc/self/ns/net)" ] || return 0
  find /proc/[0-9]*/ns/net -maxdepth 0 -lname "${switch//[\[\]]/?}" 2>/dev/null | cut -d / -f 3 || true
}

keep() {
  echo $$ >"$bed/keeper"
  cleanup() {
    trap '' INT TERM HUP
    if [ ! -e "$bed/ready" ]; then
      mv "$bed/log" "$bed/failed"
      sleep 2 # so that `up` reads it
    fi
    for pid in $(processes_of_switch) ${holders[@]+"${holders[@]}"}; do kill -KILL "$pid" 2>/dev/null || true; done
    wait
    rm -rf "$bed"
  }
  trap cleanup EXIT
  trap 'exit 143' INT TERM HUP
  build >>"$bed/log" 2>&1
  mkfifo "$bed/silence" 2>>"$bed/log" # a read without end needs no sleeping process
  exec 8<>"$bed/silence"
  local over=
  trap 'over=yes' INT TERM HUP # to exit out of a read makes bash crash
  : >"$bed/ready"
  while [ -z "$over" ] && alive "$owner" "$owner_start"; do read -r -t 0.5 -u 8 || true; done
}

why_not() { # RATE
  local program why
  for program in ip bridge tc ethtool nsenter unshare setpriv; do
    command -v "$program" >/dev/null || { echo "no $program (Debian: iproute2, util-linux, ethtool)"; return; }
  done
  [ "$(id -u)" -eq 0 ] || { echo 'making network namespaces needs root'; return; }
  why=$(unshare --net --uts --ipc --mount --pid --fork sh -c 'mount --make-rprivate / && mount -t proc proc /proc &&
    ip link add one type veth peer name two && ip link add three type bridge' 2>&1 | head -n 1)
  [ -z "$why" ] || { echo "$why"; return; }
  [ "$1" = unshaped ] || unshare --net sh -c 'tc qdisc add dev lo root handle 1: htb default 1 &&
    ip link set dev lo gso_max_segs 2 gro_max_size 14000' 2>&1 | head -n 1
}

bytes() { # OPTION NUMBER
  [[ "$2" =~ ^[1-9][0-9]{0,8}(kb|b)?$ ]] || refuse "$1 takes bytes: 9000, 9000b, 9kb"
  case "$2" in
    *kb) echo $((${2%kb} * 1024)) ;;
    *) echo "${2%b}" ;;
  esac
}

up() {
  count=${1:-}
  [[ "$count" =~ ^[1-9][0-9]?$ ]] || refuse 'up N: N is 1 to 99'
  shift
  rate=unshaped burst=7000 packet=14000 delay='' owner=$PPID
  while [ $# -gt 0 ]; do
    [ $# -ge 2 ] || refuse "$1 needs a value"
    case "$1" in
      --rate) rate=$2 ;;
      --burst) burst=$(bytes "$1" "$2") ;;
      --packet) packet=$(bytes "$1" "$2") ;;
      --delay) delay=$2 ;;
      --owner) owner=$2 ;;
      *) refuse "\"$1\" is no option of up" ;;
    esac
    shift 2
  done
  [ "$packet" -ge 576 ] && [ "$packet" -le 65536 ] || refuse "--packet $packet: not 576 to 65536 bytes"
  read_start "$owner" || refuse "the owner, process $owner, is not there"
  owner_start=$start
  local why
  why=$(why_not "$rate")
  [ -z "$why" ] || refuse "hosts cannot be made here: $why"
  HOSTS_BED=$$
  bed=$beds.$HOSTS_BED
  mkdir -m 755 "$bed"
  echo "$count" >"$bed/count"
  printf '%s\n' "$count" "$rate" "$burst" "$packet" "$delay" "$owner" "$owner_start" >"$bed/options"
  HOSTS_BED=$HOSTS_BED setsid "$self" --keep </dev/null >/dev/null 2>&1 &
  for _ in $(seq 500); do
    if [ -e "$bed/ready" ]; then return; fi
    if [ -e "$bed/failed" ]; then
      echo "hosts.sh: the bed could not be made: $(cat "$bed/failed")" >&2
      exit 1
    fi
    sleep 0.02
  done
  down
  refuse 'the bed was not made within ten seconds'
}

down() {
  local keeper
  keeper=$(cat "$bed/keeper")
  kill -TERM "$keeper" 2>/dev/null || true
  for _ in $(seq 500); do
    if ! alive "$keeper"; then
      rm -rf "$bed"
      return
    fi
    sleep 0.02
  done
  refuse "the keeper, process $keeper, does not end"
}

# ---- Launchers

# set_places L1,L2,...: sets $ranks to the number of ranks, and $places to the host of each rank.
set_places() {
  local i each
  places=()
  i=0
  for each in ${1//,/ }; do
    i=$((i + 1))
    [ -e "$bed/h$i" ] || refuse "$1: there are $count hosts"
    for _ in $(seq "$each"); do places+=("h$i"); done
  done
  ranks=${#places[@]}
  [ "$ranks" -gt 0 ] || refuse "$1: numbers of ranks such as 2,2"
}

with_slots() { # SEPARATOR L1,L2,...: h1-BED:L1,h2-BED:L2
  local i=0 each list=''
  for each in ${1//,/ }; do
    i=$((i + 1))
    [ "$each" = 0 ] || list="$list,h$i-$HOSTS_BED:$each"
  done
  echo "${list#,}"
}

# Takes the place of ssh for mpirun: [OPTIONS] HOST COMMAND... A shell runs the command, as with ssh.
agent() {
  while [[ "$1" == -* ]]; do shift; done
  local host=${1%-"$HOSTS_BED"}
  shift
  enter "$host" sh -c "$*"
}

{ # read as a whole before anything runs
action=${1:-}
[ $# -eq 0 ] || shift
case "$action" in
  up)
    up "$@"
    echo "$HOSTS_BED"
    ;;
  with)
    options=()
    while [ $# -gt 0 ] && [ "$1" != -- ]; do
      options+=("$1")
      shift
    done
    [ $# -ge 2 ] || refuse 'with N [OPTIONS] -- COMMAND...'
    shift
    up "${options[@]}" --owner $$
    child=
    trap 'trap "" INT TERM; [ -z "$child" ] || kill -TERM "$child" 2>/dev/null || true; down' EXIT
    trap 'exit 130' INT
    trap 'exit 143' TERM
    export HOSTS_BED
    "$@" <&0 &
    child=$!
    status=0
    wait "$child" || status=$?
    child=
    exit "$status"
    ;;
  --keep)
    bed=$beds.$HOSTS_BED
    for option in count rate burst packet delay owner owner_start; do read -r "$option"; done <"$bed/options"
    keep
    ;;
  --hold)
    bed=$beds.$HOSTS_BED
    hold "$1"
    ;;
  --agent)
    find_bed
    agent "$@"
    ;;
  run)
    find_bed
    [ $# -ge 2 ] || refuse 'run HOST COMMAND...'
    enter "$@"
    ;;
  mpirun)
    find_bed
    set_places "${1:-}"
    slots=$(with_slots "$1")
    shift
    export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
    # All hosts are in one session. A system that divides its cores among sessions (autogroup) would not let a rank yield
    # its core to ranks of other hosts. (MPICH makes a session of every rank, and its ranks do not yield.)
    enter sw "$(command -v mpirun.openmpi || echo mpirun)" --host "$slots" -np "$ranks" --mca plm_rsh_agent "$bed/agent" \
      --mca plm_rsh_no_tree_spawn 1 --mca oob_tcp_if_include "$subnet.0/24" --mca btl_tcp_if_include "$subnet.0/24" \
      --mca hwloc_base_binding_policy none --mca mpi_yield_when_idle 1 --mca orte_leave_session_attached 1 "$@"
    ;;
  mpich)
    find_bed
    set_places "${1:-}"
    slots=$(with_slots "$1")
    shift
    enter sw "$(command -v mpirun.mpich || echo mpirun)" -hosts "$slots" -np "$ranks" -launcher ssh -launcher-exec "$bed/agent" -iface sw "$@"
    ;;
  each | tf_config)
    find_bed
    set_places "${1:-}"
    shift
    cluster=
    for ((rank = 1; rank < ranks; ++rank)); do
      cluster+=",\"$subnet.$(number "${places[rank]}"):$((29400 + rank))\""
    done
    cluster="{\"chief\":[\"$subnet.1:29400\"],\"worker\":[${cluster#,}]}"
    pids=()
    trap 'for pid in ${pids[@]+"${pids[@]}"}; do kill -TERM "$pid" 2>/dev/null || true; done' EXIT
    trap 'exit 143' INT TERM
    for ((rank = 0; rank < ranks; ++rank)); do
      if [ "$action" = each ]; then
        place=(RANK="$rank" WORLD_SIZE="$ranks" MASTER_ADDR="$subnet.1" MASTER_PORT=29400)
      elif [ "$rank" -eq 0 ]; then
        place=(TF_CONFIG="{\"cluster\":$cluster,\"task\":{\"type\":\"chief\",\"index\":0}}")
      else
        place=(TF_CONFIG="{\"cluster\":$cluster,\"task\":{\"type\":\"worker\",\"index\":$((rank - 1))}}")
      fi
      env "${place[@]}" "$self" run "${places[rank]}" "$@" </dev/null &
      pids+=($!)
    done
    status=0
    for pid in "${pids[@]}"; do
      one=0
      wait "$pid" || one=$?
      if [ "$status" -eq 0 ]; then status=$one; fi
    done
    pids=()
    exit "$status"
    ;;
  cut)
    find_bed
    case "${2:-}" in
      '') on "$1" ip link set eth0 down ;;
      silently) on sw bridge link set dev "p$(number "$1")" state 0 ;;
      *) refuse 'cut HOST [silently]' ;;
    esac
    ;;
  mend)
    find_bed
    on "$1" ip link set eth0 up
    on "$1" ip route replace default via "$subnet.254"
    on sw bridge link set dev "p$(number "$1")" state 3
    ;;
  stall)
    find_bed
    port=p$(number "$1")
    on sw bridge link set dev "$port" state 0
    sleep "$2"
    on sw bridge link set dev "$port" state 3
    ;;
  block)
    find_bed
    # Packets go to an Ethernet address that no interface has.
    on "$1" ip neighbour replace "$subnet.$(number "$2")" lladdr 02:00:00:00:00:99 nud permanent dev eth0
    on "$2" ip neighbour replace "$subnet.$(number "$1")" lladdr 02:00:00:00:00:99 nud permanent dev eth0
    ;;
  drop_datagrams)
    find_bed
    # The rule precedes that of local addresses. udp_early_demux=0 leads every packet through the rules.
    on "$1" sh -c 'sysctl -qw net.ipv4.udp_early_demux=0 && ip rule add priority 10 lookup local &&
      ip rule add priority 5 iif eth0 ipproto udp blackhole && ip rule delete priority 0'
    ;;
  kill)
    find_bed
    number "$1" >/dev/null
    on "$1" bash -c 'kill -KILL -1'
    ;;
  decoys)
    find_bed
    for i in $(seq "$count"); do
      on "h$i" sh -c "ip link add docker0 type bridge forward_delay 0 && ip address add 172.17.0.1/16 dev docker0 &&
        ip link add inside type veth peer name outside && ip link set outside master docker0 &&
        ip link set inside up && ip link set outside up && ip link set docker0 up &&
        ip link add unplugged type veth peer name nowhere && ip address add 10.78.0.$i/24 dev unplugged"
    done
    ;;
  address)
    find_bed
    if [ "$1" = sw ]; then echo "$subnet.254"; else echo "$subnet.$(number "$1")"; fi
    ;;
  name)
    find_bed
    holder "$1" >/dev/null
    echo "$1-$HOSTS_BED"
    ;;
  down)
    find_bed
    down
    ;;
  sweep)
    for bed in "$beds".*/; do
      [ -e "$bed" ] || continue
      if [ -e "$bed/keeper" ] && alive "$(cat "$bed/keeper")"; then continue; fi
      rm -rf "$bed"
    done
    ;;
  possible)
    why=$(why_not "${1:-unshaped}")
    [ -z "$why" ] || { echo "$why"; exit 1; }
    ;;
  help | --help)
    sed -n '2,/^set -eu/{/^set -eu/!s/^# \{0,1\}//p}' "$self"
    ;;
  *) refuse "\"$action\" is no action (see hosts.sh help)" ;;
esac
exit
}
