// Tests of the limits of the collapse, by which the kernel replaces small pages by huge pages. The tests control the
// clock, the load of the cores and the system call.
#include "shared_memory/huge_page_collapse.hpp"

#include <gtest/gtest.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace collectives::testing {
namespace {

using namespace std::chrono_literals;

constexpr std::size_t kMiB = std::size_t{1} << 20;

/// A machine on which each call takes `call_takes`. Memory begins at address 0 and is never accessed.
struct Machine {
  HugePageCollapse::Clock::time_point now{1h};
  std::chrono::nanoseconds call_takes = 2ms;
  std::size_t busy_from_call = ~std::size_t{0};  ///< Number of the call from which on the cores are busy.
  std::vector<std::pair<std::size_t, std::size_t>> calls;
  HugePageCollapse collapse{{.now = [this] { return now; },
                             .cores_suffice = [this] { return calls.size() < busy_from_call; },
                             .collapse =
                                 [this](std::byte* begin, std::size_t bytes) {
                                   calls.emplace_back(reinterpret_cast<std::uintptr_t>(begin), bytes);
                                   now += call_takes;
                                 }}};

  /// Collapses `bytes` and returns the number of calls.
  std::size_t run(std::size_t bytes) {
    calls.clear();
    const auto at = [](std::size_t address) { return reinterpret_cast<std::byte*>(address); };
    collapse.run(at(0), at(bytes), collapse.deadline_for(bytes));
    return calls.size();
  }
};

TEST(HugePageCollapse, CoversTheMemoryByCallsOf8MiB) {
  Machine machine;
  EXPECT_EQ(machine.run(20 * kMiB), 3u);
  EXPECT_EQ(machine.calls, (std::vector<std::pair<std::size_t, std::size_t>>{
                               {0, 8 * kMiB}, {8 * kMiB, 8 * kMiB}, {16 * kMiB, 4 * kMiB}}));
  EXPECT_EQ(machine.run(2 * kMiB), 1u);
  EXPECT_EQ(machine.run(0), 0u);
}

TEST(HugePageCollapse, MakesNoCallWhileCoresAreScarce) {
  Machine machine;
  machine.busy_from_call = 0;
  EXPECT_EQ(machine.run(64 * kMiB), 0u);
  machine.busy_from_call = 3;
  EXPECT_EQ(machine.run(64 * kMiB), 3u);
  machine.busy_from_call = 100;
  EXPECT_EQ(machine.run(64 * kMiB), 8u);
}

TEST(HugePageCollapse, MakesNoCallAfterTheDeadline) {
  Machine machine;
  // Longer than the deadline grants for 8 MiB, but no slow call.
  machine.call_takes = 10ms;
  EXPECT_EQ(machine.run(256 * kMiB), 32u);    // 320 ms of 356 ms
  EXPECT_EQ(machine.run(1024 * kMiB), 113u);  // the deadline of 1124 ms passes in the 113th call
  machine.now += 1h;
  EXPECT_EQ(machine.run(256 * kMiB), 32u);
}

TEST(HugePageCollapse, IsGivenUpAfterOneSlowCall) {
  Machine machine;
  machine.call_takes = 101ms;
  EXPECT_EQ(machine.run(64 * kMiB), 1u);
  machine.call_takes = 2ms;
  EXPECT_EQ(machine.run(64 * kMiB), 0u);
}

TEST(HugePageCollapse, HasADeadlineThatGrowsWithTheMemory) {
  Machine machine;
  EXPECT_EQ(machine.collapse.deadline_for(0) - machine.now, 100ms);
  EXPECT_EQ(machine.collapse.deadline_for(512 * kMiB) - machine.now, 612ms);
}

TEST(HugePageCollapse, EndsOnLinux) {
  std::vector<std::byte> memory(3 * HugePageCollapse::kHugePage);
  const auto address = reinterpret_cast<std::uintptr_t>(memory.data());
  auto* const begin = memory.data() + (HugePageCollapse::kHugePage - address % HugePageCollapse::kHugePage);
  begin[0] = std::byte{42};
  HugePageCollapse collapse;
  collapse.run(begin, begin + HugePageCollapse::kHugePage, collapse.deadline_for(HugePageCollapse::kHugePage));
  EXPECT_EQ(begin[0], std::byte{42});
}

}  // namespace
}  // namespace collectives::testing
