// Transport between the ranks of one host: a message passes through a frame in the arena. The arena is the shared
// memory of the host. A frame is memory for one message.
//
// The sender writes a message once, into a frame. The receiver reads the message there. No locks are used. The
// transport is called "shared_memory" between processes, and "local" between threads of one process.
//
// A channel carries the messages from one rank to another. Its kFrames frames are used in turn. A sender can be kFrames
// messages ahead of the receiver. A long vector is processed in rounds, one segment of each part at a time. If a call
// uses this transport, a rank completes each round before it begins the next one. Rounds overlap only if all messages
// of the call go to other hosts.
#pragma once

#include <vector>

#include "collectives/transport.hpp"
#include "shared_memory/arena.hpp"

namespace collectives {

class SharedMemoryTransport final : public Transport {
 public:
  /// Makes a transport between the ranks of `arena`. The arena must outlive the transport.
  SharedMemoryTransport(const Arena& arena, std::string_view name);

  std::string_view name() const noexcept override { return name_; }
  std::size_t frame_bytes() const noexcept override { return arena_.shape().frame_bytes; }
  std::byte* acquire_frame(Rank to) override;
  void send(Rank to, std::uint64_t tag, std::size_t bytes) override;
  const Message* receive(Rank from) override;
  void release(Rank from) override;
  void flush(Deadline) override {}  // a sent message stays in the arena, which outlives its sender

  /// Returns the number of messages that this rank has ever sent to rank `to`. The function given_back() returns how
  /// many of these messages rank `to` has released.
  std::uint64_t sent(Rank to) const noexcept { return outgoing_[static_cast<std::size_t>(to)].sent; }
  std::uint64_t given_back(Rank to) const noexcept {
    return arena_.channel(arena_.self(), to).released.value.load(std::memory_order_acquire);
  }

 private:
  struct Outgoing {
    // `sent`: number of messages sent. `released`: number of these messages that the receiver has released, as last
    // read from the arena.
    std::uint64_t sent = 0, released = 0;
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
