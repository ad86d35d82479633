// Measurement of performance guidelines: times both sides of a cell in turn. A cell is a guideline for one collective,
// type, op and size, and a side is a list of calls (guidelines.hpp).
//
// A barrier precedes each side, and every rank times the calls of the side together. The sides take turns in going
// first, so that each follows itself as often as the other one. The time of a side is its slowest rank's.
//
// Both sides use the same memory if they can: each begins at the start of the input and of the output. Equal calls of a
// side have buffers of their own, one after another. All values are zero, because a call in place reduces its own
// result, and every op maps zeros to zeros.
#pragma once

#include <cstddef>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "collectives/communicator.hpp"
#include "collectives_bench/buffers.hpp"
#include "collectives_bench/guidelines.hpp"
#include "collectives_bench/guidelines_verdict.hpp"

namespace collectives::bench {

/// Classes of reasons to leave out a cell. A reason begins with its class and a colon.
inline constexpr std::string_view kRefused = "refused", kEqualPlan = "equal plan";

/// Result of the measurement of one cell.
struct CellTimes {
  PairedTimes times;
  std::string left_out;  ///< reason why there are no times; empty if there are
};

class GuidelineMeasurement {
 public:
  /// Collective. Allocates buffers for the largest of `cells`. The arguments must outlive this object.
  GuidelineMeasurement(Communicator& comm, const Settings& settings, const std::vector<GuidelineCell>& cells);

  /// Collective. Times both sides for about `seconds`, but at least fifteen times. Leaves out a cell if a backend
  /// refuses a call. Also leaves out a forced backend whose plan is that of auto, or that of an earlier backend.
  CellTimes run(const GuidelineCell& cell, double seconds);

 private:
  /// Input and output of the calls. Both begin on a cache line.
  struct Area {
    BufferMemory input, output;
  };
  using Calls = std::vector<std::function<void()>>;
  /// Number of rounds, and of pairs in each (guidelines_verdict.hpp).
  struct Rounds {
    std::size_t number, pairs;
  };

  std::optional<Area> make_area(const std::vector<GuidelineCell>& cells, bool allocated) const;
  Call call_of(const TimedCall& timed);
  /// Makes the functions that perform a side one after another. Throws Error{unsupported} if a call is refused.
  Calls prepare(const Side& side);
  /// Returns the reason to leave out the cell, or an empty text.
  std::string reason_to_leave_out(const GuidelineCell& cell) const;
  /// Performs both sides untimed. Returns the microseconds of the last pair.
  double warm_up(const Calls& left, const Calls& right);
  /// Returns how often a cell is timed. Rank 0 decides for all ranks, as in agree_to_stop().
  Rounds agree_on_rounds(double pair_us, double seconds);
  /// Returns whether a cell that takes too long ends after `rounds` rounds.
  bool agree_to_stop(std::size_t rounds, double seconds_used, double seconds);
  /// Appends the times of this rank in one round.
  void time_round(const Calls& left, const Calls& right, PairedTimes& times);
  double time_of(const Calls& side);

  Communicator& comm_;
  const Settings& settings_;
  std::optional<Area> ordinary_, allocated_;
};

/// Returns the plans of the different calls of a side, as explain() describes them.
std::vector<std::string> plans_of(const Communicator& comm, const Side& side);

}  // namespace collectives::bench
