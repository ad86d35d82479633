// Implementation of the heap, which allocates memory that other ranks can map. The heap takes long ranges of memory,
// called segments, from the system. A Block is the heap's record of one segment. A segment is `whole` if it serves a
// single request. Any other segment is common: the heap divides it into pieces, which serve different requests. The
// length of a piece is a multiple of kGrain.
#include "shared_memory/heap.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <new>

#include "base/round_up.hpp"
#include "collectives/error.hpp"
#include "shared_memory/prefault.hpp"

namespace collectives {
namespace {

constexpr std::size_t kGrain = 64;                          // unit of the lengths of pieces in bytes: one cache line
constexpr std::size_t kLeastCommon = std::size_t{2} << 20;  // minimum length of a common segment in bytes
constexpr std::size_t kMost = std::size_t{1} << 46;  // maximum of a request in bytes, so that sums do not overflow

constexpr std::size_t in_grains(std::size_t bytes) { return round_up(std::max<std::size_t>(bytes, 1), kGrain); }

std::byte* align(std::byte* data, std::size_t alignment) {
  const auto at = reinterpret_cast<std::uintptr_t>(data);
  return data + (round_up(at, alignment) - at);
}

}  // namespace

Heap& Heap::of_process() {
  static Heap& heap = *new Heap;
  return heap;
}

Heap::Piece Heap::allocate(std::size_t bytes, std::size_t alignment) {
  if (bytes > kMost || alignment > kMost)
    throw Error(Errc::system, fmt::format("memory: {} bytes at a multiple of {} are more than a process can address",
                                          bytes, alignment));
  const std::size_t wanted = in_grains(bytes);
  const std::size_t slack = alignment > kGrain ? alignment - kGrain : 0;  // maximum bytes to skip for the alignment
  auto guard = lock();
  leave_what_was_inherited();
  auto found = by_size_.lower_bound({wanted + slack, nullptr});
  if (found == by_size_.end()) {
    const std::size_t common = std::max(kLeastCommon, round_up(total_ / 8, kLeastCommon));
    const bool whole = wanted + slack >= common / 2;
    guard.unlock();  // making a segment takes long, so other threads may allocate during that time
    auto block = std::make_unique<Block>(whole ? bytes + (alignment > kPage ? alignment : 0) : common, whole);
    std::byte* const data = block->segment.data();
    guard.lock();
    const std::size_t all = block->segment.bytes();
    blocks_.emplace(data, std::move(block));
    total_ += all;
    changes_.fetch_add(1, std::memory_order_release);
    if (whole) return {align(data, alignment), true};
    put(data, all);
    found = by_size_.lower_bound({wanted + slack, nullptr});
  }
  const auto [all, begin] = *found;
  std::byte* const data = align(begin, std::max(alignment, kGrain));
  const auto before = static_cast<std::size_t>(data - begin), after = all - before - wanted;
  take(begin, all);
  if (before != 0) put(begin, before);
  if (after != 0) put(data + wanted, after);
  return {data, false};
}

void Heap::release(void* data, std::size_t bytes) noexcept {
  std::unique_ptr<Block> goes;  // destroyed after the lock is released
  const auto guard = lock();
  leave_what_was_inherited();
  frees_.fetch_add(1, std::memory_order_release);
  const auto at = block_of(data);
  if (at == blocks_.end()) return;
  const Block& block = *at->second;
  if (block.whole) {
    goes = remove(at);
  } else if (block.segment.ours()) {
    try {
      put_back(block, static_cast<std::byte*>(data), in_grains(bytes));
    } catch (const std::bad_alloc&) {  // without memory for its record, the piece stays unused
      return;
    }
    if (!empty(block)) return;
    if (spare_ != nullptr && spare_ != &block && empty(*spare_)) {
      const Block& larger = block.segment.bytes() < spare_->segment.bytes() ? *spare_ : block;
      if (spare_ == &larger) spare_ = &block;
      take(larger.segment.data(), larger.segment.bytes());
      goes = remove(block_of(larger.segment.data()));
    } else {
      spare_ = &block;
    }
  }
}

const Segment* Heap::find(const void* data) const {
  const auto at = block_of(data);
  return at == blocks_.end() ? nullptr : &at->second->segment;
}

bool Heap::is_allocated(const void* data, std::size_t bytes) const {
  const auto at = block_of(data);
  if (at == blocks_.end()) return false;
  const Segment& segment = at->second->segment;
  const auto* const first = static_cast<const std::byte*>(data);
  if (bytes > static_cast<std::size_t>(segment.data() + segment.bytes() - first)) return false;
  const auto after = free_.upper_bound(const_cast<std::byte*>(first));
  if (after != free_.end() && after->first < first + bytes) return false;
  if (after == free_.begin()) return true;
  const auto [before, length] = *std::prev(after);
  return before + length <= first;
}

Heap::Blocks::const_iterator Heap::block_of(const void* data) const {
  const auto* const byte = static_cast<const std::byte*>(data);
  const auto after = blocks_.upper_bound(byte);
  if (after == blocks_.begin()) return blocks_.end();
  const auto at = std::prev(after);
  const Segment& segment = at->second->segment;
  return std::less<>()(byte, segment.data() + segment.bytes()) ? at : blocks_.end();
}

bool Heap::empty(const Block& block) const {
  const auto at = free_.find(block.segment.data());
  return at != free_.end() && at->second == block.segment.bytes();
}

void Heap::put(std::byte* data, std::size_t bytes) {
  free_.emplace(data, bytes);
  by_size_.emplace(bytes, data);
}

void Heap::take(std::byte* data, std::size_t bytes) {
  by_size_.erase({bytes, data});
  free_.erase(data);
}

/// Adds a piece to the free pieces. If the piece before it or behind it in the segment is free, joins the two.
void Heap::put_back(const Block& block, std::byte* data, std::size_t bytes) {
  auto after = free_.upper_bound(data);
  if (after != free_.begin()) {
    const auto [before, length] = *std::prev(after);
    if (before + length == data && before >= block.segment.data()) {
      take(before, length);
      data = before;
      bytes += length;
    }
  }
  if (after != free_.end() && after->first == data + bytes &&
      after->first < block.segment.data() + block.segment.bytes()) {
    const std::size_t length = after->second;
    take(data + bytes, length);
    bytes += length;
  }
  put(data, bytes);
}

std::unique_ptr<Heap::Block> Heap::remove(Blocks::const_iterator at) {
  auto block = std::move(blocks_.extract(at).mapped());
  if (spare_ == block.get()) spare_ = nullptr;
  if (block->segment.ours()) total_ -= block->segment.bytes();
  for (Listener* listener : listeners_) listener->segment_removed(block->segment);
  changes_.fetch_add(1, std::memory_order_release);
  return block;
}

void Heap::leave_what_was_inherited() {
  if (owner_process_.is_current()) return;
  owner_process_ = OwnerProcess();
  total_ = 0;
  free_.clear();
  by_size_.clear();
  spare_ = nullptr;
}

}  // namespace collectives
