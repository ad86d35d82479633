// Schedule: the order in which a rank performs the Steps of all rounds of a call. A Step is one action of a rank. It
// takes values, may combine them, may store the result, and may send it.
//
// A long vector is handled in rounds. The vector, or the part of each rank, is cut into segments. In round k, a rank
// performs the Steps for segment k of every part (parts.hpp). A rank often waits for a peer, or works with the ranks of
// its host. Unless rounds overlap, it sends no messages during that time. The schedule therefore lets rounds overlap:
//
//   depth   a number that each Step carries: its position within its round
//   tick    position in the sequence of all rounds; round r starts at tick r * issue_interval (set by the plan)
//   order   at tick t, each round r in flight performs its Steps of depth t - r * issue_interval, older rounds first
//
// The order depends only on the plan and the depths, so it is equal on all ranks. The speed of ranks can therefore not
// cause a deadlock. A rank receives the messages of a peer in the order in which the peer sends them, so messages need
// no numbers. This requires that every algorithm satisfies one condition. For each pair of sender and receiver, the
// depth of the receive minus the depth of the send must be constant. If all depths are 0, rounds do not overlap.
//
// A frame is memory of the transport for one message. In each tick, a round sends at most one message from one rank to
// another. If w rounds overlap, w + 1 frames per pair of ranks therefore suffice to exclude a deadlock. A rank that is
// behind can then always receive. The rank that is furthest behind can always send. The tests prove this with the
// number of frames that the plan assumes.
//
// Price of this order: a message that arrives early waits for its tick. Rounds of the backend `ring` do not overlap if
// some of its messages stay inside a host.
#pragma once

#include <cstddef>
#include <type_traits>
#include <utility>
#include <vector>

namespace collectives {

/// Iterator over the Steps of all rounds, in the order that the head of this file defines.
///
/// `Steps` is the type of a list that the caller's emit(round, steps) fills with the Steps of one round. It has size(),
/// operator[] and clear(). Its items have a member `depth`, and are sorted by it. They are Steps, or values that the
/// caller derives from Steps.
template <class Steps>
class Schedule {
 public:
  using Item = std::remove_cvref_t<decltype(std::declval<const Steps&>()[0])>;

  /// Starts a schedule of `rounds` rounds. Each round starts `issue_interval` ticks after the previous one.
  template <class Emit>
  void start(std::size_t rounds, std::size_t issue_interval, Emit&& emit) {
    rounds_ = rounds;
    issue_interval_ = issue_interval;
    opened_ = 0;
    live_ = 0;
    choose(emit);
  }

  /// Returns to the first Step without calling emit() again. Requires that there is only one round.
  void rewind() {
    for (OpenRound& open : open_) open.next = 0;
    live_ = open_.empty() || open_[0].steps.size() == 0 ? 0 : 1;
    now_ = 0;
  }

  /// Returns the Step to perform now, or null if all Steps are done.
  const Item* current() const { return live_ == 0 ? nullptr : &open_[now_].steps[open_[now_].next]; }
  /// Returns the round of the current Step.
  std::size_t round() const { return open_[now_].round; }
  /// Returns the number of rounds before the first incomplete one.
  std::size_t finished() const { return live_ == 0 ? opened_ : open_[0].round; }
  /// Returns the list that holds the current Step.
  const Steps& list() const { return open_[now_].steps; }

  /// Moves from the current Step to the next one.
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
  /// Selects the next Step: the one with the earliest tick, and among equal ticks that of the oldest round. Opens
  /// rounds that are due.
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
  std::vector<OpenRound> open_;  ///< the first live_ elements are the rounds in flight, oldest first
};

}  // namespace collectives
