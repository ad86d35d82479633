// Tests of planning, which chooses the algorithm of a call by its estimated time. Planning is a pure function, so the
// tests need no network. They pass topologies (layouts of ranks on hosts) and tunings (numbers of the cost model) as
// literals.
#include "collectives/plan.hpp"

#include <gtest/gtest.h>

#include "collectives/error.hpp"
#include "core/tuning_parameters.hpp"

namespace collectives {
namespace {

Plan plan_of(const Request& request, const Topology& topology, const TuningParameters& tuning = {}) {
  return choose_plan(request, topology, tuning);
}

TEST(Plan, IsHierarchicalInsideOneHost) {
  const Topology host = Topology::regular(4, 4);
  for (const Collective collective : kCollectives)
    for (const std::size_t count : {0u, 2u, 1000u, 10'000'000u}) {
      const Plan plan = plan_of({.collective = collective, .count = count}, host);
      EXPECT_EQ(plan.backend, "hierarchical") << to_string(collective) << ' ' << count;
      EXPECT_EQ(plan.rounds, count == 0 && collective != Collective::barrier ? 0u : 1u);
    }
}

TEST(Plan, NamesTheProtocolOfTheHostCollective) {
  const Topology two = Topology::regular(2, 2), eight = Topology::regular(8, 8);
  TuningParameters tuning;
  tuning.inline_bytes = 1024;
  tuning.one_shot_bytes = 1 << 20;
  tuning.one_shot_bytes_of_many = 70 << 10;
  tuning.single_copy_bytes = 64 << 10;
  tuning.single_copy_reduce_bytes = 4 << 20;
  tuning.streaming_bytes = 128 << 20;
  const auto protocol = [&](Collective collective, std::size_t bytes, const Topology& host) {
    return plan_of({.collective = collective, .count = bytes / 4}, host, tuning).protocol;
  };
  EXPECT_EQ(protocol(Collective::all_reduce, 512, two), "inline");
  EXPECT_EQ(protocol(Collective::all_reduce, 516, two), "one-shot");
  EXPECT_EQ(protocol(Collective::all_reduce, 1 << 20, two), "one-shot");
  EXPECT_EQ(protocol(Collective::all_reduce, 2 << 20, two), "staged");
  EXPECT_EQ(protocol(Collective::all_reduce, 4 << 20, two), "single-copy");
  EXPECT_EQ(protocol(Collective::all_reduce, 4 << 20, Topology::regular(8, 8, 2)), "staged") << "too few cores";
  EXPECT_EQ(protocol(Collective::all_reduce, 32 << 20, two), "staged") << "past the caches";
  EXPECT_EQ(protocol(Collective::all_reduce, 10 << 10, eight), "one-shot");
  tuning.one_shot_bytes_oversubscribed = 140 << 10;
  const Topology oversubscribed = Topology::regular(8, 8, 2);
  EXPECT_EQ(protocol(Collective::all_reduce, 20 << 10, oversubscribed), "one-shot");
  EXPECT_EQ(protocol(Collective::all_reduce, 21 << 10, oversubscribed), "staged");
  EXPECT_EQ(protocol(Collective::all_reduce, 11 << 10, eight), "staged");
  EXPECT_EQ(protocol(Collective::reduce_scatter, 2048, two), "staged");
  EXPECT_EQ(protocol(Collective::reduce_scatter, 4 << 20, two), "single-copy");
  EXPECT_EQ(protocol(Collective::broadcast, 1024, two), "inline");
  EXPECT_EQ(protocol(Collective::broadcast, 144, eight), "inline") << "seven others read it";
  EXPECT_EQ(protocol(Collective::broadcast, 148, eight), "staged");
  EXPECT_EQ(protocol(Collective::broadcast, 255 << 10, eight), "staged") << "a rank copies an eighth";
  EXPECT_EQ(protocol(Collective::broadcast, 16 << 20, two), "single-copy");
  EXPECT_EQ(protocol(Collective::broadcast, 64 << 20, two), "staged") << "past the caches";
  EXPECT_EQ(protocol(Collective::broadcast, 256 << 10, eight), "single-copy");
  EXPECT_EQ(protocol(Collective::all_gather, 8 * 72, eight), "inline")
      << "every rank shows an eighth, and all want all";
  EXPECT_EQ(protocol(Collective::all_gather, 8 * 76, eight), "staged");
  EXPECT_EQ(protocol(Collective::all_gather, 64 << 10, Topology::regular(8, 8, 2)), "staged") << "too few cores";
}

TEST(Plan, NamesTheSizeFromWhichStagingBypassesTheCaches) {
  TuningParameters tuning;
  tuning.single_copy_bytes = tuning.single_copy_reduce_bytes = Tuning::kNever;
  tuning.streamed_staging_bytes = 16 << 10;
  const auto says = [&](Collective collective, std::size_t bytes) {
    return plan_of({.collective = collective, .count = bytes / 4}, Topology::regular(2, 2), tuning)
        .protocol_reason.ends_with(", staged past the caches");
  };
  EXPECT_TRUE(says(Collective::all_reduce, 16 << 10)) << "one-shot";
  EXPECT_TRUE(says(Collective::all_gather, 16 << 10)) << "staged";
  EXPECT_FALSE(says(Collective::all_reduce, (16 << 10) - 4));
  EXPECT_FALSE(says(Collective::all_gather, 8 << 10));
  tuning.single_copy_bytes = 0;
  EXPECT_FALSE(says(Collective::all_gather, 16 << 10)) << "single-copy";
}

TEST(Plan, SaysWhereMappedBuffersWouldChangeTheProtocol) {
  const Topology host = Topology::regular(2, 2);
  EXPECT_FALSE(plan_of({.count = 16}, host).zero_copy);
  EXPECT_TRUE(plan_of({.count = 1 << 20}, host).zero_copy);
  EXPECT_FALSE(plan_of({.count = 1 << 20, .backend = "ring"}, host).zero_copy);
}

TEST(Plan, ForcedBackendIsTakenAndSaysSo) {
  const Topology hosts = Topology::regular(8, 4);
  for (const std::string_view backend : {"ring", "hierarchical", "reduce_to_one"}) {
    const Plan plan = plan_of({.count = 1 << 20, .backend = backend}, hosts);
    EXPECT_EQ(plan.backend, backend);
    EXPECT_NE(plan.reason.find("asked for"), std::string::npos);
  }
  EXPECT_EQ(plan_of({.count = 1 << 20, .backend = "reduce_to_one_tree"}, hosts).name, "reduce_to_one_tree");
}

TEST(Plan, UnknownBackendListsTheKnownOnes) {
  try {
    plan_of({.backend = "rnig"}, Topology::regular(2, 2));
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Errc::invalid_argument);
    EXPECT_STREQ(
        error.what(),
        "unknown backend \"rnig\"; known: auto, hierarchical, ring, reduce_to_one, nccl, hierarchical_one_shot, "
        "hierarchical_leaders, hierarchical_doubling, hierarchical_leaders_doubling, hierarchical_halving, "
        "hierarchical_leaders_halving, hierarchical_two_level, hierarchical_pairwise, hierarchical_pooled, "
        "hierarchical_tree, reduce_to_one_direct, reduce_to_one_tree");
  }
}

TEST(Plan, LongVectorsGoThroughTwoLevelsWhereAHostHasDomains) {
  Topology host = Topology::regular(16, 16);
  EXPECT_EQ(plan_of({.count = 1 << 20}, host).name, "hierarchical");
  for (int rank = 0; rank < 16; ++rank) host.domains.push_back(rank / 8);
  EXPECT_EQ(plan_of({.count = 1 << 20}, host).name, "hierarchical_two_level");
  EXPECT_EQ(plan_of({.count = 16}, host).name, "hierarchical") << "more meetings";
  EXPECT_EQ(plan_of({.count = 1 << 20, .type = DataType::bf16}, host).name, "hierarchical") << "rank order";
  EXPECT_EQ(plan_of({.count = 1 << 20, .deterministic = true}, host).name, "hierarchical");
  EXPECT_NE(explain(plan_of({.count = 1 << 20}, host), {.count = 1 << 20}, host).find("2 domains x 8"),
            std::string::npos);
}

TEST(Plan, InterHostAlgorithmsOnOneHostAreRefused) {
  for (const auto& [request, hosts, why] :
       {std::tuple(Request{.count = 100, .backend = "hierarchical_one_shot"}, 1, "it needs several hosts, and is for"),
        {Request{.count = 100, .backend = "hierarchical_halving"}, 2, "it needs three hosts or more"},
        {Request{.collective = Collective::all_gather, .count = 100, .backend = "hierarchical_doubling"}, 4,
         "is for all_reduce, broadcast and barrier"},
        {Request{.collective = Collective::all_gather, .count = 100, .backend = "hierarchical_halving"}, 4,
         "on hosts of one rank for reduce_scatter and all_gather"},
        {Request{.collective = Collective::reduce, .count = 100, .backend = "hierarchical_halving"}, 8,
         "is for all_reduce and broadcast, and on"},
        {Request{.collective = Collective::all_reduce, .count = 100, .backend = "hierarchical_leaders_halving"}, 4,
         "is for reduce_scatter and all_gather"}})
    try {
      plan_of(request, Topology::regular(8, 8 / hosts));
      FAIL() << "no error";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Errc::unsupported);
      EXPECT_NE(std::string(error.what()).find(why), std::string::npos) << error.what();
    }
}

