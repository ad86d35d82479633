// Search for blocks: groups of hosts that exchange the same messages, except for the numbers of hosts. The simulator
// then simulates (plays) only one block.
#pragma once

#include <optional>
#include <string>

#include "collectives/topology.hpp"
#include "steps/algorithm.hpp"
#include "tools/simulation.hpp"
#include "tools/simulation/model.hpp"

namespace collectives::simulation {

/// Division of all hosts into blocks of `hosts` hosts, of which block 0 is played. Host h of block b does what host h
/// of block 0 does, with other peers. If a rank of block 0 has a peer on host n, the corresponding rank of block b has
/// a peer on host n + b * hosts. This sum is taken modulo the number of all hosts. If `bits` is set, exclusive or takes
/// the place of the addition.
struct Block {
  int hosts = 0, all = 0;
  bool bits = false;

  int of(int host) const { return host / hosts; }
  /// Returns the number that `host` has if `block` is numbered as block 0.
  int seen(int host, int block) const { return bits ? host ^ (block * hosts) : (host + all - block * hosts) % all; }
};

/// Block that is played, and the call that it performs.
struct BlockChoice {
  Call call;  ///< may be a little longer than the call of the plan
  Block block;
  bool ordered = true;  ///< whether the blocks also send in the same order
};

/// Returns the approximate number of events of a round on the first `hosts` hosts. Counts the events of some ranks and
/// of the root.
double events_of_round(const Call& call, RankView& view, const Topology& topology, int hosts);

/// Returns a block that stands for all hosts, or nothing if there is none. `ordered`: requires that the blocks send in
/// the same order.
std::optional<BlockChoice> one_block(const Call& call, RankView& view, const Topology& topology, const Fabric& network,
                                     bool ordered);

/// Returns the hosts of the block as text: "1 of 8 hosts was".
std::string hosts_of_block(const Block& block);

}  // namespace collectives::simulation
