// Implementation of the failure detector: who has arrived, the reports of failures, the checks of a wait, and control
// messages between hosts.
//
// An arrival record holds the number of a call and its signature. A rank writes the record into the arena, the shared
// memory of its host. The abort block of the arena holds the first failure. A heartbeat is the time at which a waiting
// rank last checked its peers.
#include "monitoring/failure_detector.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cinttypes>
#include <cstdio>
#include <cstring>
#include <sstream>

#include "base/coarse_clock.hpp"
#include "base/log.hpp"
#include "base/text.hpp"
#include "base/wait.hpp"

namespace collectives {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

constexpr auto kCheckLostEvery = 10ms;             // Costs one system call per peer.
constexpr auto kCheckControlEvery = 1ms;           // Costs one system call.
constexpr auto kSilent = 200ms;                    // Age of a heartbeat that counts as silence.
constexpr auto kPatienceWithRemoteAccess = 500ms;  // Longest wait for a rank that works in buffers of peers.
constexpr auto kSendRecordAfter = 100ms;  // Age of a call at which a waiting rank sends its records to other hosts.
constexpr auto kGatherRecords = 50ms;     // Wait for the records of late ranks after a mismatch.
// Longest wait for the record of a peer whose data has arrived. The peer may have lost its core before it wrote the
// record.
constexpr auto kLateRecord = 500ms;
constexpr auto kGatherRemoteRecords = 500ms;  // Wait for records of other hosts, which have to send them.

/// Copies text and cuts it to the given space. Replaces control characters by spaces, so that the text stays on one
/// line.
void copy_text(char* to, std::size_t space, std::string_view text) {
  const std::string_view all = text.substr(0, space - 1);
  char* const end = std::ranges::transform(all, to, [](char c) { return is_control(c) ? ' ' : c; }).out;
  *end = '\0';
}

}  // namespace

FailureDetector::FailureDetector(const RankView& view, Arena& arena, Wire* wire)
    : view_(view), arena_(arena), mine_(arena.block(arena.self())), wire_(wire), remote_(view.world.members.size()) {}

std::string FailureDetector::operation(const CallInfo& call) {
  if (!call.operation.empty()) return std::string(call.operation);
  std::string text = fmt::format("{} #{}", to_string(call.signature.collective), call.sequence);
  if (!call.name.empty()) text += fmt::format(" ({})", call.name);
  return text;
}

void FailureDetector::set_waiting_for_gpu(bool waits) noexcept {
  mine_.waiting_for_gpu.value.store(waits ? mine_.arrived.value.load(std::memory_order_relaxed) : 0,
                                    std::memory_order_relaxed);
}

bool FailureDetector::record_of(int local, std::uint64_t sequence, Signature& signature) const {
  const ArrivalRecord& record = arena_.block(local).records[sequence % kRecords];
  if (record.sequence.load(std::memory_order_acquire) != sequence) return false;
  SignatureWords words;
  for (std::size_t w = 0; w < words.size(); ++w) words[w] = record.words[w].load(std::memory_order_acquire);
  if (record.sequence.load(std::memory_order_relaxed) != sequence) return false;
  signature = unpack(words);
  return true;
}

FailureDetector::Standing FailureDetector::standing(Rank rank, std::uint64_t sequence, Signature& signature) const {
  if (view_.host_of(rank) == view_.grid.host) {
    const int local = view_.local_of(rank);
    if (record_of(local, sequence, signature)) return Standing::here;
    const std::uint64_t at = arena_.block(local).arrived.value.load(std::memory_order_acquire);
    return at > sequence ? Standing::passed : Standing::not_arrived;
  }
  const Remote& remote = remote_[static_cast<std::size_t>(rank)];
  signature = remote.signature;
  return remote.sequence == sequence  ? Standing::here
         : remote.sequence > sequence ? Standing::passed
                                      : Standing::not_arrived;
}

std::vector<Arrived> FailureDetector::arrived(const CallInfo& call) const {
  std::vector<Arrived> ranks;
  for (const Rank rank : view_.world.members) {
    Signature signature;
    if (standing(rank, call.sequence, signature) == Standing::here || rank == view_.world.self)
      ranks.push_back({rank, rank == view_.world.self ? call.signature : signature});
  }
  return ranks;
}

std::vector<Rank> FailureDetector::missing(const CallInfo& call) const {
  std::vector<Rank> missing;
  for (const Rank rank : view_.world.members) {
    Signature signature;
    if (rank != view_.world.self && standing(rank, call.sequence, signature) == Standing::not_arrived)
      missing.push_back(rank);
  }
  return missing;
}

