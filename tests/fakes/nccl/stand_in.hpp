// Functions by which tests control and query the stand-in for NCCL. Tests find them by their names.
#pragma once

#include <cstddef>
#include <functional>
#include <utility>
#include <vector>

namespace collectives::testing {

/// How it uses streams: those of pretended GPUs.
struct StandInStreams {
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

/// "stand_in_streams"
using StandInSetStreams = void (*)(const StandInStreams&);
/// "stand_in_fail": the next call of that function fails; "in a stream": what is next reached there.
using StandInFail = void (*)(const char* function);
/// "stand_in_hold_aborts": from now on ncclCommAbort() waits until it is told otherwise.
using StandInHoldAborts = void (*)(bool hold);
/// "stand_in_registered": regions of memory that are registered now.
using StandInRegistered = std::size_t (*)();
/// "stand_in_in_registered": buffers of calls so far that lay in memory which their caller had registered.
using StandInInRegistered = std::size_t (*)();
/// "stand_in_alive": communicators that have been neither aborted nor destroyed.
using StandInAlive = std::size_t (*)();

}  // namespace collectives::testing
