// Implementation of PeerStates, which tells point-to-point calls whether a peer has ended, has left the communicator,
// or waits. For ranks of this host, this file reads the arena, the shared memory of the host. For ranks of other hosts,
// it reads the control messages (short texts) that these ranks send.
#include "monitoring/peer_states.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <limits>

#include "base/coarse_clock.hpp"

namespace collectives {
namespace {

// Minimum time between two searches for ended ranks, because a search makes system calls. Collectives use the same time
// (kCheckLostEvery).
constexpr std::chrono::milliseconds kSearchEvery{10};

}  // namespace

void PeerStates::look_for_ends() {
  if (detector_.control_) detector_.control_->note_lost();
  const auto now = coarse_now();
  detector_.arrivals_.publish_heartbeat(now);
  detector_.arena_.search_ended(now, kSearchEvery);
}

std::string PeerStates::end_of(Rank rank) const {
  if (!is_here(rank)) return detector_.control_->end_of(rank);
  if (has_left(rank)) return "it left the communicator";
  return detector_.arena_.ended(detector_.view_.local_of(rank)) != 0 ? "its process ended" : "";
}

bool PeerStates::has_left(Rank rank) const noexcept {
  return is_here(rank) ? block_of(rank).departed.value.load(std::memory_order_acquire) == kHasLeft
                       : detector_.control_->has_left(rank);
}

std::string PeerStates::current_call_of(Rank rank) const {
  if (!is_here(rank)) return {};
  const ArrivalTable& arrivals = detector_.arrivals_;
  const std::uint64_t newest = arrivals.newest_of(rank);
  if (newest == 0 || block_of(rank).completed.value.load(std::memory_order_acquire) >= newest) return {};
  const auto record = arrivals.record_of(rank, newest);
  return record ? label_of(record->signature, newest, record->details.name) : fmt::format("call #{}", newest);
}

void PeerStates::publish_wait(const MessageWait& wait, bool to_hosts) {
  detector_.arrivals_.publish_heartbeat(coarse_now());
  block_of(detector_.view_.world.self).message_wait.value.store(wait.word(), std::memory_order_release);
  if (detector_.control_ && to_hosts) detector_.control_->send_wait(wait.word());
}

std::vector<Rank> PeerStates::silent_of(const std::vector<Rank>& ranks, bool controls) {
  std::vector<Rank> silent;
  if (detector_.control_ && controls) silent = detector_.control_->silent_of(ranks);
  for (const Rank rank : detector_.arrivals_.silent_ranks(std::numeric_limits<std::uint64_t>::max()))
    if (std::ranges::count(ranks, rank) != 0) silent.push_back(rank);
  std::ranges::sort(silent);
  return silent;
}

MessageWait PeerStates::wait_of(Rank rank) const noexcept {
  if (is_here(rank)) return MessageWait::of(block_of(rank).message_wait.value.load(std::memory_order_acquire));
  return MessageWait::of(detector_.control_->wait_of(rank));
}

}  // namespace collectives
