// The way of backend "nccl": every operation goes into one stream of the communicator's own, behind what the caller's
// stream holds, and is in flight there while others begin.
#pragma once

#include <deque>
#include <memory>
#include <vector>

#include "device/by_nccl.hpp"
#include "device/registry.hpp"
#include "device/way.hpp"

namespace collectives {

class NcclWay final : public DeviceWay {
 public:
  NcclWay(Device& device, std::unique_ptr<Clique> clique, int size, Rank self);
  ~NcclWay() override;

  bool takes_memory(const DeviceCall& call, const PlannedCall& planned) noexcept override;
  void start(const DeviceCall& call, const PlannedCall& planned, Job& job) override;
  Turn advance() override;
  bool landed() override;
  void abandon() noexcept override;
  std::uint64_t moves() const noexcept override { return moves_; }

  Clique& clique() noexcept { return by_.clique(); }
  /// What the program has registered. Nothing is under way when it changes.
  Registry& registry() noexcept { return registry_; }

 private:
  /// Fills in offsets_ and calls_, which nobody needs any more when what was before is in its stream.
  void describe(const DeviceCall& call, const PlannedCall& planned);

  Device& device_;
  const int size_;
  const Rank self_;
  struct OwnStream {
    explicit OwnStream(Device& gpu) : device(gpu), stream(gpu.new_stream()) {}
    ~OwnStream() { device.end_stream(stream); }
    OwnStream(const OwnStream&) = delete;
    OwnStream& operator=(const OwnStream&) = delete;
    Device& device;
    const Device::Stream stream;
  };
  OwnStream own_;
  const Device::Stream stream_ = own_.stream;
  ByNccl by_;  // goes before the stream that it works in
  Registry registry_;

  const DeviceCall* call_ = nullptr;
  std::vector<std::size_t> offsets_;  // of the parts of the call
  std::vector<ByNccl::Call> calls_;
  std::deque<Device::Event> in_flight_;
  std::vector<Device::Event> events_;  // that nobody uses
  std::uint64_t moves_ = 0;
};

}  // namespace collectives
