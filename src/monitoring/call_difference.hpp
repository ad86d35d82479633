// Call difference: the first call in which the ranks of a communicator differ, as far as this rank knows.
//
// Ranks must make the same calls with the same arguments. The arrival table holds the newest records of each rank. The
// function first_difference() compares these records. The failure detector reports the result in an error.
#pragma once

#include <optional>
#include <vector>

#include "core/call_record.hpp"
#include "monitoring/arrival_table.hpp"

namespace collectives {

/// First call in which ranks differ, to this rank's knowledge.
struct CallDifference {
  std::vector<Arrived> records;  ///< Records of the differing call, one per rank that is known to have entered it.
  bool earlier = false;          ///< Whether earlier calls without records differ, too.
  bool complete = false;         ///< Whether no further record of this call can arrive, so that waiting is useless.
  Rank unrecorded = kNoRank;     ///< Rank whose call differs, but whose record has been overwritten.
};

/// Returns the first call that differs in the records of `table`. Returns nothing if no call differs.
std::optional<CallDifference> first_difference(const ArrivalTable& table);

}  // namespace collectives
