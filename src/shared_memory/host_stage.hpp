// Host stages: what the ranks of one host, or of a part of it (stage_room.hpp), do together through shared memory,
// without messages.
//
// A stage is performed by one of four protocols, by its size and by where the buffers are: in lines, one-shot or
// staged, by single copy, or by zero copy where all ranks' buffers happen to be within reach. Stages are numbered, the
// same on every rank; what belongs to a stage lies in a ring of kStagesAhead places, and a rank begins one only when
// everyone has finished the one that had its place before. In a collective where all wait for all that is always so; a
// root whom nobody answers may run that far ahead.
//
// A stage never blocks: advance() goes as far as it can and says whether it is finished.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "shared_memory/lines.hpp"
#include "shared_memory/reach.hpp"
#include "shared_memory/staged.hpp"
#include "shared_memory/zero_copy.hpp"

namespace collectives {

class HostStage {
 public:
  /// `crowded`: more ranks than cores. The arena, the tuning and the reach outlive the stage.
  HostStage(StageRoom, const Tuning&, Reach&, bool crowded);

  /// Describes a host Step as all later calls here want it.
  void describe(const Step&, DataType, HostTask&) const;
  /// Begins a stage. The task and the operands stay as they are until it is finished.
  void start(const HostTask& task, const HostOperands& with) {
    task_ = &task;
    with_ = &with;
    ++number_;
    performer_ = Performer::none;
    if (place_is_free()) begin();
  }
  void start(const HostTask&, HostOperands&&) = delete;  // a temporary would not stay
  /// Goes as far as it can; true when finished. Throws TagMismatch (of a local rank), Error{system}.
  bool advance() try {
    if (performer_ == Performer::lines ? !lines_.advance() : !advance_by_others()) return false;
    finished_.store(number_, std::memory_order_release);
    return true;
  } catch (const TagMismatch& mismatch) {  // of a rank of the room
    throw TagMismatch{room_.local(mismatch.peer)};
  }
  HostStage(const HostStage&) = delete;  // its protocols keep a reference to its room
  HostStage& operator=(const HostStage&) = delete;
  /// Changes whenever a part of a stage has moved: who waits for the rest has not waited long.
  std::uint64_t moves() const noexcept { return staged_.moves() + zero_copy_.moves(); }
  /// Bytes this rank has put into shared memory or other ranks' buffers, ever.
  std::uint64_t bytes_shown() const noexcept {
    return lines_.bytes_shown() + staged_.bytes_shown() + zero_copy_.bytes_shown();
  }

 private:
  enum class Performer { none, lines, staged, zero_copy };
  bool place_is_free() { return number_ <= all_finished_ + kStagesAhead || look_for_place(); }
  bool look_for_place();
  void begin();
  void begin_as_planned();
  bool advance_by_others();

  const StageRoom room_;
  const Tuning& tuning_;
  const bool crowded_;
  std::atomic<std::uint64_t>& finished_;
  Lines lines_;
  Staged staged_;
  ZeroCopy zero_copy_;

  const HostTask* task_ = nullptr;
  const HostOperands* with_ = nullptr;
  Performer performer_ = Performer::none;
  std::uint64_t number_ = 0;        // of this stage
  std::uint64_t all_finished_ = 0;  // the newest stage that every rank is known to have finished
};

}  // namespace collectives
