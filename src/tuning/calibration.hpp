// Calibration: measures tuning values when the library is first used on a machine. Tuning values are numbers by which
// the library chooses how to perform a call.
//
// A protocol is a way in which ranks of one host exchange data. A chunk is the part of a long vector that ranks copy to
// shared memory at once. For each protocol, the calibration finds the size of vectors from which the protocol is faster
// than others. It also finds the best length of chunks.
//
// First, the ranks of one host make a communicator. If several ranks share a core, all but one of them move to idle
// cores. Then all ranks time a barrier. The time of this barrier is called the distance between the cores. The distance
// is shorter if the cores share a cache. Measured values are valid for one distance only. Example: between cores with
// different caches, copies by the operating system may be faster from 16 KiB on. Between cores that share a cache, they
// may be slower for all sizes. If values for the distance are already known, the caller does not measure again. The
// hypervisor may move a virtual machine to other cores during the calibration. A second timed barrier at the end
// detects this.
//
// After the first barrier, the ranks time ordinary collectives, and change the tuning of the communicator between them.
// A round times each call of a list once with each candidate value. Other load on the machine therefore affects all
// values alike. Every second round is backward: it times the calls in reverse order. Reason: the later of two calls
// profits from data in the caches.
//
// The time of a call is the time of its slowest rank. For each call and candidate value, two times count: the shortest
// of all forward rounds, and the shortest of all backward rounds. Calls in which a rank lost its core are ignored. A
// candidate replaces the built-in value only if it is clearly faster in both directions.
//
// At the end, every rank has all times and computes the same values. If a rank is lost, the calls of the communicator
// throw, and the calibration throws the same error.
#pragma once

#include <chrono>
#include <cstddef>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "collectives/bootstrap.hpp"
#include "collectives/communicator.hpp"
#include "collectives/plan.hpp"
#include "communicator/communicator_init.hpp"
#include "core/tuning_parameters.hpp"

namespace collectives {

class Calibration {
 public:
  /// Makes a communicator and times a barrier. All ranks of the bootstrap `here` must call the constructor. They must
  /// be processes of one host that has a core for each. The timing takes one millisecond, or a few if ranks share a
  /// core. `timeout` limits the initialization and each call. This constructor and all functions that all ranks call
  /// throw the errors of a communicator.
  Calibration(Bootstrap& here, std::chrono::nanoseconds timeout);
  /// Maximum number of exchanges over the bootstrap `here`. A calibration makes two communicators: one for the timed
  /// calls, and one for the calls between them.
  static constexpr int kExchanges = 2 * kInitExchangesOfOneHost;

  /// Returns the fastest time of several barriers in nanoseconds. Returns nothing if the machine was too busy.
  std::optional<double> barrier_ns() const { return barrier_ns_; }
  /// Returns the argument that rank 0 has passed, on all ranks. All ranks must call this function.
  bool told(bool by_rank_0);

  /// Measures all values. All ranks must call this function. Requires that barrier_ns() has a value. Takes 20 to 60 ms.
  /// Starts no further measurement after 100 ms, even on a slow machine.
  void measure();
  /// Returns whether the results may be stored. False if nothing was measured, the machine was too busy, or ranks were
  /// moved to other cores.
  bool conclusive() const;
  /// Returns the measured values by name.
  nlohmann::json tuning() const;
  /// Returns the measured times: for each call, the time in microseconds with each candidate value.
  nlohmann::ordered_json measurements() const;

 private:
  /// One collective with one tuning, which is timed.
  struct Sample {
    Collective collective;
    std::size_t bytes;  ///< length of the whole vector
    TuningParameters tuning;
    std::string_view protocol = {};  ///< protocol that the tuning chooses
  };
  /// Cut-off: the size of vectors at which the protocol, or the kind of its stores, changes. A vector is short or long,
  /// depending on this size.
  struct CutOff {
    const char* name;
    std::size_t TuningParameters::*field;
    bool from;     ///< true: the value is the first size of long vectors; false: the last size of short vectors
    double scale;  ///< ratio of the tuning value to the size of the vector
    std::vector<std::size_t> sizes;
    std::size_t scaled(std::size_t size) const { return static_cast<std::size_t>(static_cast<double>(size) * scale); }
    std::size_t calls;         ///< number of collectives per size
    std::size_t first_sample;  ///< index of the first sample; samples are ordered by size, call and protocol
  };
  void ask_everything();
  void ask(const char* name, std::size_t TuningParameters::*field, bool from, double scale,
           std::vector<std::size_t> sizes, std::initializer_list<Collective> calls);
  void ask_the_rest_with(std::size_t streamed_staging_bytes);
  void ask_for_chunk();
  static Communicator make_communicator(Bootstrap& here, std::chrono::nanoseconds timeout, const TuningParameters&);
  void spread_out();
  std::optional<double> time_barrier();
  std::optional<double> time_of(const Sample&);
  bool enough(std::size_t first, std::size_t end) const;
  double gain(std::size_t from, std::size_t to) const;
  std::size_t found(const CutOff&) const;
  std::size_t found_chunk() const;
  std::size_t signal_bytes() const;

  Communicator comm_;
  Bootstrap& here_;
  const std::chrono::nanoseconds timeout_;
  /// Communicator for calls between the timed ones. Without them, a timed call would follow a call like it. It would be
  /// too fast, because the earlier call has loaded the same cache lines.
  std::optional<Communicator> between_;
  const std::optional<double> barrier_ns_;
  std::chrono::steady_clock::time_point began_;  // start of measure()
  // Microseconds from `began_` to the start of the last call; equal on all ranks.
  double elapsed_us_ = 0;
  std::vector<float> input_, output_;
  bool stayed_ = false;  // whether everything was measured, and the ranks stayed on their cores
  std::vector<Sample> samples_;
  std::vector<CutOff> cut_offs_;
  std::size_t first_chunk_sample_ = 0;
  struct Times {
    double best;  ///< microseconds
    int rounds;   ///< number of rounds in which every rank kept its core
  };
  std::vector<Times> times_by_direction_[2];  // by direction of the rounds (forward, backward) and by sample
};

/// Returns how many of the measured sizes, in ascending order, should use the first of two protocols. At present the
/// first `now` of them use it.
///
/// `gain`: log(time of the first protocol / time of the second) at each size. Chooses the number with which the total
/// gain is largest. The sizes that change their protocol must become faster by kClearly on average.
std::size_t best_cut(std::span<const double> gain, std::size_t now);

}  // namespace collectives
