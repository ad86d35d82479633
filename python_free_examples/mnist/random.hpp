// Random numbers that are equal on every machine and rank. The C++ standard defines the results of random generators,
// but not those of distributions and shuffles. This file therefore defines the few that the trainer needs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>

namespace mnist {

/// Generator SplitMix64. A seed and up to two other numbers, such as epoch and image, select a sequence of random
/// numbers.
class Random {
 public:
  explicit Random(std::uint64_t seed, std::uint64_t first = 0, std::uint64_t second = 0)
      : state_(mix(mix(mix(seed) ^ first) ^ second)) {}

  std::uint64_t next() { return mix(state_ += 0x9e3779b97f4a7c15u); }
  /// Returns a multiple of 2^-24 in [0, 1).
  float uniform() { return static_cast<float>(next() >> 40) * 0x1p-24f; }
  float uniform(float low, float high) { return low + (high - low) * uniform(); }
  /// Returns a whole number in [0, limit). Small numbers are slightly more likely, which is negligible for limits far
  /// below 2^64.
  std::uint64_t below(std::uint64_t limit) { return next() % limit; }

 private:
  static std::uint64_t mix(std::uint64_t word) {
    word = (word ^ (word >> 30)) * 0xbf58476d1ce4e5b9u;
    word = (word ^ (word >> 27)) * 0x94d049bb133111ebu;
    return word ^ (word >> 31);
  }
  std::uint64_t state_;
};

/// Shuffles a range by the method of Fisher and Yates: every order is equally likely.
template <class Range>
void shuffle(Range& range, Random& random) {
  for (std::size_t left = range.size(); left > 1; --left)
    std::swap(range[left - 1], range[static_cast<std::size_t>(random.below(left))]);
}

}  // namespace mnist
