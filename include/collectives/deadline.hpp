// A point in time after which waiting is an error. Every wait in the library has one.
#pragma once

#include <chrono>

namespace collectives {

class Deadline {
 public:
  using Clock = std::chrono::steady_clock;

  /// `timeout` from now; a timeout of zero or less has already passed. One too long for the clock, such as
  /// nanoseconds::max(), never passes.
  static Deadline in(std::chrono::nanoseconds timeout) {
    Deadline deadline;
    const auto now = Clock::now();
    if (timeout < Clock::time_point::max() - now) deadline.at_ = now + timeout;
    return deadline;
  }
  static Deadline never() { return {}; }

  friend bool operator<(const Deadline& a, const Deadline& b) { return a.at_ < b.at_; }
  bool passed() const { return at_ != Clock::time_point::max() && Clock::now() >= at_; }
  /// Milliseconds left, rounded up, at least 0 and at most `most`: what poll() wants.
  int milliseconds_left(int most = 1000) const {
    if (at_ == Clock::time_point::max()) return most;
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(at_ - Clock::now()).count();
    return left < 0 ? 0 : left > most ? most : static_cast<int>(left);
  }

 private:
  Clock::time_point at_ = Clock::time_point::max();
};

}  // namespace collectives
