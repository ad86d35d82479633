// One measurement: fill the buffers, call, verify, time, verify again.
//
// Timing: before each timed call a barrier, then every rank times its own call; the time of a call is that of the
// slowest rank, and the row's time is the median over calls. Each rank keeps its times in an array and the arrays are
// reduced by max when the measurement is over, so that nothing but the call and the barrier touches the network in
// between. Back to back, a few loops of calls stand behind a barrier each, and the row's time is the loops' duration on
// the slowest rank over their calls. A rival's calls are interleaved with ours, on the same buffers, taking turns in
// going first, and behind the same barrier: how far apart ranks leave it is part of what is timed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "collectives/bootstrap.hpp"
#include "collectives/communicator.hpp"
#include "collectives_bench/buffers.hpp"
#include "collectives_bench/gpu.hpp"
#include "collectives_bench/options.hpp"
#include "collectives_bench/roofline.hpp"
#include "collectives_bench/verification.hpp"

namespace collectives::bench {

/// The same collectives by another library.
class Rival {
 public:
  virtual ~Rival() = default;
  /// Whether it has this type, op and count; the same answer on every rank.
  virtual bool has(const Call&) const = 0;
  virtual void perform(const Call&) = 0;
};

/// Of the timed calls, slowest rank, in microseconds.
struct Times {
  double time = 0;  ///< the median; back to back: all loops over their calls
  double p50 = 0, p99 = 0;
  std::vector<double> samples;  ///< every timed call; back to back: every loop over its calls
};

/// What the least traffic takes.
struct Bound {
  double time = 0;  ///< as Times::time
  Stores stores = Stores::plain;
};

struct Result {
  Case what;
  std::size_t bytes = 0;  ///< of the whole vector
  std::size_t iterations = 0;
  Times ours;
  std::optional<Times> rival;
  std::optional<Bound> bound;        ///< with --fraction-of-roofline, where bytes move
  double algbw = 0, busbw = 0;       ///< GB/s (1e9)
  std::optional<std::size_t> wrong;  ///< elements over all ranks; empty without --check
  std::string plan;                  ///< "hierarchical/inline"; on a GPU "kernels", "staged:ring"
  double coding_us = 0;              ///< of top-k: choosing, writing, reading and adding in the last call
  std::uint64_t wire_bytes = 0;      ///< to other hosts in one call, by the busiest rank
};

/// Microseconds between two readings of the clock, which every measured time includes once.
double clock_cost();

class Measurement {
 public:
  /// Collective. Allocates buffers for the largest of `cases`. `rival` may be null; `gpu` is for --buffers device. The
  /// arguments outlive this.
  Measurement(Communicator& comm, Bootstrap& bootstrap, const Settings& settings, const std::vector<Case>& cases,
              Rival* rival, Gpu* gpu = nullptr);

  /// Collective. Empty when the backend cannot do what is asked (the library says Error{unsupported}).
  std::optional<Result> run(const Case&);

  /// Time for the timed calls of one measurement when --iterations does not say.
  double seconds_per_size() const noexcept { return seconds_per_size_; }

 private:
  /// What this rank found out in one measurement; exchanged at its end.
  struct Verdict {
    std::uint64_t wrong = 0;
    std::uint64_t exact_hash = 0, random_hash = 0;
  };

  /// How many times what is timed: `loops` of `calls`, each behind a barrier.
  struct Repetitions {
    std::size_t loops, calls;
  };

  Rotation prepare(const Case&);
  /// `shift`: other values, of another place in the data.
  void fill(const Call&, const Oracle&, std::size_t shift = 0);
  void perform(const Call&);
  /// Until calls that were put into a stream have happened.
  void finish();
  /// What fill() has written to where calls use it, and back to where check() looks; nothing without a GPU.
  void send();
  void fetch();
  /// perform() between the two.
  void perform_once(const Call&);
  /// Wrong elements and damaged guard bytes on this rank; the hash of a result that is equal on all ranks.
  std::uint64_t check(const Call&, const Oracle&, const Compression&, std::uint64_t& wrong);
  Repetitions agree_on_repetitions(Rotation&, bool with_rival);
  /// Appends the local microseconds of one of `calls` calls of `perform_next` behind a barrier.
  template <class PerformNext>
  void time_loop(std::size_t calls, std::vector<double>& times, PerformNext&& perform_next);
  void time_calls(Rotation&, Repetitions, bool with_rival, std::vector<double>& ours, std::vector<double>& rivals);
  Bound bound(const Case&, Repetitions);
  Times slowest(std::vector<double> local);
  std::size_t total_wrong(const Verdict& mine, Collective);
  const Oracle& oracle(const Case&, Data);

  Communicator& comm_;
  Bootstrap& bootstrap_;
  const Settings& settings_;
  Rival* rival_;
  Options options_;
  std::optional<TopK> top_k_;
  Gpu* gpu_;
  GuardedBuffers input_, output_;
  std::optional<Roofline> roofline_;
  double seconds_per_size_;

  struct Oracles {
    bool reduction;
    DataType type;
    ReduceOp::Kind op;
    Oracle exact, random;
  };
  std::optional<Oracles> oracles_;  // of the latest type and op
};

}  // namespace collectives::bench
