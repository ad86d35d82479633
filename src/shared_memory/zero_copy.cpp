// Implementation of zero copy and single copy, two protocols by which the ranks of one host access the buffers of one
// another. In zero copy, a rank maps the buffers of its peers and uses pointers. In single copy, the kernel copies
// between the buffers.
//
// A share is the range of the vector that one rank normally combines or copies. A rank divides its share into pieces.
// If ranks are oversubscribed (more ranks than cores), any rank may claim the next piece of any share. It claims a
// piece by incrementing a shared counter. Running ranks thus do the work of ranks that have no core at that time. A
// buffer is hidden if a peer needs it and cannot map it.
#include "shared_memory/zero_copy.hpp"

#include <algorithm>
#include <cstring>
#include <span>

#include "shared_memory/prefetch.hpp"

namespace collectives {
namespace {

/// Maximum length in bytes of a piece whose values are combined, so that it fits into the second-level cache.
constexpr std::size_t kPieceBytes = 128 << 10;
/// Maximum length in bytes of a piece that is only copied. This maximum is longer than kPieceBytes for two reasons.
/// Each system call for a copy costs one or two microseconds, and copied data need not fit into a cache.
constexpr std::size_t kPieceOfGather = 1 << 20;

}  // namespace

ZeroCopy::ZeroCopy(const SubgroupMemory& subgroup, const TuningParameters& tuning, PeerMemory& peer_memory,
                   bool oversubscribed)
    : subgroup_(subgroup),
      tuning_(tuning),
      peer_memory_(peer_memory),
      self_(subgroup.self()),
      ranks_(subgroup.ranks()),
      oversubscribed_(oversubscribed),
      peers_(static_cast<std::size_t>(subgroup.ranks())),
      sources_(static_cast<std::size_t>(subgroup.ranks())),
      destinations_(static_cast<std::size_t>(subgroup.ranks())),
      blocks_(subgroup, peer_memory, peers_) {}

/// Returns whether any rank but `local` accesses the source or the destination of rank `local`.
bool ZeroCopy::needed_by_others(int local, bool destination) const {
  if (task_->deals()) return claims_ || !destination || blocks_.in_place(local);
  // In a gather, each rank copies its own slice to the root. In a scatter, each rank copies its own slice from the
  // root. If any rank may claim any piece, peers also access all other buffers.
  if (task_->gathers() || task_->scatters())
    return claims_ || (local == task_->root && destination == task_->gathers());
  if (claims_ || task_->root >= 0)
    return destination ? task_->is_destination(local, local) : task_->is_source(local, local);
  return destination ? task_->every_rank_wants_all() : task_->combines();
}

/// Returns whether this rank has a buffer that its peers need and cannot map.
bool ZeroCopy::hidden() const {
  const auto mapped = [this](const RemoteBuffer& buffer) { return peer_memory_.mapped(buffer); };
  return (needed_by_others(self_, false) && !mapped(peer(self_).source)) ||
         (needed_by_others(self_, true) && !mapped(peer(self_).destination));
}

// ---- the collective ----

bool ZeroCopy::start(const HostTask& task, const HostOperands& with, std::uint64_t number) {
  task_ = &task;
  with_ = &with;
  number_ = number;
  tag_ = renumbered(with.tag, number);
  phase_ = Phase::gathering;
  peer_ = 0;
  done_ = 0;
  claims_ = oversubscribed_ && task.blocks.empty();  // a rank knows only its own blocks
  blocks_.start(task, claims_);

  const auto describe = [&](const std::byte* base, bool destination) {
    const Range range = task_->held(self_, destination);
    if (base == nullptr || range.count == 0) return RemoteBuffer{};
    return peer_memory_.describe(element_at(base, range.first, task.element), range.count * task.element);
  };
  PeerBuffers& mine = peer(self_);
  mine.source = describe(with.source, false);
  mine.destination = describe(with.destination, true);
  HostCollectiveBlock& block = subgroup_.block(self_);
  if (task.protocol != HostProtocol::single_copy && hidden()) {
    block.hidden.value.store(number, std::memory_order_release);
    return false;
  }
  BufferRecord& record = block.buffers[number % kCollectivesAhead];
  record.source.store(mine.source.address, std::memory_order_relaxed);
  record.source_name.store(mine.source.name, std::memory_order_relaxed);
  record.destination.store(mine.destination.address, std::memory_order_relaxed);
  record.destination_name.store(mine.destination.name, std::memory_order_relaxed);
  record.tag.store(tag_, std::memory_order_release);
  prefetch_for_write(&block.worked);
  prefetch_for_write(&block.buffers[(number + 1) % kCollectivesAhead]);
  return true;
}

ZeroCopy::State ZeroCopy::progress() {
  if (phase_ == Phase::gathering) {
    const Arrivals arrivals = check_arrivals();
    if (arrivals != Arrivals::all) return arrivals == Arrivals::not_all ? State::in_progress : State::unreachable;
    for (int local = 0; local < ranks_; ++local) {
      PeerBuffers& one = peer(local);
      if (!works_with(local)) {
        one = {};
        continue;
      }
      one.source_at = address_of_first(local, one.source, false);
      one.destination_at = address_of_first(local, one.destination, true);
    }
    const std::size_t most = task_->combines() || claims_ ? kPieceBytes : kPieceOfGather;
    const std::size_t usual = (task_->combines() ? 2 : 16) * tuning_.chunk_bytes;
    piece_ = std::max<std::size_t>(1, (claims_ ? most : std::min(usual, most)) / task_->element);
    pieces_ = 0;
    if (claims_)
      for (int local = 0; local < ranks_; ++local) pieces_ += pieces_of(local);
    phase_ = Phase::working;
    peer_ = 0;
  }
  if (phase_ == Phase::working) {
    if (!(claims_ ? work_on_claims() : task_->deals() ? work_on_blocks() : work())) return State::in_progress;
    phase_ = Phase::leaving;
    peer_ = 0;
  }
  if (claims_) {
    if (subgroup_.claims().done.value.load(std::memory_order_acquire) < claims_before_ + pieces_)
      return State::in_progress;
    claims_before_ += pieces_;
    return State::finished;
  }
  if (!claims_ && (task_->gathers() || task_->scatters()) && self_ != task_->root) return State::finished;
  for (; peer_ < ranks_; ++peer_)
    if (subgroup_.block(peer_).worked.value.load(std::memory_order_acquire) < number_) return State::in_progress;
  return State::finished;
}

/// Returns the address of element 0 of a rank's buffer in this process. Returns null if the buffer is not mapped.
std::byte* ZeroCopy::address_of_first(int local, const RemoteBuffer& buffer, bool destination) {
  const Range range = task_->accessible(self_, local, destination);
  std::byte* const first = peer_memory_.pointer(subgroup_.local(local), buffer, range.count * task_->element);
  if (first == nullptr) return nullptr;
  return element_at(first, 0 - range.first, task_->element);
}

/// Returns whether this rank accesses buffers of rank `local`, or rank `local` accesses buffers of this rank. Returns
/// true for this rank itself.
bool ZeroCopy::works_with(int local) const {
  return claims_ || !(task_->gathers() || task_->scatters()) || self_ == task_->root || local == task_->root ||
         local == self_;
}

/// Reads the records by which the peers publish their buffers.
ZeroCopy::Arrivals ZeroCopy::check_arrivals() {
  for (; peer_ < ranks_; ++peer_) {
    if (peer_ == self_ || !works_with(peer_)) continue;
    const HostCollectiveBlock& block = subgroup_.block(peer_);
    const BufferRecord& record = block.buffers[number_ % kCollectivesAhead];
    // A rank whose work was done by other ranks may be some collectives ahead. Its flag `hidden` may then belong to a
    // later collective. This function therefore reads `hidden` first, and then the record. It uses `hidden` only if the
    // record of this collective is still missing.
    const bool hidden = block.hidden.value.load(std::memory_order_acquire) >= number_;
    if (!tag_matches(record.tag.load(std::memory_order_acquire), tag_, peer_))
      return hidden ? Arrivals::one_hidden : Arrivals::not_all;
    PeerBuffers& one = peer(peer_);
    one.source = {record.source.load(std::memory_order_relaxed), record.source_name.load(std::memory_order_relaxed)};
    one.destination = {record.destination.load(std::memory_order_relaxed),
                       record.destination_name.load(std::memory_order_relaxed)};
  }
  return Arrivals::all;
}

/// Performs this rank's share, piece by piece. Returns false if the communicator has failed or a peer has ended.
bool ZeroCopy::work() {
  const Range all = task_->share(self_);
  while (done_ < all.count) {
    const Range range{all.first + done_, std::min(piece_, all.count - done_)};
    if (!unless_failed([&] { return perform(self_, range); })) return false;
    done_ += range.count;
    ++moves_;
  }
  subgroup_.block(self_).worked.value.store(number_, std::memory_order_release);
  return true;
}

/// Claims and performs pieces of any share until all pieces are claimed. Returns false if the communicator has failed
/// or a peer has ended.
bool ZeroCopy::work_on_claims() {
  ClaimBlock& claims = subgroup_.claims();
  const std::uint64_t end = claims_before_ + pieces_;
  for (std::uint64_t next = claims.taken.value.load(std::memory_order_relaxed); next < end;) {
    if (!claims.taken.value.compare_exchange_weak(next, next + 1, std::memory_order_relaxed)) continue;
    if (!unless_failed([&] { return perform_claim(next - claims_before_); })) return false;
    claims.done.value.fetch_add(1, std::memory_order_acq_rel);
    ++moves_;
    next = claims.taken.value.load(std::memory_order_relaxed);
  }
  return true;
}

/// Performs this rank's share of an all-to-all, piece by piece. Returns false if the communicator has failed or a peer
/// has ended.
bool ZeroCopy::work_on_blocks() {
  for (; peer_ < ranks_; ++peer_, done_ = 0) {
    const int other = (self_ + 1 + peer_) % ranks_;  // begins with the next rank, so that not all read rank 0 first
    const Range all = blocks_.share(other);
    while (done_ < all.count) {
      const Range part{all.first + done_, std::min(piece_, all.count - done_)};
      if (!unless_failed([&] { return blocks_.exchange(self_, other, part); })) return false;
      done_ += part.count;
      ++moves_;
    }
    if (other != self_) bytes_shown_ += task_->slice(other).count * task_->element;
  }
  subgroup_.block(self_).worked.value.store(number_, std::memory_order_release);
  return true;
}

/// Returns the number of pieces of a rank's share. In an all-to-all, the share is the block from the rank to itself,
/// and all blocks that it exchanges with ranks with higher numbers.
std::uint64_t ZeroCopy::pieces_of(int local) const {
  const auto in_pieces = [this](std::size_t count) { return (count + piece_ - 1) / piece_; };
  if (task_->deals()) return static_cast<std::uint64_t>(ranks_ - local) * in_pieces(task_->longest);
  return in_pieces(task_->share(local).count);
}

/// Performs the piece with this number. Returns false if a peer has ended.
bool ZeroCopy::perform_claim(std::uint64_t index) {
  if (task_->deals()) return perform_block_claim(index);
  int owner = 0;
  for (; index >= pieces_of(owner); ++owner) index -= pieces_of(owner);
  const Range all = task_->share(owner);
  const std::size_t skipped = index * piece_;
  return perform(owner, {all.first + skipped, std::min(piece_, all.count - skipped)});
}

/// Performs the piece of a block pair with this number. Returns false if a peer has ended.
bool ZeroCopy::perform_block_claim(std::uint64_t index) {
  int a = 0;
  for (; index >= pieces_of(a); ++a) index -= pieces_of(a);
  const std::uint64_t in_pair = (task_->longest + piece_ - 1) / piece_;
  const int b = a + static_cast<int>(index / in_pair);
  const std::size_t skipped = index % in_pair * piece_;
  const std::size_t count = std::min(piece_, task_->longest - skipped);
  if (b != a) bytes_shown_ += 2 * count * task_->element;
  return blocks_.exchange(a, b, {skipped, count});
}

/// Performs one piece. `share`: rank whose share contains the piece. Loads every source once and stores to every
/// destination once. Returns false if a peer has ended.
bool ZeroCopy::perform(int share, Range range) {
  if (task_->scans()) return scan(range), true;
  const std::size_t element = task_->element, bytes = range.count * element;
  std::size_t sources = 0, destinations = 0, shown = 0;
  bool direct = true, in_place = task_->combines();
  for (int local = 0; local < ranks_; ++local) {
    const PeerBuffers& one = peer(local);
    const bool is_source = task_->is_source(local, share);
    if (is_source) {
      direct = direct && one.source_at != nullptr;
      sources_[sources++] = {element_at(one.source_at, range.first, element), with_->unreduced};
    }
    if (task_->is_destination(local, share)) {
      direct = direct && one.destination_at != nullptr;
      // A rank that gathers in place has its value in the destination already, and may be sending from there.
      if (!task_->combines() && is_source && one.destination_at == one.source_at) continue;
      in_place = in_place && one.destination_at == one.source_at;
      destinations_[destinations++] = element_at(one.destination_at, range.first, element);
      if (local != self_) shown += bytes;
    }
  }
  if (!direct) return perform_through_kernel(share, range);
  bytes_shown_ += shown;
  // If all results overwrite sources, their lines are already cached. Streaming stores would gain nothing.
  const Stores stores = in_place ? Stores::cached : task_->stores;
  if (task_->combines())
    fold(with_->op, with_->type, {sources_.data(), sources}, {destinations_.data(), destinations}, range.count,
         with_->finish_ranks, stores);
  else
    copy({destinations_.data(), destinations}, sources_[0].data, bytes, stores);
  if (stores == Stores::streaming) fence_streams();
  return true;
}

/// Performs one piece of a scan. Begins with the last rank: in place, its result overwrites only its own values, which
/// no other result needs.
void ZeroCopy::scan(Range range) {
  const std::size_t element = task_->element;
  bool in_place = true;
  for (int local = 0; local < ranks_; ++local) {
    const PeerBuffers& one = peer(local);
    in_place = in_place && one.destination_at == one.source_at;
    sources_[static_cast<std::size_t>(local)] = {element_at(one.source_at, range.first, element), with_->unreduced};
  }
  const Stores stores = in_place ? Stores::cached : task_->stores;
  for (int local = ranks_ - 1; local >= 0; --local) {
    const int terms = task_->terms(local);
    if (terms == 0) continue;
    fold(with_->op, with_->type, std::span(sources_).first(static_cast<std::size_t>(terms)),
         element_at(peer(local).destination_at, range.first, element), range.count, with_->finish_ranks > 0 ? terms : 0,
         stores);
    if (local != self_) bytes_shown_ += range.count * element;
  }
  if (stores == Stores::streaming) fence_streams();
}

/// Performs one piece by copies of the kernel. Returns false if a peer has ended.
bool ZeroCopy::perform_through_kernel(int share, Range range) {
  const std::size_t element = task_->element, bytes = range.count * element;
  if (task_->combines()) scratch_.resize((static_cast<std::size_t>(ranks_) + 1) * bytes);
  const auto remote = [&](int local, bool destination) {
    const RemoteBuffer& buffer = destination ? peer(local).destination : peer(local).source;
    return buffer.address + (range.first - task_->held(local, destination).first) * element;
  };
  // The result is computed in this rank's own destination if it has one, otherwise in scratch memory.
  std::byte* made = task_->is_destination(self_, share) ? element_at(peer(self_).destination_at, range.first, element)
                                                        : scratch_.data() + static_cast<std::size_t>(ranks_) * bytes;
  std::size_t sources = 0;
  for (int local = 0; local < ranks_; ++local) {
    if (!task_->is_source(local, share)) continue;
    const PeerBuffers& one = peer(local);
    const std::byte* value = element_at(one.source_at, range.first, element);
    if (one.source_at == nullptr) {
      std::byte* to = task_->combines() ? scratch_.data() + static_cast<std::size_t>(local) * bytes : made;
      if (!peer_memory_.read(subgroup_.local(local), to, remote(local, false), bytes)) return false;
      value = to;
    }
    sources_[sources++] = {value, with_->unreduced};
  }
  if (task_->combines()) {
    fold(with_->op, with_->type, {sources_.data(), sources}, made, range.count, with_->finish_ranks);
  } else if (!task_->is_destination(self_, share)) {
    made = const_cast<std::byte*>(sources_[0].data);  // below, `made` is only read
  } else if (sources_[0].data != made) {
    std::memcpy(made, sources_[0].data, bytes);
  }
  for (int turn = 1; turn < ranks_; ++turn) {
    const int local = (self_ + turn) % ranks_;
    if (!task_->is_destination(local, share)) continue;
    const PeerBuffers& one = peer(local);
    // A rank that gathers in place has the value already.
    if (!task_->combines() && task_->is_source(local, share) && remote(local, false) == remote(local, true)) continue;
    if (one.destination_at != nullptr)
      std::memcpy(element_at(one.destination_at, range.first, element), made, bytes);
    else if (!peer_memory_.write(subgroup_.local(local), remote(local, true), made, bytes))
      return false;
    bytes_shown_ += bytes;
  }
  return true;
}

}  // namespace collectives
