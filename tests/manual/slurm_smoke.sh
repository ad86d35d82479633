#!/usr/bin/env bash
# Runs a program under a real srun: a Slurm of one node on the loopback interface, in a temporary folder. A PID
# namespace ends all its processes. Needs root, and Debian's slurm-wlm and munge.
#
#   tests/manual/slurm_smoke.sh                          four ranks of build/release/bin/collectives_bench
#   tests/manual/slurm_smoke.sh PROGRAM [ARGUMENTS...]   another program with these arguments
#
# RANKS=N starts N ranks.
set -eu
PATH=$PATH:/usr/sbin
ranks=${RANKS:-4}

if [ "${1:-}" != --inside ]; then
  cd "$(dirname "$0")/../.."
  [ $# -gt 0 ] || set -- build/release/bin/collectives_bench all_reduce --max-bytes 1K
  for program in munged slurmctld slurmd srun; do
    command -v "$program" >/dev/null || { echo "slurm_smoke.sh: no $program: apt-get install slurm-wlm munge" >&2; exit 2; }
  done
  [ -x "$1" ] || { echo "slurm_smoke.sh: $1 is not there: build it first" >&2; exit 2; }
  [ "$(id -u)" -eq 0 ] || { echo "slurm_smoke.sh: needs root, for a PID namespace and Slurm's daemons" >&2; exit 2; }
  folder=$(mktemp -d)
  unshare --pid --fork --kill-child --mount-proc tests/manual/slurm_smoke.sh --inside "$folder" "$@" &
  namespace=$!
  trap 'kill -KILL "$namespace" 2>/dev/null || true; wait "$namespace" || true; rm -rf "$folder"' EXIT
  trap 'exit 143' INT TERM
  status=0
  wait "$namespace" || status=$?
  [ "$status" -eq 0 ] || tail -n 20 "$folder"/*.log >&2
  exit "$status"
fi

# ---- Inside the namespace ----
folder=$2
shift 2

# wait_until SECONDS COMMAND...: waits until the command succeeds.
wait_until() {
  local tries=$(($1 * 5))
  shift
  for _ in $(seq "$tries"); do
    "$@" >/dev/null 2>&1 && return
    sleep 0.2
  done
  echo "slurm_smoke.sh: waited in vain for: $*" >&2
  return 1
}

host=$(hostname -s)
port=$((20000 + RANDOM % 10000))
mkdir "$folder/state" "$folder/spool"
cat >"$folder/slurm.conf" <<END
ClusterName=smoke
SlurmctldHost=$host(127.0.0.1)
SlurmctldPort=$port
SlurmdPort=$((port + 1))
SlurmUser=root
CommunicationParameters=NoCtldInAddrAny,NoInAddrAny
AuthType=auth/munge
AuthInfo=socket=$folder/munge.socket
StateSaveLocation=$folder/state
SlurmdSpoolDir=$folder/spool
SlurmctldPidFile=$folder/slurmctld.pid
SlurmdPidFile=$folder/slurmd.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
MpiDefault=none
SlurmdParameters=config_overrides
NodeName=$host NodeAddr=127.0.0.1 CPUs=$ranks
PartitionName=all Nodes=$host Default=YES State=UP
END
export SLURM_CONF=$folder/slurm.conf

head -c 1024 /dev/urandom >"$folder/munge.key"
chmod 600 "$folder/munge.key"
munged --foreground --force --socket="$folder/munge.socket" --key-file="$folder/munge.key" \
  --log-file="$folder/munge.log" --pid-file="$folder/munged.pid" --seed-file="$folder/munged.seed" \
  >"$folder/munged.log" 2>&1 &
wait_until 10 test -S "$folder/munge.socket"
slurmctld -D >"$folder/slurmctld.log" 2>&1 &
slurmd -D >"$folder/slurmd.log" 2>&1 &
node_is_idle() { [ "$(sinfo -h -o %t)" = idle ]; }
wait_until 30 node_is_idle

timeout 120 srun -n "$ranks" "$@"
