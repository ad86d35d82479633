# Functions that the scripts of comparisons share: compare.sh, compare_hosts.sh, compare_compression.sh,
# mnist_accuracy.sh and mnist_wire.sh source this file.
#
# The functions from `prepare` on serve compare.sh and compare_hosts.sh. These two scripts set `peers`, `output`,
# `build`, `rounds`, `timeout`, `sizes`, `contenders` and `command_line`, and define the function `launch`.
# shellcheck shell=bash disable=SC2154,SC2034

refuse() {
  echo "$(basename "$0"): $1" >&2
  exit 2
}

# print_help: prints the comment at the head of the script and ends it.
print_help() {
  sed -n '2,/^set -eu/{/^set -eu/!s/^# \{0,1\}//p}' "$0"
  exit 0
}

# require_value OPTION [VALUE...]: refuses an option without a value.
require_value() { [ $# -ge 2 ] || refuse "$1 needs a value (see --help)"; }

# require_counts "OPTION VALUE"...: refuses values that are not whole numbers from 1.
require_counts() {
  local number
  for number in "$@"; do
    [[ "${number#* }" =~ ^[1-9][0-9]*$ ]] || refuse "$number: not a number from 1"
  done
}

# require_programs PROGRAM...: refuses if a program is missing in $build.
require_programs() {
  local program
  for program in "$@"; do
    [ -x "$build/bin/$program" ] || refuse "$build/bin/$program is not built"
  done
}

require_mnist() { [ -d "${MNIST_DIR:-}" ] || refuse "MNIST_DIR must be the folder with the four IDX files"; }

# unset_peer_settings: removes settings of the caller's shell that only the peers would read, such as a yield while
# waiting.
unset_peer_settings() {
  local variable
  for variable in $(compgen -e); do
    case $variable in OMPI_MCA_* | PRTE_MCA_* | PMIX_MCA_* | MPIR_CVAR_* | UCX_*) unset "$variable" ;; esac
  done
}

# --- Scratch folder, and what is taken down at the end

child=
scratch=
cleanup() {
  if [ -n "$child" ] && kill -TERM "$child" 2>/dev/null; then wait "$child" 2>/dev/null || true; fi
  if [ -n "$scratch" ]; then rm -rf "$scratch"; fi
  if [ -n "${HOSTS_BED:-}" ]; then "$hosts_sh" down || true; fi
}
trap cleanup EXIT
trap 'exit 130' INT
trap 'exit 143' TERM
scratch=$(mktemp -d -p "$([ -w /dev/shm ] && echo /dev/shm || echo "${TMPDIR:-/tmp}")" compare.XXXXXX)

# --- Hosts that are namespaces of this machine

hosts_sh=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)/tests/multi_host/hosts.sh

# require_hosts: refuses if this machine cannot make namespaces. Ignores hosts of the caller.
require_hosts() {
  local why
  unset HOSTS_BED
  why=$("$hosts_sh" possible) || refuse "hosts cannot be made here: $why"
}

# raise_hosts COUNT: makes hosts on links of $rate with $burst and $packet.
raise_hosts() {
  local options=(--burst "$burst" --packet "$packet")
  if [ "$rate" != unshaped ]; then options+=(--rate "$rate"); fi
  HOSTS_BED=$("$hosts_sh" up "$1" "${options[@]}" --owner $$)
  export HOSTS_BED
}

# probe_pair A B: prints the line of wire_probe about hosts hA and hB.
probe_pair() {
  local server
  "$hosts_sh" run "h$2" "$build/bin/wire_probe" serve >/dev/null 2>&1 &
  server=$!
  "$hosts_sh" run "h$1" "$build/bin/wire_probe" measure "h$2"
  wait "$server"
}

# describe_run: prints the command, the date, the machine and the commit.
describe_run() {
  local commit
  commit=$(git -C "$(dirname "$hosts_sh")" rev-parse --short HEAD 2>/dev/null || echo unknown)
  echo "\$ $command_line"
  echo "$(date -u '+%Y-%m-%d'), $(nproc) cores, commit $commit"
}

# describe_link [TEXT]: prints TEXT and the settings of the link.
describe_link() { echo "${1:-}$("$hosts_sh" run h1 tc qdisc show dev eth0 | head -n 1)"; }

# describe_wire FILE: prints the means of all lines of wire_probe in FILE.
describe_wire() {
  awk '{ sum += ($2 + $3) / 2; transit += $5 }
    END { printf "two opposite TCP streams: %.1f Mbyte/s in each direction; 28 KiB one way: %.3f ms\n", sum / NR, transit / NR }' "$1"
}

