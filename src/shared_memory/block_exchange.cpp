// Implementation of the block exchange, which performs an all-to-all between the buffers of ranks of one host. A block
// contains elements that one rank sends to another. The source is the buffer that a rank sends from. The destination is
// the buffer that it receives into.
//
// A Spot is a position in the source or the destination of any rank. If this process has mapped a buffer into its
// address space, it copies the bytes of the buffer through a pointer. Otherwise it asks the kernel to copy the bytes.
#include "shared_memory/block_exchange.hpp"

#include <algorithm>
#include <cstring>

#include "reduction/reduction.hpp"
#include "shared_memory/host_operands.hpp"

namespace collectives {
namespace {

/// Maximum length in bytes of the scratch memory through which two blocks are swapped. Memory of this length fits into
/// the first-level cache.
constexpr std::size_t kSwappedBytes = 16 << 10;

}  // namespace

/// Returns the range of the block for rank `to` in the source of rank `local`. If the lengths of the blocks differ,
/// `local` or `to` must be this rank. Reason: a rank knows only the lengths of the blocks that it sends or receives.
Range BlockExchange::outgoing(int local, int to) const {
  if (task_->blocks.empty() || local == self_) return task_->slice(to);
  return task_->blocks[static_cast<std::size_t>(local)].peer_source;
}

/// Returns the range of the block from rank `from` in the destination of rank `local`. If the lengths of the blocks
/// differ, `local` or `from` must be this rank.
Range BlockExchange::incoming(int local, int from) const {
  if (task_->blocks.empty() || local == self_) return task_->incoming(from);
  return task_->blocks[static_cast<std::size_t>(local)].peer_destination;
}

Range BlockExchange::share(int other) const {
  const std::size_t all = incoming(self_, other).count;
  if (!in_place(self_)) return {0, all};
  if (other == self_ || !in_place(other)) return {};
  const std::size_t half = all / 2;
  return self_ < other ? Range{0, half} : Range{half, all - half};
}

bool BlockExchange::exchange(int a, int b, Range part) {
  const std::size_t bytes = part.count * task_->element;
  const auto move_block = [&](int from, int to) {
    return move(destination_spot(to, from, part), source_spot(from, to, part), bytes);
  };
  if (a == b) return in_place(a) || move_block(a, a);
  if (in_place(a) && in_place(b)) return swap(a, b, part);
  if (in_place(a)) return move_block(a, b) && move_block(b, a);
  return move_block(b, a) && ((!any_rank_ && !in_place(b)) || move_block(a, b));
}

/// Swaps a part of the blocks that ranks `a` and `b` exchange. Requires that both ranks work in place: the source of
/// each rank is also its destination.
bool BlockExchange::swap(int a, int b, Range part) {
  const std::size_t element = task_->element;
  const bool mapped = peer(a).source_at != nullptr && peer(b).source_at != nullptr;
  const std::size_t at_once = mapped ? std::max<std::size_t>(1, kSwappedBytes / element) : part.count;
  scratch_.resize(std::max(scratch_.size(), std::max(kSwappedBytes, at_once * element)));
  for (std::size_t done = 0; done < part.count; done += at_once) {
    const Range now{part.first + done, std::min(at_once, part.count - done)};
    const std::size_t bytes = now.count * element;
    if (!load(scratch_.data(), source_spot(b, a, now), bytes) ||
        !move(destination_spot(b, a, now), source_spot(a, b, now), bytes) ||
        !store(destination_spot(a, b, now), scratch_.data(), bytes))
      return false;
  }
  return true;
}

BlockExchange::Spot BlockExchange::source_spot(int local, int to, const Range& part) const {
  return {local, false, outgoing(local, to).first + part.first};
}
BlockExchange::Spot BlockExchange::destination_spot(int local, int from, const Range& part) const {
  return {local, true, incoming(local, from).first + part.first};
}

/// Returns a pointer to a Spot, or null if this process has not mapped the buffer.
std::byte* BlockExchange::pointer_to(const Spot& spot) const {
  const PeerBuffers& one = peer(spot.local);
  std::byte* const base = spot.destination ? one.destination_at : one.source_at;
  return base == nullptr ? nullptr : element_at(base, spot.first, task_->element);
}

/// Returns the address of a Spot in the address space of the rank that owns the buffer.
std::uint64_t BlockExchange::address_of(const Spot& spot) const {
  const PeerBuffers& one = peer(spot.local);
  const RemoteBuffer& buffer = spot.destination ? one.destination : one.source;
  return buffer.address + (spot.first - task_->accessible(self_, spot.local, spot.destination).first) * task_->element;
}

bool BlockExchange::load(std::byte* to, const Spot& from, std::size_t bytes) {
  if (const std::byte* const pointer = pointer_to(from)) return std::memcpy(to, pointer, bytes), true;
  return peer_memory_.read(subgroup_.local(from.local), to, address_of(from), bytes);
}

bool BlockExchange::store(const Spot& to, const std::byte* from, std::size_t bytes) {
  if (std::byte* const pointer = pointer_to(to)) return std::memcpy(pointer, from, bytes), true;
  return peer_memory_.write(subgroup_.local(to.local), address_of(to), from, bytes);
}

/// Copies `bytes` bytes from one Spot to another. Returns false if a peer has ended.
bool BlockExchange::move(const Spot& to, const Spot& from, std::size_t bytes) {
  const std::byte* const source = pointer_to(from);
  std::byte* const destination = pointer_to(to);
  if (source == destination && source != nullptr) return true;
  if (source != nullptr && destination != nullptr) {
    const Stores stores = in_place(to.local) ? Stores::cached : task_->stores;
    copy(destination, source, bytes, stores);
    if (stores == Stores::streaming) fence_streams();
    return true;
  }
  if (source != nullptr) return store(to, source, bytes);
  if (destination != nullptr) return load(destination, from, bytes);
  bounced_.resize(std::max(bounced_.size(), bytes));
  return load(bounced_.data(), from, bytes) && store(to, bounced_.data(), bytes);
}

}  // namespace collectives
