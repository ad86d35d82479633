#!/usr/bin/env bash
# docs_test.sh ROOT BIN SCRATCH: checks that everything which the pages of the repository ROOT name exists. BIN has the
# programs:
#
# - in ```sh blocks, the project's programs and scripts, and the flags that they are given
# - variables that begin with COLLECTIVES_; and every variable that the library reads is on some page
# - files and folders of the repository in `code`, and those that links lead to; and every example is in docs/examples.md
#
# It first checks a page that names seven things which do not exist.
set -eu -o pipefail
root=$1 bin=$2 scratch=$3

declare -A help_of=()

# flag_known WHO FLAG: succeeds if the program WHO lists FLAG in --help, or the script WHO contains it.
flag_known() {
  if [ -z "${help_of[$1]+x}" ]; then
    case $1 in
      */*) help_of[$1]=$(cat "$root/$1") ;;
      *) read -ra words <<<"$1"
         help_of[$1]=$("$bin/${words[0]}" "${words[@]:1}" --help) ;;
    esac
  fi
  grep -qE -- "(^|[^-a-z])${2%%=*}($|[^-a-z])" <<<"${help_of[$1]}"
}

# Prints the faults of one command of a page.
command_faults() {
  local who='' word name
  read -ra words <<<"$1"
  for word in "${words[@]}"; do
    name=${word##*/}
    case $word in
      -*) [ -z "$who" ] || flag_known "$who" "$word" || echo "$who has no $word" ;;
      scripts/* | ./scripts/* | tests/*.sh)
        who=${word#./}
        [ -f "$root/$who" ] || { echo "there is no $word"; who=''; } ;;
      collectives_* | mnist_trainer | build/*/bin/* | ./[0-9][0-9]_*)
        if [ -f "$root/python_free_examples/${name#python_free_examples/}.cpp" ]; then
          who=''
        elif [ -x "$bin/$name" ]; then
          who=$name
        else
          who=''  # the trainer is built only where oneDNN is
          [ "$name" = mnist_trainer ] || echo "there is no program $word"
        fi ;;
      explain | simulate | watch) [ "$who" != collectives_info ] || who="$who $word" ;;
      guidelines) [ "$who" != collectives_bench ] || who="$who $word" ;;
      ./*) who='' ;;  # a program of the reader's
    esac
  done
}

# Prints the faults of a page.
faults() {
  local page=$1 line
  # Blocks of commands: one command per line, without comments and variables. A pipe separates two commands.
  while IFS= read -r line; do
    command_faults "$line"
  done < <(awk '/^ *```sh$/ { inside = 1; next } /^ *```/ { inside = 0 } inside' "$page" |
    sed -e ':more' -e '/\\$/{N;s/\\\n//;bmore' -e '}' -e 's/\(^\|[ \t]\)#.*//' -e 's/&&\|[|;()]/\n/g')

  for name in $(grep -oE 'COLLECTIVES_[A-Z0-9_]*[A-Z0-9]' "$page" | sort -u); do
    grep -qrw "$name" "$root"/{src,include,cmake,CMakeLists.txt} || echo "nothing knows $name"
  done

  awk '/^ *```/ { inside = !inside; next } !inside' "$page" >"$scratch/prose.md"
  for target in $(grep -oE '\]\([^)#: ]+[)#]' "$scratch/prose.md" | sed 's/^..//; s/.$//' | sort -u); do
    [ -e "$(dirname "$page")/$target" ] || echo "a link leads to $target, which is not there"
  done
  for path in $(grep -oE '`(src|include|scripts|tests|bench|docs|cmake|python_free_examples)/[A-Za-z0-9_./]*' \
    "$scratch/prose.md" |
    cut -c2- | sort -u); do
    [ -e "$root/$path" ] || echo "there is no $path"
  done
}

mkdir -p "$scratch"
cat >"$scratch/broken.md" <<'END'
[a page](nowhere.md), `src/nowhere.cpp`, `COLLECTIVES_NOWHERE=1`
```sh
scripts/nowhere.sh --ranks 2                   # a comment with --flags
scripts/compare.sh --ranks 2 --nowhere
FOO=1 mpirun -np 2 --whatever collectives_bench all_reduce --max-bytes 4M \
  --nowhere=3 | tee x; collectives_nowhere
```
END
found=$(faults "$scratch/broken.md")
if [ "$(wc -l <<<"$found")" -ne 7 ]; then
  printf 'a page with 7 faults is found to have these:\n%s\n' "$found"
  exit 1
fi

status=0
for page in "$root"/*.md "$root"/docs/*.md "$root"/python_free_examples/mnist/*.md; do
  found=$(faults "$page")
  [ -z "$found" ] || { printf '%s:\n%s\n' "${page#"$root"/}" "$found"; status=1; }
done
for name in $(grep -oE 'Variable\{"COLLECTIVES_[A-Z_]+' "$root/src/base/environment.cpp" | cut -d'"' -f2); do
  grep -qw "$name" "$root"/README.md "$root"/docs/*.md || { echo "no page tells of $name"; status=1; }
done
for example in "$root"/python_free_examples/[0-9]*.c*; do
  grep -qF "${example##*/}" "$root/docs/examples.md" || { echo "no page lists ${example##*/}"; status=1; }
done
exit $status
