# Tests the project as a part of another project, which sets C++23 and static libraries for itself. The test configures
# the project and compiles one source of it and one of the consumer, because building the whole library takes minutes.
cmake_minimum_required(VERSION 3.25)
include(${CMAKE_CURRENT_LIST_DIR}/common.cmake)

file(REMOVE_RECURSE ${SCRATCH})
run(${CMAKE_COMMAND} -S ${SOURCE}/tests/packaging/consumers/fetch_content -B ${SCRATCH} -G ${GENERATOR}
    -D CMAKE_CXX_COMPILER=${CXX} -D CMAKE_EXPORT_COMPILE_COMMANDS=ON -D COLLECTIVES_SOURCE=${SOURCE})

# The project adds the library alone: no programs, no tests and no rules for installation.
run(${CMAKE_COMMAND} --build ${SCRATCH} --target help)
check("no shared library is made: ${output}" output MATCHES "libcollectives\\.so")
check("programs or tests come along: ${output}" NOT output MATCHES "collectives_(run|bench|info|test_main)|mnist|package")
file(READ ${SCRATCH}/_deps/collectives-build/cmake_install.cmake rules)
check("files would be installed" NOT rules MATCHES "file\\(INSTALL")
run(${CMAKE_CTEST_COMMAND} --test-dir ${SCRATCH} --show-only)
check("tests come along: ${output}" output MATCHES "Total Tests: 0")

# command_of(SOURCE): sets `command` to the command that compiles SOURCE, and `object` to the file that the command
# writes.
file(READ ${SCRATCH}/compile_commands.json commands)
function(command_of source)
  string(JSON count LENGTH "${commands}")
  math(EXPR last "${count} - 1")
  foreach(i RANGE ${last})
    string(JSON file GET "${commands}" ${i} file)
    if(file STREQUAL source)
      string(JSON command GET "${commands}" ${i} command)
      string(REGEX MATCH " -o ([^ ]+) " object "${command}")
      set(command "${command}" PARENT_SCOPE)
      set(object "${CMAKE_MATCH_1}" PARENT_SCOPE)
      return()
    endif()
  endforeach()
  message(FATAL_ERROR "${source} is not compiled")
endfunction()

command_of(${SOURCE}/tests/packaging/consumers/sum.cpp)
check("the consumer's standard is not its own: ${command}" command MATCHES "-std=gnu\\+\\+(23|2b)")
check("flags have come along: ${command}" NOT command MATCHES " -(f|W|O|D)")
run(${CMAKE_COMMAND} --build ${SCRATCH} --target ${object})
command_of(${SOURCE}/src/communicator/communicator.cpp)
run(${CMAKE_COMMAND} --build ${SCRATCH} --target ${object})
file(REMOVE_RECURSE ${SCRATCH})
