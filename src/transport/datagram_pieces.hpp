// Format of datagrams. A message is sent in one or several pieces. A piece is a Heading and its part of the payload,
// and fills one packet at most.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "transport/tcp_message.hpp"

namespace collectives::datagram {

constexpr std::size_t kLongest = 32 << 10;   // Most bytes of a message; longer ones gain nothing.
constexpr std::size_t kMostPieces = 64;      // Most pieces of a message: limit of the kernel.
constexpr std::size_t kMostJoined = 0xffff;  // Most bytes of one read: pieces with their headings.
constexpr std::size_t kPayloadAt = 64;       // Position of the payload in a buffer, which aligns it to 64 bytes.

enum Kind : std::uint32_t { kProbe, kAcknowledgement, kMessage };

/// Heading of each piece of a message.
struct Heading {
  std::uint64_t token = 0;
  std::uint32_t kind = 0, taken = 0;
  MessageHeader message;
  std::uint32_t offset = 0, piece = 0;  ///< Position of the piece in the payload; bytes of each piece but the last.

  /// Returns the number of payload bytes behind the heading.
  std::size_t length() const { return kind == kAcknowledgement ? 0 : std::min(piece, message.bytes - offset); }
  /// Returns whether the fields can be those of a piece.
  bool makes_sense() const;
};
static_assert(sizeof(Heading) == 40 && sizeof(MessageHeader) == 16);

/// Copies the heading at `at`.
inline Heading heading_at(const std::byte* at) {
  Heading heading;
  std::memcpy(&heading, at, sizeof heading);
  return heading;
}
/// Returns whether the bytes are pieces of a sender with `token` and nothing else.
bool are_pieces(const std::byte* at, const std::byte* end, std::uint64_t token);

// Memory of a message. The first heading ends at the payload.

inline AlignedBuffer make_buffer(std::size_t payload) { return make_aligned_buffer(kPayloadAt + payload); }
inline std::byte* payload_in(const AlignedBuffer& buffer) { return buffer.get() + kPayloadAt; }
inline std::byte* heading_in(const AlignedBuffer& buffer) { return payload_in(buffer) - sizeof(Heading); }

}  // namespace collectives::datagram
