// Corner cases of an MPI program (corner_cases.hpp): operations that are pending at the same time, threads, and
// persistent collectives. The drop-in is a preloaded library that performs MPI's collectives.
#include <algorithm>
#include <thread>
#include <vector>

#include "corner_cases.hpp"

void foreign_messages_progress_during_collectives() {
  // A long message arrives only if its sender progresses MPI. The sender is already in the all-reduce, so the drop-in
  // must progress MPI.
  const int length = 1 << 20;
  for (int round = 0; round < 3; ++round) {
    std::vector<int> message(static_cast<std::size_t>(length), rank);
    MPI_Request request = MPI_REQUEST_NULL;
    const int left = (rank + size - 1) % size, right = (rank + 1) % size;
    if (rank % 2 == 0 && right != rank) MPI_Isend(message.data(), length, MPI_INT, right, 5, MPI_COMM_WORLD, &request);
    std::vector<int> received(static_cast<std::size_t>(length), -1);
    if (left % 2 == 0 && left != rank) {
      MPI_Recv(received.data(), length, MPI_INT, left, 5, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
      CHECK(received.front() == left && received.back() == left);
    }
    int one = 1, sum = 0;
    MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    CHECK(sum == size);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
  }
}

void one_sided_calls_complete_at_a_waiting_target() {
  // The type has gaps, so the code of the target process must store the elements.
  const int count = 64;
  MPI_Datatype gaps = MPI_DATATYPE_NULL;
  MPI_Type_vector(count, 1, 2, MPI_INT, &gaps);
  MPI_Type_commit(&gaps);
  std::vector<int> window(2 * count * of_all(), -1), mine(count, rank);
  MPI_Win win = MPI_WIN_NULL;
  // Open MPI has no such window for one rank, or without the transports that it needs.
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  const int created = MPI_Win_create(window.data(), static_cast<MPI_Aint>(window.size() * sizeof(int)), sizeof(int),
                                     MPI_INFO_NULL, MPI_COMM_WORLD, &win);
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_ARE_FATAL);
  if (created != MPI_SUCCESS) return void(MPI_Type_free(&gaps));
  MPI_Win_lock_all(0, win);
  MPI_Barrier(MPI_COMM_WORLD);
  if (rank != 0) {  // rank 0 is in the barrier at that time
    MPI_Put(mine.data(), count, MPI_INT, 0, static_cast<MPI_Aint>(2 * count * rank), 1, gaps, win);
    MPI_Win_flush(0, win);
  }
  MPI_Barrier(MPI_COMM_WORLD);
  MPI_Win_unlock_all(win);
  bool right = true;
  for (std::size_t i = 0; i < window.size(); ++i) {
    const int origin = static_cast<int>(i) / (2 * count);
    right = right && window[i] == (rank == 0 && origin != 0 && i % 2 == 0 ? origin : -1);
  }
  CHECK(right);
  MPI_Win_free(&win);
  MPI_Type_free(&gaps);
}

void blocking_while_non_blocking_ones_are_pending() {
  std::vector<double> big(100000, rank), total(big.size());
  int root_says = rank == 0 ? 42 : 0, one = 1, sum = 0, other_sum = 0;
  MPI_Request requests[3];
  MPI_Iallreduce(big.data(), total.data(), static_cast<int>(big.size()), MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD,
                 &requests[0]);
  MPI_Ibcast(&root_says, 1, MPI_INT, 0, MPI_COMM_WORLD, &requests[1]);
  MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
  MPI_Iallreduce(&one, &other_sum, 1, MPI_INT, MPI_BOR, MPI_COMM_WORLD, &requests[2]);
  CHECK(sum == size);
  MPI_Barrier(MPI_COMM_WORLD);
  MPI_Waitall(3, requests, MPI_STATUSES_IGNORE);
  CHECK(root_says == 42 && other_sum == 1 && total.front() == sum_of_ranks() && total.back() == sum_of_ranks());
}

