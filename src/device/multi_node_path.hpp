// An all-reduce on several hosts: what `hierarchical` does, with the GPUs at its ends. The GPUs of a host add, each a
// slice of the vector, of all ranks; a slice comes to the host by pinned memory and is all-reduced along its rail, as
// the plan says; it goes back, and from there to all GPUs of the host. So a rank moves its slice over its bus, once
// there and once back, and the host adds nothing that the hosts' sums are not.
//
// Inside a host that is done by kernels, which reach into the others' memory, or by NCCL: a reduce-scatter and an
// all-gather. By kernels a slice of every buffer is read, and written, by its owner only; so in place nobody's
// contribution is lost, and it is enough to meet before the first and behind the last of it.
//
// With a compressor (TopK), what goes along the rail is what each owner chooses from its slice of the sum
// (device/top_k_on_gpu.hpp). Where a tensor keeps something else than this rank's slice, on any rank of a host,
// as before its first call, all of them move what they keep to owners, in memory of the host: that call is staged.
//
// All ranks have the same bits. By kernels they are those of `hierarchical` on the host, unless that is a ring of three
// hosts or more in several rounds: there pieces of floats may lie at other hosts, and are added in another order. NCCL
// adds in an order of its own.
#pragma once

#include <memory>
#include <vector>

#include "device/device_buffer.hpp"
#include "device/intra_host_path.hpp"
#include "device/nccl_collective.hpp"
#include "device/pipelined_copy.hpp"
#include "device/top_k_on_gpu.hpp"
#include "execution/executor.hpp"

namespace collectives {

class RankView;

class MultiNodePath final : public IntraHostPath {
 public:
  /// `host_copy`: for what has to be moved first. `nccl_comm`: of this host's ranks, by local rank; null: they reach
  /// one another's memory.
  MultiNodePath(const std::shared_ptr<Device>& device, const Arena& arena, std::shared_ptr<GpuPeers> peers,
                const RankView& view, const Topology& topology, PathExecutor& host_copy,
                std::unique_ptr<NcclComm> nccl_comm);
  ~MultiNodePath() override;

  void start(const DeviceCall& call, const PlannedCall& planned, Job& job) override;
  PathState progress() override;
  void abandon() noexcept override;
  /// Null without NCCL.
  NcclComm* nccl_comm() const noexcept {
    return nccl_collective_ == nullptr ? nullptr : &nccl_collective_->nccl_comm();
  }

 private:
  enum class Phase : std::uint8_t {
    preparing,
    packing,
    gathering,
    adding,
    fetching,
    inter_node,
    distributing,
    draining,
    leaving
  };

  PathState wait_for(PathState state, Phase phase);
  PathState next_phase();
  bool has_to_move() const;
  PathState delegate_to_host_copy();
  void divide(const PlannedCall& planned);
  void add();
  void fetch_sum();
  void bring_sum();
  void describe_rail();
  void distribute_slice();
  void start_nccl(Collective collective, const std::byte* input, std::byte* output);
  /// Whether what was begun by NCCL is in its stream.
  bool in_stream() { return nccl_collective_ == nullptr || nccl_collective_->progress(); }
  /// Whether the stream has come to where `done_` was recorded. Throws what has gone wrong in it.
  bool reached() {
    return (nccl_collective_ == nullptr || nccl_collective_->nccl_comm().ready()) && device_.reached(done_);
  }
  std::size_t bytes() const { return slice_.count * task_.element; }
  /// Lies as the slice does in this rank's buffer, so that kernels take both by vectors.
  std::byte* sum() const noexcept { return sum_.as<std::byte>(sum_at_); }
  /// From where element 0 of the vector would be. Never used to reach outside.
  std::byte* sum_as_vector() const noexcept {
    return reinterpret_cast<std::byte*>(reinterpret_cast<std::uintptr_t>(sum()) - slice_.first * task_.element);
  }

  const RankView& view_;
  const Topology& topology_;
  PathExecutor& host_copy_;
  PathExecutor* delegate_ = nullptr;  // performs the call under way
  DeviceBuffer sum_, sum_here_;       // of this rank's slice: on the GPU, and pinned
  PipelinedCopy pipelined_copy_;      // between them
  Device::Stream stream_back_ = nullptr;
  Device::Event back_ = nullptr;
  Job* job_ = nullptr;
  const PlannedCall* planned_ = nullptr;
  const Plan* plan_ = nullptr;
  Plan rail_plan_;
  ReduceOp op_;
  DataType type_ = DataType::f32;
  Range slice_{};  // of this rank
  std::size_t sum_at_ = 0;
  TopKOnGpu top_k_;
  SparseTensor* tensor_ = nullptr;  // of the call under way; null: everything goes along the rail
  const SparsePlan* sparse_ = nullptr;
  std::unique_ptr<NcclCollective> nccl_collective_;
  std::vector<std::size_t> offsets_;  // of slices, for NCCL
  Phase phase_ = Phase::preparing;
};

}  // namespace collectives
