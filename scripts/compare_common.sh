# What scripts/compare.sh and scripts/compare_hosts.sh share; sourced by them. They set `peers`, `output`, `build`,
# `rounds`, `timeout`, `sizes`, `contenders` and `command_line`, and define the function `launch`.
# shellcheck shell=bash disable=SC2154

# The peers as they come: no settings of the caller's shell, such as a yield between looks, which only they would heed.
for variable in $(compgen -e); do
  case $variable in OMPI_MCA_* | PRTE_MCA_* | PMIX_MCA_* | MPIR_CVAR_* | UCX_*) unset "$variable" ;; esac
done

refuse() {
  echo "$(basename "$0"): $1" >&2
  exit 2
}

# known WORDS LIST: every word of the LIST (a,b,c) is one of the WORDS (a b c).
known() {
  local word
  for word in ${2//,/ }; do
    [[ " $1 " == *" $word "* ]] || refuse "\"$word\" is none of: $1"
  done
}

wants() { [[ ",$peers," == *",$1,"* ]]; }

# prepare PACKAGES...: installs the peers' packages and these, builds, and makes the folders.
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

# leave_out CONTENDER WHY: a line here and in the report.
leave_out() {
  echo "left out: $1: $2"
  printf '{"contender":"%s","left_out":"%s"}\n' "$1" "$2" >>"$samples"
}

# compile_peer PROGRAM SOURCE COMPILER LIBRARIES...: false, with the reason in the build log, when it cannot be.
compile_peer() {
  local program=$programs/$1 source=bench/compare/$2 compiler=$3
  shift 3
  local parts=("$build/bench/compare/libcompare_harness.a" "$build/bench/collectives_bench/libcollectives_bench_parts.a")
  if [ "$program" -nt "$source" ] && [ "$program" -nt "${parts[0]}" ]; then return 0; fi
  command -v "$compiler" >/dev/null && "$compiler" -std=c++20 -O3 -DNDEBUG -DOMPI_SKIP_MPICXX -DMPICH_SKIP_MPICXX \
    "$source" -o "$program" "${parts[@]}" -lfmt -lpthread "$@" >>"$build/compare_build.log" 2>&1
}

# find_peers: adds those that are wanted and there to `contenders`, the others to `without`.
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

# shellcheck disable=SC2034
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

# run_round COUNT ROUND: each of the `active` contenders once, `more` passed to all. Who fails is active no more.
run_round() {
  local count=$1 round=$2 turn begun status name each failed=() remaining
  for ((turn = 0; turn < ${#active[@]}; ++turn)); do
    name=${active[(turn + round - 1) % ${#active[@]}]}
    launch "$name" "$count"
    : >"$scratch/meeting"
    begun=$SECONDS
    timeout --kill-after=10 "$timeout" "${launch[@]}" --meeting "$scratch/meeting" --output "$samples" \
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
    : >"$scratch/meeting"
  done
  for name in ${failed[@]+"${failed[@]}"}; do
    remaining=()
    for each in "${active[@]}"; do
      if [ "$each" != "$name" ]; then remaining+=("$each"); fi
    done
    active=("${remaining[@]}")
  done
}
