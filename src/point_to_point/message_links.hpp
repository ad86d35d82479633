// Message links: the links of this rank to all ranks, itself included. The class also keeps answers for which a link
// has no space.
//
// A message of a rank to itself passes through the arena, the shared memory of the host, like a message to another rank
// of the host.
//
// An answer is an envelope that the receiver of a message sends back. A link sends answers before other envelopes,
// because peers wait for them.
#pragma once

#include <atomic>
#include <cstddef>
#include <memory>
#include <vector>

#include "collectives/deadline.hpp"
#include "collectives/transport.hpp"
#include "point_to_point/envelope.hpp"
#include "point_to_point/host_link.hpp"
#include "point_to_point/message_link.hpp"
#include "shared_memory/arena.hpp"
#include "steps/algorithm.hpp"

namespace collectives {

class MessageLinks {
 public:
  /// Link to one rank.
  struct End {
    std::unique_ptr<MessageLink> link;
    HostLink* host = nullptr;       ///< the same link as `link` if the rank is on this host, else null
    int local = 0;                  ///< number of the rank on its host
    bool lost = false;              ///< whether the rank, on another host, is known to have ended or left
    std::vector<Envelope> answers;  ///< answers for which the link had no space

    /// Returns whether the rank has left or is known to have ended.
    bool has_ended() const noexcept { return host != nullptr ? host->peer_has_ended() : lost; }
  };

  /// `wire`: transport of point-to-point messages between hosts; null if there is only one host.
  MessageLinks(const RankView& view, const Arena& arena, Wire* wire);

  const End& operator[](Rank rank) const noexcept { return ends_[static_cast<std::size_t>(rank)]; }
  /// Sends an answer, or keeps it until there is space.
  void answer(Rank to, const Envelope& envelope);
  /// Sends kept answers. Returns whether none is left.
  bool send_answers(Rank to) { return end(to).answers.empty() || send_kept(end(to)); }
  /// Notes that another host's rank has ended or left.
  void note_lost(Rank rank) noexcept { end(rank).lost = true; }
  /// Drops all kept answers.
  void forget_answers() noexcept;

  /// Progresses the wire.
  void progress_wire() {
    if (wire_ != nullptr) wire_->progress();
  }
  /// Stores whether the wire has messages that it has not sent yet.
  void note_wire() noexcept {
    if (wire_ != nullptr) wire_sends_.store(wire_->sending(), std::memory_order_release);
  }
  /// Returns whether no answer is kept, and the wire had sent all messages at the last note_wire(). Any thread may call
  /// it.
  bool is_idle() const noexcept {
    return kept_.load(std::memory_order_acquire) == 0 && !wire_sends_.load(std::memory_order_acquire);
  }
  /// Returns the wire if a message from or to `rank` takes it, else null.
  Wire* wire_to(Rank rank) const noexcept { return rank >= 0 && (*this)[rank].host == nullptr ? wire_ : nullptr; }
  /// Gives up all messages of the wire, after a failure.
  void abandon() noexcept;
  /// Blocks until the wire has sent its messages, at most until `patience`. Throws the errors of the wire.
  void flush(Deadline patience) {
    if (wire_ != nullptr) wire_->flush(patience);
  }

 private:
  End& end(Rank rank) noexcept { return ends_[static_cast<std::size_t>(rank)]; }
  bool send_kept(End& to);

  Wire* const wire_;
  std::vector<End> ends_;                // by rank
  std::atomic<std::size_t> kept_{0};     // kept answers of all links
  std::atomic<bool> wire_sends_{false};  // whether the wire needs further calls of progress_wire()
};

}  // namespace collectives