// A long vector is cut into segments, and a round communicates one of them. Between hosts several rounds are in flight,
// so that they hide one another's latency.
TEST(Plan, RoundsOverlapBetweenHosts) {
  const Topology hosts = Topology::regular(8, 2);
  const Plan plan = plan_of({.count = 16 << 20, .backend = "hierarchical"}, hosts);
  EXPECT_GT(plan.rounds, 7u);
  EXPECT_GT(plan.rounds_in_flight, 1u);
  EXPECT_LE(plan.rounds_in_flight, 7u) << "one less than there are frames";
  EXPECT_NE(explain(plan, {.count = 16 << 20, .backend = "hierarchical"}, hosts).find("under way at once"),
            std::string::npos);
  EXPECT_EQ(plan_of({.count = 16 << 20, .backend = "ring"}, hosts).rounds_in_flight, 1u)
      << "inside a host there are two frames";
  EXPECT_EQ(plan_of({.count = 16 << 20}, Topology::regular(8, 8)).rounds_in_flight, 1u);
}

// Every message costs CPU time, even if the wire takes longer, so vectors are cut only if that saves enough.
TEST(Plan, MessagesAreCutWhereThatSavesATwentieth) {
  TuningParameters tuning;  // numbers of a link of 1 Gbit/s
  tuning.wire_us = 2;
  tuning.wire_message_us = 1;
  tuning.wire_us_per_byte = 0.008;
  const auto rounds = [&](std::size_t bytes) {
    return choose_plan({.count = bytes / 4, .backend = "hierarchical"}, Topology::regular(4, 1), tuning).rounds;
  };
  EXPECT_EQ(rounds(64 << 20), (64u << 20) / (4 * tuning.wire_frame_bytes)) << "a whole frame to each of four hosts";
  EXPECT_EQ(rounds(256 << 10), 1u) << "links are busy all the time, however long the messages";
  tuning.reduce_us_per_byte = 0.002;
  EXPECT_GT(rounds(256 << 10), 1u) << "sums are added while the next are on their way";
}

