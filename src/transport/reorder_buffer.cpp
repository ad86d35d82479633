// Implementation of the reorder buffer, which stores messages that have arrived by UDP until the receiver takes them in
// order. Datagrams may arrive in any order. A message may arrive in several pieces, one per packet.
#include "transport/reorder_buffer.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

namespace collectives {

using namespace datagram;

ReorderBuffer::ReorderBuffer(std::size_t most) : most_(most) {
  stored_.reserve(most);
  spare_.reserve(2 * most);
}

ReorderBuffer::Entry* ReorderBuffer::find(std::uint32_t number) {
  const auto found = std::ranges::find(stored_, number, [](const Entry& one) { return one.header.number; });
  return found == stored_.end() ? nullptr : &*found;
}

bool ReorderBuffer::has_space(std::uint32_t number) {
  if (stored_.size() < most_) return true;
  std::erase_if(stored_, [&](const Entry& one) { return is_before(one.header.number, number); });
  return stored_.size() < most_;
}

ReorderBuffer::Entry& ReorderBuffer::store(const MessageHeader& header, AlignedBuffer buffer) {
  Entry& stored = stored_.emplace_back();
  stored.header = header;
  stored.buffer = std::move(buffer);
  return stored;
}

void ReorderBuffer::add_piece(std::uint32_t number, const Heading& heading, const std::byte* piece) {
  Entry* stored = find(heading.message.number);
  if (stored == nullptr) {
    if (!has_space(number)) return;
    stored = &store(heading.message, empty_buffer());
    stored->piece = heading.piece;
  }
  const std::uint64_t bit = std::uint64_t{1} << (heading.offset / std::max(1U, heading.piece));
  if (stored->whole() || (stored->pieces & bit) != 0 || stored->header.bytes != heading.message.bytes ||
      stored->piece != heading.piece)
    return;
  stored->pieces |= bit;
  stored->come += heading.length();
  std::memcpy(payload_in(stored->buffer) + heading.offset, piece, heading.length());
}

ReorderBuffer::Entry ReorderBuffer::take(Entry& entry) {
  Entry taken = std::move(entry);
  if (&entry != &stored_.back()) entry = std::move(stored_.back());
  stored_.pop_back();
  return taken;
}

AlignedBuffer ReorderBuffer::empty_buffer() {
  if (spare_.empty()) return make_buffer(kMostJoined);
  AlignedBuffer buffer = std::move(spare_.back());
  spare_.pop_back();
  return buffer;
}

}  // namespace collectives
