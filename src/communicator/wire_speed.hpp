// Measurement of the wire between hosts, for the cost model.
//
// measure() uses the first ranks of the first two hosts. They exchange short messages for the latency. Then they send
// long messages to each other at the same time, as collectives do. It also measures how fast a rank adds arrived data.
//
// With four or more hosts, measure_together() then measures all hosts in pairs at once. It finds the limit of what the
// hosts share, such as a small switch or the cores of one machine. The price: one exchange and 40 ms more at the first
// start.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>

#include "collectives/deadline.hpp"
#include "collectives/plan.hpp"
#include "collectives/transport.hpp"
#include "core/tuning_parameters.hpp"

namespace collectives {

struct WireSpeed {
  double latency_us = 0;            ///< One-way latency of a short message, without the work of the two ends.
  double message_us = 0;            ///< Cost of each further message of a series.
  double us_per_byte = 0;           ///< Time per byte of one direction while both directions are busy.
  double together_us_per_byte = 0;  ///< The value of us_per_byte while all pairs of hosts send; 0 if not measured.
  double work_us_per_byte = 0;      ///< Upper bound of a rank's own work per byte that it sends or receives.
  double reduce_us_per_byte = 0;    ///< Time to add arrived data, per byte of each source.

  /// Stores the numbers in `tuning`. Keeps a smaller work per byte, because the measured one is only an upper bound.
  void put_into(TuningParameters& tuning) const;
  /// Returns the numbers as fields of a tuning file.
  nlohmann::json to_json() const;
  static WireSpeed from(const TuningParameters&);
};

/// Measures the wire between the calling rank and `other`. Collective over the two; one of them is `first`. Takes 20 to
/// 60 ms. Takes longer if the wire is slower than 1 Gbit/s or its round trip exceeds 4 ms. Throws Error{timeout}.
WireSpeed measure(Wire& wire, Rank other, bool first, Deadline deadline);

/// Returns the microseconds per byte and direction while all pairs of hosts send. Collective over the calling rank and
/// `other`; all other pairs call it too. `alone` is the result of measure(), the same at both ends. Takes 30 to 60 ms.
double measure_together(Wire& wire, Rank other, const WireSpeed& alone, Deadline deadline);

/// Returns the nanoseconds by which the steady clock of `other` is ahead. Meanwhile `other` calls answer_with_clock().
/// The error is at most half the shortest of 40 round trips. Throws Error{timeout}.
std::int64_t ask_for_clock(Wire& wire, Rank other, Deadline deadline);
/// Answers ask_for_clock() of `other`.
void answer_with_clock(Wire& wire, Rank other, Deadline deadline);

}  // namespace collectives