void non_blocking_forms() {
  const auto ranks = of_all();
  std::vector<int> counts(ranks, 3), places(ranks);
  for (std::size_t r = 0; r < ranks; ++r) places[r] = static_cast<int>(4 * r);
  std::vector<int> mine(3 * ranks, rank), sum(3 * ranks), reduced(3 * ranks), part(3), block(3), all(3 * ranks),
      spaced(4 * ranks, -1), given(3, rank == size - 1 ? 9 : 0);
  const int n = 3 * size;
  MPI_Request requests[8];
  MPI_Iallreduce(mine.data(), sum.data(), n, MPI_INT, MPI_SUM, MPI_COMM_WORLD, &requests[0]);
  MPI_Ireduce(mine.data(), rank == 0 ? reduced.data() : nullptr, n, MPI_INT, MPI_MAX, 0, MPI_COMM_WORLD, &requests[1]);
  MPI_Ireduce_scatter(mine.data(), part.data(), counts.data(), MPI_INT, MPI_SUM, MPI_COMM_WORLD, &requests[2]);
  MPI_Ireduce_scatter_block(mine.data(), block.data(), 3, MPI_INT, MPI_SUM, MPI_COMM_WORLD, &requests[3]);
  MPI_Iallgather(mine.data(), 3, MPI_INT, all.data(), 3, MPI_INT, MPI_COMM_WORLD, &requests[4]);
  MPI_Iallgatherv(mine.data(), 3, MPI_INT, spaced.data(), counts.data(), places.data(), MPI_INT, MPI_COMM_WORLD,
                  &requests[5]);
  MPI_Ibcast(given.data(), 3, MPI_INT, size - 1, MPI_COMM_WORLD, &requests[6]);
  MPI_Ibarrier(MPI_COMM_WORLD, &requests[7]);
  // Completes operations in another order than they were begun, by several functions.
  MPI_Wait(&requests[7], MPI_STATUS_IGNORE);
  int flag = 0;
  while (flag == 0) MPI_Test(&requests[2], &flag, MPI_STATUS_IGNORE);
  flag = 0;
  while (flag == 0) MPI_Request_get_status(requests[1], &flag, MPI_STATUS_IGNORE);
  MPI_Status statuses[8];
  MPI_Waitall(8, requests, statuses);
  int done = 0, index = 0;
  MPI_Testsome(8, requests, &done, &index, MPI_STATUSES_IGNORE);
  CHECK(done == MPI_UNDEFINED);
  CHECK(sum == std::vector<int>(3 * ranks, sum_of_ranks()));
  CHECK(rank != 0 || reduced == std::vector<int>(3 * ranks, size - 1));
  CHECK(part == std::vector<int>(3, sum_of_ranks()) && block == part);
  CHECK(given == std::vector<int>(3, 9));
  bool right = true;
  for (std::size_t r = 0; r < ranks; ++r)
    for (std::size_t i = 0; i < 4; ++i)
      right = right && spaced[4 * r + i] == (i < 3 ? static_cast<int>(r) : -1) &&
              (i == 3 || all[3 * r + i] == static_cast<int>(r));
  CHECK(right);
}

void non_blocking_with_types_freed_at_once() {
  const int count = 500;
  const auto n = static_cast<std::size_t>(count);
  MPI_Datatype gaps = with_gaps(count);
  std::vector<int> data(2 * n, rank == 0 ? 3 : 0);
  MPI_Request request = MPI_REQUEST_NULL;
  MPI_Ibcast(data.data(), 1, gaps, 0, MPI_COMM_WORLD, &request);
  MPI_Type_free(&gaps);
  MPI_Wait(&request, MPI_STATUS_IGNORE);
  CHECK(data[0] == 3 && data[2 * n - 2] == 3 && (rank == 0 || data[1] == 0));
}

