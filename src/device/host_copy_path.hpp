// The way that always works: copy to the host, perform the host's own plan there, copy back. So every backend, any
// number of hosts, codecs, top-k and ops that are functions of the host do for device memory what they do for the
// host's.
//
// The stage holds the whole vector, in place whatever the caller's buffers are, and comes from the memory that peers of
// this host map (memory.hpp): where all ranks stage, the host's plan copies nothing inside the host. It is pinned, and
// kept: it grows to the longest vector so far.
//
// An all-reduce in several rounds has its copies in step with them (pipelined_copy.hpp). An operation that has ended
// in the caller's stream while its result is still on the way back needs no stage of its own: the next one begins when
// that has arrived.
#pragma once

#include "collectives/memory.hpp"
#include "device/path_executor.hpp"
#include "device/pipelined_copy.hpp"

namespace collectives {

class HostCopyPath final : public PathExecutor {
 public:
  HostCopyPath(Device& device, Rank rank) : device_(device), rank_(rank), pipelined_copy_(device) {}
  /// Waits a while for what is under way; a GPU that does not come to an end keeps the stage.
  ~HostCopyPath() override;

  void start(const DeviceCall& call, const PlannedCall& planned, Job& job) override;
  PathState progress() override;
  void abandon() noexcept override;
  std::uint64_t moves() const noexcept override { return moves_; }

 private:
  enum class Phase : std::uint8_t { grow_buffer, copied_in, performed, copied_out };

  void grow_buffer();
  bool copies_pipelined() const noexcept;
  void copy_in();
  void copy_out();

  Device& device_;
  const Rank rank_;
  PipelinedCopy pipelined_copy_;
  Device::Stream stream_ = nullptr, stream_back_ = nullptr;
  Device::Event input_copied_ = nullptr, output_copied_ = nullptr;  // the copies to the host, and from it
  SharedMemory memory_;
  const DeviceCall* call_ = nullptr;
  const PlannedCall* planned_ = nullptr;
  Job* job_ = nullptr;
  Phase phase_ = Phase::grow_buffer;
  std::uint64_t moves_ = 0;
};

}  // namespace collectives
