// GpuMessages: a transport for messages with data in GPU memory.
//
// Inside a host, the payload (the data of a message) stays on the sender's GPU. The sender sends only a notice with the
// address of the payload, by the transport for CPU memory. The receiver reads the payload at that address, by a kernel
// or a copy. A payload thus moves between GPUs only once, when it is used. The sender does not copy a payload that lies
// in the caller's input or output. To give a message back is to report that its payload has been read. The payload must
// stay unchanged until the receiver gives the message back.
//
// A payload to or from another host is copied through pinned memory. Pinned memory is CPU memory that the GPU can
// access.
//
// No GPU waits for another GPU. Instead, each rank waits for its own GPU. A sender sends a notice once its GPU has
// written the payload. A receiver gives a message back once its GPU has read the payload.
//
// A frame is memory of the sender for one payload. For each receiver, the sender has one frame for each message that
// can be in flight. The sender allocates the frames for a receiver when it first uses them.
#pragma once

#include <cstdint>
#include <deque>
#include <vector>

#include "collectives/transport.hpp"
#include "device/device.hpp"
#include "device/device_buffer.hpp"
#include "device/gpu_peers.hpp"
#include "steps/algorithm.hpp"
#include "transport/shared_memory.hpp"

namespace collectives {

class GpuMessages final : public Transport {
 public:
  /// Connects all ranks. `notices`: the transport that carries notices. `wire`: the transport to other hosts, or null.
  /// All arguments must outlive the object. During a call no other object may send by `notices`, or send data by
  /// `wire`.
  GpuMessages(Device& device, GpuPeers& peers, const RankView& view, SharedMemoryTransport& notices, Wire* wire);

  /// Begins a call with messages of at most `frame_bytes` bytes. Requires that all earlier messages have been given
  /// back.
  void begin(std::size_t frame_bytes);
  /// Leaks the frames, because a GPU that does not finish may still use them.
  void leak() noexcept;
  /// Returns true if the rank is on this host.
  bool inside(Rank rank) const noexcept { return channel(rank).local >= 0; }

  std::string_view name() const noexcept override { return "gpu"; }
  std::size_t frame_bytes() const noexcept override { return frame_bytes_; }
  std::byte* acquire_frame(Rank to) override;
  bool has_frame(Rank to) override;
  void send(Rank to, std::uint64_t tag, std::size_t bytes) override;
  /// Requires that `to` is a rank of this host.
  void send_from(Rank to, std::uint64_t tag, const std::byte* data, std::size_t bytes) override;
  /// Throws Error{system} if the sender's memory cannot be opened.
  const Message* receive(Rank from) override { return receive_into(from, nullptr, frame_bytes_); }
  const Message* receive_into(Rank from, std::byte* place, std::size_t bytes) override;
  void release(Rank from) override;
  bool lent(const std::byte* data, std::size_t bytes) const noexcept override;
  bool sending() override;
  void progress() override {
    if (wire_ != nullptr) wire_->progress();
  }
  // Does nothing. GPU memory is freed with its process, and the wire's owner flushes the wire.
  void flush(Deadline) override {}

 private:
  struct Channel {
    Channel(Device& device, int its_local)
        : local(its_local), frames(device, its_local < 0), receive_buffer(device, true) {}
    int local;                    // Local rank on this host. -1: on another host.
    DeviceBuffer frames;          // Outgoing frames: on the GPU, or pinned for another host.
    DeviceBuffer receive_buffer;  // Buffer for messages from another host.
    std::uint64_t sent = 0;       // Number of messages sent to another host.
    bool open = false;
    Message message;  // Current incoming message, while `open`.
  };
  struct Lent {
    Rank to;
    std::uint64_t number;  // Number of the message.
    const std::byte* first;
    std::size_t bytes;
  };
  Channel& channel(Rank rank) noexcept { return channels_[static_cast<std::size_t>(rank)]; }
  const Channel& channel(Rank rank) const noexcept { return channels_[static_cast<std::size_t>(rank)]; }
  std::size_t stride() const noexcept;
  std::size_t frames_of(const Channel&) const noexcept;
  std::byte* frame(const Channel&) const noexcept;
  bool given_back(const Lent&) const noexcept;
  void send_notice(const Channel& to, std::uint64_t tag, const std::byte* data, std::size_t bytes);
  const Message* receive_here(Channel& from);
  const Message* receive_from_wire(Channel& from, Rank rank, std::size_t bytes);

  GpuPeers& peers_;
  SharedMemoryTransport& notices_;
  Wire* wire_;
  std::size_t frame_bytes_ = 0;
  std::deque<Channel> channels_;  // Indexed by rank.
  std::vector<Lent> lent_;
};

}  // namespace collectives
