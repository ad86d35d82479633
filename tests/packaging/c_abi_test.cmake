# Compares the C interface with the list in c_abi.txt: declarations, values of enumerators, and places of fields.
# Programs compiled against the headers rely on them. The libraries must export every function.
#
#   cmake -D ROOT=<the repository> -D SCRATCH=<a directory to write in> -D C_COMPILER=<gcc> -D NM=<nm>
#         -D LIBRARIES=<libcollectives.so;libcollectives_mpi.so, which may be missing> [-D UPDATE=ON] -P c_abi_test.cmake
#
# UPDATE=ON adds new lines to the list. Only a person removes lines that are lost or have changed.
cmake_minimum_required(VERSION 3.25)
set(list_file ${ROOT}/tests/packaging/c_abi.txt)

# Text of both headers in one line, without comments and preprocessor lines, with "@" in place of ";".
set(text)
foreach(header collectives.h collectives_mpi.h)
  file(READ ${ROOT}/include/collectives/${header} one)
  string(APPEND text "${one}")
endforeach()
string(REGEX REPLACE "//[^\n]*" "" text "${text}")
string(REGEX REPLACE "#[^\n]*" "" text "${text}")
string(REPLACE ";" "@" text "${text}")
string(REGEX REPLACE "[ \t\n]+" " " text "${text}")

set(actual)
set(functions)
string(REGEX MATCHALL "(COLLECTIVES_EXPORT|typedef) [^{}@]+@" declarations "${text}")
foreach(declaration IN LISTS declarations)
  string(REGEX REPLACE "^(COLLECTIVES_EXPORT )?(.*)@$" "\\2" line "${declaration}")
  string(REPLACE "( " "(" line "${line}")
  list(APPEND actual "${line}")
  if(declaration MATCHES "^COLLECTIVES_EXPORT .*[ *](collectives_[a-z0-9_]+)\\(")
    list(APPEND functions ${CMAKE_MATCH_1})
  endif()
endforeach()

# Source of a program that prints the layout of enums and structs. Structs have no padding: a new field inside padding
# would not change the size, by which the library tells versions apart.
set(program "#include <stdio.h>\n#pragma GCC diagnostic error \"-Wpadded\"\n#include \"collectives/collectives.h\"\n")
string(APPEND program "int main(void) {\n")
string(REGEX MATCHALL "COLLECTIVES_[A-Z0-9_]+ = " enumerators "${text}")
foreach(enumerator IN LISTS enumerators)
  string(REPLACE " = " "" enumerator "${enumerator}")
  string(APPEND program "  printf(\"${enumerator} = %d\\n\", (int)${enumerator});\n")
endforeach()
string(REGEX MATCHALL "typedef struct [a-z_]+ {[^}]*}" structs "${text}")
foreach(struct IN LISTS structs)
  string(REGEX REPLACE "^typedef struct ([a-z_]+) {(.*)}$" "\\1" name "${struct}")
  string(REGEX REPLACE "^typedef struct ([a-z_]+) {(.*)}$" "\\2" body "${struct}")
  string(REGEX MATCHALL "[^@]+@" fields "${body}")
  foreach(field IN LISTS fields)
    string(REGEX REPLACE "^ (.*)@$" "\\1" field "${field}")
    if(NOT field MATCHES "\\(\\*([a-z_]+)\\)")  # a function, or anything else
      string(REGEX MATCH "([a-z_]+)$" member "${field}")
    endif()
    string(APPEND program "  printf(\"${name}: ${field}, byte %zu, %zu long\\n\", offsetof(${name}, ${CMAKE_MATCH_1}), "
                          "sizeof(((${name}*)0)->${CMAKE_MATCH_1}));\n")
  endforeach()
endforeach()
string(APPEND program "  return 0;\n}\n")
file(WRITE ${SCRATCH}/c_abi.c "${program}")
execute_process(COMMAND ${C_COMPILER} -std=c99 -I${ROOT}/include ${SCRATCH}/c_abi.c -o ${SCRATCH}/c_abi
                COMMAND_ERROR_IS_FATAL ANY)
execute_process(COMMAND ${SCRATCH}/c_abi OUTPUT_VARIABLE printed COMMAND_ERROR_IS_FATAL ANY)
string(STRIP "${printed}" printed)
string(REPLACE "\n" ";" printed "${printed}")
list(APPEND actual ${printed})

# compare(RECORDED LOST ADDED): sets LOST to lines of RECORDED that the headers lack, and ADDED to new lines of the
# headers.
function(compare recorded lost added)
  set(only_recorded "${recorded}")
  list(REMOVE_ITEM only_recorded ${actual})
  set(only_actual "${actual}")
  list(REMOVE_ITEM only_actual ${recorded})
  set(${lost} "${only_recorded}" PARENT_SCOPE)
  set(${added} "${only_actual}" PARENT_SCOPE)
endfunction()

# Proves that the comparison detects one line more, and one line less.
compare("${actual};int collectives_gone(void)" lost added)
list(POP_FRONT printed one)
set(fewer "${actual}")
list(REMOVE_ITEM fewer "${one}")
compare("${fewer}" nothing one_added)
if(NOT lost STREQUAL "int collectives_gone(void)" OR added OR nothing OR NOT one_added STREQUAL one)
  message(FATAL_ERROR "this test notices nothing: lost \"${lost}\", added \"${one_added}\"")
endif()

set(recorded)
if(EXISTS ${list_file})
  file(STRINGS ${list_file} recorded)
endif()
compare("${recorded}" lost added)
if(lost)
  list(JOIN lost "\n  " lost)
  message(FATAL_ERROR "lost or changed, which breaks programs that were compiled before:\n  ${lost}")
endif()
if(added AND UPDATE)
  list(JOIN actual "\n" lines)
  file(WRITE ${list_file} "${lines}\n")
elseif(added)
  list(JOIN added "\n  " added)
  message(FATAL_ERROR "new in the C interface, and not in tests/packaging/c_abi.txt (UPDATE=ON adds it):\n  ${added}")
endif()

set(exported)
foreach(library IN LISTS LIBRARIES)
  execute_process(COMMAND ${NM} -D --defined-only ${library} OUTPUT_VARIABLE symbols COMMAND_ERROR_IS_FATAL ANY)
  string(REGEX MATCHALL " T collectives_[a-z0-9_]+" symbols "${symbols}")
  list(APPEND exported ${symbols})
endforeach()
list(TRANSFORM exported REPLACE "^ T " "")
if(NOT LIBRARIES MATCHES "libcollectives_mpi\\.")
  list(REMOVE_ITEM functions collectives_communicator_from_mpi)
endif()
set(missing "${functions}")
list(REMOVE_ITEM missing ${exported})
list(REMOVE_ITEM exported ${functions})
if(missing OR exported)
  message(FATAL_ERROR "declared and not exported: ${missing}\nexported and not declared: ${exported}")
endif()
