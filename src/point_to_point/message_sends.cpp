// Implementation of MessageSends, the sending side of point-to-point messages. A short message is sent at once. A long
// message is announced by a request. After the request, the receiver copies the data itself, or asks this rank to send
// the data in pieces. If the link to the receiver has no space, a send waits in a list.
#include "point_to_point/message_sends.hpp"

#include <algorithm>

namespace collectives {

void MessageSends::start(MessageOperation& send) {
  Receiver& to = receiver(send.call.peer);
  if (!to.waiting.empty() || !hand_over(to, send)) to.waiting.push_back(send);
  if (!send.ended()) calls_.add(send);
}

bool MessageSends::has_credit(Receiver& to, Rank rank, std::size_t bytes) const {
  const std::uint64_t after = to.eager_sent + bytes + kEnvelopeCredit;
  if (after - to.eager_matched <= kMostUnmatched) return true;
  if (const HostLink* const host = links_[rank].host) to.eager_matched = host->peer_matched();
  return after - to.eager_matched <= kMostUnmatched;
}

bool MessageSends::hand_over(Receiver& to, MessageOperation& send) {
  const MessageCall& call = send.call;
  const MessageLinks::End& end = links_[call.peer];
  if (end.has_ended()) return false;
  MessageLink& link = *end.link;
  const bool direct = end.host != nullptr && direct_.takes_less_time(end.local, call.data, send.bytes);
  Envelope envelope{.kind = MessageKind::eager, .type = call.type, .tag = call.tag, .bytes = send.bytes};
  if (!direct && send.bytes <= link.longest_eager() && has_credit(to, call.peer, send.bytes)) {
    if (!link.send(envelope, call.data, send.bytes)) return false;
    to.eager_sent += send.bytes + kEnvelopeCredit;
    note_sent(call.peer, send.bytes);
    calls_.complete(send);
    return true;
  }
  envelope.kind = MessageKind::request;
  envelope.id = send.id = to.last_id + 1;
  if (end.host != nullptr) {
    const RemoteBuffer mine = direct_.describe(call.data, send.bytes);
    envelope.address = mine.address;
    envelope.name = mine.name;
  }
  if (!link.send(envelope, nullptr, 0)) return false;
  ++to.last_id;
  note_sent(call.peer, send.bytes);
  send.set(MessageOperation::Stage::open);
  to.open.push_back(send);
  return true;
}

void MessageSends::hand_over_waiting(Receiver& receiver) {
  while (MessageOperation* const next = receiver.waiting.pop_front()) {
    if (!hand_over(receiver, *next)) return receiver.waiting.push_front(*next);
    calls_.note_move();
  }
}

/// Sends data of the sends whose receivers have asked for them, the oldest send first. The next send begins when the
/// link has taken all data of the one before.
void MessageSends::push_data(Receiver& receiver, Rank to) {
  MessageLink& link = *links_[to].link;
  while (MessageOperation* const send = receiver.streams.front()) {
    while (send->moved < send->bytes) {
      const std::size_t bytes = std::min(link.longest_piece(), send->bytes - send->moved);
      const Envelope envelope{.kind = MessageKind::data, .id = send->id};
      if (!link.send(envelope, send->call.data + send->moved, bytes)) return;
      send->moved += bytes;
      calls_.note_move();
    }
    if (link.lends(send->call.data, send->bytes)) return;
    receiver.streams.remove(*send);
    calls_.complete(*send);
  }
}

/// Copies one piece of a message that the receiver is copying from this rank's buffer. Both ranks then share the work
/// (direct_copy.hpp).
void MessageSends::copy_piece(Receiver& receiver, Rank to) {
  if (links_[to].host == nullptr) return;
  for (MessageOperation* send = receiver.open.front(); send != nullptr; send = MessageList::after(*send))
    if (direct_.send_piece(*send, links_[to].local)) return calls_.note_move();
}

MessageOperation* MessageSends::take_open(Receiver& receiver, std::uint64_t id) noexcept {
  MessageOperation* const send = receiver.open.find([&](const MessageOperation& one) { return one.id == id; });
  if (send != nullptr) receiver.open.remove(*send);
  return send;
}

void MessageSends::take_answer(Rank from, const Envelope& answer) {
  Receiver& receiver = this->receiver(from);
  if (answer.kind == MessageKind::credit) {
    receiver.eager_matched = answer.bytes;
    return;
  }
  MessageOperation* const send = take_open(receiver, answer.id);
  if (send == nullptr) return;
  if (answer.kind == MessageKind::finished) return calls_.complete(*send);
  send->set(MessageOperation::Stage::moving);
  receiver.streams.push_back(*send);
  push_data(receiver, from);
}

void MessageSends::note_sent(Rank to, std::size_t bytes) noexcept {
  bytes_sent_.store(bytes_sent_.load(std::memory_order_relaxed) + bytes, std::memory_order_relaxed);
  if (links_[to].host != nullptr) return;
  bytes_to_hosts_.store(bytes_to_hosts_.load(std::memory_order_relaxed) + bytes, std::memory_order_relaxed);
}

void MessageSends::forget() noexcept {
  for (Receiver& one : receivers_)
    for (MessageList* const list : {&one.waiting, &one.open, &one.streams}) list->clear();
}

}  // namespace collectives
