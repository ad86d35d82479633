// drain_stream(): waits until the work in a stream is done. A stream is a queue of work for a GPU. After the wait, the
// memory that this work uses can be freed. The wait has a time limit, because a GPU may have stopped.
#pragma once

#include <chrono>
#include <exception>
#include <thread>

#include "device/device.hpp"

namespace collectives {

/// Time limits of the wait. At the end of a communicator the limit is 10 s, so that work can complete. After a failed
/// operation the limit is 200 ms, because the program waits for the error.
inline constexpr std::chrono::milliseconds kDrainTimeout{10'000}, kDrainTimeoutAfterFailure{200};

/// Waits at most `patience` until all work in `stream` is done. Returns false if work remains after `patience`, or if
/// the GPU has failed. Records `event` and polls it every 50 us.
inline bool drain_stream(Device& device, Device::Stream stream, Device::Event event,
                         std::chrono::milliseconds patience) noexcept {
  const auto until = std::chrono::steady_clock::now() + patience;
  try {
    device.record(event, stream);
    for (;; std::this_thread::sleep_for(std::chrono::microseconds(50))) {
      if (device.reached(event)) return true;
      if (std::chrono::steady_clock::now() >= until) return false;
    }
  } catch (const std::exception&) {  // A GPU that has failed may still have work in progress.
    return false;
  }
}

}  // namespace collectives
