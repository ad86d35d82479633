// Formats of elements: how elements are widened for arithmetic, and narrowed to be stored. Each format is a class with
// two types and two functions:
//
//   Stored             an element in memory, as a lane
//   Wide               a widened element
//   widen(d, stored)   vector of Stored -> vector of Wide
//   narrow(d, value)   vector of Wide -> vector of Stored
//
// A vector is a register of several elements, which are its lanes. The tag d is an object of the library Highway. The
// type of d selects the element type and the length of the vector of Stored.
//
// f32 is rounded to bf16 by integer arithmetic without branches. The CPU's instructions for bf16 are not used, because
// they flush denormals (replace them by 0). Some programs set a processor mode that flushes denormals, too. This mode
// does not affect integer arithmetic. The F16C instructions of x86 CPUs convert f16, in the loops for AVX2 and newer
// sets. Other loops convert f16 by arithmetic. All results have the bits that types.hpp defines. Price: rounding to
// bf16 takes six operations instead of one. If the data are not in the first-level cache, rounding takes no additional
// time, because the loads take longer than the six operations.
//
// Highway includes this file once per instruction set, so it has no usual include guard.
#if defined(COLLECTIVES_REDUCTION_FORMATS) == defined(HWY_TARGET_TOGGLE)
#ifdef COLLECTIVES_REDUCTION_FORMATS
#undef COLLECTIVES_REDUCTION_FORMATS
#else
#define COLLECTIVES_REDUCTION_FORMATS
#endif

#include <hwy/highway.h>

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>

HWY_BEFORE_NAMESPACE();
namespace collectives::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

/// Size of a whole vector in bytes. Highway has unaligned loads and stores only for vectors of at least 16 bytes.
template <class D>
inline constexpr std::size_t kBytes = hn::MaxLanes(D()) * sizeof(hn::TFromD<D>);

template <class D>
HWY_INLINE hn::Vec<D> load(D d, const std::byte* from) {
  using T = hn::TFromD<D>;
  if constexpr (kBytes<D> >= 16) {
    return hn::LoadU(d, reinterpret_cast<const T*>(from));
  } else {
    alignas(16) T lanes[hn::MaxLanes(D())];
    std::memcpy(lanes, from, sizeof(lanes));
    return hn::Load(d, lanes);
  }
}

template <class D>
HWY_INLINE void store(D d, hn::Vec<D> value, std::byte* to) {
  using T = hn::TFromD<D>;
  if constexpr (kBytes<D> >= 16) {
    hn::StoreU(value, d, reinterpret_cast<T*>(to));
  } else {
    alignas(16) T lanes[hn::MaxLanes(D())];
    hn::Store(value, d, lanes);
    std::memcpy(to, lanes, sizeof(lanes));
  }
}

template <class T>
struct Same {
  using Stored = T;
  using Wide = T;
  template <class D>
  static HWY_INLINE hn::Vec<D> widen(D, hn::Vec<D> stored) {
    return stored;
  }
  template <class D>
  static HWY_INLINE hn::Vec<D> narrow(D, hn::Vec<D> value) {
    return value;
  }
};

template <class D>
using Floats = hn::Rebind<float, D>;
template <class D>
using Words = hn::Rebind<std::uint32_t, D>;

/// Returns a < b ? yes : no. Requires that `a` and `b` are below 2^31, so that the cheap comparison of signed integers
/// suffices.
template <class V>
HWY_INLINE V choose_if_less(V a, std::uint32_t b, V yes, V no) {
  const hn::DFromV<V> d;
  const hn::RebindToSigned<hn::DFromV<V>> di;
  return hn::IfThenElse(hn::RebindMask(d, hn::Lt(hn::BitCast(di, a), hn::Set(di, static_cast<std::int32_t>(b)))), yes,
                        no);
}

