# collectives_mpirun_test(NAME RANKS COMMAND...): enters COMMAND, started by mpirun on RANKS ranks, in ctest. It must also
# work as root in a container and with more ranks than cores, which Open MPI allows when the environment says so and
# MPICH always.
function(collectives_mpirun_test name ranks)
  add_test(NAME ${name} COMMAND ${MPIEXEC_EXECUTABLE} ${MPIEXEC_NUMPROC_FLAG} ${ranks} ${ARGN})
  set_tests_properties(${name} PROPERTIES TIMEOUT 300 PROCESSORS 2 ENVIRONMENT
    "OMPI_ALLOW_RUN_AS_ROOT=1;OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1;OMPI_MCA_rmaps_base_oversubscribe=1")
endfunction()
