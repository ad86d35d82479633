// Implementation of ControlProtocol, by which a rank reports to ranks of other hosts. It reports the calls that it has
// entered, its failure, and that it leaves. The reports are control messages, short texts that are sent separately from
// the data of calls. This file also stores the contents of received control messages.
#include "monitoring/control_protocol.hpp"

#include <fmt/format.h>

#include <exception>
#include <new>
#include <utility>
#include <variant>

#include "base/coarse_clock.hpp"
#include "base/wait.hpp"

namespace collectives {
namespace {

using namespace std::chrono_literals;

// Time for which a rank waits in a call before it sends its arrival records to other hosts. An arrival record holds the
// number and the arguments of a call that a rank has entered.
constexpr auto kSendRecordsAfter = 100ms;

}  // namespace

ControlProtocol::ControlProtocol(const RankView& view, Wire& wire, ArrivalTable& arrivals, FirstFailure& failure)
    : view_(view),
      wire_(wire),
      arrivals_(arrivals),
      failure_(failure),
      ends_(view.world.members.size()),
      member_messages_(view.world.members.size()) {}

void ControlProtocol::poll() {
  while (const auto message = wire_.poll_control()) receive(message->first, message->second);
  send_records();
}

void ControlProtocol::receive(Rank from, std::string_view bytes) {
  ControlMessage message = decode_control_message(bytes);
  if (const auto* const abort = std::get_if<AbortMessage>(&message)) {
    // This rank has received a failure. It also sends the failure to other hosts, because the message of the first
    // sender may not reach all hosts. If the wire cannot detect failed peers, this rank sends nothing, because a peer
    // may already have ended.
    if (!wire_.detects_peer_failure()) failure_sent_ = true;
    Failure failure = abort->failure;
    if (failure.peer >= view_.world.size()) failure.peer = kNoRank;
    failure_.store(failure.code, failure.peer, failure.operation, failure.text);
  } else if (auto* const arrival = std::get_if<ArrivalMessage>(&message)) {
    arrivals_.add_records(std::move(arrival->records));
  } else if (auto* const leave = std::get_if<LeaveMessage>(&message)) {
    arrivals_.add_records(std::move(leave->records));
    End& leaver = ends_[static_cast<std::size_t>(from)];
    leaver.left = true;
    leaver.completed = leave->completed;
  } else if (const auto* const wait = std::get_if<WaitMessage>(&message)) {
    ends_[static_cast<std::size_t>(from)].wait = wait->word;
  } else if (const auto* const ping = std::get_if<PingMessage>(&message)) {
    if (ping->is_echo)
      ends_[static_cast<std::size_t>(from)].echo = ping->number;
    else if (may_send_records())
      post(from, PingMessage{ping->number, true}.encode());
  } else if (auto* const member = std::get_if<MemberMessage>(&message)) {
    std::vector<MemberMessage>& messages = member_messages(from);
    if (messages.size() == kMostMemberMessages) messages.erase(messages.begin());
    messages.push_back(std::move(*member));
  }
}

void ControlProtocol::send_records() {
  const std::uint64_t sequence = arrivals_.arrived();
  if (sequence == records_sent_ || std::chrono::steady_clock::now() - call_begun_ < kSendRecordsAfter) return;
  if (!may_send_records()) return;
  records_sent_ = sequence;
  send_to_hosts(ArrivalMessage{arrivals_.records_of_host(1)}.encode());
}

void ControlProtocol::send_all_records() {
  const std::uint64_t sequence = arrivals_.arrived();
  if (sequence == all_records_sent_ || !may_send_records()) return;
  records_sent_ = all_records_sent_ = sequence;
  send_to_hosts(ArrivalMessage{arrivals_.records_of_host(kRecords)}.encode());
}

void ControlProtocol::send_newest_record() {
  if (may_send_records()) send_to_hosts(ArrivalMessage{arrivals_.own_records(1)}.encode());
}

void ControlProtocol::send_failure() noexcept {
  auto failure = failure_.read();
  if (!failure || failure_sent_.exchange(true)) return;
  send_to_hosts(AbortMessage{*std::move(failure)}.encode());
}

void ControlProtocol::announce_leave() noexcept {
  if (!wire_.detects_peer_failure()) return;
  try {
    send_to_hosts(LeaveMessage{arrivals_.completed(), arrivals_.own_records(kRecords)}.encode());
  } catch (const std::bad_alloc&) {
    send_to_hosts("L 0");
  }
}

void ControlProtocol::send_to_hosts(const std::string& bytes) noexcept {
  for (const Rank rank : view_.world.members)
    if (view_.host_of(rank) != view_.grid.host) post(rank, bytes);
}

void ControlProtocol::post(Rank to, const std::string& bytes) noexcept {
  try {
    wire_.post_control(to, bytes);
  } catch (const std::exception&) {  // Ignored: if the wire has failed, it reports the failure itself.
  }
}

void ControlProtocol::send_wait(std::uint64_t word) {
  if (may_send_records()) send_to_hosts(WaitMessage{word}.encode());
}

std::vector<Rank> ControlProtocol::silent_of(Peers ranks) {
  std::vector<Rank> silent;
  const std::uint64_t number = ++pings_;
  for (const Rank rank : ranks) {
    if (view_.host_of(rank) == view_.grid.host || !end_of(rank).empty()) continue;
    silent.push_back(rank);
    if (may_send_records()) post(rank, PingMessage{number}.encode());
  }
  const auto until = std::chrono::steady_clock::now() + kLongestEcho;
  for (Backoff backoff; !silent.empty() && std::chrono::steady_clock::now() < until; backoff.wait()) {
    poll();
    if (failure_.exists()) break;
    arrivals_.publish_heartbeat(coarse_now());  // so that ranks of this host do not count this rank as stopped
    std::erase_if(silent, [&](Rank rank) { return ends_[static_cast<std::size_t>(rank)].echo >= number; });
  }
  return silent;
}

void ControlProtocol::note_lost() {
  while (auto lost = wire_.poll_failed_peer()) {
    ends_[static_cast<std::size_t>(lost->first)].cause = std::move(lost->second);
    lost_.push_back(lost->first);
  }
}

std::string ControlProtocol::end_of(Rank rank) const {
  const End& end = ends_[static_cast<std::size_t>(rank)];
  if (end.left) return fmt::format("it left the communicator after its call #{}", end.completed);
  return end.cause.empty() ? std::string() : fmt::format("its process or host is gone ({})", end.cause);
}

std::optional<ControlProtocol::LostRank> ControlProtocol::first_lost(std::uint64_t sequence) {
  note_lost();
  std::optional<LostRank> leaver;
  for (const Rank rank : lost_) {
    const End& end = ends_[static_cast<std::size_t>(rank)];
    if (!end.left) return LostRank{rank, end_of(rank), false};
    const bool done = end.completed >= sequence && !wire_.is_blocked_on_failed_peer(rank);
    if (!done && !leaver) leaver = LostRank{rank, end_of(rank), true};
  }
  return leaver;
}

}  // namespace collectives
