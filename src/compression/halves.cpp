// f32 as bf16 or f16, two bytes an element.
//
// One loop for both directions and both formats: four vectors of f32 at a time, then single ones, then smaller ones.
// There is little to compute, so what counts is that bytes move: what is too long for the caches to keep is stored past
// them, in whole lines, which saves reading what is overwritten.
#include "compression/kernels.hpp"
#include "reduction/family.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "compression/halves.cpp"
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

/// bf16 of what is no NaN, which takes less.
struct BrainNumber {};

#if HWY_TARGET != HWY_SCALAR  // whose vectors have one lane and cannot be combined
/// Two vectors as one.
template <class D>
HWY_INLINE auto narrow_two(HalfFloat format, D d, hn::Vec<Floats<D>> low, hn::Vec<Floats<D>> high) {
  return hn::Combine(hn::Twice<D>(), format.narrow(d, high), format.narrow(d, low));
}
template <class D>
HWY_INLINE auto upper_halves(D, hn::Vec<Words<D>> low, hn::Vec<Words<D>> high) {
  const hn::Twice<D> d;
  return hn::ConcatOdd(d, hn::BitCast(d, high), hn::BitCast(d, low));
}
template <class D>
HWY_INLINE auto narrow_two(BrainFloat format, D d, hn::Vec<Floats<D>> low, hn::Vec<Floats<D>> high) {
  return upper_halves(d, format.round(Words<D>(), low), format.round(Words<D>(), high));
}
template <class D>
HWY_INLINE auto narrow_two(BrainNumber, D d, hn::Vec<Floats<D>> low, hn::Vec<Floats<D>> high) {
  return upper_halves(d, BrainFloat::round_number(Words<D>(), low), BrainFloat::round_number(Words<D>(), high));
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
  static HWY_INLINE void four(D, const std::byte* in, std::byte* out) {
    const Floats<D> d;
    hn::Vec<Floats<D>> value[4];
    for (std::size_t v = 0; v < 4; ++v) value[v] = load(d, in + v * kBytes<Floats<D>>);
    if constexpr (std::is_same_v<Format, BrainFloat>) {
      // A NaN anywhere makes the sum NaN. So may infinities, which does no harm.
      const auto sum = hn::Add(hn::Add(value[0], value[1]), hn::Add(value[2], value[3]));
      if (HWY_LIKELY(hn::AllFalse(d, hn::IsNaN(sum)))) return narrow_four<BrainNumber, kPast, D>(value, out);
    }
    narrow_four<Format, kPast, D>(value, out);
  }

 private:
  template <class As, bool kPast, class D>
  static HWY_INLINE void narrow_four(const hn::Vec<Floats<D>> (&value)[4], std::byte* out) {
    put<kPast>(hn::Twice<D>(), narrow_two(As(), D(), value[0], value[1]), out);
    put<kPast>(hn::Twice<D>(), narrow_two(As(), D(), value[2], value[3]), out + kBytes<Floats<D>>);
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

template <class Kernel, bool kPast>
HWY_NOINLINE void convert(const std::byte* in, std::byte* out, std::size_t count) {
  // As many elements as fill a vector once they are f32.
  const hn::Rebind<std::uint16_t, hn::ScalableTag<float>> d;
  constexpr std::size_t kLanes = hn::MaxLanes(d);
  if constexpr (kLanes > 1) {
    for (constexpr std::size_t kStep = 4 * kLanes; count >= kStep; count -= kStep) {
      if (count * Kernel::kIn > kAhead + kStep * Kernel::kIn) {
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

void encode_halves(DataType type, std::span<const float> values, std::byte* wire) noexcept {
  HWY_DYNAMIC_DISPATCH(narrow_all)(type, std::as_bytes(values).data(), wire, values.size());
}
void decode_halves(DataType type, const std::byte* wire, std::span<float> values) noexcept {
  HWY_DYNAMIC_DISPATCH(widen_all)(type, wire, std::as_writable_bytes(values).data(), values.size());
}

}  // namespace collectives
#endif
