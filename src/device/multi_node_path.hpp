// MultiNodePath: performs an all-reduce on GPU memory across several hosts. At least one host has several ranks. The
// class is a device path, a way to perform calls on GPU memory.
//
// A rail is one rank of each host, all with the same local number. The vector is cut into slices: one slice per rail,
// or a single slice for the first rail. A call has these phases:
//
// 1. The GPUs of each host add the vectors of its ranks. Afterwards, the GPU of each rank that owns a slice holds the
//    sum of that slice over its host.
// 2. Each rank copies its slice to pinned memory, CPU memory that the GPU can access.
// 3. The CPU all-reduces the slice along its rail, by the algorithm of the plan (`CollectiveSpec::inter_host_only`).
// 4. Each rank copies the slice back and distributes it to all GPUs of its host.
//
// The slice of a rank therefore crosses the bus between GPU and CPU only once in each direction. The CPU adds only the
// sums of hosts. Every transport and every codec works, because phase 3 works on CPU memory.
//
// Phases 1 and 4 have two forms:
//
// - Kernels access the memory of the other GPUs. A slice has one owner on each host. Only this owner reads and writes
//   the slice in the buffers of the host's ranks. An in-place call therefore overwrites no input that another rank
//   still needs. The ranks of a host synchronize only before phase 1 and after phase 4.
// - NCCL performs a reduce-scatter and an all-gather. This form is for GPUs that cannot access each other's memory.
//
// With a compressor (TopK), the rank that holds a slice after phase 1 is its owner. The owner sends only the elements
// of greatest magnitude of its slice (device/top_k_on_gpu.hpp). It keeps the residual, the part of gradients that was
// not sent yet. In the first call of a tensor, other ranks may still have residuals of the slice. In this call, all
// ranks of the host use HostCopyPath, which moves the residuals to the owners.
//
// All ranks receive the same bits. With kernels, the bits equal those of backend `hierarchical` on CPU memory.
// Exception: in a ring of three or more hosts with several rounds, an element may belong to another host than on CPU
// memory. The hosts then add the values of this element in another order, which can change the bits of floats. NCCL
// adds in an order of its own.
//
// Price: phases 1, 3 and 4 do not overlap. A long call on CPU memory works in rounds, and these phases of different
// rounds overlap.
#pragma once

#include <memory>
#include <vector>

#include "device/device_buffer.hpp"
#include "device/intra_host_call.hpp"
#include "device/nccl_collective.hpp"
#include "device/pipelined_copy.hpp"
#include "device/top_k_on_gpu.hpp"
#include "execution/executor.hpp"

namespace collectives {

class RankView;

class MultiNodePath final : public PathExecutor {
 public:
  /// The path `host_copy` performs the calls that must first move residuals. The communicator `nccl_comm` connects the
  /// ranks of this host, numbered by local rank. Null: their GPUs access each other's memory.
  MultiNodePath(const std::shared_ptr<Device>& device, const Arena& arena, std::shared_ptr<GpuPeers> peers,
                const RankView& view, const Topology& topology, PathExecutor& host_copy,
                std::unique_ptr<NcclComm> nccl_comm);
  ~MultiNodePath() override;

  void start(const DeviceCall& call, const PlannedCall& planned, Job& job) override;
  PathState progress() override;
  void abandon() noexcept override;
  std::uint64_t moves() const noexcept override { return moves_ + host_.moves(); }
  /// Returns null if this path does not use NCCL.
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
  /// Returns true if all started calls of NCCL are in the stream, or if NCCL is not used.
  bool in_stream() { return nccl_collective_ == nullptr || nccl_collective_->progress(); }
  /// Returns true if the stream has reached the last recording of its event. Throws the errors of work in the stream.
  bool reached() {
    return (nccl_collective_ == nullptr || nccl_collective_->nccl_comm().ready()) && host_.stream().reached();
  }
  std::size_t bytes() const { return slice_.count * task_.element; }
  /// Returns this rank's sum. It has the alignment of the slice in this rank's buffer, so that kernels access 16 bytes
  /// at a time in both.
  std::byte* sum() const noexcept { return sum_.as<std::byte>(sum_at_); }
  /// Returns the sum as an address of element 0 of the vector. Only elements of the slice are accessed.
  std::byte* sum_as_vector() const noexcept {
    return reinterpret_cast<std::byte*>(reinterpret_cast<std::uintptr_t>(sum()) - slice_.first * task_.element);
  }

  Device& device_;
  const Arena& arena_;
  const RankView& view_;
  const Topology& topology_;
  PathExecutor& host_copy_;
  HostTask task_;  // The call.
  IntraHostCall host_;
  PathExecutor* delegate_ = nullptr;  // Path that performs the current call instead of this one.
  DeviceBuffer sum_, sum_here_;       // Sum of this rank's slice: on the GPU, and in pinned memory.
  PipelinedCopy pipelined_copy_;      // Copies between sum_ and sum_here_.
  TrackedStream stream_back_;         // Stream of the copies to the GPU.
  Job* job_ = nullptr;
  const PlannedCall* planned_ = nullptr;
  const Plan* plan_ = nullptr;
  Plan rail_plan_;
  ReduceOp op_;
  DataType type_ = DataType::f32;
  Range slice_{};  // Slice of this rank.
  std::size_t sum_at_ = 0;
  TopKOnGpu top_k_;
  SparseTensor* tensor_ = nullptr;  // Tensor of the current call. Null: the call is not compressed.
  const SparsePlan* sparse_ = nullptr;
  std::unique_ptr<NcclCollective> nccl_collective_;
  std::vector<std::size_t> offsets_;  // Offsets of the slices, for NCCL.
  // Arguments of the next kernel.
  std::vector<Source> sources_;
  std::vector<std::byte*> outs_;
  Phase phase_ = Phase::preparing;
  std::uint64_t moves_ = 0;
};

}  // namespace collectives
