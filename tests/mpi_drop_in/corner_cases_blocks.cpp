// Corner cases of an MPI program (corner_cases.hpp): calls whose buffers consist of a block for each rank. Block r of
// rank s has ints that depend on s, r and their place, so that each int is checked. The drop-in is a preloaded library
// that performs MPI's collectives.
#include <sys/mman.h>

#include <algorithm>
#include <numeric>
#include <string_view>
#include <vector>

#include "corner_cases.hpp"

namespace {

std::size_t as_size(int number) { return static_cast<std::size_t>(number); }

/// Returns the int at `place` of the block from rank `from` to rank `to`.
int element(int from, int to, std::size_t place) {
  return 1000003 * from + 10007 * to + static_cast<int>(place % 9973);
}

/// Ints in a buffer, with a gap of one int after each if `stride` is 2. The gaps and all other ints are -1.
struct Ints {
  explicit Ints(std::size_t count, std::size_t stride_ = 1) : stride(stride_), values(count * stride_ + 1, -1) {}
  int& operator[](std::size_t place) { return values[place * stride]; }
  int* data() { return values.data(); }
  void write(std::size_t first, std::size_t count, int from, int to) {
    for (std::size_t i = 0; i < count; ++i) (*this)[first + i] = element(from, to, i);
  }
  bool holds(std::size_t first, std::size_t count, int from, int to) {
    for (std::size_t i = 0; i < count; ++i)
      if ((*this)[first + i] != element(from, to, i)) return false;
    return true;
  }
  /// Returns the number of ints that are still -1.
  std::size_t unwritten() const { return static_cast<std::size_t>(std::ranges::count(values, -1)); }

  std::size_t stride;
  std::vector<int> values;
};

/// Type of one int. With the stride 2 a gap follows the int.
struct IntType {
  explicit IntType(std::size_t stride) {
    MPI_Type_create_resized(MPI_INT, 0, static_cast<MPI_Aint>(stride * sizeof(int)), &spread);
    MPI_Type_commit(&spread);
    type = stride == 1 ? MPI_INT : spread;
  }
  ~IntType() { MPI_Type_free(&spread); }
  IntType(const IntType&) = delete;
  IntType& operator=(const IntType&) = delete;
  MPI_Datatype spread = MPI_DATATYPE_NULL, type = MPI_DATATYPE_NULL;
};

/// Counts of the blocks from rank `from` to each rank, and displacements in falling order with gaps between blocks.
struct Lists {
  std::vector<int> counts, places;
  std::size_t length = 0;
};
int count_of(int from, int to, int unit) { return (from + 2 * to) % 4 == 1 ? 0 : unit * ((from + 2 * to) % 3 + 1); }
template <class Count>
Lists lists_of(Count&& count) {
  Lists lists;
  for (int r = 0; r < size; ++r) lists.counts.push_back(count(r));
  lists.places.resize(of_all());
  int next = 2;
  for (std::size_t r = of_all(); r-- > 0; next += lists.counts[r] + 3) lists.places[r] = next;
  lists.length = as_size(next);
  return lists;
}

}  // namespace

// ---- equal blocks ----

static void all_to_all(int count, std::size_t send_stride, std::size_t receive_stride) {
  const IntType sent(send_stride), received(receive_stride);
  const std::size_t n = as_size(count);
  Ints in(n * of_all(), send_stride), out(n * of_all(), receive_stride), place(n * of_all(), receive_stride);
  for (int r = 0; r < size; ++r) in.write(as_size(r) * n, n, rank, r);
  for (int r = 0; r < size; ++r) place.write(as_size(r) * n, n, rank, r);
  MPI_Alltoall(in.data(), count, sent.type, out.data(), count, received.type, MPI_COMM_WORLD);
  MPI_Alltoall(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, place.data(), count, received.type, MPI_COMM_WORLD);
  for (int r = 0; r < size; ++r)
    CHECK(out.holds(as_size(r) * n, n, r, rank) && place.holds(as_size(r) * n, n, r, rank));
  CHECK(out.unwritten() == out.values.size() - n * of_all());
}

