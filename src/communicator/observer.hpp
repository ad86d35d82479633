// What a communicator tells about itself, in one place: the flight recorder, which is always on, a trace and the log,
// where somebody has asked for them.
#pragma once

#include <chrono>
#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "communicator/communicator_init.hpp"
#include "communicator/operation.hpp"
#include "monitoring/failure_detector.hpp"
#include "monitoring/flight_recorder.hpp"
#include "monitoring/trace.hpp"

namespace collectives {

struct Settings;

class Observer {
 public:
  /// `trace`: as whom to write one; empty for a communicator that nobody should see.
  Observer(const CommunicatorContext&, const Settings&, std::string_view transport, bool progress_thread,
           const std::optional<TraceIdentity>& trace);

  /// A blocking call comes, which may be over at once.
  void issue(Work::State& state) noexcept {
    state.issued_ticks = 0;
    state.sample_weight = state.call->shape.long_enough || in_detail_ ? 1 : recorder_.sample();
    recorder_.issue();
  }
  /// An operation comes that may start later.
  void issue_async(Work::State& state) noexcept {
    state.issued_ticks = ticks_now();
    state.sample_weight = 1;
    recorder_.issue();
  }
  /// The time, for an operation that is timed; else 0.
  std::uint64_t time(const Work::State& state) const noexcept { return state.sample_weight != 0 ? ticks_now() : 0; }
  /// The operation has started, at that time().
  void start(const Work::State& state, std::uint64_t started) noexcept {
    recorder_.start(state.sequence, state.call->shape, state.name, state.issued_ticks, started);
    if (in_detail_ && trace_ != nullptr) trace_->begin(state.sequence);
  }
  void finish(const Work::State& state) noexcept {
    if (in_detail_) phase(Trace::Phase::none);
    const OperationEntry& entry = recorder_.finish(state.sequence, state.sample_weight);
    if (in_detail_) write_entry(entry);
  }
  /// The communicator has failed, with `state` at its head. `failure_detector` says how far the others are.
  void fail(const Work::State& state, const std::exception_ptr& error,
            const FailureDetector& failure_detector) noexcept;
  /// An operation under way has failed with that one.
  void fail_too(const Work::State& state) noexcept;
  /// A wait looks around.
  void look(const Work::State& state, const Missing&) noexcept;
  /// Reports an operation that has waited for long, in `line`.
  void stall(std::string_view line, const FailureDetector& failure_detector) noexcept;
  /// The operation under way has come to `phase`.
  void phase(Trace::Phase phase) noexcept {
    if (trace_ != nullptr) trace_->phase(phase);
  }

  /// While it lives, the program stands still for `state`.
  class WaitTimer {
   public:
    WaitTimer(Observer& observer, Work::State& state) noexcept : observer_(observer), state_(state) {
      observer.last(state);
    }
    ~WaitTimer() { observer_.waited(state_, from_); }
    WaitTimer(const WaitTimer&) = delete;
    WaitTimer& operator=(const WaitTimer&) = delete;

   private:
    Observer& observer_;
    const Work::State& state_;
    const std::uint64_t from_ = ticks_now();
  };

  /// While it lives, the program chooses what to give of the operation that it will issue next.
  class SelectionTimer {
   public:
    explicit SelectionTimer(Observer& observer) noexcept : observer_(observer) {}
    ~SelectionTimer() { observer_.chosen(from_); }
    SelectionTimer(const SelectionTimer&) = delete;
    SelectionTimer& operator=(const SelectionTimer&) = delete;

   private:
    Observer& observer_;
    const std::uint64_t from_ = ticks_now();
  };

  const FlightRecorder& recorder() const noexcept { return recorder_; }
  /// Null where nobody has asked for one.
  Trace* trace() const noexcept { return trace_.get(); }

 private:
  void write_entry(const OperationEntry&) noexcept;
  void last(Work::State&) noexcept;
  void waited(const Work::State&, std::uint64_t from) noexcept;
  void chosen(std::uint64_t from) noexcept;
  void write_out(std::string_view why, const FailureDetector&) const noexcept;

  FlightRecorder recorder_;
  std::unique_ptr<Trace> trace_;
  const Rank rank_;
  bool in_detail_ = false;  // a trace, or a log of every operation
  std::string path_;        // where failures are written out; empty: nowhere
};

}  // namespace collectives
