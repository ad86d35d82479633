// The loop that reduces elements, and the arithmetic of sum, average, product and pre_scaled_sum. The loop works with
// vector registers, whose length depends on the CPU. A lane is one element of such a register.
//
// Sources are the vectors that are combined, and outs are the destinations of the result. Each turn of the loop loads
// four registers from the first source. It combines them with the same elements of all other sources, and stores the
// result to all outs. The four loads run at the same time, which suffices to use the whole bandwidth of the memory. The
// last elements may not fill four registers. The loop then uses shorter registers, or a register that overlaps the one
// before it, so that no access is out of bounds. It loads both overlapping registers before it stores either of them,
// because an out may also be a source.
//
// A kernel is a class with the arithmetic of one op on one element type. It has two types and three functions:
//
//   Stored                       an element in memory, as a lane
//   Wide                         the type in which elements are combined
//   term(d, stored, unreduced)   vector of Stored -> vector of Wide; `unreduced`: see Source in reduction.hpp
//   combine(a, b)                Wide x Wide -> Wide; `a` comes before `b` in the order of the sources
//   result(d, value)             vector of Wide -> vector of Stored
//
// A vector is the content of one register. The argument d is a tag, an empty object of the library Highway. Its type
// selects the element type and the length of the vector of Stored. A kernel is constructed from the operands, or
// without arguments.
//
// Highway includes this file once per instruction set, so the file has an include guard for each of them. At run time,
// the library chooses the loops for the instruction set of the CPU. All instruction sets give the same bits, because
// operations are neither reordered nor fused (-ffp-contract=off). Only the payload bits of a NaN may differ, if several
// NaN are combined.
//
// Price: the build requires Highway. The choice at run time takes some 3 ns per call.
#if defined(COLLECTIVES_REDUCTION_LOOPS) == defined(HWY_TARGET_TOGGLE)
#ifdef COLLECTIVES_REDUCTION_LOOPS
#undef COLLECTIVES_REDUCTION_LOOPS
#else
#define COLLECTIVES_REDUCTION_LOOPS
#endif

#include <hwy/cache_control.h>
#include <hwy/highway.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "reduction/dispatch.hpp"
#include "reduction/formats.hpp"

HWY_BEFORE_NAMESPACE();
namespace collectives::HWY_NAMESPACE {

/// Whether a kernel gets additional loops with fixed numbers of sources and outs, because it is used often.
template <class Kernel>
inline constexpr bool kIsOften = false;

/// Loop with its operands. Sources, Outs and Streamed are spans or arrays. Streamed are the outs that are stored by
/// streaming stores, which bypass the caches. If they are arrays, the compiler knows their lengths and unrolls the
/// loops over them.
template <class Kernel, class Sources, class Outs, class Streamed>
class Loop {
  using Stored = typename Kernel::Stored;
  using Wide = typename Kernel::Wide;
  /// Tag for the number of elements that, after widening, fill one register.
  using Elements = hn::Rebind<Stored, hn::ScalableTag<Wide>>;
  static constexpr std::size_t kLanes = hn::MaxLanes(Elements());
  static constexpr std::size_t kAtOnce = 4;                     // vectors per iteration
  static constexpr std::size_t kAhead = 1024 / sizeof(Stored);  // prefetch distance in elements; saves 10 % if data are
                                                                // in the second-level cache

 public:
  Loop(const Kernel& kernel, const Sources& sources, const Outs& outs, const Streamed& streamed)
      : kernel_(kernel), sources_(sources), outs_(outs), streamed_(streamed) {}

  HWY_INLINE void run(std::size_t begin, std::size_t end) const {
    for (; end - begin >= kAtOnce * kLanes; begin += kAtOnce * kLanes) {
      if (end - begin > kAhead) prefetch(begin + kAhead);
      vectors<kAtOnce>(Elements(), begin, kLanes);
    }
    for (; end - begin >= 2 * kLanes; begin += 2 * kLanes) vectors<2>(Elements(), begin, kLanes);
    rest(Elements(), begin, end - begin);
  }

