# Tests the installation that the README describes: library and programs, configured without the packages that tests and
# benchmarks need. Nothing is built, because other tests do that.
cmake_minimum_required(VERSION 3.25)
include(${CMAKE_CURRENT_LIST_DIR}/common.cmake)

file(REMOVE_RECURSE ${SCRATCH})
run(${CMAKE_COMMAND} -S ${SOURCE} -B ${SCRATCH} -G ${GENERATOR} -D CMAKE_CXX_COMPILER=${CXX}
    -D COLLECTIVES_DEVELOPER_MODE=OFF -D CMAKE_DISABLE_FIND_PACKAGE_GTest=ON -D CMAKE_DISABLE_FIND_PACKAGE_benchmark=ON)
run(${CMAKE_COMMAND} --build ${SCRATCH} --target help)
foreach(program run info bench)
  check("collectives_${program} is missing: ${output}" output MATCHES "collectives_${program}:")
endforeach()
check("tests come along: ${output}" NOT output MATCHES "_test:|test_main|headers_alone|07_mpi|compare_")
run(${CMAKE_CTEST_COMMAND} --test-dir ${SCRATCH} --show-only)
check("tests come along: ${output}" output MATCHES "Total Tests: 0")
file(REMOVE_RECURSE ${SCRATCH})
