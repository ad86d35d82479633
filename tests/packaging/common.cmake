# Functions that the tests of this directory share.

# run(COMMAND...): prints and runs the command, and ends the test if it fails. Sets `output`.
function(run)
  execute_process(COMMAND ${ARGN} COMMAND_ECHO STDOUT RESULT_VARIABLE status OUTPUT_VARIABLE output ERROR_VARIABLE errors)
  if(NOT status EQUAL 0)
    message(FATAL_ERROR "ended with ${status}:\n${output}${errors}")
  endif()
  set(output "${output}" PARENT_SCOPE)
endfunction()

# check(WHAT CONDITION...): ends the test with the text WHAT unless CONDITION holds.
function(check what)
  if(NOT (${ARGN}))
    message(FATAL_ERROR "${what}")
  endif()
endfunction()

# check_moves(PREFIX): checks that no installed file contains the path of the installation or of the build.
function(check_moves prefix)
  file(GLOB_RECURSE files ${prefix}/*)
  foreach(file IN LISTS files)
    if(file MATCHES "\\.(cmake|pc|hpp|h)$")
      file(READ ${file} text)
      foreach(place ${prefix} ${BUILD} ${SOURCE})
        string(FIND "${text}" "${place}" at)
        check("${file} knows ${place}" at EQUAL -1)
      endforeach()
    elseif(file MATCHES "/bin/|\\.so[0-9.]*$")
      file(READ_ELF ${file} RUNPATH runpath CAPTURE_ERROR no_elf)
      foreach(place ${prefix} ${BUILD})
        string(FIND "${runpath}" "${place}" at)
        check("${file} looks for libraries in ${runpath}" at EQUAL -1)
      endforeach()
    endif()
  endforeach()
endfunction()

# use(CONSUMER PREFIX): builds and runs tests/packaging/consumers/CONSUMER with the installation in PREFIX.
function(use consumer prefix)
  set(source ${SOURCE}/tests/packaging/consumers/${consumer})
  file(MAKE_DIRECTORY ${SCRATCH}/program)
  if(consumer MATCHES find_package)
    # The library alone must not require the packages of its build.
    set(without)
    foreach(package fmt hwy nlohmann_json PkgConfig Threads)
      list(APPEND without -D CMAKE_DISABLE_FIND_PACKAGE_${package}=ON)
    endforeach()
    if(NOT consumer MATCHES mpi)
      list(APPEND without -D CMAKE_DISABLE_FIND_PACKAGE_MPI=ON)
    endif()
    run(${CMAKE_COMMAND} -S ${source} -B ${SCRATCH}/program -G ${GENERATOR}
        -D CMAKE_CXX_COMPILER=${CXX} -D CMAKE_PREFIX_PATH=${prefix} ${without})
    run(${CMAKE_COMMAND} --build ${SCRATCH}/program)
  else()
    set(ENV{PKG_CONFIG_PATH} ${prefix}/${LIBDIR}/pkgconfig)
    set(ENV{LD_LIBRARY_PATH} ${prefix}/${LIBDIR})
    set(ENV{CXX} ${CXX})
    set(ENV{MPICXX} ${MPICXX})
    run(${source}/build.sh ${SCRATCH}/program/consumer)
  endif()
  if(consumer MATCHES mpi)
    run(${MPIRUN} -n 2 ${SCRATCH}/program/consumer)
  else()
    run(${prefix}/bin/collectives_bench --help)  # which finds the library
    run(${prefix}/bin/collectives_run -n 2 ${SCRATCH}/program/consumer)
    file(GLOB ucx ${prefix}/${LIBDIR}/libcollectives_ucx.so.*)
    if(ucx)  # which the library finds beside itself
      run(${CMAKE_COMMAND} -E env COLLECTIVES_TRANSPORT=ucx
          ${prefix}/bin/collectives_run -n 2 ${SCRATCH}/program/consumer)
    endif()
  endif()
  file(REMOVE_RECURSE ${SCRATCH}/program)
endfunction()
