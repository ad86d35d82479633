// Top-k where the gradient is: the GPU adds it to what is kept and chooses (compression/select.cu), and only what has
// been chosen comes to the host, by pinned memory. The exchange is the host's own (compression/sparse_exchange.hpp);
// what has come from the others goes to the GPU, which clears the result and adds them up in rank order
// (compression/sparse.cu). So a rank moves 8 bytes over its bus for each element that is chosen, in place of 8 for each
// there is.
//
// A rank chooses from the whole tensor, or, where the ranks of a host have added first, from its slice of their sum.
// Residual and velocity stay on the GPU from call to call. They come home to the host when somebody asks for them
// there: TopK::save(), a report of norms, a call that is done another way.
//
// The bits are the host's: the same elements are chosen, and added in the same order, from the same gradients; those
// that NCCL has added in a host may differ in their last bits.
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

/// One call after another; everything goes into a stream of the caller's, who knows when that has come where.
class TopKOnGpu {
 public:
  explicit TopKOnGpu(std::shared_ptr<Device> device);
  /// A GPU that does not come to an end may still use its memory.
  void leak() noexcept;

  /// `local`: this rank among those of its host, whose slice it chooses from; there may be none. Takes memory, and
  /// brings what `tensor` keeps to this GPU. In hosts it keeps slices already (SparseTensor::keeps).
  void begin(SparseTensor& tensor, const SparsePlan& plan, int local, Device::Stream stream);
  /// From `gradient`, of the slice. When the stream has come so far, the tensor may be told.
  void choose(const float* gradient);
  void publish_selection();
  /// What has come from others, into `sum`, of the slice; likewise. Telling may put more into the stream, which is done
  /// before the next call begins.
  void add_up(float* sum);
  void publish_sum();
  /// The call has failed.
  void take_back() noexcept;

 private:
  using Clock = std::chrono::steady_clock;

  void reserve_buffers(const SparsePlan& plan);
  void adopt_residual();
  void keep_rounding();
  std::uint32_t* indices() const noexcept { return chosen_.as<std::uint32_t>(); }
  float* values() const noexcept { return chosen_.as<float>(format_.k * sizeof(std::uint32_t)); }

  const std::shared_ptr<Device> device_;
  DeviceBuffer chosen_, scratch_, touched_, received_;          // on the GPU
  DeviceBuffer chosen_here_, received_here_, union_size_host_;  // pinned
  SparseTensor* tensor_ = nullptr;
  GpuResidual* gpu_residual_ = nullptr;  // the tensor's
  Device::Stream stream_ = nullptr;
  std::size_t count_ = 0;  // elements of the tensor
  int slices_ = 0;         // of a host; 0: this rank chooses from all
  Range slice_{};
  SparseFormat format_{};
  bool sent_ = false;  // what is chosen has been taken from what is kept
  Clock::time_point since_{};
  std::vector<Device::Term> terms_;
  std::optional<std::size_t> union_size_;  // known before they are added
};

}  // namespace collectives
