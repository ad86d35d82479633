// f16 and bf16: f32 while they are combined, rounded once.
//
// The rounding is that of types.hpp, in integer arithmetic with choices in place of branches. Only f16 has instructions
// that give the same bits; those for bf16 flush denormals.
#include "reduction/family.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "reduction/halves.cpp"
#include <hwy/foreach_target.h>

#include "reduction/loops.hpp"

HWY_BEFORE_NAMESPACE();
namespace collectives::HWY_NAMESPACE {

template <class D>
using Floats = hn::Rebind<float, D>;
template <class D>
using Words = hn::Rebind<std::uint32_t, D>;

/// Both below 2^31, which lets the comparison be the cheap one of signed integers.
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
    const Words<D> dw;
    const auto word = hn::BitCast(dw, value);
    const auto magnitude = hn::And(word, hn::Set(dw, 0x7fffffffu));
    const auto last = hn::And(hn::ShiftRight<16>(word), hn::Set(dw, 1u));
    const auto rounded = hn::Add(hn::Add(word, hn::Set(dw, 0x7fffu)), last);
    const auto quiet = hn::Or(word, hn::Set(dw, 0x00400000u));
    return hn::TruncateTo(d, hn::ShiftRight<16>(choose_if_less(magnitude, 0x7f800001u, rounded, quiet)));
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
    // The last bit of a float between 1/2 and 1 is worth 2^-24, as that of a denormal f16: the addition rounds.
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

void halves(ReduceOp::Kind kind, DataType type, const Operands& all) {
  if (type == DataType::f16) return fold_format<HalfFloat>(kind, all);
  fold_format<BrainFloat>(kind, all);
}

}  // namespace collectives::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace collectives {

HWY_EXPORT(halves);
void fold_halves(ReduceOp::Kind kind, DataType type, const Operands& all) {
  HWY_DYNAMIC_DISPATCH(halves)(kind, type, all);
}

}  // namespace collectives
#endif
