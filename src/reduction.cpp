// The loops. A reduction is put together from a format (how an element looks in memory, what it is while it is being
// combined, and the way between the two) and an operation on what the format widens to:
//
//   f32, f64              themselves
//   f16, bf16             float
//   integers              themselves without sign, so that overflow wraps; for averages something wider
//   floats in min, max    a signed integer that orders as the values do, NaN above all
//
// Up to four sources are read in step, combined in registers and stored once. With more, a block of widened elements
// that stays in the first-level cache stands in for the registers.
//
// The loops are written for the compiler's vectoriser and compiled twice, for any processor and for AVX2. The bits do
// not depend on which: nothing is reordered or fused, and conversions are exact or rounded by one rule.
#include "reduction.hpp"

#include <algorithm>
#include <bit>
#include <cassert>
#include <cstdint>
#include <cstring>
#include <limits>
#include <type_traits>
#include <utility>

// Tests build this file once more without the loops for AVX2.
#if defined(__x86_64__) && !defined(COLLECTIVES_PORTABLE_REDUCTION)
#define COLLECTIVES_AVX2_REDUCTION
#include <immintrin.h>
#endif

// What the loops are made of must become part of them, or it would not be compiled for their processor.
#define COLLECTIVES_INLINE inline __attribute__((always_inline))

namespace collectives {
namespace {

__extension__ using Int128 = __int128;

// Formats: Stored in memory, Wide while being combined.

template <class T, class W = T>
struct Number {
  using Stored = T;
  using Wide = W;
  static COLLECTIVES_INLINE Wide widen(Stored value) { return static_cast<Wide>(value); }
  static COLLECTIVES_INLINE Stored narrow(Wide value) { return static_cast<Stored>(value); }
};

struct BrainFloat {
  using Stored = std::uint16_t;
  using Wide = float;
  static COLLECTIVES_INLINE Wide widen(Stored bits) {
    return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
  }
  static COLLECTIVES_INLINE Stored narrow(Wide value) { return bfloat16(value).bits; }
};

/// float16, converted as in types.hpp, with choices in place of branches.
struct Half {
  using Stored = std::uint16_t;
  using Wide = float;

  static COLLECTIVES_INLINE std::uint32_t choose(bool condition, std::uint32_t yes, std::uint32_t no) {
    return no ^ ((yes ^ no) & (0u - static_cast<std::uint32_t>(condition)));
  }
  static COLLECTIVES_INLINE Wide widen(Stored bits) {
    const std::uint32_t sign = (bits & 0x8000u) << 16, magnitude = bits & 0x7fffu;
    const float denormal = static_cast<float>(static_cast<std::int32_t>(magnitude)) * 0x1p-24f;
    const std::uint32_t normal = (magnitude << 13) + choose(magnitude >= 0x7c00u, 0x70000000u, 0x38000000u);
    return std::bit_cast<float>(sign | choose(magnitude < 0x400u, std::bit_cast<std::uint32_t>(denormal), normal));
  }
  static COLLECTIVES_INLINE Stored narrow(Wide value) {
    const auto word = std::bit_cast<std::uint32_t>(value);
    const std::uint32_t magnitude = word & 0x7fffffffu;
    const std::uint32_t nan = 0x7e00u | ((magnitude >> 13) & 0x3ffu);
    const std::uint32_t normal = (magnitude - 0x38000000u + 0xfffu + ((magnitude >> 13) & 1u)) >> 13;
    // The last bit of a float between 1/2 and 1 is worth 2^-24, as that of a denormal float16: the addition rounds.
    const auto denormal = std::bit_cast<std::uint32_t>(std::bit_cast<float>(magnitude) + 0.5f) - 0x3f000000u;
    std::uint32_t half = choose(magnitude < 0x38800000u, denormal, normal);
    half = choose(magnitude >= 0x47800000u, 0x7c00u, half);
    half = choose(magnitude > 0x7f800000u, nan, half);
    return static_cast<Stored>(((word >> 16) & 0x8000u) | half);
  }
};

#if defined(COLLECTIVES_AVX2_REDUCTION)
/// Half, a block at a time by the processor's own conversions. They make a signalling NaN quiet one step earlier, which
/// every operation on it does anyway; all other bits are equal.
struct HardwareHalf : Half {
  static __attribute__((target("avx2,f16c"))) void widen_block(const std::byte* in, float* out, std::size_t count) {
    std::size_t i = 0;
    for (; i + 8 <= count; i += 8) {
      __m128i halves;
      std::memcpy(&halves, in + i * sizeof(Stored), sizeof(halves));
      _mm256_storeu_ps(out + i, _mm256_cvtph_ps(halves));
    }
    for (; i < count; ++i) {
      Stored bits;
      std::memcpy(&bits, in + i * sizeof(Stored), sizeof(Stored));
      out[i] = widen(bits);
    }
  }
  static __attribute__((target("avx2,f16c"))) void narrow_block(const float* in, std::byte* out, std::size_t count) {
    std::size_t i = 0;
    for (; i + 8 <= count; i += 8) {
      const __m128i halves = _mm256_cvtps_ph(_mm256_loadu_ps(in + i), _MM_FROUND_TO_NEAREST_INT);
      std::memcpy(out + i * sizeof(Stored), &halves, sizeof(halves));
    }
    for (; i < count; ++i) {
      const Stored bits = narrow(in[i]);
      std::memcpy(out + i * sizeof(Stored), &bits, sizeof(Stored));
    }
  }
};
#endif

/// The bits of a float as a signed integer that orders as the values do: -0 below +0, and every NaN as one canonical
/// quiet NaN above infinity. `kReversed` turns the order of the numbers round, so that the least has the greatest key.
template <class Key, Key kInfinity, Key kNan, bool kReversed>
struct Ordered {
  using Stored = Key;
  using Wide = Key;
  static constexpr Key kMagnitude = std::numeric_limits<Key>::max();

