# Declares the tests of the project in an installed tree, in a Debian package, and as a part of another project.

# collectives_package_test(NAME SCRIPT [VARIABLE=VALUE...]): runs SCRIPT_test.cmake in a scratch directory of its own.
function(collectives_package_test name script)
  set(definitions)
  foreach(definition BUILD=${PROJECT_BINARY_DIR} SOURCE=${PROJECT_SOURCE_DIR} LIBDIR=${CMAKE_INSTALL_LIBDIR}
                     VERSION=${PROJECT_VERSION} SCRATCH=${CMAKE_CURRENT_BINARY_DIR}/${name}
                     CXX=${CMAKE_CXX_COMPILER} GENERATOR=${CMAKE_GENERATOR} ${ARGN})
    list(APPEND definitions -D ${definition})
  endforeach()
  add_test(NAME package.${name} COMMAND ${CMAKE_COMMAND} ${definitions}
                                        -P ${CMAKE_CURRENT_SOURCE_DIR}/${script}_test.cmake)
  set_tests_properties(package.${name} PROPERTIES TIMEOUT 300 ENVIRONMENT "${COLLECTIVES_MPIRUN_ENVIRONMENT}")
endfunction()

find_program(COLLECTIVES_PKG_CONFIG pkg-config)
set(consumers find_package)
if(COLLECTIVES_HAVE_MPI)
  list(APPEND consumers find_package_mpi)
endif()
if(COLLECTIVES_PKG_CONFIG)
  list(TRANSFORM consumers REPLACE find_package pkg_config OUTPUT_VARIABLE with_pkg_config)
  list(APPEND consumers ${with_pkg_config})
endif()
list(APPEND consumers find_package_c)
if(COLLECTIVES_HAVE_MPI)
  list(APPEND consumers find_package_mpi_c)
endif()
foreach(consumer IN LISTS consumers)
  collectives_package_test(${consumer} consumer CONSUMER=${consumer} MPIRUN=${MPIEXEC_EXECUTABLE}
                           MPICXX=${MPI_CXX_COMPILER})
endforeach()
collectives_package_test(components components)
collectives_package_test(without_developer_mode_configures without_developer_mode)

# Each library exports what its public headers declare, and nothing else. The core exports the function that the
# component mpi calls.
collectives_package_test(symbols symbols LIBRARY=$<TARGET_FILE:collectives> HEADERS=include
                         ALSO=src/communicator/c_bridge.hpp)
if(COLLECTIVES_HAVE_MPI)
  collectives_package_test(symbols_mpi symbols LIBRARY=$<TARGET_FILE:collectives_mpi> HEADERS=include)
endif()
if(COLLECTIVES_HAVE_UCX)
  collectives_package_test(symbols_ucx symbols LIBRARY=$<TARGET_FILE:collectives_ucx>
                           HEADERS=src/transport/ucx_component.hpp)
endif()
if(TARGET collectives_cuda)
  collectives_package_test(symbols_cuda symbols LIBRARY=$<TARGET_FILE:collectives_cuda>
                           HEADERS=src/device/cuda_component.hpp)
endif()

# These two tests take longest, so they run in one build mode.
if(CMAKE_BUILD_TYPE STREQUAL Release AND COLLECTIVES_HAVE_MPI)
  collectives_package_test(fetch_content_configures_and_compiles fetch_content)
  find_program(COLLECTIVES_DPKG_SHLIBDEPS dpkg-shlibdeps)
  find_program(COLLECTIVES_FILE file)
  if(COLLECTIVES_DPKG_SHLIBDEPS AND COLLECTIVES_FILE)
    collectives_package_test(debian debian)
  else()
    message(STATUS "collectives: Debian packages are not tested, because dpkg-shlibdeps (dpkg-dev) or file is missing")
  endif()
endif()
