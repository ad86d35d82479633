// Loops that compute min and max, for integers, and for floats of 16 bits or more.
//
// Integers are compared directly. Floats are compared by keys. The key of a float is a signed integer that is computed
// from the bits of the float. For max, a greater float has a greater key. For min, all bits of each key are inverted,
// so a smaller float has a greater key. In max and in min, the result is therefore the element with the greatest key.
#include "reduction/dispatch.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "reduction/min_max.cpp"
#include <hwy/foreach_target.h>

#include <limits>

#include "reduction/loops.hpp"

HWY_BEFORE_NAMESPACE();
namespace collectives::HWY_NAMESPACE {

template <class T>
struct Least : Sum<Same<T>> {
  template <class V>
  HWY_INLINE V combine(V a, V b) const {
    return hn::Min(a, b);
  }
};
template <class T>
struct Greatest : Sum<Same<T>> {
  template <class V>
  HWY_INLINE V combine(V a, V b) const {
    return hn::Max(a, b);
  }
};

/// Kernel of min and max for floats: a class with the arithmetic that finds the greatest key. In max, -0 has a smaller
/// key than +0. Every NaN is replaced by one quiet NaN, whose key is above all other keys, in min and in max. If any
/// element is a NaN, the result is therefore a NaN.
template <class Key>
struct GreatestKey : Greatest<Key> {
  Key turn, infinity, nan;
  GreatestKey(bool least, Key infinity_bits, Key nan_bits)
      : turn(least ? Key{-1} : Key{0}), infinity(infinity_bits), nan(nan_bits) {}

  template <class D>
  static HWY_INLINE hn::Vec<D> magnitude(D d, hn::Vec<D> bits) {
    return hn::And(bits, hn::Set(d, std::numeric_limits<Key>::max()));
  }
  /// Converts the bits of floats to keys, or keys back to the bits of floats.
  template <class D>
  static HWY_INLINE hn::Vec<D> flip(D d, hn::Vec<D> bits) {
    return hn::Xor(bits, magnitude(d, hn::BroadcastSignBit(bits)));
  }
  template <class D>
  HWY_INLINE hn::Vec<D> term(D d, hn::Vec<D> bits, bool) const {
    const hn::Vec<D> key = hn::Xor(flip(d, bits), hn::Set(d, turn));
    return hn::IfThenElse(hn::Gt(magnitude(d, bits), hn::Set(d, infinity)), hn::Set(d, nan), key);
  }
  template <class D>
  HWY_INLINE hn::Vec<D> result(D d, hn::Vec<D> key) const {
    return hn::IfThenElse(hn::Eq(key, hn::Set(d, nan)), key, flip(d, hn::Xor(key, hn::Set(d, turn))));
  }
};

template <class T>
FoldLoop loop_of(bool least) {
  return least ? fold_by<Least<T>> : fold_by<Greatest<T>>;
}

template <class Key, Key kInfinity, Key kNan, bool kLeast>
void fold_keys(const Operands& all) {
  run(GreatestKey<Key>(kLeast, kInfinity, kNan), all);
}
template <class Key, Key kInfinity, Key kNan>
FoldLoop loop_of_keys(bool least) {
  return least ? fold_keys<Key, kInfinity, kNan, true> : fold_keys<Key, kInfinity, kNan, false>;
}

FoldLoop min_max(ReduceOp::Kind kind, DataType type) {
  const bool least = kind == ReduceOp::Kind::min;
  switch (type) {
    case DataType::f32: return loop_of_keys<std::int32_t, 0x7f800000, 0x7fc00000>(least);
    case DataType::f64: return loop_of_keys<std::int64_t, 0x7ff0000000000000, 0x7ff8000000000000>(least);
    case DataType::f16: return loop_of_keys<std::int16_t, 0x7c00, 0x7e00>(least);
    case DataType::bf16: return loop_of_keys<std::int16_t, 0x7f80, 0x7fc0>(least);
    case DataType::i8: return loop_of<std::int8_t>(least);
    case DataType::u8: return loop_of<std::uint8_t>(least);
    case DataType::i16: return loop_of<std::int16_t>(least);
    case DataType::u16: return loop_of<std::uint16_t>(least);
    case DataType::i32: return loop_of<std::int32_t>(least);
    case DataType::u32: return loop_of<std::uint32_t>(least);
    case DataType::i64: return loop_of<std::int64_t>(least);
    case DataType::u64: return loop_of<std::uint64_t>(least);
    default: return nullptr;
  }
}

}  // namespace collectives::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace collectives {

HWY_EXPORT(min_max);
FoldLoop loop_of_min_max(ReduceOp::Kind kind, DataType type) noexcept {
  return HWY_DYNAMIC_DISPATCH(min_max)(kind, type);
}

}  // namespace collectives
#endif
