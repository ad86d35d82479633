// Arithmetic of reductions on single elements, as code for both CPUs and GPUs. User ops are not included. The results
// have the same bits as those of fold(), which combines whole vectors on the CPU (reduction.hpp). Only the payload of a
// NaN may differ.
//
// A kernel is the arithmetic of one op on one type. It has two types and three functions:
//
//   Stored                    an element in memory
//   Wide                      the type in which elements are combined
//   term(stored, unreduced)   Stored -> Wide; `unreduced`: the element is an input, not a partial result
//   combine(a, b)             Wide x Wide -> Wide; `a` comes before `b` in the order of the sources
//   result(value)             Wide -> Stored
#pragma once

#include <bit>
#include <cstdint>
#include <limits>
#include <type_traits>

#include "base/host_device.hpp"
#include "collectives/types.hpp"

namespace collectives::elements {

template <class T>
inline constexpr bool kHalf = std::is_same_v<T, float16> || std::is_same_v<T, bfloat16>;
template <class T>
inline constexpr bool kFloating = kHalf<T> || std::is_floating_point_v<T>;

/// Type in which elements are added and multiplied. For 16-bit floats it is f32. For integers it is the unsigned type
/// of the same size. For f32 and f64 it is the type itself. Sums and products of integers wrap on overflow, which C++
/// defines only for unsigned integers.
template <class T>
using Combined =
    std::conditional_t<kHalf<T>, float,
                       typename std::conditional_t<kFloating<T>, std::type_identity<T>, std::make_unsigned<T>>::type>;

template <class T>
struct Sum {
  using Stored = T;
  using Wide = Combined<T>;
  COLLECTIVES_SHARED Wide term(T stored, bool) const { return static_cast<Wide>(stored); }
  COLLECTIVES_SHARED static Wide combine(Wide a, Wide b) { return static_cast<Wide>(a + b); }
  COLLECTIVES_SHARED T result(Wide value) const { return static_cast<T>(value); }
};

template <class T>
struct Product : Sum<T> {
  using typename Sum<T>::Wide;
  COLLECTIVES_SHARED static Wide combine(Wide a, Wide b) { return static_cast<Wide>(a * b); }
};

/// Kernel of pre_scaled_sum: multiplies each input by a factor, then adds.
template <class T>
struct ScaledSum : Sum<T> {
  using typename Sum<T>::Wide;
  Wide factor;
  explicit ScaledSum(double number) : factor(static_cast<Wide>(number)) {}
  COLLECTIVES_SHARED Wide term(T stored, bool unreduced) const {
    const auto value = static_cast<Wide>(stored);
    return unreduced ? value * factor : value;
  }
};

/// Kernel of average. A sum of integers is exact, because `Wide` cannot overflow. A quotient of integers is truncated
/// toward zero.
template <class T>
struct Mean {
  __extension__ using Int128 = __int128;
  using Stored = T;
  using Wide = std::conditional_t<kFloating<T>, Combined<T>, std::conditional_t<sizeof(T) == 8, Int128, std::int64_t>>;
  Wide ranks;
  explicit Mean(int count) : ranks(static_cast<Wide>(count)) {}
  COLLECTIVES_SHARED Wide term(T stored, bool) const { return static_cast<Wide>(stored); }
  COLLECTIVES_SHARED static Wide combine(Wide a, Wide b) { return a + b; }
  COLLECTIVES_SHARED T result(Wide value) const { return static_cast<T>(value / ranks); }
};

/// Kernel of min (kLeast is true) or max (kLeast is false).
///
/// Integers are compared directly, and floats by keys. The key of a float is a signed integer. Keys have the order of
/// the floats, and -0 is below +0. If the op is min, all bits of the keys are inverted. The element with the greatest
/// key is the result of both ops. Every NaN becomes one quiet NaN, whose key is above all other keys for both min and
/// max.
template <class T, bool kLeast>
struct Extreme {
  using Stored = T;
  using Key =
      std::conditional_t<sizeof(T) == 2, std::int16_t, std::conditional_t<sizeof(T) == 4, std::int32_t, std::int64_t>>;
  using Wide = typename std::conditional_t<kFloating<T>, std::type_identity<Key>, std::type_identity<T>>::type;
  static constexpr Key kTurn = kLeast ? -1 : 0;
  static constexpr Key kMagnitude = std::numeric_limits<Key>::max();
  /// Number of bits of the significand. Infinity (kInfinity) has all bits of the exponent. The quiet NaN (kNan) also
  /// has the highest bit of the significand.
  static constexpr int kSignificand = std::is_same_v<T, bfloat16>  ? 7
                                      : std::is_same_v<T, float16> ? 10
                                      : std::is_same_v<T, float>   ? 23
                                                                   : 52;
  static constexpr Key kInfinity = static_cast<Key>(kMagnitude >> kSignificand << kSignificand);
  static constexpr Key kNan = static_cast<Key>(kInfinity | (Key{1} << (kSignificand - 1)));

