// Blocks of hosts that do the same. One of them is played instead of all.
#pragma once

#include <optional>
#include <string>

#include "collectives/topology.hpp"
#include "steps/algorithm.hpp"
#include "tools/simulation.hpp"
#include "tools/simulation/model.hpp"

namespace collectives::simulation {

/// The first `hosts` hosts, which are played for all. Host h of block b does what host h of block 0 does. The numbers
/// of its peers differ by b blocks, either in a sum modulo the number of hosts or in an exclusive or (`bits`).
struct Block {
  int hosts = 0, all = 0;
  bool bits = false;

  int of(int host) const { return host / hosts; }
  /// Host `host`, seen from block `block` as if that were block 0.
  int seen(int host, int block) const { return bits ? host ^ (block * hosts) : (host + all - block * hosts) % all; }
};

/// The block that is played, and the call that it performs.
struct BlockChoice {
  Call call;  ///< may be a little longer than the call of the plan
  Block block;
  bool ordered = true;  ///< whether the blocks also send in the same order
};

/// Returns the approximate number of events of a round on the first `hosts` hosts. Counts those of some of their ranks,
/// and of the root.
double events_of_round(const Call& call, RankView& view, const Topology& topology, int hosts);

/// Returns a block that stands for all hosts, or nothing if there is none. `ordered`: requires that the blocks send in
/// the same order.
std::optional<BlockChoice> one_block(const Call& call, RankView& view, const Topology& topology, const Fabric& network,
                                     bool ordered);

/// Returns the hosts of the block as text: "1 of 8 hosts was".
std::string hosts_of_block(const Block& block);

}  // namespace collectives::simulation