# Functions for awk: field() returns a field of a JSON line. median() returns the median of times[cell, who, 1 ..
# number[cell, who]].
awk_functions='
    function field(name, rest) {
      rest = substr($0, index($0, "\"" name "\":") + length(name) + 3)
      sub(/[,}].*/, "", rest)
      gsub(/"/, "", rest)
      return rest
    }
    function median(cell, who, n, i, j, t, a) {
      n = number[cell, who]
      for (i = 1; i <= n; ++i) a[i] = times[cell, who, i]
      for (i = 2; i <= n; ++i) for (j = i; j > 1 && a[j] < a[j - 1]; --j) { t = a[j]; a[j] = a[j - 1]; a[j - 1] = t }
      return n == 0 ? 0 : n % 2 ? a[(n + 1) / 2] : (a[n / 2] + a[n / 2 + 1]) / 2
    }'

# --- The comparison with other libraries

# Operations that the harness times (kTimed in bench/compare/harness.hpp).
operations='all_reduce reduce_scatter all_gather broadcast all_to_all all_to_all_v gather gather_v scatter scatter_v scan
exclusive_scan sendrecv ping_pong'
operations=${operations//$'\n'/ }

# known WORDS LIST: refuses a LIST (a,b,c) with a word that is none of WORDS (a b c).
known() {
  local word
  for word in ${2//,/ }; do
    [[ " $1 " == *" $word "* ]] || refuse "\"$word\" is none of: $1"
  done
}

wants() { [[ ",$peers," == *",$1,"* ]]; }

# prepare PACKAGES...: installs these packages and those of the peers, builds, and makes the folders.
prepare() {
  local packages=("$@")
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
    cmake --build "$build" -j "$(nproc)" --target compare "${targets[@]}"
  } >"$build/compare_build.log" 2>&1 || {
    tail -n 40 "$build/compare_build.log"
    exit 1
  }
  programs=$build/bin
  samples=$output/samples.jsonl
  header=$output/header.txt
  : >"$samples"
}

# leave_out CONTENDER WHY: prints a line and adds it to the report.
leave_out() {
  echo "left out: $1: $2"
  printf '{"contender":"%s","left_out":"%s"}\n' "$1" "$2" >>"$samples"
}

# compile_peer PROGRAM SOURCE COMPILER LIBRARIES...: returns false if the program cannot be compiled; the build log has
# the reason.
compile_peer() {
  local program=$programs/$1 source=bench/compare/$2 compiler=$3
  shift 3
  local parts=("$build/bench/compare/libcompare_harness.a" "$build/bench/collectives_bench/libcollectives_bench_parts.a"
    "$build/src/libcollectives_json.a")
  if [ "$program" -nt "$source" ] && [ "$program" -nt "${parts[0]}" ]; then return 0; fi
  command -v "$compiler" >/dev/null && "$compiler" -std=c++20 -O3 -DNDEBUG -DOMPI_SKIP_MPICXX -DMPICH_SKIP_MPICXX \
    -Iinclude -Ibench "$source" -o "$program" "${parts[@]}" -lfmt -lpthread "$@" >>"$build/compare_build.log" 2>&1
}

# find_peers: adds wanted peers that are installed to `contenders`, and wanted peers that are not to `without`.
find_peers() {
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
}

ucx=(--mca pml ucx --mca pml_ucx_tls any --mca pml_ucx_devices any)

# --- The header

version() { dpkg-query -W -f '${Version}' "$1" 2>/dev/null || echo 'not installed'; }
write_header() {
  local commit
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
}

# --- Rounds

# run_round COUNT ROUND: runs each of the `active` contenders once, with the arguments `more`. A contender that fails
# leaves `active`.
run_round() {
  local count=$1 round=$2 turn begun status name each failed=() remaining
  for ((turn = 0; turn < ${#active[@]}; ++turn)); do
    name=${active[(turn + round - 1) % ${#active[@]}]}
    launch "$name" "$count"
    : >"$scratch/sync_file"
    begun=$SECONDS
    timeout --kill-after=10 "$timeout" "${launch[@]}" --sync-file "$scratch/sync_file" --output "$samples" \
      --contender "$name" --role "$role" --round "$round" "${sizes[@]}" ${more[@]+"${more[@]}"} \
      >"$scratch/log" 2>&1 &
    child=$!
    status=0
    wait "$child" || status=$?
    child=
    printf '   %-22s %3d s\n' "$name" $((SECONDS - begun))
    if [ $status -ne 0 ]; then
      tail -n 20 "$scratch/log" >&2
      [ "$role" != ours ] || { echo "$(basename "$0"): $name failed" >&2; exit 1; }
      leave_out "$name" "failed with $count ranks in round $round (status $status)"
      failed+=("$name")
    fi
    : >"$scratch/sync_file"
  done
  for name in ${failed[@]+"${failed[@]}"}; do
    remaining=()
    for each in "${active[@]}"; do
      if [ "$each" != "$name" ]; then remaining+=("$each"); fi
    done
    active=("${remaining[@]}")
  done
}