void begun_here_and_finished_in_other_calls() {
  // Rank 0 waits in a receive while the other ranks need its part of the sum.
  std::vector<double> mine(20000, 1.0), sum(mine.size());
  MPI_Request request = MPI_REQUEST_NULL;
  MPI_Iallreduce(mine.data(), sum.data(), static_cast<int>(mine.size()), MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD, &request);
  int token = 0;
  if (rank == 0) {
    for (int r = 1; r < size; ++r) MPI_Recv(&token, 1, MPI_INT, r, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
  } else {
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    MPI_Send(&token, 1, MPI_INT, 0, 1, MPI_COMM_WORLD);
  }
  CHECK(sum.front() == size && sum.back() == size);
}

void a_communicator_freed_before_its_request() {
  MPI_Comm passing = MPI_COMM_NULL;
  MPI_Comm_dup(MPI_COMM_WORLD, &passing);
  for (int i = 0; i < 3; ++i) MPI_Barrier(passing);  // after these calls the drop-in takes the communicator over
  MPI_Request request = MPI_REQUEST_NULL;
  MPI_Ibarrier(passing, &request);
  MPI_Comm_free(&passing);
  MPI_Wait(&request, MPI_STATUS_IGNORE);
}

void others_in_between() {
  std::vector<int> mine(of_all(), rank), all(of_all());
  for (int round = 0; round < 5; ++round) {
    MPI_Alltoall(mine.data(), 1, MPI_INT, all.data(), 1, MPI_INT, MPI_COMM_WORLD);
    int sum = 0, before = 0;
    MPI_Allreduce(&all[0], &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    CHECK(sum == 0 && all.back() == size - 1);
    MPI_Scan(&rank, &before, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    MPI_Barrier(MPI_COMM_WORLD);
    std::ranges::fill(all, -1);
    MPI_Gather(&before, 1, MPI_INT, all.data(), 1, MPI_INT, size - 1, MPI_COMM_WORLD);
    MPI_Bcast(all.data(), size, MPI_INT, size - 1, MPI_COMM_WORLD);
    CHECK(all.back() == sum_of_ranks() && all[0] == 0);
  }
}

#ifdef PERSISTENT
void persistent_ones() {
  std::vector<double> values(1000), sums(1000);
  int said = -1, one = 1, sum = 0;
  MPI_Request requests[3];
  PERSISTENT(Allreduce)
  (values.data(), sums.data(), 1000, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD, MPI_INFO_NULL, &requests[0]);
  PERSISTENT(Bcast)(&said, 1, MPI_INT, size - 1, MPI_COMM_WORLD, MPI_INFO_NULL, &requests[1]);
  PERSISTENT(Barrier)(MPI_COMM_WORLD, MPI_INFO_NULL, &requests[2]);
  for (int round = 0; round < 3; ++round) {
    std::ranges::fill(values, rank + round);
    said = rank == size - 1 ? round : -1;
    MPI_Startall(3, requests);
    MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    MPI_Waitall(3, requests, MPI_STATUSES_IGNORE);
    CHECK(sum == size && said == round && sums == std::vector<double>(1000, sum_of_ranks() + size * round));
  }
  for (MPI_Request& request : requests) MPI_Request_free(&request);
}
#endif

#if MPI_VERSION >= 4
void counts_longer_than_ints() {
  std::vector<int> values(100, rank), sums(100);
  MPI_Allreduce_c(values.data(), sums.data(), MPI_Count{100}, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
  CHECK(sums == std::vector<int>(100, sum_of_ranks()));
  MPI_Bcast_c(sums.data(), MPI_Count{100}, MPI_INT, 0, MPI_COMM_WORLD);
  MPI_Barrier(MPI_COMM_WORLD);
}
#endif

void threads_with_communicators_of_their_own() {
  constexpr int kThreads = 3;
  MPI_Comm comms[kThreads];
  for (MPI_Comm& comm : comms) MPI_Comm_dup(MPI_COMM_WORLD, &comm);
  std::vector<std::thread> threads;
  int wrong[kThreads] = {};
  for (int t = 0; t < kThreads; ++t)
    threads.emplace_back([t, &comms, &wrong] {
      std::vector<int> values(100), sums(100);
      for (int i = 0; i < 60; ++i) {
        std::ranges::fill(values, t + i);
        if (i % 2 == 0) {
          MPI_Allreduce(values.data(), sums.data(), 100, MPI_INT, MPI_SUM, comms[t]);
        } else {
          MPI_Request request = MPI_REQUEST_NULL;
          MPI_Iallreduce(values.data(), sums.data(), 100, MPI_INT, MPI_SUM, comms[t], &request);
          MPI_Wait(&request, MPI_STATUS_IGNORE);
        }
        wrong[t] += sums != std::vector<int>(100, (t + i) * size) ? 1 : 0;
      }
    });
  for (std::thread& thread : threads) thread.join();
  for (const int count : wrong) CHECK(count == 0);
  for (MPI_Comm& comm : comms) MPI_Comm_free(&comm);
}
