// Loops that reduce integers by sum, product or average. Sums and products wrap on overflow, so signed integers are
// combined as unsigned ones. An average is the exact mean, truncated toward zero. For an average, integers are added in
// a wider type, so that the sum cannot overflow.
#include "reduction/dispatch.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "reduction/integers.cpp"
#include <hwy/foreach_target.h>

#include "reduction/loops.hpp"

HWY_BEFORE_NAMESPACE();
namespace collectives::HWY_NAMESPACE {

/// Conversion of bytes to 16 bits and back, for products. Reason: CPUs have no vector instruction that multiplies
/// bytes.
struct WidenedBytes {
  using Stored = std::uint8_t;
  using Wide = std::uint16_t;
  template <class D>
  static HWY_INLINE auto widen(D, hn::Vec<D> stored) {
    return hn::PromoteTo(hn::Rebind<Wide, D>(), stored);
  }
  template <class D, class V>
  static HWY_INLINE hn::Vec<D> narrow(D d, V value) {
    return hn::TruncateTo(d, value);
  }
};

/// Conversion of integers of 8, 16 and 32 bits to floating point and back, for averages. The floating-point type `Wide`
/// can hold each sum exactly. A quotient is rounded, but never up to the next whole number. The conversion to integers
/// truncates the quotient. The result is thus the truncated exact mean.
template <class T, class WideType>
struct Averaged {
  using Stored = T;
  using Wide = WideType;
  template <class D>
  using Integers = hn::Rebind<std::int32_t, D>;
  template <class D>
  static HWY_INLINE auto widen(D, hn::Vec<D> stored) {
    const Integers<D> di;
    const hn::Rebind<Wide, D> dw;
    if constexpr (std::is_same_v<T, std::uint32_t>) {
      const auto lowered = hn::BitCast(di, hn::Xor(stored, hn::Set(D(), 0x80000000u)));
      return hn::Add(hn::PromoteTo(dw, lowered), hn::Set(dw, 0x1p31));
    } else if constexpr (std::is_same_v<T, std::int32_t>) {
      return hn::PromoteTo(dw, stored);
    } else if constexpr (std::is_same_v<Wide, double>) {
      return hn::PromoteTo(dw, hn::PromoteTo(di, stored));
    } else {
      return hn::ConvertTo(dw, hn::PromoteTo(di, stored));
    }
  }
  template <class D, class V>
  static HWY_INLINE hn::Vec<D> narrow(D d, V value) {
    const Integers<D> di;
    if constexpr (std::is_same_v<T, std::uint32_t>) {
      const auto lowered = hn::DemoteTo(di, hn::Sub(hn::Trunc(value), hn::Set(hn::DFromV<V>(), 0x1p31)));
      return hn::Xor(hn::BitCast(d, lowered), hn::Set(d, 0x80000000u));
    } else if constexpr (std::is_same_v<T, std::int32_t>) {
      return hn::DemoteTo(d, value);
    } else if constexpr (std::is_same_v<Wide, double>) {
      return hn::DemoteTo(d, hn::DemoteTo(di, value));
    } else {
      return hn::DemoteTo(d, hn::ConvertTo(di, value));
    }
  }
};

/// Computes the mean of 64-bit integers one by one, because no vector instruction divides 128-bit integers. If a sum
/// fits in 64 bits, the division uses 64 bits, which is faster.
template <class T>
void mean_of_longs(const Operands& all) {
  __extension__ using Int128 = __int128;
  const auto ranks = static_cast<T>(all.ranks);
  const std::span<const Source> sources = all.sources;
  for (std::size_t i = 0; i < all.count; ++i) {
    Int128 sum = 0;
    for (const Source& source : sources) {
      T value;
      std::memcpy(&value, source.data + i * sizeof(T), sizeof(T));
      sum += value;
    }
    const T low = static_cast<T>(sum);
    const T mean = low == sum ? low / ranks : static_cast<T>(sum / ranks);
    for (const auto& outs : {all.outs, all.streamed}) {
      for (std::byte* const out : outs) std::memcpy(out + i * sizeof(T), &mean, sizeof(T));
    }
  }
}

template <class T>
void mean_of_bytes(const Operands& all) {
  // A float holds the sum of up to 2^16 8-bit integers exactly. A double holds the sum of up to 2^21 32-bit integers.
  if (all.ranks <= 1 << 16) return fold_by<Mean<Averaged<T, float>>>(all);
  fold_by<Mean<Averaged<T, double>>>(all);
}

FoldLoop means(DataType type) {
  switch (type) {
    case DataType::i8: return mean_of_bytes<std::int8_t>;
    case DataType::u8: return mean_of_bytes<std::uint8_t>;
    case DataType::i16: return fold_by<Mean<Averaged<std::int16_t, double>>>;
    case DataType::u16: return fold_by<Mean<Averaged<std::uint16_t, double>>>;
    case DataType::i32: return fold_by<Mean<Averaged<std::int32_t, double>>>;
    case DataType::u32: return fold_by<Mean<Averaged<std::uint32_t, double>>>;
    case DataType::i64: return mean_of_longs<std::int64_t>;
    case DataType::u64: return mean_of_longs<std::uint64_t>;
    default: return nullptr;
  }
}

FoldLoop integers(ReduceOp::Kind kind, DataType type) {
  if (kind == ReduceOp::Kind::average) return means(type);
  const bool sum = kind == ReduceOp::Kind::sum;
  switch (size_of(type)) {
    case 1: return sum ? fold_by<Sum<Same<std::uint8_t>>> : fold_by<Product<WidenedBytes>>;
    case 2: return sum ? fold_by<Sum<Same<std::uint16_t>>> : fold_by<Product<Same<std::uint16_t>>>;
    case 4: return sum ? fold_by<Sum<Same<std::uint32_t>>> : fold_by<Product<Same<std::uint32_t>>>;
    case 8: return sum ? fold_by<Sum<Same<std::uint64_t>>> : fold_by<Product<Same<std::uint64_t>>>;
  }
  return nullptr;
}

}  // namespace collectives::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace collectives {

HWY_EXPORT(integers);
FoldLoop loop_of_integers(ReduceOp::Kind kind, DataType type) noexcept {
  return HWY_DYNAMIC_DISPATCH(integers)(kind, type);
}

}  // namespace collectives
#endif
