// Expected results of the collectives in collectives_bench. Each rank computes them without communication, and compares
// them with the results of the library.
//
// The contribution of a rank is its input. Element i of the contribution of rank r is a function of (seed, r, i mod
// kPeriod). Each rank can therefore compute the contributions of all ranks. The values repeat after kPeriod elements,
// so a buffer is filled and compared as fast as it is copied. The period is a prime number, so lengths of messages are
// no multiples of it. Data that arrive at a wrong place therefore differ from the expected ones.
//
// Every result is verified with two kinds of values. Kind `exact` has small integers, or for products the values 1 and
// 2 with signs. With them, every order of the sum gives the same value in every type. Results are therefore compared
// bit for bit.
//
// Kind `random` has floats in [-1, 1), or for products floats near 1. Integers, copies and user ops have all bit
// patterns. Results of integers, min, max, user ops and copies are compared bit for bit. The sum or product of p floats
// x may differ from the value e, which is computed in float64, by at most
//
//       sum      2 p u S + v |e|          S = sum of |x|
//       product  (2 p u + v) |e|
//
// Here, u is the unit roundoff of the type in which values are added. It is 2^-53 for f64. It is 2^-24 for the other
// types, which are added in f32. The number v is the unit roundoff of the type of the result. The classic bound of the
// error of a sum in any order is (p-1) u S. The benchmark uses twice that bound, because the expected result is
// rounded, too, and a factor or divisor adds two roundings.
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
  /// Number of elements after which a contribution repeats. It is prime, so that lengths of messages are not multiples
  /// of it.
  static constexpr std::size_t kPeriod = 7919;

  /// Computes the contributions of `ranks` ranks: ranks * kPeriod elements. If there is an op, also computes the
  /// reduction of the first `reduced` ranks, or of all.
  Oracle(DataType type, const std::optional<ReduceOp>& op, int ranks, Data data, std::uint64_t seed,
         std::optional<int> reduced = {});

  /// Writes elements `first`, `first` + 1, ... of `rank`'s contribution.
  void fill(Rank rank, std::size_t first, std::span<std::byte> out) const;
  /// Returns the number of elements of `got` that differ from `rank`'s contribution from `first` on.
  std::size_t wrong_copies(Rank rank, std::size_t first, std::span<const std::byte> got) const;
  /// Returns the number of elements of `got` that differ from the reduction from `first` on. `more` is added to the
  /// tolerance of inexact results.
  std::size_t wrong_reductions(std::size_t first, std::span<const std::byte> got, double more = 0) const;

 private:
  struct Tolerated {
    double value, tolerance;
  };
  template <class T>
  void reduce(const ReduceOp& op, std::size_t reduced);

  DataType type_;
  std::size_t element_;                                // bytes
  std::vector<std::vector<std::byte>> contributions_;  // one period for each rank
  std::vector<std::byte> reduction_;                   // one period; the nearest value of the type
  std::vector<Tolerated> tolerated_;                   // one period; empty if results are exact
};

/// Returns a hash of the bytes, to compare results over ranks.
std::uint64_t hash_bytes(std::span<const std::byte> bytes) noexcept;

}  // namespace collectives::bench
