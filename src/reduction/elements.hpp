// Arithmetic of reductions on single elements, in code that compiles for CPUs and for GPUs. This file covers all ops
// except user ops. It gives the same bits as fold(), the function that combines whole vectors on the CPU
// (reduction.hpp). Only the payload bits of a NaN may differ.
//
// A kernel is a class with the arithmetic of one op on one element type. It has two types and three functions:
//
//   Stored                    an element in memory
//   Wide                      the type in which elements are combined
//   term(stored, unreduced)   Stored -> Wide; `unreduced`: the element is an input, not a partial result
//   combine(a, b)             Wide x Wide -> Wide; `a` comes before `b` in the order of the sources
//   result(value)             Wide -> Stored
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <type_traits>

#include "base/host_device.hpp"
#include "collectives/types.hpp"
#include "reduction/equal_reduction.hpp"

namespace collectives::elements {

template <class T>
inline constexpr bool kFloat8 = std::is_same_v<T, float8_e4m3> || std::is_same_v<T, float8_e5m2>;
template <class T>
inline constexpr bool kSmallFloat = kFloat8<T> || std::is_same_v<T, float16> || std::is_same_v<T, bfloat16>;
template <class T>
inline constexpr bool kFloating = kSmallFloat<T> || std::is_floating_point_v<T>;

/// Complex number with the memory layout of std::complex.
template <class T>
struct Complex {
  T real, imaginary;
};

/// Pair of a value and an index, with the memory layout of ValueIndex. The padding is a member, so that results can set
/// its bytes to 0.
template <class T, std::size_t kBytes = sizeof(T)>
struct Pair {
  T value;
  std::int32_t index;
};
template <class T>
struct Pair<T, 2> {
  T value;
  std::int16_t padding;
  std::int32_t index;
};
template <class T>
struct Pair<T, 8> {
  T value;
  std::int32_t index, padding;
};

/// Type in which elements are added and multiplied. For floats of 16 and 8 bits, it is f32. For f32 and f64, it is the
/// type itself. For integers, it is the unsigned type of equal size. Reason: sums and products must wrap on overflow,
/// which C++ defines only for unsigned integers.
template <class T>
using Combined =
    std::conditional_t<kSmallFloat<T>, float,
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
  using Key = std::conditional_t<
      sizeof(T) == 1, std::int8_t,
      std::conditional_t<sizeof(T) == 2, std::int16_t, std::conditional_t<sizeof(T) == 4, std::int32_t, std::int64_t>>>;
  using Wide = typename std::conditional_t<kFloating<T>, std::type_identity<Key>, std::type_identity<T>>::type;
  static constexpr Key kTurn = kLeast ? -1 : 0;
  static constexpr Key kMagnitude = std::numeric_limits<Key>::max();
  /// Number of bits of the significand. Infinity (kInfinity) has all bits of the exponent. The quiet NaN (kNan) also
  /// has the highest bit of the significand.
  static constexpr int kSignificand = std::is_same_v<T, float8_e5m2> ? 2
                                      : std::is_same_v<T, bfloat16>  ? 7
                                      : std::is_same_v<T, float16>   ? 10
                                      : std::is_same_v<T, float>     ? 23
                                                                     : 52;
  /// float8_e4m3 has no infinity. Its greatest number takes that place.
  static constexpr bool kNoInfinity = std::is_same_v<T, float8_e4m3>;
  static constexpr Key kInfinity =
      static_cast<Key>(kNoInfinity ? kMagnitude - 1 : kMagnitude >> kSignificand << kSignificand);
  static constexpr Key kNan = static_cast<Key>(kNoInfinity ? kMagnitude : kInfinity | (Key{1} << (kSignificand - 1)));

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

/// Kernel of a product of complex numbers.
template <class T>
struct ComplexProduct {
  using Stored = Complex<T>;
  using Wide = Complex<T>;
  COLLECTIVES_SHARED Wide term(Stored stored, bool) const { return stored; }
  COLLECTIVES_SHARED static Wide combine(Wide a, Wide b) {
    return {a.real * b.real - a.imaginary * b.imaginary, a.real * b.imaginary + a.imaginary * b.real};
  }
  COLLECTIVES_SHARED Stored result(Wide value) const { return value; }
};

/// Kernel of a bitwise op, or of a logical op, for which each input first becomes 0 or 1. Requires an unsigned type.
template <class T, ReduceOp::Kind kKind>
struct Bits {
  using Kind = ReduceOp::Kind;
  using Stored = T;
  using Wide = T;
  static constexpr bool kLogical =
      kKind == Kind::logical_and || kKind == Kind::logical_or || kKind == Kind::logical_xor;
  COLLECTIVES_SHARED Wide term(T stored, bool) const {
    return kLogical ? static_cast<Wide>(stored != 0 ? 1 : 0) : stored;
  }
  COLLECTIVES_SHARED static Wide combine(Wide a, Wide b) {
    if constexpr (kKind == Kind::bitwise_and || kKind == Kind::logical_and) {
      return static_cast<Wide>(a & b);
    } else if constexpr (kKind == Kind::bitwise_or || kKind == Kind::logical_or) {
      return static_cast<Wide>(a | b);
    } else {
      return static_cast<Wide>(a ^ b);
    }
  }
  COLLECTIVES_SHARED T result(Wide value) const { return value; }
};

/// Kernel of min_loc (kLeast is true) or max_loc (kLeast is false). Values are compared as by min and max. If they are
/// equal, the lower index is the result.
template <class T, bool kLeast>
struct Located {
  using Values = Extreme<T, kLeast>;
  using Stored = Pair<T>;
  struct Wide {
    typename Values::Wide value;
    std::int32_t index;
  };
  COLLECTIVES_SHARED Wide term(Stored stored, bool unreduced) const {
    return {Values().term(stored.value, unreduced), stored.index};
  }
  COLLECTIVES_SHARED static Wide combine(Wide a, Wide b) {
    const auto best = Values::combine(a.value, b.value);
    if (a.value == b.value) return {best, a.index < b.index ? a.index : b.index};
    return {best, best == a.value ? a.index : b.index};
  }
  COLLECTIVES_SHARED Stored result(Wide value) const {
    Stored stored{};
    stored.value = Values().result(value.value);
    stored.index = value.index;
    return stored;
  }
};

template <class T>
inline constexpr bool kPair = false;
template <class T>
inline constexpr bool kPair<Pair<T>> = true;
template <class T>
inline constexpr bool kComplex = false;
template <class T>
inline constexpr bool kComplex<Complex<T>> = true;

/// Arguments of a kernel. If `unfinished`, the results are partial ones, so an average is not divided yet.
struct KernelArguments {
  double factor = 1;
  int ranks = 1;
  bool unfinished = false;
};

/// Calls visit(kernel) with the kernel of sum, average, product, pre_scaled_sum, min or max. Returns false if there is
/// none. Sums and products of signed integers are those of unsigned ones.
template <class T, class Visit>
bool with_kernel_of_numbers(ReduceOp::Kind kind, const KernelArguments& with, Visit&& visit) {
  using Kind = ReduceOp::Kind;
  if (kind == Kind::min) return visit(Extreme<T, true>()), true;
  if (kind == Kind::max) return visit(Extreme<T, false>()), true;
  if (kind == Kind::average && !with.unfinished) return visit(Mean<T>(with.ranks)), true;
  if constexpr (kFloating<T> || std::is_unsigned_v<T>) {
    if (kind == Kind::sum || kind == Kind::average) return visit(Sum<T>()), true;
    if (kind == Kind::product) return visit(Product<T>()), true;
  } else if (kind == Kind::average) {
    return visit(Sum<std::make_unsigned_t<T>>()), true;
  }
  if constexpr (kFloating<T>) {
    if (kind == Kind::pre_scaled_sum) return visit(ScaledSum<T>(with.factor)), true;
  }
  return false;
}

/// Calls visit(kernel) with the kernel of a bitwise or logical op. Returns false if there is none. Bitwise ops have
/// only kernels of bytes.
template <class T, class Visit>
bool with_kernel_of_bits(ReduceOp::Kind kind, Visit&& visit) {
  using Kind = ReduceOp::Kind;
  if constexpr (std::is_same_v<T, std::uint8_t>) {
    if (kind == Kind::bitwise_and) return visit(Bits<T, Kind::bitwise_and>()), true;
    if (kind == Kind::bitwise_or) return visit(Bits<T, Kind::bitwise_or>()), true;
    if (kind == Kind::bitwise_xor) return visit(Bits<T, Kind::bitwise_xor>()), true;
  }
  if constexpr (std::is_unsigned_v<T>) {
    if (kind == Kind::logical_and) return visit(Bits<T, Kind::logical_and>()), true;
    if (kind == Kind::logical_or) return visit(Bits<T, Kind::logical_or>()), true;
    if (kind == Kind::logical_xor) return visit(Bits<T, Kind::logical_xor>()), true;
  }
  return false;
}

/// Calls visit(kernel) with the kernel of a reduction of elements of type T. Returns false if there is none.
template <class T, class Visit>
bool with_kernel(ReduceOp::Kind kind, const KernelArguments& with, Visit&& visit) {
  if constexpr (kPair<T>) {
    using Value = decltype(T::value);
    if (kind == ReduceOp::Kind::min_loc) return visit(Located<Value, true>()), true;
    if (kind == ReduceOp::Kind::max_loc) return visit(Located<Value, false>()), true;
    return false;
  } else if constexpr (kComplex<T>) {
    if (kind == ReduceOp::Kind::product) return visit(ComplexProduct<decltype(T::real)>()), true;
    return false;
  } else {
    return with_kernel_of_numbers<T>(kind, with, visit) || with_kernel_of_bits<T>(kind, visit);
  }
}

/// Calls visit(T()) with the type T that `type` names. Booleans are bytes.
template <class Visit>
decltype(auto) with_type(DataType type, Visit&& visit) {
  switch (type) {
    case DataType::f32: return visit(float());
    case DataType::f64: return visit(double());
    case DataType::f16: return visit(float16());
    case DataType::bf16: return visit(bfloat16());
    case DataType::f8e4m3: return visit(float8_e4m3());
    case DataType::f8e5m2: return visit(float8_e5m2());
    case DataType::i8: return visit(std::int8_t());
    case DataType::boolean:
    case DataType::u8: return visit(std::uint8_t());
    case DataType::i16: return visit(std::int16_t());
    case DataType::u16: return visit(std::uint16_t());
    case DataType::i32: return visit(std::int32_t());
    case DataType::u32: return visit(std::uint32_t());
    case DataType::i64: return visit(std::int64_t());
    case DataType::u64: return visit(std::uint64_t());
    case DataType::complex64: return visit(Complex<float>());
    case DataType::complex128: return visit(Complex<double>());
    case DataType::f32_index: return visit(Pair<float>());
    case DataType::f64_index: return visit(Pair<double>());
    case DataType::i64_index: return visit(Pair<std::int64_t>());
    case DataType::i32_index: return visit(Pair<std::int32_t>());
    case DataType::i16_index: break;
  }
  return visit(Pair<std::int16_t>());
}

/// Calls visit(kernel, times) with the kernel that performs a reduction of elements of `type`. An element is `times`
/// elements of the kernel. Returns false if there is no kernel: for user ops, and for ops that the type lacks.
template <class Visit>
bool with_kernel_for(const ReduceOp& op, DataType type, int ranks, bool unfinished, Visit&& visit) {
  if (op.kind() == ReduceOp::Kind::user || !supports(type, op)) return false;
  const EqualReduction equal = equal_reduction(op.kind(), type);
  return with_type(equal.type, [&](auto element) {
    return with_kernel<decltype(element)>(equal.kind, {op.factor(), ranks, unfinished},
                                          [&](const auto& kernel) { visit(kernel, equal.times); });
  });
}

}  // namespace collectives::elements
