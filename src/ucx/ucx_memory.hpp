// Memory of messages over UCX. A message lies in one of two kinds of memory. A frame is memory of this library for one
// message. A lent range is memory of the caller, such as an output buffer, that UCX reads or writes directly.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <memory>
#include <new>
#include <utility>
#include <vector>

#include "ucx/ucx_worker.hpp"

namespace collectives {

/// List of free frames: frames that hold no message now.
class UcxFrames {
 public:
  struct Free {
    void operator()(std::byte* memory) const noexcept { std::free(memory); }
  };
  using Frame = std::unique_ptr<std::byte, Free>;

  explicit UcxFrames(std::size_t frame_bytes) : frame_bytes_(frame_bytes) {}
  std::size_t frame_bytes() const noexcept { return frame_bytes_; }
  /// Returns a free frame. Allocates a frame if none is free. Returns null if there is no memory.
  Frame take() noexcept {
    if (!free_.empty()) {
      Frame frame = std::move(free_.back());
      free_.pop_back();
      return frame;
    }
    const std::size_t rounded =
        std::max((frame_bytes_ + UcxWorker::kAlignment - 1) / UcxWorker::kAlignment, std::size_t{1}) *
        UcxWorker::kAlignment;
    return Frame(static_cast<std::byte*>(std::aligned_alloc(UcxWorker::kAlignment, rounded)));
  }
  /// Keeps `frame` for a later take(). Does nothing if `frame` is null.
  void give(Frame frame) noexcept {
    try {
      if (frame) free_.push_back(std::move(frame));
    } catch (const std::bad_alloc&) {  // Without memory for the list, the frame is freed.
    }
  }

 private:
  std::size_t frame_bytes_;
  std::vector<Frame> free_;
};

/// List of the lent ranges that UCX uses now. If several messages use a range, the list has one entry for each of them.
class LentRanges {
 public:
  void add(const std::byte* data, std::size_t bytes) { ranges_.emplace_back(data, bytes); }
  /// Removes one entry of the range.
  void remove(const std::byte* data, std::size_t bytes) noexcept {
    const auto at = std::ranges::find(ranges_, std::pair(data, bytes));
    *at = ranges_.back();
    ranges_.pop_back();
  }
  bool empty() const noexcept { return ranges_.empty(); }
  /// Returns whether any range of the list overlaps [data, data + bytes).
  bool overlap(const std::byte* data, std::size_t bytes) const noexcept {
    return std::any_of(ranges_.begin(), ranges_.end(), [&](const auto& range) {
      return range.first < data + bytes && data < range.first + range.second;
    });
  }

 private:
  std::vector<std::pair<const std::byte*, std::size_t>> ranges_;
};

}  // namespace collectives
