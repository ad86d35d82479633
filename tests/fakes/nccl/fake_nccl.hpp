// Functions by which tests control and query the fake of NCCL. Tests look them up by their names, because the fake is a
// library that is loaded at run time.
#pragma once

#include <cstddef>
#include <functional>
#include <utility>
#include <vector>

namespace collectives::testing {

/// Functions of fake GPUs by which the fake of NCCL uses streams.
struct FakeNcclStreams {
  /// Returns the current GPU of the calling thread.
  std::function<int()> current_gpu;
  /// Puts `entry`, which touches this memory, into a stream. The default stream is that of `gpu`.
  std::function<void(int gpu, void* stream, std::vector<std::pair<void*, std::size_t>> touched,
                     std::function<void()> entry)>
      put;
  /// Allocates memory of the current GPU that other processes cannot open.
  std::function<void*(std::size_t bytes)> take;
  std::function<void(void* memory)> give_back;
};

/// "fake_nccl_streams": sets the functions by which the fake uses streams.
using FakeNcclSetStreams = void (*)(const FakeNcclStreams&);
/// "fake_nccl_fail": makes the next call of the named function fail. The name "in a stream" makes the next entry of a
/// stream fail.
using FakeNcclFail = void (*)(const char* function);
/// "fake_nccl_hold_aborts": makes ncclCommAbort() wait until the hold ends.
using FakeNcclHoldAborts = void (*)(bool hold);
/// "fake_nccl_registered": returns the number of registered regions of memory.
using FakeNcclRegistered = std::size_t (*)();
/// "fake_nccl_in_registered": returns the number of buffers of calls so far that lay in registered memory.
using FakeNcclInRegistered = std::size_t (*)();
/// "fake_nccl_alive": returns the number of communicators that have been neither aborted nor destroyed.
using FakeNcclAlive = std::size_t (*)();

}  // namespace collectives::testing
