// Corner cases of an MPI program (corner_cases.hpp): types, operators, and the places of data.
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <numeric>
#include <utility>
#include <vector>

#include "corner_cases.hpp"

template <class T>
static void reduces(MPI_Datatype type) {
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

  // An operator that does not commute: the product of 2x2 matrices, in rank order.
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

    std::vector<int> counts(of_all(), 0);  // rank r gets r * count elements, so rank 0 gets none
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
    // Some ranks send with gaps, and some receive without.
    std::vector<int> mine(2 * n, -1);
    const bool sparse_send = rank % 2 == 1, sparse_receive = rank % 3 == 0;
    for (std::size_t i = 0; i < n; ++i) mine[sparse_send ? 2 * i : i] = rank * 10000 + static_cast<int>(i);
    std::vector<int> all(2 * n * of_all(), -7);
    MPI_Datatype spread = MPI_DATATYPE_NULL;  // the type `gaps`, whose extent includes the last gap
    MPI_Type_create_resized(gaps, 0, static_cast<MPI_Aint>(2 * n * sizeof(int)), &spread);
    MPI_Type_commit(&spread);
    MPI_Allgather(mine.data(), sparse_send ? 1 : count, sparse_send ? gaps : MPI_INT, all.data(),
                  sparse_receive ? 1 : count, sparse_receive ? spread : MPI_INT, MPI_COMM_WORLD);
    bool right = true;
    for (std::size_t r = 0; r < of_all(); ++r)
      for (std::size_t i = 0; i < n; ++i)
        right = right && all[sparse_receive ? 2 * (r * n + i) : r * n + i] == static_cast<int>(r * 10000 + i);
    CHECK(right);
    // In place: MPI ignores the send count and type, which have no meaning here.
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
  // The type has no gaps, but it takes its two ints in reverse order.
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

  struct One {  // MPI_DOUBLE_INT, a predefined type that has a gap after the int
    double value;
    int where;
  };
  std::vector<One> ones(50, rank == 0 ? One{2.5, 7} : One{0, 0});
  MPI_Bcast(ones.data(), 50, MPI_DOUBLE_INT, 0, MPI_COMM_WORLD);
  CHECK(ones[0].value == 2.5 && ones[0].where == 7 && ones[49].value == 2.5 && ones[49].where == 7);
}

/// Broadcasts the memory of rank 0. Rank r passes the description r % descriptions.size(): a count and a type.
static void broadcast_as(const std::vector<std::pair<int, MPI_Datatype>>& descriptions) {
  std::vector<int> data(40000);
  std::iota(data.begin(), data.end(), rank == 0 ? 1 : 50000);
  const auto [count, type] = descriptions[static_cast<std::size_t>(rank) % descriptions.size()];
  MPI_Bcast(data.data(), count, type, 0, MPI_COMM_WORLD);
  CHECK(data[0] == 1 && data[2] == 3);
}

static MPI_Datatype committed(MPI_Datatype type) {
  MPI_Type_commit(&type);
  return type;
}

void ranks_describe_equal_sequences_of_types_differently() {
  MPI_Datatype four = MPI_DATATYPE_NULL, all = MPI_DATATYPE_NULL, again = MPI_DATATYPE_NULL, pair = MPI_DATATYPE_NULL,
               pairs = MPI_DATATYPE_NULL, two_pairs = MPI_DATATYPE_NULL;
  MPI_Type_contiguous(4, MPI_INT, &four);
  MPI_Type_contiguous(5000, committed(four), &all);
  MPI_Type_dup(committed(all), &again);
  broadcast_as({{20000, MPI_INT}, {5000, four}, {1, all}, {1, again}, {10000, MPI_2INT}, {20000, MPI_INT32_T}});
  broadcast_as({{20000, MPI_LONG}, {20000, MPI_INT64_T}, {20000, MPI_LONG_LONG}, {20000, MPI_AINT}});
  int fortran = 0;  // bytes of INTEGER; 0: this MPI has no Fortran
  MPI_Type_size(MPI_INTEGER, &fortran);
  if (fortran == sizeof(int)) broadcast_as({{20000, MPI_INTEGER}, {20000, MPI_INT}, {10000, MPI_2INTEGER}});

  // The type of MPI_DOUBLE_INT, also as a type of its own, as many of them and as structs of two of them.
  const int ones[] = {1, 1}, twos[] = {1, 1, 1, 1};
  const MPI_Aint places[] = {0, 8}, more_places[] = {0, 8, 16, 24};
  const MPI_Datatype types[] = {MPI_DOUBLE, MPI_INT}, more_types[] = {MPI_DOUBLE, MPI_INT, MPI_DOUBLE, MPI_INT};
  MPI_Type_create_struct(2, ones, places, types, &pair);
  MPI_Type_create_struct(4, twos, more_places, more_types, &two_pairs);
  MPI_Type_contiguous(3000, committed(pair), &pairs);
  MPI_Type_commit(&two_pairs);
  broadcast_as({{3000, MPI_DOUBLE_INT}, {3000, pair}, {1, committed(pairs)}, {1500, two_pairs}});

  // A rank without elements may pass any type.
  std::vector<int> counts(of_all(), 5000), places_of_ranks(of_all());
  counts[0] = 0;
  for (std::size_t r = 1; r < of_all(); ++r) places_of_ranks[r] = places_of_ranks[r - 1] + counts[r - 1];
  const std::vector<int> mine(5000, rank);
  std::vector<int> parts(5000 * of_all());
  MPI_Allgatherv(mine.data(), counts[static_cast<std::size_t>(rank)], rank == 0 ? MPI_BYTE : MPI_INT, parts.data(),
                 counts.data(), places_of_ranks.data(), MPI_INT, MPI_COMM_WORLD);
  CHECK(size == 1 || (parts[0] == 1 && parts[5000 * (of_all() - 1) - 1] == size - 1));
  for (MPI_Datatype* type : {&four, &all, &again, &pair, &pairs, &two_pairs}) MPI_Type_free(type);
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
  const std::size_t elements = static_cast<std::size_t>(total + 3 * size);
  const auto me = static_cast<std::size_t>(rank);
  std::vector<long> mine(static_cast<std::size_t>(counts[me]), rank), all(elements, -1);
  MPI_Allgatherv(mine.empty() ? nullptr : mine.data(), counts[me], MPI_LONG, all.data(), counts.data(), places.data(),
                 MPI_LONG, MPI_COMM_WORLD);
  std::vector<long> expected(elements, -1);
  for (std::size_t r = 0; r < of_all(); ++r) std::fill_n(expected.begin() + places[r], counts[r], static_cast<long>(r));
  CHECK(all == expected);
  std::vector<long> place(elements, -1);
  std::fill_n(place.begin() + places[me], counts[me], rank);
  MPI_Allgatherv(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, place.data(), counts.data(), places.data(), MPI_LONG,
                 MPI_COMM_WORLD);
  CHECK(place == expected);
  // The parts lie in rank order on even ranks, and in reverse order on odd ranks.
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
