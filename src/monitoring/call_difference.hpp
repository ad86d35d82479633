// Call difference: the first call in which the ranks of a communicator are known to differ.
//
// A rank enters the same calls as the other ranks, with the same arguments. The arrival table holds the records of the
// newest calls of each rank. The function first_difference() compares these records. The failure detector turns the
// result into the text of an error.
#pragma once

#include <optional>
#include <vector>

#include "core/call_record.hpp"
#include "monitoring/arrival_table.hpp"

namespace collectives {

/// The first call in which ranks are known to differ.
struct CallDifference {
  std::vector<Arrived> records;  ///< Records of this call.
  bool earlier = false;          ///< Whether calls before this one differ, of which there are no records.
  bool complete = false;         ///< Whether further records would change nothing.
  Rank unrecorded = kNoRank;     ///< Rank that made another call than the records show, but whose record is gone.
};

/// Returns the first call that differs in the records of `table`. Returns none if no call differs.
std::optional<CallDifference> first_difference(const ArrivalTable& table);

}  // namespace collectives
