// Failures of point-to-point calls: differences between a message and its receive, lost peers, deadlines, and the end
// of the communicator.
#include <fmt/format.h>

#include <chrono>
#include <string>
#include <utility>

#include "base/log.hpp"
#include "collectives/error.hpp"
#include "point_to_point/point_to_point.hpp"

namespace collectives {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

// Time for which a rank waits before it sends its wait to other hosts.
constexpr auto kSendWaitAfter = 100ms;
// Time for which messages of a lost rank of another host may still arrive. They travel apart from the news of the loss.
constexpr auto kPatienceWithLost = 1s;
constexpr std::string_view kLeft = "it left";  // beginning of the text about a rank that has left
// Maximum number of stored messages that a text lists.
constexpr int kListed = 4;

std::string shape_text(std::uint64_t bytes, DataType type) {
  return fmt::format("{} x {}", bytes / size_of(type), to_string(type));
}

std::string end_text(const MessageCall& call) {
  return call.peer == any_source ? "any rank" : fmt::format("rank {}", call.peer);
}

}  // namespace

std::string text_of(const MessageOperation& operation) {
  const MessageCall& call = operation.call;
  return fmt::format("{} #{} {} {} (tag {})", call.sends() ? "send" : "recv", operation.number,
                     call.sends() ? "to" : "from", end_text(call), call.tag);
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
    failure_detector_.report_failure(Errc::system, self_, "point-to-point", error.what());
    fail_all(std::make_exception_ptr(Error(Errc::system, error.what(), self_, self_, "point-to-point")));
  }
}

void PointToPoint::check_shape(const MessageOperation& receive, Rank from, const Envelope& envelope) {
  if (envelope.bytes == receive.bytes && envelope.type == receive.call.type) return;
  const std::string operation = text_of(receive);
  failure_detector_.report_failure(
      Errc::mismatch, from, operation,
      fmt::format("{}: rank {} sent {}, and rank {} receives {}", operation, from,
                  shape_text(envelope.bytes, envelope.type), self_, shape_text(receive.bytes, receive.call.type)));
  failure_detector_.throw_failure();
}

// ---- waits ----

/// Progresses messages once more before it reports a loss or a deadline, because a message may have arrived since.
void PointToPoint::detect_failures(bool controls) {
  if (controls)
    failure_detector_.check_control();
  else
    failure_detector_.check();
  const auto now = Clock::now();
  const bool may_ask = controls || control_ == nullptr;
  if (may_ask) failure_detector_.look_for_losses();
  bool fails = false;
  unfinished_.for_each([&](MessageOperation& one) {
    if (one.issued == Clock::time_point{}) one.issued = now;
    const auto waited = now - one.issued;
    fails = fails || waited >= one.timeout || (may_ask && loss_of(one));
    if (one.stall_reported || waited < stall_report_) return;
    one.stall_reported = true;
    log_warning(self_, "{} has waited for {:.0f} s: {}", text_of(one), std::chrono::duration<double>(waited).count(),
                state_text(one));
  });
  if (!fails) return;
  progress();
  unfinished_.for_each([&](const MessageOperation& one) {
    if (const auto loss = may_ask ? loss_of(one) : std::nullopt) report_lost(one, loss->rank, loss->how);
    if (now - one.issued >= one.timeout) report_timeout(one, now - one.issued);
  });
}

void PointToPoint::report_timeout(const MessageOperation& operation, std::chrono::nanoseconds waited) {
  const std::string text = text_of(operation);
  const Rank awaited = operation.source != kNoRank ? operation.source : operation.call.peer;
  failure_detector_.report_failure(
      Errc::timeout, awaited < 0 ? kNoRank : awaited, text,
      fmt::format("{}: timed out after {:.1f} s on rank {}: {}", text, std::chrono::duration<double>(waited).count(),
                  self_, state_text(operation)));
  failure_detector_.throw_failure();
}

void PointToPoint::report_lost(const MessageOperation& operation, Rank rank, std::string_view how) {
  const std::string text = text_of(operation);
  failure_detector_.report_failure(Errc::peer_lost, rank, text,
                                   fmt::format("{}: rank {} was lost: {}", text, rank, how));
  failure_detector_.throw_failure();
}

std::optional<PointToPoint::Loss> PointToPoint::loss_of(const MessageOperation& operation) {
  const Rank awaited = operation.source != kNoRank ? operation.source : operation.call.peer;
  if (is_self(awaited)) return std::nullopt;
  const auto loss_of_rank = [&](Rank rank) -> std::optional<Loss> {
    auto how = failure_detector_.loss_of(rank);
    if (!how) return std::nullopt;
    Peer& lost = peer(rank);
    const auto now = Clock::now();
    if (lost.lost_since == Clock::time_point{}) lost.lost_since = now;
    const bool may_arrive = lost.host == nullptr && !lost.link->ended() && now - lost.lost_since < kPatienceWithLost;
    return may_arrive ? std::nullopt : std::optional(Loss{rank, *std::move(how)});
  };
  if (awaited >= 0) return loss_of_rank(awaited);
  bool all_lost = true;
  std::optional<Loss> last;
  for (const Rank rank : view_.world.members) {
    if (is_self(rank)) continue;
    auto loss = loss_of_rank(rank);
    all_lost = all_lost && loss;
    if (loss && !loss->how.starts_with(kLeft)) return loss;
    if (loss) last = std::move(loss);
  }
  return all_lost ? last : std::nullopt;
}

MessageWait PointToPoint::wait_of(const MessageOperation& operation) const noexcept {
  return {operation.call.sends() ? MessageWait::Kind::send : MessageWait::Kind::receive, operation.call.peer,
          operation.call.tag};
}

