// Heap: provides the memory of allocate() and SharedAllocator. Other ranks of the host can map this memory, unless the
// system refuses memfds (anonymous files). All communicators of a process use one heap.
//
// A segment is memory that the heap takes from the system. The heap divides segments into pieces, whose lengths are
// multiples of 64 bytes. Heap::allocate() searches the free pieces of all segments for the shortest one that suffices.
// The rest of that piece stays free. If no free piece suffices, the heap takes a new segment from the system. A large
// request gets the whole new segment. The heap returns that segment to the system when the program frees the memory. A
// smaller request gets a piece of the new segment. That segment is called common, because later requests get other
// pieces of it. Adjacent free pieces of a segment are joined.
//
// A new common segment is about an eighth as long as all segments together, and at least 2 MiB. A request is large if
// it needs at least half of a new common segment. The number of segments therefore grows only with the logarithm of the
// allocated bytes. Few segments are better, because each needs a file descriptor. Each segment also needs a place in
// the segment directory of every communicator that uses it. The heap returns empty common segments to the system, but
// keeps the smallest one.
//
// Other processes can write to the segments. The heap therefore records its pieces in private memory. A child of fork()
// allocates only from segments that it has made itself.
//
// Price: the heap may hold about an eighth more memory than was requested, or 2 MiB more. All pages of a new segment
// are prefaulted: allocated before their first use. That takes 0.3 to 1 ms per MiB. If ranks allocate at the same time,
// the system may refuse all of them, although the memory would suffice for one.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <utility>
#include <vector>

#include "base/fork.hpp"
#include "shared_memory/segment.hpp"

namespace collectives {

class Heap {
 public:
  /// Returns the heap of this process. The heap is never destroyed, because destructors that run after main may free
  /// memory.
  static Heap& of_process();

  struct Piece {
    std::byte* data;
    bool zero;  ///< true: the memory is fresh from the system, so all bytes are 0; false: unknown
  };
  /// Allocates at least `bytes` bytes. The address is a multiple of `alignment`, a power of two. Throws Error{system}
  /// if the system refuses.
  Piece allocate(std::size_t bytes, std::size_t alignment);
  /// Frees a piece. `bytes` must be the number that was passed to allocate().
  void release(void* data, std::size_t bytes) noexcept;

  /// Listener that is called, with the heap locked, before a segment returns to the system.
  class Listener {
   public:
    virtual void segment_removed(const Segment&) noexcept = 0;

   protected:
    ~Listener() = default;
  };

  /// Returns a number that grows when a segment is added or removed.
  std::uint64_t changes() const noexcept { return changes_.load(std::memory_order_acquire); }
  /// Returns a number that grows when a piece is freed.
  std::uint64_t frees() const noexcept { return frees_.load(std::memory_order_acquire); }
  std::unique_lock<std::mutex> lock() { return std::unique_lock(mutex_); }

  // These functions require the heap's lock.
  void attach(Listener& listener) { listeners_.push_back(&listener); }
  void detach(Listener& listener) { std::erase(listeners_, &listener); }
  /// Returns the segment that contains an address, or null for ordinary memory.
  const Segment* find(const void* data) const;
  /// Returns whether all bytes of a range belong to the heap and none of them is free.
  bool is_allocated(const void* data, std::size_t bytes) const;
  /// Visits the segments in the order of their addresses.
  template <class Visit>
  void for_each_segment(Visit&& visit) const {
    for (const auto& [begin, block] : blocks_) visit(block->segment);
  }

 private:
  struct Block {
    explicit Block(std::size_t bytes, bool whole_) : segment(bytes), whole(whole_) {}
    Segment segment;
    const bool whole;  // one request has all of it
  };
  using Blocks = std::map<const std::byte*, std::unique_ptr<Block>, std::less<>>;

  Blocks::const_iterator block_of(const void* data) const;
  bool empty(const Block&) const;
  void put(std::byte* data, std::size_t bytes);
  void put_back(const Block&, std::byte* data, std::size_t bytes);
  void take(std::byte* data, std::size_t bytes);
  std::unique_ptr<Block> remove(Blocks::const_iterator);
  void leave_what_was_inherited();

  std::mutex mutex_;
  std::atomic<std::uint64_t> changes_{1}, frees_{0};
  Blocks blocks_;
  std::size_t total_ = 0;                                 // bytes of all segments
  std::map<std::byte*, std::size_t> free_;                // by address
  std::set<std::pair<std::size_t, std::byte*>> by_size_;  // by size
  const Block* spare_ = nullptr;                          // common segment that became empty and was kept
  OwnerProcess owner_process_;
  std::vector<Listener*> listeners_;
};

}  // namespace collectives