// Ranks that share cores send late, and a link is then idle unless another round has a message for it. Shorter messages
// help. If the cores themselves are busy, more messages only take more CPU time.
TEST(Plan, MessagesAreCutForBusyLinksOfRanksThatTakeTurnsOnIdleCores) {
  const auto bytes_of_message = [](double us_per_byte, int cores) {
    TuningParameters tuning;
    tuning.wire_us = 0.1;
    tuning.wire_message_us = 6;
    tuning.wire_us_per_byte = us_per_byte;
    Topology hosts = Topology::regular(4, 1);
    hosts.machines = {0, 0, 0, 0};
    hosts.machine_cores = {cores};
    const Plan plan = choose_plan({.count = (1 << 20) / 4, .backend = "ring"}, hosts, tuning);
    return std::min(plan.segment, std::size_t{1} << 16) * 4;
  };
  constexpr double kGigabit = 0.0082;
  EXPECT_LE(bytes_of_message(kGigabit, 2), 64u << 10);
  EXPECT_EQ(bytes_of_message(kGigabit, 4), 256u << 10) << "a core for everybody, and nobody late";
  EXPECT_GE(bytes_of_message(kGigabit / 4, 2), 128u << 10);
}

// The estimate of a tree must count the waits of all its levels. The root does little work, but it waits for ranks that
// wait for other ranks.
TEST(Plan, TreeEstimateAddsUpTheMessagesOfAllItsLevels) {
  TuningParameters tuning;
  tuning.wire_us = 10;
  tuning.wire_message_us = 1;
  const Topology hosts = Topology::regular(8, 1);
  const auto us_of = [&](std::string_view backend, Collective collective = Collective::all_reduce) {
    return choose_plan({.collective = collective, .count = 1, .backend = backend}, hosts, tuning).estimate.microseconds;
  };
  EXPECT_GT(us_of("reduce_to_one_tree"), 60) << "three messages up, three down";
  EXPECT_LT(us_of("reduce_to_one_tree"), 80);
  EXPECT_GT(us_of("hierarchical_doubling"), 30) << "three exchanges";
  EXPECT_LT(us_of("hierarchical_doubling"), 40);
  EXPECT_GT(us_of("ring", Collective::broadcast), 70) << "seven hops";
}