std::vector<Rank> FailureDetector::silent_ranks(const CallInfo& call) const {
  std::vector<Rank> silent;
  const auto now = coarse_now();
  const Peers here = view_.grid.here();
  for (int local = 0; local < arena_.ranks(); ++local) {
    const RankBlock& block = arena_.block(local);
    const std::chrono::nanoseconds heartbeat(block.heartbeat.value.load(std::memory_order_relaxed));
    if (local != arena_.self() && now - heartbeat > kSilent &&
        block.completed.value.load(std::memory_order_acquire) < call.sequence)
      silent.push_back(here[static_cast<std::size_t>(local)]);
  }
  return silent;
}

std::vector<Rank> FailureDetector::ranks_waiting_for_gpu(const CallInfo& call) const {
  std::vector<Rank> ranks;
  for (int local = 0; local < arena_.ranks(); ++local) {
    const RankBlock& block = arena_.block(local);
    if (block.waiting_for_gpu.value.load(std::memory_order_relaxed) == call.sequence &&
        block.completed.value.load(std::memory_order_acquire) < call.sequence)
      ranks.push_back(view_.grid.here()[static_cast<std::size_t>(local)]);
  }
  return ranks;
}

std::string FailureDetector::missing_text(const CallInfo& call) const {
  const auto have = [](const std::vector<Rank>& ranks) {
    return fmt::format("{} {}", ranks_text(ranks), ranks.size() == 1 ? "has" : "have");
  };
  const std::vector<Rank> absent = missing(call), silent = silent_ranks(call);
  if (absent.empty()) {
    const std::vector<Rank> waiting_for_gpu = ranks_waiting_for_gpu(call);
    const std::string but =
        !silent.empty()               ? ", but " + have(silent) + " stopped there"
        : waiting_for_gpu.size() == 1 ? ", but the GPU of " + have(waiting_for_gpu) + " not done its part"
        : !waiting_for_gpu.empty()    ? ", but the GPUs of " + have(waiting_for_gpu) + " not done their part"
                                      : "";
    return "all ranks have arrived" + but;
  }
  std::string text = have(absent) + " not arrived";
  if (!silent.empty() && silent != absent) text += "; no sign of life from " + ranks_text(silent);
  return text;
}

Missing FailureDetector::first_missing(const CallInfo& call) const {
  Missing missing;
  for (const Rank rank : view_.world.members) {
    Signature signature;
    if (rank == view_.world.self || standing(rank, call.sequence, signature) != Standing::not_arrived) continue;
    if (missing.ranks++ == 0) missing.first = rank;
  }
  return missing;
}

std::string FailureDetector::progress_text() const {
  std::vector<std::pair<std::string, std::vector<Rank>>> places;
  for (int local = 0; local < arena_.ranks(); ++local) {
    const RankBlock& block = arena_.block(local);
    const std::uint64_t at = block.arrived.value.load(std::memory_order_acquire);
    const bool inside = block.completed.value.load(std::memory_order_acquire) < at;
    Signature signature;
    const bool known = record_of(local, at, signature);
    const std::string place = at == 0 ? "in no call yet"
                                      : fmt::format("{} {} #{}", inside ? "in" : "after",
                                                    known ? to_string(signature.collective) : "call", at);
    auto found = std::ranges::find(places, place, &std::pair<std::string, std::vector<Rank>>::first);
    if (found == places.end()) found = places.insert(found, {place, {}});
    found->second.push_back(view_.grid.here()[static_cast<std::size_t>(local)]);
  }
  std::vector<std::string> parts;
  for (const auto& [place, ranks] : places) parts.push_back(fmt::format("{} {}", ranks_text(ranks), place));
  return fmt::format("{}", fmt::join(parts, "; "));
}

// ---- failures ----

void FailureDetector::report_failure(Errc code, Rank peer, std::string_view operation, std::string_view text) noexcept {
  AbortBlock& block = arena_.abort_block();
  std::uint32_t none = 0;
  if (!block.state.compare_exchange_strong(none, 1)) return;
  block.code = static_cast<std::uint32_t>(code);
  block.peer = peer;
  copy_text(block.operation, sizeof block.operation, operation);
  copy_text(block.text, sizeof block.text, text);
  block.state.store(2, std::memory_order_release);
}

void FailureDetector::abort(std::string_view reason) noexcept {
  const Rank self = view_.world.self;
  report_failure(Errc::aborted, self, "abort", fmt::format("aborted by rank {}: {}", self, reason));
  if (wire_ != nullptr && wire_->control_is_thread_safe()) send_failure();
}

