// Implementation of PointToPoint, which performs the sends and receives of a communicator. This file begins calls,
// progresses them without blocking, waits for them, and ends them. Other classes do the sending, the receiving and the
// search for failures (point_to_point.hpp).
#include "point_to_point/point_to_point.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <utility>

#include "base/log.hpp"
#include "collectives/error.hpp"
#include "point_to_point/message_texts.hpp"

namespace collectives {
namespace {

using Clock = std::chrono::steady_clock;

// Number of times that a blocking receive checks the link of its source before it joins the list of unfinished calls.
// 100 checks take 2 to 5 us. If a peer answers a short message at once, its answer arrives within that time.
constexpr int kPolls = 100;
// Maximum number of messages that a rank takes from one peer before it checks the next peer.
constexpr int kMessagesPerTurn = 64;

/// Returns whether an envelope (header of a message) is an answer of a receiver. The sending side handles answers.
bool is_answer(MessageKind kind) noexcept {
  return kind == MessageKind::go || kind == MessageKind::finished || kind == MessageKind::credit;
}

}  // namespace

PointToPoint::PointToPoint(const Parts& parts)
    : view_(parts.view),
      failure_detector_(parts.failure_detector),
      recorder_(parts.recorder),
      write_out_(parts.write_out),
      control_(parts.control),
      oversubscribed_(parts.oversubscribed),
      has_progress_thread_(parts.has_progress_thread),
      calls_(parts.recorder),
      links_(parts.view, parts.arena, parts.wire),
      direct_(parts.arena, parts.threads, parts.kernel, !parts.oversubscribed),
      sends_(parts.view.world.size(), links_, calls_, direct_),
      receives_(parts.view.world.self, parts.view.world.size(), links_, calls_, direct_, parts.failure_detector),
      failures_(parts.view, parts.failure_detector, calls_, links_, receives_, parts.stall_report) {}

// ---- calls ----

void PointToPoint::begin(Operations operations) {
  if (failure_ != nullptr) std::rethrow_exception(failure_);
  failure_detector_.check();
  for (MessageOperation* const one : operations) calls_.begin(*one);
}

void PointToPoint::throw_failure_of(Operations operations) const {
  if (failure_ == nullptr) return;
  for (const MessageOperation* const one : operations)
    if (!one->ended()) std::rethrow_exception(failure_);
}

void PointToPoint::run(Operations operations) {
  read_controls(operations);
  {
    const Guard guard(lock_);
    begin(operations);
    guarded([&] {
      for (MessageOperation* const one : operations)
        if (one->call.sends())
          sends_.start(*one);
        else if (!receives_.end_at_once(*one, oversubscribed_ ? 1 : kPolls))
          receives_.start(*one);
    });
    links_.note_wire();
    throw_failure_of(operations);
  }
  for (MessageOperation* const one : operations)
    if (!one->ended()) wait_until(*one, Deadline::never());
  leave_unsent();
  for (MessageOperation* const one : operations)
    if (one->error != nullptr) std::rethrow_exception(one->error);
}

void PointToPoint::start(Operations operations) {
  read_controls(operations);
  const Guard guard(lock_);
  begin(operations);
  if (!has_progress_thread_) place_.move_to_this_thread();
  guarded([&] {
    for (MessageOperation* const one : operations)
      if (one->call.sends())
        sends_.start(*one);
      else
        receives_.start(*one);
  });
  links_.note_wire();
  throw_failure_of(operations);
}

/// Reads control messages of other hosts, which report failures, at most once per millisecond. Each call does this when
/// it begins, because a rank whose calls never wait would otherwise read no control messages. Notes receivers on other
/// hosts that have ended or left. Throws an error if the communicator has failed.
void PointToPoint::read_controls(Operations operations) {
  if (control_ == nullptr) return;
  const Control control(control_);
  if (!control.granted()) return;
  failures_.read_controls();
  for (const MessageOperation* const one : operations) {
    const Rank peer = one->call.peer;
    if (!one->call.sends() || links_[peer].host != nullptr || !failures_.has_ended(peer)) continue;
    const Guard guard(lock_);
    links_.note_lost(peer);
  }
}

/// Passes unsent answers and messages to later waits of this thread, because peers wait for them. An answer is unsent
/// if its link had no space. A message is unsent if the wire still holds it.
void PointToPoint::leave_unsent() {
  if (is_idle() || has_progress_thread_) return;
  const Guard guard(lock_);
  place_.move_to_this_thread();
}

// ---- progress ----

bool PointToPoint::progress() noexcept {
  const std::uint64_t before = moves();
  guarded([&] {
    links_.progress_wire();
    for (const Rank rank : view_.world.members) {
      take_arrived(rank);
      if (links_.send_answers(rank)) sends_.progress(rank);
      receives_.progress(rank);
    }
  });
  links_.note_wire();
  return moves() != before;
}

void PointToPoint::take_arrived(Rank from) {
  for (int taken = 0; taken < kMessagesPerTurn; ++taken) {
    const Envelope* const arrived = receives_.next_from(from);
    if (arrived == nullptr) return;
    if (!is_answer(arrived->kind)) {
      if (!receives_.take(from, *arrived)) return;
      calls_.note_move();
      continue;
    }
    calls_.note_move();
    const Envelope answer = *arrived;  // copied, because the link may reuse its memory after take()
    links_[from].link->take(nullptr);
    sends_.take_answer(from, answer);
  }
}

/// Progresses messages in a wait of another call of this thread. Reads no control messages, because the caller may hold
/// the communicator's lock, which protects them.
bool PointToPoint::progress_as_member(bool check_failures) noexcept {
  if (is_idle()) return false;
  const Guard guard(lock_, std::try_to_lock);
  if (!guard.owns_lock()) return false;
  const bool moved = progress();
  if (check_failures) guarded([&] { detect_failures(control_ == nullptr); });
  return moved;
}

// ---- waits ----

bool PointToPoint::test(MessageOperation& operation) {
  if (operation.ended()) return true;
  const auto now = Clock::now();
  bool checks = false;
  {
    const Guard guard(lock_);
    progress();
    if (operation.ended()) return true;
    checks = now - checked_ >= std::chrono::milliseconds(1);
    if (checks) checked_ = now;
  }
  ProgressEngine* const engine = ProgressEngine::of_this_thread();
  if (engine != nullptr) engine->progress(*this, checks);
  if (!checks) return false;
  const Control control(control_);
  const Guard guard(lock_);
  guarded([&] { detect_failures(control.granted()); });
  return operation.ended();
}

bool PointToPoint::wait_until(MessageOperation& operation, Deadline until) {
  CollectiveBackoff backoff(oversubscribed_);
  const auto begun = Clock::now();
  std::uint64_t moved = moves();
  bool published = false;
  while (!operation.ended()) {
    {
      const Guard guard(lock_);
      progress();
    }
    if (operation.ended()) break;
    const bool check_failures = wait_turn(operation, backoff);
    if (check_failures) {
      const Control control(control_);
      const Guard guard(lock_);
      published = true;
      guarded([&] {
        failures_.publish_wait(operation, Clock::now() - begun, control.granted());
        detect_failures(control.granted());
      });
      if (until.passed()) break;
    }
    ProgressEngine* const engine = ProgressEngine::of_this_thread();
    const bool others = engine != nullptr && engine->progress(*this, check_failures);
    if (const std::uint64_t moves = this->moves(); moves != std::exchange(moved, moves) || others) backoff.reset();
  }
  if (published) {
    const Control control(control_);
    const Guard guard(lock_);
    failures_.withdraw_wait(control.granted() && failure_ == nullptr);
  }
  return operation.ended();
}

/// Waits for one turn of a wait. If the operation waits for another host, an event of the wire ends the sleep. In this
/// case the function holds the lock, because two threads must not use the wire.
bool PointToPoint::wait_turn(const MessageOperation& operation, CollectiveBackoff& backoff) {
  Wire* const wire = links_.wire_to(operation.call.peer);
  if (wire == nullptr) return backoff.wait();
  const Guard guard(lock_);
  return backoff.wait(wire);
}

// ---- failures ----

void PointToPoint::detect_failures(bool controls) {
  if (!failures_.look(controls)) return;
  progress();
  failures_.report(controls);
}

void PointToPoint::fail_with_current_error() noexcept {
  try {
    throw;
  } catch (const Error& error) {
    // An error of a wire or of the kernel is a failure of the communicator, so it is reported to the other ranks.
    failure_detector_.report_failure(error.code(), error.peer(), error.operation(), error.what());
    fail_all(std::current_exception());
    write_out_(error.what());
  } catch (const std::exception& error) {  // out of memory
    const Rank self = view_.world.self;
    failure_detector_.report_failure(Errc::system, self, "point-to-point", error.what());
    fail_all(std::make_exception_ptr(Error(Errc::system, error.what(), self, self, "point-to-point")));
  }
}

void PointToPoint::fail_all(std::exception_ptr error) noexcept {
  failure_ = std::move(error);
  failure_detector_.wait_for_remote_access_end();
  links_.abandon();
  sends_.forget();
  receives_.forget();
  calls_.fail_all(failure_);
}

std::vector<MessageRecord> PointToPoint::recent(bool locks) {
  const Guard guard = locks ? Guard(lock_) : Guard();
  return recorder_.recent_messages();
}

// ---- the end ----

bool PointToPoint::has_unsent() const {
  return std::any_of(view_.world.members.begin(), view_.world.members.end(), [&](Rank rank) {
    const MessageLinks::End& end = links_[rank];
    return !end.answers.empty() && (end.host == nullptr || !failures_.has_ended(rank));
  });
}

void PointToPoint::end(Deadline patience) noexcept {
  const Guard guard(lock_);
  place_.leave();
  if (failure_ == nullptr) try {
      failures_.look(true);
    } catch (const std::exception&) {  // another rank has reported it, and no call fails here
      fail_all(std::current_exception());
    }
  progress();
  for (CollectiveBackoff backoff(oversubscribed_); failure_ == nullptr && has_unsent() && !patience.passed();
       backoff.wait())
    progress();
  if (failure_ != nullptr) return;
  failures_.report_unmatched();
  if (!calls_.all_ended()) return fail_unended();
  try {
    links_.flush(patience);
  } catch (const std::exception& error) {
    log_warning(view_.world.self, "leaving a communicator: {}", error.what());
  }
}

void PointToPoint::fail_unended() noexcept {
  const std::string operation = text_of(*calls_.unfinished().front());
  const Rank self = view_.world.self;
  // Peers may access the buffers of these calls, which the program frees. A failure ends that.
  const auto touches_peer = [](const MessageOperation& one) { return one.now() != MessageOperation::Stage::waiting; };
  if (calls_.unfinished().find(touches_peer) != nullptr)
    failure_detector_.report_failure(
        Errc::peer_lost, self, operation,
        fmt::format("{}: rank {} was lost: it left the communicator before the end", operation, self));
  fail_all(std::make_exception_ptr(
      Error(Errc::peer_lost, fmt::format("{}: the communicator was destroyed before the call ended", operation), self,
            self, operation)));
}

}  // namespace collectives
