// Conformance suite of bootstraps, the means by which ranks find one another and exchange bytes before they have a
// transport. A test instantiates the suite with a type that makes worlds, which are groups of ranks:
//
//   struct ThreadsWorlds {
//     static int most_ranks();
//     static constexpr bool kNamesTheMissing = true;   // the error of a timeout names the missing rank
//     template <class F> static void run(int ranks, F f);
//   };
//   INSTANTIATE_TYPED_TEST_SUITE_P(Threads, BootstrapConformance, ThreadsWorlds);
//
// run() calls f(std::unique_ptr<Bootstrap>&) once for each rank. The calls run at the same time, in threads of this
// process or in processes that each run the same tests. When all calls have returned, run() destroys the bootstraps
// that f has left. The second suite, BootstrapLossConformance, is for bootstraps that detect the loss of a rank.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "collectives/bootstrap.hpp"
#include "collectives/error.hpp"

namespace collectives::testing {

/// Returns a deadline so late that only a hanging wait reaches it.
inline Deadline patient() { return Deadline::in(std::chrono::seconds(60)); }
/// Returns a deadline that tests expect to pass because a rank is missing. All other ranks arrive earlier, also on a
/// busy machine.
inline Deadline impatient() { return Deadline::in(std::chrono::seconds(1)); }

/// Returns the Error that f throws. Fails the test if it throws none.
template <class F>
std::optional<Error> error_of(F f) {
  try {
    f();
  } catch (const Error& error) {
    return error;
  }
  ADD_FAILURE() << "threw no Error";
  return std::nullopt;
}

/// Calls f(rank) in a thread for each rank. An exception of f fails the test.
template <class F>
void in_threads(int ranks, F f) {
  std::vector<std::jthread> threads;
  for (Rank rank = 0; rank < ranks; ++rank) {
    threads.emplace_back([&f, rank] {
      try {
        f(rank);
      } catch (const std::exception& error) {
        ADD_FAILURE() << "rank " << rank << ": " << error.what();
      }
    });
  }
}

template <class Worlds>
class BootstrapConformance : public ::testing::Test {};
TYPED_TEST_SUITE_P(BootstrapConformance);

TYPED_TEST_P(BootstrapConformance, EveryRankKnowsItsPlace) {
  for (int ranks = 1; ranks <= TypeParam::most_ranks(); ++ranks) {
    TypeParam::run(ranks, [ranks](std::unique_ptr<Bootstrap>& bootstrap) {
      EXPECT_EQ(bootstrap->size(), ranks);
      EXPECT_FALSE(bootstrap->name().empty());
      const auto places = bootstrap->all_gather(std::to_string(bootstrap->rank()), patient());
      ASSERT_EQ(places.size(), static_cast<std::size_t>(ranks));
      for (int rank = 0; rank < ranks; ++rank) EXPECT_EQ(places[static_cast<std::size_t>(rank)], std::to_string(rank));
    });
  }
}

TYPED_TEST_P(BootstrapConformance, LengthsDifferAndSomeAreZero) {
  const auto text = [](int rank) { return std::string(static_cast<std::size_t>(rank) * 1000, char('a' + rank)); };
  TypeParam::run(TypeParam::most_ranks(), [&](std::unique_ptr<Bootstrap>& bootstrap) {
    const auto gathered = bootstrap->all_gather(text(bootstrap->rank()), patient());
    for (int rank = 0; rank < bootstrap->size(); ++rank) {
      EXPECT_EQ(gathered.at(static_cast<std::size_t>(rank)), text(rank));
    }
  });
}

TYPED_TEST_P(BootstrapConformance, EmptyContributionsAreExchanged) {
  TypeParam::run(TypeParam::most_ranks(), [](std::unique_ptr<Bootstrap>& bootstrap) {
    const auto gathered = bootstrap->all_gather({}, patient());
    EXPECT_EQ(gathered, std::vector<std::string>(static_cast<std::size_t>(bootstrap->size())));
  });
}

TYPED_TEST_P(BootstrapConformance, MoreThanASocketBufferEach) {
  const auto text = [](int rank) { return std::string(3'000'000, char('A' + rank)) + std::to_string(rank); };
  TypeParam::run(TypeParam::most_ranks(), [&](std::unique_ptr<Bootstrap>& bootstrap) {
    const auto gathered = bootstrap->all_gather(text(bootstrap->rank()), patient());
    for (int rank = 0; rank < bootstrap->size(); ++rank) {
      EXPECT_TRUE(gathered.at(static_cast<std::size_t>(rank)) == text(rank)) << "part of rank " << rank;
    }
  });
}

TYPED_TEST_P(BootstrapConformance, ManyExchangesDoNotMix) {
  TypeParam::run(TypeParam::most_ranks(), [](std::unique_ptr<Bootstrap>& bootstrap) {
    for (int round = 0; round < 100; ++round) {
      const auto text = [round](int rank) { return std::to_string(round) + " of " + std::to_string(rank); };
      const auto gathered = bootstrap->all_gather(text(bootstrap->rank()), patient());
      for (int rank = 0; rank < bootstrap->size(); ++rank) {
        ASSERT_EQ(gathered.at(static_cast<std::size_t>(rank)), text(rank));
      }
    }
  });
}

TYPED_TEST_P(BootstrapConformance, OneRankArrivesLate) {
  for (const int late : {0, TypeParam::most_ranks() - 1}) {
    TypeParam::run(TypeParam::most_ranks(), [late](std::unique_ptr<Bootstrap>& bootstrap) {
      if (bootstrap->rank() == late) std::this_thread::sleep_for(std::chrono::milliseconds(50));
      EXPECT_EQ(bootstrap->all_gather("x", patient()),
                std::vector<std::string>(static_cast<std::size_t>(bootstrap->size()), "x"));
    });
  }
}

TYPED_TEST_P(BootstrapConformance, OneRankNeverComes) {
  const int ranks = TypeParam::most_ranks();
  if (ranks < 2) GTEST_SKIP() << "with one rank nobody can be missing";
  for (const int missing : {0, ranks - 1}) {
    TypeParam::run(ranks, [missing](std::unique_ptr<Bootstrap>& bootstrap) {
      bootstrap->all_gather("all are here", patient());
      if (bootstrap->rank() == missing) return;
      const auto error = error_of([&] { bootstrap->all_gather("x", impatient()); });
      ASSERT_TRUE(error);
      EXPECT_EQ(error->code(), Errc::timeout) << error->what();
      EXPECT_EQ(error->rank(), bootstrap->rank());
      if (TypeParam::kNamesTheMissing) {
        EXPECT_EQ(error->peer(), missing);
        EXPECT_NE(std::string(error->what()).find("rank " + std::to_string(missing) + " did not come"),
                  std::string::npos)
            << error->what();
      }
      // The rendezvous has ended, so the next call does not wait again.
      const auto again = error_of([&] { bootstrap->all_gather("x", patient()); });
      ASSERT_TRUE(again);
      EXPECT_STREQ(again->what(), error->what());
    });
  }
}

REGISTER_TYPED_TEST_SUITE_P(BootstrapConformance, EveryRankKnowsItsPlace, LengthsDifferAndSomeAreZero,
                            EmptyContributionsAreExchanged, MoreThanASocketBufferEach, ManyExchangesDoNotMix,
                            OneRankArrivesLate, OneRankNeverComes);

template <class Worlds>
class BootstrapLossConformance : public ::testing::Test {};
TYPED_TEST_SUITE_P(BootstrapLossConformance);

TYPED_TEST_P(BootstrapLossConformance, RankThatLeavesIsNamedOnAllOthers) {
  const int ranks = TypeParam::most_ranks();
  for (const int lost : {0, 1, ranks - 1}) {
    std::mutex mutex;
    std::vector<std::string> causes;
    TypeParam::run(ranks, [&](std::unique_ptr<Bootstrap>& bootstrap) {
      bootstrap->all_gather("x", patient());
      if (bootstrap->rank() == lost) return bootstrap.reset();
      const auto error = error_of([&] { bootstrap->all_gather("y", patient()); });
      ASSERT_TRUE(error);
      EXPECT_EQ(error->code(), Errc::bootstrap) << error->what();
      EXPECT_EQ(error->peer(), lost) << error->what();
      EXPECT_NE(std::string(error->what()).find("rank " + std::to_string(lost)), std::string::npos) << error->what();
      const std::lock_guard lock(mutex);
      causes.push_back(error->what());
    });
    ASSERT_EQ(causes.size(), static_cast<std::size_t>(ranks - 1));
    EXPECT_EQ(std::ranges::count(causes, causes.front()), ranks - 1) << "not the same cause everywhere";
  }
}

TYPED_TEST_P(BootstrapLossConformance, LeavingAfterTheLastExchangeHurtsNobody) {
  for (int repeat = 0; repeat < 20; ++repeat) {
    TypeParam::run(TypeParam::most_ranks(), [](std::unique_ptr<Bootstrap>& bootstrap) {
      EXPECT_NO_THROW(bootstrap->all_gather("x", patient()));
      bootstrap.reset();
    });
  }
}

REGISTER_TYPED_TEST_SUITE_P(BootstrapLossConformance, RankThatLeavesIsNamedOnAllOthers,
                            LeavingAfterTheLastExchangeHurtsNobody);
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(BootstrapLossConformance);

}  // namespace collectives::testing
