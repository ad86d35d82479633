// Loops that reduce vectors of f8e4m3 and f8e5m2, the floats of 8 bits. The file also converts these elements to f32
// and back.
//
// A reduction works block by block. It converts (widens) the elements of a block to f32, and stores them in a buffer on
// the stack. The loops for f32 then combine the widened elements in rank order. Each result is rounded to 8 bits only
// once. The conversion is compiled once per instruction set, whereas the rest of this file is compiled once. Price: the
// widened elements are written to the first-level cache and read again.
#include "reduction/float8.hpp"

#include <algorithm>
#include <cstring>
#include <span>

#include "reduction/dispatch.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "reduction/float8.cpp"
#include <hwy/foreach_target.h>

#include "reduction/formats.hpp"

HWY_BEFORE_NAMESPACE();
namespace collectives::HWY_NAMESPACE {

/// Converts `count` elements: from f32 if kNarrow is set, otherwise to f32. Converts most elements in vector registers,
/// whose length tag D selects. Converts the last elements in shorter registers.
template <class Format, bool kNarrow, class D>
HWY_INLINE void convert_all(D d, const std::byte* from, std::byte* to, std::size_t count) {
  constexpr std::size_t kLanes = hn::MaxLanes(D());
  constexpr std::size_t kIn = kNarrow ? sizeof(float) : 1, kOut = kNarrow ? 1 : sizeof(float);
  for (; count >= kLanes; count -= kLanes, from += kLanes * kIn, to += kLanes * kOut) {
    if constexpr (kNarrow) {
      store(d, Format::narrow(d, load(Floats<D>(), from)), to);
    } else {
      store(Floats<D>(), Format::widen(d, load(d, from)), to);
    }
  }
  if constexpr (kLanes > 1) convert_all<Format, kNarrow>(hn::Half<D>(), from, to, count);
}

template <bool kNarrow>
void convert_float8(DataType type, const std::byte* from, std::byte* to, std::size_t count) {
  const hn::Rebind<std::uint8_t, hn::ScalableTag<float>> d;
  if (type == DataType::f8e4m3) return convert_all<Float8E4M3, kNarrow>(d, from, to, count);
  convert_all<Float8E5M2, kNarrow>(d, from, to, count);
}
void widen_bytes(DataType type, const std::byte* from, std::byte* to, std::size_t count) {
  convert_float8<false>(type, from, to, count);
}
void narrow_bytes(DataType type, const std::byte* from, std::byte* to, std::size_t count) {
  convert_float8<true>(type, from, to, count);
}

}  // namespace collectives::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace collectives {

HWY_EXPORT(widen_bytes);
HWY_EXPORT(narrow_bytes);

void widen_float8(DataType type, const std::byte* from, float* to, std::size_t count) noexcept {
  HWY_DYNAMIC_DISPATCH(widen_bytes)(type, from, reinterpret_cast<std::byte*>(to), count);
}
void narrow_float8(DataType type, const float* from, std::byte* to, std::size_t count) noexcept {
  HWY_DYNAMIC_DISPATCH(narrow_bytes)(type, reinterpret_cast<const std::byte*>(from), to, count);
}

namespace {

constexpr std::size_t kElements = 512, kSourcesAtOnce = 8;

FoldLoop loop_of_f32(ReduceOp::Kind kind) noexcept {
  const bool extreme = kind == ReduceOp::Kind::min || kind == ReduceOp::Kind::max;
  return extreme ? loop_of_min_max(kind, DataType::f32) : loop_of_floats(kind, DataType::f32);
}

/// Combines the elements [begin, begin + count) of all sources in f32. Widens at most kSourcesAtOnce sources at a time
/// into the rows of `values`. The first row holds the result. An average is divided after the last source.
void fold_widened(ReduceOp::Kind kind, DataType type, const Operands& all, std::size_t begin, std::size_t count,
                  float (&values)[kSourcesAtOnce][kElements]) {
  const auto bytes = [&](std::size_t row) { return reinterpret_cast<std::byte*>(values[row]); };
  Source sources[kSourcesAtOnce] = {{bytes(0), false}};
  std::size_t rows = 0;
  for (std::size_t s = 0; s < all.sources.size();) {
    for (; rows < kSourcesAtOnce && s < all.sources.size(); ++rows, ++s) {
      widen_float8(type, all.sources[s].data + begin, values[rows], count);
      sources[rows] = {bytes(rows), all.sources[s].unreduced};
    }
    const bool last = s == all.sources.size();
    std::byte* const out = bytes(0);
    const FoldLoop loop = loop_of_f32(last || kind != ReduceOp::Kind::average ? kind : ReduceOp::Kind::sum);
    loop({{sources, rows}, {&out, 1}, {}, count, all.factor, all.ranks});
    sources[0].unreduced = false;
    rows = 1;
  }
}

template <ReduceOp::Kind kKind, DataType kType>
void fold_float8(const Operands& all) {
  alignas(kLine) float values[kSourcesAtOnce][kElements];
  for (std::size_t begin = 0; begin < all.count; begin += kElements) {
    const std::size_t count = std::min(kElements, all.count - begin);
    fold_widened(kKind, kType, all, begin, count, values);
    std::byte result[kElements];
    narrow_float8(kType, values[0], result, count);
    for (const auto& outs : {all.outs, all.streamed}) {
      for (std::byte* const out : outs) std::memcpy(out + begin, result, count);
    }
  }
}

template <ReduceOp::Kind kKind>
FoldLoop loop_of_kind(DataType type) {
  return type == DataType::f8e4m3 ? fold_float8<kKind, DataType::f8e4m3> : fold_float8<kKind, DataType::f8e5m2>;
}

}  // namespace

FoldLoop loop_of_float8(ReduceOp::Kind kind, DataType type) noexcept {
  using Kind = ReduceOp::Kind;
  switch (kind) {
    case Kind::sum: return loop_of_kind<Kind::sum>(type);
    case Kind::average: return loop_of_kind<Kind::average>(type);
    case Kind::product: return loop_of_kind<Kind::product>(type);
    case Kind::min: return loop_of_kind<Kind::min>(type);
    case Kind::max: return loop_of_kind<Kind::max>(type);
    default: return loop_of_kind<Kind::pre_scaled_sum>(type);
  }
}

}  // namespace collectives
#endif