  /// Negative numbers count downwards. Its own inverse.
  static COLLECTIVES_INLINE Key flip(Key bits) {
    return static_cast<Key>(bits ^ ((bits >> (8 * sizeof(Key) - 1)) & kMagnitude));
  }
  static COLLECTIVES_INLINE Wide widen(Stored bits) {
    const Key key = kReversed ? static_cast<Key>(~flip(bits)) : flip(bits);
    return (bits & kMagnitude) > kInfinity ? kNan : key;
  }
  static COLLECTIVES_INLINE Stored narrow(Wide key) {
    const Key bits = flip(kReversed ? static_cast<Key>(~key) : key);
    return key == kNan ? kNan : bits;
  }
};
template <bool kReversed>
using OrderedF32 = Ordered<std::int32_t, 0x7f800000, 0x7fc00000, kReversed>;
template <bool kReversed>
using OrderedF64 = Ordered<std::int64_t, 0x7ff0000000000000, 0x7ff8000000000000, kReversed>;
template <bool kReversed>
using OrderedF16 = Ordered<std::int16_t, 0x7c00, 0x7e00, kReversed>;
template <bool kReversed>
using OrderedBf16 = Ordered<std::int16_t, 0x7f80, 0x7fc0, kReversed>;

// Operations on what a format widens to.

struct Add {
  template <class T>
  static COLLECTIVES_INLINE T combine(T a, T b) {
    return static_cast<T>(a + b);
  }
};
struct Multiply {
  template <class T>
  static COLLECTIVES_INLINE T combine(T a, T b) {
    return static_cast<T>(a * b);
  }
};
struct Greater {
  template <class T>
  static COLLECTIVES_INLINE T combine(T a, T b) {
    return a > b ? a : b;
  }
};
struct Lesser {
  template <class T>
  static COLLECTIVES_INLINE T combine(T a, T b) {
    return a < b ? a : b;
  }
};

/// What happens besides: nothing, a factor on every raw source, a division of the result.
enum class Extra { none, scale, divide };

struct Operands {
  std::span<const Source> sources;
  std::byte* out;
  std::size_t count;  // elements
  double factor;      // of Extra::scale
  int ranks;          // divisor of Extra::divide
};

template <class Format, class Operation, Extra kExtra>
struct Loops {
  using Stored = typename Format::Stored;
  using Wide = typename Format::Wide;
  static constexpr std::size_t kBlock = 4096 / sizeof(Wide);  // elements

