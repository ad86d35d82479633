// Implementation of top-k selection, which finds the k elements of greatest magnitude of a vector. The file select.hpp
// explains the method.
//
// A first loop adds the new gradient to the residual, the sum of values that were not sent yet. This loop also collects
// candidates: elements that may be among the k greatest. A second loop removes small candidates if there are many. Both
// loops use vector instructions.
//
// Elements are compared by their keys. The key of an element is an integer: the bits of its f32 value without the sign
// bit. Every processor has a vector instruction that compares signed integers. The floor is a limit that rises during
// the selection: an element becomes a candidate only if its key exceeds the floor. With a floor of -1, every element
// becomes a candidate.
#include "compression/select.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <limits>
#include <type_traits>

#include "reduction/dispatch.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "compression/select.cpp"
#include <hwy/cache_control.h>
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#ifndef COLLECTIVES_COMPRESSION_SELECT
#define COLLECTIVES_COMPRESSION_SELECT
namespace collectives {

/// Number of elements per block. The memory for candidates must have space for all elements of the next block. If it
/// has not, small candidates are removed before the block.
inline constexpr std::size_t kBlock = 4096;
/// Prefetch distance in elements. Hardware prefetching stops at the end of a page. This distance saves a sixth of the
/// time if the vectors are longer than the caches.
inline constexpr std::size_t kAhead = 512;
/// Elements per word of marks. Each bit of a word tells whether one of 64 elements becomes a candidate. If at most kFew
/// bits are set, the candidates are stored one by one. If more bits are set, vector instructions store the candidates.
/// These instructions take longer than the addition of the 64 elements.
inline constexpr std::size_t kMarks = 64;
inline constexpr int kFew = 8;
/// Extra elements of memory behind the last candidate. Stores of whole vectors may overwrite them. The longest vector
/// register has 16 f32 elements.
inline constexpr std::size_t kOverhang = 16;
inline constexpr std::int32_t kNoFloor = -1;
inline constexpr std::int32_t kMagnitude = std::numeric_limits<std::int32_t>::max();

/// Table: for every mask of eight bits, the numbers of the set bits in ascending order.
alignas(64) inline constexpr auto kNamedLanes = [] {
  std::array<std::array<std::uint8_t, 8>, 256> named{};
  for (std::size_t mask = 0; mask < 256; ++mask) {
    for (std::size_t lane = 0, count = 0; lane < 8; ++lane) {
      if ((mask >> lane & 1) != 0) named[mask][count++] = static_cast<std::uint8_t>(lane);
    }
  }
  return named;
}();

/// Candidates in the order of their indices.
struct Candidates {
  std::uint32_t* indices;
  std::uint32_t* bits;
  std::size_t capacity;  ///< Number of candidates that fit. The memory has kOverhang more elements.
  std::int32_t floor;
  std::size_t count = 0;
};

}  // namespace collectives
#endif

HWY_BEFORE_NAMESPACE();
namespace collectives::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

using Floats = hn::ScalableTag<float>;
using Words = hn::RebindToUnsigned<Floats>;
using Keys = hn::RebindToSigned<Floats>;
using Word = hn::Vec<Words>;
using Lanes = hn::Mask<Words>;
constexpr std::size_t kLanes = hn::MaxLanes(Floats());
static_assert(kLanes <= kOverhang);

HWY_INLINE hn::Vec<Keys> keys_of(Word bits) { return hn::And(hn::BitCast(Keys(), bits), hn::Set(Keys(), kMagnitude)); }

HWY_INLINE Lanes above(Word bits, std::int32_t floor) {
  return hn::RebindMask(Words(), hn::Gt(keys_of(bits), hn::Set(Keys(), floor)));
}

HWY_INLINE std::uint64_t marks_of(Lanes some) {
  std::conditional_t<kLanes == 16, std::uint16_t, std::uint8_t> marks;
  static_assert(kLanes <= 8 * sizeof marks);
  hn::StoreMaskBits(Words(), some, reinterpret_cast<std::uint8_t*>(&marks));
  return marks;
}

HWY_INLINE Lanes first(std::size_t lanes) { return hn::FirstN(Words(), std::min(lanes, kLanes)); }