 private:
  /// Processes elements that fill less than two registers: by two registers that overlap, or by shorter registers.
  template <class D>
  HWY_INLINE void rest(D d, std::size_t begin, std::size_t count) const {
    constexpr std::size_t kHere = hn::MaxLanes(D());
    if constexpr (kHere == 1) {
      if (count == 1) vectors<1>(d, begin, 1);
    } else if (count >= kHere) {
      vectors<2>(d, begin, count - kHere);
    } else {
      rest(hn::Half<D>(), begin, count);
    }
  }

  /// Processes kVectors vectors. Each begins `step` elements after the previous one.
  template <std::size_t kVectors, class D>
  HWY_INLINE void vectors(D d, std::size_t begin, std::size_t step) const {
    const Source* source = sources_.data();
    const Source* const sources_end = source + sources_.size();
    hn::Vec<hn::Rebind<Wide, D>> value[kVectors];
    for (std::size_t v = 0; v < kVectors; ++v) value[v] = term(d, *source, begin + v * step);
    while (++source != sources_end) {
      for (std::size_t v = 0; v < kVectors; ++v) {
        value[v] = kernel_.combine(value[v], term(d, *source, begin + v * step));
      }
    }
    hn::Vec<D> result[kVectors];
    for (std::size_t v = 0; v < kVectors; ++v) result[v] = kernel_.result(d, value[v]);
    for (std::byte* const out : outs_) {
      for (std::size_t v = 0; v < kVectors; ++v) store(d, result[v], out + (begin + v * step) * sizeof(Stored));
    }
    for (std::byte* const out : streamed_) {
      for (std::size_t v = 0; v < kVectors; ++v) {
        std::byte* const to = out + (begin + v * step) * sizeof(Stored);
        if constexpr (kVectors == kAtOnce && kBytes<D> >= 16) {
          hn::Stream(result[v], d, reinterpret_cast<Stored*>(to));
        } else {
          store(d, result[v], to);
        }
      }
    }
  }

  template <class D>
  HWY_INLINE auto term(D d, const Source& source, std::size_t begin) const {
    return kernel_.term(d, load(d, source.data + begin * sizeof(Stored)), source.unreduced);
  }

  HWY_INLINE void prefetch(std::size_t begin) const {
    for (const Source& source : sources_) {
      for (std::size_t byte = 0; byte < kAtOnce * kBytes<Elements>; byte += kLine) {
        hwy::Prefetch(source.data + begin * sizeof(Stored) + byte);
      }
    }
  }

