// TopKPath: performs an all-reduce of gradients in GPU memory with top-k, which sends only the k elements of greatest
// magnitude (device/top_k_on_gpu.hpp). Each rank selects from its own gradient. If the ranks of a host first add their
// gradients and select from the sum, MultiNodePath performs the call instead. Both classes are device paths, ways to
// perform calls on GPU memory.
#pragma once

#include <cstdint>
#include <memory>

#include "device/path_executor.hpp"
#include "device/top_k_on_gpu.hpp"

namespace collectives {

class TopKPath final : public PathExecutor {
 public:
  explicit TopKPath(std::shared_ptr<Device> device);
  ~TopKPath() override;

  void start(const DeviceCall& call, const PlannedCall& planned, Job& job) override;
  PathState progress() override;
  void abandon() noexcept override;
  std::uint64_t moves() const noexcept override { return moves_; }

 private:
  enum class Phase : std::uint8_t { beginning, choosing, exchanging, adding };

  const std::shared_ptr<Device> device_;
  TopKOnGpu top_k_;
  Device::Stream stream_ = nullptr;
  Device::Event done_ = nullptr;
  const DeviceCall* call_ = nullptr;
  const PlannedCall* planned_ = nullptr;
  const float* gradient_ = nullptr;
  float* sum_ = nullptr;
  Phase phase_ = Phase::beginning;
  std::uint64_t moves_ = 0;
};

}  // namespace collectives