/// Appends the elements of the mask `some` to `count` candidates and returns the new count. Writes whole vectors,
/// because masked stores are slow on some processors. The next call overwrites the excess elements.
HWY_INLINE std::size_t append(Word indices, Word bits, Lanes some, const Candidates& to, std::size_t count) {
  if constexpr (kLanes == 4 || kLanes == 8) {
    // Uses a table, as Highway's Compress() does. Some compilers copy Highway's table to the stack in every call.
    std::array<std::uint8_t, 8> mask{};
    hn::StoreMaskBits(Words(), some, mask.data());
    const auto lanes = hn::Load(hn::Rebind<std::uint8_t, Words>(), kNamedLanes[mask[0]].data());
    const auto order = hn::IndicesFromVec(Words(), hn::PromoteTo(Words(), lanes));
    hn::StoreU(hn::TableLookupLanes(indices, order), Words(), to.indices + count);
    hn::StoreU(hn::TableLookupLanes(bits, order), Words(), to.bits + count);
  } else {
    hn::StoreU(hn::Compress(indices, some), Words(), to.indices + count);
    hn::StoreU(hn::Compress(bits, some), Words(), to.bits + count);
  }
  return count + hn::CountTrue(Words(), some);
}

/// Writes the indices of the `marked` elements, whose bits are set in `marks`. Always writes at least three indices,
/// because branches on fewer would be mispredicted too often. The next call overwrites excess indices.
HWY_INLINE void few(std::size_t begin, std::uint64_t marks, int marked, std::uint32_t* indices) {
  const auto next = [&] {
    // The extra bit ensures that an empty word has a mark too.
    constexpr std::uint64_t kLast = std::uint64_t{1} << (kMarks - 1);
    *indices++ = static_cast<std::uint32_t>(begin) + static_cast<std::uint32_t>(std::countr_zero(marks | kLast));
    marks &= marks - 1;
  };
  next();
  next();
  next();
  for (int more = marked - 3; more > 0; --more) next();
}

/// Returns how many candidates exceed each of three floors. The zeros behind the last candidate exceed none.
HWY_INLINE std::array<std::size_t, 3> count_above(const Candidates& all, const std::array<std::int32_t, 3>& floors) {
  const auto floor0 = hn::Set(Keys(), floors[0]), floor1 = hn::Set(Keys(), floors[1]),
             floor2 = hn::Set(Keys(), floors[2]);
  auto count0 = hn::Zero(Keys()), count1 = count0, count2 = count0;  // Each lane counts to at most 2^28.
  for (std::size_t begin = 0; begin < all.count; begin += kLanes) {
    const auto keys = keys_of(hn::LoadU(Words(), all.bits + begin));
    count0 = hn::Sub(count0, hn::VecFromMask(Keys(), hn::Gt(keys, floor0)));
    count1 = hn::Sub(count1, hn::VecFromMask(Keys(), hn::Gt(keys, floor1)));
    count2 = hn::Sub(count2, hn::VecFromMask(Keys(), hn::Gt(keys, floor2)));
  }
  const auto sum = [](hn::Vec<Keys> counts) {
    return static_cast<std::size_t>(hn::GetLane(hn::SumOfLanes(Words(), hn::BitCast(Words(), counts))));
  };
  return {sum(count0), sum(count1), sum(count2)};
}

/// Reduces the candidates to at most `most`, among them the k greatest. Raises the floor to a key that no later
/// selected element is at or below.
///
/// Searches for the k-th greatest key in the interval from `low` to `high`. At least k candidates exceed `low`, and
/// fewer than k exceed `high`. Each iteration divides the interval into quarters, so there are at most sixteen. No
/// distribution of keys makes the search slow.
HWY_NOINLINE void prune(Candidates& all, std::size_t k, std::size_t most) {
  hn::StoreU(hn::Zero(Words()), Words(), all.bits + all.count);
  auto greatest = hn::Zero(Keys());
  for (std::size_t begin = 0; begin < all.count; begin += kLanes) {
    greatest = hn::Max(greatest, keys_of(hn::LoadU(Words(), all.bits + begin)));
  }
  std::int64_t low = std::max(all.floor - 1, kNoFloor);  // Ties at the floor may still be candidates.
  std::int64_t high = hn::GetLane(hn::MaxOfLanes(Keys(), greatest));
  std::size_t above_low = all.count, above_high = 0;
  while (above_low > most && high - low > 1) {
    std::array<std::int32_t, 3> floors;
    for (std::int64_t part = 1; auto& floor : floors) {
      floor = static_cast<std::int32_t>(low + (part++ * (high - low) + 3) / 4);
    }
    const auto counts = count_above(all, floors);
    for (std::size_t f = 0; f < 3; ++f) {
      if (counts[f] < k) {
        high = floors[f];
        above_high = counts[f];
        break;
      }
      low = floors[f];
      above_low = counts[f];
    }
  }
  // If too many candidates have equal keys, `high` is the k-th greatest key. The first candidates with this key remain,
  // so that k candidates are left.
  std::size_t ties_end = 0;
  if (above_low <= most) {
    all.floor = static_cast<std::int32_t>(low);
  } else {
    all.floor = static_cast<std::int32_t>(high);
    for (std::size_t missing = k - above_high; missing != 0; ++ties_end) {
      if ((all.bits[ties_end] & kMagnitude) == static_cast<std::uint32_t>(high)) --missing;
    }
  }
  std::size_t kept = 0;
  for (std::size_t begin = 0; begin < all.count; begin += kLanes) {
    const auto indices = hn::LoadU(Words(), all.indices + begin), bits = hn::LoadU(Words(), all.bits + begin);
    auto some = above(bits, all.floor);
    if (begin < ties_end) some = hn::Or(some, hn::And(above(bits, all.floor - 1), first(ties_end - begin)));
    kept = append(indices, bits, hn::And(some, first(all.count - begin)), all, kept);
  }
  all.count = kept;
}

