// Implementation of intra-host collectives, which the ranks of a host perform through shared memory. A HostTask
// describes one collective. It also names the protocol by which the ranks exchange data, such as inline or staged.
//
// Each collective needs memory for counters and data. A ring of kCollectivesAhead places provides this memory. Each
// collective uses one place of the ring. A collective begins when all ranks have finished the earlier collective that
// used the same place.
#include "shared_memory/host_collective.hpp"

#include <sched.h>

#include <algorithm>
#include <utility>

namespace collectives {

HostCollective::HostCollective(SubgroupMemory subgroup, const TuningParameters& tuning, PeerMemory& peer_memory,
                               bool oversubscribed)
    : subgroup_(std::move(subgroup)),
      tuning_(tuning),
      oversubscribed_(oversubscribed),
      finished_(subgroup_.block(subgroup_.self()).finished.value),
      inline_protocol_(subgroup_),
      staged_(subgroup_, tuning, oversubscribed),
      zero_copy_(subgroup_, tuning, peer_memory, oversubscribed) {}

void HostCollective::describe(const Step& step, std::size_t element_bytes, HostTask& task) const {
  collectives::describe(step, element_bytes, subgroup_.ranks(), oversubscribed_, tuning_, task);
  if (subgroup_.has_one_cache()) task.stores_to_staging = Stores::cached;
}

bool HostCollective::note_core() noexcept {
  const auto mine = static_cast<std::uint64_t>(::sched_getcpu() + 1);
  std::atomic<std::uint64_t>& published = subgroup_.block(task_->root).core.value;
  const std::uint64_t of_root = published.load(std::memory_order_relaxed);
  if (task_->root != subgroup_.self()) return of_root != 0 && of_root != mine;
  if (of_root != mine) published.store(mine, std::memory_order_relaxed);
  return false;
}

bool HostCollective::look_for_place() {
  std::uint64_t least = number_;
  for (int local = 0; local < subgroup_.ranks(); ++local)
    if (local != subgroup_.self())
      least = std::min(least, subgroup_.block(local).finished.value.load(std::memory_order_acquire));
  all_finished_ = least;
  return number_ <= all_finished_ + kCollectivesAhead;
}

void HostCollective::begin() {
  const bool wanted = task_->zero_copy || task_->protocol == HostProtocol::single_copy;
  if (wanted && zero_copy_.start(*task_, *with_, number_))
    performer_ = Performer::zero_copy;
  else
    begin_as_planned();
}

/// Begins the task with the protocol that the task names. Ignores the task's flag for zero copy, which would replace
/// that protocol.
void HostCollective::begin_as_planned() {
  if (task_->protocol == HostProtocol::inlined) {
    performer_ = Performer::inlined;
    inline_protocol_.start(*task_, *with_, number_);
  } else {
    performer_ = Performer::staged;
    staged_.start(*task_, *with_, number_);
  }
}

bool HostCollective::progress_by_others() {
  if (performer_ == Performer::none) {
    if (!place_is_free()) return false;
    begin();
  }
  if (performer_ == Performer::zero_copy) {
    const ZeroCopy::State state = zero_copy_.progress();
    if (state != ZeroCopy::State::unreachable) return state == ZeroCopy::State::finished;
    begin_as_planned();
  }
  return performer_ == Performer::inlined ? inline_protocol_.progress() : staged_.progress();
}

}  // namespace collectives
