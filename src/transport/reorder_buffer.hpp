// Reorder buffer: holds messages that arrive as UDP datagrams until the receiver takes them.
//
// Datagrams may arrive in any order. A long message arrives in pieces, one per packet. The buffer stores each piece
// when it arrives. The receiver takes complete messages in order of their numbers. After a message has been read, its
// memory is reused for a later message.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "transport/datagram_pieces.hpp"

namespace collectives {

class ReorderBuffer {
 public:
  struct Entry {
    MessageHeader header;
    AlignedBuffer buffer;
    std::size_t come = 0;      // Payload bytes that have arrived.
    std::size_t piece = 0;     // Payload bytes of each piece except the last.
    std::uint64_t pieces = 0;  // Bit i is set if piece i has arrived.
    static_assert(datagram::kMostPieces <= 64);
    bool retransmitted = false, lost = false;  // Same meaning as in DatagramLink::Arrived.
    bool whole() const { return come == header.bytes; }
  };

  /// Makes a buffer for at most `most` messages.
  explicit ReorderBuffer(std::size_t most);

  /// Returns message `number`, or null if no piece of it has arrived.
  Entry* find(std::uint32_t number);
  /// Returns whether one more message can be stored. `number`: the next message that the receiver takes. If the buffer
  /// is full, first drops stored messages before `number`, because the receiver has already taken these messages from
  /// TCP.
  bool has_space(std::uint32_t number);
  /// Adds a message. `buffer`: memory for its payload. The caller may copy the payload there after this call.
  Entry& store(const MessageHeader&, AlignedBuffer buffer);
  /// Adds a piece of a message. Ignores a piece that has arrived before, or whose heading contradicts earlier pieces of
  /// the message. Drops the piece if there is no space for a new message. `number`: see has_space().
  void add_piece(std::uint32_t number, const datagram::Heading&, const std::byte* piece);
  /// Removes `entry`, which find() or store() has returned.
  Entry take(Entry& entry);

  /// Returns memory for the longest message.
  AlignedBuffer empty_buffer();
  /// Keeps `buffer`, whose message has been read, for empty_buffer().
  void reuse(AlignedBuffer buffer) { spare_.push_back(std::move(buffer)); }

 private:
  const std::size_t most_;
  std::vector<Entry> stored_;
  std::vector<AlignedBuffer> spare_;
};

}  // namespace collectives
