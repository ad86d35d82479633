// Envelope: the header of everything that two ranks exchange for point-to-point messages.
//
// A short message is eager: it travels at once, with its envelope. A long one is announced by a request. If the
// receiver can read the memory of the sender, it copies the data itself and answers with finished. Otherwise it answers
// with go, and the sender sends the data in pieces.
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
// Credit bounds the eager messages that a receiver has to store. A sender without credit sends a request in place of an
// eager message. A request takes one envelope at the receiver, and one unfinished operation at the sender.
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
  std::uint64_t bytes = 0;    ///< bytes of the whole message; of credit: bytes of eager messages taken so far
  std::uint64_t id = 0;       ///< number of a long message at its sender
  std::uint64_t address = 0;  ///< memory of a long message at its sender, as in RemoteBuffer
  std::uint64_t name = 0;
};

/// Bytes for which an eager message counts beyond its payload, because a stored message takes memory of its own.
inline constexpr std::uint64_t kEnvelopeCredit = 64;
/// Maximum of the unmatched eager messages from one sender to one receiver, in bytes with kEnvelopeCredit for each.
inline constexpr std::uint64_t kMostUnmatched = 256 << 10;

}  // namespace collectives
