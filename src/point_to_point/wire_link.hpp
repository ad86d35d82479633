// Wire link: carries point-to-point messages to one rank of another host. It uses a wire (transport between hosts) that
// carries no other messages.
//
// An envelope is the header of a message. An eager message is a short message that is sent at once. Its envelope and
// its payload lie in one frame, memory of the wire for one message. The data of long messages are sent in pieces
// without an envelope. The wire reads a piece from the buffer of the sender, and may write the piece directly to the
// buffer of the receiver. The tag that the wire sends with a piece holds the number of the long message.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "collectives/transport.hpp"
#include "point_to_point/message_link.hpp"

namespace collectives {

class WireLink final : public MessageLink {
 public:
  /// Maximum payload in bytes of an eager message. It takes longer to copy a longer payload to a frame than to wait for
  /// an answer of the receiver.
  static constexpr std::size_t kLongestEager = 32 << 10;

  WireLink(Wire& wire, Rank peer) : wire_(wire), peer_(peer) {}

  std::size_t longest_eager() const noexcept override { return std::min(kLongestEager, wire_.frame_bytes() - kHeader); }
  std::size_t longest_piece() const noexcept override { return wire_.frame_bytes(); }
  bool send(const Envelope& envelope, const std::byte* payload, std::size_t bytes) override;
  bool lends(const std::byte* data, std::size_t bytes) const noexcept override { return wire_.lent(data, bytes); }
  const Envelope* receive(std::byte* place, std::size_t bytes) override;
  std::size_t payload_bytes() const noexcept override { return payload_; }
  bool take(std::byte* to) override;
  bool ended() const noexcept override { return wire_.is_blocked_on_failed_peer(peer_); }

 private:
  // number of bytes before the payload in a frame; 64, so that the payload is aligned to a cache line
  static constexpr std::size_t kHeader = 64;
  static constexpr unsigned kKindAt = 56;  // lowest bit of the kind in a tag
  [[noreturn]] void refuse() const;

  Wire& wire_;
  const Rank peer_;
  bool open_ = false;
  Envelope envelope_;
  const std::byte* data_ = nullptr;
  std::size_t payload_ = 0;
};

}  // namespace collectives
