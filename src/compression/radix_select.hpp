// Selection for GPUs: the same elements as select.hpp chooses, the k of greatest magnitude with ties to the lowest
// index, found digit by digit, in two passes over memory where the values are spread.
//
// Magnitude and index make one number, greater for what is chosen first, so there are no ties: the k greatest numbers
// are the chosen ones. The first pass adds the gradient and counts how many elements have which first digit; from the
// counts follows the digit of the k-th. The second pass collects what may be chosen, in the order of the indices, and
// the other digits are found among that. Where too many share the first digits for the room there is, further passes
// over all of memory come first, until they do not; after the last digit only k are left. What a pass has nothing to do
// in, it leaves at once: how many there are to be, only the device knows, and nobody waits for it to tell.
//
// radix_select() is the order of the passes. An Engine performs them: one launches kernels (select.cu), one runs loops
// (radix_select_test.cpp), both through what stands here.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/host_device.hpp"

namespace collectives::radix {

inline constexpr int kDigits = 6;
inline constexpr std::uint32_t kBins = 2048;
/// Room for candidates is this multiple of k, and some more.
inline constexpr std::size_t kCandidateSlots = 4, kExtraCandidateSlots = 4096;

constexpr std::size_t candidate_capacity(std::size_t n, std::size_t k) {
  return kCandidateSlots * k + kExtraCandidateSlots < n ? kCandidateSlots * k + kExtraCandidateSlots : n;
}

/// The magnitude as an integer, NaN above infinity above all that is finite; then the index, lowest first.
COLLECTIVES_SHARED std::uint64_t order_of(std::uint32_t bits, std::uint32_t index) {
  return static_cast<std::uint64_t>(bits & 0x7fffffffU) << 32 | static_cast<std::uint32_t>(~index);
}

/// The lowest bit of digit `d` of 63 bits: 11, 10 and 10 of the magnitude, 11, 11 and 10 of the index.
COLLECTIVES_SHARED int shift_of(int d) {
  return d == 0 ? 52 : d == 1 ? 42 : d == 2 ? 32 : d == 3 ? 21 : d == 4 ? 10 : 0;
}
COLLECTIVES_SHARED std::uint32_t digit_of(std::uint64_t order, int d) {
  const int above = d == 0 ? 63 : shift_of(d - 1);
  return static_cast<std::uint32_t>(order >> shift_of(d)) & ((1U << (above - shift_of(d))) - 1);
}

/// How far the search has come.
struct Search {
  std::uint64_t prefix;      ///< the digits found of the k-th number, in place; 0 where there is none yet
  std::uint64_t missing;     ///< how many are to be chosen of those with this prefix; all greater ones are chosen
  std::uint64_t alike;       ///< how many have this prefix
  std::int32_t digits;       ///< how many are found
  std::uint32_t candidates;  ///< collected
  std::uint32_t chosen;      ///< of them, in the end: k
};

COLLECTIVES_SHARED Search begin(std::size_t n, std::size_t k) { return {0, k, n, 0, 0, 0}; }

/// Whether the k-th number, and those equal to it in what is known of them, begin as `order` does.
COLLECTIVES_SHARED bool alike(const Search& search, std::uint64_t order) {
  return search.digits == 0 || (order ^ search.prefix) >> shift_of(search.digits - 1) == 0;
}
/// Whether it may be chosen, by what is known.
COLLECTIVES_SHARED bool may_be_chosen(const Search& search, std::uint64_t order) { return order >= search.prefix; }

/// Whether candidates are few enough to be collected.
COLLECTIVES_SHARED bool few(const Search& search, std::size_t k, std::size_t capacity) {
  return k - search.missing + search.alike <= capacity;
}

/// The next digit of the k-th number, from how many of those alike so far have which. `sums[g]`: of the bins
/// [g * kGroup, (g + 1) * kGroup).
inline constexpr std::uint32_t kGroup = 32;
COLLECTIVES_SHARED void find_digit(Search& search, const std::uint32_t* counts, const std::uint32_t* sums) {
  std::uint32_t group = kBins / kGroup - 1;
  while (group > 0 && sums[group] < search.missing) search.missing -= sums[group--];
  std::uint32_t bin = group * kGroup + kGroup - 1;
  while (bin > 0 && counts[bin] < search.missing) search.missing -= counts[bin--];
  search.alike = counts[bin];
  search.prefix |= static_cast<std::uint64_t>(bin) << shift_of(search.digits);
  ++search.digits;
}

/// What is added to what before it is looked at; pointers to n elements, null where there is none. As SelectionInput.
struct Input {
  const float* gradient;
  float* accumulated;
  float* velocity;
  float momentum;
  float scale;
};

/// Element i after the addition.
COLLECTIVES_SHARED float add(const Input& in, std::size_t i) {
  float value = in.gradient[i];
  if (in.scale != 1) value = value * in.scale;
  if (in.velocity != nullptr) in.velocity[i] = value = in.velocity[i] * in.momentum + value;
  if (in.accumulated != nullptr) in.accumulated[i] = value = in.accumulated[i] + value;
  return value;
}
/// Element i, when the addition has been made. Where nothing is accumulated, nothing but the gradient is chosen from.
COLLECTIVES_SHARED float sum_at(const Input& in, std::size_t i) {
  return in.accumulated != nullptr ? in.accumulated[i] : in.scale != 1 ? in.gradient[i] * in.scale : in.gradient[i];
}

/// Chooses k of n elements, 0 < k < n < 2^32. The engine has:
///   add_and_find()           the addition, and the first digit
///   find_among_all()         the next digit, from all elements that are alike; nothing where candidates are few()
///   collect()                the indices of all that may be chosen, ascending
///   find_among_candidates()  the next digit, from the candidates that are alike; nothing where all digits are found
///   choose()                 the candidates that may still be chosen: they are k
template <class Engine>
void radix_select(Engine& engine) {
  engine.add_and_find();
  for (int d = 1; d < kDigits; ++d) engine.find_among_all();
  engine.collect();
  for (int d = 1; d < kDigits; ++d) engine.find_among_candidates();
  engine.choose();
}

}  // namespace collectives::radix
