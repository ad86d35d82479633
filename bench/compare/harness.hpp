// How a contender is timed: the same machine code for ours, for the others and for the bound.
//
// Ranks meet in a small file that all of them map. Before each timed call stands a barrier made of that file alone, one
// polled cache line per rank, so nobody is timed behind a barrier of their own. Ranks leave it one after another, by as
// much as a short call takes; so it is followed by an instant that rank 0 names and all wait for, unless there are more
// ranks than cores. Every rank times its own call from that instant and leaves the time in the file; the time of a call
// is that of the slowest rank, and a cell's time is the median over its calls. Nothing but the call and the barrier
// runs in between. Back to back, a timed unit is a loop of calls instead of one.
//
// The cores of a virtual machine may be moved, so that a line takes three times as long from one to the other, many
// times a minute. Every cell says what that barrier took before and after it. Asked for cores that are near one
// another, the harness waits for such a time and times a cell again during which they were moved.
//
// A contender implements the four collectives for vectors of f32, sum, root 0, and says which it offers.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace collectives::compare {

enum class Operation : std::uint8_t { all_reduce, reduce_scatter, all_gather, broadcast };

std::string_view to_string(Operation) noexcept;

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

/// One rank of a library under comparison.
class Contender {
 public:
  Contender() = default;
  Contender(const Contender&) = delete;
  Contender& operator=(const Contender&) = delete;
  virtual ~Contender() = default;

  /// Memory for `count` elements that lives as long as the contender: ordinary pages unless it has its own kind.
  virtual float* make_buffer(std::size_t count);
  virtual bool offers(Operation, bool /*in_place*/) const { return true; }

  /// In place: out == in.
  virtual void all_reduce(const float* in, float* out, std::size_t count) = 0;
  /// `in` is one part of `part` elements per rank. In place: out == in, the whole vector is the result's to use.
  /// Returns where this rank's part of the sum stands.
  virtual const float* reduce_scatter(const float* in, float* out, std::size_t part) = 0;
  /// `out` is one part of `part` elements per rank. In place: `in` is this rank's part of `out`.
  virtual void all_gather(const float* in, float* out, std::size_t part) = 0;
  /// From rank 0, in place: the only form that MPI has.
  virtual void broadcast(float* data, std::size_t count) = 0;

  virtual void progress() {}

 private:
  std::vector<Mapping> buffers_;
};

/// Makes the contender of this rank. `variant` is one of several ways to use the same library.
using ContenderFactory = std::function<std::unique_ptr<Contender>(Meeting&, const std::string& variant)>;

/// A command line that cannot be obeyed. what() is one line.
class BadArguments : public std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// The main function of a contender's program: reads the arguments, times every cell they name, and appends one JSON
/// line for each to a file. Rank and size are those that mpirun gave. Returns the exit status.
int run_contender(int argc, char** argv, const ContenderFactory&);

}  // namespace collectives::compare
