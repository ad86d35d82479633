// What the right answer is, known on every rank without asking another.
//
// Rank r's element i is a function of (seed, r, i mod kPeriod), so any rank can compute every rank's contribution, and
// a buffer of any length is filled and compared at the speed of memory. kPeriod is prime, so that data which lands one
// slice, segment or frame away from its place is seen.
//
// exact   small integers, for products 1 and 2 with signs: every order of summation gives the same value in every type,
//         so results are compared bit for bit.
// random  floats in [-1, 1), for products near 1; integers, copies and user ops over all bit patterns. Integers, min,
// max,
//         user ops and copies are compared bit for bit again. Sums and products of p floats x must lie within
//             sum      2 p u S + v |e|          S = sum of |x|
//             product  (2 p u + v) |e|
//         of the float64 value e: the classic bound (p-1) u S of a sum in any order, twice because the oracle itself
//         rounds and a factor or divisor adds two roundings; u is the unit roundoff of the accumulation (f64 2^-53,
//         others 2^-24, for 16-bit floats are summed in f32 and rounded once), v that of the type.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "collectives/types.hpp"

namespace collectives::bench {

enum class Data : std::uint8_t { exact, random };

class Oracle {
 public:
  /// Elements after which contributions repeat.
  static constexpr std::size_t kPeriod = 7919;

  /// Contributions of `ranks` ranks; with an op, also their reduction. Computes ranks * kPeriod elements.
  Oracle(DataType type, const std::optional<ReduceOp>& op, int ranks, Data data, std::uint64_t seed);

  /// Writes elements `first`, `first` + 1, ... of `rank`'s contribution.
  void fill(Rank rank, std::size_t first, std::span<std::byte> out) const;
  /// Elements of `got` that are not `rank`'s contribution from `first` on.
  std::size_t wrong_copies(Rank rank, std::size_t first, std::span<const std::byte> got) const;
  /// Elements of `got` that are not the reduction from `first` on.
  /// `more`: what may be added to the tolerance where there is one.
  std::size_t wrong_reductions(std::size_t first, std::span<const std::byte> got, double more = 0) const;

 private:
  struct Tolerated {
    double value, tolerance;
  };
  template <class T>
  void reduce(const ReduceOp& op);

  DataType type_;
  std::size_t element_;                                // bytes
  std::vector<std::vector<std::byte>> contributions_;  // one period per rank
  std::vector<std::byte> reduction_;                   // one period; the nearest value of the type
  std::vector<Tolerated> tolerated_;                   // one period; empty where results are exact
};

/// A hash of the bytes, to compare results over ranks.
std::uint64_t hash_bytes(std::span<const std::byte> bytes) noexcept;

}  // namespace collectives::bench
