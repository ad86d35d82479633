// Loop of the roofline, the bound with which collectives_bench compares a collective. The loop adds vectors and stores
// the sum to all destinations. The library Highway compiles the loop for each instruction set, and selects one version
// at run time.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "collectives_bench/roofline_kernel.cpp"
#include <hwy/foreach_target.h>  // includes this file again for each instruction set (target)
//
#include <hwy/cache_control.h>
#include <hwy/highway.h>

#include <cstddef>
#include <cstdint>
#include <span>

#include "collectives_bench/roofline.hpp"

HWY_BEFORE_NAMESPACE();
namespace collectives::bench::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;
using Sources = std::span<const std::byte* const>;
using Destinations = std::span<std::byte* const>;

constexpr hn::CappedTag<std::uint64_t, 8> kTag;  // registers of 64-bit integers, at most as long as a cache line

HWY_INLINE auto load(const std::byte* from) { return hn::Load(kTag, reinterpret_cast<const std::uint64_t*>(from)); }

template <bool kNonTemporal, class Vector>
HWY_INLINE void store(Vector vector, std::byte* to) {
  auto* const words = reinterpret_cast<std::uint64_t*>(to);
  if constexpr (kNonTemporal) {
    hn::Stream(vector, kTag, words);
  } else {
    hn::Store(vector, kTag, words);
  }
}

/// Adds four registers of each source at a time, so that their loads overlap in time.
template <bool kNonTemporal>
HWY_INLINE void sum(Sources sources, Destinations destinations, std::size_t offset, std::size_t bytes) {
  const std::size_t vector = hn::Lanes(kTag) * sizeof(std::uint64_t), end = offset + bytes;
  std::size_t at = offset;
  for (; at + 4 * vector <= end; at += 4 * vector) {
    auto a = load(sources[0] + at), b = load(sources[0] + at + vector), c = load(sources[0] + at + 2 * vector),
         d = load(sources[0] + at + 3 * vector);
    for (const std::byte* source : sources.subspan(1)) {
      a = hn::Add(a, load(source + at));
      b = hn::Add(b, load(source + at + vector));
      c = hn::Add(c, load(source + at + 2 * vector));
      d = hn::Add(d, load(source + at + 3 * vector));
    }
    for (std::byte* destination : destinations) {
      store<kNonTemporal>(a, destination + at);
      store<kNonTemporal>(b, destination + at + vector);
      store<kNonTemporal>(c, destination + at + 2 * vector);
      store<kNonTemporal>(d, destination + at + 3 * vector);
    }
  }
  for (; at < end; at += vector) {
    auto a = load(sources[0] + at);
    for (const std::byte* source : sources.subspan(1)) a = hn::Add(a, load(source + at));
    for (std::byte* destination : destinations) store<kNonTemporal>(a, destination + at);
  }
}

void sum_plain(Sources sources, Destinations destinations, std::size_t offset, std::size_t bytes) {
  sum<false>(sources, destinations, offset, bytes);
}

void sum_non_temporal(Sources sources, Destinations destinations, std::size_t offset, std::size_t bytes) {
  sum<true>(sources, destinations, offset, bytes);
  hwy::FlushStream();
}

}  // namespace collectives::bench::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace collectives::bench {

HWY_EXPORT(sum_plain);
HWY_EXPORT(sum_non_temporal);

void sum_lines(std::span<const std::byte* const> sources, std::span<std::byte* const> destinations, std::size_t offset,
               std::size_t bytes, Stores stores) {
  if (stores == Stores::plain) {
    HWY_DYNAMIC_DISPATCH(sum_plain)(sources, destinations, offset, bytes);
  } else {
    HWY_DYNAMIC_DISPATCH(sum_non_temporal)(sources, destinations, offset, bytes);
  }
}

}  // namespace collectives::bench
#endif
