// Envelope: the header that two ranks exchange for point-to-point messages. The diagram shows the kinds of envelopes.
//
// A short message is sent at once, with an envelope of the kind eager. A long message is announced by an envelope of
// the kind request. If the receiver can read the memory of the sender, it copies the data itself and then answers with
// finished. Otherwise it answers with go, and the sender then sends the data in pieces.
//
//   sender                    receiver
//   eager + payload     ->                        a short message
//
//   request             ->                        a long message inside a host
//                       <-    finished            after the receiver has copied the data
//
//   request             ->                        a long message to another host, or without a way to the memory
//                       <-    go
//   data + payload ...  ->
//
//                       <-    credit              bytes of eager messages that receives have taken
//
// A receiver stores eager messages until receives take them. The credit of a sender is the number of bytes that it may
// still send by eager messages. A sender without credit sends a request in place of an eager message. For a request,
// the receiver stores only the envelope, and the sender keeps an unfinished operation.
#pragma once

#include <cstddef>
#include <cstdint>

#include "collectives/types.hpp"

namespace collectives {

enum class MessageKind : std::uint8_t { eager = 1, request, go, data, finished, credit };

struct Envelope {
  MessageKind kind = MessageKind::eager;
  DataType type = DataType::f32;
  std::uint16_t unused = 0;
  std::int32_t tag = 0;
  std::uint64_t bytes = 0;    ///< length of the whole message in bytes; in credit: bytes of eager messages taken so far
  std::uint64_t id = 0;       ///< number of a long message at its sender
  std::uint64_t address = 0;  ///< memory of a long message at its sender, as in RemoteBuffer
  std::uint64_t name = 0;
};

/// Number of bytes of credit that an eager message costs in addition to its payload. Reason: the record of a stored
/// message takes memory, too.
inline constexpr std::uint64_t kEnvelopeCredit = 64;
/// Maximum credit: total bytes of the eager messages from one sender that no receive has taken. Each message counts
/// with its payload and kEnvelopeCredit.
inline constexpr std::uint64_t kMostUnmatched = 256 << 10;

}  // namespace collectives
