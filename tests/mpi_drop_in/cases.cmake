# drop_in_tests(MPI PACKAGE OTHER RANKS...): declares all cases for the MPI of PACKAGE. The program of corner cases runs
# with each number of RANKS. The drop-in is a preloaded library that performs the collectives of an MPI program. The
# drop-in for the MPI OTHER must refuse this MPI.
function(drop_in_tests mpi package other)
  find_program(COLLECTIVES_MPIRUN_${mpi} mpirun.${mpi})
  set(mpirun ${COLLECTIVES_MPIRUN_${mpi}})
  if(NOT TARGET collectives_mpi_${mpi} OR NOT mpirun)
    message(STATUS "collectives: no tests of the drop-in for ${mpi}, which is not installed")
    return()
  endif()
  set(library $<TARGET_FILE:collectives_mpi_${mpi}>)
  drop_in_program(drop_in_corner_cases_${mpi} ${package} mpi_corner_cases.cpp corner_cases_blocks.cpp
                  corner_cases_communicators.cpp corner_cases_data.cpp corner_cases_ops.cpp corner_cases_progress.cpp)
  drop_in_program(drop_in_scenarios_${mpi} ${package} scenarios.cpp)
  drop_in_program(drop_in_processes_${mpi} ${package} processes.cpp)
  drop_in_program(drop_in_different_calls_${mpi} ${package} different_calls.cpp)
  if(NOT COLLECTIVES_SANITIZE)  # no test runs the benchmark
    drop_in_program(drop_in_bench_${mpi} ${package} ${PROJECT_SOURCE_DIR}/bench/micro/mpi_drop_in_bench.cpp)
  endif()
  set(corner_cases $<TARGET_FILE:drop_in_corner_cases_${mpi}>)
  set(scenarios $<TARGET_FILE:drop_in_scenarios_${mpi}>)
  set(processes $<TARGET_FILE:drop_in_processes_${mpi}>)
  set(intercepted env LD_PRELOAD=${library} COLLECTIVES_MPI_AFTER=0 COLLECTIVES_MPI_STATS=1)

  add_test(NAME mpi_drop_in.${mpi}.Symbols
           COMMAND ${CMAKE_COMMAND} -DLIBRARY=${library} -DNM=${CMAKE_NM} -DREADELF=${CMAKE_READELF} -P
                   ${CMAKE_CURRENT_SOURCE_DIR}/symbols.cmake)
  drop_in_case(${mpi}.RunsWithoutTheDropIn COMMAND ${mpirun} -np 2 ${corner_cases})
  drop_in_case(${mpi}.Alone COMMAND ${mpirun} -np 1 ${intercepted} ${corner_cases} EXPECT "forwarded: [0-9]+ one rank")
  set(names Allreduce Alltoall Alltoallv Gather Gatherv Scatter Scatterv Scan Exscan)
  if(mpi STREQUAL openmpi)
    list(APPEND names Ialltoall Ialltoallv Igather Igatherv Iscatter Iscatterv Iscan Iexscan)
  endif()
  list(TRANSFORM names REPLACE "(.+)" "MPI_\\1: [1-9][0-9]* taken over.*")
  list(JOIN names "" each_is_taken_over)
  foreach(ranks IN LISTS ARGN)
    drop_in_case(${mpi}.CornerCases.np${ranks} COMMAND ${mpirun} -np ${ranks} ${intercepted} ${corner_cases}
                 EXPECT "${each_is_taken_over}")
  endforeach()
  drop_in_case(${mpi}.SeveralThreads COMMAND ${mpirun} -np 2 ${intercepted} ${corner_cases} multiple
               EXPECT "MPI_Allreduce: [1-9][0-9]* taken over")
  drop_in_case(${mpi}.RanksDisagree COMMAND ${mpirun} -np 3 ${intercepted} ${scenarios} ranks_disagree
               EXPECT "MPI_Allreduce #4: rank 0 passed 9 x i32, ranks 1-2 passed 10 x i32")
  drop_in_case(${mpi}.RanksDisagreeFatally COMMAND ${mpirun} -np 2 ${intercepted} ${scenarios} ranks_disagree_fatally
               EXPECT "rank 0 passed 9 x i32" REFUSE "class other" FAILS)
  set(refused "error: rank 0: MPI_[A-Za-z]* #[12]: rank 2 refused")
  drop_in_case(${mpi}.PeersOfARankThatRefuses.allreduce COMMAND ${mpirun} -np 3 ${intercepted} ${scenarios} one_refuses
               allreduce EXPECT "${refused} MPI_Allreduce #2: the count is negative, ranks 0-1 passed 10000 x i32")
  drop_in_case(${mpi}.PeersOfARankThatRefuses.bcast COMMAND ${mpirun} -np 3 ${intercepted} ${scenarios} one_refuses
               bcast EXPECT "${refused} MPI_Bcast #2: the root is no rank")
  drop_in_case(${mpi}.PeersOfARankThatRefuses.type COMMAND ${mpirun} -np 3 ${intercepted} ${scenarios} one_refuses type
               EXPECT "${refused} MPI_Bcast #2: the datatype is null or not committed")
  drop_in_case(${mpi}.PeersOfARankThatRefuses.first COMMAND ${mpirun} -np 3 ${intercepted} ${scenarios} one_refuses first
               EXPECT "${refused} MPI_Allreduce #1: the op is MPI_OP_NULL")
  drop_in_case(${mpi}.PeersOfARankThatRefuses.gatherv COMMAND ${mpirun} -np 3 ${intercepted} ${scenarios} one_refuses
               gatherv EXPECT "${refused} MPI_Gatherv #2: the send count is negative")
  drop_in_case(${mpi}.LengthsOfAPairDiffer COMMAND ${mpirun} -np 3 ${intercepted} ${scenarios} pair_differs
               EXPECT "MPI_Alltoallv #2.*rank 2 sends 12 [a-z]* to rank 0, which expects 8")
  drop_in_case(${mpi}.PackedDataMeetsOtherTypes COMMAND ${mpirun} -np 3 ${intercepted} ${scenarios} packed
               EXPECT "MPI_Bcast: 1 taken over" REFUSE "mismatch|passed")
  set(different $<TARGET_FILE:drop_in_different_calls_${mpi}>)
  set(quiet env LD_PRELOAD=${library} COLLECTIVES_MPI_AFTER=0 COLLECTIVES_TUNING=default)
  drop_in_case(${mpi}.DifferentCalls.OfAHost COMMAND ${mpirun} -np 2 ${quiet} ${different} 3 EXPECT " 0 faults")
  drop_in_case(${mpi}.DifferentCalls.OfTwoHosts COMMAND ${mpirun} -np 3 ${quiet}
               sh ${PROJECT_SOURCE_DIR}/tests/support/on_fake_hosts.sh 2 ${different} 11 EXPECT " 0 faults")
  if(mpi STREQUAL openmpi)
    drop_in_case(${mpi}.DifferentCalls.NonBlocking COMMAND ${mpirun} -np 2 ${quiet} ${different} 3 nonblocking
                 EXPECT " 0 faults")
  endif()
  drop_in_case(${mpi}.BeforeInit COMMAND ${intercepted} ${scenarios} before_init REFUSE "[Ss]egmentation" FAILS)
  drop_in_case(${mpi}.AfterFinalize COMMAND ${intercepted} ${scenarios} after_finalize REFUSE "[Ss]egmentation" FAILS)
  drop_in_case(${mpi}.MalformedSetting
               COMMAND ${mpirun} -np 2 ${intercepted} COLLECTIVES_MPI_WIRE=f64 ${scenarios} coded
               EXPECT "COLLECTIVES_MPI_WIRE=f64: valid is bf16: no MPI call is taken over")
  # One rank fails while the other ranks wait for it, in shared memory and during connection.
  foreach(transport shared_memory tcp)
    drop_in_case(${mpi}.OneRankCannotBuild.${transport}
                 COMMAND ${mpirun} -np 3 ${intercepted} COLLECTIVES_TRANSPORT=${transport} ${scenarios} no_descriptors
                 EXPECT "are not taken over: .*MPI_Allreduce: 0 taken over.*forwarded: 100 not built")
  endforeach()
  # One rank ends while the other ranks wait for it. MPICH's launcher may take a rank that leaves for a finished one.
  foreach(call allreduce iallreduce barrier)
    drop_in_case(${mpi}.OneRankAborts.${call} COMMAND ${mpirun} -np 3 ${intercepted} ${processes} abort ${call} FAILS ENDS)
    drop_in_case(${mpi}.OneRankIsKilled.${call} COMMAND ${mpirun} -np 3 ${intercepted} ${processes} killed ${call} FAILS ENDS)
  endforeach()
  foreach(how leaves quits)
    drop_in_case(${mpi}.OneRank.${how} COMMAND ${mpirun} -np 3 ${intercepted} ${processes} ${how} ENDS)
  endforeach()
  foreach(situation stopped forks)
    drop_in_case(${mpi}.Processes.${situation} COMMAND ${mpirun} -np 3 ${intercepted} ${processes} ${situation}
                 EXPECT "MPI_Allreduce: [1-9][0-9]* taken over" REFUSE "collectives: [a-z]+: ")
  endforeach()
  # Ranks of one host share memory, so they do not encode values. Over TCP they do.
  set(coded ${intercepted} COLLECTIVES_MPI_WIRE=bf16 COLLECTIVES_MPI_WIRE_MIN_BYTES=65536)
  drop_in_case(${mpi}.CodedSums COMMAND ${mpirun} -np 2 ${coded} COLLECTIVES_TRANSPORT=tcp
               COLLECTIVES_DETERMINISTIC=on ${scenarios} coded EXPECT "sums of f32 are coded")
  drop_in_case(${mpi}.OthersAreNotCoded COMMAND ${mpirun} -np 2 ${coded} COLLECTIVES_TRANSPORT=tcp
               COLLECTIVES_DETERMINISTIC=on ${scenarios} coded EXPECT "is for sums of f32: max of f32 travels as it is")
  # docs/mpi_drop_in.md states after how many calls a communicator is taken over.
  drop_in_case(${mpi}.InterceptsAfterTheBreakEvenNumberOfCalls
               COMMAND ${mpirun} -np 2 env LD_PRELOAD=${library} COLLECTIVES_MPI_STATS=1 ${scenarios} patience
               EXPECT "MPI_Allreduce: 13 taken over [^\n]*forwarded: 2002 young communicator")
  # A communicator is taken over after 50 calls, while calls of MPI are pending.
  drop_in_case(${mpi}.InterceptsInTheMiddleOfAProgram
               COMMAND ${mpirun} -np 3 env LD_PRELOAD=${library} COLLECTIVES_MPI_AFTER=50 COLLECTIVES_MPI_STATS=1 ${corner_cases}
               EXPECT "MPI_Allreduce: [1-9][0-9]* taken over [^\n]*forwarded: [^\n]*[1-9][0-9]* young communicator")
  drop_in_case(${mpi}.RankZeroDecides
               COMMAND ${mpirun} -np 1 ${intercepted} ${scenarios} patience : -np 1 env LD_PRELOAD=${library}
                       COLLECTIVES_MPI_AFTER=7 ${scenarios} patience
               EXPECT "MPI_Allreduce: 2015 taken over")
  # On one host nothing is measured, so no cache of measurements is written.
  set(cache ${CMAKE_CURRENT_BINARY_DIR}/cache_of_${mpi})
  drop_in_case(${mpi}.BuiltInTuningIsUsedOnOneHost
               COMMAND sh -c "rm -rf ${cache} && $* && ! ls ${cache}" sh ${mpirun} -np 2 env -u COLLECTIVES_TUNING
                       XDG_CACHE_HOME=${cache} LD_PRELOAD=${library} COLLECTIVES_MPI_STATS=1 ${scenarios} patience
               EXPECT "MPI_Allreduce: 13 taken over")
  drop_in_case(${mpi}.ForwardsEverythingWhenCudaIsLoaded
               COMMAND ${mpirun} -np 1 ${intercepted} ${scenarios} patience : -np 1 env
                       "LD_PRELOAD=${library} $<TARGET_FILE:drop_in_cuda_driver>" COLLECTIVES_MPI_AFTER=0 ${scenarios} patience
               EXPECT "MPI_Allreduce: 0 taken over [^\n]*forwarded: 2015 CUDA")
  drop_in_case(${mpi}.SixtyFourCommunicatorsAtMost COMMAND ${mpirun} -np 2 ${intercepted} ${scenarios} many
               EXPECT "MPI_Allreduce: 64 taken over [^\n]*forwarded: 2 not built")
  if(mpi STREQUAL openmpi)
    set(reduced "1 taken over [^\n]*forwarded: 1 length")
    set(broadcast "3 taken over [^\n]*forwarded: 1 length")
  else()
    set(reduced "2 taken over")
    set(broadcast "1 taken over [^\n]*forwarded: 3 length")
  endif()
  drop_in_case(${mpi}.ForwardsTheLengthsOfTheTable COMMAND ${mpirun} -np 2 ${intercepted} ${scenarios} lengths
    EXPECT "Reduce: ${reduced}.*Allgather: 2 taken over.*Bcast: ${broadcast}")
  if(TARGET collectives_mpi_${other})
    drop_in_case(${mpi}.UnderAnotherMpi
                 COMMAND ${mpirun} -np 2 env LD_PRELOAD=$<TARGET_FILE:collectives_mpi_${other}> ${corner_cases}
                 EXPECT "this drop-in is for .*nothing is taken over")
  endif()
  # The drop-in does nothing in a program without MPI, such as the shell.
  drop_in_case(${mpi}.WithoutAnyMpi COMMAND ${intercepted} sh -c "echo unharmed" EXPECT "unharmed")
  drop_in_fortran_tests(${mpi})
endfunction()
