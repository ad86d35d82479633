// Corner cases of an MPI program (corner_cases.hpp): ops and types of reductions, and scans. Each rank computes the
// results itself, because it knows the elements of all ranks. The drop-in is a preloaded library that performs MPI's
// collectives.
#include <algorithm>
#include <complex>
#include <cstdint>
#include <limits>
#include <vector>

#include "corner_cases.hpp"

/// Reduces by `op`, and compares the results with those of `combine`. `element(r, i)` is element i of rank r.
template <class T, class Combine, class Element>
static void reduces_by(MPI_Op op, MPI_Datatype type, Combine&& combine, Element&& element) {
  for (const int count : {1, 5, 1003}) {
    const auto n = static_cast<std::size_t>(count);
    std::vector<T> mine(n), upto(n), all(n), result(n);
    for (std::size_t i = 0; i < n; ++i) {
      mine[i] = element(rank, i);
      upto[i] = all[i] = element(0, i);
      for (int r = 1; r < size; ++r) {
        all[i] = combine(all[i], element(r, i));
        if (r == rank) upto[i] = all[i];
      }
    }
    MPI_Allreduce(mine.data(), result.data(), count, type, op, MPI_COMM_WORLD);
    CHECK(result == all);
    result = mine;
    MPI_Scan(MPI_IN_PLACE, result.data(), count, type, op, MPI_COMM_WORLD);
    CHECK(result == upto);
    MPI_Reduce(mine.data(), result.data(), count, type, op, size - 1, MPI_COMM_WORLD);
    CHECK(rank != size - 1 || result == all);
  }
}

template <class T>
static void integers(MPI_Datatype type) {
  const auto bits = [](int r, std::size_t i) {
    return static_cast<T>((static_cast<std::uint64_t>(r) + 3) * 0x9e3779b97f4a7c15ULL * (i + 1) >> 7);
  };
  // The scan of rank 0 is its element, which MPI copies. The drop-in turns it to 0 or 1.
  const auto truth = [](int r, std::size_t i) {
    return static_cast<T>((i + static_cast<std::size_t>(r)) % 3 == 0 ? 0 : r == 0 ? 1 : i % 5 + 2);
  };
  // MPICH 4.0.2 compares unsigned numbers as signed ones.
  const auto positive = [&](int r, std::size_t i) {
    return static_cast<T>(bits(r, i) & static_cast<T>(std::numeric_limits<T>::max() / 2));
  };
  const auto small = [](int r, std::size_t i) { return static_cast<T>(1 + (i + static_cast<std::size_t>(r)) % 2); };
  reduces_by<T>(
      MPI_BAND, type, [](T a, T b) { return static_cast<T>(a & b); }, bits);
  reduces_by<T>(
      MPI_BOR, type, [](T a, T b) { return static_cast<T>(a | b); }, bits);
  reduces_by<T>(
      MPI_BXOR, type, [](T a, T b) { return static_cast<T>(a ^ b); }, bits);
  reduces_by<T>(
      MPI_MIN, type, [](T a, T b) { return std::min(a, b); }, positive);
  reduces_by<T>(
      MPI_MAX, type, [](T a, T b) { return std::max(a, b); }, positive);
  reduces_by<T>(
      MPI_LAND, type, [](T a, T b) { return static_cast<T>(a != 0 && b != 0); }, truth);
  reduces_by<T>(
      MPI_LOR, type, [](T a, T b) { return static_cast<T>(a != 0 || b != 0); }, truth);
  reduces_by<T>(
      MPI_LXOR, type, [](T a, T b) { return static_cast<T>((a != 0) != (b != 0)); }, truth);
  reduces_by<T>(
      MPI_SUM, type, [](T a, T b) { return static_cast<T>(a + b); }, small);
  reduces_by<T>(
      MPI_PROD, type, [](T a, T b) { return static_cast<T>(a * b); }, small);
}

static void booleans(MPI_Datatype type) {
  using T = std::uint8_t;
  const auto truth = [](int r, std::size_t i) { return static_cast<T>((i + static_cast<std::size_t>(r)) % 3 == 0); };
  reduces_by<T>(
      MPI_LAND, type, [](T a, T b) { return static_cast<T>(a & b); }, truth);
  reduces_by<T>(
      MPI_LOR, type, [](T a, T b) { return static_cast<T>(a | b); }, truth);
  reduces_by<T>(
      MPI_LXOR, type, [](T a, T b) { return static_cast<T>(a ^ b); }, truth);
}

void logical_and_bitwise_ops() {
  integers<std::int16_t>(MPI_SHORT);
  integers<std::uint16_t>(MPI_UINT16_T);
  integers<std::int8_t>(MPI_INT8_T);
  integers<std::uint8_t>(MPI_UNSIGNED_CHAR);
  integers<int>(MPI_INT);
  integers<unsigned>(MPI_UINT32_T);
  integers<long>(MPI_LONG);
  integers<std::uint64_t>(MPI_UINT64_T);
  const auto bytes = [](int r, std::size_t i) {
    return static_cast<std::uint8_t>(i * 37 + static_cast<std::size_t>(r) * 91);
  };
  const auto exclusive_or = [](std::uint8_t a, std::uint8_t b) { return static_cast<std::uint8_t>(a ^ b); };
  reduces_by<std::uint8_t>(MPI_BXOR, MPI_BYTE, exclusive_or, bytes);
  booleans(MPI_C_BOOL);
  if (MPI_CXX_BOOL != MPI_DATATYPE_NULL) booleans(MPI_CXX_BOOL);
}