static void gather_and_scatter(int count, std::size_t mine_stride, std::size_t all_stride, int root) {
  const IntType one(mine_stride), many(all_stride);
  const std::size_t n = as_size(count), me = as_size(rank) * n;
  Ints mine(n, mine_stride), all(n * of_all(), all_stride), place(n * of_all(), all_stride);
  mine.write(0, n, rank, root);
  place.write(me, n, rank, root);
  const bool here = rank == root;
  MPI_Gather(mine.data(), count, one.type, here ? all.data() : nullptr, count, many.type, root, MPI_COMM_WORLD);
  MPI_Gather(here ? MPI_IN_PLACE : mine.data(), here ? -5 : count, here ? MPI_DATATYPE_NULL : one.type,
             here ? place.data() : nullptr, here ? count : -7, here ? many.type : MPI_DATATYPE_NULL, root,
             MPI_COMM_WORLD);
  for (int r = 0; here && r < size; ++r)
    CHECK(all.holds(as_size(r) * n, n, r, root) && place.holds(as_size(r) * n, n, r, root));
  CHECK(!here || all.unwritten() == all.values.size() - n * of_all());

  Ints part(n, mine_stride), again(n, mine_stride);
  for (int r = 0; here && r < size; ++r) all.write(as_size(r) * n, n, root, r);
  MPI_Scatter(here ? all.data() : nullptr, here ? count : -7, here ? many.type : MPI_DATATYPE_NULL, part.data(), count,
              one.type, root, MPI_COMM_WORLD);
  MPI_Scatter(all.data(), count, many.type, here ? MPI_IN_PLACE : again.data(), here ? -5 : count,
              here ? MPI_DATATYPE_NULL : one.type, root, MPI_COMM_WORLD);
  CHECK(part.holds(0, n, root, rank) && (here || again.holds(0, n, root, rank)));
  for (int r = 0; here && r < size; ++r) CHECK(all.holds(as_size(r) * n, n, root, r));
  CHECK(part.unwritten() == part.values.size() - n);
}

void equal_blocks() {
  for (const int count : {0, 1, 3, 1001, 40000}) {
    all_to_all(count, 1, 1);
    for (int root = 0; root < size; ++root) gather_and_scatter(count, 1, 1, root);
  }
}

void equal_blocks_that_ranks_describe_differently() {
  for (const int count : {1, 5, 3000}) {
    all_to_all(count, rank % 2 == 0 ? 1 : 2, rank % 3 == 0 ? 2 : 1);
    for (int root = 0; root < size; ++root)
      gather_and_scatter(count, rank % 2 == 0 ? 1 : 2, count % 2 == 0 ? 1 : 2, root);
  }
}

// ---- blocks of any length ----

static void all_to_all_v(int unit, std::size_t send_stride, std::size_t receive_stride) {
  const IntType sent(send_stride), received(receive_stride);
  const Lists from = lists_of([&](int r) { return count_of(rank, r, unit); }),
              to = lists_of([&](int r) { return count_of(r, rank, unit); });
  Ints in(from.length, send_stride), out(to.length, receive_stride);
  for (std::size_t r = 0; r < of_all(); ++r)
    in.write(as_size(from.places[r]), as_size(from.counts[r]), rank, static_cast<int>(r));
  MPI_Alltoallv(in.data(), from.counts.data(), from.places.data(), sent.type, out.data(), to.counts.data(),
                to.places.data(), received.type, MPI_COMM_WORLD);
  for (std::size_t r = 0; r < of_all(); ++r)
    CHECK(out.holds(as_size(to.places[r]), as_size(to.counts[r]), static_cast<int>(r), rank));
  const int total = std::accumulate(to.counts.begin(), to.counts.end(), 0);
  CHECK(out.unwritten() == out.values.size() - as_size(total));
  // In place, the blocks of a pair of ranks are equally long.
  const Lists both = lists_of([&](int r) { return count_of(std::min(r, rank), std::max(r, rank), unit); });
  Ints place(both.length, receive_stride);
  for (std::size_t r = 0; r < of_all(); ++r)
    place.write(as_size(both.places[r]), as_size(both.counts[r]), rank, static_cast<int>(r));
  MPI_Alltoallv(MPI_IN_PLACE, nullptr, nullptr, MPI_DATATYPE_NULL, place.data(), both.counts.data(), both.places.data(),
                received.type, MPI_COMM_WORLD);
  for (std::size_t r = 0; r < of_all(); ++r)
    CHECK(place.holds(as_size(both.places[r]), as_size(both.counts[r]), static_cast<int>(r), rank));
}

