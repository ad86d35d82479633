// Direct copy: copies a long message once, from the buffer of its sender to the buffer of its receiver on the same
// host.
//
// The sender announces the address of its buffer. A rank accesses the buffer of the other rank through a pointer, or
// lets the kernel copy the bytes (peer_memory.hpp).
//
// If each rank has a core, both ranks copy a message of 128 KiB or more. The receiver cuts it into pieces and publishes
// a SharedCopy in the arena, the shared memory of the host. Both ranks claim pieces until none is left. If the sender
// is computing, it claims nothing, and the receiver copies all pieces.
//
// Before a rank copies a piece, it raises its flag message_access, and then checks for a failure of the communicator.
// After the piece, it lowers the flag. A rank that fails waits until its peers have lowered their flags
// (FailureDetector::wait_for_remote_access_end).
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "point_to_point/message_operation.hpp"
#include "shared_memory/arena.hpp"
#include "shared_memory/peer_memory.hpp"

namespace collectives {

class DirectCopy {
 public:
  /// Maximum length in bytes of a message that is copied twice, through the arena, although a direct copy is possible.
  /// From 2 KiB on, a direct copy takes less time. But with a direct copy, the sender must wait for the receiver.
  static constexpr std::size_t kLongestCopiedTwice = 4 << 10;

  /// `threads`, `kernel`: the parameters of PeerMemory. `shares`: whether sender and receiver both copy pieces of a
  /// long message.
  DirectCopy(const Arena& arena, bool threads, bool kernel, bool shares)
      : arena_(arena),
        threads_(threads),
        kernel_(kernel),
        shares_(shares),
        copies_(static_cast<std::size_t>(arena.ranks())) {}

  /// Returns whether `receiver`, another local rank, soon reads `bytes` bytes at `data` by a pointer. One copy then
  /// takes less time than the two copies of an eager message. If the host has more ranks than cores, the sender would
  /// wait until the receiver has a core.
  bool takes_less_time(int receiver, const std::byte* data, std::size_t bytes) {
    return shares_ && bytes > kLongestCopiedTwice && receiver != arena_.self() &&
           memory().mapped(memory().describe(data, bytes));
  }
  /// Returns what the receiver needs to read `bytes` bytes at `data`.
  RemoteBuffer describe(const std::byte* data, std::size_t bytes) { return memory().describe(data, bytes); }
  /// Returns whether this rank can read the announced buffer of local rank `sender`.
  bool can_read(int sender, const RemoteBuffer& buffer, std::size_t bytes) {
    return kernel_ || memory().pointer(sender, buffer, bytes) != nullptr;
  }
  /// Begins a receive from local rank `sender`. Its fields `address` and `name` are those of the announcement. At most
  /// one receive per sender may have begun and not ended.
  void begin(MessageOperation& receive, int sender);
  /// Copies the next piece of a receive that has begun. Returns whether all pieces have been copied. Throws the errors
  /// of PeerMemory.
  bool receive_piece(MessageOperation& receive, int sender);
  /// Copies a piece of a send if local rank `receiver` shares the copy and pieces are left. Returns whether it has
  /// copied one. Throws the errors of PeerMemory.
  bool send_piece(const MessageOperation& send, int receiver);

 private:
  PeerMemory& memory() {
    if (!memory_) memory_.emplace(arena_, threads_, kernel_, SegmentTable::messages);
    return *memory_;
  }
  SharedCopy& copy_from(int sender) const noexcept { return arena_.messages(sender, arena_.self()).copy; }
  bool read(MessageOperation& receive, int sender, std::size_t from, std::size_t bytes);

  const Arena& arena_;
  const bool threads_, kernel_, shares_;
  std::optional<PeerMemory> memory_;   // made for the first long message, because it needs a table per peer
  std::vector<std::uint32_t> copies_;  // by local sender: number of its newest SharedCopy
};

}  // namespace collectives
