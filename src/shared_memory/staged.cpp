#include "shared_memory/staged.hpp"

#include <algorithm>
#include <cstring>

#include "shared_memory/round_up.hpp"

namespace collectives {
namespace {

/// From so many chunks on, a vector takes longer ones rather than more.
constexpr std::size_t kChunksOfALongVector = 16;
/// What goes one way only is divided into so many chunks, of about so many bytes each at least.
constexpr std::size_t kPiecesOfOneWay = 8, kLeastPiece = 2048;

}  // namespace

/// So long that the ring of a rank leaves a core's own cache, and those of all ranks together do not leave the common
/// one; and a few times what chunks begin with.
std::size_t Staged::longest_chunk(int ranks, const Tuning& tuning) {
  constexpr std::size_t kRing = std::size_t{2} << 20, kGrowth = 4;
  const std::size_t share = tuning.streaming_bytes / (4 * static_cast<std::size_t>(ranks));
  return std::max(kGrowth * tuning.chunk_bytes, std::min(kRing, share) / kLongestChunks);
}

Staged::Staged(const StageRoom& room, const Tuning& tuning, bool crowded)
    : room_(room),
      tuning_(tuning),
      crowded_(crowded),
      self_(room.self()),
      ranks_(room.ranks()),
      left_(static_cast<std::size_t>(room.ranks())),
      sources_(static_cast<std::size_t>(room.ranks())) {}

void Staged::start(const HostTask& task, const HostOperands& with) {
  task_ = &task;
  with_ = &with;
  one_shot_ = task.protocol == HostProtocol::one_shot;
  owners_ = task.combines() && !one_shot_;
  collects_ = task.everyone_wants_all();
  // Slices that are combined share a chunk, one place per owner, whose own has none where the result is not shown; one
  // that is only shown has it to itself.
  const auto sharers =
      static_cast<std::size_t>(owners_ && task.only < 0 ? std::max(1, collects_ ? ranks_ : ranks_ - 1) : 1);
  const std::size_t longest = std::max<std::size_t>(1, one_shot_ ? task.total : task.longest);
  // Short chunks stay in the cache; but each is a meeting, which is dear when a rank has lost its core, so the longer
  // the vector, the longer the chunks, as far as the memory goes.
  const std::size_t most = room_.shape().chunk_bytes;
  std::size_t least = std::min(tuning_.chunk_bytes, most);
  // Where some only show and others only take, they work at the same time from the second chunk on, if they have a core
  // each.
  if (task.only >= 0 && !crowded_)
    least = std::min(least, std::max(kLeastPiece, longest * task.element / kPiecesOfOneWay));
  const std::size_t room = std::clamp(longest * sharers * task.element / kChunksOfALongVector, least, most);
  segment_ = std::max<std::size_t>(1, room / task.element / sharers);
  chunks_ = (longest + segment_ - 1) / segment_;
  // Nearly equal chunks, for a short last one would be a meeting for nothing; whole cache lines of any type.
  constexpr std::size_t kWhole = 64;
  segment_ = std::min(segment_, round_up((longest + chunks_ - 1) / chunks_, kWhole));
  chunks_ = (longest + segment_ - 1) / segment_;
  staged_ = combined_ = collected_ = 0;

  // Headers are used again no sooner than the bytes.
  const std::size_t ring = room_.staging_bytes();
  stride_ = round_up(std::max(segment_ * sharers * task.element, ring / kMostChunks), kLineBytes);
  at_ = from_ % ring;
  first_lap_ = (ring - at_) / stride_;
  lap_ = ring / stride_;
}

/// The byte, counted since the beginning, at which a chunk starts. None goes over the end of the ring.
std::uint64_t Staged::position(std::uint64_t chunk) const {
  if (chunk < first_lap_) return from_ + chunk * stride_;
  const std::uint64_t ring = room_.staging_bytes(), further = chunk - first_lap_;
  return from_ - at_ + (1 + further / lap_) * ring + further % lap_ * stride_;
}

Range Staged::slice(int local, std::uint64_t chunk) const {
  const Range& all = task_->slice(local);
  const std::size_t skipped = std::min<std::size_t>(all.count, segment_ * chunk);
  return {all.first + skipped, std::min(segment_, all.count - skipped)};
}

/// Of a one-shot stage, whose slices are adjacent.
Range Staged::whole(std::uint64_t chunk) const {
  const std::size_t skipped = segment_ * chunk;
  return {task_->slice(0).first + skipped, std::min(segment_, task_->total - skipped)};
}

/// Bytes from the payload of someone's chunk to where the slice of `local` lies in it.
std::size_t Staged::place(int whose, int local) const {
  if (!owners_ || task_->only >= 0) return 0;
  return static_cast<std::size_t>(local - (!collects_ && local > whose ? 1 : 0)) * segment_ * task_->element;
}

std::byte* Staged::payload(int local, std::uint64_t chunk) const {
  return room_.staging(local) + (chunk < first_lap_ ? at_ + chunk * stride_ : (chunk - first_lap_) % lap_ * stride_);
}

bool Staged::advance() {
  for (bool moved = true; moved;) {
    moved = false;
    if (combined_ < chunks_ && combine(combined_)) moved = true, ++combined_;
    if (staged_ < chunks_ && stage(staged_)) moved = true, ++staged_;
    if (collected_ < combined_ && collect(collected_)) {
      moved = true;
      ++collected_;
      room_.block(self_).left.value.store(position(collected_ - 1) + stride_, std::memory_order_release);
    }
    if (moved) ++moves_;
  }
  if (collected_ < chunks_ || staged_ < chunks_) return false;
  base_ += chunks_;
  from_ = position(chunks_ - 1) + stride_;
  return true;
}

/// Whether everyone has left what the memory of this chunk was taken for before.
bool Staged::room_for(std::uint64_t chunk) {
  const std::uint64_t end = position(chunk) + stride_, ring = room_.staging_bytes();
  if (end <= ring) return true;
  const std::uint64_t least = end - ring;
  for (int local = 0; local < ranks_; ++local) {
    std::uint64_t& left = left_[static_cast<std::size_t>(local)];
    if (local == self_ || left >= least) continue;
    left = room_.block(local).left.value.load(std::memory_order_acquire);
    if (left < least) return false;
  }
  return true;
}

bool Staged::staged(int local, std::uint64_t chunk) {
  const std::uint64_t wanted = renumbered(with_->tag, base_ + chunk + 1);
  if (!has_come(room_.chunk_header(local, base_ + chunk).staged.value.load(std::memory_order_acquire), wanted, local))
    return false;
  // Whoever is in this stage has finished the one before.
  std::uint64_t& left = left_[static_cast<std::size_t>(local)];
  left = std::max(left, from_);
  return true;
}

bool Staged::combined(int local, std::uint64_t chunk) {
  const std::uint64_t wanted = renumbered(with_->tag, base_ + chunk + 1);
  return has_come(room_.chunk_header(local, base_ + chunk).combined.value.load(std::memory_order_acquire), wanted,
                  local);
}

void Staged::show(std::byte* to, const std::byte* from, std::size_t bytes) {
  copy(to, from, bytes, task_->stores_to_staging);
  bytes_shown_ += bytes;
}

bool Staged::stage(std::uint64_t chunk) {
  if (!task_->shows(self_)) return true;
  if (!room_for(chunk)) return false;
  const auto own = [&](Range range) { return element_at(with_->own, range.first, task_->element); };
  if (one_shot_) {
    const Range range = whole(chunk);
    show(payload(self_, chunk), own(range), range.count * task_->element);
  } else if (task_->combines()) {
    for (int local = 0; local < ranks_; ++local) {
      const Range range = slice(local, chunk);
      if (local != self_ && range.count > 0)
        show(payload(self_, chunk) + place(self_, local), own(range), range.count * task_->element);
    }
  } else if (const Range range = slice(self_, chunk); range.count > 0) {
    show(payload(self_, chunk), own(range), range.count * task_->element);
  }
  room_.chunk_header(self_, base_ + chunk)
      .staged.value.store(renumbered(with_->tag, base_ + chunk + 1), std::memory_order_release);
  return true;
}

bool Staged::combine(std::uint64_t chunk) {
  if (!owners_) return true;
  const Range range = slice(self_, chunk);
  if (range.count == 0) return true;
  // The result goes where this rank's own staged values would be, so the memory must be free.
  if (collects_ && staged_ <= chunk) return false;
  for (int local = 0; local < ranks_; ++local)
    if (local != self_ && !staged(local, chunk)) return false;
  const std::byte* own = element_at(with_->own, range.first, task_->element);
  for (int local = 0; local < ranks_; ++local)
    sources_[static_cast<std::size_t>(local)] = {local == self_ ? own : payload(local, chunk) + place(local, self_),
                                                 with_->raw};
  std::byte* const result = element_at(with_->keep, range.first, task_->element);
  if (!collects_) {
    fold(with_->op, with_->type, sources_, result, range.count, with_->finish_ranks, task_->stores_of_staged);
    return true;
  }
  std::byte* const shown = payload(self_, chunk) + place(self_, self_);
  const std::size_t bytes = range.count * task_->element;
  const bool past_their_cache = task_->stores_to_staging == Stores::streaming;
  const bool past_mine = !past_their_cache && task_->stores_of_staged == Stores::streaming;
  if (past_their_cache) {
    fold(with_->op, with_->type, sources_, result, range.count, with_->finish_ranks);
    show(shown, result, bytes);
  } else {  // what the others are about to read stays in the cache
    std::byte* const outs[] = {shown, result};
    fold(with_->op, with_->type, sources_, std::span(outs, past_mine ? 1 : 2), range.count, with_->finish_ranks);
    bytes_shown_ += bytes;
  }
  room_.chunk_header(self_, base_ + chunk)
      .combined.value.store(renumbered(with_->tag, base_ + chunk + 1), std::memory_order_release);
  if (past_mine) copy(result, shown, bytes, task_->stores_of_staged);
  return true;
}

bool Staged::collect(std::uint64_t chunk) {
  if (!collects_) return true;
  if (one_shot_) {
    if (staged_ <= chunk) return false;  // in place, the result takes the place of what is still to be shown
    for (int local = 0; local < ranks_; ++local)
      if (local != self_ && !staged(local, chunk)) return false;
    const Range range = whole(chunk);
    for (int local = 0; local < ranks_; ++local)
      sources_[static_cast<std::size_t>(local)] = {
          local == self_ ? element_at(with_->own, range.first, task_->element) : payload(local, chunk), with_->raw};
    fold(with_->op, with_->type, sources_, element_at(with_->keep, range.first, task_->element), range.count,
         with_->finish_ranks, task_->stores_of_staged);
    return true;
  }
  for (int local = 0; local < ranks_; ++local)
    if (local != self_ && slice(local, chunk).count > 0 && !(owners_ ? combined(local, chunk) : staged(local, chunk)))
      return false;
  for (int turn = 1; turn <= ranks_; ++turn) {  // from the next rank on, so that no rank is read by all at once
    const int local = (self_ + turn) % ranks_;
    const Range range = slice(local, chunk);
    if (range.count == 0) continue;
    std::byte* to = element_at(with_->keep, range.first, task_->element);
    if (local != self_)
      copy(to, payload(local, chunk) + place(local, local), range.count * task_->element, task_->stores_of_staged);
    else if (const std::byte* own = element_at(with_->own, range.first, task_->element); !owners_ && to != own)
      copy(to, own, range.count * task_->element, task_->stores_of_staged);
  }
  return true;
}

}  // namespace collectives
