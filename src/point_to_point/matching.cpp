// Implementation of the matching, which finds the message for a receive, and the receive for a message. Receive and
// message must have the same tag. A receive names the source of its message, or accepts any source. A posted receive
// waits, because no message for it has arrived. A stored message waits, because no receive for it has been posted. The
// numbers `order` show which receive was posted first, and which message arrived first.
#include "point_to_point/matching.hpp"

namespace collectives {

void Matching::post(MessageOperation& receive) noexcept {
  receive.order = ++posted_ever_;
  list_of(receive.call.peer).push_back(receive);
}

void Matching::remove(MessageOperation& receive) noexcept { list_of(receive.call.peer).remove(receive); }

void Matching::forget_posted() noexcept {
  posted_any_.clear();
  for (MessageList& list : posted_) list.clear();
}

MessageOperation* Matching::take_receive(Rank from, int tag) noexcept {
  const auto matches = [&](const MessageOperation& receive) { return receive.call.tag == tag; };
  MessageOperation* found = posted_[static_cast<std::size_t>(from)].find(matches);
  MessageOperation* const any = posted_any_.find(matches);
  if (any != nullptr && (found == nullptr || any->order < found->order)) found = any;
  if (found != nullptr) remove(*found);
  return found;
}

StoredMessage& Matching::store(Rank from, const Envelope& envelope, std::size_t payload_bytes) {
  StoredMessage* message = unused_.pop_front();
  if (message == nullptr) message = memory_.emplace_back(std::make_unique<StoredMessage>()).get();
  try {
    if (message->payload.size() < payload_bytes) message->payload.resize(payload_bytes);
  } catch (...) {
    unused_.push_back(*message);
    throw;
  }
  message->envelope = envelope;
  message->from = from;
  message->order = ++stored_ever_;
  stored_[static_cast<std::size_t>(from)].push_back(*message);
  return *message;
}

StoredMessage* Matching::take_stored(const MessageCall& receive) noexcept {
  const auto matches = [&](const StoredMessage& message) { return message.envelope.tag == receive.tag; };
  StoredMessage* found = nullptr;
  if (receive.peer != any_source) {
    found = stored_[static_cast<std::size_t>(receive.peer)].find(matches);
  } else {
    for (const Stored& of_rank : stored_) {
      StoredMessage* const first = of_rank.find(matches);
      if (first != nullptr && (found == nullptr || first->order < found->order)) found = first;
    }
  }
  if (found != nullptr) stored_[static_cast<std::size_t>(found->from)].remove(*found);
  return found;
}

}  // namespace collectives
