// StepList: stores the Steps that an algorithm emits for one round. A Step is one action of a rank. A round performs
// all Steps on one segment of each part of the vector. A Step refers to lists of peers. The StepList copies these
// lists, because an algorithm's own lists are valid only while the algorithm emits Steps.
#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

#include "steps/algorithm.hpp"
#include "steps/step.hpp"

namespace collectives {

class StepList final : public StepSink {
 public:
  void operator()(const Step& step) override {
    steps_.push_back(step);
    Step& mine = steps_.back();
    mine.from = store(step.from);
    mine.to = store(step.to);
    mine.owners = store(step.owners);
  }
  void clear() noexcept {
    steps_.clear();
    for (auto& block : blocks_) block.clear();
    block_ = 0;
  }
  std::size_t size() const noexcept { return steps_.size(); }
  const Step& operator[](std::size_t i) const noexcept { return steps_[i]; }

 private:
  Peers store(Peers peers) {
    if (peers.empty()) return {};
    while (block_ < blocks_.size() && blocks_[block_].capacity() - blocks_[block_].size() < peers.size()) ++block_;
    if (block_ == blocks_.size()) {
      blocks_.emplace_back();
      blocks_.back().reserve(std::max(kBlock, peers.size()));
    }
    std::vector<Rank>& block = blocks_[block_];
    const std::size_t first = block.size();
    block.insert(block.end(), peers.begin(), peers.end());
    return {block.data() + first, peers.size()};
  }

  static constexpr std::size_t kBlock = 1024;
  std::vector<Step> steps_;
  // Memory of the copied lists, in blocks. Steps point into the blocks. Therefore, no block is reallocated while it
  // holds lists.
  std::vector<std::vector<Rank>> blocks_;
  std::size_t block_ = 0;
};

}  // namespace collectives
