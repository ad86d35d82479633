// How fast the wire between two hosts is, found out in some milliseconds: one rank of each host, the first one of the
// first two hosts, send one another short messages, and then long ones both at once, as collectives do. Then all hosts
// do that at once, in pairs: what they share, a switch or the cores of a machine, shows then.
// And how fast what comes is added, which is what a rank does with it.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>

#include "collectives/deadline.hpp"
#include "collectives/plan.hpp"
#include "collectives/transport.hpp"

namespace collectives {

struct WireSpeed {
  double latency_us = 0;            ///< one way, of a short message, less what both ends do for it
  double message_us = 0;            ///< what each further message costs when several follow one another
  double us_per_byte = 0;           ///< each way, with both ways in use
  double together_us_per_byte = 0;  ///< likewise, while all pairs of hosts talk; 0: not measured
  double work_us_per_byte = 0;      ///< what a rank itself does for a byte that it sends or takes, at most
  double reduce_us_per_byte = 0;    ///< adding what has come, for each byte of each source

  /// Of the work for a byte the smaller stays: measured is only what it is at most.
  void put_into(Tuning&) const;
  /// As fields of a tuning.
  nlohmann::json to_json() const;
  static WireSpeed from(const Tuning&);
};

/// Collective over the calling rank and `other`, of which one is `first`. 20 to 60 ms, more on a wire that is
/// slower than 1 Gbit/s or has a round trip of more than 4 ms. Throws Error{timeout}.
WireSpeed measure(Wire& wire, Rank other, bool first, Deadline deadline);

/// Collective over the calling rank and `other`, while all other pairs do the same: microseconds for each byte each
/// way. `alone`: what measure() has found of one pair, the same numbers at both ends. 30 to 60 ms.
double measure_together(Wire& wire, Rank other, const WireSpeed& alone, Deadline deadline);

/// Collective over the calling rank, which asks, and `other`, which answers: nanoseconds by which the steady clock of
/// `other` is ahead, as exact as half the shortest of some round trips. Throws Error{timeout}.
std::int64_t ask_for_clock(Wire& wire, Rank other, Deadline deadline);
void answer_with_clock(Wire& wire, Rank other, Deadline deadline);

}  // namespace collectives
