// Where there is no way but to wait for a GPU: before what it works on goes away. Never for long.
#pragma once

#include <chrono>
#include <exception>
#include <thread>

#include "device/device.hpp"

namespace collectives {

/// At the end of a communicator, and when an operation has failed.
inline constexpr std::chrono::milliseconds kDrainTimeout{10'000}, kDrainTimeoutAfterFailure{200};

/// Whether all that `stream` holds is done within `patience`. Records `event`.
inline bool drain_stream(Device& device, Device::Stream stream, Device::Event event,
                         std::chrono::milliseconds patience) noexcept {
  const auto until = std::chrono::steady_clock::now() + patience;
  try {
    device.record(event, stream);
    for (;; std::this_thread::sleep_for(std::chrono::microseconds(50))) {
      if (device.reached(event)) return true;
      if (std::chrono::steady_clock::now() >= until) return false;
    }
  } catch (const std::exception&) {  // a GPU that has failed does nothing any more, but who knows
    return false;
  }
}

}  // namespace collectives
