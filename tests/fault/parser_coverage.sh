#!/bin/bash
# Prints how many lines of each parser the mutated inputs reach, and the numbers of the lines that no input reaches.
#
#   tests/fault/parser_coverage.sh [INPUTS]
#
# Builds mutation_program in build/coverage with the counters of gcc, runs it with INPUTS inputs (100000), and reads
# the counters by gcov. A file also holds functions that read no input, such as those that write a record. The script
# therefore counts the lines of the functions that were entered, and names the other functions.
set -euo pipefail
cd "$(dirname "$0")/../.."
readonly build=build/coverage
cmake --preset release -B "$build" -D COLLECTIVES_PARSER_COVERAGE=ON > /dev/null
cmake --build "$build" --target mutation_program > /dev/null
find "$build" -name '*.gcda' -delete
"$build/bin/mutation_program" --count "${1:-100000}"

# Reads the output of gcov for one source. Sections between lines of dashes repeat the lines of a template for each of
# its instances.
readonly summary='
  /^ *-: *0:Source:/ { here = $0 ~ ("/" wanted "$"); name = ""; entered = 1; next }
  !here { next }
  /^-----/ { dashes = 1; next }
  dashes { dashes = 0; instance = $0 ~ /:$/ && $0 !~ /^ *[^ :]+: *[0-9]+:/ }
  instance { next }
  /^function / { match($0, / called [0-9]+ /); name = substr($0, 10, RSTART - 10)
                 entered = substr($0, RSTART + 8) + 0 > 0
                 gsub(/\(anonymous namespace\)::|collectives::/, "", name); sub(/[[(].*/, "", name)
                 if (!entered && !(name in seen)) others = others (others == "" ? "\n  not entered: " : ", ") name
                 seen[name]; next }
  !/^ *[^ :]+: *[0-9]+:/ { next }
  { split($0, field, ":"); line = field[2] + 0 }
  field[1] ~ /[0-9]/ { ++reached; next }
  field[1] ~ /#|=/ && entered { ++missed; lines = lines " " line }
  END { printf "%s: %d of %d lines", wanted, reached, reached + missed
        if (missed) printf "; not line%s", lines
        print others }'

cd "$build"  # the names of sources may be relative to it
for counters in $(find src -name '*.gcda' | sort); do
  source=${counters#*.dir/}
  gcov --branch-probabilities --demangled-names --stdout "$counters" 2> /dev/null |
    awk -v wanted="src/${source%.gcda}" "$summary"
done