// If hosts share the cores of one machine, messages of all hosts cost time there. One-shot, the algorithm with the
// fewest messages one after another, has the most messages in total.
TEST(Plan, HostsOfOneMachineSaveItsCoresMessages) {
  Topology hosts = Topology::regular(4, 1);
  EXPECT_EQ(plan_of({.count = 2}, hosts).name, "hierarchical_one_shot") << "one latency";
  hosts.machines = {0, 0, 0, 0};
  hosts.machine_cores = {4};
  EXPECT_EQ(plan_of({.count = 2}, hosts).name, "hierarchical_one_shot") << "a core for everybody";
  hosts.machine_cores = {1};
  EXPECT_NE(plan_of({.count = 2}, hosts).name, "hierarchical_one_shot") << "twelve messages on one core";
}

// A leader exchanges messages for all ranks of its host. If every rank exchanges messages instead, the link carries as
// many bytes, but two ranks per host send twice as many messages.
TEST(Plan, LeadersAreChosenWhenHostsShareCores) {
  TuningParameters tuning;
  tuning.wire_us = 0.1;
  tuning.wire_message_us = 8;
  tuning.wire_us_per_byte = 0.0085;
  for (const auto& [hosts, name] : {std::pair{2, "hierarchical_leaders"}, {4, "hierarchical_leaders_doubling"}}) {
    Topology topology = Topology::regular(2 * hosts, 2);
    topology.machines.assign(static_cast<std::size_t>(hosts), 0);
    topology.machine_cores = {2};
    for (const std::size_t count : {2u, 128u, 1024u})
      EXPECT_EQ(choose_plan({.count = count}, topology, tuning).name, name) << count;
  }
}

// With leaders each host sends one message that holds the parts of several hosts, instead of one message for each part.
TEST(Plan, LeadersScatterAndGatherShortVectorsOfManyHosts) {
  for (const Collective collective : {Collective::reduce_scatter, Collective::all_gather})
    for (const auto& [local, name] : {std::pair{1, "hierarchical_halving"}, {2, "hierarchical_leaders_halving"}}) {
      const Plan plan = plan_of({.collective = collective, .count = 512}, Topology::regular(16 * local, local));
      EXPECT_EQ(plan.name, name);
      EXPECT_EQ(plan.estimate.messages, local == 1 || collective == Collective::all_gather ? 4u : 5u);
    }
}

// A leader's message holds whole parts of several hosts, so a vector must fit into one message.
TEST(Plan, LeadersNeverCutAVector) {
  TuningParameters tuning;
  tuning.frame_bytes = tuning.wire_frame_bytes = 1 << 20;
  constexpr std::size_t kMost = (1 << 20) / sizeof(float);
  for (const Collective collective : {Collective::reduce_scatter, Collective::all_gather})
    for (const auto& [local, name] : {std::pair{1, "hierarchical_halving"}, {2, "hierarchical_leaders_halving"}})
      for (const int hosts : {3, 4, 5, 12, 16}) {
        const Topology topology = Topology::regular(hosts * local, local);
        Request request{.collective = collective, .count = kMost, .backend = name};
        EXPECT_EQ(choose_plan(request, topology, tuning).rounds, 1u) << hosts;
        request.counts.assign(static_cast<std::size_t>(topology.ranks()), 0);
        request.counts[1] = kMost;
        EXPECT_EQ(choose_plan(request, topology, tuning).rounds, 1u) << hosts << ", all of it one rank's";
        request.count = kMost + 1;
        request.counts.clear();
        EXPECT_THROW(choose_plan(request, topology, tuning), Error) << hosts;
      }
}

