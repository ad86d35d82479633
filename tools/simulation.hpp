// Simulator of plans: computes how long a collective would take on hosts and links that need not exist. A plan is an
// algorithm for a call. An algorithm consists of Steps, the actions of single ranks. The simulator goes through the
// Steps of all ranks in the order of simulated time.
//
// The library itself uses a cost model (planning/cost.hpp). This model only adds up the work of the busiest rank and
// link, because the choice of a plan must take only microseconds. The simulator computes when each message and each
// action of a rank begins and ends. The result therefore includes waits for a neighbour, queues at a link, and rounds
// that overlap. A round performs all Steps on one segment of each part of the vector. Both the cost model and the
// simulator take the costs of actions from the same TuningParameters, so their results can be compared.
//
// Links. Every host has one link out and one link in, which its ranks share. The two links may carry messages at the
// same time. A message occupies the link out of its host for bytes * us_per_byte microseconds. Messages pass the link
// out in the order in which ranks send them. One latency later, the message occupies the link into the other host for
// an equally long time. If other messages occupy that link, the message waits. The model is cut-through: the beginning
// of a message enters the second link before the end of the message has left the first one. Queues between links are
// unbounded. If hosts share the uplink of a switch, a message also passes the uplinks of the two switches. Messages are
// not divided into packets, no message is lost, and times have no noise.
//
// Ranks. A rank does one thing at a time: it takes a message, adds values, sends a message, or takes part in an
// intra-host collective. The tuning states the time of each action. An intra-host collective begins when the last
// of its ranks arrives. A frame is memory for one message. A message leaves when a frame is free, and the receiver
// frees the frame when it has taken the message.
//
// The simulator has two shortcuts for large machines, such as 65,536 ranks. A shortcut is used only if a complete
// simulation takes more events than Effort::everything. The result names the shortcuts that were used.
//
// One block: a block is a host, or the hosts of one switch. If all blocks do the same, only one is simulated. A message
// from another block is assumed to arrive when the corresponding message of the simulated block would arrive. To find
// out whether blocks do the same, the Steps of some blocks are compared, in the first and the last round.
//
// Some rounds: if each round takes the same time, only some rounds are simulated, and the time of the others is added.
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
  double latency_us = 0;          ///< Time from one host to another, without the time that a link is occupied.
  double us_per_byte = 0;         ///< Microseconds per byte of each link of a host.
  int hosts_per_switch = 0;       ///< Hosts of a switch in the order of the topology. 0: one switch of unlimited rate.
  double uplink_us_per_byte = 0;  ///< Microseconds per byte of a switch's uplink, each direction.

  static Fabric of(const TuningParameters& tuning) {
    return {.latency_us = tuning.wire_us, .us_per_byte = tuning.wire_us_per_byte};
  }
};

/// Limits of a simulation.
struct Effort {
  std::size_t everything = 4'000'000;  ///< Number of events up to which no shortcut is used.
  std::size_t most = 40'000'000;       ///< Number of events above which simulate() throws, even with shortcuts.
  bool one_block = true;               ///< Permission to simulate one block for all.
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
