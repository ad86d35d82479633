// Where the ranks of one run of the comparison meet: a small file that all of them map, and a barrier made of that file
// alone, one polled cache line per rank, so that nobody is timed behind a barrier of their own. Ranks leave it one
// after another, by as much as a short call takes; so it may be followed by an instant that rank 0 names and all wait
// for, unless there are more ranks than cores.
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

/// Bytes from mmap, page aligned, unmapped at the end.
class Mapping {
 public:
  Mapping() = default;
  /// Of the file `descriptor`, shared; of ordinary anonymous memory where it is negative. Throws std::system_error.
  Mapping(int descriptor, std::size_t bytes);
  Mapping(Mapping&&) noexcept;
  Mapping& operator=(Mapping&&) noexcept;
  ~Mapping();
  std::byte* data() const noexcept { return data_; }

 private:
  std::byte* data_ = nullptr;
  std::size_t bytes_ = 0;
};

/// Where the ranks of one run meet: a file that all of them map.
class Meeting {
 public:
  static constexpr int kMostRanks = 64;
  static constexpr std::size_t kMostTimes = 2000;  ///< timed units of one cell

  /// `path` is an existing file, empty before the first rank comes. `crowded`: more ranks than cores, so that waiting
  /// gives the core away at once.
  Meeting(const std::string& path, int rank, int ranks, bool crowded);

  int rank() const noexcept { return rank_; }
  int ranks() const noexcept { return ranks_; }
  const std::string& path() const noexcept { return path_; }

  /// Called now and then by a rank that has waited in a barrier for a millisecond: a library that makes progress only
  /// inside its calls may owe the others something.
  void while_waiting(std::function<void()> progress) { progress_ = std::move(progress); }

  /// Throws std::runtime_error naming the missing rank when it has not come after two minutes.
  void barrier();

  /// Until `word`, which `rank` counts up, has reached `goal`. Throws as barrier() does.
  void wait_for(int rank, const std::atomic<std::uint64_t>& word, std::uint64_t goal);
  bool crowded() const noexcept { return crowded_; }

  /// Nanoseconds of a barrier, at best: how far the ranks' cores are from one another. Collective, equal on all ranks.
  /// With more ranks than cores, the barrier of the first two of them, each on a core of its own while the others
  /// sleep; 0 where there is but one core.
  double distance();

  /// A barrier, and then an instant at which every rank goes on at once; with more ranks than cores just a barrier.
  std::chrono::steady_clock::time_point start_together();

  /// Every rank's `word`, by rank. Collective.
  std::vector<std::uint64_t> exchange(std::uint64_t word);

  /// Where `rank` leaves its times, in microseconds.
  std::span<double> times(int rank) const noexcept;

 private:
  struct Slot {
    alignas(128) std::atomic<std::uint64_t> arrived;  // polled; one writer
    alignas(128) std::uint64_t word;
    alignas(128) std::atomic<std::uint64_t> start;  // of the first slot: when, and which
    alignas(128) std::atomic<std::uint64_t> met;    // polled by one other, one writer
  };
  void wait_for(int rank, const std::atomic<std::uint64_t>& word, std::uint64_t goal, int spins);
  void meet(int other);
  double distance_of_cores();
  Slot* slots() const noexcept { return reinterpret_cast<Slot*>(file_.data()); }

  std::string path_;
  Mapping file_;
  int rank_, ranks_;
  bool crowded_;
  std::uint64_t round_ = 0, starts_ = 0, met_ = 0;
  std::function<void()> progress_;
};

}  // namespace collectives::compare
