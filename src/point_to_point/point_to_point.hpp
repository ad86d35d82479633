// PointToPoint: performs the point-to-point calls of a communicator.
//
// A call becomes a MessageOperation. A send hands its message, or its request, to the link to its peer (envelope.hpp).
// If the link has no space, the send waits behind earlier sends to that peer. A receive first looks among the stored
// messages, which have arrived before. If none matches, it is posted. An arrived message goes to a posted receive, or
// is stored.
//
// Independence. Point-to-point messages have links, and between hosts a wire, of their own. They have a lock of their
// own, too. A thread in a collective and a thread in a point-to-point call therefore do not wait for each other.
// Without a progress thread, messages move only while a thread of this rank is in a call. A wait of a collective also
// progresses the messages of the same thread, and the other way round (progress_engine.hpp).
//
// Short calls. A blocking send of a short message ends when its lines are written. A blocking receive first polls the
// link of its source. Neither of them enters a list in this case.
//
// Failures. A wait checks about every millisecond for a failure of the communicator, for lost peers and for deadlines.
// A call fails if its peer has ended or left. A receive from any source fails if a peer has ended without leaving, or
// if all peers have left. A failure breaks the communicator, as that of a collective does. The receiver of a message
// with another count or type reports the mismatch, and the sender throws it in its wait or in its next call.
//
// Locks. Functions take the lock of this object. With a wire between hosts, `control` is the communicator's lock. It
// protects control messages, which report failures of other hosts. A thread may hold `control` when it progresses
// messages in a wait of a collective. Therefore only waits and tests of point-to-point calls try to lock it.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/wait.hpp"
#include "collectives/deadline.hpp"
#include "collectives/transport.hpp"
#include "execution/progress_engine.hpp"
#include "monitoring/failure_detector.hpp"
#include "monitoring/flight_recorder.hpp"
#include "point_to_point/direct_copy.hpp"
#include "point_to_point/host_link.hpp"
#include "point_to_point/matching.hpp"
#include "point_to_point/message_link.hpp"
#include "point_to_point/message_operation.hpp"
#include "point_to_point/spin_lock.hpp"
#include "steps/algorithm.hpp"

namespace collectives {

class PointToPoint final : public ProgressEngine::Member {
 public:
  /// Parts of the communicator. References must outlive the object.
  struct Parts {
    const RankView& view;
    const Arena& arena;
    Wire* wire;  ///< wire of point-to-point messages; null on one host
    FailureDetector& failure_detector;
    FlightRecorder& recorder;
    /// Writes the recorded calls to a file after the first failure. `why`: text of the error.
    std::function<void(std::string_view why)> write_out;
    std::mutex* control;       ///< communicator's lock; null on one host
    bool threads, kernel;      ///< as for PeerMemory
    bool oversubscribed;       ///< whether the host has more ranks than cores
    bool has_progress_thread;  ///< whether a progress thread calls progress_as_member()
    std::chrono::nanoseconds stall_report;
  };
  explicit PointToPoint(const Parts& parts);
  ~PointToPoint() = default;
  PointToPoint(const PointToPoint&) = delete;
  PointToPoint& operator=(const PointToPoint&) = delete;

  // ---- calls ----

  /// Performs a call. Blocks until it has ended. Throws its error.
  void run(MessageOperation& operation);
  /// Performs two calls at the same time. Blocks until both have ended. Throws the first error.
  void run(MessageOperation& first, MessageOperation& second);
  /// Starts a call. `operation` must stay in place until it has ended.
  void start(MessageOperation& operation);
  /// Starts several calls. No other call of this rank comes between them.
  void start(std::span<MessageOperation* const> operations);
  /// Progresses messages, without waiting. Returns whether `operation` has ended.
  bool test(MessageOperation& operation);
  /// Blocks until `operation` has ended or `until` has passed. Returns whether it has ended.
  bool wait_until(MessageOperation& operation, Deadline until);
  /// Fails unfinished calls before the communicator ends, and reports sends and messages that no receive has taken.
  /// `patience`: longest wait until the wire has sent its messages.
  void end(Deadline patience) noexcept;

  // ---- state ----

  /// Returns whether no call is unfinished, and neither an answer nor the wire needs further calls of this process. Any
  /// thread may call it.
  bool is_idle() const noexcept {
    return unfinished_count_.load(std::memory_order_acquire) == 0 && !wire_sends_.load(std::memory_order_acquire);
  }
  bool progress_as_member(bool check_failures) noexcept override;
  /// Returns a counter that changes whenever a message progresses. Any thread may call it.
  std::uint64_t moves() const noexcept { return moves_.load(std::memory_order_relaxed); }
  /// Returns the bytes of all messages sent, and those to other hosts. Any thread may call them.
  std::uint64_t bytes_sent() const noexcept { return bytes_sent_.load(std::memory_order_relaxed); }
  std::uint64_t bytes_to_other_hosts() const noexcept { return bytes_to_hosts_.load(std::memory_order_relaxed); }
  bool has_failed() const noexcept { return failure_ != nullptr; }

 private:
  using Guard = std::unique_lock<SpinLock>;

  /// Everything between this rank and one peer.
  struct Peer {
    std::unique_ptr<MessageLink> link;                   // null for this rank itself
    HostLink* host = nullptr;                            // the link, if the peer is on this host
    int local = 0;                                       // number of the peer on its host
    MessageList waiting;                                 // sends for which the link had no space
    MessageList open;                                    // sends whose requests are on the way
    MessageList streams_out;                             // sends whose receivers want the data
    MessageList copies;                                  // receives that copy data themselves; the first one has begun
    MessageList streams_in;                              // receives that wait for data, in the order of the data
    std::vector<Envelope> outbox;                        // answers for which the link had no space
    std::uint64_t last_id = 0;                           // number of the last request to the peer
    std::uint64_t eager_sent = 0, eager_matched = 0;     // credit of this rank at the peer
    std::uint64_t eager_taken = 0, taken_published = 0;  // credit of the peer at this rank
    std::chrono::steady_clock::time_point lost_since{};  // time at which the loss of the peer was first seen
  };
  Peer& peer(Rank rank) { return peers_[static_cast<std::size_t>(rank)]; }
  bool is_self(Rank rank) const noexcept { return rank == self_; }

