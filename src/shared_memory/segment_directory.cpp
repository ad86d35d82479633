// Implementation of segment directories. A segment directory tells the peers where the segments of this rank are. It
// also maps the peers' segments into this process.
//
// A segment is memory from which allocate() serves requests. It is an anonymous file (memfd), which other processes
// map. The directory of a rank is a table in the arena, the shared memory of the host. To announce a segment is to
// write its address to a place of this table.
#include "shared_memory/segment_directory.hpp"

#include <algorithm>
#include <iterator>

#include "base/log.hpp"
#include "collectives/error.hpp"

namespace collectives {

SegmentDirectory::SegmentDirectory(const Arena& arena, SegmentTable which)
    : arena_(arena),
      which_(which),
      heap_(Heap::of_process()),
      known_(static_cast<std::size_t>(arena.ranks()) * kSegmentRecords) {
  const auto lock = heap_.lock();
  heap_.attach(*this);
}

SegmentDirectory::~SegmentDirectory() {
  const auto lock = heap_.lock();
  heap_.detach(*this);
  if (!owner_process_.is_current()) return;
  for (const auto& [token, slot] : slots_) write(slot, {});
}

// ---- this rank's directory ----

/// Fills table_ with the address ranges of all segments that peers can map. The heap, which manages this memory, lists
/// the segments.
void SegmentDirectory::refresh() {
  const auto lock = heap_.lock();
  seen_ = heap_.changes();
  recent_ = {};
  table_.clear();
  heap_.for_each_segment([this](const Segment& segment) {
    if (!segment.shared() || segment.bytes() > kOffsetMask) return;
    table_.push_back({reinterpret_cast<std::uintptr_t>(segment.data()), segment.bytes(), 0});
  });
}

/// Returns the segment that contains an address. Announces the segment if it is not announced yet. If no segment
/// contains the address, returns the gap around it: the ordinary memory between two segments.
SegmentDirectory::Interval SegmentDirectory::look_up(std::uintptr_t at) {
  const auto after = std::ranges::upper_bound(table_, at, {}, &Interval::begin);
  Interval gap{0, after == table_.end() ? ~std::uintptr_t{0} : after->begin, 0};
  if (after == table_.begin()) return gap;
  Interval& before = *std::prev(after);
  if (at - before.begin >= before.bytes) {
    gap.begin = before.begin + before.bytes;
    gap.bytes -= gap.begin;
    return gap;
  }
  if (before.name == 0) {
    const auto lock = heap_.lock();
    const Segment* segment = heap_.find(reinterpret_cast<const void*>(before.begin));
    if (segment != nullptr) before.name = announce(*segment);
  }
  return before;
}

/// Gives the segment a place in the directory, unless it has one. Returns the name of its first byte for peers. Returns
/// 0 if every place is taken. Requires the heap's lock.
std::uint64_t SegmentDirectory::announce(const Segment& segment) {
  const SegmentAddress address = segment.address();
  auto at = slots_.find(address.token);
  if (at == slots_.end()) {
    std::array<bool, kSegmentRecords> taken{};
    for (const auto& [token, slot] : slots_) taken[slot] = true;
    const auto free = std::ranges::find(taken, false);
    if (free == taken.end()) return 0;
    at = slots_.emplace(address.token, static_cast<std::size_t>(free - taken.begin())).first;
    write(at->second, address);
  }
  const std::uint64_t sequence =
      arena_.segment(arena_.self(), at->second, which_).sequence.load(std::memory_order_relaxed);
  return (static_cast<std::uint64_t>(at->second + 1) << kUseBits | use_of(sequence)) << kOffsetBits;
}

void SegmentDirectory::segment_removed(const Segment& segment) noexcept {
  const auto at = slots_.find(segment.address().token);
  if (at == slots_.end() || !owner_process_.is_current()) return;
  write(at->second, {});
  slots_.erase(at);
}

/// Writes a segment's address to place `slot` of the directory. An address of zeros withdraws the segment. Requires the
/// heap's lock, so only one thread writes. The place's sequence number is odd during the write. A reader compares the
/// numbers before and after its read. It thus rejects a mixture of old and new fields.
void SegmentDirectory::write(std::size_t slot, const SegmentAddress& address) noexcept {
  SegmentRecord& record = arena_.segment(arena_.self(), slot, which_);
  const std::uint64_t sequence = record.sequence.load(std::memory_order_relaxed);
  record.sequence.store(sequence + 1, std::memory_order_relaxed);
  record.pid.store(address.pid, std::memory_order_release);
  record.fd.store(address.fd, std::memory_order_release);
  record.token.store(address.token, std::memory_order_release);
  record.data.store(address.data, std::memory_order_release);
  record.bytes.store(address.bytes, std::memory_order_release);
  record.sequence.store(sequence + 2, std::memory_order_release);
}

// ---- directories of the peers ----

void SegmentDirectory::learn(Known& known, const SegmentRecord& record, int local) {
  forget_what_is_gone();
  SegmentAddress address;
  const std::uint64_t sequence = record.sequence.load(std::memory_order_acquire);
  address.pid = record.pid.load(std::memory_order_acquire);
  address.fd = record.fd.load(std::memory_order_acquire);
  address.token = record.token.load(std::memory_order_acquire);
  address.data = record.data.load(std::memory_order_acquire);
  address.bytes = record.bytes.load(std::memory_order_acquire);
  if (sequence % 2 != 0 || record.sequence.load(std::memory_order_relaxed) != sequence) return;  // being changed
  known.sequence = sequence;
  if (address.bytes == 0) return;
  if (address.pid == static_cast<std::uint64_t>(owner_process_.process())) {
    known.data = reinterpret_cast<std::byte*>(static_cast<std::uintptr_t>(address.data));
    known.bytes = address.bytes;
    return;
  }
  try {
    known.mapping = map_segment(address);
    known.data = known.mapping.data();
    known.bytes = known.mapping.bytes();
  } catch (const Error& error) {
    if (warned_ || !arena_.alive(local)) return;  // the failure detector reports a lost rank
    warned_ = true;
    log_warning(arena_.self(), "what local rank {} allocated is used as ordinary memory: {}", local, error.what());
  }
}

void SegmentDirectory::forget_what_is_gone() {
  for (std::size_t i = 0; i < known_.size(); ++i) {
    const SegmentRecord& record = arena_.segment(static_cast<int>(i / kSegmentRecords), i % kSegmentRecords, which_);
    if (known_[i].sequence != 0 && known_[i].sequence != record.sequence.load(std::memory_order_relaxed))
      known_[i] = Known{};
  }
}

}  // namespace collectives
