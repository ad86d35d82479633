// What a plan would do on a machine that is not here: its Steps, of all ranks, played on a model of hosts and links.
//
// The cost model (planning/cost.hpp) adds up what one rank and one link have to do. Here everything has its time and
// its place in a queue, event by event: a rank that waits for its neighbour, messages that meet in front of a link,
// rounds that overlap. The numbers are those of the cost model, so what the two make of them can be compared.
//
// The model. Every host has one link out and one link in, which its ranks share; both work at the same time. A message
// holds the link out of its host for bytes times us per byte, in the order in which messages are handed over, and the
// link into the other host as long, beginning a latency later, or when those before it are through: cut-through, with
// room for all that waits in between. Where hosts share the uplink of a switch, it does the same in the middle. A rank
// does one thing at a time: it takes messages, adds, hands messages over, each at its price, or works in an intra-host
// collective, which begins when the last rank of the host has come. A message goes out when there is a frame for it:
// frames are free again as soon as the other has taken what was in them. Nothing is lost, nothing is noise.
//
// Large machines. Where the blocks of a machine (its hosts, or its switches) do the same, one of them is played: what
// comes from a peer comes when the same message of the block's own would. Whether they do, their Steps say: those of
// some blocks are compared, in the first and the last round, with parts of equal length. Where rounds follow one
// another in a steady state, some are played and the rest is added. Both are done only where everything would take too
// many events, and the result says so. A function of its arguments: no clock, no randomness.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "collectives/plan.hpp"
#include "collectives/topology.hpp"
#include "planning/coding.hpp"

namespace collectives {

/// What lies between the hosts.
struct Fabric {
  double latency_us = 0;          ///< from one host to another
  double us_per_byte = 0;         ///< the link of a host, each way
  int hosts_per_switch = 0;       ///< hosts in the order of the topology; 0: all at one switch that is never in the way
  double uplink_us_per_byte = 0;  ///< the link of a switch to all others, each way

  static Fabric of(const Tuning& tuning) {
    return {.latency_us = tuning.wire_us, .us_per_byte = tuning.wire_us_per_byte};
  }
};

/// How much may be played.
struct Effort {
  std::size_t everything = 4'000'000;  ///< all hosts and rounds up to about so many events, else the shortcuts
  std::size_t most = 40'000'000;       ///< what takes more even so is refused
  bool one_block = true;               ///< the first shortcut is allowed
  bool some_rounds = true;             ///< the second is
};

struct Simulated {
  double microseconds = 0;         ///< until the last rank is done
  double bound_us = 0;             ///< no algorithm is faster: the fewest bytes over the links, and nothing else
  std::size_t bytes_out = 0;       ///< out of the busiest host, to others
  std::size_t events = 0;          ///< that were played
  int hosts_played = 0;            ///< fewer than there are: for the rest, which do the same
  std::size_t rounds_played = 0;   ///< fewer than there are: the rest were added
  std::vector<std::string> notes;  ///< what the result rests on beyond the model, in words
};

/// How long the shortest way takes to bring every host the bytes that it lacks.
double wire_bound_us(const Request&, const Coding&, const Topology&, const Fabric&);

/// Pure: equal arguments, equal results. `plan` is one of choose_plan() for these; of `tuning` count the prices of what
/// a rank does itself and the frames, the wire's are in `network`.
/// Throws Error{unsupported} where too many events would have to be played.
Simulated simulate(const Request&, const Plan& plan, const Topology&, const Tuning& tuning, const Fabric&,
                   const Effort& = {});

}  // namespace collectives
