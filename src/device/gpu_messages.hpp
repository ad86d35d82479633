// Messages between GPUs.
//
// Inside a host what travels is a notice, in the frames of the host's own messages: it says where the payload lies on
// the sender's GPU, and whoever receives it reads it there, by a kernel or a copy. So a payload crosses from GPU to GPU
// once, when it is worked on, and one that lies in the caller's buffer, or in its output, is written nowhere before. It
// stays as it is until its message is given back.
//
// To other hosts a payload goes out from pinned memory, and what comes in comes to pinned memory, where the GPU reads
// it.
//
// Both sides know when their own GPU is done, so no GPU waits for another: what a sender tells of is there, and what a
// receiver gives back has been read. A channel has as many frames as it can have messages under way, of memory that is
// taken when the first of them is asked for.
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
  /// Between all ranks. All arguments outlive it, and nobody else sends by `notices`, or data by `wire`, during a call.
  GpuMessages(Device& device, GpuPeers& peers, const RankView& view, SharedMemoryTransport& notices, Wire* wire);

  /// A call begins, whose messages have at most so many bytes. All before have been given back.
  void begin(std::size_t frame_bytes);
  /// A GPU that does not come to an end may still use the frames.
  void leak() noexcept;
  /// Whether a rank is of this host.
  bool inside(Rank rank) const noexcept { return channel(rank).local >= 0; }

  std::string_view name() const noexcept override { return "gpu"; }
  std::size_t frame_bytes() const noexcept override { return frame_bytes_; }
  std::byte* acquire_frame(Rank to) override;
  bool has_frame(Rank to) override;
  void send(Rank to, std::uint64_t tag, std::size_t bytes) override;
  /// Inside the host only.
  void send_from(Rank to, std::uint64_t tag, const std::byte* data, std::size_t bytes) override;
  /// Throws Error{system} where the sender's memory cannot be opened.
  const Message* receive(Rank from) override { return receive_into(from, nullptr, frame_bytes_); }
  const Message* receive_into(Rank from, std::byte* place, std::size_t bytes) override;
  void release(Rank from) override;
  bool lent(const std::byte* data, std::size_t bytes) const noexcept override;
  bool sending() override;
  void progress() override {
    if (wire_ != nullptr) wire_->progress();
  }
  void flush(Deadline) override {}  // memory of a GPU goes with its process; a wire is its owner's to flush

 private:
  struct Channel {
    Channel(Device& device, int its_local)
        : local(its_local), frames(device, its_local < 0), receive_buffer(device, true) {}
    int local;                    // of its host; -1: of another
    DeviceBuffer frames;          // for what goes out: on the GPU, or pinned
    DeviceBuffer receive_buffer;  // for what comes from another host
    std::uint64_t sent = 0;       // to another host, ever
    bool open = false;
    Message message;  // that has come, while it is open
  };
  struct Lent {
    Rank to;
    std::uint64_t number;  // of the message
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
  std::deque<Channel> channels_;  // by rank
  std::vector<Lent> lent_;
};

}  // namespace collectives
