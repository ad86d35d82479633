#!/usr/bin/env bash
# Installs missing packages, builds, and runs every test.
#
#   scripts/test.sh                        release, and the address and undefined-behaviour sanitizers
#   scripts/test.sh --all-configurations   all four build modes
#   scripts/test.sh release minimal        the modes that are named
#   ... --soak                             repeats the tests that look for rare failures 20 times as often
#
# The mode minimal leaves out the tests labelled core or hosts, because their code is the same as in release. All of them
# run with ctest --test-dir build/minimal.
#
# MNIST_DIR=DIR makes the tests of the trainer use the MNIST files in DIR. Without it they use generated digits.
set -eu -o pipefail
cd "$(dirname "$0")/.."

modes=()
while [ $# -gt 0 ]; do
  case "$1" in
    --all-configurations) modes=(release asan-ubsan tsan minimal) ;;
    --soak) export COLLECTIVES_TEST_OPERATIONS=1200 COLLECTIVES_TEST_REPEATS=20 ;;
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

# The compiler's cache lies where ccache puts it, so all clones share it. The base directory makes paths relative, so a
# clone at another path finds the objects too.
if command -v ccache >/dev/null; then
  export CCACHE_BASEDIR=$PWD CCACHE_NOHASHDIR=1
  # Lets ccache store objects that use precompiled headers. No source uses __TIME__ or __DATE__.
  export CCACHE_SLOPPINESS=pch_defines,time_macros,include_file_mtime,include_file_ctime
  export CMAKE_C_COMPILER_LAUNCHER=ccache CMAKE_CXX_COMPILER_LAUNCHER=ccache CMAKE_CUDA_COMPILER_LAUNCHER=ccache
fi

jobs=$(nproc)
summary=()
failed_in=()

# Passes ctest's output on. ctest lists the tests that did not run, or failed, after its summary; here they come before it.
summary_last() {
  awk '/^[0-9]+% tests passed/ { verdict = $0; next }
       verdict == "" { print; fflush(); next }
       /^The following tests/ { lists = 1 }
       lists { print; next }
       { times = times $0 "\n" }
       END { printf "%s", times; if (verdict != "") print verdict }'
}

# Prints the output of the tests that failed, from ctest's log $1.
failures() {
  awk '/^ *(Start +[0-9]+:|[0-9]+\/[0-9]+ Test )|^[0-9]+% tests passed/ { inside = 0 }
       /^ *[0-9]+\/[0-9]+ Test .*\*\*\*/ && !/\*\*\*Skipped/ { inside = 1; gsub(/ \.\.+/, " ") }
       inside' "$1" | cut -c 1-200 | tail -n 60
}

# Prints the names of the first 20 tests that failed, from ctest's log $1.
failed_tests() {
  awk '/^The following tests FAILED/ { inside = 1; next } inside && /^\t/ && ++count <= 20 { printf ", %s", $3 }' "$1"
}

# Prints how many cases ran and how many of them were skipped, from ctest's log $1 and the results of shards in the folder
# $2. A shard is one test of ctest and runs many cases.
cases() {
  local tests skipped files=() in_shards=0 skipped_in_shards=0
  tests=$(sed -nE 's/.*tests passed, .* out of ([0-9]+)$/\1/p' "$1")
  skipped=$(grep -c '\*\*\*Skipped' "$1" || true)
  if [ -d "$2" ]; then
    mapfile -t files < <(find "$2" -name '*.json')
  fi
  if [ ${#files[@]} -gt 0 ]; then
    in_shards=$(grep -hm 1 '"tests":' "${files[@]}" | awk -F '[:,]' '{ sum += $2 } END { print sum + 0 }')
    skipped_in_shards=$(cat "${files[@]}" | grep -c '"result": "SKIPPED"' || true)
  fi
  echo "$((${tests:-0} - ${#files[@]} + in_shards)) cases, $((skipped + skipped_in_shards)) of them skipped"
}

failed=0
started=$SECONDS
for mode in "${modes[@]}"; do
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
  rm -rf "build/$mode/cases"
  if ctest --preset "$mode" -j "$jobs" --output-junit "$PWD/build/$mode/tests.xml" |
    tee "build/$mode/tests.log" | summary_last; then
    verdict='all tests passed'
  else
    verdict='TESTS FAILED'
    failed=1
    failed_in+=("$mode")
  fi
  counts="$(cases "build/$mode/tests.log" "build/$mode/cases"), $(grep -E 'tests passed' "build/$mode/tests.log" || true)"
  counts+=$(failed_tests "build/$mode/tests.log")
  summary+=("$mode: $verdict (built in $built s, tested in $((SECONDS - begun)) s): $counts")
done

echo
for mode in ${failed_in[@]+"${failed_in[@]}"}; do
  echo "== $mode: output of the failed tests"
  failures "build/$mode/tests.log"
done
echo "Programs: build/MODE/bin.  Results: build/MODE/tests.log and build/MODE/tests.xml"
echo "== Summary, after $((SECONDS - started)) s"
printf '%s\n' "${summary[@]}"
exit $failed
