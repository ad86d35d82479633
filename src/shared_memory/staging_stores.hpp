// Staging stores: chooses between normal and streaming stores for copies to shared memory that another core reads next.
//
// A normal store needs its cache line in the cache of this core. The core of the reader often holds the line, because
// it has read earlier data there. The line then moves from that core to this one. Between cores with a common cache,
// this takes two to eight nanoseconds per line, if many move. Between other cores, it took 25 ns per line on the
// machines that were measured. A streaming store bypasses the caches and waits for no line. A message of 8 KiB between
// such cores took 1.4 us by streaming stores, and 5 us by normal ones.
//
// The distance between two cores may change, because the system moves processes, and a hypervisor moves virtual cores.
// Therefore no choice lasts. The class times some of its normal copies. After two slow copies in a row, it uses
// streaming stores. Now and then it then times a normal copy, and returns to normal stores if the copy was fast.
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

  /// Copies `bytes` bytes. Later stores of this thread become visible after the copy.
  void copy(std::byte* to, const std::byte* from, std::size_t bytes) {
    if (bytes < kShortest) {
      if (bytes > 0) std::memcpy(to, from, bytes);
    } else if (--untimed_ == 0) {
      copy_timed(to, from, bytes);
    } else if (streams_) {
      collectives::copy(to, from, bytes, Stores::streaming);
      fence_streams();
    } else {
      std::memcpy(to, from, bytes);
    }
  }
  /// Returns whether copies currently use streaming stores.
  bool streams() const noexcept { return streams_; }

 private:
  /// Length in bytes of the shortest copy that may be timed or streamed. copy() in reduction.hpp streams no shorter
  /// one.
  static constexpr std::size_t kShortest = 4 << 10;
  /// Time per cache line, in nanoseconds, from which on a normal copy is slow. It lies between the two times above.
  static constexpr std::uint64_t kSlow = 12;
  /// Number of copies from one timed copy to the next while normal stores are used. Two readings of the clock take 50
  /// ns, so each copy pays 3 ns.
  static constexpr unsigned kApart = 16;
  /// Minimum and maximum number of copies from one timed copy to the next while streaming stores are used. The number
  /// doubles after each slow copy. A slow copy takes four times as long, so each copy pays 5 % at first and 0.3 %
  /// later.
  static constexpr unsigned kFirstTrial = 64, kLastTrial = 1024;

  void copy_timed(std::byte* to, const std::byte* from, std::size_t bytes) {
    const std::uint64_t before = clock_();
    std::memcpy(to, from, bytes);
    const bool slow = clock_() - before > kSlow * (bytes / 64);
    if (!slow) {
      streams_ = was_slow_ = false;
      trial_ = kFirstTrial;
      untimed_ = kApart;
    } else if (streams_) {
      trial_ = std::min(2 * trial_, kLastTrial);
      untimed_ = trial_;
    } else {
      streams_ = was_slow_;  // a single slow copy may be one that the system has interrupted
      untimed_ = was_slow_ ? trial_ : 1;
      was_slow_ = !was_slow_;
    }
  }

  std::uint64_t (*clock_)() noexcept;
  bool streams_ = false, was_slow_ = false;
  unsigned untimed_ = kApart, trial_ = kFirstTrial;  // copies until the next timed one
};

}  // namespace collectives