template <class T>
static void complex_type(MPI_Datatype type) {
  // Sums and products of these numbers are exact.
  const auto number = [](int r, std::size_t i) {
    return std::complex<T>((i + static_cast<std::size_t>(r)) % 2 == 0 ? 1 : 2, i % 3 == 0 ? 0 : 1);
  };
  reduces_by<std::complex<T>>(
      MPI_SUM, type, [](auto a, auto b) { return a + b; }, number);
  reduces_by<std::complex<T>>(
      MPI_PROD, type, [](auto a, auto b) { return a * b; }, number);
}

void complex_numbers() {
  complex_type<float>(MPI_C_FLOAT_COMPLEX);
  complex_type<double>(MPI_C_DOUBLE_COMPLEX);
  int bytes = 0;  // 0: this MPI has no Fortran
  MPI_Type_size(MPI_DOUBLE_COMPLEX, &bytes);
  if (bytes == 16) complex_type<double>(MPI_DOUBLE_COMPLEX);
  if (bytes == 16) complex_type<float>(MPI_COMPLEX);
}

/// Value and index. The gap between them is ignored.
template <class T>
struct Pair {
  T value;
  int where;
  bool operator==(const Pair&) const = default;
};

template <class T>
static void locations(MPI_Datatype type) {
  const auto tied = [](int r, std::size_t i) {
    return Pair<T>{static_cast<T>((i + static_cast<std::size_t>(r)) % 2), 100 - r};
  };
  const auto lower = [](const Pair<T>& a, const Pair<T>& b) { return a.where < b.where ? a : b; };
  reduces_by<Pair<T>>(
      MPI_MINLOC, type, [&](auto a, auto b) { return a.value == b.value  ? lower(a, b)
                                                     : a.value < b.value ? a
                                                                         : b; },
      tied);
  reduces_by<Pair<T>>(
      MPI_MAXLOC, type, [&](auto a, auto b) { return a.value == b.value  ? lower(a, b)
                                                     : a.value > b.value ? a
                                                                         : b; },
      tied);
}

void values_with_their_locations() {
  locations<float>(MPI_FLOAT_INT);
  locations<double>(MPI_DOUBLE_INT);
  locations<long>(MPI_LONG_INT);
  locations<int>(MPI_2INT);
  locations<short>(MPI_SHORT_INT);
  locations<long double>(MPI_LONG_DOUBLE_INT);
  int bytes = 0;
  MPI_Type_size(MPI_2INTEGER, &bytes);
  if (bytes == 8) locations<int>(MPI_2INTEGER);
  // Elements lie next to one another in a reduce-scatter, whose cuts are at multiples of 16 bytes.
  std::vector<Pair<double>> all(7 * of_all()), part(7);
  for (std::size_t i = 0; i < all.size(); ++i)
    all[i] = {static_cast<double>((static_cast<int>(i) + rank) % size), rank};
  MPI_Reduce_scatter_block(all.data(), part.data(), 7, MPI_DOUBLE_INT, MPI_MINLOC, MPI_COMM_WORLD);
  for (std::size_t i = 0; i < 7; ++i) {
    const int place = static_cast<int>(7 * static_cast<std::size_t>(rank) + i);
    CHECK(part[i].value == 0 && part[i].where == (size - place % size) % size);
  }
}

void scans() {
  for (const int count : {1, 3, 1001, 50000}) {
    const auto n = static_cast<std::size_t>(count);
    std::vector<double> mine(n), upto(n, -1), before(n, -1);
    for (std::size_t i = 0; i < n; ++i) mine[i] = static_cast<double>(rank) + static_cast<double>(i % 7);
    const auto sum_of = [&](int ranks, std::size_t i) {
      return static_cast<double>(ranks * (ranks - 1) / 2) + ranks * static_cast<double>(i % 7);
    };
    MPI_Scan(mine.data(), upto.data(), count, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    MPI_Exscan(mine.data(), before.data(), count, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    bool right = true;
    for (std::size_t i = 0; i < n; ++i)
      right = right && upto[i] == sum_of(rank + 1, i) && before[i] == (rank == 0 ? -1 : sum_of(rank, i));
    CHECK(right);
    // Only some ranks pass MPI_IN_PLACE.
    std::vector<double> place = mine, others(n, -1);
    const bool in_place = rank % 2 == 0;
    MPI_Scan(in_place ? MPI_IN_PLACE : mine.data(), in_place ? place.data() : others.data(), count, MPI_DOUBLE, MPI_SUM,
             MPI_COMM_WORLD);
    CHECK((in_place ? place : others) == upto);
    place = mine;
    MPI_Exscan(in_place ? MPI_IN_PLACE : mine.data(), in_place ? place.data() : others.data(), count, MPI_DOUBLE,
               MPI_SUM, MPI_COMM_WORLD);
    CHECK((in_place ? place : others) == (rank == 0 ? mine : before));
  }
  int unwritten = 17;
  MPI_Exscan(&rank, &unwritten, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
  CHECK(unwritten == (rank == 0 ? 17 : rank - 1));
}
