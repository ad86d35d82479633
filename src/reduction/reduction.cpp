// Implementation of folds. A fold combines several sources element by element, and writes the result to one or more
// destinations, the outs. A loop performs one op on one element type. This file chooses the loop for a fold. It
// contains the loop for user ops. The functions of dispatch.hpp return all other loops.
#include "reduction/reduction.hpp"

#include <hwy/cache_control.h>

#include <algorithm>
#include <cassert>
#include <cstring>
#include <iterator>

#include "reduction/dispatch.hpp"
#include "reduction/equal_reduction.hpp"

namespace collectives {
namespace {

/// Performs a fold by a user op, block by block. Combines each block in a buffer on the stack, because an out may also
/// be a source. Copies elements at unaligned addresses into an aligned buffer, because a user op may require aligned
/// elements. An element of a user op may consist of several elements of `type`, and a block holds only whole ones.
void fold_by_user(const ReduceOp& reduction, DataType type, const Operands& all) {
  constexpr std::size_t kBlockBytes = 8 * UserOp::kMaxElementBytes, kMostAligned = 64;
  alignas(64) std::byte accumulated[kBlockBytes];
  alignas(64) std::byte aligned[kBlockBytes];
  const UserOp& op = *reduction.user_op();
  const std::size_t size = element_bytes_of(type, reduction), block = kBlockBytes / size;
  const std::size_t alignment = std::min(size & (~size + 1), kMostAligned);  // the lowest bit that is set
  for (std::size_t begin = 0; begin < all.count; begin += block) {
    const std::size_t count = std::min(block, all.count - begin), offset = begin * size;
    std::memcpy(accumulated, all.sources.front().data + offset, count * size);
    for (const Source& source : all.sources.subspan(1)) {
      const std::byte* next = source.data + offset;
      if (reinterpret_cast<std::uintptr_t>(next) % alignment != 0) {
        std::memcpy(aligned, next, count * size);
        next = aligned;
      }
      op.combine(next, accumulated, count * (size / size_of(type)), type);
    }
    for (std::byte* const out : all.outs) std::memcpy(out + offset, accumulated, count * size);
  }
}

/// Returns the loop of an op `kind` on `type`. Requires a reduction that equal_reduction() does not replace by another
/// one.
FoldLoop loop_of(ReduceOp::Kind kind, DataType type) noexcept {
  using Kind = ReduceOp::Kind;
  switch (class_of(type)) {
    case TypeClass::floating:
      if (size_of(type) == 1) return loop_of_float8(kind, type);
      if (kind == Kind::min || kind == Kind::max) return loop_of_min_max(kind, type);
      return size_of(type) == 2 ? loop_of_half_floats(kind, type) : loop_of_floats(kind, type);
    case TypeClass::integer:
      if (kind == Kind::sum || kind == Kind::average || kind == Kind::product) return loop_of_integers(kind, type);
      if (kind == Kind::min || kind == Kind::max) return loop_of_min_max(kind, type);
      return type == DataType::u8 ? loop_of_bytes(kind) : loop_of_single_elements(kind, type);
    case TypeClass::boolean:
    case TypeClass::complex:
    case TypeClass::value_index: break;
  }
  return loop_of_single_elements(kind, type);
}

/// Returns the op whose loop performs `op`. If `finish_ranks` is 0, an average is not divided, so the loop of sum
/// performs it.
ReduceOp::Kind kind_of(const ReduceOp& op, int finish_ranks) noexcept {
  return op.kind() == ReduceOp::Kind::average && finish_ranks == 0 ? ReduceOp::Kind::sum : op.kind();
}

/// Runs the loop, with streaming stores for the outs that permit them. Streaming stores bypass the caches and need
/// whole cache lines. An out that is also a source gets normal stores, because its lines are already in the cache. An
/// out also gets normal stores if its offset within a cache line differs from that of the first streamed out.
void fold_streaming(FoldLoop loop, DataType type, Operands all, Stores stores) {
  constexpr std::size_t kMost = 128;
  const std::span<std::byte* const> outs = all.outs;
  const std::byte* const cached = stores == Stores::streaming_but_first ? outs.front() : nullptr;
  const std::size_t lead = to_next_line(cached == nullptr || outs.size() == 1 ? outs[0] : outs[1]);
  if (outs.size() > kMost || lead % size_of(type) != 0 || all.count * size_of(type) < kLongVector) {
    return loop(all);
  }
  const auto streams = [&](const std::byte* out) {
    return out != cached && to_next_line(out) == lead &&
           std::ranges::find(all.sources, out, &Source::data) == all.sources.end();
  };
  std::byte* ordered[kMost];
  std::byte** const end = ordered + outs.size();
  std::byte** const middle =
      std::partition_copy(outs.begin(), outs.end(), ordered, std::make_reverse_iterator(end), streams).first;
  all.streamed = {ordered, middle};
  all.outs = {middle, end};
  loop(all);
}

}  // namespace

bool keeps_one(const ReduceOp& op, DataType type, int finish_ranks) noexcept {
  using Kind = ReduceOp::Kind;
  if (class_of(type) == TypeClass::boolean) return false;
  const Kind kind = kind_of(op, finish_ranks);
  return kind == Kind::sum || kind == Kind::product || kind == Kind::bitwise_and || kind == Kind::bitwise_or ||
         kind == Kind::bitwise_xor;
}

void fold(const ReduceOp& op, DataType type, std::span<const Source> sources, std::span<std::byte* const> outs,
          std::size_t count, int finish_ranks, Stores stores) {
  assert(!sources.empty() && !outs.empty());
  if (count == 0) return;
  if (sources.size() == 1 && keeps_one(op, type, finish_ranks))
    return copy(outs, sources[0].data, count * size_of(type), stores);
  assert(supports(type, op));
  Operands all{sources, outs, {}, count, op.factor(), finish_ranks};
  if (op.kind() == ReduceOp::Kind::user) return fold_by_user(op, type, all);
  const EqualReduction equal = equal_reduction(kind_of(op, finish_ranks), type);
  const FoldLoop loop = loop_of(equal.kind, equal.type);
  all.count *= equal.times;
  if (stores != Stores::cached) return fold_streaming(loop, equal.type, all, stores);
  loop(all);
}

Fold::Fold(const ReduceOp& op, DataType type, int finish_ranks) noexcept
    : op_(op), type_(type), finish_ranks_(finish_ranks) {
  if (op.kind() == ReduceOp::Kind::user) return;
  const EqualReduction equal = equal_reduction(kind_of(op, finish_ranks), type);
  loop_ = loop_of(equal.kind, equal.type);
  times_ = equal.times;
}

void copy(std::span<std::byte* const> outs, const std::byte* in, std::size_t bytes, Stores stores) {
  if (bytes == 0 || outs.empty()) return;
  if (outs.size() == 1 && (stores == Stores::cached || outs[0] == in)) {
    if (outs[0] != in) std::memcpy(outs[0], in, bytes);
    return;
  }
  // A copy is a sum with one source, so the loop of sum performs it.
  const Source source{in, true};
  const Operands all{std::span(&source, 1), outs, {}, bytes, 1.0, 0};
  const FoldLoop loop = loop_of(ReduceOp::Kind::sum, DataType::u8);
  if (stores != Stores::cached) return fold_streaming(loop, DataType::u8, all, stores);
  loop(all);
}

void fence_streams() noexcept { hwy::FlushStream(); }

bool needs_direct(const ReduceOp& op, DataType type, bool deterministic) noexcept {
  using Kind = ReduceOp::Kind;
  const Kind kind = op.kind();
  if (kind == Kind::user && !op.user_op()->commutative) return true;
  if (kind == Kind::average && class_of(type) == TypeClass::integer) return true;
  const bool rounds = kind == Kind::sum || kind == Kind::average || kind == Kind::product ||
                      kind == Kind::pre_scaled_sum || kind == Kind::user;
  if (!rounds) return false;
  if (is_floating(type) && size_of(type) <= 2) return true;
  return deterministic && (is_floating(type) || class_of(type) == TypeClass::complex);
}

}  // namespace collectives
