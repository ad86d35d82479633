// Implementation of the staged protocol, by which ranks of one host exchange a long vector. Each rank has a staging
// ring in shared memory. To stage is to copy values into this ring. The vector is divided into slices, one for each
// rank, which is the owner of its slice. In a reduction, the owner of a slice reduces the values of all ranks. In a
// gather, the slice is the owner's input. In a scatter, it is the owner's result.
//
// The vector is also divided into chunks. A chunk has some elements of every slice. A ring holds a few chunks at a
// time. A rank performs up to three actions on each chunk, called moves. Each move has a function of its own:
//
//   stage()    copies values from this rank's input to its ring
//   combine()  reduces the elements of this rank's slice over all ranks, and writes the sums to the result
//   collect()  copies elements of the peers' slices from their rings to the result
//
// In an all-reduce, combine() also writes the sums to this rank's ring. collect() of each peer then copies the sums
// from this ring. An all-to-all reduces nothing: combine() copies the blocks for this rank from the rings of its peers,
// and its own block from the input. In an all-gather that is not in place, collect() also copies this rank's own slice
// from the input to the result. In a broadcast that is not in place, collect() on the root copies the whole vector from
// the input to the result. In a scatter, the root stages the slices of all other ranks.
//
// One-shot collectives have no slices. In a one-shot all-reduce, every rank stages its whole vector, and collect()
// reduces the vectors of all ranks. A scan is one-shot, too. A rank reduces its vector and those of the ranks before
// it. A chunk of a one-shot collective is one contiguous range of the vector.
//
// Ranks are oversubscribed if the host has more ranks than cores. In short collectives without a root, oversubscribed
// ranks use only the front of the ring, to touch fewer pages. The front is the first 256 KiB of the ring. The front is
// longer if four collectives as long as the current one need more space.
#include "shared_memory/staged.hpp"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <cstring>
#include <span>

#include "base/round_up.hpp"