  static COLLECTIVES_INLINE Wide load(const std::byte* data, std::size_t i, Wide scale) {
    Stored stored;
    std::memcpy(&stored, data + i * sizeof(Stored), sizeof(Stored));
    const Wide value = Format::widen(stored);
    if constexpr (kExtra == Extra::scale) return value * scale;
    return value;
  }
  static COLLECTIVES_INLINE Wide finished(Wide value, Wide divisor) {
    if constexpr (kExtra == Extra::divide) return value / divisor;
    return value;
  }
  static COLLECTIVES_INLINE void store(std::byte* out, std::size_t i, Wide value) {
    const Stored stored = Format::narrow(value);
    std::memcpy(out + i * sizeof(Stored), &stored, sizeof(Stored));
  }
  /// A partial result has its factor already; times one is itself.
  static COLLECTIVES_INLINE Wide scale_of(const Source& source, const Operands& all) {
    return source.raw ? static_cast<Wide>(all.factor) : Wide{1};
  }

  /// sources[0] . sources[1] . ..., all of them, straight to the result.
  template <std::size_t... kNext>
  static COLLECTIVES_INLINE void in_registers(const Operands& all, std::index_sequence<0, kNext...>) {
    const Source* const sources = all.sources.data();
    const std::byte* const data[] = {sources[0].data, sources[kNext].data...};
    const Wide scale[] = {scale_of(sources[0], all), scale_of(sources[kNext], all)...};
    const Wide divisor = static_cast<Wide>(all.ranks);
    std::byte* const out = all.out;
    const std::size_t count = all.count;
#pragma GCC ivdep  // `out` may be a source: element i is read before it is written, and no other touches it
    for (std::size_t i = 0; i < count; ++i) {
      Wide value = load(data[0], i, scale[0]);
      ((value = Operation::combine(value, load(data[kNext], i, scale[kNext]))), ...);
      store(out, i, finished(value, divisor));
    }
  }

  /// block = block . sources[0] . sources[1] . ..., without the block when `kStart`.
  template <bool kStart, std::size_t... kNext>
  static COLLECTIVES_INLINE void into_block(Wide* block, const Source* sources, std::size_t begin, std::size_t count,
                                            const Operands& all, std::index_sequence<0, kNext...>) {
    const std::size_t offset = begin * sizeof(Stored);
    const std::byte* const data[] = {sources[0].data + offset, (sources[kNext].data + offset)...};
    const Wide scale[] = {scale_of(sources[0], all), scale_of(sources[kNext], all)...};
    for (std::size_t i = 0; i < count; ++i) {
      Wide value = load(data[0], i, scale[0]);
      if constexpr (!kStart) value = Operation::combine(block[i], value);
      ((value = Operation::combine(value, load(data[kNext], i, scale[kNext]))), ...);
      block[i] = value;
    }
  }

  static COLLECTIVES_INLINE void in_blocks(const Operands& all) {
    Wide block[kBlock];
    const Wide divisor = static_cast<Wide>(all.ranks);
    const Source* const sources = all.sources.data();
    for (std::size_t begin = 0; begin < all.count; begin += kBlock) {
      const std::size_t count = std::min(kBlock, all.count - begin);
      into_block<true>(block, sources, begin, count, all, std::make_index_sequence<4>{});
      std::size_t done = 4;
      for (; done + 4 <= all.sources.size(); done += 4) {
        into_block<false>(block, sources + done, begin, count, all, std::make_index_sequence<4>{});
      }
      for (; done < all.sources.size(); ++done) {
        into_block<false>(block, sources + done, begin, count, all, std::make_index_sequence<1>{});
      }
      std::byte* const out = all.out + begin * sizeof(Stored);
      for (std::size_t i = 0; i < count; ++i) store(out, i, finished(block[i], divisor));
    }
  }

