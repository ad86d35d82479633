// Implementation of FailureDetector. A rank that waits in a call checks for three failures. A peer is lost if its
// process has ended. A mismatch is a call of another rank with other arguments. The third failure is a passed deadline.
// This file makes these checks, and reports a failure to all ranks. After a failure, a rank waits until its peers no
// longer access its buffers, because the program may then free them.
#include "monitoring/failure_detector.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <exception>

#include "base/coarse_clock.hpp"
#include "base/log.hpp"
#include "base/wait.hpp"
#include "monitoring/call_difference.hpp"

namespace collectives {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

// Minimum time between two checks for lost peers. One waiting rank of the host makes the check for all ranks of the
// host, by one system call for each of them.
constexpr auto kCheckLostEvery = 10ms;
// Minimum time between two reads of control messages, the short texts from ranks of other hosts. A read usually costs
// one system call.
constexpr auto kCheckControlEvery = 1ms;
// Maximum time for which a rank waits, after a failure, for peers that still read or write its buffers.
constexpr auto kPatienceWithRemoteAccess = 500ms;
// Maximum time that a rank waits after a mismatch for arrival records that are missing. An arrival record holds the
// arguments of a rank's call. The error names the arguments of each rank whose record has arrived.
constexpr auto kGatherRecords = 300ms;
// Maximum time that a rank waits for the arrival record of a peer whose message belongs to another call. The peer may
// have sent the message without having written its record yet.
constexpr auto kLateRecord = 500ms;
// Maximum time of the same wait for a peer on another host. This maximum is longer, because a peer sends its records
// only while it waits in a call. The root of a broadcast, for example, does not wait, and may compute for a long time
// before its next call.
constexpr auto kLateRecordOfHost = 5s;
// Delay of the report of a mismatch for each host before the own one, so that the first host reports it for all.
constexpr auto kTurn = 300ms;
// Maximum number of these delays.
constexpr int kTurns = 2;

/// Returns how long the ranks of a host wait for the report of an earlier host. `host`: number of the host, from 0.
std::chrono::nanoseconds turn_of(int host) noexcept { return std::min(host, kTurns) * kTurn; }

}  // namespace

FailureDetector::FailureDetector(const RankView& view, Arena& arena, Wire* wire)
    : view_(view), arena_(arena), arrivals_(view, arena), failure_(arena.abort_block()) {
  if (wire != nullptr) control_.emplace(view, *wire, arrivals_, failure_);
}

// ---- failures ----

void FailureDetector::report_failure(Errc code, Rank peer, std::string_view operation, std::string_view text) noexcept {
  failure_.store(code, peer, operation, text);
}

void FailureDetector::abort(std::string_view reason) noexcept {
  const Rank self = view_.world.self;
  report_failure(Errc::aborted, self, "abort", fmt::format("aborted by rank {}: {}", self, reason));
  if (control_) control_->send_failure_from_any_thread();
}

void FailureDetector::throw_failure() {
  // The rank that writes the failure may end before the failure is complete.
  const auto failure = failure_.wait();
  if (!failure) throw Error(Errc::peer_lost, "a rank was lost while it reported a failure", view_.world.self);
  if (control_) control_->send_failure();
  // This process may end because of the error. Its other communicators must then show that the peer ended first.
  if (failure->code == Errc::peer_lost) search_ended_in_all_arenas();
  throw Error(failure->code, failure->text, view_.world.self, failure->peer, failure->operation);
}

void FailureDetector::wait_for_remote_access_end() noexcept {
  for (int local = 0; local < arena_.ranks(); ++local) {
    const auto patience = Clock::now() + kPatienceWithRemoteAccess;
    Backoff backoff;
    const RankBlock& block = arena_.block(local);
    const auto accesses = [&] {
      return block.remote_access.value.load() != 0 || block.message_access.value.load() != 0;
    };
    while (local != arena_.self() && accesses() && arena_.alive(local)) {
      if (Clock::now() < patience) {
        backoff.wait();
        continue;
      }
      log_warning(
          view_.world.self,
          "rank {} has stopped while it read or wrote buffers of this host: keep those of the failed operations "
          "until it goes on or ends",
          view_.grid.here()[static_cast<std::size_t>(local)]);
      break;
    }
  }
}

void FailureDetector::report_mismatch(const CallInfo& call, Rank peer) {
  const bool here = view_.host_of(peer) == view_.grid.host;
  report_difference(call, peer, here ? kLateRecord : kLateRecordOfHost);
}

void FailureDetector::await_turn() {
  const auto until = Clock::now() + turn_of(view_.grid.host);
  for (Backoff backoff; Clock::now() < until; backoff.wait()) check_control();
}

void FailureDetector::report_difference(const CallInfo& call, Rank peer, std::chrono::nanoseconds longest) {
  const auto begun = Clock::now();
  const std::chrono::nanoseconds turn = turn_of(view_.grid.host);
  std::optional<CallDifference> found;
  for (Backoff backoff;; backoff.wait()) {
    if (control_) control_->send_all_records();
    check_control();  // throws the text of the rank that has composed it first
    found = first_difference(arrivals_);
    const auto waited = Clock::now() - begun;
    if (!found && waited > kLateRecord) check_lost_peers(call);  // a rank that has left has sent its records before
    if (waited >= turn + (!found ? longest : found->complete ? 0ms : kGatherRecords)) break;
  }
  Mismatch mismatch;
  if (found) {
    mismatch = found->earlier ? describe_earlier_mismatch(found->records)
                              : describe_mismatch(found->records, found->unrecorded);
  } else if (peer == kNoRank) {
    mismatch.operation = call_text(call);
    mismatch.text = mismatch.operation + ": the ranks differ in an earlier call, of which no record is left";
  } else {
    mismatch.peer = peer;
    mismatch.operation = call_text(call);
    mismatch.text = fmt::format(
        "{}: data from rank {} are not those of this call; no record of rank {} shows which call it has made instead",
        mismatch.operation, peer, peer);
  }
  report_failure(Errc::mismatch, mismatch.peer, mismatch.operation, mismatch.text);
  throw_failure();
}

