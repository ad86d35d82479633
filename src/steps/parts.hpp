// Division of a vector into parts, segments and rounds.
//
//   part      the elements that belong to one rank; or all elements, if the algorithm does not divide the vector
//   segment   the elements of a part that are handled at once, because messages have a maximum length
//   round     the work on one segment of every part: round k handles segment k of each part
#pragma once

#include <algorithm>
#include <cstddef>

namespace collectives {

/// Range of elements of the vector of a call: [first, first + count).
struct Range {
  std::size_t first = 0, count = 0;
  constexpr bool operator==(const Range&) const = default;
};

/// Returns part `index` of a division of `whole` into `parts` nearly equal parts. The first `whole.count % parts` of
/// these are one element longer than the rest. A part may be empty.
constexpr Range part(Range whole, int parts, int index) {
  const auto n = static_cast<std::size_t>(parts), i = static_cast<std::size_t>(index);
  const std::size_t each = whole.count / n, longer = whole.count % n;
  return {whole.first + i * each + std::min(i, longer), each + (i < longer ? 1 : 0)};
}

/// Parts of a vector in one round: operator[](i) returns the segment of part i in that round.
class Parts {
 public:
  constexpr Parts() = default;
  /// Returns `size` nearly equal parts.
  static constexpr Parts equal(Range whole, int size) {
    Parts parts;
    parts.whole_ = whole;
    parts.size_ = size;
    return parts;
  }
  /// Returns parts of which part i is [offsets[i], offsets[i + 1]). `offsets` has size + 1 entries and must outlive the
  /// parts.
  static constexpr Parts listed(const std::size_t* offsets, int size) {
    Parts parts = equal({offsets[0], offsets[size] - offsets[0]}, size);
    parts.firsts_ = offsets;
    parts.ends_ = offsets + 1;
    return parts;
  }
  /// Returns parts of which part i is [firsts[i], ends[i]). The parts may lie in any order, and there may be gaps
  /// between them. whole() is the range from the first element to the last one. Both lists must outlive the parts.
  static constexpr Parts displaced(const std::size_t* firsts, const std::size_t* ends, int size) {
    const std::size_t first = *std::min_element(firsts, firsts + size);
    Parts parts = equal({first, *std::max_element(ends, ends + size) - first}, size);
    parts.firsts_ = firsts;
    parts.ends_ = ends;
    return parts;
  }

  constexpr int size() const { return size_; }
  constexpr Range whole() const { return whole_; }

  /// Returns the segment of each part that round `index` handles, if segments have `segment` elements.
  constexpr Parts round(std::size_t segment, std::size_t index) const {
    Parts parts = *this;
    parts.segment_ = segment;
    parts.round_ = index;
    return parts;
  }
  /// Returns these parts in the round of `other`.
  constexpr Parts in_round_of(const Parts& other) const { return round(other.segment_, other.round_); }

  constexpr Range operator[](int i) const {
    const Range all = full(i);
    if (segment_ == 0) return all;
    const std::size_t skipped = std::min(all.count, segment_ * round_);
    return {all.first + skipped, std::min(segment_, all.count - skipped)};
  }

  /// Returns the number of elements of the longest part.
  constexpr std::size_t longest() const {
    if (firsts_ == nullptr) return size_ == 0 ? 0 : full(0).count;
    std::size_t most = 0;
    for (int i = 0; i < size_; ++i) most = std::max(most, full(i).count);
    return most;
  }

  /// Returns all of part `i`, not only its segment in this round.
  constexpr Range full(int i) const {
    if (firsts_ == nullptr) return part(whole_, size_, i);
    return {firsts_[i], ends_[i] - firsts_[i]};
  }

 private:
  Range whole_;
  int size_ = 0;
  const std::size_t *firsts_ = nullptr, *ends_ = nullptr;  // null: nearly equal parts
  std::size_t segment_ = 0, round_ = 0;                    // segment_ == 0: whole parts, one round
};

/// Returns the first element of the part of rank `rank`; 0 if the vector is not divided.
constexpr std::size_t first_of(const Parts& parts, int rank) {
  return rank < parts.size() ? parts.full(rank).first : 0;
}

}  // namespace collectives