/// Adds the gradient and collects the candidates. The template parameters say which operands exist.
template <bool kScaled, bool kAccumulated, bool kVelocity>
class Collector {
 public:
  explicit Collector(const SelectionInput& input)
      : gradient_(input.gradient.data()),
        accumulated_(input.accumulated.data()),
        velocity_(input.velocity.data()),
        count_(input.gradient.size()),
        momentum_(input.momentum),
        scale_(input.scale) {}

  void run(std::size_t k, Candidates& all) const {
    for (std::size_t begin = 0, end; begin < count_; begin = end) {
      end = std::min(begin + kBlock, count_);
      if (all.capacity - all.count < end - begin) prune(all, k, k + k / 2);
      block(begin, end, all);
    }
    if (all.count > k) prune(all, k, k);
  }

 private:
  HWY_NOINLINE void block(std::size_t begin, std::size_t end, Candidates& all) const {
    const Collector self = *this;  // Local copies stay in registers, because no store can modify them.
    const Candidates to = all;
    std::size_t count = all.count;
    bool bits_missing = false;
    for (; end - begin >= kMarks; begin += kMarks) {
      std::uint64_t marks = 0;
      for (std::size_t v = 0; v < kMarks; v += kLanes) {
        if (self.count_ - begin > kAhead + v) self.prefetch(begin + v + kAhead);
        marks |= marks_of(above(hn::BitCast(Words(), self.add(begin + v)), to.floor)) << v;
      }
      if (const int marked = std::popcount(marks); marked > kFew) {
        count = self.many(begin, begin + kMarks, to, count);
      } else {
        few(begin, marks, marked, to.indices + count);
        count += static_cast<std::size_t>(marked);
        bits_missing = true;
      }
    }
    if (bits_missing) {
      for (std::size_t c = all.count; c < count; ++c) to.bits[c] = self.bits_at(to.indices[c]);
    }
    const std::size_t whole = begin + (end - begin) / kLanes * kLanes;
    for (std::size_t v = begin; v < whole; v += kLanes) self.add(v);
    count = self.many(begin, whole, to, count);
    if (whole != end) count = self.rest(whole, end, to, count);
    all.count = count;
  }

  /// Appends the elements of [begin, end) that exceed the floor. Requires that their gradient has been added.
  HWY_INLINE std::size_t many(std::size_t begin, std::size_t end, const Candidates& to, std::size_t count) const {
    for (; begin < end; begin += kLanes) {
      auto value = hn::LoadU(Floats(), chosen_from() + begin);
      if constexpr (kScaled && !kAccumulated) value = hn::Mul(value, hn::Set(Floats(), scale_));
      const auto bits = hn::BitCast(Words(), value);
      const auto indices = hn::Add(hn::Iota(Words(), 0), hn::Set(Words(), static_cast<std::uint32_t>(begin)));
      count = append(indices, bits, above(bits, to.floor), to, count);
    }
    return count;
  }

  HWY_INLINE std::uint32_t bits_at(std::size_t index) const {
    float value = chosen_from()[index];
    if constexpr (kScaled && !kAccumulated) value *= scale_;
    return std::bit_cast<std::uint32_t>(value);
  }

  HWY_INLINE const float* chosen_from() const { return kAccumulated ? accumulated_ : gradient_; }

  HWY_INLINE void prefetch(std::size_t begin) const {
    hwy::Prefetch(gradient_ + begin);
    if constexpr (kAccumulated) hwy::Prefetch(accumulated_ + begin);
    if constexpr (kVelocity) hwy::Prefetch(velocity_ + begin);
  }

  HWY_INLINE hn::Vec<Floats> add(std::size_t begin) const {
    const Floats d;
    auto value = hn::LoadU(d, gradient_ + begin);
    if constexpr (kScaled) value = hn::Mul(value, hn::Set(d, scale_));
    if constexpr (kVelocity) {
      value = hn::Add(hn::Mul(hn::LoadU(d, velocity_ + begin), hn::Set(d, momentum_)), value);
      hn::StoreU(value, d, velocity_ + begin);
    }
    if constexpr (kAccumulated) {
      value = hn::Add(hn::LoadU(d, accumulated_ + begin), value);
      hn::StoreU(value, d, accumulated_ + begin);
    }
    return value;
  }

