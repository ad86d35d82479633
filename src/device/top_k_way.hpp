// Top-k where the gradient is: the GPU adds it to what is kept and chooses (compression/select.cu), and only what has
// been chosen comes to the host, by pinned memory. The exchange is the host's own (compression/sparse_exchange.hpp);
// what has come from the others goes to the GPU, which clears the result and adds them up in rank order
// (compression/sparse.cu). So a rank moves 8 bytes over its bus for each element that is chosen, in place of 8 for each
// there is.
//
// Residual and velocity of a tensor stay on the GPU from call to call. They come home to the host when somebody asks
// for them there: TopK::save(), a report of norms, a call that is done another way.
//
// The bits are the host's: the same elements are chosen, and added in the same order.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "compression/sparse_exchange.hpp"
#include "device/room.hpp"
#include "device/way.hpp"

namespace collectives {

class KeptOnGpu;
class SparseTensor;

class TopKWay final : public DeviceWay {
 public:
  explicit TopKWay(std::shared_ptr<Device> device);
  ~TopKWay() override;

  void start(const DeviceCall& call, const PlannedCall& planned, Job& job) override;
  Turn advance() override;
  void abandon() noexcept override;
  std::uint64_t moves() const noexcept override { return moves_; }

 private:
  using Clock = std::chrono::steady_clock;
  enum class Phase : std::uint8_t { beginning, choosing, exchanging, adding };

  void make_room();
  void take_over();
  void choose();
  void keep_rounding();
  void add_up();

  const std::shared_ptr<Device> device_;
  Device::Stream stream_ = nullptr;
  Device::Event done_ = nullptr;
  DeviceRoom chosen_, scratch_, touched_, received_;      // on the GPU
  DeviceRoom chosen_here_, received_here_, united_here_;  // pinned
  const DeviceCall* call_ = nullptr;
  const PlannedCall* planned_ = nullptr;
  const float* gradient_ = nullptr;
  float* sum_ = nullptr;
  SparseTensor* tensor_ = nullptr;
  KeptOnGpu* kept_ = nullptr;  // the tensor's
  Phase phase_ = Phase::beginning;
  bool gave_ = false;  // what is chosen has been taken from what is kept
  Clock::time_point since_{};
  std::vector<Device::Term> terms_;
  std::optional<std::size_t> united_;  // known before they are added
  std::uint64_t moves_ = 0;
};

}  // namespace collectives
