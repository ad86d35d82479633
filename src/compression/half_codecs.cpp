// f32 as bf16 or f16, two bytes an element.
//
// One loop for both directions and both formats: four vectors of f32 at a time, then single ones, then smaller ones.
// There is little to compute, so what counts is that bytes move: what is too long for the caches to keep is stored past
// them, in whole lines, which saves reading what is overwritten.
#include "compression/codec_kernels.hpp"
#include "reduction/dispatch.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "compression/half_codecs.cpp"
#include <hwy/cache_control.h>
#include <hwy/foreach_target.h>

#include <type_traits>

#include "reduction/formats.hpp"

HWY_BEFORE_NAMESPACE();
namespace collectives::HWY_NAMESPACE {

/// To memory, or past the caches.
template <bool kPast, class D>
HWY_INLINE void put(D d, hn::Vec<D> value, std::byte* to) {
  if constexpr (kPast) {
    hn::Stream(value, d, reinterpret_cast<hn::TFromD<D>*>(to));
  } else {
    store(d, value, to);
  }
}

#if HWY_TARGET != HWY_SCALAR  // whose vectors have one lane and cannot be combined
/// Four vectors as bits of f32, the upper halves of which are bf16, rounded by adding half of what the last bit that
/// stays is worth. False where that will not do, and round() has to: where there is a tie or a NaN.
template <class DW>
HWY_INLINE bool round_plainly(DW dw, const hn::Vec<hn::Rebind<float, DW>> (&value)[4], hn::Vec<DW> (&rounded)[4]) {
  const hn::Repartition<std::uint16_t, DW> halves;
  for (std::size_t v = 0; v < 4; ++v) rounded[v] = hn::Add(hn::BitCast(dw, value[v]), hn::Set(dw, 0x8000u));
  // Nothing is left in the lower half of a tie.
  const auto least = [&](std::size_t v) {
    return hn::Min(hn::BitCast(halves, rounded[v]), hn::BitCast(halves, rounded[v + 1]));
  };
  const auto lower = hn::BitCast(dw, hn::Min(least(0), least(2))), mask = hn::Set(dw, 0xffffu);
#if HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX3
  if constexpr (kBytes<DW> == 64) {  // one comparison tells of two vectors whether there is a NaN
    auto plain = _mm512_cmp_ps_mask(value[0].raw, value[1].raw, _CMP_ORD_Q);
    plain = _mm512_mask_cmp_ps_mask(plain, value[2].raw, value[3].raw, _CMP_ORD_Q);
    return _mm512_mask_test_epi32_mask(plain, lower.raw, mask.raw) == 0xffff;
  }
#endif
  // A NaN anywhere makes the sum NaN. So may infinities, which does no harm.
  const auto sum = hn::Add(hn::Add(value[0], value[1]), hn::Add(value[2], value[3]));
  const auto tie = hn::Eq(hn::And(lower, mask), hn::Zero(dw));
  return hn::AllFalse(dw, hn::Or(tie, hn::RebindMask(dw, hn::IsNaN(sum))));
}
#endif

template <class Format>
struct Encode {
  static constexpr std::size_t kIn = sizeof(float), kOut = sizeof(typename Format::Stored);
  template <class D>
  static HWY_INLINE void one(D d, const std::byte* in, std::byte* out) {
    store(d, Format::narrow(d, load(Floats<D>(), in)), out);
  }
#if HWY_TARGET != HWY_SCALAR
  template <bool kPast, class D>
  static HWY_INLINE void four(D d, const std::byte* in, std::byte* out) {
    const Floats<D> df;
    const Words<D> dw;
    const hn::Twice<D> two;
    hn::Vec<Floats<D>> value[4];
    for (std::size_t v = 0; v < 4; ++v) value[v] = load(df, in + v * kBytes<Floats<D>>);
    if constexpr (std::is_same_v<Format, BrainFloat>) {
      hn::Vec<Words<D>> rounded[4];
      if (HWY_UNLIKELY(!round_plainly(dw, value, rounded)))
        for (std::size_t v = 0; v < 4; ++v) rounded[v] = Format::round(dw, value[v]);
      for (std::size_t v = 0; v < 4; v += 2, out += kBytes<Floats<D>>)
        put<kPast>(two, hn::ConcatOdd(two, hn::BitCast(two, rounded[v + 1]), hn::BitCast(two, rounded[v])), out);
    } else {
      for (std::size_t v = 0; v < 4; v += 2, out += kBytes<Floats<D>>)
        put<kPast>(two, hn::Combine(two, Format::narrow(d, value[v + 1]), Format::narrow(d, value[v])), out);
    }
  }
#endif
};

template <class Format>
struct Decode {
  static constexpr std::size_t kIn = sizeof(typename Format::Stored), kOut = sizeof(float);
  template <class D>
  static HWY_INLINE void one(D d, const std::byte* in, std::byte* out) {
    store(Floats<D>(), Format::widen(d, load(d, in)), out);
  }
  template <bool kPast, class D>
  static HWY_INLINE void four(D d, const std::byte* in, std::byte* out) {
    hn::Vec<Floats<D>> value[4];
    for (std::size_t v = 0; v < 4; ++v) value[v] = Format::widen(d, load(d, in + v * kBytes<D>));
    for (std::size_t v = 0; v < 4; ++v) put<kPast>(Floats<D>(), value[v], out + v * kBytes<Floats<D>>);
  }
};

/// Less than what fills two vectors of tag D.
template <class Kernel, class D>
HWY_INLINE void rest(D d, const std::byte* in, std::byte* out, std::size_t count) {
  constexpr std::size_t kLanes = hn::MaxLanes(D());
  if (count >= kLanes) {
    Kernel::one(d, in, out);
    in += kLanes * Kernel::kIn, out += kLanes * Kernel::kOut, count -= kLanes;
  }
  if constexpr (kLanes > 1) rest<Kernel>(hn::Half<D>(), in, out, count);
}

/// Bytes; hardware alone keeps fewer loads under way.
inline constexpr std::size_t kAhead = 1024;
/// Bytes in and out that a first cache holds: then nothing is asked for.
inline constexpr std::size_t kFirstCache = 32 << 10;

template <class Kernel, bool kPast>
HWY_NOINLINE void convert(const std::byte* in, std::byte* out, std::size_t count) {
  // As many elements as fill a vector once they are f32.
  const hn::Rebind<std::uint16_t, hn::ScalableTag<float>> d;
  constexpr std::size_t kLanes = hn::MaxLanes(d);
  const bool far = count * (Kernel::kIn + Kernel::kOut) > kFirstCache;
  if constexpr (kLanes > 1) {
    for (constexpr std::size_t kStep = 4 * kLanes; count >= kStep; count -= kStep) {
      if (far && count * Kernel::kIn > kAhead + kStep * Kernel::kIn) {
        for (std::size_t byte = 0; byte < kStep * Kernel::kIn; byte += kLine) hwy::Prefetch(in + kAhead + byte);
      }
      Kernel::template four<kPast>(d, in, out);
      in += kStep * Kernel::kIn, out += kStep * Kernel::kOut;
    }
  }
  for (; count >= 2 * kLanes; count -= kLanes) {
    Kernel::one(d, in, out);
    in += kLanes * Kernel::kIn, out += kLanes * Kernel::kOut;
  }
  rest<Kernel>(d, in, out, count);
}

template <class Kernel>
HWY_INLINE void convert(const std::byte* in, std::byte* out, std::size_t count) {
  const std::size_t lead = to_next_line(out);
  if (count * (Kernel::kIn + Kernel::kOut) < kPastCaches || lead % Kernel::kOut != 0) {
    return convert<Kernel, false>(in, out, count);
  }
  const std::size_t first = lead / Kernel::kOut;
  convert<Kernel, false>(in, out, first);
  convert<Kernel, true>(in + first * Kernel::kIn, out + lead, count - first);
  hwy::FlushStream();
}

void narrow_all(DataType type, const std::byte* values, std::byte* wire, std::size_t count) {
  if (type == DataType::f16) return convert<Encode<HalfFloat>>(values, wire, count);
  convert<Encode<BrainFloat>>(values, wire, count);
}
void widen_all(DataType type, const std::byte* wire, std::byte* values, std::size_t count) {
  if (type == DataType::f16) return convert<Decode<HalfFloat>>(wire, values, count);
  convert<Decode<BrainFloat>>(wire, values, count);
}

}  // namespace collectives::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace collectives {

HWY_EXPORT(narrow_all);
HWY_EXPORT(widen_all);

void encode_half_floats(DataType type, std::span<const float> values, std::byte* wire) noexcept {
  HWY_DYNAMIC_DISPATCH(narrow_all)(type, std::as_bytes(values).data(), wire, values.size());
}
void decode_half_floats(DataType type, const std::byte* wire, std::span<float> values) noexcept {
  HWY_DYNAMIC_DISPATCH(widen_all)(type, wire, std::as_writable_bytes(values).data(), values.size());
}

}  // namespace collectives
#endif
