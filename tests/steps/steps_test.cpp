// Proves every algorithm. An algorithm is a list of Steps, which are actions of a rank such as to add a message and to
// send the result. The prover runs the Steps of all ranks on sets in place of numbers (support/step_prover.hpp), for
// every collective, topology, length and number of rounds. A round performs the Steps on one segment of the vector.
// Further tests compare the traffic of each algorithm with its formula.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "collectives/plan.hpp"
#include "collectives/topology.hpp"
#include "core/collective.hpp"
#include "ring/ring.hpp"
#include "steps/algorithm.hpp"
#include "support/step_prover.hpp"

namespace collectives {
namespace {

std::vector<Topology> topologies() {
  std::vector<Topology> all;
#if defined(__SANITIZE_ADDRESS__)  // a sanitizer, which takes minutes for more ranks
  constexpr int kMost = 9;
#else
  constexpr int kMost = 32;
#endif
  for (int n = 1; n <= std::min(kMost, 17); ++n) all.push_back(Topology::regular(n, n));
  all.push_back(Topology::regular(32, 32));
  for (const auto& [ranks, per_host] : {std::pair(2, 1),
                                        {4, 2},
                                        {6, 2},
                                        {6, 3},
                                        {7, 3},
                                        {9, 4},
                                        {12, 4},
                                        {5, 1},
                                        {13, 5},
                                        {16, 4},
                                        {17, 8},
                                        {32, 8},
                                        {6, 1},
                                        {7, 1},
                                        {8, 1},
                                        {12, 2},
                                        {14, 2}})
    all.push_back(Topology::regular(ranks, per_host));
  all.push_back(Topology::from_hosts({"a", "b", "a", "b", "b", "c"}, 0));
  all.push_back(Topology::from_hosts({"a", "b", "b", "b"}, 0));
  all.push_back(Topology::from_hosts({"b", "b", "b", "b", "a"}, 0));
  for (const auto& [ranks, domains] : {std::pair(4, 2), {6, 2}, {6, 3}, {12, 3}, {16, 2}}) {
    Topology adjacent = Topology::regular(ranks, ranks), in_turn = adjacent;
    for (int r = 0; r < ranks; ++r) {
      adjacent.domains.push_back(r / (ranks / domains));
      in_turn.domains.push_back(r % domains);
    }
    all.push_back(adjacent);
    all.push_back(in_turn);
  }
  std::erase_if(all, [](const Topology& topology) { return topology.ranks() > kMost; });
  return all;
}

/// Returns all forms of a collective.
std::vector<CollectiveSpec> specs_of(Collective collective) {
  std::vector<CollectiveSpec> specs{{collective, PartialSums::allowed, false}};
  if (!performs_common(collective)) {
    if (is_scan(collective)) specs.push_back({collective, PartialSums::forbidden, false});
  } else if (reduces(collective)) {
    specs.push_back({collective, PartialSums::forbidden, false});
    specs.push_back({collective, PartialSums::forbidden, true});
    specs.push_back({collective, PartialSums::intra_host, true});
  } else if (collective != Collective::barrier) {
    specs.push_back({collective, PartialSums::allowed, true});
  }
  return specs;
}
std::string describe(const CollectiveSpec& spec) {
  return std::string(spec.partial_sums == PartialSums::forbidden    ? " direct"
                     : spec.partial_sums == PartialSums::intra_host ? " direct between hosts"
                                                                    : "") +
         (spec.coded ? " coded " : " ");
}

bool possible(const Algorithm& algorithm, const CollectiveSpec& spec, const Topology& topology) {
  return performs(algorithm, spec.collective) && (algorithm.possible == nullptr || algorithm.possible(spec, topology));
}
bool several_rounds(const Algorithm& algorithm, const CollectiveSpec& spec) {
  return algorithm.in_one_message == nullptr || !algorithm.in_one_message(spec);
}

Parts parts_for(const Algorithm& algorithm, const CollectiveSpec& spec, const Topology& topology, std::size_t count) {
  const bool by_part = algorithm.by_part(spec, topology);
  return Parts::equal({0, count}, by_part ? topology.ranks() : 1);
}

/// Returns the number of elements with which a call is proved. The blocks of an all-to-all are equally long, and
/// shorter than those of other calls, because there are more of them.
std::size_t elements_of(Collective collective, std::size_t count, std::size_t ranks) {
  if (collective == Collective::all_to_all) return count % 6 * ranks;
  return collective == Collective::barrier ? 0 : count;
}

class EveryAlgorithm : public ::testing::TestWithParam<std::size_t> {
 protected:
  const Algorithm& algorithm() const { return algorithms()[GetParam()]; }
};

TEST_P(EveryAlgorithm, UsesEachContributionExactlyOnceAndNeverDeadlocks) {
  for (const Topology& topology : topologies()) {
    const auto n = static_cast<std::size_t>(topology.ranks());
    for (const Collective collective : kCollectives)
      for (const CollectiveSpec& spec : specs_of(collective))
        for (const std::size_t count : {std::size_t{0}, std::size_t{1}, n - 1, n, n + 1, 3 * n + 2})
          for (const std::size_t segment : {0u, 2u})
            for (const Rank root : {0, topology.ranks() / 2, topology.ranks() - 1}) {
              if (!has_root(collective) && root != 0) continue;
              if (!possible(algorithm(), spec, topology) || (segment > 0 && !several_rounds(algorithm(), spec)))
                continue;
              const std::size_t elements = elements_of(collective, count, n);
              const RoundArgs args{spec, parts_for(algorithm(), spec, topology, elements), root};
              for (const std::size_t rounds_in_flight : {1u, 2u, 3u, 7u}) {
                if (segment == 0 && rounds_in_flight > 1) continue;
                const bool in_place = (count + rounds_in_flight) % 2 == 0;
                StepProver prover(algorithm(), topology, args, segment, rounds_in_flight, in_place);
                prover.check_results();
                ASSERT_EQ(prover.failure, "")
                    << algorithm().name << ' ' << to_string(collective) << describe(spec) << count
                    << " elements in segments of " << segment << ", " << rounds_in_flight << " rounds at once, root "
                    << root << (in_place ? ", in place, " : ", ") << to_string(topology);
              }
            }
  }
}

TEST_P(EveryAlgorithm, HandlesPartsOfUnequalLength) {
  for (const Topology& topology : topologies()) {
    std::vector<std::size_t> offsets{0};
    for (int r = 0; r < topology.ranks(); ++r) offsets.push_back(offsets.back() + static_cast<std::size_t>(r * 7 % 5));
    for (const Collective collective :
         {Collective::reduce_scatter, Collective::all_gather, Collective::gather, Collective::scatter})
      for (const CollectiveSpec& spec : specs_of(collective)) {
        if (!possible(algorithm(), spec, topology)) continue;
        const RoundArgs args{spec, Parts::listed(offsets.data(), topology.ranks()), 0};
        for (const bool in_place : {false, true}) {
          StepProver prover(algorithm(), topology, args, several_rounds(algorithm(), spec) ? 3 : 0, 1, in_place);
          prover.check_results();
          ASSERT_EQ(prover.failure, "") << algorithm().name << ' ' << to_string(collective)
                                        << (in_place ? " in place, " : ", ") << to_string(topology);
        }
      }
  }
}

TEST_P(EveryAlgorithm, HandlesDisplacedPartsInAnyOrder) {
  for (const Topology& topology : topologies()) {
    const auto n = static_cast<std::size_t>(topology.ranks());
    std::vector<std::size_t> firsts(n), ends(n);
    for (std::size_t place = 0, next = 3; place < n; ++place) {  // the last rank has the first part, after a gap
      const std::size_t rank = n - 1 - place;
      firsts[rank] = next;
      ends[rank] = next + rank * 7 % 5;
      next = ends[rank] + place % 3;
    }
    for (const Collective collective : {Collective::reduce_scatter, Collective::all_gather})
      for (CollectiveSpec spec : specs_of(collective)) {
        spec.displaced = true;
        if (!possible(algorithm(), spec, topology)) continue;
        const RoundArgs args{spec, Parts::displaced(firsts.data(), ends.data(), topology.ranks()), 0};
        for (const bool in_place : {false, true}) {
          StepProver prover(algorithm(), topology, args, several_rounds(algorithm(), spec) ? 3 : 0, 1, in_place);
          prover.check_results();
          ASSERT_EQ(prover.failure, "") << algorithm().name << ' ' << to_string(collective)
                                        << (in_place ? " in place, " : ", ") << to_string(topology);
        }
      }
  }
}

/// Returns blocks of which some are empty and one is long. `in_place`: the blocks of a pair are equally long, and both
/// buffers of a rank have equal ranges.
std::vector<OwnBlocks> uneven_blocks(int ranks, bool in_place) {
  std::vector<OwnBlocks> all(static_cast<std::size_t>(ranks));
  const auto count = [&](int from, int to) {
    if (in_place) return static_cast<std::size_t>((from + to) % 4);
    return static_cast<std::size_t>((from * 7 + to * 3) % 5 + (from == 0 && to == 1 ? 9 : 0));
  };
  std::size_t longest = 0;
  for (int r = 0; r < ranks; ++r) {
    OwnBlocks& own = all[static_cast<std::size_t>(r)];
    std::size_t out = 0, in = 0;
    for (int peer = 0; peer < ranks; ++peer) {
      own.out_firsts.push_back(out);
      own.out_ends.push_back(out += count(r, peer));
      own.in_firsts.push_back(in += in_place ? 0 : 1);  // parts with gaps
      own.in_ends.push_back(in += count(peer, r));
      longest = std::max(longest, count(r, peer));
    }
  }
  for (OwnBlocks& own : all) {
    own.blocks.incoming = own.incoming();
    own.blocks.longest = longest;
  }
  return all;
}

TEST(CountedExchange, MovesEveryBlockAndNeverDeadlocks) {
  constexpr std::string_view kName = "hierarchical_pairwise";
  const auto pairwise = std::ranges::find(algorithms(), kName, &Algorithm::name);
  for (const Topology& topology : topologies())
    for (const bool in_place : {false, true}) {
      const std::vector<OwnBlocks> own = uneven_blocks(topology.ranks(), in_place);
      for (const std::size_t rounds_in_flight : {1u, 3u, 7u}) {
        const RoundArgs args{{.collective = Collective::all_to_all}, Parts::equal({0, 0}, topology.ranks())};
        StepProver prover(*pairwise, topology, args, 2, rounds_in_flight, in_place, &own);
        prover.check_results();
        ASSERT_EQ(prover.failure, "") << rounds_in_flight << (in_place ? " in place, " : ", ") << to_string(topology);
      }
    }
}

INSTANTIATE_TEST_SUITE_P(, EveryAlgorithm, ::testing::Range(std::size_t{0}, algorithms().size()),
                         [](const auto& parameter) { return std::string(algorithms()[parameter.param].name); });

/// Returns the maximum number of messages, and the maximum number of elements, that any rank sends.
Traffic busiest(std::string_view name, const Topology& topology, Collective collective, std::size_t count,
                PartialSums partial_sums = PartialSums::allowed) {
  const auto found = std::find_if(algorithms().begin(), algorithms().end(),
                                  [&](const Algorithm& algorithm) { return algorithm.name == name; });
  const CollectiveSpec spec{.collective = collective, .partial_sums = partial_sums};
  const RoundArgs args{spec, parts_for(*found, spec, topology, count), 0};
  StepProver prover(*found, topology, args, 0);
  EXPECT_EQ(prover.failure, "");
  Traffic most;
  for (const Traffic& traffic : prover.traffic) {
    most.messages = std::max(most.messages, traffic.messages);
    most.elements = std::max(most.elements, traffic.elements);
  }
  return most;
}

TEST(AllToAll, PooledSendsOneMessageForEachPairOfHosts) {
  const Topology topology = Topology::regular(8, 2);  // 4 hosts of 2 ranks
  const auto pooled = std::ranges::find(algorithms(), "hierarchical_pooled", &Algorithm::name);
  const RoundArgs args{{.collective = Collective::all_to_all}, Parts::equal({0, 8 * 3}, 8)};
  StepProver prover(*pooled, topology, args, 0);
  prover.check_results();
  EXPECT_EQ(prover.failure, "");
  std::size_t elements = 0;
  for (const Traffic& traffic : prover.traffic) elements += traffic.elements_to_other_hosts;
  EXPECT_EQ(elements, 8u * 6 * 3) << "each block for another host once";
  const Traffic pairs = busiest("hierarchical_pairwise", topology, Collective::all_to_all, 8 * 3);
  EXPECT_EQ(pairs.messages, 6u);
  EXPECT_EQ(pairs.elements, 6u * 3);
}

TEST(Ring, AllReduceSendsTwoNMinusOneOverNOfTheBuffer) {
  for (const int n : {2, 3, 5, 8, 16}) {
    const std::size_t count = static_cast<std::size_t>(n) * 10;
    const Traffic traffic = busiest("ring", Topology::regular(n, n), Collective::all_reduce, count);
    EXPECT_EQ(traffic.messages, 2 * static_cast<std::size_t>(n - 1));
    EXPECT_EQ(traffic.elements, 2 * static_cast<std::size_t>(n - 1) * 10);
  }
}

TEST(DirectExchange, CostsTheBytesOfARing) {
  for (const int n : {2, 3, 8}) {
    const std::size_t count = static_cast<std::size_t>(n) * 10;
    const Topology topology = Topology::regular(n, n);
    EXPECT_EQ(busiest("ring", topology, Collective::reduce_scatter, count, PartialSums::forbidden).elements,
              busiest("ring", topology, Collective::reduce_scatter, count).elements);
  }
}

TEST(ReduceToOne, TreeSendsAtMostLogNMessages) {
  for (const int n : {2, 3, 5, 8, 17, 32}) {
    const Topology topology = Topology::regular(n, n);
    const auto depth = static_cast<std::size_t>(std::ceil(std::log2(n)));
    EXPECT_LE(busiest("reduce_to_one_tree", topology, Collective::broadcast, 10).messages, depth);
    EXPECT_EQ(busiest("reduce_to_one_tree", topology, Collective::reduce, 10).messages, 1u);
    EXPECT_EQ(busiest("reduce_to_one_direct", topology, Collective::broadcast, 10).messages,
              static_cast<std::size_t>(n - 1));
  }
}

TEST(Leaders, ScatterAndGatherInLogHMessages) {
  for (const int hosts : {3, 4, 5, 6, 7, 8, 13, 16}) {
    const bool power = (hosts & (hosts - 1)) == 0;
    const auto log = static_cast<std::size_t>(std::ceil(std::log2(hosts)));
    for (const Collective collective : {Collective::reduce_scatter, Collective::all_gather}) {
      const Traffic one = busiest("hierarchical_halving", Topology::regular(hosts, 1), collective, 10 * 13 * 16);
      // If the number of hosts is no power of 2, the parts to send may reach from the last host to the first. They then
      // take two messages.
      EXPECT_LE(one.messages, power ? log : 2 * log) << hosts;
      EXPECT_LE(one.elements, 10 * 13 * 16 - 130u) << "the bytes of a direct exchange, " << hosts;
      const Traffic two = busiest("hierarchical_leaders_halving", Topology::regular(2 * hosts, 2), collective, 960);
      EXPECT_LE(two.messages, (power ? log : 2 * log) + (collective == Collective::reduce_scatter ? 1 : 0)) << hosts;
    }
  }
}

TEST(HierarchicalTree, GathersAndScattersInLogHMessages) {
  for (const int hosts : {3, 4, 5, 8, 13, 16})
    for (const int local : {1, 2}) {
      const auto log = static_cast<std::size_t>(std::ceil(std::log2(hosts)));
      const Topology topology = Topology::regular(hosts * local, local);
      const auto messages = [&](Collective collective) {
        return busiest("hierarchical_tree", topology, collective, 960).messages;
      };
      EXPECT_EQ(messages(Collective::gather), 1u) << hosts;
      EXPECT_EQ(messages(Collective::scatter), log) << hosts;
    }
}

TEST(Scan, PassesTheVectorOnceFromRankToRank) {
  for (const int n : {2, 5, 8})
    for (const Collective collective : {Collective::scan, Collective::exclusive_scan}) {
      const Traffic traffic = busiest("ring", Topology::regular(n, n), collective, 30);
      EXPECT_EQ(traffic.messages, 1u);
      EXPECT_EQ(traffic.elements, 30u);
      EXPECT_EQ(busiest("ring", Topology::regular(n, n), collective, 30, PartialSums::forbidden).messages,
                static_cast<std::size_t>(n - 1));
    }
}

TEST(Hierarchical, SendsNoMessagesInsideOneHost) {
  for (const Collective collective : kCollectives) {
    EXPECT_EQ(busiest("hierarchical", Topology::regular(6, 6), collective, 60).messages, 0u) << to_string(collective);
  }
}

TEST(Hierarchical, CarriesEveryByteOncePerHost) {
  for (const auto& [hosts, local] : {std::pair(2, 2), {3, 4}, {4, 2}}) {
    const Topology topology = Topology::regular(hosts * local, local);
    const std::size_t count = static_cast<std::size_t>(hosts * local) * 6;
    const auto found = std::find_if(algorithms().begin(), algorithms().end(),
                                    [](const Algorithm& algorithm) { return algorithm.name == "hierarchical"; });
    const auto out_of_a_host = [&](Collective collective) {
      const CollectiveSpec spec{.collective = collective};
      const RoundArgs args{spec, parts_for(*found, spec, topology, count), 0};
      StepProver prover(*found, topology, args, 0);
      EXPECT_EQ(prover.failure, "");
      std::size_t most = 0;
      for (const auto& host : topology.hosts) {
        std::size_t sum = 0;
        for (const Rank r : host) sum += prover.traffic[static_cast<std::size_t>(r)].elements_to_other_hosts;
        most = std::max(most, sum);
      }
      return most;
    };
    const auto h = static_cast<std::size_t>(hosts);
    EXPECT_EQ(out_of_a_host(Collective::all_reduce), 2 * (h - 1) * count / h);
    EXPECT_EQ(out_of_a_host(Collective::reduce_scatter), (h - 1) * count / h);
    EXPECT_EQ(out_of_a_host(Collective::all_gather), (h - 1) * (count / h));
    EXPECT_EQ(out_of_a_host(Collective::broadcast), count);
    EXPECT_EQ(out_of_a_host(Collective::reduce), count);
  }
}

// Algorithms are pure functions, so the compiler can run them in a constant expression.
constexpr std::size_t count_ring_steps(int n) {
  Rank ranks[8] = {0, 1, 2, 3, 4, 5, 6, 7};
  std::size_t steps = 0;
  const RankGroup group{Peers(ranks, static_cast<std::size_t>(n)), 1};
  const auto count = [&](const Step&) { ++steps; };
  ring::reduce_scatter(group, Parts::equal({0, 100}, n), {}, count);
  ring::all_gather(group, Parts::equal({0, 100}, n), Place::output, count);
  return steps;
}
static_assert(count_ring_steps(2) == 4);
static_assert(count_ring_steps(8) == 16);

}  // namespace
}  // namespace collectives
