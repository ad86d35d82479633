// Messages between the GPUs of one host's ranks. What travels is a notice, in the frames of the host's own messages: it
// says where the payload lies on the sender's GPU, and whoever receives it reads it there, by a kernel or a copy. So a
// payload crosses from GPU to GPU once, when it is worked on, and one that lies in the caller's buffer, or in its
// output, is written nowhere before.
//
// A payload stays as it is until its message is given back. Both sides know when their own GPU is done, so no GPU waits
// for another: what a sender tells of is there, and what a receiver gives back has been read.
//
// A channel has as many frames on the GPU as it has for notices, of memory that is taken when the first of them is
// asked for.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "device/device.hpp"
#include "device/peers.hpp"
#include "device/room.hpp"
#include "transport/shared_memory.hpp"

namespace collectives {

class GpuMessages final : public Transport {
 public:
  /// Ranks of this transport are local ranks. All arguments outlive it; nobody else sends by `notices` during a call.
  GpuMessages(Device& device, GpuPeers& peers, SharedMemoryTransport& notices, int ranks);

  /// A call begins, whose messages have at most so many bytes. All before have been given back.
  void begin(std::size_t frame_bytes);
  /// A GPU that does not come to an end may still use the frames.
  void keep_for_good() noexcept;

  std::string_view name() const noexcept override { return "gpu"; }
  std::size_t frame_bytes() const noexcept override { return frame_bytes_; }
  std::byte* stage(Rank to) override;
  bool has_frame(Rank to) override { return notices_.stage(to) != nullptr; }
  void send(Rank to, std::uint64_t tag, std::size_t bytes) override { tell(to, tag, frame(to), bytes); }
  void send_from(Rank to, std::uint64_t tag, const std::byte* data, std::size_t bytes) override;
  /// Throws Error{system} where the sender's memory cannot be opened.
  const Message* receive(Rank from) override;
  void release(Rank from) override;
  bool lent(const std::byte* data, std::size_t bytes) const noexcept override;
  bool sending() override;
  void flush(Deadline) override {}  // memory of a GPU goes with its process

 private:
  struct Incoming {
    bool open = false;
    Message message;
  };
  struct Lent {
    Rank to;
    std::uint64_t number;  // of the message
    const std::byte* first;
    std::size_t bytes;
  };
  std::byte* frame(Rank to) const noexcept;
  void tell(Rank to, std::uint64_t tag, const std::byte* data, std::size_t bytes);

  GpuPeers& peers_;
  SharedMemoryTransport& notices_;
  std::size_t frame_bytes_ = 0;
  std::vector<std::unique_ptr<DeviceRoom>> frames_;  // by peer
  std::vector<Incoming> incoming_;
  std::vector<Lent> lent_;
};

}  // namespace collectives
