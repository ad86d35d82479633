# Functions for the CMakeLists.txt of the folders of tests/.
include(GoogleTest)
include(${PROJECT_SOURCE_DIR}/cmake/mpirun_test.cmake)

# collectives_test(NAME [options]): builds NAME.cpp with Google Test and enters its cases into ctest.
#
#   INTERNAL        links the static archive, in which all symbols are visible, in place of the shared library
#   NO_LIBRARY      links neither: the test starts programs
#   CORE            labels the cases "core": no optional part of a build changes what they test, so the preset
#                   minimal leaves them out
#   OPTIMISED       compiles the test with -O1 in every mode, because it computes for long
#   FILTER F        enters the cases that the filter F of Google Test selects, if there are no SHARDS
#   SHARDS N        enters N processes into ctest, each with every N-th case, in place of one process per case
#   DIVIDED         divides the shards among the sanitizers. The address sanitizer runs the first and the last of four,
#                   the thread sanitizer the other two. Both thus run cases with even and odd numbers
#   PATHS           pairs of a name and a path, which the test declares as `extern const char name[];`. A definition with
#                   a path of this clone would keep the compiler's cache from finding the object of the test
#   SOURCES, LIBRARIES, DEFINITIONS, OPTIONS, DEPENDS, PROPERTIES, ENVIRONMENT
#                   further sources, libraries, definitions and options of the target; targets to build before; properties
#                   and environment of its tests
#
# A shard is one process of SHARDS. Each shard writes a file of results to the folder COLLECTIVES_CASES, in which
# scripts/test.sh counts the cases.
set(COLLECTIVES_CASES ${PROJECT_BINARY_DIR}/cases)
function(collectives_test name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "INTERNAL;NO_LIBRARY;CORE;OPTIMISED;DIVIDED" "FILTER;SHARDS"
                        "PATHS;SOURCES;LIBRARIES;DEFINITIONS;OPTIONS;DEPENDS;PROPERTIES;ENVIRONMENT")
  add_executable(${name} ${name}.cpp ${arg_SOURCES})
  collectives_paths(${name} ${arg_PATHS})
  collectives_defaults(${name})
  set(library collectives)
  if(arg_NO_LIBRARY)
    set(library)
  elseif(arg_INTERNAL)
    set(library collectives_internal)
  endif()
  target_link_libraries(${name} PRIVATE collectives_test_main ${library} ${arg_LIBRARIES})
  target_compile_definitions(${name} PRIVATE ${arg_DEFINITIONS})
  collectives_optimise_test(${name} "${arg_OPTIMISED}" "${library}")
  # GCC 12 accepts precompiled headers of another optimisation level, and may then crash.
  if(NOT arg_OPTIONS AND (NOT arg_OPTIMISED OR CMAKE_BUILD_TYPE STREQUAL Release))
    collectives_reuse_headers(${name} collectives_test_headers)
  endif()
  target_compile_options(${name} PRIVATE ${arg_OPTIONS})
  if(arg_DEPENDS)
    add_dependencies(${name} ${arg_DEPENDS})
  endif()
  set(filter)
  if(arg_FILTER)
    set(filter TEST_FILTER ${arg_FILTER})
  endif()
  if(arg_CORE)
    list(APPEND arg_PROPERTIES LABELS core)
  endif()
  if(arg_SHARDS)
    if(arg_DIVIDED)
      set(divided DIVIDED)
    endif()
    collectives_shards(${name} ${arg_SHARDS} ${divided} ENVIRONMENT ${arg_ENVIRONMENT} PROPERTIES ${arg_PROPERTIES})
  elseif(arg_ENVIRONMENT)
    gtest_discover_tests(${name} DISCOVERY_MODE PRE_TEST ${filter}
                         PROPERTIES TIMEOUT 300 ENVIRONMENT "${arg_ENVIRONMENT}" ${arg_PROPERTIES})
  else()
    gtest_discover_tests(${name} DISCOVERY_MODE PRE_TEST ${filter} PROPERTIES TIMEOUT 300 ${arg_PROPERTIES})
  endif()
endfunction()

# collectives_test_library(NAME SOURCES...): builds a static library for tests. GCC uses the precompiled headers only if
# the library links Google Test, whose options they were compiled with.
function(collectives_test_library name)
  add_library(${name} STATIC ${ARGN})
  collectives_defaults(${name})
  collectives_optimise_test(${name} OFF "")
  collectives_in_programs(${name})
  collectives_reuse_headers(${name} collectives_test_headers)
endfunction()

# collectives_in_programs(TARGET): compiles a library as code of programs alone, so that it shares their precompiled
# headers.
function(collectives_in_programs target)
  set_target_properties(${target} PROPERTIES POSITION_INDEPENDENT_CODE OFF)
  target_compile_options(${target} PRIVATE -fPIE)
