// The host's plan, performed by GPUs: what `ring` and `reduce_to_one` do, whose Steps are messages, where hosts have
// several ranks. A rank meets only those that its Steps name. The executor is the host's; its values are worked on by
// kernels and copies, and its messages are those of GPUs (device/gpu_messages.hpp), so the sums and their bits are the
// host's, too.
//
// One Step after the other: the next begins when the GPU has done what the last has asked of it.
#pragma once

#include "device/gpu_messages.hpp"
#include "device/in_host.hpp"
#include "device/room.hpp"
#include "executor.hpp"

namespace collectives {

class MessagesWay final : public InHostWay, private ValueEngine {
 public:
  MessagesWay(Device& device, const Arena& arena, std::shared_ptr<GpuPeers> peers, const Seat& seat,
              SharedMemoryTransport& notices, Wire* wire);
  ~MessagesWay() override;

  void start(const DeviceCall& call, const PlannedCall& planned, Job& job) override;
  Turn advance() override;
  std::uint64_t moves() const noexcept override { return moves_ + executor_.moves(); }

 private:
  enum class Phase : std::uint8_t { coming, copying_there, performing, copying_back };

  bool begin() override;
  void copy(std::byte* to, const std::byte* from, std::size_t bytes) override;
  void fold(const ReduceOp& op, DataType type, std::span<const Source> sources, std::byte* out, std::size_t count,
            int finish_ranks) override;
  void end() override;
  bool done() override;
  bool reads_in_place(Rank peer) const override { return messages_.inside(peer); }
  std::byte* work(std::size_t bytes) override;

  GpuMessages messages_;
  Executor executor_;
  DeviceRoom work_;
  Job* job_ = nullptr;
  Phase phase_ = Phase::coming;
  bool working_ = false;  // a Step is on the GPU
};

}  // namespace collectives
