// Sync file of the comparison of libraries: a file that all ranks of one run map into memory. It contains their barrier
// and the times that they measure.
//
// The barrier polls one cache line per rank. It uses no code of the libraries that are compared. Ranks leave a barrier
// at different times, and the difference may be as long as a short call. The function start_together() therefore adds a
// second step: after the barrier, rank 0 publishes a point in time, and all ranks wait for it. If there are more ranks
// than cores, start_together() is only a barrier.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

namespace collectives::compare {

/// Memory from mmap(). The destructor unmaps it.
class Mapping {
 public:
  Mapping() = default;
  /// Maps the file `descriptor` as shared memory, or anonymous memory if `descriptor` is negative. Throws
  /// std::system_error.
  Mapping(int descriptor, std::size_t bytes);
  Mapping(Mapping&&) noexcept;
  Mapping& operator=(Mapping&&) noexcept;
  ~Mapping();
  std::byte* data() const noexcept { return data_; }

 private:
  std::byte* data_ = nullptr;
  std::size_t bytes_ = 0;
};

/// The sync file of one run, for one rank.
class SyncFile {
 public:
  static constexpr int kMostRanks = 64;
  static constexpr std::size_t kMostTimes = 2000;  ///< maximum number of timed calls of one size

  /// Maps the file `path`, which must exist and be empty before the first rank opens it. `oversubscribed`: there are
  /// more ranks than cores, so a waiting rank yields its core at once.
  SyncFile(const std::string& path, int rank, int ranks, bool oversubscribed);

  int rank() const noexcept { return rank_; }
  int ranks() const noexcept { return ranks_; }
  const std::string& path() const noexcept { return path_; }

  /// Sets a function that this rank calls while it waits in a barrier for more than a millisecond. Reason: some
  /// libraries send data only inside their calls, and a peer may need these data to reach the barrier.
  void while_waiting(std::function<void()> progress) { progress_ = std::move(progress); }

  /// Throws std::runtime_error with the number of a rank that has not arrived after two minutes.
  void barrier();

  /// Blocks until `word`, which `rank` increments, has reached `goal`. Throws as barrier() does.
  void wait_for(int rank, const std::atomic<std::uint64_t>& word, std::uint64_t goal);
  bool oversubscribed() const noexcept { return oversubscribed_; }

  /// Collective. Returns the shortest time of a barrier in nanoseconds, equal on all ranks. This time shows the
  /// distance of the ranks' cores. With more ranks than cores, times a barrier of the first two ranks, each on a core
  /// of its own while the other ranks sleep. Returns 0 if there is only one core.
  double distance();

  /// Waits in a barrier and then until an instant that is equal on all ranks. With more ranks than cores, waits in the
  /// barrier only.
  std::chrono::steady_clock::time_point start_together();

  /// Collective. Returns every rank's `word`, by rank.
  std::vector<std::uint64_t> exchange(std::uint64_t word);

  /// Returns the times that `rank` has stored, in microseconds.
  std::span<double> times(int rank) const noexcept;

 private:
  struct Slot {
    alignas(128) std::atomic<std::uint64_t> arrived;  // polled by all ranks; one writer
    alignas(128) std::uint64_t word;
    alignas(128) std::atomic<std::uint64_t> start;         // in the first slot: instant and parity of a start
    alignas(128) std::atomic<std::uint64_t> pair_arrived;  // polled by one rank; one writer
  };
  void wait_for(int rank, const std::atomic<std::uint64_t>& word, std::uint64_t goal, int spins);
  void pair_barrier(int other);
  double distance_of_cores();
  Slot* slots() const noexcept { return reinterpret_cast<Slot*>(file_.data()); }

  std::string path_;
  Mapping file_;
  int rank_, ranks_;
  bool oversubscribed_;
  std::uint64_t round_ = 0, starts_ = 0, pair_rounds_ = 0;
  std::function<void()> progress_;
};

}  // namespace collectives::compare
