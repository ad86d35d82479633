// Implementation of the format of the UDP datagrams that carry short messages. A message is sent in one or several
// pieces, one per packet. A piece consists of a Heading and a range of the message's payload. Any process may send
// datagrams to the port, so this file checks whether a heading is valid.
#include "transport/datagram_pieces.hpp"

namespace collectives::datagram {

bool Heading::makes_sense() const {
  if (kind > kMessage) return false;
  if (message.bytes == 0 || kind == kAcknowledgement) return offset == 0;
  return message.bytes <= kLongest && offset < message.bytes && piece > 0 && offset % piece == 0 &&
         (message.bytes - 1) / piece < kMostPieces;
}

bool are_pieces(const std::byte* at, const std::byte* end, const DatagramToken& token) {
  while (end - at >= static_cast<std::ptrdiff_t>(sizeof(Heading))) {
    const Heading heading = heading_at(at);
    at += sizeof heading;
    if (!(heading.token == token) || !heading.makes_sense() || static_cast<std::size_t>(end - at) < heading.length())
      return false;
    at += heading.length();
  }
  return at == end;
}

}  // namespace collectives::datagram
