// Measurement of the wire, the transport between hosts. The library estimates the times of algorithms from the results.
//
// The first ranks of two hosts call measure(). They first exchange short messages, from which the latency follows. Then
// each rank sends long messages to the other, in both directions at the same time as in collectives. The time per byte
// follows from these long messages. Each of the two ranks also measures how fast its core adds values.
//
// With four or more hosts, measure_together() repeats the measurement with long messages while all pairs of hosts send
// at the same time. The time per byte is then longer if the hosts share a slow part, such as a switch. Price: at the
// first start on a machine, measure_together() takes one more exchange over the bootstrap, and about 40 ms.
#pragma once

#include <cstdint>
#include <functional>
#include <nlohmann/json_fwd.hpp>

#include "collectives/deadline.hpp"
#include "collectives/plan.hpp"
#include "collectives/transport.hpp"
#include "core/tuning_parameters.hpp"

namespace collectives {

struct WireSpeed {
  double latency_us = 0;            ///< Time of a short message in one direction, without the CPU work of both ranks.
  double message_us = 0;            ///< Additional time of each further message of a series.
  double us_per_byte = 0;           ///< Time per byte of one direction while both directions are busy.
  double together_us_per_byte = 0;  ///< us_per_byte while all pairs of hosts send. 0: not measured, or hardly higher.
  double work_us_per_byte = 0;      ///< Upper bound of a rank's CPU time per byte.
  double reduce_us_per_byte = 0;    ///< Time to add arrived data, per byte of each source.

  /// Stores the numbers in `tuning`. Keeps a smaller wire_work_us_per_byte, because the measured one is only an upper
  /// bound.
  void put_into(TuningParameters& tuning) const;
  /// Returns the numbers as fields of a tuning file.
  nlohmann::json to_json() const;
  static WireSpeed from(const TuningParameters&);
};

/// One end of a measurement between two ranks. The functions below throw Error{timeout} at the deadline and
/// Error{peer_lost} if the wire has lost a peer. They throw Error{bootstrap} if the other rank breaks the protocol.
/// They also throw the errors of `check_peers`.
struct WireEnd {
  Wire& wire;
  Rank self, other;
  Deadline deadline;
  std::function<void()> check_peers = {};  ///< Throws if a rank is gone; may be empty.
};

/// Measures the wire between the two ranks. Both ranks call it. Exactly one of them passes first = true. Takes 20 to 60
/// ms. Takes longer if the wire is slower than 1 Gbit/s or its round trip exceeds 4 ms.
WireSpeed measure(const WireEnd&, bool first);

/// Returns the microseconds per byte and direction while all pairs of hosts send. Both ranks call it, at the same time
/// as all other pairs. `alone`: a result of measure(), the same at both ends. Takes 30 to 60 ms.
double measure_together(const WireEnd&, const WireSpeed& alone);

/// Returns the nanoseconds by which the steady clock of the other rank is ahead of this rank's. Meanwhile the other
/// rank calls answer_with_clock(). The error is at most half the shortest of 40 round trips.
std::int64_t ask_for_clock(const WireEnd&);
/// Answers ask_for_clock() of the other rank.
void answer_with_clock(const WireEnd&);

}  // namespace collectives
