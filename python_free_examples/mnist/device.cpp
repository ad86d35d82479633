// Implementation of the wait for a device.
#include "device.hpp"

#include <chrono>
#include <stdexcept>
#include <thread>

namespace mnist {

void wait_for(Device& device, const std::function<void()>& while_waiting) {
  constexpr auto kPatience = std::chrono::minutes(10);
  const auto start = std::chrono::steady_clock::now();
  while (!device.idle()) {
    if (std::chrono::steady_clock::now() - start > kPatience)
      throw std::runtime_error(device.description() + " has not finished a step in ten minutes");
    while_waiting();
    std::this_thread::yield();
  }
}

}  // namespace mnist