endfunction()

# collectives_paths(TARGET [NAME PATH]...): adds a source to TARGET that defines each NAME as its PATH. It includes
# nothing, so it is compiled without the precompiled headers, which take 0.8 s to read.
function(collectives_paths target)
  set(text "// Paths of this build, for the tests of ${target}.\n")
  while(ARGN)
    list(POP_FRONT ARGN name path)
    string(APPEND text "extern const char ${name}[];\nconst char ${name}[] = \"${path}\";\n")
    set(any ON)
  endwhile()
  if(any)
    file(GENERATE OUTPUT ${CMAKE_CURRENT_BINARY_DIR}/${target}_paths.cpp CONTENT "${text}")
    target_sources(${target} PRIVATE ${CMAKE_CURRENT_BINARY_DIR}/${target}_paths.cpp)
    set_source_files_properties(${CMAKE_CURRENT_BINARY_DIR}/${target}_paths.cpp PROPERTIES SKIP_PRECOMPILE_HEADERS ON)
  endif()
endfunction()

# collectives_optimise_test(NAME OPTIMISED LIBRARY): options of the compiler for a test. Under the address sanitizer most
# tests take longer to compile than to run. Seconds to compile, and process-seconds to run:
#
#                       -O0        -O1
#   top_k_state_test   13, 12     30, 11
#   reduction_test     24, 243    50, 70     OPTIMISED
function(collectives_optimise_test name optimised library)
  if(CMAKE_BUILD_TYPE STREQUAL Release OR optimised)
    target_compile_options(${name} PRIVATE -O1)
  elseif(COLLECTIVES_SANITIZE MATCHES address)
    target_compile_options(${name} PRIVATE -O0)
  endif()
  if(COLLECTIVES_SANITIZE MATCHES address)
    target_compile_options(${name} PRIVATE -g0)
  endif()
  # The sanitizer judges the library. In the test itself its checks would cost a third of the time to compile. A test
  # linked to the static archive keeps them, because both share inline functions.
  if(COLLECTIVES_SANITIZE MATCHES undefined AND NOT library STREQUAL collectives_internal)
    target_compile_options(${name} PRIVATE -fno-sanitize=undefined)
  endif()
endfunction()

# collectives_shards(NAME COUNT [DIVIDED] [ENVIRONMENT ...] [PROPERTIES ...]): enters COUNT shards of the test NAME into
# ctest, or half of them (DIVIDED of collectives_test).
function(collectives_shards name count)
  cmake_parse_arguments(PARSE_ARGV 2 arg "DIVIDED" "" "ENVIRONMENT;PROPERTIES")
  foreach(shard RANGE 1 ${count})
    math(EXPR of_threads "${shard} / 2 % 2")
    if(arg_DIVIDED AND ((COLLECTIVES_SANITIZE STREQUAL thread AND NOT of_threads) OR
                        (COLLECTIVES_SANITIZE MATCHES address AND of_threads)))
      continue()
    endif()
    math(EXPR index "${shard} - 1")
    set(test ${name}.shard_${shard}_of_${count})
    add_test(NAME ${test} COMMAND ${name})
    set(environment GTEST_TOTAL_SHARDS=${count} GTEST_SHARD_INDEX=${index} GTEST_BRIEF=1
                    GTEST_OUTPUT=json:${COLLECTIVES_CASES}/${test}.json ${arg_ENVIRONMENT})
    set_tests_properties(${test} PROPERTIES TIMEOUT 900 ${arg_PROPERTIES} ENVIRONMENT "${environment}")
  endforeach()
endfunction()

# collectives_mpi_gtest(NAME RANKS...): builds NAME.cpp with Google Test and runs it under mpirun once for each count in
# RANKS. All ranks run the same cases in the same order.
function(collectives_mpi_gtest name)
  if(NOT COLLECTIVES_HAVE_MPI)
    return()
  endif()
  add_executable(${name} ${name}.cpp ${PROJECT_SOURCE_DIR}/tests/support/mpi_main.cpp)
  collectives_defaults(${name})
  target_link_libraries(${name} PRIVATE collectives_test_main collectives::mpi)
  collectives_mpi_test(${name} ${ARGN} COMMAND ${name})
endfunction()

# collectives_test_program(NAME LIBRARIES...): builds NAME.cpp, a program that tests start.
function(collectives_test_program name)
  add_executable(${name} ${name}.cpp)
  collectives_defaults(${name})
  target_include_directories(${name} PRIVATE ${PROJECT_SOURCE_DIR}/tests)
  target_link_libraries(${name} PRIVATE ${ARGN})
endfunction()
