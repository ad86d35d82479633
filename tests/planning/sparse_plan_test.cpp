// Tests of sparse planning. It decides whether a gradient is sent sparse, as selected elements only, and estimates
// the time. Planning is a pure function of numbers, so the machines of the tests need not exist.
#include "planning/sparse_plan.hpp"

#include <gtest/gtest.h>

#include <string>

#include "collectives/plan.hpp"
#include "core/tuning_parameters.hpp"
#include "planning/plan_call.hpp"

namespace collectives {
namespace {

constexpr std::size_t kCount = 1 << 20;

SparsePlan of(const Topology& topology, const TuningParameters& tuning = {}, std::size_t k = kCount / 1000,
              const Request& request = {.count = kCount}) {
  return plan_sparse(request, k, {}, choose_plan(request, topology, tuning), topology, tuning);
}

/// Returns the topology `hosts` with all hosts on one machine with `cores` cores, as network namespaces are.
Topology on_one_machine(Topology hosts, int cores) {
  hosts.machines.assign(hosts.hosts.size(), 0);
  hosts.machine_cores = {cores};
  return hosts;
}

TEST(SparsePlan, LeavesTheMessagesOfTheHostIfAllIsSentFromGpus) {
  Topology host = Topology::regular(4, 4);
  host.gpus = {.everywhere = true, .peer_access = true};
  Request request{.count = kCount, .backend = "ring"};
  const TuningParameters tuning;
  const Plan of_host = plan_call(request, host, tuning).plan;
  request.memory = Memory::device;
  const TopKOptions options;
  const TopKCall top_k{kCount / 1000, options};
  const CallPlan chosen = plan_call(request, host, tuning, &top_k);
  EXPECT_EQ(chosen.plan.device_path, DevicePath::host_copy);
  EXPECT_EQ(chosen.plan.device_path_reason, "everything is sent");
  EXPECT_EQ(chosen.plan.segment, of_host.segment);
  EXPECT_EQ(chosen.plan.rounds, of_host.rounds);
}

TEST(SparsePlan, ExplainsWhyTheDensePlanIsChosen) {
  EXPECT_EQ(of(Topology::regular(1, 1)).reason, "everything: there is one rank");
  EXPECT_EQ(of(Topology::regular(4, 4)).reason, "everything: ranks that share memory have no wire to save");
  EXPECT_EQ(of(Topology::regular(4, 1), {}, 1, {.count = 0}).reason, "nothing: the tensor is empty");
  const SparsePlan most = of(Topology::regular(4, 1), {}, kCount / 2);
  EXPECT_FALSE(most.sparse);
  EXPECT_TRUE(most.reason.starts_with("everything: top ")) << most.reason;
}

TEST(SparsePlan, LittleOfALongVectorPaysBetweenHosts) {
  const SparsePlan plan = of(Topology::regular(8, 2));
  EXPECT_TRUE(plan.sparse) << plan.reason;
  EXPECT_TRUE(plan.in_hosts);
  EXPECT_EQ(plan.members, 4);
  EXPECT_EQ(plan.slices, 2);
}

TEST(SparsePlan, RanksThatShareCoresAddUpTheirCpuWork) {
  TuningParameters nothing;  // numbers with which only the links take time
  nothing.wire_us = nothing.wire_message_us = nothing.wire_work_us_per_byte = 0;
  nothing.coding_us_per_byte = nothing.host_us_per_byte = 0;
  TuningParameters messages = nothing, bytes = nothing, coding = nothing, adding = nothing;
  messages.wire_us = 15;
  bytes.wire_work_us_per_byte = nothing.wire_us_per_byte;
  coding.coding_us_per_byte = 1e-4;
  adding.host_us_per_byte = 1e-4;
  for (const int to_a_host : {1, 2})
    for (const TuningParameters& tuning : {messages, bytes, coding, adding}) {
      if (to_a_host == 1 && tuning == adding) continue;
      const Topology hosts = Topology::regular(4 * to_a_host, to_a_host);
      const double apart = of(hosts, tuning).microseconds;
      EXPECT_EQ(of(on_one_machine(hosts, 4 * to_a_host), tuning).microseconds, apart) << "a core for everybody";
      EXPECT_GT(of(on_one_machine(hosts, 1), tuning).microseconds, apart) << to_a_host << " to a host";
    }
}

/// Messages cost more on a shared machine even if fewer ranks exchange them than there are cores. The other ranks use
/// cores while they wait.
TEST(SparsePlan, MessagesOfOneOwnerPerHostStillCostTheSharedMachine) {
  TuningParameters tuning;
  tuning.wire_message_us = 0;
  const Topology hosts = Topology::regular(6, 2);
  EXPECT_GT(of(on_one_machine(hosts, 4), tuning, 1).microseconds, of(hosts, tuning, 1).microseconds);
}

TEST(SparsePlan, LinksThatShareASwitchAreSlowerTogether) {
  TuningParameters tuning;
  const double alone = of(Topology::regular(4, 1), tuning).microseconds;
  tuning.wire_together_us_per_byte = 2 * tuning.wire_us_per_byte;
  EXPECT_GT(of(Topology::regular(4, 1), tuning).microseconds, alone);
}

TEST(SparsePlan, DeterministicChoiceIgnoresTheEstimates) {
  Request request{.count = kCount};
  request.deterministic = true;
  const SparsePlan plan = of(Topology::regular(4, 2), {}, kCount / 2, request);
  EXPECT_TRUE(plan.sparse);
  EXPECT_FALSE(plan.in_hosts) << "added in rank order, past the hosts";
  EXPECT_EQ(plan.members, 4);
}

}  // namespace
}  // namespace collectives
