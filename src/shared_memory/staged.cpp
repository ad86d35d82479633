// Implementation of the staged protocol. staged.hpp describes it.
//
// The vector is cut into chunks. A chunk occupies one place in the ring of staging memory that each rank has. Up to
// three moves work on a chunk:
//
//   stage()    copies values of this rank into its ring
//   combine()  folds one slice of the values of all ranks, on the rank that owns the slice; not in a one-shot
//   collective collect()  copies slices from the rings of the peers into the result; in a one-shot collective it folds
//   whole vectors
//
// Ranks are oversubscribed if the host has more ranks than cores. Short collectives of oversubscribed ranks use only
// the front, the beginning of the ring.
#include "shared_memory/staged.hpp"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <cstring>

#include "base/round_up.hpp"
#include "shared_memory/prefault.hpp"

namespace collectives {
namespace {

/// Number of chunks into which a vector is cut, as far as the limits of the chunk length permit.
constexpr std::size_t kChunksOfALongVector = 16;
/// kPiecesWithOneRoot: maximum number of chunks of a short broadcast or reduce, if each rank has a core. kLeastPiece:
/// minimum length of these chunks in bytes.
constexpr std::size_t kPiecesWithOneRoot = 8, kLeastPiece = 2048;
/// Factor by which the maximum length of chunks grows if results use streaming stores, which bypass the caches.
constexpr std::size_t kStreamedChunk = 4;
/// Number of bytes of the ring by which one move runs ahead of the next one, if each rank has a core.
constexpr std::size_t kApart = 256 << 10;
/// kFront: minimum length in bytes of the front of the ring. kCollectivesInFront: minimum number of collectives as long
/// as the current one that the front holds.
constexpr std::uint64_t kFront = 256 << 10, kCollectivesInFront = 4;
/// Number of bytes of a ring that are prefaulted together.
constexpr std::size_t kPrefaulted = 64 << 10;

}  // namespace

/// Returns the chunk length of a ring of at most 2 MiB. The rings of all ranks together take at most a quarter of
/// streaming_bytes, unless kGrowth requires more: a chunk has at least kGrowth times chunk_bytes. The ring exceeds
/// the own cache of most cores, while all rings fit into the common cache.
std::size_t Staged::longest_chunk(int ranks, const TuningParameters& tuning) {
  constexpr std::size_t kRing = std::size_t{2} << 20, kGrowth = 4;
  const std::size_t share = tuning.streaming_bytes / (4 * static_cast<std::size_t>(ranks));
  return std::max(kGrowth * tuning.chunk_bytes, std::min(kRing, share) / kLongestChunks);
}

Staged::Staged(const SubgroupMemory& subgroup, const TuningParameters& tuning, bool oversubscribed)
    : subgroup_(subgroup),
      tuning_(tuning),
      oversubscribed_(oversubscribed),
      self_(subgroup.self()),
      ranks_(subgroup.ranks()),
      known_staged_(static_cast<std::size_t>(subgroup.ranks())),
      known_combined_(known_staged_),
      left_(known_staged_),
      prefaulted_(static_cast<std::size_t>(subgroup.ranks())),
      sources_(static_cast<std::size_t>(subgroup.ranks())) {}

void Staged::start(const HostTask& task, const HostOperands& with, std::uint64_t number) {
  task_ = &task;
  with_ = &with;
  number_ = number;
  tag_ = renumbered(with.tag, number);
  one_shot_ = task.protocol == HostProtocol::one_shot;
  owners_ = task.combines() && !one_shot_;
  collects_ = task.every_rank_wants_all();
  choose_stores();
  cut_into_chunks();
  std::ranges::fill(known_staged_, 0);
  std::ranges::fill(known_combined_, 0);
  choose_positions();
  // Stages the first chunk before this rank writes other shared records of the call, such as its arrival record. The
  // peers wait for the chunk.
  if (stage_next()) ++moves_;
}

/// Chooses how results and staged data are stored.
void Staged::choose_stores() {
  // In place, the lines of the result are already cached. A rank that streams its results stages by
  // streaming_but_first, which is a loop of normal stores. memcpy uses string instructions, which wait until all
  // earlier streamed stores have arrived. Two cases use memcpy all the same. With one root, no rank both stages and
  // streams. An oversubscribed rank stages much data in one go, for which memcpy is faster.
  results_ = task_->combines() && with_->source == with_->destination ? Stores::cached : task_->stores;
  to_staging_ = task_->stores_to_staging == Stores::streaming                          ? Stores::streaming
                : !oversubscribed_ && task_->root < 0 && results_ == Stores::streaming ? Stores::streaming_but_first
                                                                                       : Stores::cached;
}

/// Returns the limits of the length of a chunk, if the longest slice has `bytes` bytes.
Staged::ChunkLimits Staged::chunk_limits(std::size_t bytes) const {
  // Short chunks stay in the cache. But each chunk is a synchronization, which is slow for a rank that has lost its
  // core. Longer vectors therefore get longer chunks, up to the size of the memory. Moves that keep their distance do
  // not need this. Streamed results are the exception, because each streamed chunk begins and ends slowly.
  std::size_t most = subgroup_.shape().chunk_bytes;
  if (!oversubscribed_ && task_->root < 0)
    most = std::min(most, tuning_.chunk_bytes * std::max<std::size_t>(1, task_->slices.size() / 2) *
                              (task_->stores == Stores::streaming ? kStreamedChunk : 1));
  std::size_t least = std::min(tuning_.chunk_bytes, most);
  // With one owner, some ranks only write and others only read. If they have a core each, both work at the same time
  // from the second chunk on. Cutting n bytes into m chunks adds the time of n/m + m * signal_bytes bytes. The sum is
  // least for chunks of sqrt(n * signal_bytes) bytes.
  if (task_->root >= 0 && !oversubscribed_) {
    const double best = std::sqrt(static_cast<double>(bytes) * static_cast<double>(tuning_.signal_bytes));
    const auto piece = static_cast<std::size_t>(std::min(best, static_cast<double>(least)));
    least = std::min(least, std::max({kLeastPiece, piece, bytes / kPiecesWithOneRoot}));
  }
  return {least, most};
}

/// Chooses the number of chunks and their length.
void Staged::cut_into_chunks() {
  const HostTask& task = *task_;
  // Slices to be combined share a chunk. The chunk has one place per owner, without the rank's own place if results are
  // not shown. A slice that is only shown fills its chunk alone.
  const auto sharers =
      static_cast<std::size_t>(owners_ && task.root < 0 ? std::max(1, collects_ ? ranks_ : ranks_ - 1) : 1);
  const std::size_t longest = std::max<std::size_t>(1, one_shot_ ? task.total : task.longest);
  const auto [least, most] = chunk_limits(longest * task.element);
  const std::size_t space = std::clamp(longest * sharers * task.element / kChunksOfALongVector, least, most);
  segment_ = std::max<std::size_t>(1, space / task.element / sharers);
  chunks_ = (longest + segment_ - 1) / segment_;
  // Chunks are nearly equal, because a short last one would cost a synchronization for little. Their elements fill
  // whole cache lines for any type.
  constexpr std::size_t kWhole = 64;
  segment_ = std::min(segment_, round_up((longest + chunks_ - 1) / chunks_, kWhole));
  chunks_ = (longest + segment_ - 1) / segment_;
  stride_ = round_up(segment_ * sharers * task.element, kLineBytes);
}

/// Chooses the positions of the first chunk, and the distance between the moves.
void Staged::choose_positions() {
  const std::uint64_t ring = subgroup_.staging_bytes();
  Chunk first{0, from_, static_cast<std::size_t>(from_ % ring)};
  wrap(first);
  const std::uint64_t all = chunks_ * stride_;
  if (oversubscribed_ && task_->root < 0 && first.offset + all > std::max(kFront, kCollectivesInFront * all))
    to_front(first);
  staged_ = combined_ = collected_ = first;
  // A rank stages up to twice the distance ahead of its collecting. Until it collects, no memory of the ring is
  // released.
  assert(ring / stride_ >= kLongestChunks);
  apart_ = oversubscribed_ ? 0 : std::clamp<std::uint64_t>(kApart / stride_, 1, ring / stride_ / 2 - 1);
  ahead_ = oversubscribed_ ? chunks_ : 1 + (owners_ ? 2 : 1) * apart_;
}

/// Moves a chunk to the front of the ring. The rest of this pass counts as taken and as left.
void Staged::to_front(Chunk& chunk) const {
  chunk.position += subgroup_.staging_bytes() - chunk.offset;
  chunk.offset = 0;
}

/// Moves a chunk to the front if it would cross the end of the ring.
void Staged::wrap(Chunk& chunk) const {
  if (chunk.offset + stride_ > subgroup_.staging_bytes()) to_front(chunk);
}

void Staged::step(Chunk& chunk) const {
  ++chunk.number;
  chunk.position += stride_;
  chunk.offset += stride_;
  wrap(chunk);
}

Range Staged::slice(int local, const Chunk& chunk) const {
  const Range& all = task_->slice(local);
  const std::size_t skipped = std::min<std::size_t>(all.count, segment_ * chunk.number);
  return {all.first + skipped, std::min(segment_, all.count - skipped)};
}

/// Returns the elements of a chunk of a one-shot collective, whose slices are adjacent.
Range Staged::whole(const Chunk& chunk) const {
  const std::size_t skipped = segment_ * chunk.number;
  return {task_->slice(0).first + skipped, std::min(segment_, task_->total - skipped)};
}

/// Returns the offset in bytes of the slice of `local` in a chunk of rank `whose`.
std::size_t Staged::place(int whose, int local) const {
  if (!owners_ || task_->root >= 0) return 0;
  return static_cast<std::size_t>(local - (!collects_ && local > whose ? 1 : 0)) * segment_ * task_->element;
}

std::byte* Staged::payload(int local, const Chunk& chunk) const { return subgroup_.staging(local) + chunk.offset; }

/// In place, results overwrite values that are still to be staged. Therefore no move overtakes the one before it, even
/// without a distance.
bool Staged::progress() {
  const auto upto = [&](std::uint64_t chunk) { return std::min(chunks_, chunk); };
  const std::uint64_t before_combining = owners_ ? apart_ : 0;
  const std::uint64_t moves_before = moves_;
  for (bool moved = true; moved;) {
    moved = false;
    if (combined_.number < staged_.number && staged_.number >= upto(combined_.number + 1 + before_combining) &&
        combine(combined_)) {
      moved = true;
      step(combined_);
    }
    if (staged_.number < upto(collected_.number + ahead_) && stage_next()) moved = true;
    if (collected_.number < combined_.number && combined_.number >= upto(collected_.number + 1 + apart_) &&
        collect(collected_)) {
      moved = true;
      step(collected_);
      subgroup_.block(self_).left.value.store(collected_.position, std::memory_order_release);
    }
    if (moved) ++moves_;
  }
  // Another thread may call progress() next.
  if (results_ == Stores::streaming && moves_ > moves_before) fence_streams();
  if (collected_.number < chunks_ || staged_.number < chunks_) return false;
  from_ = collected_.position;
  return true;
}

/// Prefaults a rank's chunk and some bytes behind it, unless this process has done so before.
void Staged::prefault_chunk(int local, const Chunk& chunk) {
  const std::size_t end = chunk.offset + stride_;
  std::size_t& upto = prefaulted_[static_cast<std::size_t>(local)];
  if (upto >= end) return;
  const std::size_t from = std::max(upto, chunk.offset);
  upto = std::min(from + round_up(end - from, kPrefaulted), subgroup_.staging_bytes());
  prefault(subgroup_.staging(local) + from, upto - from);
}

/// Returns true if all ranks have left the previous content of this chunk's memory.
bool Staged::has_space_for(const Chunk& chunk) {
  const std::uint64_t end = chunk.position + stride_, ring = subgroup_.staging_bytes();
  if (end <= ring) return true;
  const std::uint64_t least = end - ring;
  for (int local = 0; local < ranks_; ++local) {
    std::uint64_t& left = left_[static_cast<std::size_t>(local)];
    if (local == self_ || left >= least) continue;
    left = subgroup_.block(local).left.value.load(std::memory_order_acquire);
    if (left < least) return false;
  }
  return true;
}

/// Returns true if a rank has counted this chunk. `known` caches the count that was last read.
bool Staged::published(Counts counts, int local, const Chunk& chunk, std::uint64_t& known) {
  if (chunk.number >= known) {
    const ChunkCount& seen = count(counts, local);
    if (!tag_matches(seen.tag.load(std::memory_order_acquire), tag_, local)) return false;
    known = seen.chunks.load(std::memory_order_acquire);
    if (chunk.number >= known) return false;
  }
  prefault_chunk(local, chunk);  // not earlier: a page lies in the memory of the rank that touches it first
  return true;
}

bool Staged::staged(int local, const Chunk& chunk) {
  if (!published(&HostCollectiveBlock::staged, local, chunk, known_staged_[static_cast<std::size_t>(local)]))
    return false;
  // A rank that takes part in this collective has finished the one before.
  std::uint64_t& left = left_[static_cast<std::size_t>(local)];
  left = std::max(left, from_);
  return true;
}

bool Staged::combined(int local, const Chunk& chunk) {
  return published(&HostCollectiveBlock::combined, local, chunk, known_combined_[static_cast<std::size_t>(local)]);
}

/// Announces that the content of a chunk is complete.
void Staged::publish(Counts counts, const Chunk& chunk) {
  if (to_staging_ == Stores::streaming) fence_streams();
  ChunkCount& mine = count(counts, self_);
  mine.chunks.store(chunk.number + 1, std::memory_order_release);
  if (chunk.number == 0) mine.tag.store(tag_, std::memory_order_release);
}

void Staged::show(std::byte* to, const std::byte* from, std::size_t bytes) {
  copy(to, from, bytes, to_staging_);
  bytes_shown_ += bytes;
}

bool Staged::stage_next() {
  if (!stage(staged_)) return false;
  step(staged_);
  return true;
}

bool Staged::stage(const Chunk& chunk) {
  if (!task_->shows(self_)) return true;
  if (!has_space_for(chunk)) return false;
  prefault_chunk(self_, chunk);
  const auto source = [&](Range range) { return element_at(with_->source, range.first, task_->element); };
  if (one_shot_) {
    const Range range = whole(chunk);
    show(payload(self_, chunk), source(range), range.count * task_->element);
  } else if (task_->combines()) {
    for (int local = 0; local < ranks_; ++local) {
      const Range range = slice(local, chunk);
      if (local != self_ && range.count > 0)
        show(payload(self_, chunk) + place(self_, local), source(range), range.count * task_->element);
    }
  } else if (const Range range = slice(self_, chunk); range.count > 0) {
    show(payload(self_, chunk), source(range), range.count * task_->element);
  }
  publish(&HostCollectiveBlock::staged, chunk);
  return true;
}

bool Staged::combine(const Chunk& chunk) {
  if (!owners_) return true;
  const Range range = slice(self_, chunk);
  if (range.count == 0) return true;
  for (int local = 0; local < ranks_; ++local)
    if (local != self_ && !staged(local, chunk)) return false;
  const std::byte* source = element_at(with_->source, range.first, task_->element);
  for (int local = 0; local < ranks_; ++local)
    sources_[static_cast<std::size_t>(local)] = {local == self_ ? source : payload(local, chunk) + place(local, self_),
                                                 with_->unreduced};
  std::byte* const result = element_at(with_->destination, range.first, task_->element);
  if (!collects_) {
    fold(with_->op, with_->type, sources_, result, range.count, with_->finish_ranks, results_);
    return true;
  }
  std::byte* const shown = payload(self_, chunk) + place(self_, self_);
  const std::size_t bytes = range.count * task_->element;
  if (to_staging_ == Stores::streaming) {
    fold(with_->op, with_->type, sources_, result, range.count, with_->finish_ranks);
    show(shown, result, bytes);
  } else {  // the peers read it soon, so it stays in the cache
    std::byte* const outs[] = {shown, result};
    fold(with_->op, with_->type, sources_, outs, range.count, with_->finish_ranks,
         results_ == Stores::streaming ? Stores::streaming_but_first : Stores::cached);
    bytes_shown_ += bytes;
  }
  publish(&HostCollectiveBlock::combined, chunk);
  return true;
}

bool Staged::collect(const Chunk& chunk) {
  if (!collects_) return true;
  if (one_shot_) {
    for (int local = 0; local < ranks_; ++local)
      if (local != self_ && !staged(local, chunk)) return false;
    const Range range = whole(chunk);
    for (int local = 0; local < ranks_; ++local)
      sources_[static_cast<std::size_t>(local)] = {
          local == self_ ? element_at(with_->source, range.first, task_->element) : payload(local, chunk),
          with_->unreduced};
    fold(with_->op, with_->type, sources_, element_at(with_->destination, range.first, task_->element), range.count,
         with_->finish_ranks, results_);
    return true;
  }
  for (int local = 0; local < ranks_; ++local)
    if (local != self_ && slice(local, chunk).count > 0 && !(owners_ ? combined(local, chunk) : staged(local, chunk)))
      return false;
  for (int turn = 1; turn <= ranks_; ++turn) {  // starts at the next rank, so that no rank is read by all at once
    const int local = (self_ + turn) % ranks_;
    const Range range = slice(local, chunk);
    if (range.count == 0) continue;
    std::byte* to = element_at(with_->destination, range.first, task_->element);
    if (local != self_)
      copy(to, payload(local, chunk) + place(local, local), range.count * task_->element, results_);
    else if (const std::byte* source = element_at(with_->source, range.first, task_->element); !owners_ && to != source)
      copy(to, source, range.count * task_->element, results_);
  }
  return true;
}

}  // namespace collectives
