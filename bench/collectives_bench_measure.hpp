// One measurement: fill the buffers, call, verify, time, verify again.
//
// Timing: before each timed call a barrier, then every rank times its own call; the time of a call is that of the
// slowest rank, and the row's time is the median over calls. Each rank keeps its times in an array and the arrays are
// reduced by max when the measurement is over, so that nothing but the call and the barrier touches the network in
// between. Back to back there is no barrier, and the row's time is the loop's duration on the slowest rank over the
// calls. A rival's calls are interleaved with ours, on the same buffers, behind the same barrier, taking turns in going
// first.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "collectives/bootstrap.hpp"
#include "collectives/communicator.hpp"
#include "collectives_bench_options.hpp"
#include "collectives_bench_verification.hpp"

namespace collectives::bench {

/// One collective call of this rank.
struct Call {
  Collective collective;
  DataType type;
  ReduceOp op;
  Rank root, rank;
  bool in_place;
  ConstBuffer input;
  Buffer output;
  void* whole;  ///< in place: the start of the whole vector
};

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
  double time = 0;  ///< the median; back to back: the loop over its calls
  double p50 = 0, p99 = 0;
};

struct Result {
  Case what;
  std::size_t bytes = 0;  ///< of the whole vector
  std::size_t iterations = 0;
  Times ours;
  std::optional<Times> rival;
  double algbw = 0, busbw = 0;       ///< GB/s (1e9)
  std::optional<std::size_t> wrong;  ///< elements over all ranks; empty without --check
  std::string plan;                  ///< "hierarchical/inline"
};

class Measurement {
 public:
  /// Allocates buffers for the largest of `cases`. `rival` may be null. The arguments outlive this.
  Measurement(Communicator& comm, Bootstrap& bootstrap, const Settings& settings, const std::vector<Case>& cases,
              Rival* rival);

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

  Call prepare(const Case&);
  void fill(const Call&, const Oracle&);
  void perform(const Call&);
  /// Wrong elements and damaged guard bytes on this rank; the hash of a result that is equal on all ranks.
  std::uint64_t check(const Call&, const Oracle&, std::uint64_t& wrong);
  std::size_t agree_on_iterations(const Call&, bool with_rival);
  /// Local microseconds of each timed call of ours and the rival's.
  void time_calls(const Call&, std::size_t iterations, bool with_rival, std::vector<double>& ours,
                  std::vector<double>& rivals);
  Times slowest(std::vector<double> local);
  std::size_t total_wrong(const Verdict& mine, Collective);
  const Oracle& oracle(const Case&, Data);

  Communicator& comm_;
  Bootstrap& bootstrap_;
  const Settings& settings_;
  Rival* rival_;
  Options options_;
  GuardedBuffer input_, output_;
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
