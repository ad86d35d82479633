// Corner cases of MPI that a drop-in could get wrong: the list of cases, and helpers of the files that define them. A
// drop-in is a library that is preloaded under an MPI program and takes over its collectives.
#pragma once
#define OMPI_SKIP_MPICXX
#define MPICH_SKIP_MPICXX
#include <mpi.h>
#ifdef OPEN_MPI
#include <mpi-ext.h>
#endif

#include <cstddef>
#include <cstdio>

// Persistent collectives are part of MPI 4. Open MPI 4.1 may have them under names of its own.
#if MPI_VERSION >= 4
#define PERSISTENT(collective) MPI_##collective##_init
#elif defined(OMPI_HAVE_MPI_EXT_PCOLLREQ)
#define PERSISTENT(collective) MPIX_##collective##_init
#endif

extern int rank, size, failures;
extern const char* situation;  // name of the case that runs, for failures

#define CHECK(...)                                                                                                     \
  do {                                                                                                                 \
    if (!(__VA_ARGS__)) {                                                                                              \
      std::fprintf(stderr, "rank %d of %d, %s, %s:%d: %s\n", rank, size, situation, __FILE__, __LINE__, #__VA_ARGS__); \
      ++failures;                                                                                                      \
    }                                                                                                                  \
  } while (false)

/// Returns the sum of the numbers of all ranks.
inline int sum_of_ranks() { return size * (size - 1) / 2; }

/// Returns the number of ranks, as a length of vectors.
inline std::size_t of_all() { return static_cast<std::size_t>(size); }

/// Returns a type of `count` ints, each followed by a gap of the same length.
MPI_Datatype with_gaps(int count);

/// Runs every collective three times on `comm`, which has `members` ranks. The drop-in may forward the first calls to
/// MPI. It performs the last ones itself.
void used(MPI_Comm comm, int members);

// corner_cases_data.cpp: types, operators, and the places of data.
void reductions_of_all_types();
void reduce_in_place_at_the_root();
void other_ops();
void scatters();
void ranks_describe_the_same_bytes_differently();
void same_length_in_another_order();
void ranks_describe_equal_sequences_of_types_differently();
void from_the_bottom_of_memory();
void gathers_with_gaps_between_ranks();
void nothing_to_move();
void small_integers_wrap();
void the_buffer_of_one_may_be_unaligned();

// corner_cases_ops.cpp: ops and types of reductions, and scans.
void logical_and_bitwise_ops();
void complex_numbers();
void values_with_their_locations();
void scans();

// corner_cases_blocks.cpp: calls whose buffers consist of a block for each rank.
void equal_blocks();
void equal_blocks_that_ranks_describe_differently();
void unequal_blocks();
void unequal_blocks_that_ranks_describe_differently();
void blocks_before_the_buffer_begins();
void a_block_sent_from_a_gap_of_the_receive_buffer();
void a_root_that_scatters_read_only_memory();
void blocks_of_types_that_are_not_compared();
void blocks_on_communicators_of_all_kinds();
void non_blocking_blocks();

// corner_cases_progress.cpp: operations that are pending beside others.
void foreign_messages_progress_during_collectives();
void one_sided_calls_complete_at_a_waiting_target();
void blocking_while_non_blocking_ones_are_pending();
void non_blocking_forms();
void non_blocking_with_types_freed_at_once();
void begun_here_and_finished_in_other_calls();
void a_communicator_freed_before_its_request();
void others_in_between();
#ifdef PERSISTENT
void persistent_ones();
#endif
#if MPI_VERSION >= 4
void counts_longer_than_ints();
#endif
void threads_with_communicators_of_their_own();

// corner_cases_communicators.cpp: communicators, and errors on them.
void communicators_of_all_kinds();
void communicators_made_by_every_function();
void neighbours();
#if MPI_VERSION >= 4
void sessions();
#endif
void communicators_by_the_thousand();
void more_communicators_than_are_built();
void wrong_arguments_come_back_as_codes();