void FailureDetector::throw_failure() {
  AbortBlock& block = arena_.abort_block();
  // The rank that writes the failure needs microseconds, unless its process ends in between.
  const auto patience = Clock::now() + 100ms;
  for (Backoff backoff; block.state.load(std::memory_order_acquire) == 1 && Clock::now() < patience;) backoff.wait();
  if (block.state.load(std::memory_order_acquire) != 2)
    throw Error(Errc::peer_lost, "a rank was lost while it reported a failure", view_.world.self);
  if (wire_ != nullptr) send_failure();
  throw Error(static_cast<Errc>(block.code), block.text, view_.world.self, block.peer, block.operation);
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
  // The peer writes its record right after the data that had the wrong tag. Records of further ranks may follow within
  // microseconds. The error is better if it can name them.
  arrived_at_ = {};  // Makes send_records() send this rank's record at once.
  const auto begun = Clock::now(), patience = begun + gathering_time(), latest = begun + kLateRecord;
  const auto peer_is_late = [&] {
    Signature signature;
    return Clock::now() < latest && standing(peer, call.sequence, signature) == Standing::not_arrived;
  };
  for (Backoff backoff; Clock::now() < patience || peer_is_late(); backoff.wait()) {
    check_control();
    check_mismatch(call);  // Throws once the records show the arguments of each rank.
  }
  const std::string op = operation(call);
  report_failure(
      Errc::mismatch, peer, op,
      fmt::format("{}: rank {} is at another call: the ranks do not issue the same operations in the same order", op,
                  peer));
  throw_failure();
}

void FailureDetector::report_timeout(const CallInfo& call, std::chrono::nanoseconds waited) {
  const std::string op = operation(call);
  // A missing rank with a heartbeat is in an earlier call. It waits there for a rank without a heartbeat. The
  // error therefore names the rank whose heartbeat is oldest.
  const std::vector<Rank> absent = missing(call), silent = silent_ranks(call);
  const auto longest_silent = std::ranges::min_element(silent, {}, [this](Rank rank) {
    return arena_.block(view_.local_of(rank)).heartbeat.value.load(std::memory_order_relaxed);
  });
  const std::vector<Rank> waiting_for_gpu = ranks_waiting_for_gpu(call);
  const Rank peer = longest_silent != silent.end() ? *longest_silent
                    : !absent.empty()              ? absent.front()
                    : !waiting_for_gpu.empty()     ? waiting_for_gpu.front()
                                                   : kNoRank;
  report_failure(Errc::timeout, peer, op,
                 fmt::format("{}: timed out after {:.1f} s on rank {}: {}", op,
                             std::chrono::duration<double>(waited).count(), view_.world.self, missing_text(call)));
  throw_failure();
}

// ---- the slow path ----

void FailureDetector::check_peers(const CallInfo& call) {
  if (wire_ != nullptr) poll_control();
  check();
  check_mismatch(call);
  check_lost_peers(call);
}

void FailureDetector::check_control() {
  if (wire_ != nullptr) poll_control();
  check();
}

void FailureDetector::announce_leave() noexcept {
  if (wire_->detects_peer_failure())
    send_to_hosts(fmt::format("L {}", arena_.block(arena_.self()).completed.value.load(std::memory_order_relaxed)));
}

void FailureDetector::check_lost_peers_on_other_hosts(const CallInfo& call) {
  while (const auto lost = wire_->poll_failed_peer())
    remote_[static_cast<std::size_t>(lost->first)].gone = lost->second;
  for (const Rank rank : view_.world.members) {
    const Remote& remote = remote_[static_cast<std::size_t>(rank)];
    // A rank that has completed this call before it left is no failure, unless the wire waits for its data.
    const bool done = remote.left && remote.completed >= call.sequence && !wire_->is_blocked_on_failed_peer(rank);
    if (remote.gone.empty() || done) continue;
    const std::string op = operation(call);
    report_failure(Errc::peer_lost, rank, op,
                   remote.left
                       ? fmt::format("{}: rank {} was lost: it left the communicator after its call #{}", op, rank,
                                     remote.completed)
                       : fmt::format("{}: rank {} was lost: its process or host is gone ({})", op, rank, remote.gone));
    throw_failure();
  }
}

void FailureDetector::check_control_throttled() {
  const auto now = coarse_now();
  if (now - control_checked_ < kCheckControlEvery) return;
  control_checked_ = now;
  check_control();
}

std::chrono::nanoseconds FailureDetector::gathering_time() const noexcept {
  return wire_ == nullptr ? kGatherRecords : kGatherRemoteRecords;
}

