// GroupPool: memory of ended groups, which later groups of the communicator use again: the objects that describe the
// members of a group, and memory for copies of their tensors.
//
// Price: the pool exists, with its memory, until the communicator, its groups and all Work objects of its groups have
// been destroyed.
#pragma once

#include <cstddef>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "communicator/group_contents.hpp"
#include "communicator/scratch_pool.hpp"

namespace collectives {

class GroupPool {
 public:
  ScratchPool scratch;

  /// Returns empty contents.
  std::unique_ptr<GroupContents> take() {
    const std::lock_guard lock(mutex_);
    if (unused_.empty()) {
      unused_.reserve(++made_);
      return std::make_unique<GroupContents>();
    }
    std::unique_ptr<GroupContents> contents = std::move(unused_.back());
    unused_.pop_back();
    return contents;
  }
  /// Takes back contents after the operations of their members have ended without an error.
  void give_back(std::unique_ptr<GroupContents> contents) noexcept {
    contents->clear();
    const std::lock_guard lock(mutex_);
    unused_.push_back(std::move(contents));
  }

 private:
  std::mutex mutex_;
  std::vector<std::unique_ptr<GroupContents>> unused_;
  std::size_t made_ = 0;  // number of contents that take() has made
};

}  // namespace collectives
