// PointToPoint: performs the point-to-point calls of a communicator.
//
// A call becomes a MessageOperation. The class PointToPoint consists of the five parts below. It also has the mutex
// that protects the parts, and the functions that wait and shut down.
//
//   MessageCalls      the calls from their begin to their end
//   MessageLinks      links to all ranks, which carry envelopes and data
//   MessageSends      the sending side
//   MessageReceives   the receiving side, with the matching of receives and messages
//   MessageFailures   deadlines and ended peers
//
// Independence. Point-to-point messages share no links, no wire between hosts and no mutex with collectives. A thread
// in a collective and a thread in a point-to-point call therefore do not wait for each other. Without a progress
// thread, messages move only while a thread of this rank is in a call. A thread that waits in a collective also
// progresses its point-to-point messages. A thread that waits for a message also progresses its collectives
// (progress_engine.hpp).
//
// Short calls. A blocking send of a short message to a rank of this host ends when the message is in shared memory
// (host_link.hpp). A blocking receive from a rank of this host first looks for its message in shared memory. Calls that
// end in this way never join the list of unfinished calls.
//
// Failures. A wait checks about every millisecond for a failure of the communicator, for ended peers and for deadlines.
// If a point-to-point call fails, the communicator has failed, as after a failed collective. If a message has another
// count or type than its receive, the receiver reports the mismatch. The sender throws this error in its wait, or in
// its next call if the send has already ended. A send to a rank that has ended or left is not handed over, so it waits
// and fails. A message that was handed over before stays accepted.
//
// Locks. Functions take the mutex of this object. With a wire between hosts, `control` is the communicator's lock. It
// protects control messages, which report failures of other hosts. A thread may hold `control` when it progresses
// messages in a wait of a collective. Therefore only waits and tests of point-to-point calls try to lock it.
#pragma once

#include <chrono>
#include <cstdint>
#include <exception>
#include <functional>
#include <mutex>
#include <span>
#include <string_view>
#include <vector>

#include "base/wait.hpp"
#include "collectives/deadline.hpp"
#include "collectives/transport.hpp"
#include "execution/progress_engine.hpp"
#include "monitoring/failure_detector.hpp"
#include "monitoring/flight_recorder.hpp"
#include "point_to_point/direct_copy.hpp"
#include "point_to_point/message_calls.hpp"
#include "point_to_point/message_failures.hpp"
#include "point_to_point/message_links.hpp"
#include "point_to_point/message_operation.hpp"
#include "point_to_point/message_receives.hpp"
#include "point_to_point/message_sends.hpp"
#include "point_to_point/spin_lock.hpp"
#include "steps/algorithm.hpp"

namespace collectives {

class PointToPoint final : public ProgressEngine::Member {
 public:
  using Operations = std::span<MessageOperation* const>;
  /// Objects of the communicator that PointToPoint uses. The referenced objects must outlive the PointToPoint.
  struct Parts {
    const RankView& view;
    const Arena& arena;
    Wire* wire;  ///< transport of point-to-point messages between hosts; null if there is only one host
    FailureDetector& failure_detector;
    FlightRecorder& recorder;
    /// Writes the recorded calls to a file after the first failure. `why`: text of the error.
    std::function<void(std::string_view why)> write_out;
    std::mutex* control;       ///< communicator's lock; null if there is only one host
    bool threads, kernel;      ///< parameters of PeerMemory
    bool oversubscribed;       ///< whether the host has more ranks than cores
    bool has_progress_thread;  ///< whether a progress thread calls progress_as_member()
    std::chrono::nanoseconds stall_report;
  };
  explicit PointToPoint(const Parts& parts);
  PointToPoint(const PointToPoint&) = delete;
  PointToPoint& operator=(const PointToPoint&) = delete;

  // ---- calls ----

