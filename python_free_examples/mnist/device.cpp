// Implementation of wait_for(), which waits until a device (CPU or GPU) has computed everything that it was given. The
// function polls the device, and sleeps between polls if the wait is long.
#include "device.hpp"

#include <chrono>
#include <stdexcept>
#include <thread>

namespace mnist {

void wait_for(Device& device, const std::function<void()>& while_waiting) {
  constexpr auto kPatience = std::chrono::minutes(10);
  // Duration of polling without sleeps. Most training steps on a GPU end sooner.
  constexpr auto kSpin = std::chrono::microseconds(200);
  const auto start = std::chrono::steady_clock::now();
  while (!device.idle()) {
    const auto waited = std::chrono::steady_clock::now() - start;
    if (waited > kPatience) throw std::runtime_error(device.description() + " has not finished a step in ten minutes");
    while_waiting();
    if (waited > kSpin) std::this_thread::sleep_for(waited / 8);  // a sleep lengthens the wait by at most an eighth
  }
}

}  // namespace mnist