void FailureDetector::check_mismatch(const CallInfo& call) {
  const std::uint64_t mine = make_tag(call.sequence, call.signature);
  const auto disagrees = [&](Rank rank) {
    Signature signature;
    return rank != view_.world.self && standing(rank, call.sequence, signature) == Standing::here &&
           make_tag(call.sequence, signature) != mine;
  };
  const auto odd = std::find_if(view_.world.members.begin(), view_.world.members.end(), disagrees);
  if (odd == view_.world.members.end()) return;
  // Waits for the records of late ranks, so that the error can name the arguments of each rank. The error blames the
  // rank with the rarest signature.
  arrived_at_ = {};
  std::vector<Arrived> ranks = arrived(call);
  const auto patience = Clock::now() + gathering_time();
  for (Backoff backoff; ranks.size() < view_.world.members.size() && Clock::now() < patience; backoff.wait()) {
    check_control();
    ranks = arrived(call);
  }
  const std::string op = operation(call);
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
  arena_.block(arena_.self()).heartbeat.value.store(static_cast<std::uint64_t>(now.count()), std::memory_order_relaxed);
  if (now - lost_checked_ < kCheckLostEvery) return;
  lost_checked_ = now;
  if (wire_ != nullptr) check_lost_peers_on_other_hosts(call);
  const Peers here = view_.grid.here();
  for (int local = 0; local < arena_.ranks(); ++local) {
    if (arena_.alive(local)) continue;
    RankBlock& block = arena_.block(local);
    // A rank that has completed this call before its process ended is no failure.
    if (block.completed.value.load(std::memory_order_acquire) >= call.sequence) continue;
    const Rank rank = here[static_cast<std::size_t>(local)];
    const std::string op = operation(call);
    const bool left = block.departed.value.load(std::memory_order_acquire) != 0;
    report_failure(Errc::peer_lost, rank, op,
                   fmt::format("{}: rank {} was lost: {} after its call #{}", op, rank,
                               left ? "it left the communicator" : "its process ended",
                               block.completed.value.load(std::memory_order_acquire)));
    throw_failure();
  }
}

// ---- between hosts ----

void FailureDetector::send_failure() noexcept {
  const AbortBlock& block = arena_.abort_block();
  if (block.state.load(std::memory_order_acquire) != 2 || failure_sent_.exchange(true)) return;
  send_to_hosts(fmt::format("A {} {}\n{}\n{}", block.code, block.peer, block.operation, block.text));
}

void FailureDetector::send_to_hosts(std::string_view text) noexcept {
  for (const Rank rank : view_.world.members)
    if (view_.host_of(rank) != view_.grid.host) try {
        wire_->post_control(rank, text);
      } catch (const std::exception&) {  // This rank throws the failure in any case.
      }
}

void FailureDetector::poll_control() {
  while (const auto message = wire_->poll_control()) {
    const auto& [from, text] = *message;
    if (text.starts_with("A ")) {
      unsigned code = 0;
      int peer = kNoRank, read = 0;
      std::sscanf(text.c_str(), "A %u %d\n%n", &code, &peer, &read);
      const std::size_t line = text.find('\n', static_cast<std::size_t>(read));
      if (read == 0 || line == std::string::npos) continue;
      failure_sent_ = true;  // The reporting rank sends it to all hosts.
      report_failure(
          static_cast<Errc>(code), peer,
          std::string_view(text).substr(static_cast<std::size_t>(read), line - static_cast<std::size_t>(read)),
          std::string_view(text).substr(line + 1));
    } else if (text.starts_with("R ")) {
      std::istringstream words(text.substr(2));
      std::uint64_t sequence = 0, rank = 0;
      SignatureWords w{};
      words >> sequence;
      const auto read_record = [&] {
        words >> rank;
        for (std::uint64_t& word : w) words >> word;
        return static_cast<bool>(words);
      };
      while (read_record())
        if (rank < remote_.size() && sequence >= remote_[rank].sequence) {
          remote_[rank].sequence = sequence;
          remote_[rank].signature = unpack(w);
        }
    } else if (text.starts_with("L ")) {
      Remote& leaver = remote_[static_cast<std::size_t>(from)];
      leaver.left = std::sscanf(text.c_str(), "L %" SCNu64, &leaver.completed) == 1;
    }
  }
  send_records();
}

void FailureDetector::send_records() {
  // A call that lasts 100 ms sends the records of this host's ranks to the other hosts, once per call. They compare
  // the signatures and know the missing ranks. Ranks that enter the call later send the records themselves.
  // Ranks that have already left the call cannot. A rank that leaves the communicator sends no records over a wire that
  // does not detect failed peers. The wire over MPI is one: MPI must not be given a message for a rank that has ended.
  const std::uint64_t sequence = arena_.block(arena_.self()).arrived.value.load(std::memory_order_relaxed);
  if (sequence == record_sent_ || Clock::now() - arrived_at_ < kSendRecordAfter) return;
  if (leaving_ && !wire_->detects_peer_failure()) return;
  record_sent_ = sequence;
  std::string text = fmt::format("R {}", sequence);
  const Peers here = view_.grid.here();
  for (int local = 0; local < arena_.ranks(); ++local) {
    Signature signature;
    if (record_of(local, sequence, signature))
      text += fmt::format(" {} {}", here[static_cast<std::size_t>(local)], fmt::join(pack(signature), " "));
  }
  send_to_hosts(text);
}

}  // namespace collectives
