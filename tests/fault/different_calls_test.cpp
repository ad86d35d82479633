// Tests that ranks notice calls which differ. For every pair of different calls, each rank must get a mismatch with the
// same words. The test tries all pairs with 2 ranks of one host, and with 1 and 2 ranks of two hosts. It draws pairs
// for the other situations by COLLECTIVES_TEST_SEED. The program different_calls_program tries all of them.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <string>
#include <vector>

#include "fault/call_pairs.hpp"
#include "support/system.hpp"

namespace collectives::testing {
namespace {

/// Expects that no pair has a fault. Shows the first faults.
void expect_no_fault(const Tried& tried) {
  constexpr std::size_t kShown = 10;
  EXPECT_GT(tried.pairs, tried.refused_alike);
  EXPECT_EQ(tried.faults.size(), 0u) << "of " << tried.pairs << " pairs";
  for (std::size_t i = 0; i < std::min(kShown, tried.faults.size()); ++i) ADD_FAILURE() << tried.faults[i];
}

constexpr std::size_t kSlices = 8;  // parts of all pairs, which shards try
// Sanitizers would take minutes for all pairs.
constexpr std::size_t kStride = kSanitized ? 20 : 1;

class DifferentCalls : public ::testing::TestWithParam<std::size_t> {
 protected:
  static std::vector<CallPair> slice() {
    std::vector<CallPair> pairs;
    const std::vector<CallPair> all = all_call_pairs();
    for (std::size_t i = GetParam(); i < all.size(); i += kSlices * kStride) pairs.push_back(all[i]);
    return pairs;
  }
};

TEST_P(DifferentCalls, OfTwoRanksOfAHostAreReportedAlike) { expect_no_fault(try_pairs({.hosts = {0, 0}}, slice())); }

TEST_P(DifferentCalls, OfThreeRanksOfTwoHostsAreReportedAlike) {
  // A rank that differs is alone on its host, or shares it.
  const unsigned first = GetParam() % 2 == 0 ? 1u : 4u;
  expect_no_fault(try_pairs({.hosts = {0, 1, 1}, .first = first}, slice()));
}

TEST_P(DifferentCalls, OfDrawnSituationsAreReportedAlike) {
  const char* const given = std::getenv("COLLECTIVES_TEST_SEED");
  const std::uint64_t seed = (given == nullptr ? 1 : std::strtoull(given, nullptr, 10)) * kSlices + GetParam();
  SCOPED_TRACE("seed " + std::to_string(seed));
  expect_no_fault(try_drawn_cells(seed, kSanitized ? 2 : 12, 8));
}

INSTANTIATE_TEST_SUITE_P(Slice, DifferentCalls, ::testing::Range(std::size_t{0}, kSlices));

TEST(ListOfDifferentCalls, HasAtLeast24) { EXPECT_GE(different_calls().size(), 24u); }

}  // namespace
}  // namespace collectives::testing
