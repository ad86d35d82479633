// NcclPath: performs calls on GPU memory by NCCL, NVIDIA's library for collectives between GPUs.
//
// The path puts the work of all operations into one stream of its own. A stream is a queue of work for a GPU. An
// operation can therefore begin while the GPU still works on earlier operations. Exception: an operation that must
// allocate memory waits for the earlier operations. If the program passes a stream to a call, the GPU first completes
// the work that is already in this stream.
#pragma once

#include <deque>
#include <memory>
#include <vector>

#include "device/nccl_collective.hpp"
#include "device/path_executor.hpp"
#include "device/registry.hpp"

namespace collectives {

class NcclPath final : public PathExecutor {
 public:
  NcclPath(Device& device, std::unique_ptr<NcclComm> nccl_comm, int size, Rank self);
  ~NcclPath() override;

  bool takes_memory(const DeviceCall& call, const PlannedCall& planned) noexcept override;
  void start(const DeviceCall& call, const PlannedCall& planned, Job& job) override;
  PathState progress() override;
  bool retire_oldest() override;
  void abandon() noexcept override;
  std::uint64_t moves() const noexcept override { return moves_; }

  NcclComm& nccl_comm() noexcept { return nccl_collective_.nccl_comm(); }
  /// Returns the list of registered memory. The caller may change the list only while no operation is in progress.
  Registry& registry() noexcept { return registry_; }

 private:
  /// Fills in offsets_ and calls_. Requires that all work of earlier calls is in the stream. Earlier calls then no
  /// longer need offsets_ and calls_.
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
  NcclCollective nccl_collective_;  // Destroyed before the stream that it uses.
  Registry registry_;

  const DeviceCall* call_ = nullptr;
  std::vector<std::size_t> offsets_;  // Offsets of the parts of the call.
  std::vector<NcclCollective::Call> calls_;
  std::deque<Device::Event> in_flight_;
  std::vector<Device::Event> events_;  // Unused events.
  std::uint64_t moves_ = 0;
};

}  // namespace collectives