  bool wait_turn(const MessageOperation& operation, CollectiveBackoff& backoff);
  void read_controls();
  /// Notes whether the wire needs further calls of progress().
  void note_wire() noexcept {
    if (wire_ != nullptr) wire_sends_.store(wire_->sending(), std::memory_order_release);
  }
  void leave_unsent();

  // Calls. All functions below require the lock.

  /// Throws the failure of the communicator, if there is one. Numbers the call.
  void begin(MessageOperation& operation);
  /// Starts a call. Returns whether it has ended at once. Otherwise adds it to the unfinished ones.
  bool post(MessageOperation& operation);
  /// Tries a blocking receive that needs no list. Returns whether it has ended.
  bool receive_at_once(MessageOperation& receive);
  bool post_receive(MessageOperation& receive);
  /// Sends the message or the request of a send. Returns false if the link has no space.
  bool hand_over(Peer& to, MessageOperation& send);
  bool has_credit(Peer& to, std::size_t bytes);
  void add_unfinished(MessageOperation& operation) noexcept;
  void remove_unfinished(MessageOperation& operation) noexcept;
  void complete(MessageOperation& operation) noexcept;

  // Progress.

  bool progress() noexcept;
  void progress_peer(Rank rank);
  void push_out(Peer& to);
  void push_stream(Peer& to);
  void pull_in(Rank from);
  void copy_pieces(Rank rank, Peer& with);
  void handle(Rank from, const Envelope& envelope, MessageLink* link, const std::byte* payload);
  void take_eager(Rank from, const Envelope& envelope, MessageLink* link, const std::byte* payload);
  /// Begins to receive a long message that `receive` has matched.
  void accept(MessageOperation& receive, Rank from, const Envelope& request);
  void take_data(Rank from, const Envelope& envelope, MessageLink& link);
  void finish_send(Rank to, std::uint64_t id);
  void answer(Rank to, const Envelope& envelope);
  void give_credit(Rank from, std::uint64_t bytes);
  void note_sent(Rank to, std::size_t bytes) noexcept;

  // Failures (point_to_point_failures.cpp).

  /// Throws Error{mismatch} if a message differs from the receive that has matched it.
  void check_shape(const MessageOperation& receive, Rank from, const Envelope& envelope);
  /// Runs all checks of a wait. Throws the first failure. `controls`: whether this thread holds `control`.
  void detect_failures(bool controls);
  /// Rank whose loss ends an operation, and how it was lost.
  struct Loss {
    Rank rank;
    std::string how;
  };
  std::optional<Loss> loss_of(const MessageOperation& operation);
  [[noreturn]] void report_timeout(const MessageOperation& operation, std::chrono::nanoseconds waited);
  [[noreturn]] void report_lost(const MessageOperation& operation, Rank rank, std::string_view how);
  std::string state_text(const MessageOperation& operation);
  std::string stored_text(Rank from) const;
  MessageWait wait_of(const MessageOperation& operation) const noexcept;
  void publish_wait(const MessageOperation& operation, std::chrono::nanoseconds waited, bool controls);
  void withdraw_wait(bool controls) noexcept;
  /// Returns the communicator's lock if it is free. Otherwise another thread is in a collective, and reads the control
  /// messages itself. Requires that this thread does not hold it.
  std::unique_lock<std::mutex> try_control();
  /// Fails all unfinished calls with `error`.
  void fail_all(std::exception_ptr error) noexcept;
  /// Runs act(). Fails all calls if it throws.
  template <class Act>
  void guarded(Act&& act) noexcept {
    if (failure_ == nullptr) try {
        act();
      } catch (...) {
        fail_with_current_error();
      }
  }
  /// Fails all calls with the exception that is being handled, and reports it to the other ranks.
  void fail_with_current_error() noexcept;
  void report_unmatched() noexcept;
  /// Returns whether answers wait for space of a link to a rank that has not left.
  bool has_unsent() const;
  void reset_lists() noexcept;

  const RankView& view_;
  const Arena& arena_;
  Wire* const wire_;
  FailureDetector& failure_detector_;
  FlightRecorder& recorder_;
  const std::function<void(std::string_view)> write_out_;
  std::mutex* const control_;
  const bool oversubscribed_, has_progress_thread_;
  const std::chrono::nanoseconds stall_report_;
  const Rank self_;

  SpinLock lock_;
  std::vector<Peer> peers_;
  Matching matching_;
  DirectCopy direct_;
  UnfinishedMessages unfinished_;
  std::atomic<std::size_t> unfinished_count_{0};  // unfinished calls, and envelopes in outboxes
  std::atomic<bool> wire_sends_{false};           // whether messages that were sent need further calls of progress()
  std::uint64_t calls_ = 0;
  std::atomic<std::uint64_t> moves_{0}, bytes_sent_{0}, bytes_to_hosts_{0};
  std::exception_ptr failure_;
  ProgressPlace place_{*this};
  std::chrono::steady_clock::time_point checked_{};  // time of the last check for failures in a test
  MessageWait published_;                            // wait that other ranks see
  bool published_to_hosts_ = false;
};

}  // namespace collectives
