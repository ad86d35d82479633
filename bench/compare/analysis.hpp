// Analysis of the comparison with other libraries. A cell is one collective at one size and number of ranks, in place
// or out of place. For every cell the analysis gives our time, the best peer's time, their ratio and its confidence
// interval.
//
// A contender is a library that is timed: ours or a peer. A round times every contender once. A sample is the time of
// one contender for one cell in one round. Within a round, all contenders are timed under similar conditions of the
// machine. The analysis therefore forms one ratio per round, the peer's time divided by ours, and takes the median over
// the rounds.
//
// The 95 % confidence interval is computed by a statistical bootstrap: rounds are drawn at random with replacement,
// many times. Each draw gives a ratio to the best peer. The interval is the middle 95 % of these ratios. Our library
// counts as slower only if the whole interval is below a limit, the bar.
#pragma once

#include <compare>
#include <cstddef>
#include <istream>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace collectives::compare {

/// One collective at one size. The report prints cells in the order of their fields.
struct Cell {
  int ranks = 0;
  bool back_to_back = false;
  std::string collective;
  bool in_place = false;
  std::size_t bytes = 0;  ///< length of the whole vector
  auto operator<=>(const Cell&) const = default;
};

/// Returns the title without the size: "2 ranks, all_reduce, in place". "back to back" replaces the placement.
std::string title_of(const Cell& cell);

enum class Role {
  ours,
  peer,          ///< another library with default settings
  best_setting,  ///< another library with settings chosen for the comparison
  bound          ///< time that the memory traffic alone takes
};

/// Time of each round in microseconds, by the number of the round.
using Rounds = std::map<int, double>;

struct Series {
  Role role = Role::peer;
  Rounds rounds;
};

struct Samples {
  std::map<Cell, std::map<std::string, Series>> cells;  ///< contenders by name
  std::vector<std::string> notes;                       ///< contenders that were left out, with the reason
  std::size_t wrong_of_ours = 0;                        ///< wrong elements in our results
};

/// Reads JSON lines in the format of run_contender(). A wrong result of a peer becomes a note, not a sample. Throws
/// std::runtime_error that names a malformed line.
Samples read_samples(std::istream&);

struct Ratio {
  std::string peer;          ///< peer with the smallest ratio
  double peer_time = 0;      ///< microseconds, median over rounds
  double value = 0;          ///< the peer's time divided by ours; above 1 our library is faster
  double low = 0, high = 0;  ///< bounds of the 95 % interval
};

/// Returns the time of the best of `peers` divided by `ours`. Returns nothing if no peer was timed in a round of ours.
/// Equal samples give equal intervals.
std::optional<Ratio> best_peer_over(const Rounds& ours, const std::map<std::string, Rounds>& peers);

/// Returns the ratio below which our library counts as slower. It is 0.9 for an all-gather from 8 KiB to 16 MiB,
/// because every peer moves the minimum of bytes there. For other cells it is 1.
double bar(const Cell&) noexcept;

/// Result of one cell for one of our contenders.
struct Verdict {
  Cell cell;
  double time = 0;                 ///< our time in microseconds, median over rounds
  std::optional<Ratio> stock;      ///< against the peers with default settings
  std::optional<Ratio> any;        ///< against all peers and best settings; empty without best settings
  std::optional<double> roofline;  ///< bound / ours

  /// Returns whether ours is slower than `least` times the bar against any peer.
  bool slower(double least = 1) const noexcept;
};

/// Cells of one collective, number of ranks and placement, for one of our contenders.
struct Line {
  std::string ours;
  std::vector<Verdict> verdicts;     ///< in ascending order of bytes
  std::vector<std::size_t> missing;  ///< bytes of cells that ours left out
};

/// Returns the lines in the order of the cells, and for each of them our contenders by name.
std::vector<Line> judge(const Samples&);

struct Summary {
  double all = 0;                  ///< geometric mean of the ratios; 0 without ratios
  double large = 0;                ///< geometric mean from 1 MiB up
  const Verdict* worst = nullptr;  ///< verdict with the smallest ratio
  std::size_t slower = 0;          ///< number of cells
};

constexpr std::size_t kLargeBytes = 1 << 20;

/// Summarizes `ratio` over every verdict that has it.
Summary summarize(const Line&, std::optional<Ratio> Verdict::*ratio);

/// Returns the smallest fraction of the roofline from `bytes` up.
std::optional<double> worst_roofline(const Line&, std::size_t bytes);

/// Returns the number of cells that are slower than `least` times their bar or missing.
std::size_t failures(const std::vector<Line>&, double least);

}  // namespace collectives::compare
