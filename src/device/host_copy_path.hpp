// Device path that copies the vector to the host, performs the plan for host memory there, and copies the result back.
//
// The path works in every case. It gives device memory every backend, any number of hosts, codecs, top-k, and user ops
// that are functions of the host.
//
// The buffer holds the whole vector, and the operation is in place even if the caller's buffers are not. The buffer is
// pinned, and it is memory that the peers of this host map (memory.hpp). If all ranks use this path, the plan for host
// memory therefore makes no copies inside the host. The buffer is kept and grows to the longest vector so far.
//
// An all-reduce of several rounds overlaps its copies with the rounds (pipelined_copy.hpp). If an operation has ended
// in the caller's stream, its result may still be on the way to the GPU. The next operation then waits for this copy
// before it uses the buffer.
//
// Price: two copies over the bus, and pinned memory of the size of the longest vector. Without rounds the copies do not
// overlap with the host's work.
#pragma once

#include "collectives/memory.hpp"
#include "device/path_executor.hpp"
#include "device/pipelined_copy.hpp"

namespace collectives {

class HostCopyPath final : public PathExecutor {
 public:
  HostCopyPath(Device& device, Rank rank) : device_(device), rank_(rank), pipelined_copy_(device) {}
  /// Waits up to 10 s for each stream, or 200 ms after a failure. If a stream does not finish, the buffer is leaked.
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
  Device::Event input_copied_ = nullptr, output_copied_ = nullptr;  // Ends of the copies to the host, and from it.
  SharedMemory memory_;
  const DeviceCall* call_ = nullptr;
  const PlannedCall* planned_ = nullptr;
  Job* job_ = nullptr;
  Phase phase_ = Phase::grow_buffer;
  std::uint64_t moves_ = 0;
};

}  // namespace collectives
