#!/usr/bin/env bash
# Installs what is missing, builds, runs every test.
#
#   scripts/test.sh                        release, address and undefined-behaviour sanitizers: an hour on two cores
#   scripts/test.sh --all-configurations   every build mode: an hour and a half
#   scripts/test.sh release minimal        these
#   ... --within MINUTES                   leaves out, and names, modes that would end later, judged by those before
#
# minimal is without the suites labelled core, whose code is the same in release; ctest --test-dir build/minimal runs all.
#
# MNIST_DIR=DIR lets the trainer's tests use the real MNIST files; without it they use digits of their own.
set -eu -o pipefail
cd "$(dirname "$0")/.."

modes=()
within=
while [ $# -gt 0 ]; do
  case "$1" in
    --all-configurations) modes=(release asan-ubsan tsan minimal) ;;
    --within)
      within=${2:-}
      [[ "$within" =~ ^[1-9][0-9]*$ ]] || { echo "test.sh: --within takes a number of minutes" >&2 && exit 2; }
      shift
      ;;
    release | asan-ubsan | tsan | minimal) modes+=("$1") ;;
    *)
      echo "test.sh: \"$1\" is neither an option nor one of release, asan-ubsan, tsan, minimal" >&2
      exit 2
      ;;
  esac
  shift
done
[ ${#modes[@]} -gt 0 ] || modes=(release asan-ubsan)

scripts/install_packages.sh

# Most of what minimal compiles, release has compiled: 110 s in place of ten minutes. Tests of what is the same in both
# (label core) are not repeated.
if command -v ccache >/dev/null; then
  export CCACHE_DIR=${CCACHE_DIR:-$PWD/build/ccache}
  export CMAKE_C_COMPILER_LAUNCHER=ccache CMAKE_CXX_COMPILER_LAUNCHER=ccache CMAKE_CUDA_COMPILER_LAUNCHER=ccache
fi

jobs=$(nproc)
summary=()
failed_in=()

# What the tests that failed have printed, out of ctest's log; the end of a long run is often all that is read.
failures() {
  awk '/^ *(Start +[0-9]+:|[0-9]+\/[0-9]+ Test )|^[0-9]+% tests passed/ { inside = 0 }
       /^ *[0-9]+\/[0-9]+ Test .*\*\*\*/ && !/\*\*\*Skipped/ { inside = 1; gsub(/ \.\.+/, " ") }
       inside' "$1" | cut -c 1-200 | tail -n 60
}
# Their names, of which there may be many.
failed_tests() {
  awk '/^The following tests FAILED/ { inside = 1; next } inside && /^\t/ && ++count <= 20 { printf ", %s", $3 }' "$1"
}
# How long modes take, on two cores, in hundredths of release.
declare -A weight=([release]=100 [asan-ubsan]=185 [tsan]=108 [minimal]=25)
done_weight=0
failed=0
started=$SECONDS
for mode in "${modes[@]}"; do
  if [ -n "$within" ] && [ $done_weight -gt 0 ]; then
    expected=$(((SECONDS - started) * ${weight[$mode]} / done_weight))
    if [ $((SECONDS + expected)) -gt $((60 * within)) ]; then
      summary+=("$mode: left out: after $SECONDS s another $expected s are more than $within minutes")
      continue
    fi
  fi
  echo "== $mode: building"
  begun=$SECONDS
  mkdir -p "build/$mode"
  log=build/$mode/build.log
  if ! { cmake --preset "$mode" -D COLLECTIVES_WARNINGS_AS_ERRORS=ON &&
    cmake --build --preset "$mode" -j "$jobs"; } >"$log" 2>&1; then
    grep -E 'error|Error|FAILED' -A 5 "$log" | head -60 || true
    echo "== $mode: does not build, see $log"
    summary+=("$mode: does not build")
    failed=1
    continue
  fi
  built=$((SECONDS - begun))
  begun=$SECONDS
  echo "== $mode: testing"
  if ctest --preset "$mode" -j "$jobs" --output-junit "$PWD/build/$mode/tests.xml" | tee "build/$mode/tests.log"; then
    verdict='all tests passed'
  else
    verdict='TESTS FAILED'
    failed=1
    failed_in+=("$mode")
  fi
  done_weight=$((done_weight + ${weight[$mode]}))
  counts=$(grep -E 'tests passed' "build/$mode/tests.log" || true)$(failed_tests "build/$mode/tests.log")
  summary+=("$mode: $verdict (built in $built s, tested in $((SECONDS - begun)) s): $counts")
done

echo
for mode in ${failed_in[@]+"${failed_in[@]}"}; do
  echo "== $mode: what failed"
  failures "build/$mode/tests.log"
done
echo "== What happened, in $((SECONDS - started)) s"
printf '%s\n' "${summary[@]}"
echo "Programs: build/MODE/bin.  Results: build/MODE/tests.log and build/MODE/tests.xml"
exit $failed
