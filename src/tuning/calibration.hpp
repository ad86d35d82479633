// Calibration: measures tuning values at the first use on a machine.
//
// The ranks of one host find the sizes at which another protocol of intra-host collectives becomes faster. They also
// find the best length of a chunk.
//
// The ranks first make a communicator of their own. Ranks that share a core move to other cores. All then time a
// barrier, which shows the distance between their cores. Values count for one distance only. Between two caches, for
// example, the kernel's copy pays from 16 KiB on. Within one cache it may never pay. Values of a known distance are not
// measured again. The cores of a virtual machine may be moved, even during the calibration. A second barrier at the end
// detects that.
//
// The ranks then time ordinary collectives, and change the communicator's tuning in between. One round makes every call
// under every candidate. Other load on the machine therefore affects all candidates alike. Rounds run forward and
// backward in turn. Otherwise the later of two calls would profit from nearer data.
//
// The time of a call is that of its slowest rank. In each direction the fastest round counts. A time in which a rank
// lost its core does not count. The built-in value stays unless another one is clearly faster in both directions.
//
// In the end every rank has all times and computes the same values. If a rank is lost, the calls of the communicator
// throw.
#pragma once

#include <chrono>
#include <cstddef>
#include <nlohmann/json.hpp>
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
  /// Makes a communicator and times a barrier. All ranks of `here` call it. They are processes of one host with a core
  /// each. The barrier takes a millisecond. It takes some more while ranks share a core. `timeout`: limit of the
  /// initialization and of each call. Throws the errors of a communicator, as all collective functions here do.
  Calibration(Bootstrap& here, std::chrono::nanoseconds timeout);
  /// Maximum number of exchanges over `here`. One communicator times barriers, and one serves all else.
  static constexpr int kExchanges = 2 * kInitExchangesOfOneHost;

  /// Returns the nanoseconds of one barrier, the fastest of several. Empty if the machine was too busy.
  std::optional<double> barrier_ns() const { return barrier_ns_; }
  /// Returns the argument that rank 0 passed. All ranks call it.
  bool told(bool by_rank_0);

  /// Measures all values, if there is a barrier_ns(). All ranks call it. Takes 20 to 60 ms. Starts no call after 100
  /// ms, even on a slow machine.
  void measure();
  /// Returns whether the results are worth keeping. False if nothing was measured, the machine was too busy, or the
  /// cores have moved.
  bool conclusive() const;
  /// Returns the measured values by name.
  nlohmann::json tuning() const;
  /// Returns the measurements: for each call, the microseconds under every candidate.
  nlohmann::ordered_json measurements() const;

 private:
  /// One call under one candidate.
  struct Sample {
    Collective collective;
    std::size_t bytes;  ///< length of the whole vector
    TuningParameters tuning;
    std::string_view protocol = {};  ///< protocol that the tuning chooses
  };
  /// Cut-off between two protocols, one for short vectors and one for long ones.
  struct CutOff {
    const char* name;
    std::size_t TuningParameters::*field;
    bool from;     ///< whether the value is the first size of the long protocol; else the last size of the short one
    double scale;  ///< ratio of the value to the size
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
  /// Communicator for calls between the timed ones. A call is faster behind one like it, which has already requested
  /// its cache lines.
  std::optional<Communicator> between_;
  const std::optional<double> barrier_ns_;
  std::chrono::steady_clock::time_point began_;  // start of measure()
  double elapsed_us_ = 0;                        // time from then to the start of the last call; equal on all ranks
  std::vector<float> input_, output_;
  bool stayed_ = false;  // whether all was measured, at one distance
  std::vector<Sample> samples_;
  std::vector<CutOff> cut_offs_;
  std::size_t first_chunk_sample_ = 0;
  struct Times {
    double best;  ///< microseconds
    int rounds;   ///< number of rounds in which every rank kept its core
  };
  std::vector<Times> times_by_direction_[2];  // one per sample, of rounds in forward and in reverse order
};

/// Returns how many of the sizes should use the first of two protocols. At present the first `now` use it. Sizes are in
/// ascending order.
///
/// `gain`: log(time of the first protocol / time of the second) at each size. The cut moves to where the gain is
/// largest. Sizes between the old cut and the new one must gain kClearly on average.
std::size_t best_cut(std::span<const double> gain, std::size_t now);

}  // namespace collectives
