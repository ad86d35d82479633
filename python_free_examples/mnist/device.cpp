// Implementation of the wait for a device: polls the device, and sleeps between polls if the wait is long.
#include "device.hpp"

#include <chrono>
#include <stdexcept>
#include <thread>

namespace mnist {

void wait_for(Device& device, const std::function<void()>& while_waiting) {
  constexpr auto kPatience = std::chrono::minutes(10);
  // Duration of polling without a sleep; most steps on a GPU end sooner.
  constexpr auto kSpin = std::chrono::microseconds(200);
  const auto start = std::chrono::steady_clock::now();
  while (!device.idle()) {
    const auto waited = std::chrono::steady_clock::now() - start;
    if (waited > kPatience) throw std::runtime_error(device.description() + " has not finished a step in ten minutes");
    while_waiting();
    if (waited > kSpin) std::this_thread::sleep_for(waited / 8);  // lengthens the wait by an eighth at most
  }
}

}  // namespace mnist
