// Observer: reports the operations of a communicator to the flight recorder, to the trace and to the log.
//
// The flight recorder is always on. It counts every call, and keeps the last 64 operations. A call is short if it is
// blocking, moves less than 8 KiB, and completes in its first attempt. The recorder times all calls that are not
// short. It times a random sample of the short calls. In the totals, the time of a sampled call counts for several
// short calls. A visible communicator times every call if a trace is written or the log level is debug. The trace and
// the log of single operations are written only on request.
//
// Price: a call takes some nanoseconds longer, and a communicator needs 9 KiB more memory. A small blocking call
// outside the sample is not timed at its start. If its first attempt fails, the recorded start time is inexact by 1 to
// 2 microseconds.
#pragma once

#include <atomic>
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
  /// On rank 0, logs the new communicator. `trace`: the rank that appears in traces and file names, and the trace file,
  /// which may be null. If the optional `trace` has no value, the communicator is hidden. The log then shows only its
  /// stalled operations, and nothing is traced.
  Observer(const CommunicatorContext&, const Settings&, std::string_view transport, bool progress_thread,
           const std::optional<TraceIdentity>& trace);

  /// Records a blocking call, which may complete at once.
  void issue(Operation& operation) noexcept {
    operation.issued_ticks = 0;
    operation.sample_weight = operation.call->shape.long_enough || in_detail_ ? 1 : recorder_.sample();
    recorder_.issue();
  }
  /// Records an asynchronous call, which may start later.
  void issue_async(Operation& operation) noexcept {
    operation.issued_ticks = ticks_now();
    operation.sample_weight = 1;
    recorder_.issue();
  }
  /// Returns the time in ticks if the operation is timed, else 0.
  std::uint64_t time(const Operation& operation) const noexcept {
    return operation.sample_weight != 0 ? ticks_now() : 0;
  }
  /// Records that the operation started at `started`, a result of time().
  void start(const Operation& operation, std::uint64_t started) noexcept {
    recorder_.start(operation.sequence, operation.call->shape, operation.name, operation.issued_ticks, started);
    if (in_detail_ && trace_ != nullptr) trace_->begin(operation.sequence);
  }
  void finish(const Operation& operation) noexcept {
    if (in_detail_) phase(Trace::Phase::none);
    const OperationEntry& entry = recorder_.finish(operation.sequence, operation.sample_weight);
    if (in_detail_) write_entry(entry);
  }
  /// Records that the communicator failed while `operation` was the oldest unfinished one. `failure_detector` provides
  /// the progress of the other ranks, for the report.
  void fail(const Operation& operation, const std::exception_ptr& error,
            const FailureDetector& failure_detector) noexcept;
  /// Records that `operation` has failed because the communicator has failed in another operation.
  void fail_too(const Operation& operation) noexcept;
  /// Records the ranks that have not entered `operation` yet.
  void look(const Operation& operation, const Missing&) noexcept;
  /// Logs `line`, which describes an operation that waits too long. Writes the recorded operations to the flight
  /// recorder's file.
  void stall(std::string_view line, const FailureDetector& failure_detector) noexcept;
  /// Writes the recorded operations to the flight recorder's file, because a call has failed. Does nothing after the
  /// first failure. `why`: text of the error. Any thread may call it.
  void write_failure(std::string_view why, const FailureDetector& failure_detector) noexcept {
    if (!failed_.exchange(true)) write_out(why, failure_detector);
  }
  /// Records in the trace which kind of work the current operation does now.
  void phase(Trace::Phase phase) noexcept {
    if (trace_ != nullptr) trace_->phase(phase);
  }

  /// Measures, from construction to destruction, how long the program waits for `operation`.
  class WaitTimer {
   public:
    WaitTimer(Observer& observer, Operation& operation) noexcept : observer_(observer), operation_(operation) {
      observer.last(operation);
    }
    ~WaitTimer() { observer_.waited(operation_, from_); }
    WaitTimer(const WaitTimer&) = delete;
    WaitTimer& operator=(const WaitTimer&) = delete;

   private:
    Observer& observer_;
    const Operation& operation_;
    const std::uint64_t from_ = ticks_now();
  };

  /// Measures, from construction to destruction, how long the program selects values for the next operation.
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
  /// Returns the recorder for point-to-point calls, which have a lock of their own.
  FlightRecorder& recorder_of_messages() noexcept { return recorder_; }
  /// Returns the trace; null if none was requested.
  Trace* trace() const noexcept { return trace_.get(); }

 private:
  void write_entry(const OperationEntry&) noexcept;
  void last(Operation&) noexcept;
  void waited(const Operation&, std::uint64_t from) noexcept;
  void chosen(std::uint64_t from) noexcept;
  void write_out(std::string_view why, const FailureDetector&) const noexcept;

  FlightRecorder recorder_;
  std::unique_ptr<Trace> trace_;
  const Rank rank_;
  bool in_detail_ = false;  // whether there is a trace, or a log of every operation
  std::string path_;        // file of failure reports; empty: none
  std::atomic<bool> failed_{false};
};

}  // namespace collectives
