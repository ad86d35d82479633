// Transport for messages between ranks of one host, through frames in the arena, the shared memory of the host. A frame
// is memory for one message.
//
// The sender writes a message once into a frame. The receiver reads it in the frame. No locks are used. The transport
// is called "shared_memory" between processes, and "local" between threads of one process.
//
// A channel from one rank to another has kFrames frames. A plan that cuts the vector into rounds overlaps them only if
// all messages go to other hosts. In a ring inside a host, rounds therefore do not overlap.
#pragma once

#include <vector>

#include "collectives/transport.hpp"
#include "shared_memory/arena.hpp"

namespace collectives {

class SharedMemoryTransport final : public Transport {
 public:
  /// Makes the transport. Its ranks are the local ranks of `arena`, which must outlive it.
  SharedMemoryTransport(const Arena& arena, std::string_view name);

  std::string_view name() const noexcept override { return name_; }
  std::size_t frame_bytes() const noexcept override { return arena_.shape().frame_bytes; }
  std::byte* acquire_frame(Rank to) override;
  void send(Rank to, std::uint64_t tag, std::size_t bytes) override;
  const Message* receive(Rank from) override;
  void release(Rank from) override;
  void flush(Deadline) override {}  // the arena outlives the sender

  /// Returns the messages ever sent to `to`, and those that it has released.
  std::uint64_t sent(Rank to) const noexcept { return outgoing_[static_cast<std::size_t>(to)].sent; }
  std::uint64_t given_back(Rank to) const noexcept {
    return arena_.channel(arena_.self(), to).released.value.load(std::memory_order_acquire);
  }

 private:
  struct Outgoing {
    std::uint64_t sent = 0, released = 0;  // released as last read
  };
  struct Incoming {
    std::uint64_t received = 0;
    bool open = false;
    Message message;
  };

  const Arena& arena_;
  std::string_view name_;
  std::vector<Outgoing> outgoing_;
  std::vector<Incoming> incoming_;
};

}  // namespace collectives
