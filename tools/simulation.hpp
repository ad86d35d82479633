// Simulator of plans: performs the Steps of all ranks as events on a model of hosts and links that need not exist.
//
// The cost model (planning/cost.hpp) adds up the work of the busiest rank and link, because the choice of a plan must
// take microseconds. The simulator gives every message and every piece of work a time and a place in a queue. Its
// result therefore includes ranks that wait for a neighbour, messages that queue at a link, and rounds that overlap.
// Both read the same prices from TuningParameters, so their results can be compared.
//
// Links. Every host has one link out and one link in, which its ranks share. Both carry messages at the same time. A
// message occupies the link out of its host for bytes times us_per_byte, in the order in which ranks send messages. It
// occupies the link into the other host for the same time. It enters that link one latency later, or after the messages
// before it. The model is cut-through: the head of a message enters the next link before its tail has left the last
// one. Queues between links are unbounded. If hosts share the uplink of a switch, a message also passes the uplinks of
// the two switches. Links are queues and not packets, nothing is lost, and times have no noise.
//
// Ranks. A rank does one thing at a time. It takes messages, adds values and sends messages, each at its price, or it
// takes part in an intra-host collective. The collective begins when the last of its ranks arrives. A message leaves
// when a frame is free. The receiver frees the frame of a message when it has taken the message.
//
// Two shortcuts serve large machines, such as 65,536 ranks. They are used only if a complete simulation takes too many
// events, and the result names them.
//
// One block: if the blocks of a machine (its hosts, or its switches) do the same, one block is simulated. A message
// from another block arrives when the same message of the simulated block would. The Steps of some blocks are compared
// in the first and the last round, with parts of equal length.
//
// Some rounds: if rounds follow one another in a steady state, some rounds are simulated and the others are added.
//
// Results depend on the arguments alone: no clock and no random number is read.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "collectives/plan.hpp"
#include "collectives/topology.hpp"
#include "core/tuning_parameters.hpp"
#include "planning/coding.hpp"

namespace collectives {

/// The network between the hosts.
struct Fabric {
  double latency_us = 0;          ///< Time of a byte from one host to another.
  double us_per_byte = 0;         ///< Inverse rate of the link of a host in each direction.
  int hosts_per_switch = 0;       ///< Hosts of a switch in the order of the topology. 0: one switch of unlimited rate.
  double uplink_us_per_byte = 0;  ///< Inverse rate of the uplink of a switch in each direction.

  static Fabric of(const TuningParameters& tuning) {
    return {.latency_us = tuning.wire_us, .us_per_byte = tuning.wire_us_per_byte};
  }
};

/// Limits of a simulation.
struct Effort {
  std::size_t everything = 4'000'000;  ///< Events up to which no shortcut is used.
  std::size_t most = 40'000'000;       ///< Events above which simulate() throws, shortcuts included.
  bool one_block = true;               ///< Permission to simulate one block.
  bool some_rounds = true;             ///< Permission to simulate some rounds.
};

struct Simulated {
  double microseconds = 0;         ///< Time at which the last rank is done.
  double bound_us = 0;             ///< Lower bound of any algorithm, see wire_bound_us().
  std::size_t bytes_out = 0;       ///< Bytes that the busiest host sends to other hosts.
  std::size_t events = 0;          ///< Number of simulated events.
  int hosts_played = 0;            ///< Number of simulated hosts. Fewer than all if one block stands for all.
  std::size_t rounds_played = 0;   ///< Number of simulated rounds. Fewer than all if the other rounds were added.
  std::vector<std::string> notes;  ///< Shortcuts and limits of the result, one sentence each.
};

/// Returns the time in which the links could bring every host its missing bytes: a lower bound of any algorithm.
double wire_bound_us(const Request&, const Coding&, const Topology&, const Fabric&);

/// Simulates `plan`, a plan of choose_plan() for this request and topology. `tuning` holds the prices of a rank's own
/// work and the numbers of frames. The prices of the wire are those of the Fabric. Throws Error{unsupported} if the
/// simulation takes more than `Effort::most` events.
Simulated simulate(const Request&, const Plan& plan, const Topology&, const TuningParameters& tuning, const Fabric&,
                   const Effort& = {});

}  // namespace collectives
