// Sleeper: a process that sleeps again and again, and records how late it wakes up. A test of times subtracts the time
// in which the machine let no process run. A test of waits shows by it that they keep no process from running.
//
//   Sleeper sleeper(10ms);
//   const auto began = Sleeper::now();
//   ...
//   const double stood_still = sleeper.late_between(began, Sleeper::now());  // seconds
#pragma once

#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <ctime>
#include <new>
#include <stdexcept>

namespace collectives::testing {

class Sleeper {
 public:
  /// Starts the process, which sleeps for `nap` at a time. Requires that this process has one thread.
  explicit Sleeper(std::chrono::nanoseconds nap) {
    void* const memory = ::mmap(nullptr, sizeof(Record), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) throw std::runtime_error("mmap");
    record_ = new (memory) Record;
    const pid_t parent = ::getpid();
    pid_ = ::fork();
    if (pid_ == 0) {
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);
      if (::getppid() == parent) sleep(nap.count(), *record_);
      ::_exit(0);
    }
  }
  Sleeper(const Sleeper&) = delete;
  Sleeper& operator=(const Sleeper&) = delete;
  ~Sleeper() {
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
    ::munmap(record_, sizeof(Record));
  }

  pid_t pid() const { return pid_; }
  /// Returns the time of the clock that all processes share, in nanoseconds.
  static std::int64_t now() {
    timespec time{};
    ::clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * 1'000'000'000 + time.tv_nsec;
  }
  /// Returns the seconds by which the sleeper was late between two times.
  double late_between(std::int64_t begin, std::int64_t end) const {
    std::int64_t sum = 0;
    const std::uint64_t count = record_->count;
    for (std::uint64_t i = count > kKept ? count - kKept : 0; i < count; ++i) {
      const Late& late = record_->late[i % kKept];
      sum +=
          std::max<std::int64_t>(0, std::min<std::int64_t>(end, late.end) - std::max<std::int64_t>(begin, late.begin));
    }
    return static_cast<double>(sum) * 1e-9;
  }
  /// Returns the greatest lateness of a wake-up in seconds.
  double greatest_lateness() const { return static_cast<double>(record_->greatest) * 1e-9; }

 private:
  static constexpr std::uint64_t kKept = 1 << 14;         // intervals that the record keeps
  static constexpr std::int64_t kNoticeable = 1'000'000;  // shorter delays are no interval, in nanoseconds
  /// Time between the end of a nap and the wake-up, in nanoseconds.
  struct Late {
    std::atomic<std::int64_t> begin, end;
  };
  struct Record {
    std::atomic<std::uint64_t> count = 0;
    std::atomic<std::int64_t> greatest = 0;
    Late late[kKept] = {};
  };

  static void sleep(std::int64_t nap, Record& record) {
    for (;;) {
      const std::int64_t wanted = now() + nap;
      const timespec until{wanted / 1'000'000'000, wanted % 1'000'000'000};
      ::clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, nullptr);
      const std::int64_t woken = now();
      if (woken - wanted > record.greatest) record.greatest = woken - wanted;
      if (woken - wanted < kNoticeable) continue;
      Late& late = record.late[record.count % kKept];
      late.begin = wanted;
      late.end = woken;
      ++record.count;
    }
  }

  Record* record_ = nullptr;
  pid_t pid_ = 0;
};

}  // namespace collectives::testing
