// Implementation of MessageFailures, which finds failures of unfinished point-to-point calls. A call fails if its
// deadline has passed or its peer has ended. The error text describes the state of the call. This file also publishes
// the wait of this rank, that is, the peer for which the rank waits. Error texts on other ranks can then name this
// wait.
#include "point_to_point/message_failures.hpp"

#include <fmt/format.h>

#include <exception>
#include <utility>

#include "base/coarse_clock.hpp"
#include "base/log.hpp"
#include "base/text.hpp"
#include "point_to_point/message_texts.hpp"

namespace collectives {
namespace {

using namespace std::chrono_literals;

// Minimum time between two reads of control messages, texts from other hosts that report failures. Calls read them when
// they begin. The time is limited, because a read usually takes a system call.
constexpr auto kReadControlsEvery = 1ms;
// Time for which a rank must have waited before it also publishes its wait to ranks of other hosts.
constexpr auto kSendWaitAfter = 100ms;
// Times after the report that a rank of another host has left, or that its process has ended. Its last messages may
// still arrive in this time, because messages and report may travel on different connections. Calls report the end of a
// process within a second, so the time after an end is shorter.
constexpr std::chrono::milliseconds kPatienceAfterLeaving = 1s, kPatienceAfterEnd = 500ms;
// Maximum number of stored messages (messages without a receive) that a text lists.
constexpr int kListed = 4;

/// Returns the rank for which an operation waits, or any_source if any rank may send the message.
Rank awaited_by(const MessageOperation& operation) noexcept {
  return operation.source != kNoRank ? operation.source : operation.call.peer;
}

MessageWait wait_of(const MessageOperation& operation) noexcept {
  return {operation.call.sends() ? MessageWait::Kind::send : MessageWait::Kind::receive, operation.call.peer,
          operation.call.tag};
}

double seconds(std::chrono::nanoseconds time) { return std::chrono::duration<double>(time).count(); }

}  // namespace

// ---- checks ----

void MessageFailures::read_controls() {
  const auto now = coarse_now();
  if (now - controls_read_ < kReadControlsEvery) return;
  controls_read_ = now;
  failure_detector_.check_control();
  peers_.look_for_ends();
}

bool MessageFailures::look(bool controls) {
  if (!controls) {
    failure_detector_.check();
  } else {
    failure_detector_.check_control();
    peers_.look_for_ends();
  }
  const auto now = Clock::now();
  bool fails = false;
  calls_.unfinished().for_each([&](MessageOperation& one) {
    if (one.issued == Clock::time_point{}) one.issued = now;
    const auto waited = now - one.issued;
    fails = fails || waited >= one.timeout || (controls && loss_of(one));
    if (one.stall_reported || waited < stall_report_) return;
    one.stall_reported = true;
    log_warning(self(), "{} has waited for {:.0f} s: {}", text_of(one), seconds(waited), state_text(one));
  });
  return fails;
}

void MessageFailures::report(bool controls) {
  const auto now = Clock::now();
  calls_.unfinished().for_each([&](const MessageOperation& one) {
    if (controls)
      if (const auto loss = loss_of(one)) report_lost(one, *loss);
    if (now - one.issued >= one.timeout) report_timeout(one, now - one.issued, controls);
  });
}

void MessageFailures::report_timeout(const MessageOperation& operation, std::chrono::nanoseconds waited,
                                     bool controls) {
  const std::string text = text_of(operation);
  const Rank awaited = awaited_by(operation);
  MessageWait wait = wait_of(operation);
  wait.peer = awaited;
  const std::vector<Rank> silent = peers_.silent_of(
      awaited_ranks(self(), wait, view_.world.size(), [&](Rank rank) { return peers_.wait_of(rank); }), controls);
  failure_detector_.report_failure(
      Errc::timeout, awaited < 0 ? kNoRank : awaited, text,
      fmt::format("{}: timed out after {:.1f} s on rank {}: {}{}", text, seconds(waited), self(), state_text(operation),
                  silent.empty() ? "" : "; no sign of life from " + ranks_text(silent)));
  failure_detector_.throw_failure();
}

void MessageFailures::report_lost(const MessageOperation& operation, const Loss& loss) {
  const std::string text = text_of(operation);
  failure_detector_.report_failure(Errc::peer_lost, loss.rank, text,
                                   fmt::format("{}: rank {} was lost: {}", text, loss.rank, loss.how));
  failure_detector_.throw_failure();
}

std::optional<MessageFailures::Loss> MessageFailures::loss_of_rank(Rank rank, bool may_arrive) {
  std::string how = peers_.end_of(rank);
  if (how.empty()) return std::nullopt;
  Clock::time_point& since = lost_since_[static_cast<std::size_t>(rank)];
  const auto now = Clock::now();
  if (since == Clock::time_point{}) since = now;
  const MessageLinks::End& end = links_[rank];
  const Clock::duration patience = peers_.has_left(rank) ? kPatienceAfterLeaving : kPatienceAfterEnd;
  const bool waits = may_arrive && end.host == nullptr && !end.link->ended() && now - since < patience;
  return waits ? std::nullopt : std::optional(Loss{rank, std::move(how)});
}

std::optional<MessageFailures::Loss> MessageFailures::loss_of(const MessageOperation& operation) {
  const Rank awaited = awaited_by(operation);
  if (awaited == self()) return std::nullopt;
  const bool not_sent = operation.call.sends() && operation.now() == MessageOperation::Stage::waiting;
  if (awaited >= 0) return loss_of_rank(awaited, !not_sent);
  bool all_lost = true;
  std::optional<Loss> last;
  for (const Rank rank : view_.world.members) {
    if (rank == self()) continue;
    auto loss = loss_of_rank(rank);
    all_lost = all_lost && loss;
    if (loss && !peers_.has_left(rank)) return loss;
    if (loss) last = std::move(loss);
  }
  return all_lost ? last : std::nullopt;
}

// ---- the published wait ----

void MessageFailures::publish_wait(const MessageOperation& operation, std::chrono::nanoseconds waited, bool controls) {
  const MessageWait wait = wait_of(operation);
  const bool to_hosts = controls && waited >= kSendWaitAfter && !(published_to_hosts_ && wait == published_);
  published_ = wait;
  published_to_hosts_ = published_to_hosts_ || to_hosts;
  peers_.publish_wait(wait, to_hosts);
}

void MessageFailures::withdraw_wait(bool controls) noexcept {
  published_ = {};
  try {
    const bool to_hosts = controls && published_to_hosts_;
    published_to_hosts_ = published_to_hosts_ && !to_hosts;
    peers_.publish_wait({}, to_hosts);
  } catch (const std::exception&) {  // out of memory; the wait stays visible to other hosts
  }
}

// ---- texts ----

std::string MessageFailures::stored_text(Rank from) const {
  std::string text;
  int stored = 0;
  const auto add = [&](const StoredMessage& message) {
    if (++stored > kListed) return;
    text += fmt::format("{}tag {} ({})", text.empty() ? "" : ", ", message.envelope.tag,
                        shape_text(message.envelope.bytes, message.envelope.type));
    if (from == any_source) text += fmt::format(" from rank {}", message.from);
  };
  for (const Rank rank : view_.world.members)
    if (from == any_source || from == rank) receives_.for_each_stored(rank, add);
  if (stored > kListed) text += fmt::format(" and {} more", stored - kListed);
  return text;
}

std::string MessageFailures::state_text(const MessageOperation& operation) const {
  const MessageCall& call = operation.call;
  const std::string end = end_text(call);
  std::string text;
  if (operation.now() == MessageOperation::Stage::moving) {
    text = fmt::format("the data stopped after {} of {} bytes", operation.moved, operation.bytes);
  } else if (call.sends()) {
    text = fmt::format("{} has not received the message", end);
  } else {
    const bool any = call.peer == any_source;
    text = fmt::format("{} sent such a message", any ? "no rank has" : end + " has not");
    if (const std::string stored = stored_text(call.peer); !stored.empty())
      text +=
          fmt::format("; {} sent messages that no receive has taken: {}", any ? "ranks have" : end + " has", stored);
  }
  text += "; " +
          waits_text(self(), wait_of(operation), view_.world.size(), [&](Rank rank) { return peers_.wait_of(rank); });
  if (call.peer < 0 || call.peer == self()) return text;
  if (const std::string other = peers_.current_call_of(call.peer); !other.empty())
    text += fmt::format(", rank {} is in {}", call.peer, other);
  return text;
}

void MessageFailures::report_unmatched() const noexcept {
  try {
    for (const Rank rank : view_.world.members)
      if (const std::string stored = stored_text(rank); !stored.empty())
        log_warning(self(), "leaving a communicator: rank {} has sent messages that no receive has taken: {}", rank,
                    stored);
    calls_.unfinished().for_each([&](const MessageOperation& one) {
      log_warning(self(), "leaving a communicator: {} has not ended", text_of(one));
    });
  } catch (const std::exception&) {  // out of memory
  }
}

}  // namespace collectives