struct BrainFloat {
  using Stored = std::uint16_t;
  using Wide = float;
  template <class D>
  static HWY_INLINE hn::Vec<Floats<D>> widen(D, hn::Vec<D> stored) {
    return hn::BitCast(Floats<D>(), hn::ShiftLeft<16>(hn::PromoteTo(Words<D>(), stored)));
  }
  template <class D>
  static HWY_INLINE hn::Vec<D> narrow(D d, hn::Vec<Floats<D>> value) {
    return hn::TruncateTo(d, hn::ShiftRight<16>(round(Words<D>(), value)));
  }
  /// Returns the bits of f32 values, whose upper halves are the rounded values.
  template <class DW>
  static HWY_INLINE hn::Vec<DW> round(DW dw, hn::Vec<hn::Rebind<float, DW>> value) {
    const auto word = hn::BitCast(dw, value);
    const auto quiet = hn::Or(word, hn::Set(dw, 0x00400000u));
    // A tie is rounded to the even value. If the last bit that is kept is 1, the lowest bit is therefore set, so that
    // the addition below carries. A value whose lowest bit is 1 already is no tie.
    const auto decided = hn::OrAnd(word, hn::ShiftRight<16>(word), hn::Set(dw, 1u));
    const auto number = hn::Add(decided, hn::Set(dw, 0x7fffu));
    return hn::IfThenElse(hn::RebindMask(dw, hn::IsNaN(value)), quiet, number);
  }
};

struct HalfFloat {
  using Stored = std::uint16_t;
  using Wide = float;

#if HWY_TARGET <= HWY_AVX2 && HWY_ARCH_X86  // with F16C
  template <class D>
  static HWY_INLINE hn::Vec<Floats<D>> widen(D, hn::Vec<D> stored) {
    return hn::PromoteTo(Floats<D>(), hn::BitCast(hn::Rebind<hwy::float16_t, D>(), stored));
  }
  template <class D>
  static HWY_INLINE hn::Vec<D> narrow(D d, hn::Vec<Floats<D>> value) {
    return hn::BitCast(d, hn::DemoteTo(hn::Rebind<hwy::float16_t, D>(), value));
  }
#else
  template <class D>
  static HWY_INLINE hn::Vec<Floats<D>> widen(D, hn::Vec<D> stored) {
    const Words<D> dw;
    const Floats<D> df;
    const auto word = hn::PromoteTo(dw, stored);
    const auto sign = hn::ShiftLeft<16>(hn::And(word, hn::Set(dw, 0x8000u)));
    const auto magnitude = hn::And(word, hn::Set(dw, 0x7fffu));
    const auto integer = hn::ConvertTo(df, hn::BitCast(hn::RebindToSigned<Words<D>>(), magnitude));
    const auto denormal = hn::BitCast(dw, hn::Mul(integer, hn::Set(df, 0x1p-24f)));
    const auto bias = choose_if_less(magnitude, 0x7c00u, hn::Set(dw, 0x38000000u), hn::Set(dw, 0x70000000u));
    const auto normal = hn::Add(hn::ShiftLeft<13>(magnitude), bias);
    return hn::BitCast(df, hn::Or(sign, choose_if_less(magnitude, 0x400u, denormal, normal)));
  }
  template <class D>
  static HWY_INLINE hn::Vec<D> narrow(D d, hn::Vec<Floats<D>> value) {
    const Words<D> dw;
    const Floats<D> df;
    const auto word = hn::BitCast(dw, value);
    const auto magnitude = hn::And(word, hn::Set(dw, 0x7fffffffu));
    const auto upper = hn::ShiftRight<13>(magnitude);
    const auto nan = hn::Or(hn::And(upper, hn::Set(dw, 0x3ffu)), hn::Set(dw, 0x7e00u));
    const auto last = hn::And(upper, hn::Set(dw, 1u));
    const auto normal = hn::ShiftRight<13>(hn::Add(hn::Add(magnitude, hn::Set(dw, 0xfffu - 0x38000000u)), last));
    // The addition rounds, because the last bit of a float between 1/2 and 1 is worth 2^-24. This is also the value of
    // the last bit of a denormal f16.
    const auto sum = hn::Add(hn::BitCast(df, magnitude), hn::Set(df, 0.5f));
    const auto denormal = hn::Sub(hn::BitCast(dw, sum), hn::Set(dw, 0x3f000000u));
    auto half = choose_if_less(magnitude, 0x38800000u, denormal, normal);
    half = choose_if_less(magnitude, 0x47800000u, half, hn::Set(dw, 0x7c00u));
    half = choose_if_less(magnitude, 0x7f800001u, half, nan);
    const auto sign = hn::And(hn::ShiftRight<16>(word), hn::Set(dw, 0x8000u));
    return hn::TruncateTo(d, hn::Or(sign, half));
  }
#endif
};

