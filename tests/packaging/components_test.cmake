# Tests find_package(collectives) with versions and components that exist, and with some that do not.
cmake_minimum_required(VERSION 3.25)
include(${CMAKE_CURRENT_LIST_DIR}/common.cmake)
string(REGEX REPLACE "\\.[0-9]+$" "" minor ${VERSION})

string(REGEX REPLACE "^lib/?" "" architecture ${LIBDIR})

file(REMOVE_RECURSE ${SCRATCH})
run(${CMAKE_COMMAND} --install ${BUILD} --prefix ${SCRATCH}/installed)

# configure(LINES...): configures a project of these lines. Sets `status`, and `errors` as one line.
function(configure)
  list(JOIN ARGN "\n" lines)
  file(REMOVE_RECURSE ${SCRATCH}/project)
  file(WRITE ${SCRATCH}/project/CMakeLists.txt
       "cmake_minimum_required(VERSION 3.25)\nproject(asks LANGUAGES NONE)\n${lines}\n")
  execute_process(COMMAND ${CMAKE_COMMAND} -S ${SCRATCH}/project -B ${SCRATCH}/project/build -G ${GENERATOR}
                          -D CMAKE_PREFIX_PATH=${SCRATCH}/installed -D CMAKE_LIBRARY_ARCHITECTURE=${architecture}
                  RESULT_VARIABLE status OUTPUT_QUIET ERROR_VARIABLE errors)
  string(REGEX REPLACE "[ \n]+" " " errors "${errors}")
  set(status ${status} PARENT_SCOPE)
  set(errors "${errors}" PARENT_SCOPE)
endfunction()

# found(ARGUMENTS VERDICT): checks that find_package(ARGUMENTS) finds the installation (VERDICT 1) or does not (0).
function(found arguments verdict)
  configure("find_package(${arguments} QUIET)"
            "if(NOT collectives_FOUND EQUAL ${verdict})"
            "  message(FATAL_ERROR \"collectives_FOUND is \${collectives_FOUND}\")"
            "endif()")
  check("find_package(${arguments}): ${errors}" status EQUAL 0)
endfunction()

found("collectives" 1)
found("collectives ${minor}" 1)
found("collectives ${VERSION} EXACT" 1)
found("collectives 0.0" 0)
found("collectives 0.1" 0)
found("collectives 0.3" 0)
found("collectives 1.0" 0)
found("collectives COMPONENTS abacus" 0)
found("collectives OPTIONAL_COMPONENTS abacus" 1)
foreach(component ucx cuda)
  file(GLOB installed ${SCRATCH}/installed/${LIBDIR}/libcollectives_${component}.so.*)
  if(installed)
    found("collectives COMPONENTS ${component}" 1)
  else()
    found("collectives COMPONENTS ${component}" 0)
  endif()
endforeach()
# A project without C and C++ finds no MPI.
found("collectives COMPONENTS mpi" 0)
found("collectives OPTIONAL_COMPONENTS mpi" 1)

configure("find_package(collectives REQUIRED COMPONENTS abacus)")
check("a component that is not there was found" NOT status EQUAL 0)
check("this does not say which component is not there: ${errors}"
      errors MATCHES "component abacus is not in this build of collectives ${VERSION}, which has: [a-z, ]*")

# The library alone does not require MPI.
configure("find_package(collectives REQUIRED)"
          "if(TARGET MPI::MPI_CXX OR TARGET collectives::mpi)"
          "  message(FATAL_ERROR \"MPI has come along\")"
          "endif()")
check("${errors}" status EQUAL 0)
file(REMOVE_RECURSE ${SCRATCH})
