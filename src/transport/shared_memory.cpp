// Implementation of the transport between ranks of one host. A channel carries the messages from one rank to another. A
// frame is shared memory for one message. A channel has kFrames frames, which the sender uses in turn.
#include "transport/shared_memory.hpp"

#include <new>

namespace collectives {
namespace {

struct alignas(kUnitHeader) FrameHeader {
  std::uint64_t tag;
  std::uint64_t bytes;
};
static_assert(sizeof(FrameHeader) == kUnitHeader);

}  // namespace

SharedMemoryTransport::SharedMemoryTransport(const Arena& arena, std::string_view name)
    : arena_(arena),
      name_(name),
      outgoing_(static_cast<std::size_t>(arena.ranks())),
      incoming_(static_cast<std::size_t>(arena.ranks())) {}

std::byte* SharedMemoryTransport::acquire_frame(Rank to) {
  Outgoing& out = outgoing_[static_cast<std::size_t>(to)];
  if (out.sent - out.released == kFrames) {
    out.released = arena_.channel(arena_.self(), to).released.value.load(std::memory_order_acquire);
    if (out.sent - out.released == kFrames) return nullptr;
  }
  return arena_.frame(arena_.self(), to, out.sent) + kUnitHeader;
}

void SharedMemoryTransport::send(Rank to, std::uint64_t tag, std::size_t bytes) {
  Outgoing& out = outgoing_[static_cast<std::size_t>(to)];
  new (arena_.frame(arena_.self(), to, out.sent)) FrameHeader{tag, bytes};
  arena_.channel(arena_.self(), to).sent.value.store(++out.sent, std::memory_order_release);
}

const Message* SharedMemoryTransport::receive(Rank from) {
  Incoming& in = incoming_[static_cast<std::size_t>(from)];
  if (!in.open) {
    if (arena_.channel(from, arena_.self()).sent.value.load(std::memory_order_acquire) == in.received) return nullptr;
    const std::byte* frame = arena_.frame(from, arena_.self(), in.received);
    const auto* header = reinterpret_cast<const FrameHeader*>(frame);
    in.message = {header->tag, frame + kUnitHeader, header->bytes};
    in.open = true;
  }
  return &in.message;
}

void SharedMemoryTransport::release(Rank from) {
  Incoming& in = incoming_[static_cast<std::size_t>(from)];
  in.open = false;
  arena_.channel(from, arena_.self()).released.value.store(++in.received, std::memory_order_release);
}

}  // namespace collectives
