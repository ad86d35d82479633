// Implementation of direct copies, by which ranks of one host transfer long messages. A direct copy copies the data
// once, from the buffer of the sender to the buffer of the receiver. If each rank has a core, both ranks copy. The
// receiver divides the message into pieces, and both ranks claim pieces until none is left.
//
// A rank claims a piece by incrementing a word in shared memory. The upper half of the word is the number of the direct
// copy. The lower half is the number of claimed pieces. A late claim for an earlier direct copy fails, because the
// upper half of the word has changed.
#include "point_to_point/direct_copy.hpp"

#include <algorithm>
#include <cstring>

#include "base/round_up.hpp"

namespace collectives {
namespace {

// Minimum length in bytes of messages that both ranks copy. The receiver copies a shorter message faster alone, because
// it takes time to let the sender take part.
constexpr std::size_t kSharedBytes = 128 << 10;
// Minimum and maximum length of a piece in bytes. Within these limits, a piece is 1/16 of the message. Short pieces are
// slow, because the kernel may need one system call per piece. Long pieces delay the checks for failures between two
// pieces.
constexpr std::size_t kShortestPiece = 64 << 10, kLongestPiece = 512 << 10;
constexpr std::uint64_t kClosed = 0xffffffff;  // lower half of the word while no piece can be claimed

std::size_t piece_of(std::size_t bytes) {
  return std::clamp<std::size_t>(round_up(bytes / 16, 4096), kShortestPiece, kLongestPiece);
}

/// Raises this rank's flag, calls copy(), and lowers the flag. The flag tells peers that this rank accesses their
/// buffers. Does not call copy() if the communicator has failed.
template <class Copy>
bool while_flagged(const Arena& arena, Copy&& copy) {
  struct Flag {
    std::atomic<std::uint64_t>& value;
    explicit Flag(std::atomic<std::uint64_t>& up) : value(up) { value.store(1); }
    ~Flag() { value.store(0, std::memory_order_release); }
  };
  const Flag flag(arena.block(arena.self()).message_access.value);
  return !arena.failed() && copy();
}

}  // namespace

void DirectCopy::begin(MessageOperation& receive, int sender) {
  receive.moved = 0;
  receive.copy = 0;
  if (!shares_ || receive.bytes < kSharedBytes) return;
  SharedCopy& copy = copy_from(sender);
  std::uint32_t& number = copies_[static_cast<std::size_t>(sender)];
  if (++number == 0) number = 1;
  receive.copy = number;
  const std::uint64_t word = std::uint64_t{number} << 32;
  copy.claims.value.store(word | kClosed, std::memory_order_release);
  const RemoteBuffer mine = memory().describe(receive.call.data, receive.bytes);
  const std::size_t piece = piece_of(receive.bytes);
  copy.done.value.store(0, std::memory_order_release);
  copy.id.store(receive.id, std::memory_order_release);
  copy.address.store(mine.address, std::memory_order_release);
  copy.name.store(mine.name, std::memory_order_release);
  copy.pieces.store((receive.bytes + piece - 1) / piece, std::memory_order_release);
  copy.piece_bytes.store(piece, std::memory_order_release);
  copy.claims.value.store(word, std::memory_order_release);
}

bool DirectCopy::read(MessageOperation& receive, int sender, std::size_t from, std::size_t bytes) {
  return while_flagged(arena_, [&] {
    const std::byte* const source = memory().pointer(sender, {receive.address, receive.name}, receive.bytes);
    std::byte* const to = receive.call.data + from;
    if (source == nullptr) return memory().read(sender, to, receive.address + from, bytes);
    std::memcpy(to, source + from, bytes);
    return true;
  });
}

bool DirectCopy::receive_piece(MessageOperation& receive, int sender) {
  if (receive.copy == 0) {
    const std::size_t bytes = std::min(piece_of(receive.bytes), receive.bytes - receive.moved);
    if (!read(receive, sender, receive.moved, bytes)) return false;
    receive.moved += bytes;
    return receive.moved == receive.bytes;
  }
  SharedCopy& copy = copy_from(sender);
  const std::uint64_t pieces = copy.pieces.load(std::memory_order_relaxed);
  const std::size_t piece = copy.piece_bytes.load(std::memory_order_relaxed);
  std::uint64_t word = copy.claims.value.load(std::memory_order_relaxed);
  while ((word & kClosed) < pieces) {
    if (!copy.claims.value.compare_exchange_weak(word, word + 1, std::memory_order_relaxed)) continue;
    const std::size_t from = (word & kClosed) * piece, bytes = std::min(piece, receive.bytes - from);
    if (!read(receive, sender, from, bytes)) return false;
    receive.moved += bytes;
    copy.done.value.fetch_add(1, std::memory_order_acq_rel);
    break;
  }
  return copy.done.value.load(std::memory_order_acquire) == pieces;
}

bool DirectCopy::send_piece(const MessageOperation& send, int receiver) {
  if (!shares_ || send.bytes < kSharedBytes) return false;
  SharedCopy& copy = arena_.messages(arena_.self(), receiver).copy;
  std::uint64_t word = copy.claims.value.load(std::memory_order_acquire);
  if (copy.id.load(std::memory_order_acquire) != send.id) return false;
  const RemoteBuffer to{copy.address.load(std::memory_order_acquire), copy.name.load(std::memory_order_acquire)};
  const std::uint64_t pieces = copy.pieces.load(std::memory_order_acquire);
  const std::size_t piece = copy.piece_bytes.load(std::memory_order_acquire);
  // The receiver sets the lower half of the word to kClosed before it changes a field. If the claim below succeeds, all
  // fields that were read belong to this copy.
  if ((word & kClosed) >= pieces) return false;
  std::byte* const place = memory().pointer(receiver, to, send.bytes);
  if (place == nullptr && !kernel_) return false;
  if (!copy.claims.value.compare_exchange_strong(word, word + 1, std::memory_order_acq_rel)) return false;
  const std::size_t from = (word & kClosed) * piece, bytes = std::min(piece, send.bytes - from);
  const bool copied = while_flagged(arena_, [&] {
    const std::byte* const source = send.call.data + from;
    if (place == nullptr) return memory().write(receiver, to.address + from, source, bytes);
    std::memcpy(place + from, source, bytes);
    return true;
  });
  if (copied) copy.done.value.fetch_add(1, std::memory_order_acq_rel);
  return copied;
}

}  // namespace collectives
