# Tests under mpirun.

# mpirun must run as root in a container and with more ranks than cores. Memory that Open MPI never frees is no leak of
# ours.
set(COLLECTIVES_MPIRUN_ENVIRONMENT
    OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1
    PRTE_MCA_rmaps_default_mapping_policy=:oversubscribe OMPI_MCA_hwloc_base_binding_policy=none
    OMPI_MCA_mpi_yield_when_idle=1 ASAN_OPTIONS=detect_leaks=0)

# collectives_mpi_test(NAME RANKS... COMMAND PROGRAM ARGUMENTS...): runs PROGRAM under mpirun once for each count in
# RANKS, as ctest cases mpi.NAME.npRANKS. PROGRAM may be a target. Adds no test without MPI.
function(collectives_mpi_test name)
  if(NOT COLLECTIVES_HAVE_MPI)
    return()
  endif()
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "" "COMMAND;ENVIRONMENT")
  list(POP_FRONT arg_COMMAND program)
  if(TARGET ${program})
    set(program $<TARGET_FILE:${program}>)
  endif()
  foreach(ranks IN LISTS arg_UNPARSED_ARGUMENTS)
    add_test(NAME mpi.${name}.np${ranks} COMMAND ${MPIEXEC_EXECUTABLE} ${MPIEXEC_NUMPROC_FLAG} ${ranks} ${program}
                                                 ${arg_COMMAND})
    set_tests_properties(mpi.${name}.np${ranks} PROPERTIES
      TIMEOUT 300 PROCESSORS 2 ENVIRONMENT "${COLLECTIVES_MPIRUN_ENVIRONMENT};${arg_ENVIRONMENT}")
  endforeach()
endfunction()
