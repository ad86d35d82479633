// The host's plan, performed by GPUs, Step by Step: `ring` and `reduce_to_one`, and on several hosts with several ranks
// whatever the plan says. The executor is the host's; kernels and copies work on its values, its messages are those of
// GPUs (device/gpu_messages.hpp), and in a host Step every rank's kernel sees to its share of the vector. So the sums
// and their bits are the host's, too.
//
// One Step after the other: the next begins when the GPU has done what the last has asked of it.
#pragma once

#include "device/device_buffer.hpp"
#include "device/gpu_messages.hpp"
#include "device/intra_host_path.hpp"
#include "execution/executor.hpp"

namespace collectives {

class StepPath final : public IntraHostPath, private ValueEngine {
 public:
  StepPath(Device& device, const Arena& arena, std::shared_ptr<GpuPeers> peers, const RankView& view,
           const Topology& topology, SharedMemoryTransport& notices, Wire* wire);
  ~StepPath() override;

  void start(const DeviceCall& call, const PlannedCall& planned, Job& job) override;
  PathState progress() override;
  Executor* executor() noexcept override { return &executor_; }
  std::uint64_t moves() const noexcept override { return moves_ + executor_.moves(); }

 private:
  enum class Phase : std::uint8_t { preparing, packing, performing, unpacking };
  enum class HostPhase : std::uint8_t { gathering, working, leaving };

  bool begin() override;
  void copy(std::byte* to, const std::byte* from, std::size_t bytes) override;
  void fold(const ReduceOp& op, DataType type, std::span<const Source> sources, std::byte* out, std::size_t count,
            int finish_ranks) override;
  void end() override;
  bool done() override;
  void begin_host_step(const HostTask& task, const HostOperands& with) override;
  bool advance_host_step() override;
  bool reads_in_place(Rank peer) const override { return messages_.inside(peer); }
  std::byte* work(std::size_t bytes) override;

  bool progress_host_step();

  const RankView& view_;
  const Topology& topology_;
  GpuMessages messages_;
  Executor executor_;
  DeviceBuffer work_;
  Job* job_ = nullptr;
  Phase phase_ = Phase::preparing;
  bool working_ = false;  // a Step is on the GPU
  HostPhase host_phase_ = HostPhase::gathering;
  const HostOperands* with_ = nullptr;
  std::uint64_t host_steps_ = 0;  // so far
};

}  // namespace collectives
