# Turns the code blocks of pages into translation units:
#
#   awk -v out=FOLDER -f snippets.awk PAGE.md...
#
# A ```cpp or ```c block with `int main` becomes a unit of its own, PAGE_LINE.cpp, and must bring all its includes. The
# others become functions, together in all.cpp; snippet.hpp (snippet.h) declares what they may use, and their own
# includes come first. Blocks that mention MPI go to units whose names end in _mpi. Compilers report lines of the page.
# A block is left out if this line precedes it, with a reason: <!-- snippet: skip because ... -->
function fail(why) {
  printf "%s:%d: %s\n", FILENAME, FNR, why >"/dev/stderr"
  failed = 1
  exit 1
}
function unit(name) { return out "/" name (code ~ /MPI_|mpi\.hpp/ ? "_mpi." : ".") language }
function finish() {
  place = FILENAME
  gsub(/^.*\/|\.md$/, "", place)
  place = place "_" first
  if (code ~ /int main/) {
    printf "#line %d \"%s\"\n%s", first, FILENAME, code >unit(place)
    return
  }
  file = unit("all")
  if (!(file in functions)) includes[file] = sprintf("#include \"snippet.%s\"\n", language == "c" ? "h" : "hpp")
  functions[file] = functions[file] sprintf("void %s(void);\nvoid %s(void) {\n#line %d \"%s\"\n%s}\n", place, place, first, FILENAME, code)
  includes[file] = includes[file] own_includes
}
/^<!-- snippet:/ {
  if ($0 !~ /^<!-- snippet: skip because [^ ].* -->$/) fail("a snippet is skipped by <!-- snippet: skip because REASON -->")
  skip = 1
  next
}
/^ *```/ && inside {
  if (!skip) finish()
  inside = skip = 0
  next
}
/^ *```(cpp|c)$/ {
  inside = 1
  language = $0 ~ /cpp$/ ? "cpp" : "c"
  first = FNR + 1
  code = own_includes = ""
  next
}
inside && /^ *#include/ { own_includes = own_includes $0 "\n" }
inside { code = code $0 "\n" }
END {
  if (failed) exit 1
  for (file in functions) {
    body = functions[file]
    gsub(/(^|\n) *#include[^\n]*/, "\n", body)  # which have gone to the top; lines keep their numbers
    printf "%s%s", includes[file], body >file
  }
}
