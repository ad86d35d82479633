// Stopwatch: measures the time since its construction.
#pragma once

#include <chrono>

namespace collectives::bench {

class Stopwatch {
 public:
  double microseconds() const {
    return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - start_).count();
  }
  double seconds() const { return microseconds() / 1e6; }

 private:
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

}  // namespace collectives::bench
