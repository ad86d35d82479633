// Run of the sub-command `guidelines` on one rank: measures all cells, measures those that look violated again, and
// reports the verdicts. A cell is a guideline for one collective, type, op and size (guidelines.hpp).
//
// The first run measures every cell. The second and the third run measure only cells that are still undecided
// (guidelines_verdict.hpp), for longer and in new memory. Rank 0 decides which cells are measured again, and whether
// the machine is busy. It sends its decisions to all ranks, so that all make the same calls.
#pragma once

#include <cstddef>
#include <optional>
#include <string>

#include "collectives/communicator.hpp"
#include "collectives_bench/guidelines_report.hpp"
#include "collectives_bench/options.hpp"

namespace collectives::bench {

/// Seconds for the timed calls of both sides of a cell, without `--seconds-per-size`.
inline constexpr double kGuidelineSeconds = 0.05;

struct GuidelineOutcome {
  std::size_t violated = 0;  ///< number of cells
  std::string busy;          ///< reason why nothing was judged; empty if the cells were judged
};

/// Collective. Requires settings of the sub-command. `report` is null on all ranks but rank 0. All ranks get the
/// outcome of rank 0.
GuidelineOutcome run_guidelines(Communicator& comm, const Settings& settings, GuidelineReport* report,
                                const Setting& setting);

}  // namespace collectives::bench
