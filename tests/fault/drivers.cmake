# Programs that make many trials by a seed, by hand or from a test: random collectives, random kills, hostile bytes,
# mutations.

# Random collectives: between ranks of one host, and by hand over all wires.
collectives_test_program(stress_program collectives)
target_include_directories(stress_program PRIVATE ${PROJECT_SOURCE_DIR}/src)  # core/tuning_parameters.hpp
collectives_test(abuse_test NO_LIBRARY DEPENDS collectives_run stress_program PROPERTIES RESOURCE_LOCK stress_program
                 PATHS kCollectivesRun $<TARGET_FILE:collectives_run> kStressProgram $<TARGET_FILE:stress_program>)
collectives_test_program(random_operations collectives_test_main)
collectives_paths(random_operations kCollectivesRun $<TARGET_FILE:collectives_run> kStressProgram $<TARGET_FILE:stress_program>)
add_dependencies(random_operations collectives_run stress_program)

# Trials in which a rank is killed, by seed.
collectives_test_program(random_kills collectives fmt::fmt)
target_sources(random_kills PRIVATE kill_trial.cpp kill_trial_rank.cpp)
collectives_test(random_kills_test NO_LIBRARY CORE DEPENDS random_kills SHARDS 4
                 PATHS kRandomKills $<TARGET_FILE:random_kills>)

# Jobs whose ports receive hostile bytes.
collectives_test_program(hostile_start collectives_internal fmt::fmt)
target_sources(hostile_start PRIVATE attacker.cpp)
target_include_directories(hostile_start PRIVATE ${PROJECT_SOURCE_DIR}/src)
collectives_test(hostile_start_test NO_LIBRARY DEPENDS hostile_start
                 PATHS kHostileStart $<TARGET_FILE:hostile_start>)

# Changed inputs for all parsers.
collectives_test_library(mutations mutations.cpp mutation_targets.cpp mutations_files.cpp mutations_records.cpp
                         mutations_rendezvous.cpp mutations_wires.cpp)
target_link_libraries(mutations PUBLIC collectives_test_main collectives_internal)
collectives_test(mutations_test INTERNAL LIBRARIES mutations)
collectives_test_program(mutation_program mutations)

# Counts the lines of the parsers that inputs reach. parser_coverage.sh builds mutation_program so.
option(COLLECTIVES_PARSER_COVERAGE "Count the lines of the parsers that mutation_program reaches" OFF)
if(COLLECTIVES_PARSER_COVERAGE)
  set(parsers
      base/json base/json_record bootstrap/exchange bootstrap/greetings bootstrap/records bootstrap/rendezvous_link
      core/tuning device/gpu_discovery monitoring/control_messages monitoring/first_failure monitoring/flight_recorder
      monitoring/process_page shared_memory/arena topology/host_map transport/control_connection
      transport/datagram_links transport/datagram_pieces transport/datagrams transport/reorder_buffer
      transport/tcp_addresses transport/tcp_stream transport/wires tuning/tuning_cache)
  list(TRANSFORM parsers REPLACE "(.+)" "${PROJECT_SOURCE_DIR}/src/\\1.cpp")
  set_source_files_properties(${parsers} TARGET_DIRECTORY collectives_objects PROPERTIES
                              SKIP_PRECOMPILE_HEADERS ON COMPILE_OPTIONS "-O1;-fno-inline;--coverage")
  target_link_options(mutations PUBLIC --coverage)
endif()