  /// For formats that convert a block at a time.
  static COLLECTIVES_INLINE void in_converted_blocks(const Operands& all) {
    Wide block[kBlock], next[kBlock];
    const Wide divisor = static_cast<Wide>(all.ranks);
    for (std::size_t begin = 0; begin < all.count; begin += kBlock) {
      const std::size_t count = std::min(kBlock, all.count - begin), offset = begin * sizeof(Stored);
      for (const Source& source : all.sources) {
        const bool first = &source == all.sources.data();
        Format::widen_block(source.data + offset, first ? block : next, count);
        if constexpr (kExtra == Extra::scale) {
          const Wide scale = scale_of(source, all);
          for (std::size_t i = 0; i < count; ++i) (first ? block : next)[i] *= scale;
        }
        if (first) continue;
        for (std::size_t i = 0; i < count; ++i) block[i] = Operation::combine(block[i], next[i]);
      }
      for (std::size_t i = 0; i < count; ++i) block[i] = finished(block[i], divisor);
      Format::narrow_block(block, all.out + offset, count);
    }
  }

  static COLLECTIVES_INLINE void run(const Operands& all) {
    if constexpr (requires { &Format::widen_block; }) {
      in_converted_blocks(all);
    } else {
      switch (all.sources.size()) {
        case 1: return in_registers(all, std::make_index_sequence<1>{});
        case 2: return in_registers(all, std::make_index_sequence<2>{});
        case 3: return in_registers(all, std::make_index_sequence<3>{});
        case 4: return in_registers(all, std::make_index_sequence<4>{});
        default: return in_blocks(all);
      }
    }
  }
};

#if defined(COLLECTIVES_AVX2_REDUCTION)
template <class Format, class Operation, Extra kExtra>
__attribute__((target("avx2,f16c"))) void run_with_avx2(const Operands& all) {
  using Faster = std::conditional_t<std::is_same_v<Format, Half>, HardwareHalf, Format>;
  Loops<Faster, Operation, kExtra>::run(all);
}
#endif

template <class Format, class Operation, Extra kExtra = Extra::none>
void run(const Operands& all) {
#if defined(COLLECTIVES_AVX2_REDUCTION)
  // Every processor that has AVX2 has F16C.
  if (__builtin_cpu_supports("avx2")) return run_with_avx2<Format, Operation, kExtra>(all);
#endif
  Loops<Format, Operation, kExtra>::run(all);
}

template <class Format, template <bool> class Order>
void fold_floats(ReduceOp::Kind kind, const Operands& all) {
  switch (kind) {
    case ReduceOp::Kind::sum: return run<Format, Add>(all);
    case ReduceOp::Kind::average: return run<Format, Add, Extra::divide>(all);
    case ReduceOp::Kind::pre_scaled_sum: return run<Format, Add, Extra::scale>(all);
    case ReduceOp::Kind::product: return run<Format, Multiply>(all);
    case ReduceOp::Kind::min: return run<Order<true>, Greater>(all);
    case ReduceOp::Kind::max: return run<Order<false>, Greater>(all);
    case ReduceOp::Kind::user: break;
  }
  assert(false && "a user op has loops of its own");
}

/// `Mean` holds the sum of one T from every rank exactly, and its quotient truncates to the exact one's integer.
template <class T, class Mean>
void fold_integers(ReduceOp::Kind kind, const Operands& all) {
  using Wrapping = Number<std::make_unsigned_t<T>>;
  switch (kind) {
    case ReduceOp::Kind::sum: return run<Wrapping, Add>(all);
    case ReduceOp::Kind::average: return run<Number<T, Mean>, Add, Extra::divide>(all);
    case ReduceOp::Kind::product: return run<Wrapping, Multiply>(all);
    case ReduceOp::Kind::min: return run<Number<T>, Lesser>(all);
    case ReduceOp::Kind::max: return run<Number<T>, Greater>(all);
    case ReduceOp::Kind::pre_scaled_sum:
    case ReduceOp::Kind::user: break;
  }
  assert(false && "supports() says that integers have no such op");
}

/// Combines in a block of its own, so that `out` may be any of the sources, and hands the user aligned elements only.
void fold_by_user(const UserOp& op, DataType type, const Operands& all) {
  constexpr std::size_t kBlockBytes = 8192;
  alignas(64) std::byte accumulated[kBlockBytes];
  alignas(64) std::byte aligned[kBlockBytes];
  const std::size_t size = size_of(type), block = kBlockBytes / size;
  for (std::size_t begin = 0; begin < all.count; begin += block) {
    const std::size_t count = std::min(block, all.count - begin), offset = begin * size;
    std::memcpy(accumulated, all.sources.front().data + offset, count * size);
    for (const Source& source : all.sources.subspan(1)) {
      const std::byte* next = source.data + offset;
      if (reinterpret_cast<std::uintptr_t>(next) % size != 0) {
        std::memcpy(aligned, next, count * size);
        next = aligned;
      }
      op.combine(next, accumulated, count, type);
    }
    std::memcpy(all.out + offset, accumulated, count * size);
  }
}

}  // namespace

void fold(const ReduceOp& op, DataType type, std::span<const Source> sources, std::byte* out, std::size_t count,
          int finish_ranks) {
  assert(!sources.empty() && supports(type, op));
  if (count == 0) return;
  const Operands all{sources, out, count, op.factor(), finish_ranks};
  if (op.kind() == ReduceOp::Kind::user) return fold_by_user(*op.user_op(), type, all);

  const bool unfinished_average = op.kind() == ReduceOp::Kind::average && finish_ranks == 0;
  const ReduceOp::Kind kind = unfinished_average ? ReduceOp::Kind::sum : op.kind();
  if (sources.size() == 1 && (kind == ReduceOp::Kind::sum || kind == ReduceOp::Kind::product)) {
    if (out != sources[0].data) std::memcpy(out, sources[0].data, count * size_of(type));
    return;
  }
  // A double holds the sum of 2^21 32-bit integers, and dividing integers below 2^53 cannot round up to the next one.
  switch (type) {
    case DataType::f32: return fold_floats<Number<float>, OrderedF32>(kind, all);
    case DataType::f64: return fold_floats<Number<double>, OrderedF64>(kind, all);
    case DataType::f16: return fold_floats<Half, OrderedF16>(kind, all);
    case DataType::bf16: return fold_floats<BrainFloat, OrderedBf16>(kind, all);
    case DataType::i8: return fold_integers<std::int8_t, double>(kind, all);
    case DataType::u8: return fold_integers<std::uint8_t, double>(kind, all);
    case DataType::i32: return fold_integers<std::int32_t, double>(kind, all);
    case DataType::u32: return fold_integers<std::uint32_t, double>(kind, all);
    case DataType::i64: return fold_integers<std::int64_t, Int128>(kind, all);
    case DataType::u64: return fold_integers<std::uint64_t, Int128>(kind, all);
  }
}

void fold(const ReduceOp& op, DataType type, std::span<const Source> sources, std::span<std::byte* const> outs,
          std::size_t count, int finish_ranks) {
  if (outs.empty()) return;
  fold(op, type, sources, outs[0], count, finish_ranks);
  for (std::byte* out : outs.subspan(1)) std::memcpy(out, outs[0], count * size_of(type));
}

void copy(std::span<std::byte* const> outs, const std::byte* in, std::size_t bytes) {
  for (std::byte* out : outs)
    if (out != in) std::memcpy(out, in, bytes);
}

bool needs_direct(const ReduceOp& op, DataType type, bool deterministic) noexcept {
  switch (op.kind()) {
    case ReduceOp::Kind::min:
    case ReduceOp::Kind::max: return false;
    case ReduceOp::Kind::user:
      if (!op.user_op()->commutative) return true;
      break;
    case ReduceOp::Kind::average:
      if (!is_floating(type)) return true;
      break;
    case ReduceOp::Kind::sum:
    case ReduceOp::Kind::product:
    case ReduceOp::Kind::pre_scaled_sum: break;
  }
  return size_of(type) == 2 || (deterministic && is_floating(type));
}

}  // namespace collectives
