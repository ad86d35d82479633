// ScratchPool: memory for copies of the tensors of groups. A later group uses the memory of an earlier one again.
//
// The memory comes from the heap of allocate(), so collectives on it copy nothing. A piece goes back to the pool when
// the operation that uses it has ended without an error. Price: the pool keeps the memory until its communicator and
// all works of its groups have ended.
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
  /// Returns at least `bytes` bytes. Prefers the shortest piece that suffices. Throws Error{system} if there is no
  /// memory.
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
  std::vector<SharedMemory> pieces_;  // shortest first
};

}  // namespace collectives
