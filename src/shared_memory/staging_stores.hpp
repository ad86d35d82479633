// Staging stores: chooses between normal and streaming stores for copies to shared memory that another core reads next.
//
// A normal store needs its cache line in the cache of this core. The reader's core often holds the line from earlier
// data. The line then moves between the cores. With a common cache, this takes 2 to 8 ns per line. Without one, it took
// 25 ns on the measured machines. A streaming store bypasses the caches and waits for no line. Between distant cores, a
// message of 8 KiB took 1.4 us by streaming stores. Normal stores took 5 us.
//
// The distance of two cores may change. The system moves processes, and a hypervisor moves virtual cores. Therefore no
// choice lasts. The class times some of its normal copies. After two slow ones in a row, it uses streaming stores. Now
// and then, it times a normal copy again. If that copy was fast, it returns to normal stores.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "base/ticks.hpp"
#include "reduction/reduction.hpp"

namespace collectives {

class StagingStores {
 public:
  /// `clock`: function that returns nanoseconds. Tests pass another one.
  explicit StagingStores(std::uint64_t (*clock)() noexcept = steady_nanoseconds) : clock_(clock) {}

  /// Copies `bytes` bytes. Later stores of this thread become visible after the copy. `normal`: the normal stores,
  /// Stores::cached or Stores::streaming_but_first.
  void copy(std::byte* to, const std::byte* from, std::size_t bytes, Stores normal = Stores::cached) {
    if (bytes < kShortest) {
      if (bytes > 0) collectives::copy(to, from, bytes, normal);
    } else if (--untimed_ == 0) {
      copy_timed(to, from, bytes, normal);
    } else if (streams_) {
      collectives::copy(to, from, bytes, Stores::streaming);
      fence_streams();
    } else {
      collectives::copy(to, from, bytes, normal);
    }
  }
  /// Returns whether copies currently use streaming stores.
  bool streams() const noexcept { return streams_; }

 private:
  /// Length in bytes of the shortest copy that may be timed. copy() in reduction.hpp streams no shorter one.
  static constexpr std::size_t kShortest = 4 << 10;
  /// Maximum nanoseconds per cache line of a fast copy. The number lies between the two times above.
  static constexpr std::uint64_t kSlow = 12;
  /// Maximum nanoseconds per cache line of a copy that counts. Above, the system has interrupted the copy.
  static constexpr std::uint64_t kInterrupted = 10 * kSlow;
  /// Number of normal copies per timed one. Two readings of the clock take 50 ns. Each copy thus pays 3 ns.
  static constexpr unsigned kApart = 16;
  /// Minimum and maximum number of streamed copies per timed one. The number doubles after each slow copy. A slow copy
  /// takes four times as long. Each copy thus pays 5 % at first, and 0.3 % later.
  static constexpr unsigned kFirstTrial = 64, kLastTrial = 1024;

  void copy_timed(std::byte* to, const std::byte* from, std::size_t bytes, Stores normal) {
    const std::uint64_t before = clock_();
    collectives::copy(to, from, bytes, normal);
    const std::uint64_t took = clock_() - before;
    if (took > kInterrupted * (bytes / 64)) {
      untimed_ = 1;
    } else if (took <= kSlow * (bytes / 64)) {
      streams_ = was_slow_ = false;
      trial_ = kFirstTrial;
      untimed_ = kApart;
    } else if (streams_) {
      trial_ = std::min(2 * trial_, kLastTrial);
      untimed_ = trial_;
    } else {
      streams_ = was_slow_;  // a single slow copy may have met lines of another reader
      untimed_ = was_slow_ ? trial_ : 1;
      was_slow_ = !was_slow_;
    }
  }

  std::uint64_t (*clock_)() noexcept;
  bool streams_ = false, was_slow_ = false;
  unsigned untimed_ = kApart, trial_ = kFirstTrial;  // copies until the next timed one
};

}  // namespace collectives
