// Functions of FailureDetector, which finds lost peers, calls with different arguments, and passed deadlines. They make
// the checks of a waiting rank, report failures, and wait after a failure.
#include "monitoring/failure_detector.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "base/coarse_clock.hpp"
#include "base/log.hpp"
#include "base/wait.hpp"

namespace collectives {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

// Minimum time between two checks for lost peers. One rank of the host makes one system call per rank for each check.
constexpr auto kCheckLostEvery = 10ms;
// Minimum time between two reads of control messages by check_control_throttled(). Ranks of other hosts send control
// messages. A read usually costs one system call.
constexpr auto kCheckControlEvery = 1ms;
// Longest wait, after a failure, for a rank that reads or writes buffers of its peers.
constexpr auto kPatienceWithRemoteAccess = 500ms;
// Longest time for which a rank that has found a mismatch waits for arrival records. An arrival record holds the number
// and the arguments of the call that a rank has entered. The error names the arguments of each rank whose record has
// arrived.
constexpr auto kGatherRecords = 50ms;
// Longest wait for the arrival record of a peer whose data had the tag of another call. The peer may have lost its core
// before it wrote the record.
constexpr auto kLateRecord = 500ms;
// Time that replaces kGatherRecords if there are several hosts, because hosts have to send their records to one
// another.
constexpr auto kGatherRemoteRecords = 500ms;

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
  throw Error(failure->code, failure->text, view_.world.self, failure->peer, failure->operation);
}

void FailureDetector::wait_for_remote_access_end() noexcept {
  for (int local = 0; local < arena_.ranks(); ++local) {
    const auto patience = Clock::now() + kPatienceWithRemoteAccess;
    Backoff backoff;
    while (local != arena_.self() && arena_.block(local).remote_access.value.load() != 0 && arena_.alive(local)) {
      if (Clock::now() < patience) {
        backoff.wait();
        continue;
      }
      log_warning(view_.world.self,
                  "rank {} has stopped while it read or wrote this rank's buffers: keep those of the failed operations "
                  "until it goes on or ends",
                  view_.grid.here()[static_cast<std::size_t>(local)]);
      break;
    }
  }
}

void FailureDetector::report_mismatch(const CallInfo& call, Rank peer) {
  // The peer's data had the tag of another call. The peer writes its arrival record right after it has sent the data.
  // Further ranks may write theirs within microseconds. The error is more useful if it names the arguments of these
  // ranks.
  if (control_) control_->send_records_at_once();
  const auto begun = Clock::now(), patience = begun + gathering_time(), latest = begun + kLateRecord;
  const auto peer_is_late = [&] { return Clock::now() < latest && !arrivals_.has_arrived(peer, call.sequence); };
  for (Backoff backoff; Clock::now() < patience || peer_is_late(); backoff.wait()) {
    check_control();
    check_mismatch(call);  // Throws once the records show the arguments of each rank.
  }
  const std::string op = call_text(call);
  report_failure(
      Errc::mismatch, peer, op,
      fmt::format("{}: rank {} is at another call: the ranks do not issue the same operations in the same order", op,
                  peer));
  throw_failure();
}

void FailureDetector::report_timeout(const CallInfo& call, std::chrono::nanoseconds waited) {
  const std::string op = call_text(call);
  report_failure(
      Errc::timeout, arrivals_.awaited_rank(call.sequence), op,
      fmt::format("{}: timed out after {:.1f} s on rank {}: {}", op, std::chrono::duration<double>(waited).count(),
                  view_.world.self, arrivals_.missing_text(call.sequence)));
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

std::chrono::nanoseconds FailureDetector::gathering_time() const noexcept {
  return control_ ? kGatherRemoteRecords : kGatherRecords;
}

void FailureDetector::check_mismatch(const CallInfo& call) {
  const std::uint64_t mine = make_tag(call.sequence, call.signature);
  const auto disagrees = [&](Rank rank) {
    if (rank == view_.world.self) return false;
    const auto signature = arrivals_.signature_of(rank, call.sequence);
    return signature && make_tag(call.sequence, *signature) != mine;
  };
  const auto odd = std::find_if(view_.world.members.begin(), view_.world.members.end(), disagrees);
  if (odd == view_.world.members.end()) return;
  // Waits for the records of late ranks, so that the error can name the arguments of each rank. The error names the
  // rank with the rarest signature as the cause.
  if (control_) control_->send_records_at_once();
  std::vector<Arrived> ranks = arrivals_.records(call);
  const auto patience = Clock::now() + gathering_time();
  for (Backoff backoff; ranks.size() < view_.world.members.size() && Clock::now() < patience; backoff.wait()) {
    check_control();
    ranks = arrivals_.records(call);
  }
  const std::string op = call_text(call);
  const auto alike = [&](const Arrived& one) {
    return std::count_if(ranks.begin(), ranks.end(), [&](const Arrived& other) {
      return make_tag(0, one.signature) == make_tag(0, other.signature);
    });
  };
  const auto rarest = std::min_element(ranks.begin(), ranks.end(),
                                       [&](const Arrived& a, const Arrived& b) { return alike(a) < alike(b); });
  report_failure(Errc::mismatch, rarest->rank, op, fmt::format("{}: {}", op, describe_mismatch(ranks)));
  throw_failure();
}

void FailureDetector::check_lost_peers(const CallInfo& call) {
  const auto now = coarse_now();
  arrivals_.publish_heartbeat(now);
  if (now - lost_checked_ < kCheckLostEvery) return;
  lost_checked_ = now;
  if (control_)
    if (const auto lost = control_->first_lost(call.sequence)) report_lost(call, lost->rank, lost->how);
  arena_.search_ended(now, kCheckLostEvery);
  const Peers here = view_.grid.here();
  for (int local = 0; local < arena_.ranks(); ++local) {
    if (!arena_.ended(local)) continue;
    const RankBlock& block = arena_.block(local);
    // A process that ended after its rank had completed this call is no failure.
    if (block.completed.value.load(std::memory_order_acquire) >= call.sequence) continue;
    const bool left = block.departed.value.load(std::memory_order_acquire) != 0;
    report_lost(call, here[static_cast<std::size_t>(local)],
                fmt::format("{} after its call #{}", left ? "it left the communicator" : "its process ended",
                            block.completed.value.load(std::memory_order_acquire)));
  }
}

}  // namespace collectives
