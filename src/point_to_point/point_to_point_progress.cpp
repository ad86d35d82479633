// Progress of point-to-point messages: what a rank does with each envelope, and how data of long messages move.
#include <cstring>
#include <utility>

#include "point_to_point/point_to_point.hpp"

namespace collectives {
namespace {

// Maximum number of messages that a rank takes from one peer before it looks at the next peer.
constexpr int kMessagesPerTurn = 64;

RemoteBuffer buffer_of(const Envelope& request) { return {request.address, request.name}; }

}  // namespace

bool PointToPoint::progress() noexcept {
  const std::uint64_t before = moves_.load(std::memory_order_relaxed);
  guarded([&] {
    if (wire_ != nullptr) wire_->progress();
    for (const Rank rank : view_.world.members)
      if (!is_self(rank)) progress_peer(rank);
  });
  note_wire();
  return moves_.load(std::memory_order_relaxed) != before;
}

void PointToPoint::progress_peer(Rank rank) {
  Peer& with = peer(rank);
  pull_in(rank);
  if (!with.outbox.empty() || !with.waiting.empty()) push_out(with);
  if (!with.streams_out.empty()) push_stream(with);
  if (with.host != nullptr) copy_pieces(rank, with);
}

// ---- outgoing ----

/// Sends answers first, because peers wait for them, and then the sends that wait.
void PointToPoint::push_out(Peer& to) {
  std::size_t sent = 0;
  while (sent < to.outbox.size() && to.link->send(to.outbox[sent], nullptr, 0)) ++sent;
  to.outbox.erase(to.outbox.begin(), to.outbox.begin() + static_cast<std::ptrdiff_t>(sent));
  unfinished_count_.fetch_sub(sent, std::memory_order_acq_rel);
  if (sent > 0) moves_.fetch_add(1, std::memory_order_relaxed);
  if (!to.outbox.empty()) return;
  while (MessageOperation* const next = to.waiting.front()) {
    to.waiting.remove(*next);
    if (hand_over(to, *next)) {
      moves_.fetch_add(1, std::memory_order_relaxed);
      continue;
    }
    to.waiting.push_front(*next);
    return;
  }
}

/// Sends data of the oldest send whose receiver wants them. The next one begins when this one has handed over all.
void PointToPoint::push_stream(Peer& to) {
  while (MessageOperation* const send = to.streams_out.front()) {
    while (send->moved < send->bytes) {
      const std::size_t bytes = std::min(to.link->longest_piece(), send->bytes - send->moved);
      const Envelope envelope{.kind = MessageKind::data, .id = send->id};
      if (!to.link->send(envelope, send->call.data + send->moved, bytes)) return;
      send->moved += bytes;
      moves_.fetch_add(1, std::memory_order_relaxed);
    }
    if (to.link->lends(send->call.data, send->bytes)) return;
    to.streams_out.remove(*send);
    complete(*send);
  }
}

void PointToPoint::answer(Rank to, const Envelope& envelope) {
  Peer& receiver = peer(to);
  if (receiver.outbox.empty() && receiver.link->send(envelope, nullptr, 0)) return;
  receiver.outbox.push_back(envelope);
  unfinished_count_.fetch_add(1, std::memory_order_acq_rel);
}

void PointToPoint::note_sent(Rank to, std::size_t bytes) noexcept {
  bytes_sent_.store(bytes_sent_.load(std::memory_order_relaxed) + bytes, std::memory_order_relaxed);
  if (is_self(to) || peer(to).host != nullptr) return;
  bytes_to_hosts_.store(bytes_to_hosts_.load(std::memory_order_relaxed) + bytes, std::memory_order_relaxed);
}

// ---- incoming ----

void PointToPoint::pull_in(Rank from) {
  Peer& sender = peer(from);
  for (int taken = 0; taken < kMessagesPerTurn; ++taken) {
    const Envelope* envelope = nullptr;
    if (sender.host != nullptr) {
      envelope = sender.host->arrived();
    } else if (const MessageOperation* const stream = sender.streams_in.front()) {
      const std::size_t bytes = std::min(sender.link->longest_piece(), stream->bytes - stream->moved);
      envelope = sender.link->receive(stream->call.data + stream->moved, bytes);
    } else {
      envelope = sender.link->receive(nullptr, 0);
    }
    if (envelope == nullptr) return;
    moves_.fetch_add(1, std::memory_order_relaxed);
    handle(from, *envelope, sender.link.get(), nullptr);
  }
}

/// Handles an envelope. `link`: the link that holds the payload; null in a message to this rank itself, whose payload
/// is at `payload`.
void PointToPoint::handle(Rank from, const Envelope& arrived, MessageLink* link, const std::byte* payload) {
  if (arrived.kind == MessageKind::eager) return take_eager(from, arrived, link, payload);
  if (arrived.kind == MessageKind::data) return take_data(from, arrived, *link);
  const Envelope envelope = arrived;  // the link may reuse its memory after take()
  if (link != nullptr) link->take(nullptr);
  switch (envelope.kind) {
    case MessageKind::request:
      if (MessageOperation* const receive = matching_.take_receive(from, envelope.tag)) {
        check_shape(*receive, from, envelope);
        receive->source = from;
        accept(*receive, from, envelope);
      } else {
        matching_.store(from, envelope, 0);
      }
      return;
    case MessageKind::go: {
      Peer& receiver = peer(from);
      MessageOperation* const send = receiver.open.find([&](const auto& one) { return one.id == envelope.id; });
      if (send == nullptr) return;
      receiver.open.remove(*send);
      send->set(MessageOperation::Stage::moving);
      receiver.streams_out.push_back(*send);
      return push_stream(receiver);
    }
    case MessageKind::finished: return finish_send(from, envelope.id);
    case MessageKind::credit: peer(from).eager_matched = envelope.bytes; return;
    case MessageKind::eager:
    case MessageKind::data: return;
  }
}

void PointToPoint::take_eager(Rank from, const Envelope& envelope, MessageLink* link, const std::byte* payload) {
  MessageOperation* const receive = matching_.take_receive(from, envelope.tag);
  const std::size_t bytes = envelope.bytes;
  std::byte* to = nullptr;
  if (receive != nullptr) {
    check_shape(*receive, from, envelope);
    to = receive->call.data;
  } else {
    to = matching_.store(from, envelope, bytes).payload.data();
  }
  if (link != nullptr)
    link->take(to);
  else if (bytes > 0)
    std::memcpy(to, payload, bytes);
  if (receive == nullptr) return;
  receive->source = from;
  give_credit(from, bytes);
  complete(*receive);
}

void PointToPoint::give_credit(Rank from, std::uint64_t bytes) {
  Peer& sender = peer(from);
  sender.eager_taken += bytes + kEnvelopeCredit;
  if (is_self(from)) {
    sender.eager_matched = sender.eager_taken;
    return;
  }
  if (sender.eager_taken - sender.taken_published < kMostUnmatched / 4) return;
  sender.taken_published = sender.eager_taken;
  if (sender.host != nullptr) return sender.host->publish_matched(sender.eager_taken);
  answer(from, {.kind = MessageKind::credit, .bytes = sender.eager_taken});
}

// ---- long messages ----

void PointToPoint::accept(MessageOperation& receive, Rank from, const Envelope& request) {
  Peer& sender = peer(from);
  receive.id = request.id;
  receive.address = request.address;
  receive.name = request.name;
  receive.set(MessageOperation::Stage::moving);
  if (is_self(from)) {
    const auto* const source = reinterpret_cast<const std::byte*>(static_cast<std::uintptr_t>(request.address));
    if (receive.bytes > 0) std::memmove(receive.call.data, source, receive.bytes);
    complete(receive);
    return finish_send(from, request.id);
  }
  if (receive.bytes == 0) {
    complete(receive);
    return answer(from, {.kind = MessageKind::finished, .id = request.id});
  }
  if (sender.host != nullptr && direct_.can_read(sender.local, buffer_of(request), receive.bytes)) {
    const bool first = sender.copies.empty();
    sender.copies.push_back(receive);
    if (first) direct_.begin(receive, sender.local);
    return;
  }
  sender.streams_in.push_back(receive);
  answer(from, {.kind = MessageKind::go, .id = request.id});
}

/// Copies one piece of the oldest receive from a peer, and one piece of a send that the peer receives at this time.
void PointToPoint::copy_pieces(Rank rank, Peer& with) {
  if (MessageOperation* const receive = with.copies.front()) {
    const std::size_t before = receive->moved;
    const bool whole = direct_.receive_piece(*receive, with.local);
    if (receive->moved != before) moves_.fetch_add(1, std::memory_order_relaxed);
    if (whole) {
      with.copies.remove(*receive);
      answer(rank, {.kind = MessageKind::finished, .id = receive->id});
      complete(*receive);
      if (MessageOperation* const next = with.copies.front()) direct_.begin(*next, with.local);
    }
  }
  for (MessageOperation* send = with.open.front(); send != nullptr; send = MessageList::after(*send)) {
    if (!direct_.send_piece(*send, with.local)) continue;
    moves_.fetch_add(1, std::memory_order_relaxed);
    return;
  }
}

void PointToPoint::take_data(Rank from, const Envelope& envelope, MessageLink& link) {
  Peer& sender = peer(from);
  MessageOperation* const receive = sender.streams_in.front();
  const std::size_t bytes = link.payload_bytes();
  if (receive == nullptr || receive->id != envelope.id || bytes > receive->bytes - receive->moved)
    throw Error(Errc::mismatch, "data of a point-to-point message have arrived that no receive wants", self_, from);
  link.take(receive->call.data + receive->moved);
  receive->moved += bytes;
  if (receive->moved < receive->bytes) return;
  sender.streams_in.remove(*receive);
  complete(*receive);
}

void PointToPoint::finish_send(Rank to, std::uint64_t id) {
  Peer& receiver = peer(to);
  MessageOperation* const send = receiver.open.find([&](const auto& one) { return one.id == id; });
  if (send == nullptr) return;
  receiver.open.remove(*send);
  complete(*send);
}

}  // namespace collectives
