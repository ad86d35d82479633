// Format of the UDP datagrams that carry short messages. A message is sent in one or several pieces. A piece fits into
// one packet of the network. It consists of a Heading and a range of the message's payload. The Heading tells the
// piece's place in the message.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "transport/tcp_message.hpp"
#include "transport/wire_secret.hpp"

namespace collectives::datagram {

constexpr std::size_t kLongest = 32 << 10;  // Maximum payload bytes of a message; longer ones gain nothing over TCP.
constexpr std::size_t kMostPieces = 64;     // Maximum pieces of a message: UDP_SEGMENT of the kernel permits no more.
constexpr std::size_t kMostJoined =
    0xffff;  // Maximum bytes of one read, which may return several pieces that the kernel has joined.
// Offset of the payload in a buffer, in bytes. This offset aligns the payload to 64 bytes.
constexpr std::size_t kPayloadAt = 64;

enum Kind : std::uint32_t { kProbe, kAcknowledgement, kMessage };

/// Heading of each piece of a message.
struct Heading {
  DatagramToken token;
  std::uint32_t kind = 0, taken = 0;  ///< the Kind; `taken` acknowledges all messages before this number
  MessageHeader message;
  std::uint32_t offset = 0, piece = 0;  ///< offset of the piece in the payload; bytes of each piece but the last

  /// Returns the number of payload bytes behind the heading.
  std::size_t length() const { return kind == kAcknowledgement ? 0 : std::min(piece, message.bytes - offset); }
  /// Returns whether no field contradicts another.
  bool makes_sense() const;
};
static_assert(sizeof(Heading) == 48 && sizeof(MessageHeader) == 16);

/// Returns a copy of the heading at `at`, which need not be aligned.
inline Heading heading_at(const std::byte* at) {
  Heading heading;
  std::memcpy(&heading, at, sizeof heading);
  return heading;
}
/// Returns whether the bytes [at, end) are whole pieces and nothing else, all with `token`.
bool are_pieces(const std::byte* at, const std::byte* end, const DatagramToken& token);

// Memory of one message. The first piece's heading lies directly before the payload.

inline AlignedBuffer make_buffer(std::size_t payload) { return make_aligned_buffer(kPayloadAt + payload); }
inline std::byte* payload_in(const AlignedBuffer& buffer) { return buffer.get() + kPayloadAt; }
inline std::byte* heading_in(const AlignedBuffer& buffer) { return payload_in(buffer) - sizeof(Heading); }

}  // namespace collectives::datagram
