// Calibration: at the first use on a machine the ranks of a host find out, in some milliseconds, where one protocol of
// an intra-host collective gives way to another, and how long a chunk should be.
//
// They meet in a communicator of their own, move to different cores if they share one, and time a barrier, which says
// how far their cores are from one another: what is best for two hardware threads of a core or for cores of one cache
// is not for two sockets, and a virtual machine may have its cores moved from one to the other, in the middle of it
// too, which is noticed by another barrier. What was measured at that distance before need not be measured again.
// Otherwise they make the very calls that programs make, and switch the communicator's tuning in between. A round makes
// every call under every candidate, so that whatever else the machine does hits all alike. Rounds go there and back by
// turns, because whichever comes second finds the data nearer. Of each way the fastest time counts, by the slowest
// rank; a time in which a rank lost its core does not. The built-in number stays unless another is clearly better both
// ways.
//
// Every rank has all times in the end and comes to the same numbers; a rank that is lost on the way is the
// communicator's to report.
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

namespace collectives {

class Calibration {
 public:
  /// Meets, and times a barrier. Collective over `here`, whose ranks are processes of one host with a core each; takes
  /// a millisecond besides what meeting takes, and some more while ranks have to share a core. `timeout`: of meeting
  /// and of each call. Throws what a communicator throws, as all that is collective here does.
  Calibration(Bootstrap& here, std::chrono::nanoseconds timeout);
  /// Exchanges over `here` that it makes at most: one meeting for a barrier, and one for all else.
  static constexpr int kExchanges = 2 * kInitExchangesOfOneHost;

  /// Nanoseconds of a barrier of the ranks, one behind the other, at best. Nothing where the machine was too busy to
  /// tell.
  std::optional<double> barrier_ns() const { return barrier_ns_; }
  /// What rank 0 says. Collective.
  bool told(bool by_rank_0);

  /// Measures everything else, if there is a barrier_ns(). Collective; takes 20 to 60 ms, and begins no call after 100
  /// however slow the machine.
  void measure();
  /// False when it was not measured, the machine was too busy to compare anything, or the cores have moved. Otherwise
  /// the results are worth keeping.
  bool conclusive() const;
  /// The numbers found, by name.
  nlohmann::json tuning() const;
  /// From which measurements: for each call the microseconds under every candidate.
  nlohmann::ordered_json measurements() const;

 private:
  /// One call under one candidate.
  struct Sample {
    Collective collective;
    std::size_t bytes;  ///< of the whole vector
    Tuning tuning;
    std::string_view protocol = {};  ///< what the tuning makes of it
  };
  /// Two protocols, of which one is for short vectors and the other for long ones.
  struct CutOff {
    const char* name;
    std::size_t Tuning::*field;
    bool from;     ///< the number is the first size of the other protocol, not the last of the first
    double scale;  ///< the number is this many times the size
    std::vector<std::size_t> sizes;
    std::size_t scaled(std::size_t size) const { return static_cast<std::size_t>(static_cast<double>(size) * scale); }
    std::size_t calls;         ///< collectives at each size
    std::size_t first_sample;  ///< by size, call and protocol
  };
  void ask_everything();
  void ask(const char* name, std::size_t Tuning::*field, bool from, double scale, std::vector<std::size_t> sizes,
           std::initializer_list<Collective> calls);
  void ask_the_rest_with(std::size_t streamed_staging_bytes);
  void ask_for_chunk();
  static Communicator make_communicator(Bootstrap& here, std::chrono::nanoseconds timeout, const Tuning&);
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
  /// For what stands between timed calls: a call is faster behind one like it, which has asked for its lines.
  std::optional<Communicator> between_;
  const std::optional<double> barrier_ns_;
  std::chrono::steady_clock::time_point began_;  // measure()
  double elapsed_us_ = 0;                        // since then when the last call began; the same on every rank
  std::vector<float> input_, output_;
  bool stayed_ = false;  // all was measured, at one distance
  std::vector<Sample> samples_;
  std::vector<CutOff> cut_offs_;
  std::size_t first_chunk_sample_ = 0;
  struct Times {
    double best;  ///< microseconds
    int rounds;   ///< in which every rank kept its core
  };
  std::vector<Times> times_by_direction_[2];  // of each sample, in rounds there and in rounds back
};

/// Of sizes in ascending order, of which the first `now` are for one protocol and the others for another: how many
/// should be. `gain`: at each size the logarithm of the one's time over the other's. A cut is moved to where most is
/// gained, but only over sizes that gain clearly on average.
std::size_t best_cut(std::span<const double> gain, std::size_t now);

}  // namespace collectives