  /// Starts all given calls, and blocks until all of them have ended. Throws the error of the first call that has
  /// failed.
  void run(Operations operations);
  /// Starts the given calls, without another call of this rank between them. The MessageOperation objects must stay at
  /// their addresses until they have ended.
  void start(Operations operations);
  /// Progresses messages, without waiting. Returns whether `operation` has ended.
  bool test(MessageOperation& operation);
  /// Blocks until `operation` has ended or `until` has passed. Returns whether it has ended.
  bool wait_until(MessageOperation& operation, Deadline until);
  /// Fails unfinished calls before the communicator ends, and reports sends and messages that no receive has taken.
  /// `patience`: longest wait until the wire has sent its messages.
  void end(Deadline patience) noexcept;
  bool progress_as_member(bool check_failures) noexcept override;

  // ---- state, which any thread may ask for ----

  /// Returns whether no call is unfinished, and neither an answer nor the wire needs further calls of this process.
  bool is_idle() const noexcept { return calls_.all_ended() && links_.is_idle(); }
  /// Returns a counter that changes whenever a message progresses.
  std::uint64_t moves() const noexcept { return calls_.moves(); }
  /// Returns the sending side, which counts the bytes sent.
  const MessageSends& sends() const noexcept { return sends_; }
  bool has_failed() const noexcept { return failure_ != nullptr; }
  /// Returns the recorded calls, oldest first. `locks`: whether another thread may be in a call.
  std::vector<MessageRecord> recent(bool locks);

 private:
  using Guard = std::unique_lock<SpinLock>;

  /// Right to use the control messages between hosts.
  class Control {
   public:
    /// Takes the communicator's lock if it is free; null: no lock protects control messages. If the lock is taken,
    /// another thread is in a collective, and reads the control messages itself.
    explicit Control(std::mutex* mutex)
        : lock_(mutex != nullptr ? std::unique_lock(*mutex, std::try_to_lock) : std::unique_lock<std::mutex>()),
          granted_(mutex == nullptr || lock_.owns_lock()) {}
    bool granted() const noexcept { return granted_; }

   private:
    std::unique_lock<std::mutex> lock_;
    bool granted_;
  };

  void read_controls(Operations operations);
  bool wait_turn(const MessageOperation& operation, CollectiveBackoff& backoff);
  void leave_unsent();

  // All functions below require the lock.

  /// Begins calls. Throws the failure of the communicator, if there is one.
  void begin(Operations operations);
  /// Throws the failure of the communicator, if there is one and a call has not ended.
  void throw_failure_of(Operations operations) const;
  bool progress() noexcept;
  /// Handles envelopes that have arrived from a rank.
  void take_arrived(Rank from);
  /// Runs all checks of a wait. Throws the first failure.
  void detect_failures(bool controls);
  /// Fails all unfinished calls with `error`.
  void fail_all(std::exception_ptr error) noexcept;
  /// Fails all calls with the exception that is being handled, and reports it to the other ranks.
  void fail_with_current_error() noexcept;
  /// Runs act(). Fails all calls if it throws.
  template <class Act>
  void guarded(Act&& act) noexcept {
    if (failure_ == nullptr) try {
        act();
      } catch (...) {
        fail_with_current_error();
      }
  }
  /// Returns whether answers are kept for ranks that have not left.
  bool has_unsent() const;
  /// Fails calls that have not ended when the communicator ends.
  void fail_unended() noexcept;

  const RankView& view_;
  FailureDetector& failure_detector_;
  const FlightRecorder& recorder_;
  const std::function<void(std::string_view)> write_out_;
  std::mutex* const control_;
  const bool oversubscribed_, has_progress_thread_;

  SpinLock lock_;
  MessageCalls calls_;
  MessageLinks links_;
  DirectCopy direct_;
  MessageSends sends_;
  MessageReceives receives_;
  MessageFailures failures_;
  std::exception_ptr failure_;
  ProgressPlace place_{*this};
  std::chrono::steady_clock::time_point checked_{};  // time of the last check for failures in a test
};

}  // namespace collectives
