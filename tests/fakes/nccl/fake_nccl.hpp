// Functions by which tests control and query the stand-in for NCCL. Tests find them by their names.
#pragma once

#include <cstddef>
#include <functional>
#include <utility>
#include <vector>

namespace collectives::testing {

/// How it uses streams: those of fake GPUs.
struct FakeNcclStreams {
  /// The GPU that is current to the calling thread.
  std::function<int()> current_gpu;
  /// Puts `entry`, which touches that memory, into a stream; the default one is that of `gpu`.
  std::function<void(int gpu, void* stream, std::vector<std::pair<void*, std::size_t>> touched,
                     std::function<void()> entry)>
      put;
  /// Memory of the current GPU, of a kind that other processes cannot open.
  std::function<void*(std::size_t bytes)> take;
  std::function<void(void* memory)> give_back;
};

/// "fake_nccl_streams"
using FakeNcclSetStreams = void (*)(const FakeNcclStreams&);
/// "fake_nccl_fail": the next call of that function fails; "in a stream": what is next reached there.
using FakeNcclFail = void (*)(const char* function);
/// "fake_nccl_hold_aborts": from now on ncclCommAbort() waits until it is told otherwise.
using FakeNcclHoldAborts = void (*)(bool hold);
/// "fake_nccl_registered": regions of memory that are registered now.
using FakeNcclRegistered = std::size_t (*)();
/// "fake_nccl_in_registered": buffers of calls so far that lay in memory which their caller had registered.
using FakeNcclInRegistered = std::size_t (*)();
/// "fake_nccl_alive": communicators that have been neither aborted nor destroyed.
using FakeNcclAlive = std::size_t (*)();

}  // namespace collectives::testing
