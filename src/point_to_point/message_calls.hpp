// Message calls: the point-to-point calls of this rank, from their begin to their end. The class numbers the calls,
// records them in the flight recorder, and lists the unfinished ones.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <exception>

#include "monitoring/flight_recorder.hpp"
#include "point_to_point/message_operation.hpp"

namespace collectives {

class MessageCalls {
 public:
  explicit MessageCalls(FlightRecorder& recorder) : recorder_(recorder) {}

  /// Numbers and records a new call.
  void begin(MessageOperation& operation) noexcept {
    operation.number = ++begun_;
    const MessageCall& call = operation.call;
    recorder_.start_message({.number = operation.number,
                             .sends = call.sends(),
                             .peer = call.peer,
                             .tag = call.tag,
                             .count = call.count,
                             .type = call.type});
  }
  /// Adds a call to the unfinished ones.
  void add(MessageOperation& operation) noexcept {
    operation.listed = true;
    unfinished_.push_back(operation);
    count_.fetch_add(1, std::memory_order_acq_rel);
  }
  /// Ends a call without an error.
  void complete(MessageOperation& operation) noexcept {
    note_move();
    end(operation, OperationRecord::State::finished, MessageOperation::Stage::done);
  }
  /// Ends all unfinished calls with `error`.
  void fail_all(const std::exception_ptr& error) noexcept {
    while (MessageOperation* const one = unfinished_.front()) {
      one->error = error;
      end(*one, OperationRecord::State::failed, MessageOperation::Stage::failed);
    }
  }

  const UnfinishedMessages& unfinished() const noexcept { return unfinished_; }
  /// Returns whether all calls have ended. Any thread may call it.
  bool all_ended() const noexcept { return count_.load(std::memory_order_acquire) == 0; }
  /// Counts one more progress of a message (see moves()).
  void note_move() noexcept { moves_.store(moves_.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed); }
  /// Returns a counter that changes whenever a message progresses. Any thread may call it.
  std::uint64_t moves() const noexcept { return moves_.load(std::memory_order_relaxed); }

 private:
  void end(MessageOperation& operation, OperationRecord::State state, MessageOperation::Stage stage) noexcept {
    if (operation.listed) {
      operation.listed = false;
      unfinished_.remove(operation);
      count_.fetch_sub(1, std::memory_order_acq_rel);
    }
    recorder_.end_message(operation.number, state, operation.source);
    operation.set(stage);
  }

  FlightRecorder& recorder_;
  UnfinishedMessages unfinished_;
  std::atomic<std::size_t> count_{0};  // length of unfinished_
  std::uint64_t begun_ = 0;
  std::atomic<std::uint64_t> moves_{0};
};

}  // namespace collectives
