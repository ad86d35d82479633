// Implementation of the inline protocol, by which the ranks of one host exchange short vectors. The values lie in the
// same cache lines of shared memory that ranks poll. To poll is to read repeatedly until a value changes.
//
// A line is a cache line with kLinePayload bytes of values (the payload) and a tag. The writer stores the tag last, so
// a reader that sees the tag of the collective can read the payload. A slot holds one rank's lines for one collective.
// A span is a range of bytes in a payload.
#include "shared_memory/inline_protocol.hpp"

#include <algorithm>
#include <atomic>
#include <bit>
#include <cstring>
#include <type_traits>
#include <utility>

#include "base/round_up.hpp"
#include "shared_memory/prefault.hpp"
#include "shared_memory/prefetch.hpp"

namespace collectives {
namespace {

/// Maximum number of times that progress() checks the missing lines of one peer before it returns. A return and the
/// next call of progress() together take about as long as 8 checks. With 32 checks per call, a rank checks for most of
/// its waiting time.
constexpr int kLooks = 32;

/// Distance between the slots of consecutive collectives, in slots. If the slots were adjacent, a reader's processor
/// would also prefetch the lines of the next slot. The prefetch would take these lines from the writer's cache shortly
/// before the writer needs them. The number of slots is a power of two and the distance is odd, so consecutive
/// collectives use every slot in turn.
constexpr std::uint64_t kSlotsApart = 29;
static_assert(std::has_single_bit(kCollectivesAhead) && kSlotsApart % 2 == 1);

/// Returns the number of lines that hold a payload of `bytes`.
constexpr std::size_t lines_for(std::size_t bytes) { return (bytes + kLinePayload - 1) / kLinePayload; }

/// Returns a line's tag, which marks the payload as complete.
std::atomic_ref<std::uint64_t> tag_of(std::byte* line) {
  return std::atomic_ref<std::uint64_t>(*reinterpret_cast<std::uint64_t*>(line + kLinePayload));
}

/// Copies min(bytes, kLinePayload) bytes of payload into or out of a line.
///
/// Copies a full payload by one memcpy. Copies 4 to 55 bytes as two blocks of fixed length, one at each end of the
/// payload; the blocks may overlap. A memcpy of variable length would take as long as the rest of a short collective.
/// The accesses need not be atomic. A reader checks the tag first, and a slot is written again only after all ranks
/// have read it.
inline void copy_payload(std::byte* to, const std::byte* from, std::size_t bytes) {
  const auto from_both_ends = [&]<std::size_t length>(std::integral_constant<std::size_t, length>) {
    std::byte first[length], last[length];
    std::memcpy(first, from, length);
    std::memcpy(last, from + bytes - length, length);
    std::memcpy(to, first, length);
    std::memcpy(to + bytes - length, last, length);
  };
  if (bytes >= kLinePayload) {
    std::memcpy(to, from, kLinePayload);
    return;
  }
  if (bytes >= 32) return from_both_ends(std::integral_constant<std::size_t, 32>());
  if (bytes >= 16) return from_both_ends(std::integral_constant<std::size_t, 16>());
  if (bytes >= 8) return from_both_ends(std::integral_constant<std::size_t, 8>());
  if (bytes >= 4) return from_both_ends(std::integral_constant<std::size_t, 4>());
  for (std::size_t at = 0; at < bytes; ++at) to[at] = from[at];
}

}  // namespace

InlineProtocol::InlineProtocol(const SubgroupMemory& subgroup)
    : self_(subgroup.self()),
      ranks_(subgroup.ranks()),
      slot_bytes_(static_cast<std::size_t>(subgroup.lines(0, 1) - subgroup.lines(0, 0))),
      stride_(std::max<std::size_t>(1, lines_for(subgroup.shape().inline_bytes)) * kLinePayload),
      gathered_(static_cast<std::size_t>(subgroup.ranks()) * stride_),
      sources_(static_cast<std::size_t>(subgroup.ranks())) {
  for (int local = 0; local < ranks_; ++local) slots_.push_back(subgroup.lines(local, 0));
  // The system places a page in the memory nearest to the core that touches the page first. This rank writes its slots,
  // so it touches them first.
  prefault(slots_[static_cast<std::size_t>(self_)], kCollectivesAhead * slot_bytes_);
}

// ---- preparation, once for all collectives with the same operands ----

/// Computes the data that all collectives with these operands share. If values are combined, the payload of a rank is
/// its whole vector. Otherwise the payload is the slice that the rank owns.
void InlineProtocol::prepare(const HostTask& task, const HostOperands& with) {
  known_as_ = 0;  // an exception below must not leave half-prepared operands
  if (!std::exchange(prefaulted_, true))
    for (std::byte* const slots : slots_) prefault(slots, kCollectivesAhead * slot_bytes_);
  parcels_.clear();
  if (task.deals()) {
    prepare_to_deal(task, with);
    known_as_ = with.known_as;
    return;
  }
  const bool signal_only = task.kind == Step::Kind::host_barrier;
  const Span mine = combined(task);
  prepare_to_show(task, with, mine);
  wanted_.clear();
  if (task.scatters()) prepare_to_scatter(task, with);
  for (int local = 0; local < ranks_ && !task.scatters(); ++local) {
    if (local == self_ || !task.shows(local) || !task.needs(self_, local)) continue;
    const Range& slice = task.slice(local);
    if (signal_only)
      wanted_.push_back({local, 0, 1, 0, nullptr});
    else if (!task.combines() && slice.count > 0)
      wanted_.push_back({local, 0, lines_for(slice.count * task.element), slice.count * task.element,
                         element_at(with.destination, slice.first, task.element)});
    else if (task.combines() && mine.end > mine.begin) {
      const std::size_t first = mine.begin / kLinePayload, end = lines_for(mine.end);
      wanted_.push_back({local, first, end, mine.end, end - first > 1 ? gathered(local) : nullptr});
    }
  }
  pieces_.clear();
  pieces_at_ = mine.begin;
  if (task.combines()) prepare_to_combine(task, with, mine);
  known_as_ = with.known_as;
}

/// Returns the part of every payload that this rank combines: the whole payload, or the slice that this rank owns.
InlineProtocol::Span InlineProtocol::combined(const HostTask& task) const {
  if (!task.combines() || task.terms(self_) == 0) return {};
  if (task.every_rank_wants_all()) return {0, task.total * task.element};
  std::size_t before = 0;
  for (int local = 0; local < self_; ++local) before += task.slice(local).count;
  return {before * task.element, (before + task.slice(self_).count) * task.element};
}

/// Determines this rank's payload, and the parts of it that peers need.
void InlineProtocol::prepare_to_show(const HostTask& task, const HostOperands& with, Span mine) {
  packed_.clear();
  kept_ = {};
  signal_only_ = task.kind == Step::Kind::host_barrier;
  shows_one_line_ = false;
  shown_[0] = shown_[1] = {};
  shown_bytes_ = own_bytes_ = 0;
  if (signal_only_ || task.scatters()) return;

  const Range& slice = task.slice(self_);
  if (!task.combines()) {
    own_ = element_at(with.source, slice.first, task.element);
    own_bytes_ = slice.count * task.element;
    std::byte* const to = element_at(with.destination, slice.first, task.element);
    if (own_ != to && task.collects(self_)) kept_ = {own_, to, own_bytes_};
  } else {
    own_ = gathered(self_);
    for (const Range& one : task.slices) {
      if (one.count == 0) continue;
      packed_.push_back(
          {element_at(with.source, one.first, task.element), gathered(self_) + own_bytes_, one.count * task.element});
      own_bytes_ += one.count * task.element;
    }
    if (task.adjacent) {
      if (!packed_.empty()) own_ = packed_.front().from;
      packed_.clear();
    }
  }
  if (!task.shows(self_)) return;
  if (task.kind == Step::Kind::host_reduce_scatter && task.root < 0) {  // no peer reads this rank's own slice
    shown_[0] = {0, mine.begin};
    shown_[1] = {std::max(mine.end, round_up(mine.begin, kLinePayload)), own_bytes_};  // no line is in both parts
    shown_bytes_ = own_bytes_ - (mine.end - mine.begin);
  } else {
    shown_[0] = {0, own_bytes_};
    shown_bytes_ = own_bytes_;
    shows_one_line_ = packed_.empty() && own_bytes_ > 0 && own_bytes_ <= kLinePayload;
  }
}

/// Determines the slices that the root of a scatter shows, or the slice that another rank needs. Each slice begins with
/// a line of its own, so that no two ranks read one line.
void InlineProtocol::prepare_to_scatter(const HostTask& task, const HostOperands& with) {
  std::size_t first_line = 0;
  for (int local = 0; local < ranks_; ++local) {
    const Range& slice = task.slice(local);
    const std::size_t bytes = slice.count * task.element, begin = first_line * kLinePayload;
    const std::byte* const from = element_at(with.source, slice.first, task.element);
    std::byte* const to = element_at(with.destination, slice.first, task.element);
    if (local == task.root) {
      if (self_ == local && from != to) kept_ = {from, to, bytes};
      continue;
    }
    if (bytes == 0) continue;
    if (self_ == task.root) {
      parcels_.push_back({from, first_line, bytes});
      shown_bytes_ += bytes;
    } else if (self_ == local) {
      wanted_.push_back({task.root, first_line, first_line + lines_for(bytes), begin + bytes, to - begin});
    }
    first_line += lines_for(bytes);
  }
}

/// Determines the pieces to combine. A piece holds slices that are adjacent in the vector.
void InlineProtocol::prepare_to_combine(const HostTask& task, const HostOperands& with, Span mine) {
  fold_ = Fold(with.op, with.type, with.finish_ranks);
  terms_ = static_cast<std::size_t>(task.terms(self_));
  for (Source& source : sources_) source.unreduced = with.unreduced;
  std::size_t at = mine.begin;
  for (int local = 0; local < ranks_ && at < mine.end; ++local) {
    const Range& slice = task.slice(local);
    if (slice.count == 0 || (task.kind == Step::Kind::host_reduce_scatter && local != self_)) continue;
    const std::size_t bytes = task.adjacent ? mine.end - at : slice.count * task.element;
    pieces_.push_back({element_at(with.destination, slice.first, task.element), bytes / task.element, bytes});
    at += bytes;
  }
}

/// Determines the lines and the memory of all blocks of an all-to-all. A line without elements only signals.
void InlineProtocol::prepare_to_deal(const HostTask& task, const HostOperands& with) {
  packed_.clear();
  pieces_.clear();
  wanted_.clear();
  kept_ = {};
  signal_only_ = shows_one_line_ = false;
  shown_[0] = shown_[1] = {};
  shown_bytes_ = pieces_at_ = 0;
  const std::size_t lines = std::max<std::size_t>(1, lines_for(task.longest * task.element));
  for (int local = 0; local < ranks_; ++local) {
    const Range sent = task.slice(local), received = task.incoming(local);
    const std::byte* const from = element_at(with.source, sent.first, task.element);
    std::byte* const to = element_at(with.destination, received.first, task.element);
    const std::size_t out = sent.count * task.element, in = received.count * task.element;
    if (local == self_) {
      if (from != to) kept_ = {from, to, in};
      continue;
    }
    parcels_.push_back({from, static_cast<std::size_t>(local) * lines, out});
    shown_bytes_ += out;
    const std::size_t first = static_cast<std::size_t>(self_) * lines;
    // read() copies line l of a payload to element l of `base`, if an element has kLinePayload bytes.
    std::byte* const base = element_at(to, 0 - first, kLinePayload);
    wanted_.push_back({local, first, first + std::max<std::size_t>(1, lines_for(in)), first * kLinePayload + in, base});
  }
}

// ---- a collective ----

std::size_t InlineProtocol::slot_of(std::uint64_t number) const {
  return static_cast<std::size_t>(number * kSlotsApart % kCollectivesAhead) * slot_bytes_;
}

void InlineProtocol::start(const HostTask& task, const HostOperands& with, std::uint64_t number) {
  if (with.known_as == 0 || with.known_as != known_as_) prepare(task, with);
  slot_at_ = slot_of(number);
  tag_ = renumbered(with.tag, number);
  reading_ = lines_read_ = 0;
  std::byte* const next = slots_[static_cast<std::size_t>(self_)] + slot_of(number + 1);
  if (signal_only_) {
    if (task.shows(self_)) tag_of(slot(self_)).store(tag_, std::memory_order_release);
    return prefetch_for_write(next);
  }
  if (shows_one_line_) {
    write_line(slot(self_), own_, own_bytes_);
    bytes_shown_ += own_bytes_;
    return prefetch_for_write(next);
  }
  for (const Own& slice : packed_) std::memcpy(slice.to, slice.from, slice.bytes);
  for (const Span span : shown_) write(span);
  for (const Parcel& parcel : parcels_) write(parcel);
  for (const Span span : shown_) prefetch(next, span);
  for (const Parcel& parcel : parcels_) {
    const std::size_t begin = parcel.first_line * kLinePayload;
    prefetch(next, {begin, begin + parcel.bytes});
  }
  bytes_shown_ += shown_bytes_;
}

/// Writes min(bytes, kLinePayload) bytes of payload, and then the tag.
void InlineProtocol::write_line(std::byte* line, const std::byte* from, std::size_t bytes) const {
  copy_payload(line, from, bytes);
  tag_of(line).store(tag_, std::memory_order_release);
}

/// Writes the lines that overlap `span`.
void InlineProtocol::write(Span span) {
  if (span.begin >= span.end) return;
  const std::size_t first = span.begin / kLinePayload;
  std::byte* line = slot(self_) + first * kLineBytes;
  for (std::size_t at = first * kLinePayload; at < span.end; at += kLinePayload, line += kLineBytes)
    write_line(line, own_ + at, own_bytes_ - at);
}

/// Writes the lines of a parcel. A parcel without elements is one line in an all-to-all, which only signals.
void InlineProtocol::write(const Parcel& parcel) {
  std::byte* line = slot(self_) + parcel.first_line * kLineBytes;
  for (std::size_t at = 0; at < std::max<std::size_t>(1, parcel.bytes); at += kLinePayload, line += kLineBytes)
    write_line(line, parcel.from + at, parcel.bytes - at);
}

/// Prefetches the lines that this rank will write in the next collective, if that has the same operands.
void InlineProtocol::prefetch(std::byte* next, Span span) const {
  if (span.begin >= span.end) return;
  for (std::size_t at = span.begin - span.begin % kLinePayload; at < span.end; at += kLinePayload)
    prefetch_for_write(next + at / kLinePayload * kLineBytes);
}

/// Reads the needed part of a peer's payload. Returns false if a line has not arrived yet.
bool InlineProtocol::read(const Wanted& wanted) {
  std::byte* line = slot(wanted.local) + (wanted.first + lines_read_) * kLineBytes;
  for (std::size_t l = wanted.first + lines_read_; l < wanted.end; ++l, line += kLineBytes) {
    if (!tag_matches(tag_of(line).load(std::memory_order_acquire), tag_, wanted.local)) return false;
    if (wanted.to != nullptr)
      copy_payload(element_at(wanted.to, l, kLinePayload), line, wanted.bytes - l * kLinePayload);
    ++lines_read_;
  }
  const std::byte* const payload = wanted.to != nullptr ? wanted.to : line - kLineBytes - wanted.first * kLinePayload;
  sources_[static_cast<std::size_t>(wanted.local)].data = payload + pieces_at_;
  lines_read_ = 0;
  return true;
}

bool InlineProtocol::progress() {
  for (; reading_ < wanted_.size(); ++reading_) {
    for (int looks = 1; !read(wanted_[reading_]); ++looks)
      if (looks == kLooks) return false;
  }
  finish();
  return true;
}

/// Computes the result from the payloads of all ranks.
void InlineProtocol::finish() {
  if (kept_.bytes > 0) std::memcpy(kept_.to, kept_.from, kept_.bytes);
  if (pieces_.empty()) return;
  sources_[static_cast<std::size_t>(self_)].data = own_ + pieces_at_;
  for (const Piece& piece : pieces_) {
    fold_({sources_.data(), terms_}, piece.to, piece.count);
    if (&piece != &pieces_.back())
      for (Source& source : sources_) source.data += piece.bytes;
  }
}

}  // namespace collectives