void PointToPoint::publish_wait(const MessageOperation& operation, std::chrono::nanoseconds waited, bool controls) {
  const MessageWait wait = wait_of(operation);
  const bool to_hosts = controls && waited >= kSendWaitAfter && !(published_to_hosts_ && wait == published_);
  published_ = wait;
  published_to_hosts_ = published_to_hosts_ || to_hosts;
  failure_detector_.publish_wait(wait, to_hosts);
}

void PointToPoint::withdraw_wait(bool controls) noexcept {
  published_ = {};
  try {
    const bool to_hosts = controls && published_to_hosts_ && failure_ == nullptr;
    published_to_hosts_ = published_to_hosts_ && !to_hosts;
    failure_detector_.publish_wait({}, to_hosts);
  } catch (const std::exception&) {  // out of memory; the wait stays visible to other hosts
  }
}

// ---- texts ----

std::string PointToPoint::stored_text(Rank from) const {
  std::string text;
  int stored = 0;
  const auto add = [&](const StoredMessage& message) {
    if (++stored > kListed) return;
    text += fmt::format("{}tag {} ({})", text.empty() ? "" : ", ", message.envelope.tag,
                        shape_text(message.envelope.bytes, message.envelope.type));
    if (from == any_source) text += fmt::format(" from rank {}", message.from);
  };
  for (const Rank rank : view_.world.members)
    if (from == any_source || from == rank) matching_.for_each_stored(rank, add);
  if (stored > kListed) text += fmt::format(" and {} more", stored - kListed);
  return text;
}

std::string PointToPoint::state_text(const MessageOperation& operation) {
  const MessageCall& call = operation.call;
  const std::string end = end_text(call);
  std::string text;
  if (operation.now() == MessageOperation::Stage::moving) {
    text = fmt::format("the data stopped after {} of {} bytes", operation.moved, operation.bytes);
  } else if (call.sends()) {
    text = fmt::format("{} has not received the message", end);
  } else {
    text = fmt::format("{} has not sent such a message", end);
    if (const std::string stored = stored_text(call.peer); !stored.empty())
      text += fmt::format("; {} has sent messages that no receive has taken: {}", end, stored);
  }
  text += "; " + waits_text(self_, wait_of(operation), view_.world.size(),
                            [&](Rank rank) { return failure_detector_.wait_of(rank); });
  if (call.peer < 0 || is_self(call.peer)) return text;
  if (const std::string other = failure_detector_.current_call_of(call.peer); !other.empty())
    text += fmt::format(", rank {} is in {}", call.peer, other);
  return text;
}

// ---- the end ----

void PointToPoint::reset_lists() noexcept {
  for (Peer& one : peers_) {
    for (MessageList* const list : {&one.waiting, &one.open, &one.streams_out, &one.copies, &one.streams_in})
      while (list->pop_front() != nullptr) {
      }
    unfinished_count_.fetch_sub(one.outbox.size(), std::memory_order_acq_rel);
    one.outbox.clear();
  }
  matching_.forget_posted();
}

void PointToPoint::fail_all(std::exception_ptr error) noexcept {
  failure_ = error;
  failure_detector_.wait_for_remote_access_end();
  if (wire_ != nullptr) wire_->abandon();
  wire_sends_.store(false, std::memory_order_release);
  reset_lists();
  while (MessageOperation* const one = unfinished_.front()) {
    one->error = error;
    remove_unfinished(*one);
    recorder_.end_message(one->number, OperationRecord::State::failed, one->source);
    one->set(MessageOperation::Stage::failed);
  }
}

bool PointToPoint::has_unsent() const {
  for (const Rank rank : view_.world.members) {
    const Peer& one = peers_[static_cast<std::size_t>(rank)];
    if (one.outbox.empty()) continue;
    if (one.host == nullptr || !failure_detector_.loss_of(rank)) return true;
  }
  return false;
}

void PointToPoint::report_unmatched() noexcept {
  try {
    for (const Rank rank : view_.world.members)
      if (const std::string stored = stored_text(rank); !stored.empty())
        log_warning(self_, "leaving a communicator: rank {} has sent messages that no receive has taken: {}", rank,
                    stored);
    unfinished_.for_each([&](const MessageOperation& one) {
      log_warning(self_, "leaving a communicator: {} has not ended", text_of(one));
    });
  } catch (const std::exception&) {  // out of memory
  }
}

void PointToPoint::end(Deadline patience) noexcept {
  const Guard guard(lock_);
  place_.leave();
  guarded([&] {
    failure_detector_.check();
    failure_detector_.look_for_losses();
  });
  progress();
  for (CollectiveBackoff backoff(oversubscribed_); failure_ == nullptr && has_unsent() && !patience.passed();
       backoff.wait())
    progress();
  if (failure_ != nullptr) return;
  report_unmatched();
  if (!unfinished_.empty()) {
    const MessageOperation& first = *unfinished_.front();
    const std::string operation = text_of(first);
    const bool touches_peer = unfinished_.find([](const MessageOperation& one) {
      return one.now() != MessageOperation::Stage::waiting;
    }) != nullptr;
    const std::string text =
        fmt::format("{}: rank {} was lost: it left the communicator before the end", operation, self_);
    // Peers may access the buffers of these calls, which the program frees. A failure ends that.
    if (touches_peer) failure_detector_.report_failure(Errc::peer_lost, self_, operation, text);
    fail_all(std::make_exception_ptr(
        Error(Errc::peer_lost, fmt::format("{}: the communicator was destroyed before the call ended", operation),
              self_, self_, operation)));
    return;
  }
  if (wire_ != nullptr) try {
      wire_->flush(patience);
    } catch (const std::exception& error) {
      log_warning(self_, "leaving a communicator: {}", error.what());
    }
}

}  // namespace collectives
