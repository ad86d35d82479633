// An MPI program that knows nothing of this library: what programs do with collectives, in the ways that a drop-in
// could get wrong. It judges its results itself, and must pass without the drop-in as well.
//
//   traps [single|multiple]     the thread level it asks for
#define OMPI_SKIP_MPICXX
#define MPICH_SKIP_MPICXX
#include <dirent.h>
#include <mpi.h>
#ifdef OPEN_MPI
#include <mpi-ext.h>
#endif

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <limits>
#include <numeric>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

// Persistent collectives are MPI 4's; Open MPI 4.1 may have them under names of its own.
#if MPI_VERSION >= 4
#define PERSISTENT(collective) MPI_##collective##_init
#elif defined(OMPI_HAVE_MPI_EXT_PCOLLREQ)
#define PERSISTENT(collective) MPIX_##collective##_init
#endif

namespace {

int rank = 0, size = 1, failures = 0;
const char* situation = "";

#define CHECK(...)                                                                                             \
  do {                                                                                                         \
    if (!(__VA_ARGS__)) {                                                                                      \
      std::fprintf(stderr, "rank %d of %d, %s, line %d: %s\n", rank, size, situation, __LINE__, #__VA_ARGS__); \
      ++failures;                                                                                              \
    }                                                                                                          \
  } while (false)

int sum_of_ranks() { return size * (size - 1) / 2; }
std::size_t of_all() { return static_cast<std::size_t>(size); }

template <class T>
void reduces(MPI_Datatype type) {
  for (const int count : {1, 7, 1000, 50000}) {
    const auto n = static_cast<std::size_t>(count);
    std::vector<T> mine(n), result(n), expected(n);
    for (std::size_t i = 0; i < n; ++i) mine[i] = static_cast<T>(static_cast<std::size_t>(rank) + i % 5);
    for (std::size_t i = 0; i < n; ++i)
      expected[i] = static_cast<T>(static_cast<std::size_t>(sum_of_ranks()) + of_all() * (i % 5));
    MPI_Allreduce(mine.data(), result.data(), count, type, MPI_SUM, MPI_COMM_WORLD);
    CHECK(result == expected);
    result = mine;
    MPI_Allreduce(MPI_IN_PLACE, result.data(), count, type, MPI_SUM, MPI_COMM_WORLD);
    CHECK(result == expected);
    MPI_Allreduce(mine.data(), result.data(), count, type, MPI_MAX, MPI_COMM_WORLD);
    CHECK(result[0] == static_cast<T>(size - 1));
    MPI_Allreduce(mine.data(), result.data(), count, type, MPI_MIN, MPI_COMM_WORLD);
    CHECK(result[0] == T{0});
    for (int root = 0; root < size; ++root) {
      std::ranges::fill(result, T{99});
      MPI_Reduce(mine.data(), rank == root ? result.data() : nullptr, count, type, MPI_SUM, root, MPI_COMM_WORLD);
      CHECK(rank != root || result == expected);
    }
  }
}

void reductions_of_all_types() {
  reduces<float>(MPI_FLOAT);
  reduces<double>(MPI_DOUBLE);
  reduces<long double>(MPI_LONG_DOUBLE);
  reduces<int>(MPI_INT);
  reduces<short>(MPI_SHORT);
  reduces<unsigned char>(MPI_UNSIGNED_CHAR);
  reduces<long>(MPI_LONG);
  reduces<std::uint64_t>(MPI_UINT64_T);
}

void reduce_in_place_at_the_root() {
  for (int root = 0; root < size; ++root) {
    std::vector<int> values(100, rank + 1);
    MPI_Reduce(rank == root ? MPI_IN_PLACE : values.data(), rank == root ? values.data() : nullptr, 100, MPI_INT,
               MPI_PROD, root, MPI_COMM_WORLD);
    int expected = 1;
    for (int r = 1; r <= size; ++r) expected *= r;
    CHECK(values == std::vector<int>(100, rank == root ? expected : rank + 1));
  }
}

void other_ops() {
  int value = 1 << rank, result = 0;
  MPI_Allreduce(&value, &result, 1, MPI_INT, MPI_BOR, MPI_COMM_WORLD);
  CHECK(result == (1 << size) - 1);
  struct {
    double value;
    int where;
  } mine{static_cast<double>(-rank), rank}, least{};
  MPI_Allreduce(&mine, &least, 1, MPI_DOUBLE_INT, MPI_MINLOC, MPI_COMM_WORLD);
  CHECK(least.where == size - 1);

  // Not commutative: 2x2 matrices in rank order.
  MPI_Op product = MPI_OP_NULL;
  MPI_Op_create(
      [](void* in, void* inout, int* count, MPI_Datatype*) {
        for (int i = 0; i < *count; ++i) {
          const long *a = static_cast<long*>(in) + 4 * i, *b = static_cast<long*>(inout) + 4 * i;
          const long c[] = {a[0] * b[0] + a[1] * b[2], a[0] * b[1] + a[1] * b[3], a[2] * b[0] + a[3] * b[2],
                            a[2] * b[1] + a[3] * b[3]};
          std::memcpy(static_cast<long*>(inout) + 4 * i, c, sizeof c);
        }
      },
      0, &product);
  MPI_Datatype matrix = MPI_DATATYPE_NULL;
  MPI_Type_contiguous(4, MPI_LONG, &matrix);
  MPI_Type_commit(&matrix);
  const long own[] = {1, rank + 1, rank, 1};
  long all[4] = {}, expected[] = {1, 0, 0, 1};
  MPI_Allreduce(own, all, 1, matrix, product, MPI_COMM_WORLD);
  for (long r = 0; r < size; ++r) {
    const long a[] = {expected[0], expected[1], expected[2], expected[3]}, b[] = {1, r + 1, r, 1};
    expected[0] = a[0] * b[0] + a[1] * b[2];
    expected[1] = a[0] * b[1] + a[1] * b[3];
    expected[2] = a[2] * b[0] + a[3] * b[2];
    expected[3] = a[2] * b[1] + a[3] * b[3];
  }
  CHECK(std::equal(all, all + 4, expected));
  MPI_Type_free(&matrix);
  MPI_Op_free(&product);
}

void scatters() {
  for (const int count : {1, 3, 5000}) {
    const auto n = static_cast<std::size_t>(count);
    std::vector<double> all(n * of_all()), mine(n);
    for (std::size_t i = 0; i < all.size(); ++i) all[i] = static_cast<double>(i) + rank;
    const auto expected = [&](std::size_t i) { return static_cast<double>(i * of_all()) + sum_of_ranks(); };
    MPI_Reduce_scatter_block(all.data(), mine.data(), count, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    bool right = true;
    for (std::size_t i = 0; i < n; ++i) right = right && mine[i] == expected(static_cast<std::size_t>(rank) * n + i);
    CHECK(right);
    std::vector<double> place = all;
    MPI_Reduce_scatter_block(MPI_IN_PLACE, place.data(), count, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    CHECK(std::equal(mine.begin(), mine.end(), place.begin()));

    std::vector<int> counts(of_all(), 0);  // rank r: r times count, so rank 0 gets nothing
    for (int r = 0; r < size; ++r) counts[static_cast<std::size_t>(r)] = r * count;
    const auto total = static_cast<std::size_t>(std::accumulate(counts.begin(), counts.end(), 0));
    const auto before = static_cast<std::size_t>(rank * (rank - 1) / 2 * count);
    std::vector<double> uneven(total + 1);
    for (std::size_t i = 0; i < total; ++i) uneven[i] = static_cast<double>(i) + rank;
    std::vector<double> part(static_cast<std::size_t>(rank * count));
    MPI_Reduce_scatter(uneven.data(), part.data(), counts.data(), MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    right = true;
    for (std::size_t i = 0; i < part.size(); ++i) right = right && part[i] == expected(before + i);
    CHECK(right);
    MPI_Reduce_scatter(MPI_IN_PLACE, uneven.data(), counts.data(), MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    CHECK(std::equal(part.begin(), part.end(), uneven.begin()));
  }
}

/// `count` ints, each followed by a gap.
MPI_Datatype with_gaps(int count) {
  MPI_Datatype type = MPI_DATATYPE_NULL;
  MPI_Type_vector(count, 1, 2, MPI_INT, &type);
  MPI_Type_commit(&type);
  return type;
}

void ranks_describe_the_same_bytes_differently() {
  for (const int count : {1, 100, 3000}) {
    const auto n = static_cast<std::size_t>(count);
    MPI_Datatype gaps = with_gaps(count);
    for (int root = 0; root < size; ++root) {
      std::vector<int> data(2 * n, -1);
      const std::size_t step = rank % 2 == 0 ? 1 : 2;
      if (rank == root)
        for (std::size_t i = 0; i < n; ++i) data[i * step] = static_cast<int>(i) + root;
      if (rank % 2 == 0)
        MPI_Bcast(data.data(), count, MPI_INT, root, MPI_COMM_WORLD);
      else
        MPI_Bcast(data.data(), 1, gaps, root, MPI_COMM_WORLD);
      bool right = true;
      for (std::size_t i = 0; i < n; ++i) right = right && data[i * step] == static_cast<int>(i) + root;
      if (step == 2)
        for (std::size_t i = 0; i < n; ++i) right = right && data[2 * i + 1] == -1;
      CHECK(right);
    }
    // Sent with gaps by some, received dense by some.
    std::vector<int> mine(2 * n, -1);
    const bool sparse_send = rank % 2 == 1, sparse_receive = rank % 3 == 0;
    for (std::size_t i = 0; i < n; ++i) mine[sparse_send ? 2 * i : i] = rank * 10000 + static_cast<int>(i);
    std::vector<int> all(2 * n * of_all(), -7);
    MPI_Datatype spread = MPI_DATATYPE_NULL;  // gaps, and the extent of all of them
    MPI_Type_create_resized(gaps, 0, static_cast<MPI_Aint>(2 * n * sizeof(int)), &spread);
    MPI_Type_commit(&spread);
    MPI_Allgather(mine.data(), sparse_send ? 1 : count, sparse_send ? gaps : MPI_INT, all.data(),
                  sparse_receive ? 1 : count, sparse_receive ? spread : MPI_INT, MPI_COMM_WORLD);
    bool right = true;
    for (std::size_t r = 0; r < of_all(); ++r)
      for (std::size_t i = 0; i < n; ++i)
        right = right && all[sparse_receive ? 2 * (r * n + i) : r * n + i] == static_cast<int>(r * 10000 + i);
    CHECK(right);
    // In place, where the send count and type are garbage.
    if (sparse_receive) {
      std::vector<int> place(2 * n * of_all(), -7);
      for (std::size_t i = 0; i < n; ++i)
        place[2 * (static_cast<std::size_t>(rank) * n + i)] = rank * 10000 + static_cast<int>(i);
      MPI_Allgather(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, place.data(), 1, spread, MPI_COMM_WORLD);
      CHECK(place == all);
    } else {
      std::vector<int> place(n * of_all(), -7);
      for (std::size_t i = 0; i < n; ++i)
        place[static_cast<std::size_t>(rank) * n + i] = rank * 10000 + static_cast<int>(i);
      MPI_Allgather(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, place.data(), count, MPI_INT, MPI_COMM_WORLD);
      CHECK(std::equal(place.begin(), place.end(), all.begin()));
    }
    MPI_Type_free(&spread);
    MPI_Type_free(&gaps);
  }
}

void same_length_in_another_order() {
  // As long as its bytes, but the second int comes first.
  const int lengths[] = {1, 1};
  const MPI_Aint places[] = {4, 0};
  const MPI_Datatype ints[] = {MPI_INT, MPI_INT};
  MPI_Datatype swapped = MPI_DATATYPE_NULL;
  MPI_Type_create_struct(2, lengths, places, ints, &swapped);
  MPI_Type_commit(&swapped);
  std::vector<int> pairs(200, -1);
  if (rank == 0)
    for (std::size_t i = 0; i < 200; ++i) pairs[i] = static_cast<int>(i);
  if (rank == 0)
    MPI_Bcast(pairs.data(), 200, MPI_INT, 0, MPI_COMM_WORLD);
  else
    MPI_Bcast(pairs.data(), 100, swapped, 0, MPI_COMM_WORLD);
  bool right = true;
  for (std::size_t i = 0; i < 200; ++i) right = right && pairs[i] == static_cast<int>(rank == 0 ? i : i ^ 1U);
  CHECK(right);
  MPI_Type_free(&swapped);

  struct One {  // of a predefined type with a gap
    double value;
    int where;
  };
  std::vector<One> ones(50, rank == 0 ? One{2.5, 7} : One{0, 0});
  MPI_Bcast(ones.data(), 50, MPI_DOUBLE_INT, 0, MPI_COMM_WORLD);
  CHECK(ones[0].value == 2.5 && ones[0].where == 7 && ones[49].value == 2.5 && ones[49].where == 7);
}

void from_the_bottom_of_memory() {
  std::vector<int> far(100, rank == 0 ? 5 : 0);
  MPI_Aint address = 0;
  MPI_Get_address(far.data(), &address);
  const int length = 100;
  MPI_Datatype absolute = MPI_DATATYPE_NULL;
  MPI_Type_create_hindexed(1, &length, &address, MPI_INT, &absolute);
  MPI_Type_commit(&absolute);
  MPI_Bcast(MPI_BOTTOM, 1, absolute, 0, MPI_COMM_WORLD);
  CHECK(far == std::vector<int>(100, 5));
  MPI_Type_free(&absolute);
}

void gathers_with_gaps_between_ranks() {
  std::vector<int> counts, places, other_order;
  int total = 0;
  for (int r = 0; r < size; ++r) {
    counts.push_back(r % 3 == 1 ? 0 : 2 * r + 1);
    places.push_back(total + 3 * r);
    total += counts.back();
  }
  const std::size_t room = static_cast<std::size_t>(total + 3 * size);
  const auto me = static_cast<std::size_t>(rank);
  std::vector<long> mine(static_cast<std::size_t>(counts[me]), rank), all(room, -1);
  MPI_Allgatherv(mine.empty() ? nullptr : mine.data(), counts[me], MPI_LONG, all.data(), counts.data(), places.data(),
                 MPI_LONG, MPI_COMM_WORLD);
  std::vector<long> expected(room, -1);
  for (std::size_t r = 0; r < of_all(); ++r) std::fill_n(expected.begin() + places[r], counts[r], static_cast<long>(r));
  CHECK(all == expected);
  std::vector<long> place(room, -1);
  std::fill_n(place.begin() + places[me], counts[me], rank);
  MPI_Allgatherv(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, place.data(), counts.data(), places.data(), MPI_LONG,
                 MPI_COMM_WORLD);
  CHECK(place == expected);
  // Dense on even ranks, the last rank first on odd ones.
  int before = 0, after = total;
  for (std::size_t r = 0; r < of_all(); ++r) {
    after -= counts[r];
    places[r] = rank % 2 == 0 ? before : after;
    before += counts[r];
  }
  std::ranges::fill(all, -1);
  MPI_Allgatherv(mine.empty() ? nullptr : mine.data(), counts[me], MPI_LONG, all.data(), counts.data(), places.data(),
                 MPI_LONG, MPI_COMM_WORLD);
  bool right = true;
  for (std::size_t r = 0; r < of_all(); ++r)
    for (int i = 0; i < counts[r]; ++i)
      right = right && all[static_cast<std::size_t>(places[r] + i)] == static_cast<long>(r);
  CHECK(right);
}

void nothing_to_move() {
  MPI_Bcast(nullptr, 0, MPI_INT, 0, MPI_COMM_WORLD);
  MPI_Allreduce(nullptr, nullptr, 0, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
  MPI_Allgather(nullptr, 0, MPI_INT, nullptr, 0, MPI_INT, MPI_COMM_WORLD);
  MPI_Barrier(MPI_COMM_WORLD);
}

void others_messages_move_on_meanwhile() {
  // A long message needs its sender, who is in the all-reduce by then.
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

void one_sided_calls_reach_who_waits() {
  // With gaps, so that the target itself has to put the elements in place.
  const int count = 64;
  MPI_Datatype gaps = MPI_DATATYPE_NULL;
  MPI_Type_vector(count, 1, 2, MPI_INT, &gaps);
  MPI_Type_commit(&gaps);
  std::vector<int> window(2 * count * of_all(), -1), mine(count, rank);
  MPI_Win win = MPI_WIN_NULL;
  // Open MPI has none for one rank, nor where it lacks the transports for it.
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  const int created = MPI_Win_create(window.data(), static_cast<MPI_Aint>(window.size() * sizeof(int)), sizeof(int),
                                     MPI_INFO_NULL, MPI_COMM_WORLD, &win);
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_ARE_FATAL);
  if (created != MPI_SUCCESS) return void(MPI_Type_free(&gaps));
  MPI_Win_lock_all(0, win);
  MPI_Barrier(MPI_COMM_WORLD);
  if (rank != 0) {  // rank 0 is in the barrier meanwhile
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
  // In another order than they were begun, by different calls.
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
  // Rank 0 sits in a receive while the others need its part of the sum.
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
  for (int i = 0; i < 3; ++i) MPI_Barrier(passing);  // so that it is taken over
  MPI_Request request = MPI_REQUEST_NULL;
  MPI_Ibarrier(passing, &request);
  MPI_Comm_free(&passing);
  MPI_Wait(&request, MPI_STATUS_IGNORE);
}

void communicators_of_all_kinds() {
  MPI_Comm half = MPI_COMM_NULL, backwards = MPI_COMM_NULL, alone = MPI_COMM_NULL;
  MPI_Comm_split(MPI_COMM_WORLD, rank % 2, rank, &half);
  MPI_Comm_split(MPI_COMM_WORLD, 0, -rank, &backwards);
  MPI_Comm_split(MPI_COMM_WORLD, rank, 0, &alone);
  int members = 0, place = 0, one = 1, sum = 0;
  MPI_Comm_size(half, &members);
  MPI_Comm_rank(backwards, &place);
  MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, half);
  CHECK(sum == members);
  int from = place == 0 ? rank : -1;
  MPI_Bcast(&from, 1, MPI_INT, 0, backwards);
  CHECK(from == size - 1);
  MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, alone);
  CHECK(sum == 1);
  if (size > 1) {  // between the halves
    MPI_Comm between = MPI_COMM_NULL;
    MPI_Intercomm_create(half, 0, MPI_COMM_WORLD, rank % 2 == 0 ? 1 : 0, 3, &between);
    int theirs = 0;
    for (int i = 0; i < 3; ++i) {
      MPI_Allreduce(&one, &theirs, 1, MPI_INT, MPI_SUM, between);
      CHECK(theirs == (rank % 2 == 0 ? size / 2 : (size + 1) / 2));
      int said = rank == 0 ? 17 : -1;
      MPI_Bcast(&said, 1, MPI_INT, rank == 0 ? MPI_ROOT : rank % 2 == 0 ? MPI_PROC_NULL : 0, between);
      CHECK(said == (rank == 0 || rank % 2 == 1 ? 17 : -1));
      MPI_Barrier(between);
    }
    MPI_Comm_free(&between);
  }
  MPI_Comm_free(&half);
  MPI_Comm_free(&backwards);
  MPI_Comm_free(&alone);
}

/// Three rounds of collectives on `comm`, whose ranks are `members`: the first rounds may be forwarded, the last ones
/// not.
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

void communicators_made_in_all_ways() {
  MPI_Comm comm = MPI_COMM_NULL;
  MPI_Comm_dup_with_info(MPI_COMM_WORLD, MPI_INFO_NULL, &comm);
  used(comm, size);
  MPI_Comm copy = MPI_COMM_NULL;
  MPI_Request request = MPI_REQUEST_NULL;
  MPI_Comm_idup(comm, &copy, &request);  // of one that is taken over, which is used meanwhile
  used(comm, size);
  MPI_Wait(&request, MPI_STATUS_IGNORE);
  used(copy, size);
  MPI_Comm_disconnect(&copy);
  MPI_Comm_free(&comm);

  MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &comm);
  int members = 0;
  MPI_Comm_size(comm, &members);
  used(comm, members);
  MPI_Comm_free(&comm);

  // All but rank 0, once with the others' help and once without.
  MPI_Group world = MPI_GROUP_NULL, others = MPI_GROUP_NULL;
  const int zero = 0;
  MPI_Comm_group(MPI_COMM_WORLD, &world);
  MPI_Group_excl(world, 1, &zero, &others);
  MPI_Comm_create(MPI_COMM_WORLD, others, &comm);
  CHECK((comm == MPI_COMM_NULL) == (rank == 0 || size == 1));
  if (comm != MPI_COMM_NULL) {
    used(comm, size - 1);
    MPI_Comm_free(&comm);
  }
  if (rank > 0) {
    MPI_Comm_create_group(MPI_COMM_WORLD, others, 7, &comm);
    used(comm, size - 1);
    MPI_Comm_free(&comm);
  }
  MPI_Group_free(&others);
  MPI_Group_free(&world);

  if (size > 1) {  // two halves, merged the other way round
    MPI_Comm half = MPI_COMM_NULL, between = MPI_COMM_NULL;
    MPI_Comm_split(MPI_COMM_WORLD, rank % 2, rank, &half);
    MPI_Intercomm_create(half, 0, MPI_COMM_WORLD, rank % 2 == 0 ? 1 : 0, 3, &between);
    MPI_Intercomm_merge(between, rank % 2 == 0 ? 1 : 0, &comm);
    used(comm, size);
    MPI_Comm_free(&comm);
    MPI_Comm_free(&between);
    MPI_Comm_free(&half);
  }
}

void neighbours() {
  const int round_about = 1;
  MPI_Comm ring = MPI_COMM_NULL;
  MPI_Cart_create(MPI_COMM_WORLD, 1, &size, &round_about, 1, &ring);
  used(ring, size);
  int place = 0;
  MPI_Comm_rank(ring, &place);
  const int left = (place + size - 1) % size, right = (place + 1) % size;
  int both[2] = {-1, -1};
  MPI_Neighbor_allgather(&place, 1, MPI_INT, both, 1, MPI_INT, ring);
  CHECK(both[0] == left && both[1] == right);
  // Moving on beside one of the drop-in's.
  const int mine[] = {10 * place, 10 * place + 1};
  int theirs[2] = {-1, -1}, one = 1, sum = 0;
  MPI_Request requests[2];
  MPI_Ineighbor_alltoall(mine, 1, MPI_INT, theirs, 1, MPI_INT, ring, &requests[0]);
  MPI_Iallreduce(&one, &sum, 1, MPI_INT, MPI_SUM, ring, &requests[1]);
  MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
  // With two ranks the neighbours to the left and to the right are one, and which message is which is MPI's affair.
  CHECK(sum == size && (size <= 2 || (theirs[0] == 10 * left + 1 && theirs[1] == 10 * right)));
  MPI_Comm_free(&ring);
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

void sessions() {
  MPI_Session session = MPI_SESSION_NULL;
  MPI_Session_init(MPI_INFO_NULL, MPI_ERRORS_ARE_FATAL, &session);
  MPI_Group group = MPI_GROUP_NULL;
  MPI_Group_from_session_pset(session, "mpi://WORLD", &group);
  MPI_Comm comm = MPI_COMM_NULL;
  MPI_Comm_create_from_group(group, "of a session", MPI_INFO_NULL, MPI_ERRORS_ARE_FATAL, &comm);
  used(comm, size);
  MPI_Comm_free(&comm);
  MPI_Group_free(&group);
  MPI_Session_finalize(&session);
}
#endif

std::size_t open_files() {
  std::size_t files = 0;
  DIR* directory = ::opendir("/proc/self/fd");
  while (::readdir(directory) != nullptr) ++files;
  ::closedir(directory);
  return files;
}
std::size_t lines_of(const char* path) {
  std::ifstream file(path);
  std::size_t lines = 0;
  for (std::string line; std::getline(file, line);) ++lines;
  return lines;
}
long resident_pages() {
  long all = 0, resident = 0;
  std::ifstream("/proc/self/statm") >> all >> resident;
  return resident;
}

void communicators_by_the_thousand() {
  const auto some = [](int number) {
    for (int i = 0; i < number; ++i) {
      MPI_Comm one = MPI_COMM_NULL;
      i % 2 == 0 ? MPI_Comm_dup(MPI_COMM_WORLD, &one) : MPI_Comm_split(MPI_COMM_WORLD, 0, -rank, &one);
      for (int call = 0; call < 2; ++call) {
        int ones = 1, sum = 0;
        MPI_Allreduce(&ones, &sum, 1, MPI_INT, MPI_SUM, one);
        CHECK(sum == size);
      }
      MPI_Comm_free(&one);
    }
  };
  const char* const number = std::getenv("COLLECTIVES_TEST_COMMUNICATORS");
  some(50);
  const std::size_t files = open_files(), maps = lines_of("/proc/self/maps");
  [[maybe_unused]] const long pages = resident_pages();
  some(number == nullptr ? 100 : std::atoi(number));
  CHECK(open_files() <= files + 4);
  CHECK(lines_of("/proc/self/maps") <= maps + 20);
#ifndef __SANITIZE_ADDRESS__                // which keeps what is freed for a while
  CHECK(resident_pages() <= pages + 4096);  // 16 MiB
#endif
}

void more_communicators_than_are_built() {
  std::vector<MPI_Comm> many(80);
  for (MPI_Comm& one : many) MPI_Comm_dup(MPI_COMM_WORLD, &one);
  for (int round = 0; round < 3; ++round)
    for (MPI_Comm one : many) {
      int ones = 1, sum = 0;
      MPI_Allreduce(&ones, &sum, 1, MPI_INT, MPI_SUM, one);
      CHECK(sum == size);
    }
  for (MPI_Comm& one : many) MPI_Comm_free(&one);
}

[[maybe_unused]] int handled = 0;
[[maybe_unused]] void handle(MPI_Comm*, int*, ...) { ++handled; }

[[maybe_unused]] void wrong_arguments_come_back_as_codes() {
  MPI_Comm mine = MPI_COMM_NULL;
  MPI_Comm_dup(MPI_COMM_WORLD, &mine);
  MPI_Comm_set_errhandler(mine, MPI_ERRORS_RETURN);
  int value = 1, sum = 0, error_class = 0;
  const auto class_of = [&](int code) {
    MPI_Error_class(code, &error_class);
    return error_class;
  };
  for (int i = 0; i < 3; ++i) MPI_Allreduce(&value, &sum, 1, MPI_INT, MPI_SUM, mine);
  CHECK(class_of(MPI_Allreduce(&value, &sum, -1, MPI_INT, MPI_SUM, mine)) == MPI_ERR_COUNT);
  CHECK(MPI_Allreduce(&value, &sum, 1, MPI_DATATYPE_NULL, MPI_SUM, mine) != MPI_SUCCESS);
  CHECK(class_of(MPI_Allreduce(&value, &sum, 1, MPI_INT, MPI_OP_NULL, mine)) == MPI_ERR_OP);
  CHECK(class_of(MPI_Bcast(&value, 1, MPI_INT, size, mine)) == MPI_ERR_ROOT);
  CHECK(MPI_Bcast(&value, 1, MPI_DATATYPE_NULL, 0, mine) != MPI_SUCCESS);
  CHECK(MPI_Allgather(&value, -1, MPI_INT, &sum, 1, MPI_INT, mine) != MPI_SUCCESS);
  MPI_Comm_free(&mine);
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  CHECK(class_of(MPI_Allreduce(&value, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_NULL)) == MPI_ERR_COMM);
  CHECK(class_of(MPI_Barrier(MPI_COMM_NULL)) == MPI_ERR_COMM);
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_ARE_FATAL);

  MPI_Errhandler handler = MPI_ERRHANDLER_NULL;
  MPI_Comm_create_errhandler(handle, &handler);
  MPI_Comm_dup(MPI_COMM_WORLD, &mine);
  MPI_Comm_set_errhandler(mine, handler);
  for (int i = 0; i < 3; ++i) MPI_Allreduce(&value, &sum, 1, MPI_INT, MPI_SUM, mine);
  MPI_Bcast(&value, 1, MPI_INT, -5, mine);
  CHECK(handled == 1);
  MPI_Comm_free(&mine);
  MPI_Errhandler_free(&handler);
}

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

void small_integers_wrap() {
  const signed char mine = 100;
  signed char sum = 0;
  MPI_Allreduce(&mine, &sum, 1, MPI_SIGNED_CHAR, MPI_SUM, MPI_COMM_WORLD);
  CHECK(sum == static_cast<signed char>(100 * size));
}

void the_buffer_of_one_may_be_unaligned() {
  std::vector<char> memory(8 * 100 + 1 + 800);
  std::vector<double> values(100, 1.5);
  std::memcpy(memory.data() + 1, values.data(), 800);
  std::vector<double> sum(100);
  MPI_Allreduce(rank == 0 ? static_cast<void*>(memory.data() + 1) : values.data(), sum.data(), 100, MPI_DOUBLE, MPI_SUM,
                MPI_COMM_WORLD);
  CHECK(sum == std::vector<double>(100, 1.5 * size));
}

}  // namespace

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
  IN(others_messages_move_on_meanwhile);
  IN(one_sided_calls_reach_who_waits);
  IN(blocking_while_non_blocking_ones_are_pending);
  IN(non_blocking_forms);
  IN(non_blocking_with_types_freed_at_once);
  IN(begun_here_and_finished_in_other_calls);
  // Open MPI 4.1.4 itself crashes over this one.
  if (const char* const after = std::getenv("COLLECTIVES_MPI_AFTER");
      after != nullptr && after == std::string_view("0"))
    IN(a_communicator_freed_before_its_request);
  IN(communicators_of_all_kinds);
  IN(communicators_made_in_all_ways);
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
#ifndef MPICH  // Debian's checks no arguments, and crashes
  IN(wrong_arguments_come_back_as_codes);
#endif
  IN(small_integers_wrap);
  IN(the_buffer_of_one_may_be_unaligned);
  if (multiple && provided == MPI_THREAD_MULTIPLE) IN(threads_with_communicators_of_their_own);
  MPI_Finalize();
  return failures == 0 ? 0 : 1;
}
