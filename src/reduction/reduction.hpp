// The arithmetic of collectives: fold several sources into one result, element by element, in the order given.
//
// Everything about numbers is decided here and nowhere else: 16-bit floats are accumulated in f32, integer averages in
// wider integers, the scale is applied once, the result is rounded once. Which processor runs it changes nothing but
// the time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "collectives/types.hpp"

namespace collectives {

/// One operand of a fold. `unreduced` is a rank's own contribution, as the caller passed it; otherwise it is a partial
/// result that an earlier fold left unfinished (already scaled by pre_scaled_sum's factor, not yet divided by average).
struct Source {
  const std::byte* data = nullptr;
  bool unreduced = true;
};

/// How results are written. `streaming` goes past the caches, for results that would not stay there; what is stored
/// afterwards may be seen before them unless fence_streams() stands between. Outs that are sources, and those that lie
/// otherwise to their cache lines than the first that is streamed, are written as ever, and so are the results of user
/// ops and averages of 64-bit integers. `streaming_but_first`: the first out is written as ever, too, by plain stores:
/// a processor's string instructions, which memcpy uses, wait until all that was streamed before them has arrived.
enum class Stores : std::uint8_t { cached, streaming, streaming_but_first };

/// What this thread has streamed is seen by others before what it stores from here on.
void fence_streams() noexcept;

/// out[i] = sources[0][i] . sources[1][i] . ... for `count` elements, left to right, for every out of `outs`, in one
/// pass: each source is loaded once, the result is stored to each out. At least one source, one out.
/// Unaligned pointers are fine; `outs` may be exactly some of the sources, no other overlap.
/// `finish_ranks` > 0 completes the value: average divides by it. 0 leaves a partial result of the element type.
/// A fold of one raw source makes a partial result of it.
/// Wide accumulators (16-bit floats, integer average) round or narrow on store: fold those in one go.
void fold(const ReduceOp& op, DataType type, std::span<const Source> sources, std::span<std::byte* const> outs,
          std::size_t count, int finish_ranks, Stores stores = Stores::cached);
inline void fold(const ReduceOp& op, DataType type, std::span<const Source> sources, std::byte* out, std::size_t count,
                 int finish_ranks, Stores stores = Stores::cached) {
  fold(op, type, sources, std::span<std::byte* const>(&out, 1), count, finish_ranks, stores);
}

/// Whether a fold of one source is that source, bit for bit: not where it is scaled or divided, nor of extremes, which
/// have one NaN only, nor of what is the user's.
bool keeps_one(const ReduceOp& op, int finish_ranks) noexcept;

/// What every loop is given; see fold().
struct Operands {
  std::span<const Source> sources;
  std::span<std::byte* const> outs;      ///< to be stored to
  std::span<std::byte* const> streamed;  ///< to be stored to past the caches; all lie alike to the lines of memory
  std::size_t count;                     ///< elements
  double factor;                         ///< of pre_scaled_sum
  int ranks;                             ///< divisor of average
};

/// A loop over all elements of the operands.
using FoldLoop = void (*)(const Operands&);

/// A fold into one out, stored as ever, that is made more than once: its loop is chosen in advance. For vectors so
/// short that choosing takes as long as folding.
class Fold {
 public:
  Fold() noexcept = default;
  Fold(const ReduceOp& op, DataType type, int finish_ranks) noexcept;
  void operator()(std::span<const Source> sources, std::byte* out, std::size_t count) const {
    if (loop_ == nullptr || sources.size() == 1) return fold(op_, type_, sources, out, count, finish_ranks_);
    loop_({sources, std::span<std::byte* const>(&out, 1), {}, count, op_.factor(), finish_ranks_});
  }

 private:
  FoldLoop loop_ = nullptr;  // of two sources or more; null: a user's op
  ReduceOp op_;
  DataType type_ = DataType::f32;
  int finish_ranks_ = 0;
};

/// Copies `in` to every out: one load, many stores. `in` may be exactly one of `outs`, no other overlap.
void copy(std::span<std::byte* const> outs, const std::byte* in, std::size_t bytes, Stores stores);
inline void copy(std::byte* out, const std::byte* in, std::size_t bytes, Stores stores) {
  copy(std::span<std::byte* const>(&out, 1), in, bytes, stores);
}

/// Whether partial results would lose what the final result promises, so that all contributions must meet unsummed at
/// one owner (direct exchange): 16-bit floats but for min and max, integer averages, user ops that do not commute, and
/// every float reduction but min and max when `deterministic`.
bool needs_direct(const ReduceOp& op, DataType type, bool deterministic) noexcept;

}  // namespace collectives