static void gather_v_and_scatter_v(int unit, std::size_t mine_stride, std::size_t all_stride, int root) {
  const IntType one(mine_stride), many(all_stride);
  const bool here = rank == root;
  const Lists lists = here ? lists_of([&](int r) { return count_of(r, root, unit); }) : Lists();
  const int count = count_of(rank, root, unit);
  const std::size_t n = as_size(count);
  const auto place_of = [&](int r) { return as_size(lists.places[as_size(r)]); };
  const auto length_of = [&](int r) { return as_size(lists.counts[as_size(r)]); };
  Ints mine(n, mine_stride), all(lists.length, all_stride), place(lists.length, all_stride);
  mine.write(0, n, rank, root);
  if (here) place.write(place_of(rank), n, rank, root);
  const int* const counts = here ? lists.counts.data() : nullptr;
  const int* const places = here ? lists.places.data() : nullptr;
  MPI_Gatherv(mine.data(), count, one.type, here ? all.data() : nullptr, counts, places,
              here ? many.type : MPI_DATATYPE_NULL, root, MPI_COMM_WORLD);
  MPI_Gatherv(here ? MPI_IN_PLACE : mine.data(), count, one.type, place.data(), counts, places, many.type, root,
              MPI_COMM_WORLD);
  for (int r = 0; here && r < size; ++r)
    CHECK(all.holds(place_of(r), length_of(r), r, root) && place.holds(place_of(r), length_of(r), r, root));
  if (here)
    CHECK(all.unwritten() == all.values.size() - as_size(std::accumulate(lists.counts.begin(), lists.counts.end(), 0)));

  Ints part(n, mine_stride), again(n, mine_stride);
  for (int r = 0; here && r < size; ++r) all.write(place_of(r), length_of(r), root, r);
  MPI_Scatterv(here ? all.data() : nullptr, counts, places, here ? many.type : MPI_DATATYPE_NULL, part.data(), count,
               one.type, root, MPI_COMM_WORLD);
  MPI_Scatterv(all.data(), counts, places, many.type, here ? MPI_IN_PLACE : again.data(), count, one.type, root,
               MPI_COMM_WORLD);
  CHECK(part.holds(0, n, root, rank) && (here || again.holds(0, n, root, rank)));
  CHECK(part.unwritten() == part.values.size() - n);
}

void unequal_blocks() {
  for (const int unit : {0, 1, 7, 20001}) {
    all_to_all_v(unit, 1, 1);
    for (int root = 0; root < size; ++root) gather_v_and_scatter_v(unit, 1, 1, root);
  }
}

void unequal_blocks_that_ranks_describe_differently() {
  for (const int unit : {1, 2000}) {
    all_to_all_v(unit, rank % 2 == 0 ? 1 : 2, rank % 3 == 0 ? 2 : 1);
    for (int root = 0; root < size; ++root)
      gather_v_and_scatter_v(unit, rank % 2 == 0 ? 2 : 1, 1 + as_size(root % 2), root);
  }
}

void blocks_before_the_buffer_begins() {
  // The buffers begin behind their blocks, which have negative displacements.
  std::vector<int> counts(of_all(), 10), places(of_all()), in(10 * of_all()), out(in.size(), -1);
  for (int r = 0; r < size; ++r) places[as_size(r)] = -10 * (r + 1);
  for (int r = 0; r < size; ++r)
    for (std::size_t i = 0; i < 10; ++i) in[10 * as_size(size - 1 - r) + i] = element(rank, r, i);
  MPI_Alltoallv(in.data() + in.size(), counts.data(), places.data(), MPI_INT, out.data() + out.size(), counts.data(),
                places.data(), MPI_INT, MPI_COMM_WORLD);
  for (int r = 0; r < size; ++r)
    for (std::size_t i = 0; i < 10; ++i) CHECK(out[10 * as_size(size - 1 - r) + i] == element(r, rank, i));
}

void a_block_sent_from_a_gap_of_the_receive_buffer() {
  // The root sends ints that lie between the blocks that it receives.
  std::vector<int> counts(of_all(), 4), places(of_all()), all(12 * of_all() + 4, -1);
  for (int r = 0; r < size; ++r) places[as_size(r)] = 12 * r;
  const int mine[] = {rank, rank, rank, rank};
  std::fill_n(all.begin() + 4, 4, rank);
  MPI_Gatherv(rank == 0 ? all.data() + 4 : mine, 4, MPI_INT, all.data(), counts.data(), places.data(), MPI_INT, 0,
              MPI_COMM_WORLD);
  for (int r = 0; rank == 0 && r < size; ++r) CHECK(all[as_size(12 * r)] == r && all[as_size(12 * r) + 3] == r);
}

