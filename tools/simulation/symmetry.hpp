// Search for blocks: groups of hosts that do the same, except that their peers have other numbers. If there are such
// blocks, the simulator plays (simulates) only one of them.
#pragma once

#include <optional>
#include <string>

#include "collectives/topology.hpp"
#include "steps/algorithm.hpp"
#include "tools/simulation.hpp"
#include "tools/simulation/model.hpp"

namespace collectives::simulation {

/// Division of all hosts into blocks of `hosts` hosts each. The simulator plays block 0. Host h of block b does what
/// host h of block 0 does, with other peers. A peer on host n in block 0 corresponds to a peer on host n + b * hosts in
/// block b. This sum is taken modulo the number of all hosts. If `bits` is set, exclusive or replaces the addition.
struct Block {
  int hosts = 0, all = 0;
  bool bits = false;

  int of(int host) const { return host / hosts; }
  /// Returns the number of `host` in a numbering in which `block` is block 0.
  int seen(int host, int block) const { return bits ? host ^ (block * hosts) : (host + all - block * hosts) % all; }
};

/// Block to play, and the call that its ranks perform.
struct BlockChoice {
  Call call;  ///< may be a little longer than the call of the plan
  Block block;
  bool ordered = true;  ///< whether the blocks also send in the same order
};

/// Returns about how many events a round has on the first `hosts` hosts. Counts the events of some ranks and of the
/// root.
double events_of_round(const Call& call, RankView& view, const Topology& topology, int hosts);

/// Returns a block that represents all hosts, or nothing if the blocks do not do the same. `ordered`: whether the
/// blocks must also send in the same order.
std::optional<BlockChoice> one_block(const Call& call, RankView& view, const Topology& topology, const Fabric& network,
                                     bool ordered);

/// Returns the hosts of the block as text: "1 of 8 hosts was".
std::string hosts_of_block(const Block& block);

}  // namespace collectives::simulation