  /// Processes fewer elements than a vector register has. Copies them into whole vectors first.
  HWY_INLINE std::size_t rest(std::size_t begin, std::size_t end, const Candidates& to, std::size_t count) const {
    std::array<float, kLanes> gradient{}, accumulated{}, velocity{};
    std::copy(gradient_ + begin, gradient_ + end, gradient.begin());
    if constexpr (kAccumulated) std::copy(accumulated_ + begin, accumulated_ + end, accumulated.begin());
    if constexpr (kVelocity) std::copy(velocity_ + begin, velocity_ + end, velocity.begin());
    Collector whole = *this;
    whole.gradient_ = gradient.data();
    whole.accumulated_ = accumulated.data();
    whole.velocity_ = velocity.data();
    const auto bits = hn::BitCast(Words(), whole.add(0));
    if constexpr (kAccumulated) std::copy_n(accumulated.begin(), end - begin, accumulated_ + begin);
    if constexpr (kVelocity) std::copy_n(velocity.begin(), end - begin, velocity_ + begin);
    const auto some = hn::And(above(bits, to.floor), first(end - begin));
    return append(hn::Iota(Words(), static_cast<std::uint32_t>(begin)), bits, some, to, count);
  }

  const float* gradient_;
  float* accumulated_;
  float* velocity_;
  std::size_t count_;
  float momentum_, scale_;
};

template <bool kScaled>
void collect_scaled(const SelectionInput& input, std::size_t k, Candidates& all) {
  if (!input.velocity.empty()) return Collector<kScaled, true, true>(input).run(k, all);
  if (!input.accumulated.empty()) return Collector<kScaled, true, false>(input).run(k, all);
  Collector<kScaled, false, false>(input).run(k, all);
}

void collect(const SelectionInput& input, std::size_t k, Candidates& all) {
  if (input.scale != 1) return collect_scaled<true>(input, k, all);
  collect_scaled<false>(input, k, all);
}

}  // namespace collectives::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace collectives {
namespace {

constexpr std::uint32_t kInfinity = std::bit_cast<std::uint32_t>(std::numeric_limits<float>::infinity());
/// Memory for candidates, as a multiple of k.
constexpr std::size_t kCandidateSlots = 4;

HWY_EXPORT(collect);

void clear(float* elements, const std::uint32_t* indices, std::size_t count) {
  constexpr std::size_t kIndicesAhead = 64;
  for (std::size_t i = 0; i < count; ++i) {
    hwy::Prefetch(elements + indices[std::min(i + kIndicesAhead, count - 1)]);
    elements[indices[i]] = 0;
  }
}

}  // namespace

std::size_t Selector::select(const SelectionInput& input, std::size_t k, std::uint32_t* indices, float* values) {
  const std::size_t length = input.gradient.size();
  k = std::min(k, length);
  const std::size_t capacity = std::min(length, kCandidateSlots * k + 2 * kBlock);
  if (bits_.size() < capacity + kOverhang) {
    indices_.resize(capacity + kOverhang);
    bits_.resize(capacity + kOverhang);
  }
  Candidates all{.indices = indices_.data(), .bits = bits_.data(), .capacity = capacity, .floor = kNoFloor};
  if (k == 0) all.floor = kMagnitude;
  if (k != 0 && k != length && threshold_ > margin_) all.floor = static_cast<std::int32_t>(threshold_ - margin_);
  HWY_DYNAMIC_DISPATCH(collect)(input, k, all);
  if (all.count < k) {
    all.floor = kNoFloor;
    all.count = 0;
    const SelectionInput added = input.accumulated.empty() ? input : SelectionInput{.gradient = input.accumulated};
    HWY_DYNAMIC_DISPATCH(collect)(added, k, all);
  }

  std::size_t not_finite = 0;
  std::uint32_t least = kMagnitude;
  for (std::size_t c = 0; c < k; ++c) {
    const std::uint32_t key = all.bits[c] & kMagnitude;
    not_finite += key >= kInfinity;
    least = std::min(least, key);
    indices[c] = all.indices[c];
    values[c] = std::bit_cast<float>(all.bits[c]);
  }
  if (k != 0) {
    const std::uint32_t change = std::max(least, threshold_) - std::min(least, threshold_);
    margin_ = std::clamp(std::max(2 * std::min(change, kWidest), margin_ / 4 * 3), kNarrowest, kWidest);
    threshold_ = least;
  }
  if (!input.accumulated.empty()) clear(input.accumulated.data(), indices, k);
  if (!input.velocity.empty() && input.masking) clear(input.velocity.data(), indices, k);
  return not_finite;
}

}  // namespace collectives
#endif