/// Returns the estimate of `algorithm`, whether it is chosen or a runner-up.
double estimate_of(std::string_view algorithm, const Request& request, const Topology& topology,
                   const TuningParameters& tuning) {
  const Plan plan = choose_plan(request, topology, tuning);
  if (plan.name == algorithm) return plan.estimate.microseconds;
  for (const Estimate& other : plan.runners_up)
    if (other.algorithm == algorithm) return other.microseconds;
  ADD_FAILURE() << "no " << algorithm;
  return 0;
}

// Without leaders, each rank of a host sums one slice of the vector. With leaders, one rank sums everything and the
// other ranks have no work. If the ranks share cores, both take the same CPU time.
TEST(Plan, ALeadersSumCostsMoreWhenTheOtherRanksHaveTheirOwnCores) {
  TuningParameters tuning;
  tuning.message_us = tuning.message_us_per_byte = tuning.host_latency_us = tuning.reduce_us_per_byte = 0;
  tuning.wire_us = tuning.wire_message_us = tuning.wire_us_per_byte = tuning.wire_work_us_per_byte = 0;
  tuning.host_us_per_byte = 1;
  const Request request{.collective = Collective::all_reduce, .count = 1024};
  Topology topology = Topology::regular(8, 4);
  const auto estimate = [&](std::string_view algorithm) { return estimate_of(algorithm, request, topology, tuning); };
  EXPECT_DOUBLE_EQ(estimate("hierarchical_one_shot"), 4096 + 4096);
  EXPECT_DOUBLE_EQ(estimate("hierarchical_leaders"), 4 * 4096 + 4096);
  topology.machines = {0, 0};
  topology.machine_cores = {2};
  EXPECT_DOUBLE_EQ(estimate("hierarchical_one_shot"), 4 * (4096 + 4096));
  EXPECT_DOUBLE_EQ(estimate("hierarchical_leaders"), 4 * 4096 + 4 * 4096);
}

// Not every rank of a large job is counted.
TEST(Plan, CountsTheBusiestRanksOfALargeJobWhereverTheyAre) {
  Topology machine = Topology::regular(192, 192);
  machine.domains.resize(192);
  for (std::size_t r = 0; r < 192; ++r) machine.domains[r] = r < 96 ? 0 : 1;
  const auto reduce = [&](std::string_view algorithm, Rank root) {
    return estimate_of(algorithm, {.collective = Collective::reduce, .count = 1 << 20, .root = root}, machine, {});
  };
  for (const std::string_view algorithm : {"hierarchical", "hierarchical_two_level", "reduce_to_one_direct"})
    for (const Rank root : {63, 64, 95, 191})
      EXPECT_NEAR(reduce(algorithm, root) / reduce(algorithm, 0), 1, 0.01) << algorithm << " to " << root;

  const auto all_reduce = [&](std::string_view algorithm, const std::vector<int>& sizes) {
    Topology topology;
    Rank next = 0;
    for (const int size : sizes) {
      auto& host = topology.hosts.emplace_back();
      for (int i = 0; i < size; ++i) host.push_back(next++);
    }
    return estimate_of(algorithm, {.count = 64 << 10}, topology, {});
  };
  for (const std::string_view algorithm : {"hierarchical", "hierarchical_leaders"})
    for (const auto& sizes : {std::vector{8, 64, 8}, {8, 8, 64}})
      EXPECT_NEAR(all_reduce(algorithm, sizes) / all_reduce(algorithm, {64, 8, 8}), 1, 0.01) << algorithm;
}

// Fast links are busy for less time than cores, which send messages before or after they copy others.
TEST(Plan, EstimateCountsCpuWorkWhenLinksAreFasterThanCores) {
  TuningParameters tuning;
  tuning.wire_us_per_byte = 8e-5;
  tuning.wire_us = 5;
  const double bytes = 2 * 15.0 / 16 * (512 << 10);
  EXPECT_GE(estimate_of("hierarchical", {.collective = Collective::all_gather, .count = (512 << 10) / 4},
                        Topology::regular(16, 1), tuning),
            30 * tuning.wire_message_us + bytes * tuning.wire_work_us_per_byte);
}