/// 8-bit float with kFraction bits of fraction and the exponent bias kBias. kGreatest is the greatest finite magnitude,
/// as bits. A format with infinities has one NaN per bit of payload, otherwise one NaN only.
template <int kFraction, std::uint32_t kBias, std::uint32_t kGreatest, bool kInfinities>
struct Float8 {
  using Stored = std::uint8_t;
  using Wide = float;
  static constexpr int kLost = 23 - kFraction;
  static constexpr std::uint32_t kRebias = (127 - kBias) << 23, kLeastNormal = (128 - kBias) << 23;
  /// Exponents of the greatest finite number and of the smallest denormal, the latter negated.
  static constexpr std::uint32_t kHighestExponent = (kGreatest >> kFraction) - kBias;
  static constexpr std::uint32_t kLowestExponent = kBias + kFraction - 1;
  /// Fraction of the greatest finite number, as f32 has it, and whether the last bit of that number is 1.
  static constexpr std::uint32_t kGreatestFraction = (kGreatest & ((1u << kFraction) - 1)) << kLost;
  static constexpr bool kGreatestIsOdd = kGreatest % 2 == 1;
  /// Value of the last bit of a denormal.
  static constexpr float kUnit = std::bit_cast<float>((128 - kBias - kFraction) << 23);
  /// Float whose last bit has the value kUnit.
  static constexpr float kRounder = kUnit * 0x1p23f;

  template <class D>
  static HWY_INLINE hn::Vec<Floats<D>> widen(D, hn::Vec<D> stored) {
    const Words<D> dw;
    const Floats<D> df;
    const auto word = hn::PromoteTo(dw, stored);
    const auto sign = hn::ShiftLeft<24>(hn::And(word, hn::Set(dw, 0x80u)));
    const auto magnitude = hn::And(word, hn::Set(dw, 0x7fu));
    const auto integer = hn::ConvertTo(df, hn::BitCast(hn::RebindToSigned<Words<D>>(), magnitude));
    const auto denormal = hn::BitCast(dw, hn::Mul(integer, hn::Set(df, kUnit)));
    const auto shifted = hn::ShiftLeft<kLost>(magnitude);
    const auto normal = hn::Add(shifted, hn::Set(dw, kRebias));
    const auto special = kInfinities ? hn::Or(shifted, hn::Set(dw, 0x7f800000u)) : hn::Set(dw, 0x7fc00000u);
    auto value = choose_if_less(magnitude, 1u << kFraction, denormal, normal);
    value = choose_if_less(magnitude, kGreatest + 1, value, special);
    return hn::BitCast(df, hn::Or(sign, value));
  }
  template <class D>
  static HWY_INLINE hn::Vec<D> narrow(D d, hn::Vec<Floats<D>> value) {
    const Words<D> dw;
    const Floats<D> df;
    const auto word = hn::BitCast(dw, value);
    const auto magnitude = hn::And(word, hn::Set(dw, 0x7fffffffu));
    const auto last = hn::And(hn::ShiftRight<kLost>(magnitude), hn::Set(dw, 1u));
    const auto half = hn::Set(dw, (1u << (kLost - 1)) - 1u - kRebias);
    const auto rounded = hn::ShiftRight<kLost>(hn::Add(hn::Add(magnitude, half), last));
    const auto normal = choose_if_less(rounded, kGreatest, rounded, hn::Set(dw, kGreatest));
    // The addition rounds, as in HalfFloat::narrow().
    const auto sum = hn::Add(hn::BitCast(df, magnitude), hn::Set(df, kRounder));
    const auto denormal = hn::Sub(hn::BitCast(dw, sum), hn::Set(dw, std::bit_cast<std::uint32_t>(kRounder)));
    auto result = choose_if_less(magnitude, kLeastNormal, denormal, normal);
    if constexpr (kInfinities) {
      const auto payload = hn::And(hn::ShiftRight<kLost>(magnitude), hn::Set(dw, 3u));
      result = choose_if_less(magnitude, 0x7f800000u, result, hn::Set(dw, kGreatest + 1));
      result = choose_if_less(magnitude, 0x7f800001u, result, hn::Or(payload, hn::Set(dw, kGreatest + 3)));
    } else {
      result = choose_if_less(magnitude, 0x7f800001u, result, hn::Set(dw, kGreatest + 1));
    }
    const auto sign = hn::And(hn::ShiftRight<24>(word), hn::Set(dw, 0x80u));
    return hn::TruncateTo(d, hn::Or(sign, result));
  }
};
using Float8E4M3 = Float8<3, 7, 0x7e, false>;
using Float8E5M2 = Float8<2, 15, 0x7b, true>;

}  // namespace collectives::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
