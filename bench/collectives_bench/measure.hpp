// One measurement of collectives_bench, a row of its table. The benchmark fills the buffers, performs a call and
// verifies the result. Then it times further calls, and verifies the result again.
//
// Default timing: a barrier precedes each timed call, and every rank times its own call. The time of a call is its
// slowest rank's. The result is the median over the calls. Each rank stores its times in an array. The ranks combine
// their arrays only after the last call, so that the timed calls have the network for themselves.
//
// Back to back: a barrier precedes a loop of calls. The result is the duration of the loop on the slowest rank, divided
// by the number of calls.
//
// Competitor: calls of another library (MPI) alternate with calls of this library, with the same buffers and the same
// kind of barrier. The two libraries take turns in going first. Ranks leave a barrier at slightly different times,
// which makes the times of both libraries longer.
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

/// Collectives of another library.
class Competitor {
 public:
  virtual ~Competitor() = default;
  /// Returns whether the library can perform the call with its type, op and count. Every rank gets the same answer.
  virtual bool has(const Call&) const = 0;
  virtual void perform(const Call&) = 0;
};

/// Times of the timed calls on the slowest rank, in microseconds.
struct Times {
  double time = 0;  ///< median; back to back: duration of all loops over their calls
  double p50 = 0, p99 = 0;
  std::vector<double> samples;  ///< every timed call; back to back: every loop over its calls
};

/// Measured time of the minimum memory traffic of a call (roofline.hpp).
struct Bound {
  double time = 0;  ///< microseconds, as Times::time
  Stores stores = Stores::plain;
};

struct Result {
  Case what;
  std::size_t bytes = 0;  ///< length of the whole vector
  std::size_t iterations = 0;
  Times ours;
  std::optional<Times> competitor;
  std::optional<Bound> bound;        ///< set with --fraction-of-roofline if bytes move
  double algbw = 0, busbw = 0;       ///< GB/s (1e9)
  std::optional<std::size_t> wrong;  ///< number of elements over all ranks; empty without --check
  std::string plan;                  ///< "hierarchical/inline"; on a GPU "kernels", "host_copy:ring"
  double coding_us = 0;              ///< top-k: selecting, writing, reading and adding in the last call
  std::uint64_t wire_bytes = 0;      ///< bytes that the rank with the most traffic sends to other hosts in one call
};

/// Returns the microseconds between two readings of the clock. Every measured time includes one.
double clock_cost();

class Measurement {
 public:
  /// Collective. Allocates buffers for the largest of `cases`. `competitor` may be null; `gpu` is for --buffers device.
  /// The arguments must outlive this object.
  Measurement(Communicator& comm, Bootstrap& bootstrap, const Settings& settings, const std::vector<Case>& cases,
              Competitor* competitor, Gpu* gpu = nullptr);

  /// Collective. Returns nothing if the backend throws Error{unsupported}.
  std::optional<Result> run(const Case&);

  /// Returns the time for the timed calls of one measurement without --iterations.
  double seconds_per_size() const noexcept { return seconds_per_size_; }

 private:
  /// Findings of this rank in one measurement. The ranks exchange them at its end.
  struct Verdict {
    std::uint64_t wrong = 0;
    std::uint64_t exact_hash = 0, random_hash = 0;
  };

  /// Number of timed loops and of calls in each. A barrier precedes each loop.
  struct Repetitions {
    std::size_t loops, calls;
  };

  Rotation prepare(const Case&);
  /// Returns the plan of a case as text, or nothing if its backend does not perform it.
  std::optional<std::string> plan_of(const Case&);
  /// Makes persistent calls for each set of buffers.
  void make_persistent_calls(Rotation&);
  /// Sets options_ and top_k_ for the calls of a case.
  void choose_options(const Case&, bool on_gpu);
  /// Fills every set of buffers with random data, or with zeros.
  void fill_all_sets(Rotation&, const Oracle& random, bool on_zeros);
  /// Times our calls, the competitor's calls and the roofline, and stores all figures in the result.
  void measure_times(const Case&, Rotation&, Result&);
  /// Fills the buffers of a call. `shift` selects other values, from another place in the data.
  void fill(const Call&, const Oracle&, std::size_t shift = 0);
  /// Returns the call on the memory that calls use: that of the GPU if there is one.
  Call on_its_memory(const Call& image);
  void perform(const Call&);
  /// Blocks until the calls in the stream of the GPU have completed.
  void finish();
  /// Copies the buffers that fill() has written to the GPU. fetch() copies results back for check(). Both do nothing
  /// without a GPU.
  void send();
  void fetch();
  /// Calls send(), perform() and fetch().
  void perform_once(const Call&);
  /// Counts wrong elements and damaged guard bytes of this rank. Returns the hash of a result that is equal on all
  /// ranks.
  std::uint64_t check(const Call&, const Oracle&, const Compression&, std::uint64_t& wrong);
  /// Returns the number of elements of the output that differ from the expected result.
  std::size_t wrong_results(const Call&, const Oracle&, double more) const;
  std::size_t wrong_parts(const Call&, const Oracle&) const;
  Repetitions agree_on_repetitions(Rotation&, bool with_competitor);
  /// Times `calls` calls of `perform_next` after a barrier and appends the mean in microseconds.
  template <class PerformNext>
  void time_loop(std::size_t calls, std::vector<double>& times, PerformNext&& perform_next);
  void time_calls(Rotation&, Repetitions, bool with_competitor, std::vector<double>& ours,
                  std::vector<double>& competitor_times);
  Bound bound(const Case&, Repetitions);
  Times slowest(std::vector<double> local);
  std::size_t total_wrong(const Verdict& mine, Operation);
  const Oracle& oracle(const Case&, Data);

  Communicator& comm_;
  Bootstrap& bootstrap_;
  const Settings& settings_;
  Competitor* competitor_;
  Options options_;
  std::optional<TopK> top_k_;
  Gpu* gpu_;
  GuardedBuffers input_, output_;
  std::vector<std::size_t> counts_;                      // elements of each part in the current case
  std::vector<std::vector<PersistentCall>> persistent_;  // calls for each set of buffers; empty: calls are blocking
  double legs_ = 1;                                      // number of messages in a row in one call: 2 in a ping_pong
  std::optional<Roofline> roofline_;
  double seconds_per_size_;

  struct Oracles {
    bool reduction;
    int reduced;
    DataType type;
    ReduceOp::Kind op;
    Oracle exact, random;
  };
  std::optional<Oracles> oracles_;  // for the latest type and op
};

}  // namespace collectives::bench
