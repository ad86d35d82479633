// TopKOnGpu: performs top-k on the GPU that holds the gradient. Top-k is an all-reduce in which each rank sends only k
// elements, those of greatest magnitude. A call has these phases:
//
// 1. The GPU adds the gradient to the residual (see below). It selects k elements of the sum (cuda/select.cu).
// 2. The selected elements are copied to pinned memory, CPU memory that the GPU can access.
// 3. The CPUs exchange the selections of all ranks (compression/top_k/sparse_exchange.hpp).
// 4. The received selections are copied to the GPU, which clears the result and adds them in rank order
//    (cuda/sparse.cu).
//
// A rank thus copies 8 bytes per selected element to CPU memory: an index and a value. A dense all-reduce would copy
// every element of the tensor to CPU memory and back: 8 bytes per element of the tensor.
//
// A rank usually selects elements from the whole tensor. If the ranks of a host first add their gradients, a rank
// selects elements only from its slice, a range of the sum.
//
// The residual is the part of gradients that was not sent yet. The velocity is the decaying sum of gradients that
// momentum correction uses. Residual and velocity stay on the GPU between calls. They belong to the tensor, not to the
// communicator (`DeviceResidual`). They are copied to CPU memory for TopK::save(), for a report with norms, and after a
// failed call. They are also copied there if the CPU or another GPU performs the next call.
//
// The results have the same bits as on the CPU. Equal gradients lead to the same selections, which are added in the
// same order. Sums that NCCL has computed inside a host may differ in their last bits.
//
// Price: the owner of a slice, which selects elements from it, needs the residuals of all ranks for this slice. Only
// the CPU can move residuals between ranks. If the ranks of a host first add their gradients, the first call of a
// tensor therefore uses HostCopyPath.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "device/device_buffer.hpp"
#include "planning/sparse_plan.hpp"

namespace collectives {

class GpuResidual;
class SparseTensor;

/// Work of top-k calls on the GPU, one call after another. All work goes into a stream of the caller, a device path,
/// which polls the stream.
class TopKOnGpu {
 public:
  explicit TopKOnGpu(std::shared_ptr<Device> device);
  /// Leaks the buffers, because a GPU that does not finish may still use them.
  void leak() noexcept;

  /// Begins a call. This rank's number in its host, `local`, selects the slice. The slice may be empty. Allocates
  /// memory, and moves the residual of `tensor` to this GPU. If the ranks of a host add first, requires that this rank
  /// keeps the residual of its slice (TensorResidual::keeps()).
  void begin(SparseTensor& tensor, const SparsePlan& plan, int local, Device::Stream stream);
  /// Selects from `gradient`, which holds the slice. Call publish_selection() once the stream has reached this point.
  void choose(const float* gradient);
  void publish_selection();
  /// Adds the received selections to `sum`, which holds the slice. Call publish_sum() once the stream has reached this
  /// point. This function may put more work into the stream. The work must end before the next call begins.
  void add_up(float* sum);
  void publish_sum();
  /// Returns the sent values to the residual after a failure.
  void take_back() noexcept;

 private:
  using Clock = std::chrono::steady_clock;

  void reserve_buffers(const SparsePlan& plan);
  void adopt_residual();
  void keep_rounding();
  std::uint32_t* indices() const noexcept { return chosen_.as<std::uint32_t>(); }
  float* values() const noexcept { return chosen_.as<float>(format_.k * sizeof(std::uint32_t)); }

  const std::shared_ptr<Device> device_;
  DeviceBuffer chosen_, scratch_, touched_, received_;          // Buffers on the GPU.
  DeviceBuffer chosen_here_, received_here_, union_size_host_;  // Pinned buffers.
  SparseTensor* tensor_ = nullptr;
  GpuResidual* gpu_residual_ = nullptr;  // Residual of the tensor.
  Device::Stream stream_ = nullptr;
  std::size_t count_ = 0;  // Number of elements of the tensor.
  int slices_ = 0;         // Number of slices of a host. 0: this rank selects from the whole tensor.
  Range slice_{};
  SparseFormat format_{};
  bool sent_ = false;  // True: the selected values have been removed from the residual.
  Clock::time_point since_{};
  std::vector<Device::Term> terms_;
  // Number of elements with a contribution, if it is known before the addition.
  std::optional<std::size_t> union_size_;
};

}  // namespace collectives
