// Tests of bootstrap_threads(), by which ranks that are threads find one another. It runs the conformance suites of all
// bootstraps, and tests of its own.
#include "conformance/bootstrap_conformance.hpp"

namespace collectives::testing {
namespace {

struct ThreadsWorlds {
  static int most_ranks() { return 5; }
  static constexpr bool kNamesTheMissing = true;
  template <class F>
  static void run(int ranks, F f) {
    auto bootstraps = bootstrap_threads(ranks);
    in_threads(ranks, [&](Rank rank) { f(bootstraps[static_cast<std::size_t>(rank)]); });
  }
};

INSTANTIATE_TYPED_TEST_SUITE_P(Threads, BootstrapConformance, ThreadsWorlds);
INSTANTIATE_TYPED_TEST_SUITE_P(Threads, BootstrapLossConformance, ThreadsWorlds);

TEST(BootstrapThreads, NoRanksIsInvalid) {
  for (const int ranks : {0, -1}) {
    const auto error = error_of([&] { bootstrap_threads(ranks); });
    ASSERT_TRUE(error);
    EXPECT_EQ(error->code(), Errc::invalid_argument);
  }
}

TEST(BootstrapThreads, ImpatientRankEndsThePatientOnesWait) {
  auto bootstraps = bootstrap_threads(3);
  in_threads(3, [&](Rank rank) {
    bootstraps[static_cast<std::size_t>(rank)]->all_gather("all are here", patient());
    if (rank == 2) return;
    const auto error = error_of(
        [&] { bootstraps[static_cast<std::size_t>(rank)]->all_gather("x", rank == 0 ? patient() : impatient()); });
    ASSERT_TRUE(error);
    EXPECT_EQ(error->code(), Errc::timeout);
    EXPECT_EQ(error->peer(), 2) << error->what();
  });
}

}  // namespace
}  // namespace collectives::testing