namespace collectives {
namespace {

/// Number of chunks into which a vector is divided, unless chunk_limits() requires shorter or longer chunks.
constexpr std::size_t kChunks = 16;
/// Maximum number of chunks of a short broadcast or reduce, if each rank has a core.
constexpr std::size_t kChunksWithOneRoot = 8;
/// Minimum length in bytes of a chunk of a broadcast or reduce. A shorter chunk takes less time than the signal that
/// announces the chunk to the peers.
constexpr std::size_t kMinChunkWithOneRoot = 2048;
/// Factor by which chunks may be longer if results use streaming stores, which bypass the caches. Each streamed chunk
/// begins and ends slowly, so few chunks are better.
constexpr std::size_t kStreamedChunk = 4;
/// Distance in bytes by which one move runs ahead of the next move, if each rank has a core. The distance hides
/// differences between the speeds of ranks.
constexpr std::size_t kDistance = 256 << 10;
/// Minimum length in bytes of the front of the ring.
constexpr std::uint64_t kFront = 256 << 10;
/// Minimum number of collectives for which the front has space, if all are as long as the current one. With four, no
/// rank waits for space.
constexpr std::uint64_t kCollectivesInFront = 4;

}  // namespace

/// Returns the length in bytes of the longest chunk. The ring of a rank holds kLongestChunks of these chunks. A ring
/// has at most 2 MiB, which is more than the second-level cache of most cores. The rings of all ranks take at most a
/// quarter of streaming_bytes, so they fit into the common cache. But a chunk has at least kGrowth times chunk_bytes,
/// even if the rings then exceed these limits.
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
      rings_(subgroup),
      staging_stores_(static_cast<std::size_t>(subgroup.ranks())),
      sources_(static_cast<std::size_t>(subgroup.ranks())) {}

void Staged::start(const HostTask& task, const HostOperands& with, std::uint64_t number) {
  task_ = &task;
  with_ = &with;
  one_shot_ = task.protocol == HostProtocol::one_shot;
  owners_ = (task.combines() || task.deals()) && !one_shot_;
  collects_ = task.collects(self_);
  choose_stores();
  cut_into_chunks();
  rings_.start(number, renumbered(with.tag, number), stride_);
  choose_positions();
  // The peers wait for the first chunk. This rank therefore stages it before it publishes anything else about the call.
  if (stage_next()) ++moves_;
}

/// Chooses whether results and staged data are stored by normal stores or by streaming stores. Staging by normal
/// stores is a first choice, which staging_stores_ may change.
void Staged::choose_stores() {
  // If a collective works in place, the cache already holds the lines of the result. Streaming stores gain nothing.
  // Stores::cached stages by memcpy. Its string instructions wait until all earlier streaming stores have arrived. A
  // rank that streams its results therefore stages by streaming_but_first, a loop of normal stores. There are two
  // exceptions. With one root, no rank both stages and streams. An oversubscribed rank stages much data at once, and
  // memcpy is faster for that.
  results_ =
      (task_->combines() || task_->deals()) && with_->source == with_->destination ? Stores::cached : task_->stores;
  to_staging_ = task_->stores_to_staging == Stores::streaming                          ? Stores::streaming
                : !oversubscribed_ && task_->root < 0 && results_ == Stores::streaming ? Stores::streaming_but_first
                                                                                       : Stores::cached;
  times_stores_ = to_staging_ != Stores::streaming;
  normal_stores_ = to_staging_;
  if (times_stores_ && stores_for(self_).streams() && collects_ && task_->combines()) to_staging_ = Stores::streaming;
}

/// Returns the minimum and the maximum length of a chunk. `bytes`: length of the longest slice.
Staged::ChunkLimits Staged::chunk_limits(std::size_t bytes) const {
  // Short chunks stay in the cache. But ranks synchronize at each chunk, which is slow for a rank that has lost its
  // core. Oversubscribed ranks may therefore use chunks as long as the staging memory permits. If each rank has a core,
  // the distance between the moves hides the synchronization, so the maximum is lower.
  std::size_t max = subgroup_.shape().chunk_bytes;
  if (!oversubscribed_ && task_->root < 0)
    max = std::min(max, tuning_.chunk_bytes * std::max<std::size_t>(1, task_->slices.size() / 2) *
                            (task_->stores == Stores::streaming ? kStreamedChunk : 1));
  std::size_t min = std::min(tuning_.chunk_bytes, max);
  // With one root, ranks either only write or only read. If each rank has a core, both work at the same time from the
  // second chunk on. The readers wait for the first chunk, and each chunk needs a signal, which takes as long as
  // signal_bytes bytes. A vector of n bytes in m chunks thus takes the time of n + n/m + m * signal_bytes bytes. The
  // time is minimal if a chunk has sqrt(n * signal_bytes) bytes.
  if (task_->root >= 0 && !oversubscribed_) {
    const double best = std::sqrt(static_cast<double>(bytes) * static_cast<double>(tuning_.signal_bytes));
    const auto chunk = static_cast<std::size_t>(std::min(best, static_cast<double>(min)));
    min = std::min(min, std::max({kMinChunkWithOneRoot, chunk, bytes / kChunksWithOneRoot}));
  }
  return {min, max};
}

/// Chooses the number of chunks and their length.
void Staged::cut_into_chunks() {
  const HostTask& task = *task_;
  // In a ring, a chunk has one place for each slice that this rank stages. A reduction stages the slices of all other
  // owners, and this rank's own slice if peers want its result. A gather stages this rank's slice alone. A scatter's
  // root stages all slices but its own.
  const bool shared = task.scatters() || (owners_ && task.root < 0);
  const auto sharers = static_cast<std::size_t>(shared ? std::max(1, owners_ && collects_ ? ranks_ : ranks_ - 1) : 1);
  const std::size_t longest = std::max<std::size_t>(1, one_shot_ ? task.total : task.longest);
  const auto [min, max] = chunk_limits(longest * (task.scatters() ? sharers : 1) * task.element);
  const std::size_t space = std::clamp(longest * sharers * task.element / kChunks, min, max);
  segment_ = std::max<std::size_t>(1, space / task.element / sharers);
  chunks_ = (longest + segment_ - 1) / segment_;
  // All chunks have nearly the same length, because a short last chunk would cost a synchronization for little data. A
  // multiple of 64 elements fills whole cache lines for any type.
  constexpr std::size_t kWhole = 64;
  segment_ = std::min(segment_, round_up((longest + chunks_ - 1) / chunks_, kWhole));
  chunks_ = (longest + segment_ - 1) / segment_;
  stride_ = round_up(segment_ * sharers * task.element, kLineBytes);
}

/// Chooses the position of the first chunk in the ring, and the distance between the moves.
void Staged::choose_positions() {
  const std::uint64_t ring = rings_.bytes();
  Chunk first = rings_.first_chunk();
  const std::uint64_t all = chunks_ * stride_;
  if (oversubscribed_ && task_->root < 0 && first.offset + all > std::max(kFront, kCollectivesInFront * all))
    first.to_front(ring);
  staged_ = combined_ = collected_ = first;
  // Staging runs up to twice the distance ahead of collecting. Memory of the ring is free again after collecting, so
  // twice the distance must fit into the ring.
  assert(ring / stride_ >= kLongestChunks);
  apart_ = oversubscribed_ ? 0 : std::clamp<std::uint64_t>(kDistance / stride_, 1, ring / stride_ / 2 - 1);
  ahead_ = oversubscribed_ ? chunks_ : 1 + (owners_ ? 2 : 1) * apart_;
}

/// Returns the elements of the slice of rank `local` that are in a chunk.
Range Staged::slice(int local, const Chunk& chunk) const { return segment_of(task_->slice(local), chunk); }

/// Returns the elements of a slice in a chunk.
Range Staged::segment_of(const Range& all, const Chunk& chunk) const {
  const std::size_t skipped = std::min<std::size_t>(all.count, segment_ * chunk.number);
  return {all.first + skipped, std::min(segment_, all.count - skipped)};
}

/// Returns the elements of a chunk of a one-shot collective, whose slices are adjacent.
Range Staged::whole(const Chunk& chunk) const {
  const std::size_t skipped = segment_ * chunk.number;
  return {task_->slice(0).first + skipped, std::min(segment_, task_->total - skipped)};
}

/// Returns the offset in bytes of the slice of rank `local` in a chunk that rank `whose` has staged.
std::size_t Staged::place(int whose, int local) const {
  if (!task_->scatters() && (!owners_ || task_->root >= 0)) return 0;
  return static_cast<std::size_t>(local - ((!collects_ || task_->scatters()) && local > whose ? 1 : 0)) * segment_ *
         task_->element;
}

/// A collective in place overwrites values with results. No move therefore overtakes the one before it, even if the
/// distance is 0: a value is staged before it is overwritten.
bool Staged::progress() {
  const auto upto = [&](std::uint64_t chunk) { return std::min(chunks_, chunk); };
  const std::uint64_t before_combining = owners_ ? apart_ : 0;
  const std::uint64_t moves_before = moves_;
  for (bool moved = true; moved;) {
    moved = false;
    if (combined_.number < staged_.number && staged_.number >= upto(combined_.number + 1 + before_combining) &&
        combine(combined_)) {
      moved = true;
      rings_.to_next(combined_);
    }
    if (staged_.number < upto(collected_.number + ahead_) && stage_next()) moved = true;
    if (collected_.number < combined_.number && combined_.number >= upto(collected_.number + 1 + apart_) &&
        collect(collected_)) {
      moved = true;
      rings_.to_next(collected_);
      rings_.leave_chunks_before(collected_);
    }
    if (moved) ++moves_;
  }
  // Another thread may call progress() next. It must see the streamed results.
  if (results_ == Stores::streaming && moves_ > moves_before) fence_streams();
  if (collected_.number < chunks_ || staged_.number < chunks_) return false;
  rings_.finish(collected_);
  return true;
}

/// Copies bytes into this rank's ring. `reader`: the only rank that reads them, or this rank if all peers do.
void Staged::show(std::byte* to, const std::byte* from, std::size_t bytes, int reader) {
  if (times_stores_)
    stores_for(reader).copy(to, from, bytes, normal_stores_);
  else
    copy(to, from, bytes, to_staging_);
  bytes_shown_ += bytes;
}

/// Stages the next chunk. Returns false if the ring has no space yet.
bool Staged::stage_next() {
  if (!stage(staged_)) return false;
  rings_.to_next(staged_);
  return true;
}

bool Staged::stage(const Chunk& chunk) {
  if (!task_->shows(self_)) return true;
  if (!rings_.has_space_for(chunk)) return false;
  rings_.prefault_chunk(self_, chunk);
  const auto source = [&](Range range) { return element_at(with_->source, range.first, task_->element); };
  if (one_shot_) {
    const Range range = whole(chunk);
    show(rings_.payload(self_, chunk), source(range), range.count * task_->element, self_);
  } else if (task_->combines() || task_->scatters() || task_->deals()) {
    for (int local = 0; local < ranks_; ++local) {
      const Range range = slice(local, chunk);
      if (local != self_ && range.count > 0)
        show(rings_.payload(self_, chunk) + place(self_, local), source(range), range.count * task_->element, local);
    }
  } else if (const Range range = slice(self_, chunk); range.count > 0) {
    show(rings_.payload(self_, chunk), source(range), range.count * task_->element, self_);
  }
  if (to_staging_ == Stores::streaming) fence_streams();
  rings_.publish_staged(chunk);
  return true;
}

bool Staged::combine(const Chunk& chunk) {
  if (!owners_) return true;
  if (task_->deals()) return take(chunk);
  const Range range = slice(self_, chunk);
  if (range.count == 0) return true;
  for (int local = 0; local < ranks_; ++local)
    if (local != self_ && !rings_.staged(local, chunk)) return false;
  const std::byte* source = element_at(with_->source, range.first, task_->element);
  for (int local = 0; local < ranks_; ++local)
    sources_[static_cast<std::size_t>(local)] = {
        local == self_ ? source : rings_.payload(local, chunk) + place(local, self_), with_->unreduced};
  std::byte* const result = element_at(with_->destination, range.first, task_->element);
  if (!collects_) {
    fold(with_->op, with_->type, sources_, result, range.count, with_->finish_ranks, results_);
    return true;
  }
  std::byte* const shown = rings_.payload(self_, chunk) + place(self_, self_);
  const std::size_t bytes = range.count * task_->element;
  if (to_staging_ == Stores::streaming) {
    fold(with_->op, with_->type, sources_, result, range.count, with_->finish_ranks);
    show(shown, result, bytes, self_);
    fence_streams();
  } else {  // the peers read the result soon, so it is stored to the cache
    std::byte* const outs[] = {shown, result};
    fold(with_->op, with_->type, sources_, outs, range.count, with_->finish_ranks,
         results_ == Stores::streaming ? Stores::streaming_but_first : Stores::cached);
    bytes_shown_ += bytes;
  }
  rings_.publish_combined(chunk);
  return true;
}

/// Copies this rank's blocks of an all-to-all from the rings of all peers, and its own block from its source.
bool Staged::take(const Chunk& chunk) {
  for (int local = 0; local < ranks_; ++local)
    if (local != self_ && segment_of(task_->incoming(local), chunk).count > 0 && !rings_.staged(local, chunk))
      return false;
  for (int turn = 1; turn <= ranks_; ++turn) {
    const int local = (self_ + turn) % ranks_;
    const Range range = segment_of(task_->incoming(local), chunk);
    if (range.count == 0) continue;
    std::byte* const to = element_at(with_->destination, range.first, task_->element);
    const std::byte* const from = local != self_ ? rings_.payload(local, chunk) + place(local, self_)
                                                 : element_at(with_->source, slice(self_, chunk).first, task_->element);
    if (to != from) copy(to, from, range.count * task_->element, results_);
  }
  return true;
}

bool Staged::collect(const Chunk& chunk) {
  if (!collects_) return true;
  if (one_shot_) return collect_one_shot(chunk);
  if (task_->scatters()) return collect_from_root(chunk);
  for (int local = 0; local < ranks_; ++local)
    if (local != self_ && slice(local, chunk).count > 0 &&
        !(owners_ ? rings_.combined(local, chunk) : rings_.staged(local, chunk)))
      return false;
  for (int turn = 1; turn <= ranks_; ++turn) {  // begins with the next rank, so that ranks do not all read rank 0 first
    const int local = (self_ + turn) % ranks_;
    const Range range = slice(local, chunk);
    if (range.count == 0) continue;
    std::byte* to = element_at(with_->destination, range.first, task_->element);
    if (local != self_)
      copy(to, rings_.payload(local, chunk) + place(local, local), range.count * task_->element, results_);
    else if (const std::byte* source = element_at(with_->source, range.first, task_->element); !owners_ && to != source)
      copy(to, source, range.count * task_->element, results_);
  }
  return true;
}

/// Reduces the vectors of all ranks that this rank needs.
bool Staged::collect_one_shot(const Chunk& chunk) {
  const int terms = task_->terms(self_);
  for (int local = 0; local < terms; ++local)
    if (local != self_ && !rings_.staged(local, chunk)) return false;
  const Range range = whole(chunk);
  for (int local = 0; local < terms; ++local)
    sources_[static_cast<std::size_t>(local)] = {
        local == self_ ? element_at(with_->source, range.first, task_->element) : rings_.payload(local, chunk),
        with_->unreduced};
  fold(with_->op, with_->type, std::span(sources_).first(static_cast<std::size_t>(terms)),
       element_at(with_->destination, range.first, task_->element), range.count, with_->finish_ranks, results_);
  return true;
}

/// Copies this rank's slice from the ring of the root, or from its own input.
bool Staged::collect_from_root(const Chunk& chunk) {
  const Range range = slice(self_, chunk);
  if (range.count == 0) return true;
  std::byte* const to = element_at(with_->destination, range.first, task_->element);
  const std::byte* from = element_at(with_->source, range.first, task_->element);
  if (self_ != task_->root) {
    if (!rings_.staged(task_->root, chunk)) return false;
    from = rings_.payload(task_->root, chunk) + place(task_->root, self_);
  }
  if (to != from) copy(to, from, range.count * task_->element, results_);
  return true;
}

}  // namespace collectives
