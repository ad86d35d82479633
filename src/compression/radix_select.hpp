// Selection of the k elements of greatest magnitude on a GPU, by a radix search. It selects the same elements as
// select.hpp on a CPU. If two elements have equal magnitudes, the one with the lower index is selected first. The
// search reads the vector twice, or more often if many magnitudes are nearly equal.
//
// Magnitude and index of an element form one number of 63 bits. No two elements have equal numbers. The search finds
// the k-th greatest number digit by digit. A digit is a group of 10 or 11 bits. An element is selected if its number is
// at least the k-th greatest number.
//
// 1. The first pass adds the new gradient to the residual, the vector of values that were not sent yet. Without a
//    residual, the elements are those of the gradient. The pass also counts the elements by their first digit. The
//    counts give the first digit of the k-th greatest number.
// 2. Candidates are the elements that the known digits do not exclude from the selection. If the memory for candidates
//    is too small, further passes over all elements find the next digits, until the candidates fit.
// 3. The next pass collects the candidates in the order of their indices.
// 4. Further passes over the candidates alone find the remaining digits.
// 5. The last pass selects the candidates whose numbers are at least the k-th greatest number.
//
// The number of passes depends on data in the GPU's memory. The CPU does not wait for these data, and therefore
// launches all passes that may be needed. A pass without work ends at once.
//
// The function radix_select() defines the order of the passes. Its parameter Engine is a class that performs each pass.
// One engine launches GPU kernels (select.cu). The engine of a test runs loops on the CPU (radix_select_test.cpp). Both
// engines use the functions of this file.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/host_device.hpp"

namespace collectives::radix {

/// Number of digits of the 63-bit number of an element.
inline constexpr int kDigits = 6;
/// Number of counters, one for each value of the longest digit, which has 11 bits.
inline constexpr std::uint32_t kBins = 2048;
/// Memory for candidates: kCandidateSlots * k + kExtraCandidateSlots elements, but at most the length of the vector.
inline constexpr std::size_t kCandidateSlots = 4, kExtraCandidateSlots = 4096;

constexpr std::size_t candidate_capacity(std::size_t n, std::size_t k) {
  return kCandidateSlots * k + kExtraCandidateSlots < n ? kCandidateSlots * k + kExtraCandidateSlots : n;
}

/// Returns the number by which elements are compared: the magnitude as an integer, then the inverted index. NaN exceeds
/// infinity, and infinity exceeds all finite values. Lower indices come first.
COLLECTIVES_SHARED std::uint64_t order_of(std::uint32_t bits, std::uint32_t index) {
  return static_cast<std::uint64_t>(bits & 0x7fffffffU) << 32 | static_cast<std::uint32_t>(~index);
}

/// Returns the position of the lowest bit of digit `d`. The 63 bits have six digits: 11, 10 and 10 bits of the
/// magnitude, then 11, 11 and 10 bits of the index.
COLLECTIVES_SHARED int shift_of(int d) {
  return d == 0 ? 52 : d == 1 ? 42 : d == 2 ? 32 : d == 3 ? 21 : d == 4 ? 10 : 0;
}
COLLECTIVES_SHARED std::uint32_t digit_of(std::uint64_t order, int d) {
  const int above = d == 0 ? 63 : shift_of(d - 1);
  return static_cast<std::uint32_t>(order >> shift_of(d)) & ((1U << (above - shift_of(d))) - 1);
}

/// State of the search for the k-th greatest number.
struct Search {
  std::uint64_t prefix;  ///< Known digits of the k-th number, at their places. All other bits are 0.
  /// Number of elements to select among those with this prefix. All greater elements are selected.
  std::uint64_t missing;
  std::uint64_t alike;       ///< Number of elements with this prefix.
  std::int32_t digits;       ///< Number of known digits.
  std::uint32_t candidates;  ///< Number of collected candidates.
  std::uint32_t chosen;      ///< Number of selected candidates. It is k in the end.
};

COLLECTIVES_SHARED Search begin(std::size_t n, std::size_t k) { return {0, k, n, 0, 0, 0}; }

/// Returns true if `order` begins with the known digits of the k-th number.
COLLECTIVES_SHARED bool alike(const Search& search, std::uint64_t order) {
  return search.digits == 0 || (order ^ search.prefix) >> shift_of(search.digits - 1) == 0;
}
/// Returns true if the element may be selected, as far as is known.
COLLECTIVES_SHARED bool may_be_chosen(const Search& search, std::uint64_t order) { return order >= search.prefix; }

/// Returns true if the candidates fit in memory.
COLLECTIVES_SHARED bool few(const Search& search, std::size_t k, std::size_t capacity) {
  return k - search.missing + search.alike <= capacity;
}

/// Number of values of a digit whose counts are summed.
inline constexpr std::uint32_t kGroup = 32;
/// Finds the next digit of the k-th greatest number. counts[b] is the number of elements whose next digit is b, after
/// the known digits. sums[g] is the sum of the counts of group g, which has kGroup values.
COLLECTIVES_SHARED void find_digit(Search& search, const std::uint32_t* counts, const std::uint32_t* sums) {
  std::uint32_t group = kBins / kGroup - 1;
  while (group > 0 && sums[group] < search.missing) search.missing -= sums[group--];
  std::uint32_t bin = group * kGroup + kGroup - 1;
  while (bin > 0 && counts[bin] < search.missing) search.missing -= counts[bin--];
  search.alike = counts[bin];
  search.prefix |= static_cast<std::uint64_t>(bin) << shift_of(search.digits);
  ++search.digits;
}

/// Vectors of n elements that are added before the selection, as in SelectionInput. Null: there is no such vector.
struct Input {
  const float* gradient;
  float* accumulated;
  float* velocity;
  float momentum;
  float scale;
};

/// Adds element i and returns the sum.
COLLECTIVES_SHARED float add(const Input& in, std::size_t i) {
  float value = in.gradient[i];
  if (in.scale != 1) value = value * in.scale;
  if (in.velocity != nullptr) in.velocity[i] = value = in.velocity[i] * in.momentum + value;
  if (in.accumulated != nullptr) in.accumulated[i] = value = in.accumulated[i] + value;
  return value;
}
/// Returns element i after the addition. Without `accumulated` the selection uses the scaled gradient alone.
COLLECTIVES_SHARED float sum_at(const Input& in, std::size_t i) {
  return in.accumulated != nullptr ? in.accumulated[i] : in.scale != 1 ? in.gradient[i] * in.scale : in.gradient[i];
}

/// Selects k of n elements, 0 < k < n < 2^32. The engine has these functions:
///   add_and_find()           Adds the gradient and finds the first digit.
///   find_among_all()         Finds the next digit from all elements with the known prefix. Does nothing if few().
///   collect()                Collects the indices of all elements that may be selected, in ascending order.
///   find_among_candidates()  Finds the next digit from the candidates. Does nothing if all digits are known.
///   choose()                 Selects the candidates that may still be selected. There are k of them.
template <class Engine>
void radix_select(Engine& engine) {
  engine.add_and_find();
  for (int d = 1; d < kDigits; ++d) engine.find_among_all();
  engine.collect();
  for (int d = 1; d < kDigits; ++d) engine.find_among_candidates();
  engine.choose();
}

}  // namespace collectives::radix
