// Messages that have arrived as datagrams, whole or in part, before their turn.
//
// Datagrams may arrive in any order, and the pieces of a message one by one. The receiver takes whole messages in the
// order of their numbers. A buffer of a message serves further messages once its message has been read.
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
    std::size_t come = 0;      // Bytes that have arrived.
    std::size_t piece = 0;     // Bytes of each piece but the last.
    std::uint64_t pieces = 0;  // One bit per piece that has arrived.
    static_assert(datagram::kMostPieces <= 64);
    bool retransmitted = false, lost = false;
    bool whole() const { return come == header.bytes; }
  };

  /// Makes a buffer for `most` messages.
  explicit ReorderBuffer(std::size_t most);

  /// Returns message `number`, or null if no piece of it has arrived.
  Entry* find(std::uint32_t number);
  /// Returns whether one more message can be stored. If not, first drops stored messages before `number`. They arrived
  /// only in part and were taken from another source.
  bool has_space(std::uint32_t number);
  /// Adds a message. Its payload lies in `buffer`, or is copied there later.
  Entry& store(const MessageHeader&, AlignedBuffer buffer);
  /// Adds a piece, unless its message has it already or differs from the message of earlier pieces. Drops it if there
  /// is no space; see has_space().
  void add_piece(std::uint32_t number, const datagram::Heading&, const std::byte* piece);
  /// Removes `entry`, which this object has returned.
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