void a_root_that_scatters_read_only_memory() {
  const std::size_t bytes = 4096 * of_all();
  void* const memory = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  for (int r = 0; r < size; ++r) std::fill_n(static_cast<int*>(memory) + as_size(r) * 1024, 1024, 7 * r + 1);
  ::mprotect(memory, bytes, PROT_READ);
  std::vector<int> part(1024, -1), counts(of_all(), 1024), places(of_all());
  for (int r = 0; r < size; ++r) places[as_size(r)] = 1024 * r;
  for (int root = 0; root < size; ++root) {
    void* const to = rank == root ? MPI_IN_PLACE : part.data();
    MPI_Scatter(memory, 1024, MPI_INT, to, 1024, MPI_INT, root, MPI_COMM_WORLD);
    CHECK(rank == root || part == std::vector<int>(1024, 7 * rank + 1));
    std::ranges::fill(part, -1);
    MPI_Scatterv(memory, counts.data(), places.data(), MPI_INT, to, 1024, MPI_INT, root, MPI_COMM_WORLD);
    CHECK(rank == root || part == std::vector<int>(1024, 7 * rank + 1));
  }
  ::munmap(memory, bytes);
}

// ---- types, communicators, and pending calls ----

void blocks_of_types_that_are_not_compared() {
  // A rank without elements may pass any type, and each pair of ranks may exchange another one.
  std::vector<int> counts(of_all(), 1), places(of_all());
  counts[0] = 0;
  std::iota(places.begin(), places.end(), 0);
  std::vector<double> all(of_all(), -1);
  const double mine = rank;
  MPI_Gatherv(&mine, rank == 0 ? 0 : 1, rank == 0 ? MPI_BYTE : MPI_DOUBLE, all.data(), counts.data(), places.data(),
              MPI_DOUBLE, 0, MPI_COMM_WORLD);
  for (int r = 1; rank == 0 && r < size; ++r) CHECK(all[as_size(r)] == r);
  struct One {
    double value;
    int where;
  };
  std::vector<One> pairs(of_all(), One{-1.0, -1});
  const One pair{rank + 0.5, rank};
  MPI_Gather(&pair, 1, MPI_DOUBLE_INT, pairs.data(), 1, MPI_DOUBLE_INT, size - 1, MPI_COMM_WORLD);
  for (int r = 0; rank == size - 1 && r < size; ++r)
    CHECK(pairs[as_size(r)].value == r + 0.5 && pairs[as_size(r)].where == r);
}

/// Runs each call on a communicator of `members` ranks.
static void blocks_on(MPI_Comm comm, int members) {
  int place = 0;
  MPI_Comm_rank(comm, &place);
  const auto ranks = as_size(members);
  std::vector<int> all(ranks), mine(ranks), counts(ranks, 1), places(ranks);
  std::iota(places.begin(), places.end(), 0);
  for (int round = 0; round < 3; ++round) {
    for (std::size_t r = 0; r < ranks; ++r) mine[r] = 100 * place + static_cast<int>(r) + round;
    MPI_Alltoall(mine.data(), 1, MPI_INT, all.data(), 1, MPI_INT, comm);
    CHECK(all[ranks - 1] == 100 * (members - 1) + place + round);
    std::ranges::fill(all, -1);
    MPI_Alltoallv(mine.data(), counts.data(), places.data(), MPI_INT, all.data(), counts.data(), places.data(), MPI_INT,
                  comm);
    CHECK(all[0] == place + round);
    for (int root = 0; root < members; ++root) {
      std::ranges::fill(all, -1);
      MPI_Gather(&place, 1, MPI_INT, all.data(), 1, MPI_INT, root, comm);
      CHECK(place != root || all[ranks - 1] == members - 1);
      int part = -1;
      MPI_Scatterv(all.data(), counts.data(), places.data(), MPI_INT, &part, 1, MPI_INT, root, comm);
      CHECK(part == place);
    }
    int before = -1;
    MPI_Exscan(&place, &before, 1, MPI_INT, MPI_SUM, comm);
    CHECK(before == (place == 0 ? -1 : place * (place - 1) / 2));
  }
}

