// The memory of this process that other ranks can reach: one heap for all its communicators.
//
// A large request gets a segment of its own, which goes back to the system when it is freed. Smaller ones are pieces of
// common segments, multiples of 64 bytes; free pieces next to each other become one, and the smallest that is large
// enough is taken first. A new common segment is an eighth of all there is, at least 2 MiB, and a request for half of
// that or more is a large one: so the number of segments, each of which costs a file descriptor and a place in every
// arena, grows with the logarithm of the bytes. One empty common segment, the smallest, is kept.
//
// Nothing about a piece is written into the segments, which other processes can write to. A child of fork() leaves the
// segments that it inherits alone: what it allocates comes from segments of its own.
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
  /// The one of this process. Never destroyed: memory may be freed by destructors that run after main.
  static Heap& of_process();

  struct Piece {
    std::byte* data;
    bool zero;  ///< fresh from the system
  };
  /// At least `bytes` at a multiple of `alignment`, a power of two. Throws Error{system}.
  Piece allocate(std::size_t bytes, std::size_t alignment);
  /// `bytes` as they were allocated.
  void release(void* data, std::size_t bytes) noexcept;

  /// Who is told, with the heap locked, that a segment is about to go.
  class Watcher {
   public:
    virtual void segment_goes(const Segment&) noexcept = 0;

   protected:
    ~Watcher() = default;
  };

  /// Grows when a segment comes or goes.
  std::uint64_t changes() const noexcept { return changes_.load(std::memory_order_acquire); }
  std::unique_lock<std::mutex> lock() { return std::unique_lock(mutex_); }

  // With the heap locked:
  void attach(Watcher& watcher) { watchers_.push_back(&watcher); }
  void detach(Watcher& watcher) { std::erase(watchers_, &watcher); }
  /// The segment around an address; null when it is ordinary memory.
  const Segment* find(const void* data) const;
  /// In the order of addresses.
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
  std::atomic<std::uint64_t> changes_{1};
  Blocks blocks_;
  std::size_t total_ = 0;                                 // bytes of all segments
  std::map<std::byte*, std::size_t> free_;                // by address
  std::set<std::pair<std::size_t, std::byte*>> by_size_;  // the same
  const Block* spare_ = nullptr;                          // a common segment that was empty
  Maker maker_;
  std::vector<Watcher*> watchers_;
};

}  // namespace collectives
