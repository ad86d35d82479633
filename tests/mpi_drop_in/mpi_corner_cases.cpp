// An MPI program that uses collectives in ways that a drop-in could get wrong (corner_cases.hpp). A drop-in is a
// preloaded library that takes over MPI's collectives. The program checks its own results, and must also pass without
// the drop-in.
//
//   mpi_corner_cases [single|multiple]     the thread level it asks for
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string_view>
#include <vector>

#include "corner_cases.hpp"

int rank = 0, size = 1, failures = 0;
const char* situation = "";

void used(MPI_Comm comm, int members) {
  int place = 0, one = 1, sum = 0;
  MPI_Comm_rank(comm, &place);
  for (int round = 0; round < 3; ++round) {
    MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, comm);
    CHECK(sum == members);
    std::vector<int> places(static_cast<std::size_t>(members), -1);
    MPI_Allgather(&place, 1, MPI_INT, places.data(), 1, MPI_INT, comm);
    CHECK(places.front() == 0 && places.back() == members - 1 && std::ranges::is_sorted(places));
    std::vector<double> values(5000, place == members - 1 ? 1.5 : 0);
    MPI_Bcast(values.data(), 5000, MPI_DOUBLE, members - 1, comm);
    CHECK(values == std::vector<double>(5000, 1.5));
    MPI_Barrier(comm);
  }
}

int main(int argc, char** argv) {
  const bool multiple = argc > 1 && std::string_view(argv[1]) == "multiple";
  int provided = MPI_THREAD_SINGLE;
  if (multiple)
    MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
  else
    MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  const auto in = [](const char* name, void (*what)()) {
    situation = name;
    if (std::getenv("COLLECTIVES_TEST_VERBOSE") != nullptr && rank == 0) std::fprintf(stderr, "%s\n", name);
    what();
  };
#define IN(what) in(#what, what)
  IN(reductions_of_all_types);
  IN(reduce_in_place_at_the_root);
  IN(other_ops);
  IN(scatters);
  IN(ranks_describe_the_same_bytes_differently);
  IN(same_length_in_another_order);
  IN(from_the_bottom_of_memory);
  IN(gathers_with_gaps_between_ranks);
  IN(nothing_to_move);
  IN(logical_and_bitwise_ops);
  IN(complex_numbers);
  IN(values_with_their_locations);
  IN(scans);
  IN(equal_blocks);
  IN(equal_blocks_that_ranks_describe_differently);
  IN(unequal_blocks);
  IN(unequal_blocks_that_ranks_describe_differently);
  IN(blocks_before_the_buffer_begins);
  IN(a_block_sent_from_a_gap_of_the_receive_buffer);
  IN(a_root_that_scatters_read_only_memory);
  IN(blocks_of_types_that_are_not_compared);
  IN(blocks_on_communicators_of_all_kinds);
  IN(non_blocking_blocks);
  IN(foreign_messages_progress_during_collectives);
  IN(one_sided_calls_complete_at_a_waiting_target);
  IN(blocking_while_non_blocking_ones_are_pending);
  IN(non_blocking_forms);
  IN(non_blocking_with_types_freed_at_once);
  IN(begun_here_and_finished_in_other_calls);
  // Open MPI 4.1.4 itself crashes in the first case. In the second one, MPIs cut long vectors differently on ranks with
  // different types.
  if (const char* const after = std::getenv("COLLECTIVES_MPI_AFTER");
      after != nullptr && after == std::string_view("0")) {
    IN(a_communicator_freed_before_its_request);
    IN(ranks_describe_equal_sequences_of_types_differently);
  }
  IN(communicators_of_all_kinds);
  IN(communicators_made_by_every_function);
  IN(neighbours);
  IN(others_in_between);
#ifdef PERSISTENT
  IN(persistent_ones);
#endif
#if MPI_VERSION >= 4
  IN(counts_longer_than_ints);
  IN(sessions);
#endif
  IN(communicators_by_the_thousand);
  IN(more_communicators_than_are_built);
#ifndef MPICH  // Debian's MPI checks no arguments, and crashes
  IN(wrong_arguments_come_back_as_codes);
#endif
  IN(small_integers_wrap);
  IN(the_buffer_of_one_may_be_unaligned);
  if (multiple && provided == MPI_THREAD_MULTIPLE) IN(threads_with_communicators_of_their_own);
  MPI_Finalize();
  return failures == 0 ? 0 : 1;
}