void FailureDetector::report_timeout(const CallInfo& call, std::chrono::nanoseconds waited) {
  const std::string op = call_text(call);
  std::vector<Rank> silent;  // ranks of other hosts
  if (control_) silent = control_->silent_of(view_.world.members);
  std::erase_if(silent, [&](Rank rank) { return arrivals_.newest_of(rank) > call.sequence; });
  report_failure(
      Errc::timeout, arrivals_.awaited_rank(call.sequence, silent), op,
      fmt::format("{}: timed out after {:.1f} s on rank {}: {}", op, std::chrono::duration<double>(waited).count(),
                  view_.world.self, arrivals_.missing_text(call.sequence, silent)));
  throw_failure();
}

void FailureDetector::report_lost(const CallInfo& call, Rank rank, std::string_view how) {
  check_control();  // Another rank may have sent the cause of this loss.
  const std::string op = call_text(call);
  report_failure(Errc::peer_lost, rank, op, fmt::format("{}: rank {} was lost: {}", op, rank, how));
  throw_failure();
}

// ---- the slow path ----

void FailureDetector::check_peers(const CallInfo& call) {
  check_control();
  check_mismatch(call);
  check_lost_peers(call);
}

void FailureDetector::check_control() {
  if (control_) control_->poll();
  check();
}

void FailureDetector::check_between_calls(std::string_view operation) {
  check_control();
  check_lost_peers({.sequence = arrivals_.arrived() + 1, .signature = {}, .operation = operation});
}

void FailureDetector::check_control_and_leave() {
  if (control_) control_->begin_leave();
  check_control();
}

void FailureDetector::check_control_throttled() {
  const auto now = coarse_now();
  if (now - control_checked_ < kCheckControlEvery) return;
  control_checked_ = now;
  check_control();
}

void FailureDetector::check_mismatch(const CallInfo& call) {
  if (arrivals_.has_difference()) report_difference(call, kNoRank, kLateRecord);
}

void FailureDetector::send_refusal() noexcept {
  if (control_) try {
      control_->send_newest_record();
    } catch (const std::exception&) {  // out of memory; the other hosts get the record when a rank of this host waits
    }
}

// ---- the end ----

std::string FailureDetector::odd_leaver_text() const {
  const std::uint64_t own = arrivals_.arrived();
  for (const Rank rank : view_.world.members) {
    if (rank == view_.world.self) continue;
    const bool here = view_.host_of(rank) == view_.grid.host;
    const bool left =
        here ? arena_.block(view_.local_of(rank)).departed.value.load(std::memory_order_acquire) == kHasLeft
             : control_->has_left(rank);
    const std::uint64_t theirs = arrivals_.newest_of(rank);
    if (!left || theirs == own) continue;
    const Rank further = theirs > own ? rank : view_.world.self, other = theirs > own ? view_.world.self : rank;
    const std::uint64_t sequence = std::min(own, theirs) + 1;
    const auto record = arrivals_.record_of(further, sequence);
    const std::string operation =
        record ? label_of(record->signature, sequence, record->details.name) : fmt::format("call #{}", sequence);
    return fmt::format("{}: rank {} made this call, rank {} left the communicator before it", operation, further,
                       other);
  }
  return {};
}

void FailureDetector::log_difference_at_end() noexcept {
  if (failure_.exists()) return;
  try {
    std::string text;
    if (!arrivals_.has_difference())
      text = odd_leaver_text();
    else if (const auto found = first_difference(arrivals_))
      text = (found->earlier ? describe_earlier_mismatch(found->records)
                             : describe_mismatch(found->records, found->unrecorded))
                 .text;
    if (!text.empty()) log_error(view_.world.self, "leaving a communicator: mismatch: {}", text);
  } catch (const std::exception&) {  // out of memory
  }
}

// ---- lost peers ----

std::uint64_t FailureDetector::completed_of(int local) const noexcept {
  return arena_.block(local).completed.value.load(std::memory_order_acquire);
}

void FailureDetector::check_lost_peers(const CallInfo& call) {
  const auto now = coarse_now();
  arrivals_.publish_heartbeat(now);
  if (now - lost_checked_ < kCheckLostEvery) return;
  lost_checked_ = now;
  const auto remote = control_ ? control_->first_lost(call.sequence) : std::nullopt;
  // A rank may have left because it has lost a rank of this host. That rank must then be found before the leaver is
  // named.
  arena_.search_ended(now, remote ? std::chrono::nanoseconds(0) : kCheckLostEvery);
  std::optional<int> first;  // local rank that ended first
  for (int local = 0; local < arena_.ranks(); ++local) {
    const std::uint64_t place = arena_.ended(local);
    // A process that ended after its rank had completed this call is no failure.
    if (place == 0 || completed_of(local) >= call.sequence) continue;
    if (!first || place < arena_.ended(*first)) first = local;
  }
  const bool left = first && arena_.block(*first).departed.value.load(std::memory_order_acquire) == kHasLeft;
  if (remote && (!first || left || !remote->left)) report_lost(call, remote->rank, remote->how);
  if (!first) return;
  report_lost(call, view_.grid.here()[static_cast<std::size_t>(*first)],
              fmt::format("{} after its call #{}", left ? "it left the communicator" : "its process ended",
                          completed_of(*first)));
}

}  // namespace collectives
