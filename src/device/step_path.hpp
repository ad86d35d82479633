// StepPath: performs the Steps of a call on GPUs, one after another. A Step is one action of a rank. It takes values,
// may combine them, may store the result, and may send it. StepPath is a device path, a way to perform calls on GPU
// memory.
//
// On one host, the path serves the backends `ring` and `reduce_to_one`. On several hosts, it serves all algorithms if
// some host has several ranks. The executor (execution/executor.hpp) performs the Steps of a call on CPU memory and of
// a call on GPU memory. Three kinds of work differ on GPU memory:
//
// - Kernels and copies of the GPU process the values (ValueEngine).
// - Messages inside a host hold GPU addresses. Messages to other hosts hold the data (device/gpu_messages.hpp).
// - In a host Step, a collective of the ranks of one host, each rank's kernel processes one share of the vector
//   (device/host_share.hpp).
//
// The algorithms are therefore the same as on CPU memory. The result has the same bits as on CPU memory.
//
// Price: Steps do not overlap. The CPU polls until the GPU has finished a Step, and then starts the next Step. The path
// performs no call whose messages a codec encodes.
#pragma once

#include "device/device_buffer.hpp"
#include "device/gpu_messages.hpp"
#include "device/host_share.hpp"
#include "device/intra_host_call.hpp"
#include "execution/executor.hpp"
#include "execution/value_engine.hpp"

namespace collectives {

class StepPath final : public PathExecutor, private ValueEngine {
 public:
  StepPath(Device& device, const Arena& arena, std::shared_ptr<GpuPeers> peers, const RankView& view,
           const Topology& topology, SharedMemoryTransport& notices, Wire* wire);
  ~StepPath() override;

  void start(const DeviceCall& call, const PlannedCall& planned, Job& job) override;
  PathState progress() override;
  void abandon() noexcept override { host_.abandon(); }
  Executor* executor() noexcept override { return &executor_; }
  std::uint64_t moves() const noexcept override { return moves_ + host_.moves() + executor_.moves(); }

 private:
  enum class Phase : std::uint8_t { preparing, packing, performing, unpacking };
  enum class HostPhase : std::uint8_t { gathering, working, leaving };

  bool begin() override;
  void copy(std::byte* to, const std::byte* from, std::size_t bytes) override;
  void fold(const ReduceOp& op, DataType type, std::span<const Source> sources, std::byte* out, std::size_t count,
            int finish_ranks) override;
  void end() override;
  bool done() override;
  void begin_host_step(const Step& step, const HostOperands& with) override;
  bool progress_host_step() override;
  std::byte* work(std::size_t bytes) override;

  bool progress_host_phase();

  Device& device_;
  const Arena& arena_;
  const RankView& view_;
  const Topology& topology_;
  HostTask task_;  // The call, or the host Step in progress.
  IntraHostCall host_;
  HostShare share_;
  GpuMessages messages_;
  Executor executor_;
  DeviceBuffer work_;
  Job* job_ = nullptr;
  Phase phase_ = Phase::preparing;
  bool working_ = false;  // True: a Step is in progress on the GPU.
  HostPhase host_phase_ = HostPhase::gathering;
  const HostOperands* with_ = nullptr;
  std::uint64_t moves_ = 0;
  std::uint64_t host_steps_ = 0;  // Number of host Steps so far.
};

}  // namespace collectives
