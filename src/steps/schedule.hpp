// In which order a rank performs the Steps of all rounds.
//
// One round after the other, a rank has nothing on the wire while it waits for its neighbour or works with its host. So
// rounds overlap: a Step has a depth, round r begins `issue_interval` ticks after round r - 1, and at tick t every
// round performs its Steps of depth t - r * stride, older rounds first. The order depends on nothing but depths, so it
// is the same on all ranks, and messages between two ranks need no numbers, provided that between two ranks what is
// sent at depth d is always received the same number of depths later. With all depths 0 there is no overlap.
//
// Of a round's Steps at most one per pair of ranks and tick sends, so with w rounds under way w + 1 frames suffice: a
// rank that is behind can always receive, and whoever is furthest behind can always send.
#pragma once

#include <cstddef>
#include <type_traits>
#include <utility>
#include <vector>

namespace collectives {

/// `Steps`: what emit(round, steps) fills, a list with size(), operator[] and clear(), ordered by the depth of its
/// items: Steps, or what somebody has made of them.
template <class Steps>
class Schedule {
 public:
  using Item = std::remove_cvref_t<decltype(std::declval<const Steps&>()[0])>;

  /// The Steps of `rounds` rounds, each beginning `issue_interval` ticks after the one before.
  template <class Emit>
  void start(std::size_t rounds, std::size_t issue_interval, Emit&& emit) {
    rounds_ = rounds;
    issue_interval_ = issue_interval;
    opened_ = 0;
    live_ = 0;
    choose(emit);
  }

  /// The Step to perform now; null when all are done.
  const Item* current() const { return live_ == 0 ? nullptr : &open_[now_].steps[open_[now_].next]; }
  std::size_t round() const { return open_[now_].round; }
  /// Rounds that are over, with all before them.
  std::size_t finished() const { return live_ == 0 ? opened_ : open_[0].round; }
  /// The list that holds it.
  const Steps& list() const { return open_[now_].steps; }

  /// The current Step is done.
  template <class Emit>
  void progress(Emit&& emit) {
    OpenRound& open = open_[now_];
    if (++open.next == open.steps.size()) close(now_);
    choose(emit);
  }

 private:
  struct OpenRound {
    std::size_t round = 0, next = 0;
    Steps steps;
  };
  std::size_t tick(const OpenRound& open) const {
    return open.round * issue_interval_ + static_cast<std::size_t>(open.steps[open.next].depth);
  }
  void close(std::size_t at) {
    for (--live_; at < live_; ++at) std::swap(open_[at], open_[at + 1]);
  }
  /// The oldest round of the earliest tick; rounds begin when it is their turn.
  template <class Emit>
  void choose(Emit& emit) {
    for (;;) {
      now_ = 0;
      for (std::size_t i = 1; i < live_; ++i)
        if (tick(open_[i]) < tick(open_[now_])) now_ = i;
      if (opened_ == rounds_ || (live_ > 0 && tick(open_[now_]) < opened_ * issue_interval_)) return;
      if (live_ == open_.size()) open_.emplace_back();
      OpenRound& open = open_[live_++];
      open.round = opened_;
      open.next = 0;
      open.steps.clear();
      emit(opened_++, open.steps);
      if (open.steps.size() == 0) --live_;
    }
  }

  std::size_t rounds_ = 0, issue_interval_ = 1, opened_ = 0, live_ = 0, now_ = 0;
  std::vector<OpenRound> open_;  ///< the first live_ of them are under way, in the order of their rounds
};

}  // namespace collectives