  // Copies of the operands. No store through a pointer can change them, so they stay in registers.
  const Kernel kernel_;
  const Sources sources_;
  const Outs outs_;
  const Streamed streamed_;
};

/// Combines the elements [begin, end) of all sources of `all`, and stores them to all its outs.
template <class Kernel>
HWY_NOINLINE void run(const Kernel& kernel, const Operands& all, std::size_t begin, std::size_t end) {
  Loop(kernel, all.sources, all.outs, all.streamed).run(begin, end);
}

/// Does the work of run() for fixed numbers of sources and outs.
///
/// Each instance has its own load instructions, one per source. A CPU recognizes a sequence of loads to prefetch by its
/// load instruction. A source that is read piece by piece is thus prefetched in time, also at the beginning of a piece.
template <std::size_t kSources, std::size_t kOuts, std::size_t kStreamed, class Kernel>
HWY_NOINLINE void run_these(const Kernel& kernel, const Operands& all, std::size_t begin, std::size_t end) {
  std::array<Source, kSources> sources;
  std::array<std::byte*, kOuts> outs;
  std::array<std::byte*, kStreamed> streamed;
  std::ranges::copy(all.sources, sources.begin());
  std::ranges::copy(all.outs, outs.begin());
  std::ranges::copy(all.streamed, streamed.begin());
  Loop(kernel, sources, outs, streamed).run(begin, end);
}

template <class Kernel>
using Run = void (*)(const Kernel&, const Operands&, std::size_t begin, std::size_t end);

/// Returns the best loop for `all`. Kernels that are often used have additional loops, for collectives of two ranks of
/// a host.
template <class Kernel>
Run<Kernel> best_run(const Operands& all) {
  if constexpr (kIsOften<Kernel>) {
    const std::size_t outs = all.outs.size(), streamed = all.streamed.size();
    if (all.sources.size() == 1) {
      if (outs == 1 && streamed == 0) return run_these<1, 1, 0, Kernel>;
      if (outs == 0 && streamed == 1) return run_these<1, 0, 1, Kernel>;
    } else if (all.sources.size() == 2) {
      if (outs == 1 && streamed == 0) return run_these<2, 1, 0, Kernel>;
      if (outs == 0 && streamed == 1) return run_these<2, 0, 1, Kernel>;
      if (outs == 1 && streamed == 1) return run_these<2, 1, 1, Kernel>;
      if (outs == 2 && streamed == 0) return run_these<2, 2, 0, Kernel>;
    }
  }
  return run<Kernel>;
}

template <class Kernel>
void run(const Kernel& kernel, const Operands& all) {
  constexpr std::size_t kSize = sizeof(typename Kernel::Stored);
  if (all.count * kSize < kLongVector) return run(kernel, all, 0, all.count);
  // A long loop first processes the elements before a cache line of an out. Only whole lines can be stored past the
  // caches, and an access within one line is faster.
  const std::size_t lead = to_next_line(all.streamed.empty() ? all.outs[0] : all.streamed[0]) / kSize;
  run(kernel, all, 0, lead);
  best_run<Kernel>(all)(kernel, all, lead, all.count);
}

/// Performs a whole reduction by `Kernel`. It is the FoldLoop of the kernel.
template <class Kernel>
void fold_by(const Operands& all) {
  if constexpr (std::is_constructible_v<Kernel, const Operands&>) {
    run(Kernel(all), all);
  } else {
    run(Kernel(), all);
  }
}

// Kernels over any format.

template <class Format>
struct Sum {
  using Stored = typename Format::Stored;
  using Wide = typename Format::Wide;
  template <class D>
  HWY_INLINE auto term(D d, hn::Vec<D> stored, bool) const {
    return Format::widen(d, stored);
  }
  template <class V>
  HWY_INLINE V combine(V a, V b) const {
    return hn::Add(a, b);
  }
  template <class D, class V>
  HWY_INLINE hn::Vec<D> result(D d, V value) const {
    return Format::narrow(d, value);
  }
};

template <class Format>
struct Mean : Sum<Format> {
  typename Format::Wide ranks;
  explicit Mean(const Operands& all) : ranks(static_cast<typename Format::Wide>(all.ranks)) {}
  template <class D, class V>
  HWY_INLINE hn::Vec<D> result(D d, V value) const {
    return Format::narrow(d, hn::Div(value, hn::Set(hn::DFromV<V>(), ranks)));
  }
};

template <class Format>
struct ScaledSum : Sum<Format> {
  typename Format::Wide factor;
  explicit ScaledSum(const Operands& all) : factor(static_cast<typename Format::Wide>(all.factor)) {}
  template <class D>
  HWY_INLINE auto term(D d, hn::Vec<D> stored, bool unreduced) const {
    auto value = Format::widen(d, stored);
    if (unreduced) value = hn::Mul(value, hn::Set(hn::DFromV<decltype(value)>(), factor));
    return value;
  }
};

template <class Format>
struct Product : Sum<Format> {
  template <class V>
  HWY_INLINE V combine(V a, V b) const {
    using D = hn::DFromV<V>;
    if constexpr (sizeof(hn::TFromD<D>) == 8 && hn::MaxLanes(D()) == 1) {
      return hn::Set(D(), hn::GetLane(a) * hn::GetLane(b));  // Highway multiplies 64-bit integers in pairs only
    } else {
      return hn::Mul(a, b);
    }
  }
};

template <>
inline constexpr bool kIsOften<Sum<Same<float>>> = true;
template <>
inline constexpr bool kIsOften<Mean<Same<float>>> = true;
template <>
inline constexpr bool kIsOften<Sum<Same<std::uint8_t>>> = true;

/// Returns the loop of a float format, or null for any other op.
template <class Format>
FoldLoop loop_of_format(ReduceOp::Kind kind) {
  switch (kind) {
    case ReduceOp::Kind::sum: return fold_by<Sum<Format>>;
    case ReduceOp::Kind::average: return fold_by<Mean<Format>>;
    case ReduceOp::Kind::pre_scaled_sum: return fold_by<ScaledSum<Format>>;
    case ReduceOp::Kind::product: return fold_by<Product<Format>>;
    default: return nullptr;
  }
}

}  // namespace collectives::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
