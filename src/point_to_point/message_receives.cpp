// Implementation of MessageReceives, the receiving side of point-to-point messages. A receive first looks for a stored
// message, that is, one that has arrived before the receive. If there is none, the receive waits for a message. A short
// message arrives with its data. A long message is announced by a request. After a request, the receiver copies the
// data itself, or asks the sender to send the data.
#include "point_to_point/message_receives.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>

#include "base/wait.hpp"
#include "collectives/error.hpp"
#include "point_to_point/message_texts.hpp"

namespace collectives {

// ---- calls ----

void MessageReceives::start(MessageOperation& receive) {
  if (StoredMessage* const stored = matching_.take_stored(receive.call)) return take_stored(receive, *stored);
  matching_.post(receive);
  calls_.add(receive);
}

void MessageReceives::take_stored(MessageOperation& receive, StoredMessage& stored) {
  const Envelope envelope = stored.envelope;
  const Rank from = stored.from;
  try {
    check_shape(receive, from, envelope);
  } catch (...) {
    matching_.recycle(stored);
    throw;
  }
  receive.source = from;
  if (envelope.kind == MessageKind::request) {
    matching_.recycle(stored);
    calls_.add(receive);
    return accept(receive, from, envelope);
  }
  if (receive.bytes > 0) std::memcpy(receive.call.data, stored.payload.data(), receive.bytes);
  matching_.recycle(stored);
  give_credit(from, receive.bytes);
  calls_.complete(receive);
}

bool MessageReceives::end_at_once(MessageOperation& receive, int polls) {
  const MessageCall& call = receive.call;
  if (call.peer < 0 || !matching_.is_clear(call.peer) || sender(call.peer).filling != nullptr) return false;
  HostLink* const link = links_[call.peer].host;
  if (link == nullptr) return false;
  const Envelope* arrived = link->arrived();
  for (; arrived == nullptr && --polls > 0; arrived = link->arrived()) relax();
  if (arrived == nullptr || arrived->kind != MessageKind::eager || arrived->tag != call.tag ||
      arrived->bytes != receive.bytes || arrived->type != call.type)
    return false;
  receive.source = call.peer;
  bool whole = link->take(call.data);
  for (; !whole && --polls > 0; whole = link->take(call.data)) relax();
  if (!whole) {
    sender(call.peer).filling = &receive;
    calls_.add(receive);
    return true;
  }
  give_credit(call.peer, receive.bytes);
  calls_.complete(receive);
  return true;
}

void MessageReceives::check_shape(const MessageOperation& receive, Rank from, const Envelope& envelope) {
  if (envelope.bytes == receive.bytes && envelope.type == receive.call.type) return;
  const std::string operation = text_of(receive);
  failure_detector_.report_failure(
      Errc::mismatch, from, operation,
      fmt::format("{}: rank {} sent {}, and rank {} receives {}", operation, from,
                  shape_text(envelope.bytes, envelope.type), self_, shape_text(receive.bytes, receive.call.type)));
  failure_detector_.throw_failure();
}

// ---- arrived messages ----

const Envelope* MessageReceives::next_from_host(Rank from) {
  MessageLink& link = *links_[from].link;
  const MessageOperation* const stream = sender(from).streams.front();
  if (stream == nullptr) return link.receive(nullptr, 0);
  return link.receive(stream->call.data + stream->moved, std::min(link.longest_piece(), stream->bytes - stream->moved));
}

bool MessageReceives::take(Rank from, const Envelope& arrived) {
  if (arrived.kind == MessageKind::eager) return take_eager(from, arrived);
  if (arrived.kind == MessageKind::data) return take_data(from, arrived);
  const Envelope request = arrived;  // copied, because the link may reuse its memory after take()
  links_[from].link->take(nullptr);
  take_request(from, request);
  return true;
}

bool MessageReceives::take_eager(Rank from, const Envelope& envelope) {
  MessageLink& link = *links_[from].link;
  const std::size_t bytes = envelope.bytes;
  MessageOperation*& filling = sender(from).filling;
  if (filling == nullptr) {
    MessageOperation* const receive = matching_.take_receive(from, envelope.tag);
    if (receive == nullptr)
      return link.is_complete() && link.take(matching_.store(from, envelope, bytes).payload.data());
    check_shape(*receive, from, envelope);
    receive->source = from;
    filling = receive;
  }
  if (!link.take(filling->call.data)) return false;
  give_credit(from, bytes);
  calls_.complete(*std::exchange(filling, nullptr));
  return true;
}

void MessageReceives::take_request(Rank from, const Envelope& envelope) {
  MessageOperation* const receive = matching_.take_receive(from, envelope.tag);
  if (receive == nullptr) {
    matching_.store(from, envelope, 0);
    return;
  }
  check_shape(*receive, from, envelope);
  receive->source = from;
  accept(*receive, from, envelope);
}

bool MessageReceives::take_data(Rank from, const Envelope& envelope) {
  MessageLink& link = *links_[from].link;
  MessageOperation* const receive = sender(from).streams.front();
  const std::size_t bytes = link.payload_bytes();
  if (receive == nullptr || receive->id != envelope.id || bytes > receive->bytes - receive->moved)
    throw Error(Errc::mismatch, "data of a point-to-point message have arrived that no receive wants", self_, from);
  if (!link.take(receive->call.data + receive->moved)) return false;
  receive->moved += bytes;
  if (receive->moved < receive->bytes) return true;
  sender(from).streams.remove(*receive);
  calls_.complete(*receive);
  return true;
}

void MessageReceives::give_credit(Rank from, std::uint64_t bytes) {
  Sender& sender = this->sender(from);
  sender.eager_taken += bytes + kEnvelopeCredit;
  if (sender.eager_taken - sender.taken_published < kMostUnmatched / 4) return;
  sender.taken_published = sender.eager_taken;
  if (HostLink* const host = links_[from].host) return host->publish_matched(sender.eager_taken);
  links_.answer(from, {.kind = MessageKind::credit, .bytes = sender.eager_taken});
}

// ---- long messages ----

void MessageReceives::accept(MessageOperation& receive, Rank from, const Envelope& request) {
  const MessageLinks::End& end = links_[from];
  receive.id = request.id;
  receive.address = request.address;
  receive.name = request.name;
  receive.set(MessageOperation::Stage::moving);
  if (receive.bytes == 0) {
    links_.answer(from, {.kind = MessageKind::finished, .id = request.id});
    return calls_.complete(receive);
  }
  if (end.host != nullptr && direct_.can_read(end.local, {request.address, request.name}, receive.bytes)) {
    MessageList& copies = sender(from).copies;
    copies.push_back(receive);
    if (copies.front() == &receive) direct_.begin(receive, end.local);
    return;
  }
  sender(from).streams.push_back(receive);
  links_.answer(from, {.kind = MessageKind::go, .id = request.id});
}

void MessageReceives::copy_piece(Rank from) {
  MessageList& copies = sender(from).copies;
  const int local = links_[from].local;
  MessageOperation& receive = *copies.front();
  const std::size_t before = receive.moved;
  const bool whole = direct_.receive_piece(receive, local);
  if (receive.moved != before) calls_.note_move();
  if (!whole) return;
  copies.remove(receive);
  links_.answer(from, {.kind = MessageKind::finished, .id = receive.id});
  calls_.complete(receive);
  if (MessageOperation* const next = copies.front()) direct_.begin(*next, local);
}

void MessageReceives::forget() noexcept {
  for (Sender& one : senders_) {
    one.copies.clear();
    one.streams.clear();
    one.filling = nullptr;
  }
  matching_.forget_posted();
}

}  // namespace collectives
