// All-to-all: each rank sends a block of its input to each rank. Ranks of one host exchange their blocks through shared
// memory. Blocks for ranks of other hosts are sent as messages.
//
// A rank's input consists of parts, one per rank. Part q of the input is for rank q. Part q of the output is from rank
// q.
#pragma once

#include <algorithm>

#include "steps/algorithm.hpp"

namespace collectives::hierarchical {

/// Number of peers to which a rank sends in Steps of the same depth. A Step's depth is its position in the round. Ranks
/// of 4 hosts at 1 Gbit/s take equal times with 4 and with 8. More senders at once overflow the queues of switches.
inline constexpr int kPeersAtOnce = 8;

/// Returns the Step in which the ranks of a host exchange their blocks. In this Step, a rank also copies its own block
/// to its output.
constexpr Step exchange_inside(const RankView& view, const RoundArgs& args) {
  return {.kind = Step::Kind::host_all_to_all,
          .destination = Place::output,
          .parts = args.parts,
          .owners = view.grid.here(),
          .blocks = args.blocks};
}

/// Emits an all-to-all in which each pair of ranks on different hosts exchanges messages directly.
///
/// The p ranks exchange blocks in p turns. In turn k, ranks r and (k - r) mod p exchange blocks with each other. A rank
/// sends the block for a peer before it receives the block from that peer. The input buffer may therefore also be the
/// output buffer. A rank sends to at most kPeersAtOnce * (1 + kRoundsOnTheWire) peers before it receives from the first
/// of them.
///
/// Each rank sends one message to each rank of the other hosts, and receives one message from each of them. No byte is
/// sent twice.
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
      if (depth == 0) now(exchange_inside(view, args));
      if (depth >= kRoundsOnTheWire)
        for_each_peer(depth - kRoundsOnTheWire, [&](Rank peer) { now(receive(world.at(peer), incoming[peer])); });
    }
  }
};

/// Emits an all-to-all in which two hosts exchange one message in each direction. It holds the blocks of all their
/// ranks.
///
/// Steps: host A with m ranks sends to host B with n ranks. The agent of host A for host B is its local rank B mod m.
/// Each rank of host A sends its n blocks to the agent, which joins them to one message. The agent of host B for host A
/// divides the message among the ranks of host B.
///
/// Each host sends and receives one message per other host. The bytes on the wire are those of Pairwise. Inside a host,
/// two more messages carry each block. The ranks must be numbered host by host, so that the blocks for a host form one
/// range.
struct Pooled {
  /// Returns the number of elements of the longest message. `each`: elements of a block.
  static std::size_t longest_message(const Topology& topology, std::size_t each) {
    std::size_t most = 0, second = 0;  // ranks of the two largest hosts
    for (const auto& host : topology.hosts) {
      second = std::max(second, std::min(most, host.size()));
      most = std::max(most, host.size());
    }
    return most * second * each;
  }

  template <class Run>
  static constexpr void all_to_all(const RankView& view, const RoundArgs& args, Run&& run) {
    const Grid& grid = view.grid;
    const auto for_each_host = [&](auto&& visit) {
      for (int turn = 0; turn < grid.host_count(); ++turn) {
        const int host = (turn + grid.host_count() - grid.host) % grid.host_count();
        if (host != grid.host) visit(host, agent(grid, grid.host, host), agent(grid, host, grid.host));
      }
    };
    for_each_host([&](int host, Peers mine, Peers theirs) {
      const Range blocks = blocks_of(grid, host, args.parts);
      if (mine[0] != view.world.self) return run(send(mine, blocks, Place::input));
      run(Step{.from = grid.here(), .to = theirs, .range = blocks, .joins = true});
    });
    run(exchange_inside(view, args));
    for_each_host([&](int host, Peers mine, Peers theirs) {
      const Range blocks = blocks_of(grid, host, args.parts);
      if (mine[0] != view.world.self) return run(receive(mine, blocks));
      run(Step{.from = theirs,
               .to = grid.here(),
               .range = blocks,
               .destination = Place::output,
               .rows = static_cast<int>(grid.ranks_of(host).size())});
    });
  }

 private:
  /// Returns the rank of host `of` that exchanges messages with host `with`.
  static constexpr Peers agent(const Grid& grid, int of, int with) {
    const Peers ranks = grid.ranks_of(of);
    return ranks.subspan(static_cast<std::size_t>(with) % ranks.size(), 1);
  }
  /// Returns the range of the parts of all ranks of a host.
  static constexpr Range blocks_of(const Grid& grid, int host, const Parts& parts) {
    const Range first = parts[grid.ranks_of(host).front()], last = parts[grid.ranks_of(host).back()];
    return {first.first, last.first + last.count - first.first};
  }
};

}  // namespace collectives::hierarchical
