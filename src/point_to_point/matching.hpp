// Matching: finds the receive for an arrived message, and the stored message for a new receive.
//
// A receive takes the first message with its tag from its source. A receive that accepts any source takes the first
// message with its tag from all sources. If several receives match a message, the receive that was started first takes
// it.
//
// A posted receive waits for a message. A stored message has arrived and waits for a receive. After a receive has taken
// a stored message, the memory of the message is kept for later messages.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "point_to_point/envelope.hpp"
#include "point_to_point/message_operation.hpp"

namespace collectives {

/// Message that has arrived before its receive.
struct StoredMessage {
  Envelope envelope;
  Rank from = kNoRank;
  std::uint64_t order = 0;         ///< place in the order of arrival
  std::vector<std::byte> payload;  ///< payload of an eager message, at its begin
  ListLink<StoredMessage> link;
};

class Matching {
 public:
  explicit Matching(int ranks) : posted_(static_cast<std::size_t>(ranks)), stored_(static_cast<std::size_t>(ranks)) {}

  /// Adds a receive that no stored message matches.
  void post(MessageOperation& receive) noexcept;
  /// Removes a posted receive.
  void remove(MessageOperation& receive) noexcept;
  /// Removes all posted receives.
  void forget_posted() noexcept;
  /// Returns the posted receive for a message, and removes it. Returns null if there is none.
  MessageOperation* take_receive(Rank from, int tag) noexcept;
  /// Returns whether a new receive from rank `from` may take the next message that arrives. This is the case if no
  /// stored message and no posted receive precedes it.
  bool is_clear(Rank from) const noexcept {
    const auto at = static_cast<std::size_t>(from);
    return posted_[at].empty() && posted_any_.empty() && stored_[at].empty();
  }

  /// Stores a message. The caller fills in the payload.
  StoredMessage& store(Rank from, const Envelope& envelope, std::size_t payload_bytes);
  /// Returns the stored message for a receive, and removes it. Returns null if there is none. The caller recycles it.
  StoredMessage* take_stored(const MessageCall& receive) noexcept;
  void recycle(StoredMessage& message) noexcept { unused_.push_front(message); }
  /// Calls visit() for a rank's stored messages, oldest first.
  template <class Visit>
  void for_each_stored(Rank from, Visit&& visit) const {
    stored_[static_cast<std::size_t>(from)].for_each(visit);
  }

 private:
  using Stored = LinkedList<StoredMessage, &StoredMessage::link>;
  MessageList& list_of(Rank from) noexcept {
    return from == any_source ? posted_any_ : posted_[static_cast<std::size_t>(from)];
  }

  std::vector<MessageList> posted_;  // by source
  MessageList posted_any_;
  std::uint64_t posted_ever_ = 0;
  std::vector<Stored> stored_;  // by source
  std::uint64_t stored_ever_ = 0;
  Stored unused_;
  std::vector<std::unique_ptr<StoredMessage>> memory_;
};

}  // namespace collectives
