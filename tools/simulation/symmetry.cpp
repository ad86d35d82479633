// Implementation of the comparison of blocks. A block is a group of hosts. If the ranks of all blocks perform the same
// Steps (actions), the simulator has to simulate only one block. A digest is a hash of all Steps of a rank in one
// round. Blocks do the same if their ranks have equal digests.
#include "tools/simulation/symmetry.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

namespace collectives::simulation {
namespace {

/// Digest of a rank's Steps in one round. Numbers of peers are relative to the rank's block. Ranks of different blocks
/// that do the same thus have equal digests.
class Digest final : public StepSink {
 public:
  Digest(const RankView& view, const Block& block) : view_(view), block_(block), mine_(block.of(view.grid.host)) {}

  void operator()(const Step& step) override {
    add((std::uint64_t{1} << 32) * static_cast<unsigned>(step.depth) + static_cast<unsigned>(step.kind) * 256u +
        static_cast<unsigned>(step.subgroup) * 4u + (step.reduce ? 1u : 0u));
    ++events;
    if (step.kind != Step::Kind::exchange) return add(longest_share(step, view_));
    add(step.range.count);
    add(sent_elements(step) * 2 + (step.rows > 0 ? 1 : 0));
    std::uint64_t from = 0, to = 0;  // sums over all peers, which do not depend on the order of the peers
    for (const Rank peer : step.from) from += mixed(relative(peer));
    for (const Rank peer : step.to) {
      to += mixed(relative(peer));
      ordered = mixed(ordered ^ relative(peer));
      if (peer != view_.world.self) events += view_.host_of(peer) == view_.grid.host ? 1 : kEventsOfMessage;
    }
    add(from);
    add(to);
  }

  std::uint64_t value = 0, ordered = 0;  ///< two digests, of which only `ordered` depends on the order of the receivers
  std::size_t events = 0;                ///< approximate number of events of these Steps

 private:
  static constexpr std::size_t kEventsOfMessage = 3;
  static std::uint64_t mixed(std::uint64_t x) {
    x += 0x9e3779b97f4a7c15u;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
  }
  void add(std::uint64_t word) { value = mixed(value ^ word); }
  std::uint64_t relative(Rank peer) const {
    return static_cast<std::uint64_t>(block_.seen(view_.host_of(peer), mine_)) << 32 |
           static_cast<std::uint32_t>(view_.local_of(peer));
  }
  const RankView& view_;
  const Block& block_;
  int mine_;
};

/// Returns whether block 0 and a few other blocks do the same in the first and the last round. `ordered`: whether they
/// must also send in the same order.
bool alike(const Call& call, RankView& view, const Topology& topology, const Block& block, bool ordered) {
  const int blocks = block.all / block.hosts;
  std::vector<int> looked_at;
  for (const int b : {1, 2, 3, blocks / 3, blocks / 2, blocks - 2, blocks - 1})
    if (b > 0 && b < blocks && std::ranges::find(looked_at, b) == looked_at.end()) looked_at.push_back(b);
  for (int h = 0; h < block.hosts; ++h)
    for (std::size_t local = 0; local < topology.hosts[0].size(); ++local)
      for (const std::size_t round : {std::size_t{0}, call.rounds - 1}) {
        const auto digest_in = [&](int b) {
          view.rebind(topology.hosts[index(b * block.hosts + h)][local]);
          Digest digest(view, block);
          call.emit(view, round, digest);
          return std::pair(digest.value, ordered ? digest.ordered : 0);
        };
        const auto mine = digest_in(0);
        for (const int b : looked_at)
          if (digest_in(b) != mine) return false;
      }
  return true;
}

bool hosts_are_equal(const Topology& topology) {
  return std::ranges::all_of(topology.hosts, [&](const auto& host) { return host.size() == topology.hosts[0].size(); });
}
bool power_of_two(int n) { return (n & (n - 1)) == 0; }

}  // namespace

double events_of_round(const Call& call, RankView& view, const Topology& topology, int hosts) {
  constexpr int kSome = 64;
  std::vector<Rank> ranks;
  for (int h = 0; h < hosts; ++h)
    ranks.insert(ranks.end(), topology.hosts[index(h)].begin(), topology.hosts[index(h)].end());
  const auto n = ranks.size();
  const Block all{hosts, static_cast<int>(topology.hosts.size()), false};
  const auto count = [&](Rank rank) {
    view.rebind(rank);
    Digest digest(view, all);
    call.emit(view, 0, digest);
    return static_cast<double>(digest.events);
  };
  double sum = 0;
  if (n <= index(kSome)) {
    for (const Rank rank : ranks) sum += count(rank);
    return sum;
  }
  for (int i = 0; i < kSome; ++i) sum += count(ranks[(index(i) * 40503u + 1) % n]);
  return sum / kSome * static_cast<double>(n) + count(call.args.root);
}

std::optional<BlockChoice> one_block(const Call& call, RankView& view, const Topology& topology, const Fabric& network,
                                     bool ordered) {
  const int hosts = static_cast<int>(topology.hosts.size());
  const int each = network.hosts_per_switch > 0 && network.hosts_per_switch < hosts ? network.hosts_per_switch : 1;
  if (!hosts_are_equal(topology) || hosts % each != 0 || hosts == each) return {};
  for (const bool bits : {false, true}) {
    if (bits && !(power_of_two(hosts) && power_of_two(each))) continue;
    const Block block{each, hosts, bits};
    for (const std::size_t unit : {std::size_t{1}, topology.hosts[0].size(), index(topology.ranks())})
      if (const Call longer = rounded_up(call, unit); alike(longer, view, topology, block, ordered))
        return BlockChoice{longer, block, ordered};
  }
  return {};
}

std::string hosts_of_block(const Block& block) {
  return block.hosts == 1 ? fmt::format("1 of {} hosts was", block.all)
                          : fmt::format("the {} hosts of 1 of {} switches were", block.hosts, block.all / block.hosts);
}

}  // namespace collectives::simulation
