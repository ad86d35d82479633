// Implementation of the all-to-all by zero copy and single copy. Ranks of one host copy blocks between one another's
// buffers. A block is the elements that one rank sends to another.
//
// If each rank has a core, a rank performs its own share: the blocks that it receives. If a peer works in place, its
// block must be read before the block from this rank overwrites it. A rank that does not work in place then moves the
// blocks of both directions. If both ranks work in place, each swaps one half of the blocks. If ranks are
// oversubscribed, any rank may claim a piece of any pair of blocks.
#include <algorithm>
#include <cstring>

#include "shared_memory/zero_copy.hpp"

namespace collectives {
namespace {

/// Maximum length in bytes of the scratch memory through which two blocks are swapped. It fits into the first-level
/// cache.
constexpr std::size_t kSwappedBytes = 16 << 10;

}  // namespace

/// Returns the element with which the published buffer of a rank begins, in the numbering of that rank's ranges.
std::size_t ZeroCopy::origin(int local, bool destination) const {
  if (!task_->blocks.empty() && local != self_) return 0;
  return task_->held(local, destination).first;
}

/// Returns the number of elements from there that this rank may access.
std::size_t ZeroCopy::extent(int local, bool destination) const {
  if (task_->blocks.empty() || local == self_) return task_->held(local, destination).count;
  const BlockRanges& ranges = task_->blocks[static_cast<std::size_t>(local)];
  const Range& accessed = destination ? ranges.peer_destination : ranges.peer_source;
  return accessed.count == 0 ? 0 : accessed.first + accessed.count;
}

/// Returns the range of the block for rank `to` in the source of rank `local`. One of the two must be this rank unless
/// all blocks are equally long.
Range ZeroCopy::outgoing(int local, int to) const {
  if (task_->blocks.empty() || local == self_) return task_->slice(to);
  return task_->blocks[static_cast<std::size_t>(local)].peer_source;
}

/// Returns the range of the block from rank `from` in the destination of rank `local`, with the same condition.
Range ZeroCopy::incoming(int local, int from) const {
  if (task_->blocks.empty() || local == self_) return task_->incoming(from);
  return task_->blocks[static_cast<std::size_t>(local)].peer_destination;
}

/// Returns the part of the blocks between this rank and another on which this rank works.
Range ZeroCopy::block_share(int other) const {
  const std::size_t all = incoming(self_, other).count;
  if (!in_place(self_)) return {0, all};
  if (other == self_ || !in_place(other)) return {};
  const std::size_t half = all / 2;
  return self_ < other ? Range{0, half} : Range{half, all - half};
}

/// Performs this rank's share, piece by piece. Returns false if the communicator has failed or a peer has ended.
bool ZeroCopy::work_on_blocks() {
  for (; peer_ < ranks_; ++peer_, done_ = 0) {
    const int other = (self_ + 1 + peer_) % ranks_;  // begins with the next rank, so that not all read rank 0 first
    const Range all = block_share(other);
    while (done_ < all.count) {
      const Range part{all.first + done_, std::min(piece_, all.count - done_)};
      if (!unless_failed([&] { return exchange(self_, other, part); })) return false;
      done_ += part.count;
      ++moves_;
    }
    if (other != self_) bytes_shown_ += task_->slice(other).count * task_->element;
  }
  subgroup_.block(self_).worked.value.store(number_, std::memory_order_release);
  return true;
}

/// Performs the piece of a pair of blocks with this number. Returns false if a peer has ended.
bool ZeroCopy::perform_block_claim(std::uint64_t index) {
  int a = 0;
  for (; index >= pieces_of(a); ++a) index -= pieces_of(a);
  const std::uint64_t in_pair = (task_->longest + piece_ - 1) / piece_;
  const int b = a + static_cast<int>(index / in_pair);
  const std::size_t skipped = index % in_pair * piece_;
  const std::size_t count = std::min(piece_, task_->longest - skipped);
  if (b != a) bytes_shown_ += 2 * count * task_->element;
  return exchange(a, b, {skipped, count});
}

/// Moves a part of the blocks between two ranks. Requires that `a` is this rank unless pieces are claimed. Moves only
/// the block for `a` if each rank moves the blocks that it receives.
bool ZeroCopy::exchange(int a, int b, Range part) {
  const std::size_t bytes = part.count * task_->element;
  const auto move_block = [&](int from, int to) {
    return move(destination_spot(to, from, part), source_spot(from, to, part), bytes);
  };
  if (a == b) return in_place(a) || move_block(a, a);
  if (in_place(a) && in_place(b)) return swap(a, b, part);
  if (in_place(a)) return move_block(a, b) && move_block(b, a);
  return move_block(b, a) && ((!claims_ && !in_place(b)) || move_block(a, b));
}

/// Swaps a part of the blocks of two ranks that work in place.
bool ZeroCopy::swap(int a, int b, Range part) {
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

// ---- places in buffers ----

ZeroCopy::Spot ZeroCopy::source_spot(int local, int to, const Range& part) const {
  return {local, false, outgoing(local, to).first + part.first};
}
ZeroCopy::Spot ZeroCopy::destination_spot(int local, int from, const Range& part) const {
  return {local, true, incoming(local, from).first + part.first};
}

/// Returns a pointer to a place; null if the buffer is not mapped.
std::byte* ZeroCopy::pointer_to(const Spot& spot) const {
  const Peer& one = peer(spot.local);
  std::byte* const base = spot.destination ? one.destination_at : one.source_at;
  return base == nullptr ? nullptr : element_at(base, spot.first, task_->element);
}

/// Returns the address of a place in the process of its rank.
std::uint64_t ZeroCopy::address_of(const Spot& spot) const {
  const Peer& one = peer(spot.local);
  const RemoteBuffer& buffer = spot.destination ? one.destination : one.source;
  return buffer.address + (spot.first - origin(spot.local, spot.destination)) * task_->element;
}

bool ZeroCopy::load(std::byte* to, const Spot& from, std::size_t bytes) {
  if (const std::byte* const pointer = pointer_to(from)) return std::memcpy(to, pointer, bytes), true;
  return peer_memory_.read(subgroup_.local(from.local), to, address_of(from), bytes);
}

bool ZeroCopy::store(const Spot& to, const std::byte* from, std::size_t bytes) {
  if (std::byte* const pointer = pointer_to(to)) return std::memcpy(pointer, from, bytes), true;
  return peer_memory_.write(subgroup_.local(to.local), address_of(to), from, bytes);
}

/// Moves bytes between two buffers of any ranks. Returns false if a peer has ended.
bool ZeroCopy::move(const Spot& to, const Spot& from, std::size_t bytes) {
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
