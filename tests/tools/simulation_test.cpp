// Tests of the simulator of `collectives_info simulate`, which plays a plan on a model of hosts and links. Its times
// are compared with formulas, and its shortcuts with complete simulations. Prices of work that a test does not name are
// zero.
#include "tools/simulation.hpp"

#include <gtest/gtest.h>

#include <limits>
#include <string>
#include <vector>

#include "collectives/error.hpp"
#include "core/tuning_parameters.hpp"
#include "planning/candidates.hpp"
#include "steps/algorithm.hpp"

namespace collectives {
namespace {

constexpr double kLatency = 10, kPerByte = 0.001;  // times of a message on the model's links, in us, and of each byte
constexpr Fabric kNetwork{.latency_us = kLatency, .us_per_byte = kPerByte};
constexpr std::size_t kAll = std::numeric_limits<std::size_t>::max();
constexpr Effort kWhole{.everything = kAll, .most = kAll};

/// Returns a tuning with which only the wire takes time.
TuningParameters free_tuning() {
  TuningParameters tuning;
  tuning.host_latency_us = tuning.host_us_per_byte = tuning.domain_us = tuning.domain_us_per_byte = 0;
  tuning.message_us = tuning.message_us_per_byte = tuning.reduce_us_per_byte = 0;
  tuning.wire_message_us = 0;
  tuning.wire_us = kLatency;
  tuning.wire_us_per_byte = kPerByte;
  return tuning;
}
/// Returns a tuning with which a plan has one round for any length.
TuningParameters one_round() {
  TuningParameters tuning = free_tuning();
  tuning.frame_bytes = tuning.wire_frame_bytes = 64 << 20;
  tuning.wire_frames = 2;
  return tuning;
}

Request request_of(Collective collective, std::string_view backend, std::size_t bytes) {
  return {.collective = collective, .count = bytes / 4, .backend = backend};
}
/// Returns the plan of the algorithm `name`. A forced backend of that name could choose another of its algorithms.
Plan plan_called(std::string_view name, Request request, const Topology& topology, const TuningParameters& tuning) {
  request.backend = "auto";
  for (Plan& plan : candidate_plans(request, topology, tuning))
    if (plan.name == name) return plan;
  ADD_FAILURE() << name << " is no candidate";
  return {};
}
Simulated simulated(std::string_view name, Collective collective, std::size_t bytes, const Topology& topology,
                    const TuningParameters& tuning, const Fabric& network = kNetwork, const Effort& effort = kWhole) {
  const Request request = request_of(collective, "auto", bytes);
  return simulate(request, plan_called(name, request, topology, tuning), topology, tuning, network, effort);
}
double us(std::string_view name, Collective collective, std::size_t bytes, const Topology& topology,
          const TuningParameters& tuning, const Fabric& network = kNetwork) {
  return simulated(name, collective, bytes, topology, tuning, network).microseconds;
}
double on_link(std::size_t bytes) { return kPerByte * static_cast<double>(bytes); }

// ---- formulas ----

TEST(Simulation, AMessageTakesALatencyAndItsBytes) {
  const Topology two = Topology::regular(2, 1);
  EXPECT_DOUBLE_EQ(us("ring", Collective::broadcast, 4000, two, one_round()), kLatency + on_link(4000));
  TuningParameters busy = one_round();
  busy.wire_message_us = 3;
  EXPECT_DOUBLE_EQ(us("ring", Collective::broadcast, 4000, two, busy), 3 + kLatency + on_link(4000) + 3);
  EXPECT_DOUBLE_EQ(us("ring", Collective::barrier, 0, two, busy), 2 * (3 + kLatency + 3));
}

TEST(Simulation, LinksCarryBothDirectionsTogether) {
  EXPECT_DOUBLE_EQ(us("hierarchical_one_shot", Collective::all_reduce, 4000, Topology::regular(2, 1), one_round()),
                   kLatency + on_link(4000));
}

TEST(Simulation, ALinkIsSharedByTheRanksOfItsHost) {
  EXPECT_DOUBLE_EQ(us("hierarchical_one_shot", Collective::all_reduce, 8000, Topology::regular(4, 2), one_round()),
                   kLatency + on_link(2 * 4000));
}

TEST(Simulation, SendersToOneReceiverQueue) {
  EXPECT_DOUBLE_EQ(us("reduce_to_one_direct", Collective::reduce, 4000, Topology::regular(4, 1), one_round()),
                   kLatency + on_link(3 * 4000));
}

TEST(Simulation, OneShotSpreadsTheLoadOverAllReceivers) {
  EXPECT_DOUBLE_EQ(us("hierarchical_one_shot", Collective::all_reduce, 4000, Topology::regular(4, 1), one_round()),
                   kLatency + on_link(3 * 4000));
}

TEST(Simulation, ARingTakesTwoPMinusOneHops) {
  for (const int p : {2, 4, 5}) {
    const std::size_t chunk = 4000, bytes = chunk * static_cast<std::size_t>(p);
    const double expected = 2 * (p - 1) * (kLatency + on_link(chunk));
    const Topology hosts = Topology::regular(p, 1);
    EXPECT_DOUBLE_EQ(us("ring", Collective::all_reduce, bytes, hosts, one_round()), expected) << p;
    EXPECT_DOUBLE_EQ(us("hierarchical", Collective::all_reduce, bytes, hosts, one_round()), expected) << p;
    EXPECT_DOUBLE_EQ(us("ring", Collective::all_gather, bytes, hosts, one_round()), expected / 2) << p;
  }
}

TEST(Simulation, HalvingTakesTheBytesOfARingInFewerHops) {
  EXPECT_DOUBLE_EQ(us("hierarchical_halving", Collective::all_reduce, 8000, Topology::regular(8, 1), one_round()),
                   6 * kLatency + on_link(2 * (4000 + 2000 + 1000)));
}

TEST(Simulation, AChainIsAPipeline) {
  TuningParameters tuning = free_tuning();
  // A message takes half a latency, so the frames (memory for one message each) suffice to keep the link busy.
  tuning.wire_frame_bytes = 5000;
  const double piece = on_link(5000);
  for (const std::size_t rounds : {1u, 2u, 40u})
    EXPECT_NEAR(us("ring", Collective::broadcast, rounds * 5000, Topology::regular(4, 1), tuning),
                3 * (kLatency + piece) + static_cast<double>(rounds - 1) * piece, 1e-6)
        << rounds;
  // Two frames do not suffice to keep the link busy: only two messages are sent in the time of a latency and a message.
  tuning.wire_frames = 2;
  EXPECT_NEAR(us("ring", Collective::broadcast, 40 * 5000, Topology::regular(2, 1), tuning),
              20 * (kLatency + piece) + piece, 1e-6);
}

TEST(Simulation, HostStepsCostWhatTheCostModelSays) {
  const TuningParameters tuning;
  const Topology host = Topology::regular(4, 4);
  for (const Collective collective : kCollectives) {
    const Request request = request_of(collective, "auto", collective == Collective::barrier ? 0 : 1 << 20);
    const Plan plan = choose_plan(request, host, tuning);
    EXPECT_DOUBLE_EQ(simulate(request, plan, host, tuning, kNetwork).microseconds, plan.estimate.microseconds)
        << to_string(collective);
  }
}

TEST(Simulation, TheLastRankOfAHostIsWaitedFor) {
  TuningParameters tuning = one_round();
  tuning.host_latency_us = 7;
  // Both ranks of a host share its link, so the slice of the second rank arrives after that of the first.
  EXPECT_DOUBLE_EQ(us("hierarchical_one_shot", Collective::all_reduce, 8000, Topology::regular(4, 2), tuning),
                   7 + kLatency + on_link(8000) + 7);
}

TEST(Simulation, AnUplinkIsSharedByTheHostsOfItsSwitch) {
  const Topology four = Topology::regular(4, 1);
  Fabric network = kNetwork;
  const double unlimited = us("hierarchical_one_shot", Collective::broadcast, 4000, four, one_round());
  EXPECT_DOUBLE_EQ(unlimited, kLatency + 3 * on_link(4000));
  network.hosts_per_switch = 2;
  network.uplink_us_per_byte = 2 * kPerByte;
  // Let d be the time of a message on a host's link. The second and the third message go to the other switch. They pass
  // the uplink one after the other at half the rate: from d to 3d, and from 3d to 5d.
  EXPECT_DOUBLE_EQ(us("hierarchical_one_shot", Collective::broadcast, 4000, four, one_round(), network),
                   kLatency + 5 * on_link(4000));
  network.uplink_us_per_byte = kPerByte / 2;  // an uplink as fast as the links of both hosts together limits nothing
  EXPECT_DOUBLE_EQ(us("hierarchical_halving", Collective::all_reduce, 4000, four, one_round(), network),
                   us("hierarchical_halving", Collective::all_reduce, 4000, four, one_round()));
  network.uplink_us_per_byte = kPerByte;  // too slow if both hosts of a switch send to the other switch
  EXPECT_GT(us("hierarchical_halving", Collective::all_reduce, 4000, four, one_round(), network),
            us("hierarchical_halving", Collective::all_reduce, 4000, four, one_round()));
}

TEST(Simulation, RoundsInFlightHideTheLatency) {
  TuningParameters overlapping = free_tuning(), one_by_one = free_tuning();
  overlapping.wire_frame_bytes = one_by_one.wire_frame_bytes = 8 << 10;
  one_by_one.wire_frames = 2;
  const Topology eight = Topology::regular(8, 1);
  Fabric far = kNetwork;
  far.latency_us = 100;
  const double hidden = us("hierarchical", Collective::all_reduce, 4 << 20, eight, overlapping, far),
               shown = us("hierarchical", Collective::all_reduce, 4 << 20, eight, one_by_one, far);
  EXPECT_LT(hidden, shown / 4);
}

TEST(Simulation, TheWireBoundIsTheBytesThatTheHostsMustReceive) {
  const Topology four = Topology::regular(8, 2);
  const auto bound = [&](Collective collective) {
    return wire_bound_us(request_of(collective, "auto", 8000), Coding{size_of(DataType::f32)}, four, kNetwork);
  };
  EXPECT_DOUBLE_EQ(bound(Collective::all_reduce), on_link(12000));
  EXPECT_DOUBLE_EQ(bound(Collective::reduce_scatter), on_link(6000));
  EXPECT_DOUBLE_EQ(bound(Collective::all_gather), on_link(6000));
  EXPECT_DOUBLE_EQ(bound(Collective::broadcast), on_link(8000));
  EXPECT_DOUBLE_EQ(bound(Collective::reduce), on_link(8000));
  EXPECT_DOUBLE_EQ(bound(Collective::barrier), 0);
  Fabric tapered = kNetwork;
  tapered.hosts_per_switch = 2;
  tapered.uplink_us_per_byte = 4 * kPerByte;
  EXPECT_DOUBLE_EQ(
      wire_bound_us(request_of(Collective::all_reduce, "auto", 8000), Coding{size_of(DataType::f32)}, four, tapered),
      on_link(4 * 8000));
  EXPECT_DOUBLE_EQ(wire_bound_us(request_of(Collective::all_reduce, "auto", 8000), Coding{size_of(DataType::f32)},
                                 Topology::regular(8, 8), kNetwork),
                   0);
}

// ---- everything there is ----

TEST(Simulation, EveryPlanComesToAnEndAndNoneBeforeTheBound) {
  for (const Topology& topology : {Topology::regular(4, 4), Topology::regular(5, 1), Topology::regular(8, 2),
                                   Topology::regular(7, 3), Topology::from_hosts({"a", "b", "a", "b", "b", "c"}, 0)})
    for (const std::size_t frames : {2u, 3u, 8u})
      for (const Collective collective : kCollectives)
        for (const bool deterministic : {false, true})
          for (const std::size_t count : {std::size_t{0}, std::size_t{1}, std::size_t{50'001}}) {
            TuningParameters tuning;
            tuning.frame_bytes = tuning.wire_frame_bytes = 4096;
            tuning.wire_frames = frames;
            Request request{.collective = collective, .count = count, .deterministic = deterministic};
            if (collective == Collective::barrier) request.count = 0;
            if (collective == Collective::all_to_all) request.count *= static_cast<std::size_t>(topology.ranks());
            request.root = topology.ranks() - 1;
            for (const Plan& plan : candidate_plans(request, topology, tuning)) {
              const Simulated result = simulate(request, plan, topology, tuning, Fabric::of(tuning));
              EXPECT_EQ(result.hosts_played, static_cast<int>(topology.hosts.size()));
              EXPECT_GE(result.microseconds * 1.000001, result.bound_us) << plan.name << ' ' << to_string(collective);
              EXPECT_EQ(result.bytes_out > 0, request.count > 0 && !topology.one_host()) << plan.name;
              EXPECT_EQ(result.microseconds > 0, request.count > 0 || collective == Collective::barrier) << plan.name;
            }
          }
}

TEST(Simulation, EqualArgumentsGiveEqualResults) {
  const TuningParameters tuning;
  const Topology topology = Topology::regular(12, 3);
  const auto once = [&] {
    return simulated("hierarchical", Collective::all_reduce, 3 << 20, topology, tuning, Fabric::of(tuning));
  };
  const Simulated first = once(), second = once();
  EXPECT_EQ(first.microseconds, second.microseconds);
  EXPECT_EQ(first.events, second.events);
}

TEST(Simulation, TwoLevelsInsideAHostTakeTime) {
  Topology host = Topology::regular(8, 8);
  for (Rank r = 0; r < 8; ++r) host.domains.push_back(r % 2);
  TuningParameters tuning;
  for (const Collective collective : kCollectives) {
    if (!performs_common(collective)) continue;
    EXPECT_GT(us("hierarchical_two_level", collective, collective == Collective::barrier ? 0 : 1 << 20, host, tuning),
              0);
  }
}

// ---- shortcuts ----

constexpr Effort kOneBlock{.everything = 0, .most = kAll, .one_block = true, .some_rounds = false};
constexpr Effort kSomeRounds{.everything = 0, .most = kAll, .one_block = false, .some_rounds = true};

TEST(Simulation, OneHostRepresentsAllIfAllHostsBehaveEqually) {
  struct Case {
    std::string_view name;
    Collective collective;
    bool deterministic = false;
  };
  const TuningParameters tuning;
  for (const Topology& topology : {Topology::regular(16, 1), Topology::regular(16, 2), Topology::regular(12, 2)})
    for (const Case& c : {Case{"hierarchical", Collective::all_reduce},
                          {"hierarchical", Collective::all_reduce, true},
                          {"hierarchical", Collective::reduce_scatter},
                          {"hierarchical", Collective::all_gather},
                          {"hierarchical_halving", Collective::all_reduce},
                          {"ring", Collective::all_reduce},
                          {"ring", Collective::all_reduce, true},
                          {"ring", Collective::reduce_scatter},
                          {"ring", Collective::all_gather}})
      for (const std::size_t bytes : {4u << 10, 1'000'004u, 8u << 20}) {
        if (c.name == "hierarchical_halving" && topology.hosts.size() == 6) continue;  // not a power of two
        Request request = request_of(c.collective, "auto", bytes);
        request.deterministic = c.deterministic;
        const Plan plan = plan_called(c.name, request, topology, tuning);
        const auto with = [&](const Effort& effort) {
          return simulate(request, plan, topology, tuning, Fabric::of(tuning), effort);
        };
        const Simulated whole = with(kWhole), one = with(kOneBlock);
        EXPECT_EQ(one.hosts_played, 1) << c.name << ' ' << to_string(c.collective);
        ASSERT_FALSE(one.notes.empty());
        EXPECT_NE(one.notes[0].find("hosts was played"), std::string::npos);
        EXPECT_LT(one.events, whole.events / 3);
        EXPECT_NEAR(one.microseconds, whole.microseconds, whole.microseconds / 100)
            << c.name << ' ' << to_string(c.collective) << ' ' << bytes << ' ' << to_string(topology);
        EXPECT_NEAR(static_cast<double>(one.bytes_out), static_cast<double>(whole.bytes_out),
                    static_cast<double>(whole.bytes_out) / 50)
            << c.name << ' ' << to_string(c.collective) << ' ' << bytes << ' ' << to_string(topology);
      }
}

TEST(Simulation, OneSwitchRepresentsAllIfAllSwitchesBehaveEqually) {
  const TuningParameters tuning;
  Fabric network = Fabric::of(tuning);
  network.hosts_per_switch = 4;
  network.uplink_us_per_byte = tuning.wire_us_per_byte / 2;
  const Topology topology = Topology::regular(32, 2);
  for (const std::string_view name : {"hierarchical", "hierarchical_halving"}) {
    const auto with = [&](const Effort& effort) {
      return simulated(name, Collective::all_reduce, 4 << 20, topology, tuning, network, effort);
    };
    const Simulated whole = with(kWhole), one = with(kOneBlock);
    EXPECT_EQ(one.hosts_played, 4) << name;
    EXPECT_NEAR(one.microseconds, whole.microseconds, whole.microseconds / 100) << name;
  }
}

TEST(Simulation, UnequalHostsAreSimulatedInFull) {
  const TuningParameters tuning;
  const Topology hosts = Topology::regular(12, 2);
  for (const std::string_view name : {"hierarchical_halving", "reduce_to_one_tree"})
    EXPECT_EQ(
        simulated(name, Collective::all_reduce, 1 << 20, hosts, tuning, Fabric::of(tuning), kOneBlock).hosts_played, 6)
        << name;
  EXPECT_EQ(
      simulated("ring", Collective::broadcast, 1 << 20, hosts, tuning, Fabric::of(tuning), kOneBlock).hosts_played, 6);
  // Ranks are numbered around the hosts. From the last host the ring takes other links than from other hosts.
  EXPECT_EQ(simulated("ring", Collective::all_reduce, 1 << 20,
                      Topology::from_hosts({"a", "b", "c", "d", "a", "b", "c", "d"}, 0), tuning, Fabric::of(tuning),
                      kOneBlock)
                .hosts_played,
            4);
}

TEST(Simulation, RoundsInASteadyStateNeedNotBePlayed) {
  struct Case {
    std::string_view name;
    Collective collective;
    int ranks, per_host;
  };
  TuningParameters tuning;
  tuning.frame_bytes = tuning.wire_frame_bytes = 16 << 10;
  for (const Case& c : {Case{"hierarchical", Collective::all_reduce, 4, 1},
                        {"hierarchical", Collective::all_reduce, 8, 2},
                        {"hierarchical_one_shot", Collective::all_reduce, 4, 2},
                        {"hierarchical_halving", Collective::all_reduce, 8, 2},
                        {"hierarchical", Collective::broadcast, 12, 3},
                        {"hierarchical", Collective::reduce_scatter, 8, 2},
                        {"hierarchical", Collective::all_gather, 8, 2},
                        {"ring", Collective::all_reduce, 6, 2},
                        {"ring", Collective::broadcast, 8, 1},
                        {"hierarchical", Collective::broadcast, 64, 2},
                        {"ring", Collective::broadcast, 48, 1},
                        {"ring", Collective::reduce, 8, 2},
                        {"ring", Collective::reduce, 48, 2},
                        {"reduce_to_one_tree", Collective::all_reduce, 7, 1}}) {
    const Topology topology = Topology::regular(c.ranks, c.per_host);
    const auto with = [&](const Effort& effort) {
      return simulated(c.name, c.collective, 48'000'004, topology, tuning, Fabric::of(tuning), effort);
    };
    const Simulated whole = with(kWhole), some = with(kSomeRounds);
    EXPECT_LT(some.rounds_played, whole.rounds_played) << c.name << ' ' << to_string(c.collective);
    ASSERT_FALSE(some.notes.empty());
    EXPECT_NE(some.notes[0].find("rounds were played"), std::string::npos);
    EXPECT_NEAR(some.microseconds, whole.microseconds, whole.microseconds / 100)
        << c.name << ' ' << to_string(c.collective);
    EXPECT_NEAR(static_cast<double>(some.bytes_out), static_cast<double>(whole.bytes_out),
                static_cast<double>(whole.bytes_out) / 100)
        << c.name << ' ' << to_string(c.collective);
  }
}

TEST(Simulation, OnALongChainTheBeginningIsSteadyToo) {
  TuningParameters tuning;
  tuning.frame_bytes = tuning.wire_frame_bytes = 16 << 10;
  const Topology topology = Topology::regular(240, 2);
  for (const std::size_t bytes : {2u << 20, 8u << 20}) {  // 64 rounds, and 256
    const auto with = [&](const Effort& effort) {
      return simulated("hierarchical", Collective::broadcast, bytes, topology, tuning, Fabric::of(tuning), effort);
    };
    const Simulated whole = with(kWhole), some = with(kSomeRounds);
    EXPECT_NEAR(some.microseconds, whole.microseconds, whole.microseconds / 100) << bytes;
  }
}

TEST(Simulation, ManyRanksTakeFewEvents) {
  TuningParameters tuning;
  tuning.wire_us = 5;
  tuning.wire_us_per_byte = 8e-5;  // 100 Gbit/s
  const Topology topology = Topology::regular(65'536, 8);
  for (const std::string_view name : {"hierarchical", "hierarchical_halving"}) {
    const Simulated result =
        simulated(name, Collective::all_reduce, 100 << 20, topology, tuning, Fabric::of(tuning), Effort{});
    EXPECT_EQ(result.hosts_played, 1) << name;
    EXPECT_LT(result.events, 4'000'000u) << name;
    EXPECT_GT(result.microseconds, result.bound_us) << name;
  }
}

TEST(Simulation, RefusesASimulationWithTooManyEvents) {
  const TuningParameters tuning;
  const Topology topology = Topology::regular(64, 1);
  try {
    simulated("reduce_to_one_tree", Collective::all_gather, 1 << 20, topology, tuning, Fabric::of(tuning),
              {.everything = 10, .most = 1000});
    FAIL() << "it was played";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Errc::unsupported);
    EXPECT_NE(std::string(error.what()).find("events"), std::string::npos);
  }
}

}  // namespace
}  // namespace collectives
