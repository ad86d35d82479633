// Tests of the detection of domains, the ranks that share a socket or a last-level cache. The library hwloc builds the
// machines of the tests from a line of text.
#include "topology/domain.hpp"

#include <gtest/gtest.h>

#include "collectives/error.hpp"

namespace collectives {
namespace {

std::string on(const char* machine, const std::vector<unsigned>& cores) {
  try {
    return domain_on(machine, cores);
  } catch (const Error& error) {
    return error.code() == Errc::unsupported ? "without hwloc" : error.what();
  }
}

class Domain : public ::testing::Test {
 protected:
  void SetUp() override {
    if (on("pu:1", {0}) == "without hwloc") GTEST_SKIP() << "built without hwloc";
  }
};

TEST_F(Domain, IsTheCacheAndTheMemoryThatACoreHas) {
  const char* const two_sockets = "package:2 numa:1 l3:2 core:4 pu:1";
  EXPECT_EQ(on(two_sockets, {0}), "L3 0, NUMA node 0");
  EXPECT_EQ(on(two_sockets, {3}), on(two_sockets, {0}));
  EXPECT_EQ(on(two_sockets, {4}), "L3 1, NUMA node 0");
  EXPECT_EQ(on(two_sockets, {12, 13, 14, 15}), "L3 3, NUMA node 1");
}

TEST_F(Domain, IsUnknownForAThreadThatMayRunInSeveral) {
  EXPECT_EQ(on("package:2 l3:1 core:2 pu:2", {1, 5}), "");
  EXPECT_EQ(on("package:2 l3:1 core:2 pu:2", {1, 3}), "L3 0, NUMA node 0");
}

TEST_F(Domain, IsUnnamedOnAMachineWithOneDomain) {
  EXPECT_EQ(on("package:1 l3:1 core:8 pu:1", {2}), "");
  EXPECT_EQ(on("package:1 core:8 pu:1", {2}), "");
}

TEST_F(Domain, IsTheMemoryIfItsCoresShareNoCache) { EXPECT_EQ(on("package:2 numa:1 core:2 pu:1", {2}), "NUMA node 1"); }

TEST_F(Domain, OfThisMachineIsFoundOrNot) { EXPECT_NO_THROW(domain_of_this_thread()); }

TEST_F(Domain, AMachineThatMakesNoSenseIsAnError) { EXPECT_EQ(on("nonsense", {0}), "no machine: \"nonsense\""); }

}  // namespace
}  // namespace collectives
