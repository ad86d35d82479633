// Folds: the arithmetic of collectives. A fold combines several sources element by element, in the given order. It
// writes the result to one or more outs (destinations).
//
// A fold adds 16-bit and 8-bit floats in f32, and rounds each result once. It adds integers for an average in a wider
// type, and truncates each result once. It multiplies inputs of pre_scaled_sum by the op's factor once. It divides the
// sum of an average once. The built-in ops give the same bits on all CPUs, except in the payload of a NaN.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "collectives/types.hpp"

namespace collectives {

/// Source: one operand of a fold. `unreduced` is true for a contribution, the input of a rank. It is false for a
/// partial result of an earlier fold. A partial result of pre_scaled_sum is already multiplied by the factor. A partial
/// result of an average is not divided yet.
struct Source {
  const std::byte* data = nullptr;
  bool unreduced = true;
};

/// Kind of stores for the result:
///
///   cached               by normal stores
///   streaming            by stores that bypass the caches, for results too long to stay in them
///   streaming_but_first  the first out by normal stores, the other outs by streaming ones
///
/// After a fold with streaming stores, call fence_streams(). Otherwise later stores may become visible before the
/// streaming ones.
///
/// Some outs always get normal stores: outs shorter than 4 KiB (kLongVector), and outs that are also sources. An out
/// also gets normal stores if its offset within a cache line differs from that of the first streamed out. Normal stores
/// are also used for results of user ops, for averages of 64-bit integers, and by the loops of float8.cpp and
/// single_elements.cpp.
///
/// If a loop streams some outs, it stores the others by vector stores, never by memcpy(). The string instructions of
/// memcpy() would wait until all earlier streaming stores have completed.
enum class Stores : std::uint8_t { cached, streaming, streaming_but_first };

/// Makes the streaming stores of this thread visible before its later stores.
void fence_streams() noexcept;

/// Computes out[i] = sources[0][i] . sources[1][i] . ... for `count` elements and every out of `outs`. The dot is the
/// op, applied from left to right. `count` counts elements of the op, element_bytes_of(type, op) bytes each.
///
/// Loads each source once and stores the result to each out, in one pass. Requires at least one source and one out.
/// Pointers may be unaligned. An out may be equal to a source; other overlap is not allowed.
///
/// If `finish_ranks` > 0, the result is complete: an average is divided by `finish_ranks`. If it is 0, the result is a
/// partial result of the element type. A fold of one unreduced source turns the source into a partial result.
///
/// Small floats and integer averages are accumulated in a wider type, and rounded or truncated when they are stored.
/// Fold all their sources in one call, because a partial result would lose bits.
void fold(const ReduceOp& op, DataType type, std::span<const Source> sources, std::span<std::byte* const> outs,
          std::size_t count, int finish_ranks, Stores stores = Stores::cached);
inline void fold(const ReduceOp& op, DataType type, std::span<const Source> sources, std::byte* out, std::size_t count,
                 int finish_ranks, Stores stores = Stores::cached) {
  fold(op, type, sources, std::span<std::byte* const>(&out, 1), count, finish_ranks, stores);
}

/// Returns whether a fold of one source equals that source, bit for bit. Returns false if the source is multiplied or
/// divided, for min and max, which change NaNs, and for user ops. Also returns false for booleans and logical ops,
/// whose results are 0 or 1.
bool keeps_one(const ReduceOp& op, DataType type, int finish_ranks) noexcept;

/// Arguments of every loop; see fold().
struct Operands {
  std::span<const Source> sources;
  std::span<std::byte* const> outs;      ///< outs that are stored normally
  std::span<std::byte* const> streamed;  ///< outs that are stored past the caches; all have the same offset within a
                                         ///< cache line
  std::size_t count;                     ///< elements
  double factor;                         ///< factor of pre_scaled_sum
  int ranks;                             ///< divisor of average
};

/// Loop over all elements of the operands.
using FoldLoop = void (*)(const Operands&);

/// Fold into one out with normal stores, for repeated use. Its constructor chooses the loop once. It is for short
/// vectors, for which the choice takes as long as the fold.
class Fold {
 public:
  Fold() noexcept = default;
  Fold(const ReduceOp& op, DataType type, int finish_ranks) noexcept;
  void operator()(std::span<const Source> sources, std::byte* out, std::size_t count) const {
    if (loop_ == nullptr || sources.size() == 1) return fold(op_, type_, sources, out, count, finish_ranks_);
    loop_({sources, std::span<std::byte* const>(&out, 1), {}, count * times_, op_.factor(), finish_ranks_});
  }

 private:
  FoldLoop loop_ = nullptr;  // loop for two sources or more; null for a user op
  ReduceOp op_;
  DataType type_ = DataType::f32;
  int finish_ranks_ = 0;
  std::size_t times_ = 1;  // elements of the loop per element
};

/// Copies `in` to every out. Loads each byte once. `in` may be equal to one of `outs`; other overlap is not allowed.
void copy(std::span<std::byte* const> outs, const std::byte* in, std::size_t bytes, Stores stores);
inline void copy(std::byte* out, const std::byte* in, std::size_t bytes, Stores stores) {
  copy(std::span<std::byte* const>(&out, 1), in, bytes, stores);
}

/// Returns whether ranks must send their inputs unreduced to the rank that combines them (direct exchange). Partial
/// results would change the bits of the final result in these cases:
///
///   - floats of 16 and 8 bits, but not for min and max
///   - integer averages
///   - user ops that do not commute
///   - all reductions of floats and complex numbers but min and max, if `deterministic` is set
bool needs_direct(const ReduceOp& op, DataType type, bool deterministic) noexcept;

}  // namespace collectives
