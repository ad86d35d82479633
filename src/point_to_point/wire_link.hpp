// Wire link: a message link between ranks of different hosts, over a wire that carries point-to-point messages only.
//
// An envelope and the payload of an eager message travel in one frame of the wire. A piece of data travels without an
// envelope: the wire reads it in the buffer of the sender, and may write it to that of the receiver. The tag of the
// wire then holds the number of the message.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "collectives/transport.hpp"
#include "point_to_point/message_link.hpp"

namespace collectives {

class WireLink final : public MessageLink {
 public:
  /// Longest payload of an eager message. A longer message would take longer to copy than an answer of the receiver
  /// takes to arrive.
  static constexpr std::size_t kLongestEager = 32 << 10;

  WireLink(Wire& wire, Rank peer) : wire_(wire), peer_(peer) {}

  std::size_t longest_eager() const noexcept override { return std::min(kLongestEager, wire_.frame_bytes() - kHeader); }
  std::size_t longest_piece() const noexcept override { return wire_.frame_bytes(); }
  bool send(const Envelope& envelope, const std::byte* payload, std::size_t bytes) override;
  bool lends(const std::byte* data, std::size_t bytes) const noexcept override { return wire_.lent(data, bytes); }
  const Envelope* receive(std::byte* place, std::size_t bytes) override;
  std::size_t payload_bytes() const noexcept override { return payload_; }
  void take(std::byte* to) override;
  bool ended() const noexcept override { return wire_.is_blocked_on_failed_peer(peer_); }

 private:
  static constexpr std::size_t kHeader = 64;  // bytes before the payload of a frame, which is aligned to 64 bytes
  static constexpr unsigned kKindAt = 56;     // place of the kind in a tag of the wire
  [[noreturn]] void refuse() const;

  Wire& wire_;
  const Rank peer_;
  bool open_ = false;
  Envelope envelope_;
  const std::byte* data_ = nullptr;
  std::size_t payload_ = 0;
};

}  // namespace collectives