void blocks_on_communicators_of_all_kinds() {
  MPI_Comm half = MPI_COMM_NULL, backwards = MPI_COMM_NULL;
  MPI_Comm_split(MPI_COMM_WORLD, rank % 2, rank, &half);
  MPI_Comm_split(MPI_COMM_WORLD, 0, -rank, &backwards);
  int members = 0;
  MPI_Comm_size(half, &members);
  blocks_on(half, members);
  blocks_on(backwards, size);
  if (size > 1) {  // an inter-communicator: each rank sends to the ranks of the other half
    MPI_Comm between = MPI_COMM_NULL;
    MPI_Intercomm_create(half, 0, MPI_COMM_WORLD, rank % 2 == 0 ? 1 : 0, 3, &between);
    int others = 0;
    MPI_Comm_remote_size(between, &others);
    std::vector<int> mine(as_size(others), rank), theirs(as_size(others), -1);
    for (int round = 0; round < 3; ++round) {
      MPI_Alltoall(mine.data(), 1, MPI_INT, theirs.data(), 1, MPI_INT, between);
      CHECK(theirs.front() == 1 - rank % 2);
      std::ranges::fill(theirs, -1);
      MPI_Gather(&rank, 1, MPI_INT, theirs.data(), 1, MPI_INT,
                 rank == 0       ? MPI_ROOT
                 : rank % 2 == 0 ? MPI_PROC_NULL
                                 : 0,
                 between);
      CHECK(rank != 0 || theirs.front() == 1);
    }
    MPI_Comm_free(&between);
  }
  MPI_Comm_free(&half);
  MPI_Comm_free(&backwards);
}

void non_blocking_blocks() {
  const std::size_t n = 300, ranks = of_all();
  const IntType gaps(2);
  std::vector<int> counts(ranks, static_cast<int>(n)), places(ranks);
  for (std::size_t r = 0; r < ranks; ++r) places[r] = static_cast<int>(r * n);
  Ints in(n * ranks), exchanged(n * ranks), exchanged_v(n * ranks, 2), gathered(n * ranks, 2), gathered_v(n * ranks),
      part(n), part_v(n, 2);
  for (int r = 0; r < size; ++r) in.write(as_size(r) * n, n, rank, r);
  std::vector<int> sums(n), before(n);
  const int count = static_cast<int>(n), last = size - 1;
  MPI_Request requests[8];
  MPI_Ialltoall(in.data(), count, MPI_INT, exchanged.data(), count, MPI_INT, MPI_COMM_WORLD, &requests[0]);
  MPI_Ialltoallv(in.data(), counts.data(), places.data(), MPI_INT, exchanged_v.data(), counts.data(), places.data(),
                 gaps.type, MPI_COMM_WORLD, &requests[1]);
  MPI_Igather(in.data(), count, MPI_INT, gathered.data(), count, gaps.type, last, MPI_COMM_WORLD, &requests[2]);
  MPI_Igatherv(in.data(), count, MPI_INT, gathered_v.data(), counts.data(), places.data(), MPI_INT, 0, MPI_COMM_WORLD,
               &requests[3]);
  MPI_Iscatter(in.data(), count, MPI_INT, part.data(), count, MPI_INT, 0, MPI_COMM_WORLD, &requests[4]);
  MPI_Iscatterv(in.data(), counts.data(), places.data(), MPI_INT, part_v.data(), count, gaps.type, last, MPI_COMM_WORLD,
                &requests[5]);
  MPI_Iscan(in.data(), sums.data(), count, MPI_INT, MPI_MAX, MPI_COMM_WORLD, &requests[6]);
  MPI_Iexscan(in.data(), before.data(), count, MPI_INT, MPI_MAX, MPI_COMM_WORLD, &requests[7]);
  MPI_Waitall(8, requests, MPI_STATUSES_IGNORE);
  for (int r = 0; r < size; ++r) {
    CHECK(exchanged.holds(as_size(r) * n, n, r, rank) && exchanged_v.holds(as_size(r) * n, n, r, rank));
    CHECK(rank != last || gathered.holds(as_size(r) * n, n, r, 0));
    CHECK(rank != 0 || gathered_v.holds(as_size(r) * n, n, r, 0));
  }
  CHECK(part.holds(0, n, 0, rank) && part_v.holds(0, n, last, rank));
  for (std::size_t i = 0; i < n; ++i)
    CHECK(sums[i] == element(rank, 0, i) && before[i] == (rank == 0 ? 0 : element(rank - 1, 0, i)));
}
