// Deadline: the time at which a wait ends without result. Every wait in the library has a deadline. The deadline
// never() does not pass.
#pragma once

#include <chrono>

namespace collectives {

class Deadline {
 public:
  using Clock = std::chrono::steady_clock;

  /// Returns the deadline `timeout` from now. A timeout of zero or less has already passed. A timeout that is too long
  /// for the clock, such as nanoseconds::max(), never passes.
  static Deadline in(std::chrono::nanoseconds timeout) {
    Deadline deadline;
    const auto now = Clock::now();
    if (timeout < Clock::time_point::max() - now) deadline.at_ = now + timeout;
    return deadline;
  }
  static Deadline never() { return {}; }

  friend bool operator<(const Deadline& a, const Deadline& b) { return a.at_ < b.at_; }
  bool passed() const { return at_ != Clock::time_point::max() && Clock::now() >= at_; }
  /// Returns the milliseconds left as poll() takes them: rounded up, from 0 to `most`.
  int milliseconds_left(int most = 1000) const {
    if (at_ == Clock::time_point::max()) return most;
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(at_ - Clock::now()).count();
    return left < 0 ? 0 : left > most ? most : static_cast<int>(left);
  }

 private:
  Clock::time_point at_ = Clock::time_point::max();
};

}  // namespace collectives
