// HostCopyPath: performs a call on GPU memory through CPU memory. It copies the vector to CPU memory, lets the CPU
// perform the call there, and copies the result back to the GPU.
//
// HostCopyPath is one of several device paths, ways to perform calls on GPU memory. It is slower than most other paths.
// However, it works with every backend except `nccl`, with any number of hosts, and with codecs, top-k and user ops.
//
// The path has one buffer in CPU memory, which holds the whole vector. The buffer is pinned, so the GPU can access it.
// It is kept between calls, and grows to the longest vector so far. It is shared memory, so the other ranks of the host
// can read it without a copy (zero-copy protocol).
//
// A long all-reduce works in rounds, and each round processes other elements of the vector. The copies for one round
// overlap with the work on other rounds (pipelined_copy.hpp). In calls with several tensors or a compressor, the copies
// do not overlap. When an operation begins, the copy of the last result to the GPU may still be in progress. The
// operation waits for this copy before using the buffer.
//
// Price: a call copies the vector over the bus up to twice, once in each direction. The path keeps pinned memory of the
// size of the longest vector. In a call of one round, the copies do not overlap with the work of the CPU.
#pragma once

#include "collectives/memory.hpp"
#include "device/path_executor.hpp"
#include "device/pipelined_copy.hpp"

namespace collectives {

class HostCopyPath final : public PathExecutor {
 public:
  HostCopyPath(Device& device, Rank rank) : device_(device), rank_(rank), pipelined_copy_(device) {}
  /// Waits at most 10 s for each stream, or 200 ms after a failure. If a stream does not finish, leaks the buffer.
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
  // Events after the copies to CPU memory, and after the copies back.
  Device::Event input_copied_ = nullptr, output_copied_ = nullptr;
  SharedMemory memory_;
  const DeviceCall* call_ = nullptr;
  const PlannedCall* planned_ = nullptr;
  Job* job_ = nullptr;
  Phase phase_ = Phase::grow_buffer;
  std::uint64_t moves_ = 0;
};

}  // namespace collectives