// Several messages to one link: all but the first are sent while the link carries another.
TEST(Plan, MessagesAreHandedOverBehindOthersOnBusyLinks) {
  TuningParameters tuning;
  tuning.wire_us_per_byte = 0.01;
  tuning.wire_work_us_per_byte = 0;
  const auto us_with = [&](double message_us) {
    tuning.wire_message_us = message_us;
    return estimate_of("hierarchical", {.collective = Collective::all_gather, .count = 1 << 14},
                       Topology::regular(4, 1), tuning);
  };
  EXPECT_NEAR(us_with(9) - us_with(1), 6 * 8 / 3.0, 0.01) << "three messages out, three in, the first of them before";
}

// The first round passes the whole chain, and later rounds follow it.
TEST(Plan, ShortBroadcastsAreCutToFlowDownAChain) {
  TuningParameters tuning;
  tuning.wire_us_per_byte = 0.0081;
  for (const std::size_t bytes : {32u << 10, 128u << 10}) {
    const Plan plan =
        choose_plan({.collective = Collective::broadcast, .count = bytes / 4}, Topology::regular(4, 1), tuning);
    EXPECT_GE(plan.rounds, 4u) << bytes;
    EXPECT_LT(plan.estimate.microseconds, 1.6 * 0.0081 * static_cast<double>(bytes)) << bytes;
  }
  // Fewer rounds if each costs an expensive intra-host collective.
  const auto rounds_with = [&](double host_latency_us) {
    tuning.host_latency_us = host_latency_us;
    return choose_plan({.collective = Collective::broadcast, .count = 1 << 16, .backend = "hierarchical"},
                       Topology::regular(64, 4), tuning)
        .rounds;
  };
  EXPECT_LT(2 * rounds_with(3000), rounds_with(0.2));
}

TEST(Plan, ABarrierOfManyHostsDisseminates) {
  EXPECT_EQ(plan_of({.collective = Collective::barrier}, Topology::regular(6, 2)).name, "hierarchical");
  const Plan plan = plan_of({.collective = Collective::barrier}, Topology::regular(512, 1));
  EXPECT_EQ(plan.name, "hierarchical_doubling");
  EXPECT_EQ(plan.estimate.messages, 9u);
}

// A program that forces one algorithm may still call barriers, and calls without elements.
TEST(Plan, ABarrierRunsOnTheForcedBackend) {
  for (const std::string_view name : {"hierarchical_halving", "hierarchical_one_shot", "reduce_to_one_tree"})
    EXPECT_EQ(plan_of({.collective = Collective::barrier, .backend = name}, Topology::regular(6, 2)).backend,
              name.starts_with("h") ? "hierarchical" : "reduce_to_one");
}

// The links of a tree wait for one another with the whole vector.
TEST(Plan, BytesOfAChainOfMessagesAddUp) {
  TuningParameters tuning;
  tuning.wire_us_per_byte = 0.01;
  const auto us_of = [&](std::string_view backend) {
    return choose_plan({.count = 4096, .backend = backend}, Topology::regular(4, 1), tuning).estimate.microseconds;
  };
  EXPECT_GT(us_of("reduce_to_one_tree"), 4 * 163) << "up and down, twice into and out of the root";
  EXPECT_LT(us_of("hierarchical_doubling"), 3 * 163) << "two at a time";
}

TEST(Plan, TheSharedLinkRateBoundsTheEstimate) {
  const auto us_of = [](double together) {
    TuningParameters tuning;
    tuning.wire_us_per_byte = 0.001;
    tuning.wire_together_us_per_byte = together;
    return choose_plan({.count = 1 << 20, .backend = "ring"}, Topology::regular(8, 1), tuning).estimate.microseconds;
  };
  EXPECT_DOUBLE_EQ(us_of(0), us_of(0.0005)) << "more than enough for all";
  EXPECT_GT(us_of(0.003), 2.5 * us_of(0));
}

