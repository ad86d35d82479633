// Tests of topologies, the layouts of ranks on hosts: made by a formula or from host names, and printed as text.
#include "collectives/topology.hpp"

#include <gtest/gtest.h>

#include "collectives/error.hpp"

namespace collectives {
namespace {

using Hosts = std::vector<std::vector<Rank>>;

TEST(Topology, RegularNumbersRanksHostByHost) {
  const Topology topology = Topology::regular(8, 4, 16);
  EXPECT_EQ(topology.hosts, (Hosts{{0, 1, 2, 3}, {4, 5, 6, 7}}));
  EXPECT_EQ(topology.cores_per_host, 16);
  EXPECT_EQ(topology.ranks(), 8);
  EXPECT_FALSE(topology.one_host());
}

TEST(Topology, RegularLeavesTheLastHostShort) {
  EXPECT_EQ(Topology::regular(7, 4).hosts, (Hosts{{0, 1, 2, 3}, {4, 5, 6}}));
  EXPECT_EQ(Topology::regular(3, 8).hosts, (Hosts{{0, 1, 2}}));
}

TEST(Topology, RegularRefusesNoRanks) {
  EXPECT_THROW(Topology::regular(0, 1), Error);
  EXPECT_THROW(Topology::regular(4, 0), Error);
}

TEST(Topology, HostsAreInOrderOfTheirLowestRank) {
  const Topology topology = Topology::from_hosts({"zebra", "ant", "zebra", "bee", "ant"}, 2);
  EXPECT_EQ(topology.hosts, (Hosts{{0, 2}, {1, 4}, {3}}));
  EXPECT_EQ(topology.cores_per_host, 2);
}

TEST(Topology, IsEqualFromHostNamesAndFromCounts) {
  EXPECT_EQ(Topology::from_hosts({"a", "a", "b", "b"}, 0), Topology::regular(4, 2));
}

TEST(Topology, HasLevelsIfDomainsHaveEqualSizes) {
  using Levels = std::vector<std::vector<Rank>>;
  const auto levels_of = [](std::vector<int> domains) {
    Topology topology = Topology::regular(4, 4);
    topology.domains = std::move(domains);
    return topology.levels();
  };
  EXPECT_EQ(levels_of({0, 0, 1, 1}), (Levels{{0, 1}, {2, 3}}));
  EXPECT_EQ(levels_of({0, 1, 1, 0}), (Levels{{0, 3}, {1, 2}}));
  EXPECT_EQ(levels_of({}), Levels{}) << "nobody knows";
  EXPECT_EQ(levels_of({0, 0, 0, 0}), Levels{}) << "one domain";
  EXPECT_EQ(levels_of({0, 1, 2, 3}), Levels{}) << "nobody to share with";
  EXPECT_EQ(levels_of({0, 0, 0, 1}), Levels{}) << "unequal";
}

TEST(Topology, HostsOfOneMachineShareItsCores) {
  Topology topology = Topology::regular(8, 2, 2);
  EXPECT_FALSE(topology.oversubscribed(0)) << "two ranks, two cores";
  topology.machines = {0, 0, 1, 0};
  topology.machine_cores = {4, 2};
  EXPECT_EQ(topology.ranks_of_machine(0), 6);
  EXPECT_EQ(topology.ranks_to_a_core(), 1.5);
  EXPECT_TRUE(topology.oversubscribed(0)) << "six ranks, four cores";
  EXPECT_FALSE(topology.oversubscribed(2)) << "alone on its machine";
  EXPECT_EQ(to_string(topology), "8 ranks (4 hosts x 2 on 2 machines of 4 + 2 cores)");
}

TEST(Topology, ReadsAsASentence) {
  EXPECT_EQ(to_string(Topology::regular(8, 4)), "8 ranks (2 hosts x 4)");
  EXPECT_EQ(to_string(Topology::regular(7, 4)), "7 ranks (2 hosts: 4 + 3)");
  EXPECT_EQ(to_string(Topology::regular(3, 1)), "3 ranks (3 hosts x 1)");
  EXPECT_EQ(to_string(Topology::regular(4, 4)), "4 ranks (1 host)");
  EXPECT_EQ(to_string(Topology::regular(1, 1)), "1 rank");
}

TEST(Error, KeepsWhatItWasToldAndReadsAsOneLine) {
  const Error error(Errc::mismatch, "all_reduce #17: rank 3 passed 4096 x bf16", 0, 3, "all_reduce #17");
  EXPECT_STREQ(error.what(), "all_reduce #17: rank 3 passed 4096 x bf16");
  EXPECT_EQ(error.code(), Errc::mismatch);
  EXPECT_EQ(error.rank(), 0);
  EXPECT_EQ(error.peer(), 3);
  EXPECT_EQ(error.operation(), "all_reduce #17");
  EXPECT_EQ(to_string(error.code()), "mismatch");
}

}  // namespace
}  // namespace collectives
