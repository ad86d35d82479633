// All-to-all: each rank sends a block of its input to each rank. Blocks for ranks of the same host go through shared
// memory. Blocks for other hosts are messages.
//
// Part q of a rank's input is its block for rank q. Part q of its output takes the block from rank q.
#pragma once

#include <algorithm>

#include "steps/algorithm.hpp"

namespace collectives::hierarchical {

/// Number of peers to which a rank sends at one depth of a round.
inline constexpr int kPeersAtOnce = 4;

/// Emits an all-to-all in which each pair of ranks on different hosts exchanges messages directly.
///
/// Steps: p ranks meet in p turns. In turn k, rank r exchanges blocks with rank (k - r) mod p, which meets rank r in
/// the same turn. A rank sends its block before it receives the block of the same peer. The output may therefore be the
/// input. A rank sends to at most kPeersAtOnce * (1 + kRoundsOnTheWire) peers before it receives from the first.
///
/// Each rank sends and receives one message per rank of the other hosts: the bytes that the call requires.
struct Pairwise {
  static constexpr int groups(int ranks) { return (ranks + kPeersAtOnce - 1) / kPeersAtOnce; }
  static constexpr int depths(int ranks) { return groups(ranks) + kRoundsOnTheWire; }

  template <class Run>
  static constexpr void all_to_all(const RankView& view, const RoundArgs& args, Run&& run) {
    const RankGroup& world = view.world;
    const Parts& incoming = args.blocks != nullptr ? args.incoming : args.parts;
    const auto for_each_peer = [&](int group, auto&& visit) {
      const int end = std::min(world.size(), (group + 1) * kPeersAtOnce);
      for (int turn = group * kPeersAtOnce; turn < end; ++turn) {
        const Rank peer = (turn + world.size() - world.self) % world.size();
        if (view.host_of(peer) != view.grid.host) visit(peer);
      }
    };
    const int groups = Pairwise::groups(world.size());
    for (int depth = 0; depth < depths(world.size()); ++depth) {
      AtDepth now{run, depth};
      if (depth < groups)
        for_each_peer(depth, [&](Rank peer) { now(send(world.at(peer), args.parts[peer], Place::input)); });
      if (depth == 0) now(inside(view, args));
      if (depth >= kRoundsOnTheWire)
        for_each_peer(depth - kRoundsOnTheWire, [&](Rank peer) { now(receive(world.at(peer), incoming[peer])); });
    }
  }

 private:
  /// Returns the Step in which the ranks of a host exchange their blocks. A rank also takes its own block there.
  static constexpr Step inside(const RankView& view, const RoundArgs& args) {
    return {.kind = Step::Kind::host_all_to_all,
            .destination = Place::output,
            .parts = args.parts,
            .owners = view.grid.here(),
            .blocks = args.blocks};
  }
};

}  // namespace collectives::hierarchical
