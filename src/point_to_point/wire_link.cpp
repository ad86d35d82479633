// Implementation of the wire link, which carries point-to-point messages to one rank of another host. An envelope is
// the header of a message. A frame is memory of the wire for one message of the wire. A short message is sent with its
// envelope in one frame. Data of a long message are sent without an envelope. Instead, the tag that the wire sends with
// the data holds the kind and the number of the message.
#include "point_to_point/wire_link.hpp"

#include <fmt/format.h>

#include <cstring>
#include <iterator>

#include "collectives/error.hpp"

namespace collectives {

bool WireLink::send(const Envelope& envelope, const std::byte* payload, std::size_t bytes) {
  const std::uint64_t tag =
      static_cast<std::uint64_t>(envelope.kind) << kKindAt | (envelope.id & ((std::uint64_t{1} << kKindAt) - 1));
  if (envelope.kind == MessageKind::data) {
    if (!wire_.has_frame(peer_)) return false;
    wire_.send_from(peer_, tag, payload, bytes);
    return true;
  }
  std::byte* const frame = wire_.acquire_frame(peer_);
  if (frame == nullptr) return false;
  std::memcpy(frame, &envelope, sizeof envelope);
  if (bytes > 0) std::memcpy(frame + kHeader, payload, bytes);
  wire_.send(peer_, tag, kHeader + bytes);
  return true;
}

void WireLink::refuse() const {
  throw Error(Errc::mismatch, fmt::format("rank {} has sent bytes that are no point-to-point message", peer_), kNoRank,
              peer_);
}

const Envelope* WireLink::receive(std::byte* place, std::size_t bytes) {
  if (open_) return &envelope_;
  const Message* const message = place != nullptr ? wire_.receive_into(peer_, place, bytes) : wire_.receive(peer_);
  if (message == nullptr) return nullptr;
  const auto kind = static_cast<MessageKind>(message->tag >> kKindAt);
  if (kind == MessageKind::data) {
    envelope_ = {.kind = kind, .id = message->tag & ((std::uint64_t{1} << kKindAt) - 1)};
    data_ = message->data;
    payload_ = message->bytes;
  } else {
    if (message->bytes < kHeader) refuse();
    std::memcpy(static_cast<void*>(&envelope_), message->data, sizeof envelope_);
    data_ = message->data + kHeader;
    payload_ = message->bytes - kHeader;
    const bool known = envelope_.kind == kind && kind >= MessageKind::eager && kind <= MessageKind::credit &&
                       static_cast<std::size_t>(envelope_.type) < std::size(kDataTypes);
    if (!known || payload_ != (kind == MessageKind::eager ? envelope_.bytes : 0)) refuse();
  }
  open_ = true;
  return &envelope_;
}

bool WireLink::take(std::byte* to) {
  if (to != nullptr && to != data_ && payload_ > 0) std::memmove(to, data_, payload_);
  open_ = false;
  wire_.release(peer_);
  return true;
}

}  // namespace collectives
