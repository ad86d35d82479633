# Functions that declare the tests of the drop-in, a preloaded library that performs the collectives of an MPI program.
set(drop_in_environment ${COLLECTIVES_MPIRUN_ENVIRONMENT} COLLECTIVES_TEST_COMMUNICATORS=30)
if(COLLECTIVES_SANITIZE)
  list(APPEND drop_in_environment ASAN_OPTIONS=detect_leaks=0:verify_asan_link_order=0)
endif()

# drop_in_case(NAME COMMAND... [EXPECT regex] [REFUSE regex] [FAILS] [ENDS]): runs COMMAND; run.cmake judges its output.
function(drop_in_case name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "FAILS;ENDS" "EXPECT;REFUSE" "COMMAND")
  set(judge)
  foreach(word EXPECT REFUSE FAILS ENDS)
    if(DEFINED arg_${word})
      list(APPEND judge "-D${word}=${arg_${word}}")
    endif()
  endforeach()
  add_test(NAME mpi_drop_in.${name} COMMAND ${CMAKE_COMMAND} ${judge} -P ${CMAKE_CURRENT_SOURCE_DIR}/run.cmake --
                                            ${arg_COMMAND})
  set_tests_properties(mpi_drop_in.${name} PROPERTIES TIMEOUT 300 PROCESSORS 2 ENVIRONMENT "${drop_in_environment}")
endfunction()

# drop_in_program(NAME PACKAGE SOURCES...): builds a program for the MPI of PACKAGE. It does not link the component mpi,
# which may be built for another MPI.
function(drop_in_program name package)
  add_executable(${name} ${ARGN})
  collectives_defaults(${name})
  collectives_hardly_optimised(${name})
  target_include_directories(${name} PRIVATE ${PROJECT_SOURCE_DIR}/tests)
  target_include_directories(${name} SYSTEM PRIVATE
                             $<TARGET_PROPERTY:PkgConfig::${package},INTERFACE_INCLUDE_DIRECTORIES>)
  target_link_libraries(${name} PRIVATE PkgConfig::${package} Threads::Threads)
endfunction()

# drop_in_fortran_tests(MPI): runs a Fortran program by each of the three interfaces that MPI has for Fortran.
function(drop_in_fortran_tests mpi)
  set(mpirun ${COLLECTIVES_MPIRUN_${mpi}})
  set(intercepted env LD_PRELOAD=$<TARGET_FILE:collectives_mpi_${mpi}> COLLECTIVES_MPI_AFTER=0 COLLECTIVES_MPI_STATS=1)
  find_program(COLLECTIVES_MPIF90_${mpi} mpif90.${mpi})
  if(COLLECTIVES_MPIF90_${mpi} AND NOT COLLECTIVES_SANITIZE)
    set(names Allreduce Reduce Reduce_scatter Reduce_scatter_block Allgather Allgatherv Bcast Barrier)
    set(blocks Alltoall Alltoallv Gather Gatherv Scatter Scatterv Scan Exscan)
    if(mpi STREQUAL openmpi)
      list(APPEND names Iallreduce Ireduce Ireduce_scatter Ireduce_scatter_block Iallgather Iallgatherv Ibcast Ibarrier)
    endif()
    list(TRANSFORM names REPLACE "(.+)" "MPI_\\1: [1-9][0-9]* taken over.*")
    # The drop-in forwards some of these calls, because they are short. The statistics list only calls that reach it.
    list(TRANSFORM blocks REPLACE "(.+)" "MPI_\\1: [0-9]+ taken over.*")
    if(mpi STREQUAL openmpi)
      list(APPEND names "MPI_Ialltoall: [1-9].*MPI_Igather: .*MPI_Iscatterv: [1-9].*MPI_Iexscan: ")
    endif()
    list(INSERT names 8 ${blocks})
    list(JOIN names "" all_taken_over)
    foreach(module mpi f08 mpif)  # mpif: mpif.h, which does not declare the types of arguments
      set(program ${CMAKE_CURRENT_BINARY_DIR}/fortran_${module}_${mpi})
      string(TOUPPER ${module} define)
      add_custom_command(OUTPUT ${program} DEPENDS fortran.F90
                         COMMAND ${COLLECTIVES_MPIF90_${mpi}} -D${define} -fallow-argument-mismatch -w
                                 ${CMAKE_CURRENT_SOURCE_DIR}/fortran.F90 -o ${program})
      add_custom_target(drop_in_fortran_${module}_${mpi} ALL DEPENDS ${program})
      drop_in_case(${mpi}.Fortran.${module} COMMAND ${mpirun} -np 2 ${intercepted} ${program} EXPECT "${all_taken_over}")
    endforeach()
  else()
    message(STATUS "collectives: no Fortran tests of the drop-in for ${mpi}")
  endif()
endfunction()
