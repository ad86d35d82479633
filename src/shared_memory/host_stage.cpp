#include "shared_memory/host_stage.hpp"

#include <algorithm>
#include <utility>

namespace collectives {

HostStage::HostStage(StageRoom room, const Tuning& tuning, Reach& reach, bool crowded)
    : room_(std::move(room)),
      tuning_(tuning),
      crowded_(crowded),
      finished_(room_.block(room_.self()).finished.value),
      lines_(room_),
      staged_(room_, tuning, crowded),
      zero_copy_(room_, tuning, reach, crowded) {}

void HostStage::describe(const Step& step, DataType type, HostTask& task) const {
  collectives::describe(step, size_of(type), room_.ranks(), crowded_, tuning_, task);
  if (room_.has_one_cache()) task.stores_to_staging = Stores::cached;
}

bool HostStage::look_for_place() {
  std::uint64_t least = number_;
  for (int local = 0; local < room_.ranks(); ++local)
    if (local != room_.self())
      least = std::min(least, room_.block(local).finished.value.load(std::memory_order_acquire));
  all_finished_ = least;
  return number_ <= all_finished_ + kStagesAhead;
}

void HostStage::begin() {
  const bool wanted = task_->zero_copy || task_->protocol == HostProtocol::single_copy;
  if (wanted && zero_copy_.start(*task_, *with_, number_))
    performer_ = Performer::zero_copy;
  else
    begin_as_planned();
}

/// Begins the task by its protocol for buffers that are not mapped.
void HostStage::begin_as_planned() {
  if (task_->protocol == HostProtocol::lines) {
    performer_ = Performer::lines;
    lines_.start(*task_, *with_, number_);
  } else {
    performer_ = Performer::staged;
    staged_.start(*task_, *with_, number_);
  }
}

bool HostStage::advance_by_others() {
  if (performer_ == Performer::none) {
    if (!place_is_free()) return false;
    begin();
  }
  if (performer_ == Performer::zero_copy) {
    const ZeroCopy::State state = zero_copy_.advance();
    if (state != ZeroCopy::State::unreachable) return state == ZeroCopy::State::finished;
    begin_as_planned();
  }
  return performer_ == Performer::lines ? lines_.advance() : staged_.advance();
}

}  // namespace collectives
