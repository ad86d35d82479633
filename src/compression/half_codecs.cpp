// Codecs bf16 and f16, which convert f32 values to 16-bit floats for messages, and back.
//
// One loop serves both formats and both directions. It converts four vector registers of f32 values at a time, and the
// remaining values in smaller steps. A conversion needs few operations, so memory limits the speed. An ordinary store
// reads the cache line before it overwrites the line. A streaming store bypasses the caches, and reads no cache line.
// The loop uses streaming stores if input and output together have at least 16 MiB (kPastCaches), because they do not
// fit in the caches. Streaming stores also require that the address of the output is a multiple of the element size.
//
// Values are rounded to bf16 by integer arithmetic (reduction/formats.hpp). Some processors have an instruction for
// this rounding, but it replaces denormals (values close to 0) by 0. Price: rounding takes six operations in place of
// one. If the data come from the second-level cache or from slower memory, the loads take longer than these six
// operations.
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

/// Stores a vector register. Uses a streaming store, which bypasses the caches, if kPast is true.
template <bool kPast, class D>
HWY_INLINE void put(D d, hn::Vec<D> value, std::byte* to) {
  if constexpr (kPast) {
    hn::Stream(value, d, reinterpret_cast<hn::TFromD<D>*>(to));
  } else {
    store(d, value, to);
  }
}

// HWY_SCALAR, the set without vector instructions, lacks the operations that combine vectors.
#if HWY_TARGET != HWY_SCALAR
/// Rounds four vectors of f32 to bf16. The upper half of each resulting word is the bf16 value. Adds half the value of
/// the last kept bit. The result may be wrong for a NaN and for a tie. A tie is a value in the middle between two bf16
/// values. Returns false if a vector may have a NaN or a tie. The caller must then use round().
template <class DW>
HWY_INLINE bool round_plainly(DW dw, const hn::Vec<hn::Rebind<float, DW>> (&value)[4], hn::Vec<DW> (&rounded)[4]) {
  const hn::Repartition<std::uint16_t, DW> halves;
  for (std::size_t v = 0; v < 4; ++v) rounded[v] = hn::Add(hn::BitCast(dw, value[v]), hn::Set(dw, 0x8000u));
  // After the addition, the lower half of a tie is zero.
  const auto least = [&](std::size_t v) {
    return hn::Min(hn::BitCast(halves, rounded[v]), hn::BitCast(halves, rounded[v + 1]));
  };
  const auto lower = hn::BitCast(dw, hn::Min(least(0), least(2))), mask = hn::Set(dw, 0xffffu);
#if HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX3
  // One comparison tests two vectors for NaN.
  if constexpr (kBytes<DW> == 64) {
    auto plain = _mm512_cmp_ps_mask(value[0].raw, value[1].raw, _CMP_ORD_Q);
    plain = _mm512_mask_cmp_ps_mask(plain, value[2].raw, value[3].raw, _CMP_ORD_Q);
    return _mm512_mask_test_epi32_mask(plain, lower.raw, mask.raw) == 0xffff;
  }
#endif
  // The sum is NaN if any element is NaN. Infinities may make the sum NaN, too. In both cases round() computes the
  // result correctly.
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

/// Converts fewer elements than two vectors of tag D.
template <class Kernel, class D>
HWY_INLINE void rest(D d, const std::byte* in, std::byte* out, std::size_t count) {
  constexpr std::size_t kLanes = hn::MaxLanes(D());
  if (count >= kLanes) {
    Kernel::one(d, in, out);
    in += kLanes * Kernel::kIn, out += kLanes * Kernel::kOut, count -= kLanes;
  }
  if constexpr (kLanes > 1) rest<Kernel>(hn::Half<D>(), in, out, count);
}

/// Prefetch distance in bytes. Hardware prefetching alone keeps fewer loads in flight.
inline constexpr std::size_t kAhead = 1024;
/// Total size of input and output, in bytes, that fits in a first-level cache. Conversions that fit do not prefetch.
inline constexpr std::size_t kFirstCache = 32 << 10;

template <class Kernel, bool kPast>
HWY_NOINLINE void convert(const std::byte* in, std::byte* out, std::size_t count) {
  // d has as many lanes as a full vector of f32.
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
