// Messages between ranks of one host, through frames in the arena: written once by the sender, read in place by the
// receiver, no locks. Named "shared_memory" between processes and "local" between threads of one process.
#pragma once

#include <vector>

#include "collectives/transport.hpp"
#include "shared_memory/arena.hpp"

namespace collectives {

class SharedMemoryTransport final : public Transport {
 public:
  /// Ranks of this transport are local ranks of `arena`, which outlives it.
  SharedMemoryTransport(const Arena& arena, std::string_view name);

  std::string_view name() const noexcept override { return name_; }
  std::size_t frame_bytes() const noexcept override { return arena_.shape().frame_bytes; }
  std::byte* stage(Rank to) override;
  void send(Rank to, std::uint64_t tag, std::size_t bytes) override;
  const Message* receive(Rank from) override;
  void release(Rank from) override;
  void flush(Deadline) override {}  // the arena outlives the sender

  /// Messages to `to` that have been handed over, ever, and that it has given back.
  std::uint64_t sent(Rank to) const noexcept { return outgoing_[static_cast<std::size_t>(to)].sent; }
  std::uint64_t given_back(Rank to) const noexcept {
    return arena_.channel(arena_.self(), to).released.value.load(std::memory_order_acquire);
  }

 private:
  struct Outgoing {
    std::uint64_t sent = 0, released = 0;  // what the receiver has given back, as last seen
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