// A thousand rounds follow one another along a chain, so its length is paid once.
TEST(Plan, LongVectorsFlowDownAChain) {
  const Topology hosts = Topology::regular(16, 1);
  for (const Collective collective : {Collective::broadcast, Collective::reduce}) {
    const Plan plan = plan_of({.collective = collective, .count = 16 << 20}, hosts);
    const double wire = static_cast<double>(64 << 20) * TuningParameters{}.wire_us_per_byte;
    EXPECT_GT(plan.rounds, 100u);
    EXPECT_EQ(plan.estimate.bytes_between_hosts, std::size_t{64} << 20) << plan.name << ": the bytes once";
    EXPECT_LT(plan.estimate.microseconds, 1.3 * wire) << plan.name;
  }
}

TEST(Plan, LargeMachinesTakeNoChainForShortVectors) {
  for (const Collective collective : {Collective::broadcast, Collective::all_reduce, Collective::reduce})
    for (const int hosts : {100, 600}) {
      const Plan plan = plan_of({.collective = collective, .count = 2}, Topology::regular(8 * hosts, 8));
      EXPECT_NE(plan.backend, "ring") << to_string(collective) << " on " << hosts << " hosts";
    }
}

TEST(Plan, TwoHostsExchangeEverythingAtOnce) {
  for (const std::size_t count : {2u, 1000u, 1u << 20, 1u << 24})
    EXPECT_EQ(plan_of({.count = count}, Topology::regular(2, 1)).name, "hierarchical_one_shot") << count;
}

// Messages inside a host are limited by its frames, so a plan that sends one is cut for them.
TEST(Plan, LongestMessagesAreUsedOnlyWhenAllBytesGoBetweenHosts) {
  TuningParameters tuning;
  tuning.frame_bytes = 4096;
  tuning.wire_frame_bytes = 64 << 10;
  tuning.wire_message_us = 100;  // no cut without need
  const auto segment = [&](std::string_view backend, const Topology& topology) {
    return choose_plan({.count = 16 << 20, .backend = backend}, topology, tuning).segment;
  };
  EXPECT_EQ(segment("hierarchical", Topology::regular(8, 2)), 8 * (64u << 10) / 4) << "a piece for each rank";
  EXPECT_EQ(segment("ring", Topology::regular(4, 1)), (64u << 10) / 4);
  EXPECT_EQ(segment("ring", Topology::regular(8, 2)), 1024u) << "every other message stays inside a host";
  EXPECT_EQ(segment("ring", Topology::regular(4, 4)), 1024u);
  const auto bytes_of_a_round = [&](const Request& request) {
    return 4 * choose_plan(request, Topology::regular(8, 2), tuning).segment;
  };
  EXPECT_EQ(bytes_of_a_round({.count = 16 << 20, .deterministic = true, .backend = "hierarchical"}), 4096u)
      << "contributions meet unsummed, those of a host, too";
  for (const Collective collective : {Collective::reduce, Collective::broadcast, Collective::reduce_scatter})
    EXPECT_LE(bytes_of_a_round({.collective = collective, .count = 16 << 20, .backend = "hierarchical"}), 8 * 4096u)
        << to_string(collective) << ": a piece for each rank, at most";
}

TEST(Plan, LongVectorsOfManyHostsTakeThePlanWithFewestBytes) {
  const Topology hosts = Topology::regular(32, 4);
  const Plan plan = plan_of({.count = 1 << 26}, hosts);
  EXPECT_EQ(plan.estimate.bytes_between_hosts, (std::size_t{2} * 7 << 28) / 8) << plan.name;
  const Plan small = plan_of({.count = 2}, hosts);
  EXPECT_LE(small.estimate.messages, 7u) << small.name;
}

TEST(Plan, TwoLevelsWithoutDomainsAreRefused) {
  try {
    plan_of({.count = 100, .backend = "hierarchical_two_level"}, Topology::regular(8, 8));
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Errc::unsupported);
    EXPECT_STREQ(error.what(),
                 "backend \"hierarchical_two_level\" cannot do all_reduce of f32 on 8 ranks (1 host): it needs several "
                 "domains with equally many ranks, at least two");
  }
}

TEST(Plan, SixteenBitSumsGoDirect) {
  const Topology host = Topology::regular(4, 4);
  EXPECT_EQ(plan_of({.count = 100, .type = DataType::bf16, .backend = "ring"}, host).partial_sums,
            PartialSums::forbidden);
  EXPECT_EQ(plan_of({.count = 100, .type = DataType::bf16, .op = ReduceOp::max, .backend = "ring"}, host).partial_sums,
            PartialSums::allowed);
  EXPECT_EQ(plan_of({.count = 100, .backend = "ring"}, host).partial_sums, PartialSums::allowed);
  EXPECT_EQ(plan_of({.count = 100, .deterministic = true, .backend = "ring"}, host).partial_sums,
            PartialSums::forbidden);
  EXPECT_EQ(plan_of({.collective = Collective::all_gather, .count = 100, .type = DataType::bf16}, host).partial_sums,
            PartialSums::allowed);
}

