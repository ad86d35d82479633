// What the samples say: for every cell the time of ours, the best of the others, their ratio, and how sure that is.
//
// A sample is one contender's time for one cell in one round. Rounds are pairs: in each, every contender met the same
// state of the machine, so a ratio is formed round by round and its median taken. The 95 % interval is that of a
// bootstrap: rounds are drawn again and again with replacement, the best peer is chosen anew each time, and the middle
// 95 % of the ratios so found is the interval. Ours counts as slower only when the whole interval lies below the bar.
#pragma once

#include <compare>
#include <cstddef>
#include <istream>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace collectives::compare {

/// What is timed. Ordered as it is printed.
struct Cell {
  int ranks = 0;
  bool back_to_back = false;
  std::string collective;
  bool in_place = false;
  std::size_t bytes = 0;  ///< of the whole vector
  auto operator<=>(const Cell&) const = default;
};

/// Without the size: "2 ranks, all_reduce, in place"; back to back instead of a place.
std::string title_of(const Cell& cell);

enum class Role {
  ours,
  peer,          ///< another library as it comes
  best_setting,  ///< another library with settings chosen for the occasion
  bound          ///< what memory alone would take
};

/// Microseconds by round.
using Rounds = std::map<int, double>;

struct Series {
  Role role = Role::peer;
  Rounds rounds;
};

struct Samples {
  std::map<Cell, std::map<std::string, Series>> cells;  ///< by contender
  std::vector<std::string> notes;                       ///< what was left out and why, once for each line of cells
  std::size_t wrong_of_ours = 0;                        ///< wrong elements in our results
};

/// Reads JSON lines as run_contender writes them. A peer's wrong result is no sample but a note.
/// Throws std::runtime_error naming the line that is no such line.
Samples read_samples(std::istream&);

struct Ratio {
  std::string peer;          ///< the best: the one with the smallest ratio
  double peer_time = 0;      ///< microseconds, median over rounds
  double value = 0;          ///< peer / ours: above 1, ours is faster
  double low = 0, high = 0;  ///< the 95 % interval
};

/// Best of `peers` over `ours`; empty when no peer shares a round with ours. The same samples give the same interval.
std::optional<Ratio> best_peer_over(const Rounds& ours, const std::map<std::string, Rounds>& peers);

/// Below this ratio ours counts as slower: 1, but 0.9 for an all-gather from 8 KiB to 16 MiB, where every peer moves
/// the least bytes that a single copy can.
double bar(const Cell&) noexcept;

/// One cell of one of our contenders, judged.
struct Verdict {
  Cell cell;
  double time = 0;                 ///< of ours, microseconds, median over rounds
  std::optional<Ratio> stock;      ///< against the peers as they come
  std::optional<Ratio> any;        ///< against them and their best settings; empty when there were none of these
  std::optional<double> roofline;  ///< bound / ours

  /// Whether ours counts as slower than `least` times the bar against anybody.
  bool slower(double least = 1) const noexcept;
};

/// The cells of one collective, number of ranks and placement, for one of our contenders.
struct Line {
  std::string ours;
  std::vector<Verdict> verdicts;     ///< ascending in bytes
  std::vector<std::size_t> missing;  ///< bytes of cells that only others have
};

/// In the order of the cells, for each of them our contenders by name.
std::vector<Line> judge(const Samples&);

struct Summary {
  double all = 0;                  ///< geometric mean of the ratios; 0 when there are none
  double large = 0;                ///< of those from 1 MiB up
  const Verdict* worst = nullptr;  ///< of the smallest ratio
  std::size_t slower = 0;          ///< cells
};

constexpr std::size_t kLargeBytes = 1 << 20;

/// Of `ratio` in every verdict that has it.
Summary summarize(const Line&, std::optional<Ratio> Verdict::*ratio);

/// The smallest fraction of the roofline from `bytes` up.
std::optional<double> worst_roofline(const Line&, std::size_t bytes);

/// Cells that count as slower than `least` times their bar, and cells that ours left out.
std::size_t failures(const std::vector<Line>&, double least);

}  // namespace collectives::compare
