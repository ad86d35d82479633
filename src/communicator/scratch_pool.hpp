// ScratchPool: memory for copies of the tensors of groups. A group uses the memory of earlier groups again.
//
// The memory comes from the heap of allocate(). Other ranks of the host can map memory of this heap, so collectives do
// not copy it again. A piece of memory goes back to the pool when the operation that uses it has ended without an
// error. Price: the pool exists, with its memory, until the communicator and all Work objects of its groups have been
// destroyed.
#pragma once

#include <algorithm>
#include <cstddef>
#include <mutex>
#include <utility>
#include <vector>

#include "collectives/memory.hpp"

namespace collectives {

class ScratchPool {
 public:
  /// Returns a piece of at least `bytes` bytes: the shortest one in the pool, or a new one if none is long enough.
  /// Throws Error{system} if there is no memory.
  SharedMemory take(std::size_t bytes) {
    const std::lock_guard lock(mutex_);
    const auto found = std::ranges::find_if(pieces_, [&](const SharedMemory& piece) { return piece.size() >= bytes; });
    if (found == pieces_.end()) return SharedMemory(bytes);
    SharedMemory piece = std::move(*found);
    pieces_.erase(found);
    return piece;
  }
  void give_back(SharedMemory piece) {
    const std::lock_guard lock(mutex_);
    pieces_.insert(std::ranges::lower_bound(pieces_, piece.size(), {}, &SharedMemory::size), std::move(piece));
  }

 private:
  std::mutex mutex_;
  std::vector<SharedMemory> pieces_;  // sorted by size, shortest first
};

}  // namespace collectives