  /// Converts the bits of a float to its key, or a key to the bits.
  COLLECTIVES_SHARED static Key flip(Key bits) { return bits < 0 ? static_cast<Key>(bits ^ kMagnitude) : bits; }

  COLLECTIVES_SHARED Wide term(T stored, bool) const {
    if constexpr (kFloating<T>) {
      const auto bits = std::bit_cast<Key>(stored);
      return (bits & kMagnitude) > kInfinity ? kNan : static_cast<Key>(flip(bits) ^ kTurn);
    } else {
      return stored;
    }
  }
  COLLECTIVES_SHARED static Wide combine(Wide a, Wide b) {
    if constexpr (kFloating<T> || !kLeast) {
      return a < b ? b : a;
    } else {
      return b < a ? b : a;
    }
  }
  COLLECTIVES_SHARED T result(Wide value) const {
    if constexpr (kFloating<T>) {
      return std::bit_cast<T>(value == kNan ? value : flip(static_cast<Key>(value ^ kTurn)));
    } else {
      return value;
    }
  }
};

/// Calls visit(kernel) with the kernel of a reduction. Returns false if there is no kernel: for user ops, and for
/// pre_scaled_sum of integers. `unfinished`: the results are partial ones, so an average is not divided yet.
template <class T, class Visit>
bool with_kernel(const ReduceOp& op, int ranks, bool unfinished, Visit&& visit) {
  switch (op.kind()) {
    case ReduceOp::Kind::sum: visit(Sum<T>()); return true;
    case ReduceOp::Kind::average:
      if (unfinished) {
        visit(Sum<T>());
      } else {
        visit(Mean<T>(ranks));
      }
      return true;
    case ReduceOp::Kind::product: visit(Product<T>()); return true;
    case ReduceOp::Kind::min: visit(Extreme<T, true>()); return true;
    case ReduceOp::Kind::max: visit(Extreme<T, false>()); return true;
    case ReduceOp::Kind::pre_scaled_sum:
      if constexpr (kFloating<T>) {
        visit(ScaledSum<T>(op.factor()));
        return true;
      }
      return false;
    case ReduceOp::Kind::user: return false;
  }
  return false;
}

/// Calls visit(T()) with the type T that `type` names.
template <class Visit>
decltype(auto) with_type(DataType type, Visit&& visit) {
  switch (type) {
    case DataType::f32: return visit(float());
    case DataType::f64: return visit(double());
    case DataType::f16: return visit(float16());
    case DataType::bf16: return visit(bfloat16());
    case DataType::i8: return visit(std::int8_t());
    case DataType::u8: return visit(std::uint8_t());
    case DataType::i32: return visit(std::int32_t());
    case DataType::u32: return visit(std::uint32_t());
    case DataType::i64: return visit(std::int64_t());
    case DataType::u64: break;
  }
  return visit(std::uint64_t());
}

}  // namespace collectives::elements
