// Tests of the log of training steps, which computes medians and percentiles of their times. The logs have few or many
// steps, and the times of the ranks differ.
#include "step_log.hpp"

#include <gtest/gtest.h>

#include "support/ranks.hpp"

namespace mnist {
namespace {

using collectives::Communicator;
using collectives::testing::run_communicators;

TEST(Quantile, IsTheSmallestValueThatTheShareDoesNotExceed) {
  EXPECT_EQ(quantile({}, 0.5), 0.0);
  EXPECT_EQ(quantile({7}, 0.5), 7.0);
  EXPECT_EQ(quantile({7}, 0.95), 7.0);
  EXPECT_EQ(quantile({3, 1, 2}, 0.5), 2.0);
  EXPECT_EQ(quantile({4, 3, 2, 1}, 0.5), 2.0);
  std::vector<double> hundred;
  for (int i = 100; i > 0; --i) hundred.push_back(i);
  EXPECT_EQ(quantile(hundred, 0.5), 50.0);
  EXPECT_EQ(quantile(hundred, 0.95), 95.0);
}

TEST(StepLog, AStepIsTheMeanOverTheRanks) {
  run_communicators(2, [](Communicator& comm) {
    StepLog log;
    const double slow = comm.rank() == 0 ? 0.0 : 0.002;
    log.add(1, 9.0, {});
    for (const double seconds : {0.010, 0.030, 0.020})
      log.add(2 + comm.rank(), seconds + slow, {.exposed = 0.004, .hidden = slow});
    const StepTimes times = log.times(comm, 1);
    EXPECT_NEAR(times.median_ms, 21, 1e-9);
    EXPECT_NEAR(times.p95_ms, 31, 1e-9);
    EXPECT_NEAR(times.compute_ms, 17, 1e-9);
    EXPECT_NEAR(times.exposed_ms, 4, 1e-9);
    EXPECT_NEAR(times.hidden_ms, 1, 1e-9);
    EXPECT_EQ(log.losses(comm), (std::vector<double>{2, 5, 5, 5}));
  });
}

TEST(StepLog, OfNoStepsEverythingIsZero) {
  run_communicators(2, [](Communicator& comm) {
    EXPECT_EQ(StepLog().times(comm).p95_ms, 0.0);
    EXPECT_TRUE(StepLog().losses(comm).empty());
  });
}

}  // namespace
}  // namespace mnist