TEST(Plan, LongVectorsTakeRoundsOfWholeFrames) {
  TuningParameters tuning;
  tuning.frame_bytes = 4096;
  const Plan plan = plan_of({.count = 4 * 1024 * 10 + 1, .backend = "ring"}, Topology::regular(4, 4), tuning);
  EXPECT_EQ(plan.segment, 1024u);
  EXPECT_EQ(plan.rounds, 11u);
}

TEST(Plan, PrefersFewStepsForShortVectorsBetweenHosts) {
  // Sixteen hosts of one rank: a ring has thirty hops, a tree eight, doubling four.
  const Topology hosts = Topology::regular(16, 1);
  const Plan small = plan_of({.count = 2}, hosts), large = plan_of({.count = 64 << 20}, hosts);
  EXPECT_LE(small.estimate.microseconds, 4 * (TuningParameters{}.wire_us + 2 * TuningParameters{}.wire_message_us) + 1)
      << small.name;
  EXPECT_TRUE(large.backend == "ring" || large.backend == "hierarchical") << large.name;
  EXPECT_LT(small.estimate.microseconds, small.runners_up.front().microseconds + 1e-9);
}

TEST(Plan, IsAFunctionOfItsArguments) {
  const Topology hosts = Topology::regular(12, 4);
  const Request request{.collective = Collective::reduce_scatter, .count = 12345};
  const Plan a = plan_of(request, hosts), b = plan_of(request, hosts);
  EXPECT_EQ(a.name, b.name);
  EXPECT_EQ(explain(a, request, hosts), explain(b, request, hosts));
}

TEST(Plan, ExplainPrintsChoiceReasonAndRunnersUp) {
  const Topology hosts = Topology::regular(64, 8);
  const Request request{.count = 16 << 20};
  const std::string text = explain(plan_of(request, hosts), request, hosts);
  for (const char* part : {"all_reduce 64 MiB f32 sum, 64 ranks (8 hosts x 8)", "the lowest estimate",
                           "estimate: ", "instead of: ring", "rounds of segments of"})
    EXPECT_NE(text.find(part), std::string::npos) << part << " is missing in\n" << text;
  const Request exact{.count = 100, .type = DataType::bf16, .backend = "ring"};
  EXPECT_NE(explain(plan_of(exact, hosts), exact, hosts).find("direct exchange"), std::string::npos);
}

TEST(Plan, EstimateGrowsWithTheBytes) {
  const Topology hosts = Topology::regular(8, 4);
  for (const std::string_view backend : {"ring", "hierarchical", "reduce_to_one"}) {
    double last = 0;
    for (std::size_t count = 1; count <= 1 << 24; count *= 16) {
      const double now = plan_of({.count = count, .backend = backend}, hosts).estimate.microseconds;
      EXPECT_GE(now, last) << backend << ' ' << count;
      last = now;
    }
  }
}

TEST(Plan, ShortAllToAllsOfHostsWithSeveralRanksArePooled) {
  const auto name = [](std::size_t bytes_per_pair, const Topology& topology) {
    const auto p = static_cast<std::size_t>(topology.ranks());
    return plan_of({.collective = Collective::all_to_all, .count = bytes_per_pair * p, .type = DataType::u8}, topology)
        .name;
  };
  const Topology four_of_two = Topology::regular(8, 2);
  EXPECT_EQ(name(64, four_of_two), "hierarchical_pooled");
  EXPECT_EQ(name(1 << 20, four_of_two), "hierarchical_pairwise");
  EXPECT_EQ(name(64, Topology::regular(4, 1)), "hierarchical_pairwise") << "hosts of one rank have nothing to pool";
  EXPECT_EQ(name(64, Topology::from_hosts({"a", "b", "a", "b"}, 0)), "hierarchical_pairwise")
      << "the parts of a host are no range";
}

}  // namespace
}  // namespace collectives
