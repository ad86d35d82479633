// Implementation of the buffers of collectives_bench, the benchmark of collectives. A guard is a range of known bytes
// before or after a buffer, which shows whether a call writes outside the buffer. The benchmark may have several sets
// of buffers, which consecutive calls use in turn.
#include "collectives_bench/buffers.hpp"

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <utility>

namespace collectives::bench {

namespace {
constexpr std::byte kGuard{0xa5};
}

std::size_t GuardedBuffers::memory_for(std::size_t bytes, std::size_t count) noexcept {
  return (bytes == 0 ? 1 : count) * spacing(bytes) + kGuardBytes + kLineBytes;
}

GuardedBuffers::GuardedBuffers(BufferMemory memory) : memory_(std::move(memory)) {
  std::byte* const from = memory_.bytes().data() + kGuardBytes;
  const auto address = reinterpret_cast<std::uintptr_t>(from);
  begin_ = from + (whole_lines(address) - address);
}

std::byte* GuardedBuffers::use(std::size_t bytes, std::size_t count) {
  bytes_ = bytes;
  count_ = bytes == 0 ? 1 : count;
  for_each_guard([](std::byte* guard, std::size_t length) { std::fill_n(guard, length, kGuard); });
  return begin_;
}

std::size_t GuardedBuffers::damaged() const {
  std::size_t damaged = 0;
  for_each_guard([&](const std::byte* guard, std::size_t length) {
    damaged += length - static_cast<std::size_t>(std::count(guard, guard + length, kGuard));
  });
  return damaged;
}

/// Calls `visit` for each guard. The guard after a buffer ends at the next buffer.
template <class Visit>
void GuardedBuffers::for_each_guard(Visit&& visit) const {
  visit(begin_ - kGuardBytes, kGuardBytes);
  for (std::size_t i = 0; i < count_; ++i) visit(begin_ + i * stride() + bytes_, spacing(bytes_) - bytes_);
}

Footprint footprint(const Case& c, Rank rank, int ranks, Rank root) {
  std::size_t whole = c.count * size_of(c.type), part = whole;
  if (has_parts(c.operation)) {
    const auto counts = part_counts(c.operation, c.count, rank, ranks);
    whole = std::accumulate(counts.begin(), counts.end(), std::size_t{0}) * size_of(c.type);
    part = counts[static_cast<std::size_t>(rank)] * size_of(c.type);
  }
  if (c.in_place) return {whole, 0};
  const std::size_t whole_at_root = rank == root ? whole : 0;
  switch (collective_of(c.operation)) {
    case Collective::reduce_scatter: return {whole, part};
    case Collective::all_gather: return {part, whole};
    case Collective::broadcast: return {whole_at_root, whole};
    case Collective::reduce: return {whole, whole_at_root};
    case Collective::gather: return {part, whole_at_root};
    case Collective::scatter: return {whole_at_root, part};
    default: return {whole, whole};
  }
}

std::size_t sets_for(const Footprint& footprint, std::size_t rotate) noexcept {
  const std::size_t one = whole_lines(footprint.input) + whole_lines(footprint.output);
  return one == 0 ? 1 : (rotate / one + (rotate % one != 0 ? 1 : 0)) | 1U;
}

Call call_on(std::byte* input, std::byte* output, const Case& c, std::span<const std::size_t> counts, Rank rank,
             int ranks, Rank root) {
  Case out_of_place = c;
  out_of_place.in_place = false;
  const Footprint apart = footprint(out_of_place, rank, ranks, root);
  if (c.in_place) {
    // In place, the input and the output are the same vector, or the shorter one is this rank's part of the longer one.
    const std::size_t own =
        std::accumulate(counts.begin(), counts.begin() + (counts.empty() ? 0 : rank), std::size_t{0}) * size_of(c.type);
    output = input + (scatters(c.operation) ? own : 0);
    input += gathers(c.operation) ? own : 0;
  }
  const bool rings = c.operation == Operation::sendrecv;
  const Rank partner = c.operation == Operation::ping_pong ? partner_of(rank, ranks) : kNoRank;
  return {.operation = c.operation,
          .type = c.type,
          .op = reduce_op(c.op),
          .root = root,
          .rank = rank,
          .in_place = c.in_place,
          .input = ConstBuffer(input, apart.input / size_of(c.type), c.type),
          .output = Buffer(output, apart.output / size_of(c.type), c.type),
          .whole = c.in_place ? std::min(input, output) : nullptr,
          .counts = counts,
          .count = c.count,
          .peer_to = rings ? (rank + 1) % ranks : partner,
          .peer_from = rings ? (rank + ranks - 1) % ranks : partner,
          .set = 0};
}

const Call& Rotation::next() noexcept {
  at_ = at_ + 1 == sets_ ? 0 : at_ + 1;
  current_.set = at_;
  const std::size_t input = at_ * input_stride_, output = at_ * output_stride_;
  current_.input.data = static_cast<const std::byte*>(first_.input.data) + input;
  current_.output.data = static_cast<std::byte*>(first_.output.data) + output;
  if (first_.in_place) current_.whole = static_cast<std::byte*>(first_.whole) + input;
  return current_;
}

}  // namespace collectives::bench
