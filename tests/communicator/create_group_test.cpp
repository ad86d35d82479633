// Tests of Communicator::create_group(): communicators that are made by their members only, and misuse.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <barrier>
#include <chrono>
#include <memory>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "collectives/communicator.hpp"
#include "support/errors.hpp"
#include "support/hosts.hpp"
#include "support/ranks.hpp"

namespace collectives::testing {
namespace {

using namespace std::chrono_literals;

const std::vector<std::vector<int>> kGroupHosts = {{0, 0, 0, 0}, {0, 0, 1, 1}, {0, 1, 1, 2}};

const std::vector<std::vector<int>> kTrioHosts = {{0, 0, 0}, {0, 1, 1}, {0, 1, 2}};
const std::vector<Rank> kTrio{0, 1, 2};

TEST(CreateGroup, MakesACommunicatorOfItsMembersWithoutTheOthers) {
  for (const auto& hosts : kGroupHosts)
    run_hosts(hosts, [](Communicator& comm) {
      const std::vector<Rank> members{3, 0, 2};
      if (comm.rank() == 1) return comm.barrier();  // takes no part
      Communicator part = comm.create_group(members);
      EXPECT_EQ(part.size(), 3);
      EXPECT_EQ(members[static_cast<std::size_t>(part.rank())], comm.rank());
      std::vector<int> data(1000, comm.rank()), all(3);
      part.all_reduce(data);
      EXPECT_EQ(data, std::vector<int>(1000, 5));
      const int mine[] = {comm.rank()};
      part.all_gather(mine, all);
      EXPECT_EQ(all, (std::vector<int>{3, 0, 2}));
      comm.barrier();
    });
}

TEST(CreateGroup, MakesManyGroupsOneAfterAnotherAndSeveralAtATime) {
  for (const auto& hosts : kGroupHosts)
    run_hosts(hosts, [](Communicator& comm) {
      const Rank self = comm.rank();
      for (int round = 0; round < 3; ++round) {
        const std::vector<Rank> pair{self / 2 * 2, self / 2 * 2 + 1}, all{0, 1, 2, 3}, outer{0, 3};
        Communicator of_pair = comm.create_group(pair);  // two groups with one name, of different ranks
        Communicator of_all = comm.create_group(all);
        std::vector<int> sum(1, 1);
        of_pair.all_reduce(sum);
        of_all.all_reduce(sum);
        EXPECT_EQ(sum[0], 8);
        if (self == 0 || self == 3) {
          Communicator of_outer = comm.create_group(outer, "outer");
          of_outer.all_reduce(sum);
          EXPECT_EQ(sum[0], 16);
        }
        const Communicator alone = comm.create_group(std::vector<Rank>{self});
        EXPECT_EQ(alone.size(), 1);
      }
    });
}

TEST(CreateGroup, OfOneNameManyTimesInARowJoinsTheCallsOfOneRound) {
  for (const auto& hosts : kTrioHosts)
    run_hosts(hosts, [](Communicator& comm) {
      for (int round = 0; round < 10; ++round)
        for (const std::vector<Rank>& list : {kTrio, {0, 2}, kTrio, {1, 0}, {2, 0}}) {
          if (std::ranges::count(list, comm.rank()) == 0) continue;
          Communicator part = comm.create_group(list, "one name");
          std::vector<int> rounds(list.size());
          const int mine[] = {round};
          part.all_gather(mine, rounds);
          EXPECT_EQ(rounds, std::vector<int>(list.size(), round));
        }
    });
}

TEST(CreateGroup, OutlivesItsParent) {
  run_ranks(2, [](Bootstrap& bootstrap) {
    std::unique_ptr<Communicator> part;
    {
      Communicator comm(bootstrap);
      part = std::make_unique<Communicator>(comm.create_group(std::vector<Rank>{1, 0}));
      comm.barrier();
    }
    std::vector<int> data(10, 1);
    part->all_reduce(data);
    EXPECT_EQ(data, std::vector<int>(10, 2));
  });
}

// ---- misuse ----

TEST(CreateGroup, WithABadListIsRefusedAtOnce) {
  run_communicators(3, [](Communicator& comm) {
    const auto refused = [&](const std::vector<Rank>& ranks, std::string_view why) {
      const Error error = error_of([&] { (void)comm.create_group(ranks); });
      EXPECT_EQ(error.code(), Errc::invalid_argument);
      EXPECT_SAYS(error.what(), why);
    };
    const Rank self = comm.rank(), other = (self + 1) % 3;
    refused({self, other, self}, "create_group: rank " + std::to_string(self) + " is listed twice");
    refused({other}, "create_group: rank " + std::to_string(self) + ", the caller, is not in the list");
    refused({}, ", the caller, is not in the list");
    refused({self, 3}, "create_group: 3 is not a rank of 0 to 2");
    refused({-1, self}, "create_group: -1 is not a rank of 0 to 2");
    comm.barrier();
  });
}

TEST(CreateGroup, WithDifferentListsIsAMismatchThatNamesBoth) {
  for (const auto& hosts : {std::vector<int>{0, 0, 0}, std::vector<int>{0, 1, 1}})
    run_hosts(hosts,
              [](Communicator& comm) {
                if (comm.rank() == 2) return comm.barrier();
                const std::vector<Rank> ranks = comm.rank() == 0 ? std::vector<Rank>{0, 1} : std::vector<Rank>{1, 0};
                const Error error = error_of([&] { (void)comm.create_group(ranks, "pair"); });
                EXPECT_EQ(error.code(), Errc::mismatch);
                EXPECT_SAYS(error.what(), "create_group \"pair\": rank 0 passed ranks 0,1, rank 1 passed ranks 1,0");
                comm.barrier();  // the parent is not affected
                Communicator part = comm.create_group(std::vector<Rank>{0, 1}, "pair");
                part.barrier();
              },
              {.timeout = 20s});
}

TEST(CreateGroup, WithDifferentListsIsAMismatchForAMemberThatComesAfterTheOthersHaveGoneOn) {
  for (const auto& hosts : kTrioHosts) {
    std::barrier over(3);
    run_hosts(hosts,
              [&](Communicator& comm) {
                const Rank self = comm.rank();
                if (self == 2) over.arrive_and_wait();
                const std::vector<Rank> ranks = self == 1 ? std::vector<Rank>{1, 0, 2} : kTrio;
                const Error error = error_of([&] { (void)comm.create_group(ranks, "trio"); });
                EXPECT_EQ(error.code(), Errc::mismatch);
                EXPECT_SAYS(error.what(), "create_group \"trio\": rank ");
                EXPECT_SAYS(error.what(), "rank 1 passed ranks 1,0,2");
                EXPECT_SAYS(error.what(), " passed ranks 0,1,2");
                if (self != 2) {
                  for (const char* name : {"pair", "other pair"})
                    comm.create_group(std::vector<Rank>{0, 1}, name).barrier();
                  over.arrive_and_wait();
                }
                over.arrive_and_wait();  // no rank leaves before rank 2 has its error
              },
              {.timeout = 20s});
  }
}

TEST(CreateGroup, WithDifferentListsIsAMismatchForAMemberThatOnlyOneOfThemNames) {
  for (const auto& hosts : kTrioHosts)
    run_hosts(hosts,
              [](Communicator& comm) {
                const std::vector<Rank> ranks = comm.rank() == 1 ? std::vector<Rank>{0, 1} : kTrio;
                const Error error = error_of([&] { (void)comm.create_group(ranks, "trio"); });
                EXPECT_EQ(error.code(), Errc::mismatch);
                EXPECT_SAYS(error.what(), "create_group \"trio\": rank 0 passed ranks 0,1,2, rank 1 passed ranks 0,1");
                comm.create_group(kTrio, "trio").barrier();  // rank 1 ignores that rank 2 has refused its list
              },
              {.timeout = 20s});
}

TEST(CreateGroup, WithDifferentListsIsForgottenIfMembersRepeatIt) {
  const std::vector<std::vector<Rank>> lists = {{0, 1, 2}, {1, 0, 2}, {2, 0, 1}};
  for (const auto& hosts : kTrioHosts)
    for (const bool by_collective : {false, true}) {
      std::barrier over(3);
      run_hosts(hosts,
                [&](Communicator& comm) {
                  const auto self = static_cast<std::size_t>(comm.rank());
                  const Error error = error_of([&] { (void)comm.create_group(lists[self], "trio"); });
                  EXPECT_EQ(error.code(), Errc::mismatch);
                  by_collective ? comm.barrier() : over.arrive_and_wait();
                  comm.create_group(kTrio, "trio").barrier();
                  if (self != 1) comm.create_group(std::vector<Rank>{0, 2}, "trio").barrier();
                },
                {.timeout = 20s});
    }
}

TEST(CreateGroup, WithThreeDifferentListsNamesTheSameTwoRanksOnEveryMember) {
  const std::vector<std::vector<Rank>> lists = {{0, 1, 2}, {1, 0, 2}, {2, 0, 1}};
  for (const auto& hosts : kTrioHosts) {
    std::vector<std::string> texts(3);
    run_hosts(hosts,
              [&](Communicator& comm) {
                const auto self = static_cast<std::size_t>(comm.rank());
                comm.barrier();
                const Error error = error_of([&] { (void)comm.create_group(lists[self], "trio"); });
                EXPECT_EQ(error.code(), Errc::mismatch);
                EXPECT_NE(error.peer(), comm.rank());
                texts[self] = error.what();
              },
              {.timeout = 20s});
    EXPECT_SAYS(texts[0], "create_group \"trio\": rank ");
    EXPECT_EQ(texts, std::vector<std::string>(3, texts[0]));
  }
}

TEST(CreateGroup, AfterAMismatchOrABadOptionCanBeRepeatedAtOnce) {
  for (const auto& hosts : kTrioHosts)
    run_hosts(hosts,
              [](Communicator& comm) {
                const Rank self = comm.rank();
                for (int round = 0; round < 3; ++round) {
                  comm.barrier();
                  for (const bool by_list : {true, false, false}) {
                    const std::vector<Rank> ranks = by_list && self == 2 ? std::vector<Rank>{2, 1, 0} : kTrio;
                    CommunicatorOptions options;
                    if (!by_list && self == 1) options.backend = "rnig";
                    const Error error = error_of([&] { (void)comm.create_group(ranks, "trio", options); });
                    EXPECT_EQ(error.code(), by_list ? Errc::mismatch : Errc::invalid_argument) << error.what();
                  }
                  comm.create_group(kTrio, "trio").barrier();
                }
              },
              {.timeout = 20s});
}

TEST(CreateGroup, OfASecondThreadIsRefusedDuringACall) {
  std::atomic<bool> refused{false};
  run_communicators(2, [&](Communicator& comm) {
    const auto call = [&] {
      try {
        comm.create_group(std::vector<Rank>{0, 1}, "pair").barrier();
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), Errc::invalid_argument);
        EXPECT_SAYS(error.what(), "create_group: another thread is in a create_group of this communicator");
        refused = true;
      }
    };
    if (comm.rank() == 0) {
      std::thread other(call);
      std::this_thread::sleep_for(50ms);
      call();
      other.join();
      EXPECT_TRUE(refused);
    } else {
      while (!refused) std::this_thread::sleep_for(1ms);
      call();
    }
    comm.barrier();
  });
}

TEST(CreateGroup, WithoutAMemberReachesItsDeadlineAndCanBeRepeated) {
  for (const auto& hosts : {std::vector<int>{0, 0}, std::vector<int>{0, 1}}) {
    std::atomic<bool> over{false};
    run_hosts(hosts, [&](Communicator& comm) {
      const std::vector<Rank> both{0, 1};
      if (comm.rank() == 0) {
        const Error error = error_of([&] { (void)comm.create_group(both, "late", {.timeout = 100ms}); });
        over = true;
        EXPECT_EQ(error.code(), Errc::timeout);
        EXPECT_EQ(error.operation(), "create_group");
        EXPECT_SAYS(error.what(), "rank 1 did not take part in create_group \"late\"");
      } else {
        while (!over) std::this_thread::sleep_for(1ms);
      }
      comm.barrier();
      Communicator part = comm.create_group(both, "late");
      part.barrier();
    });
  }
}

TEST(CreateGroup, WaitsForAMemberThatGivesUpAndCallsAgain) {
  for (const auto& hosts : kTrioHosts) {
    std::atomic<bool> over{false};
    run_hosts(hosts,
              [&](Communicator& comm) {
                for (int time = 0; comm.rank() == 0 && time < 3; ++time) {
                  const Error error = error_of([&] { (void)comm.create_group(kTrio, "trio", {.timeout = 20ms}); });
                  EXPECT_EQ(error.code(), Errc::timeout);
                  EXPECT_NE(error.peer(), 0) << error.what();
                }
                if (comm.rank() == 0) over = true;
                while (comm.rank() == 2 && !over) std::this_thread::sleep_for(1ms);
                for (int time = 0; time < 2; ++time) {  // rank 1 waits in its first call
                  Communicator part = comm.create_group(kTrio, "trio");
                  std::vector<int> data(10, time);
                  part.all_reduce(data);
                  EXPECT_EQ(data, std::vector<int>(10, 3 * time));
                }
              },
              {.timeout = 20s});
  }
}

TEST(CreateGroup, WithAMemberThatGivesUpEarlyIsATimeoutThatNamesItOnEveryOtherMember) {
  for (const bool by_library : {true, false})  // whether the library connects the hosts, by TCP
    for (const auto& hosts : kTrioHosts) {
      const auto try_deadlines = [&](Communicator& comm) {
        for (const auto deadline : {1us, 1000us, 3000us, 6000us}) {
          comm.barrier();
          const CommunicatorOptions options{.timeout = comm.rank() == 1 ? deadline : 500'000us};
          try {
            (void)comm.create_group(kTrio, "trio", options);
          } catch (const Error& error) {
            EXPECT_EQ(error.code(), Errc::timeout) << error.what();
            EXPECT_EQ(error.operation(), "create_group");
            // Two members that have not seen each other's calls name all others.
            const bool names_all = std::string_view(error.what()).starts_with("ranks 0-1 did not take part");
            EXPECT_TRUE(comm.rank() == 1 || error.peer() == 1 || names_all) << error.what();
          }
          comm.barrier();
          comm.create_group(kTrio, "trio").barrier();
        }
      };
      if (!by_library)
        run_hosts(hosts, try_deadlines, {.timeout = 20s});
      else
        run_ranks(3, [&](Bootstrap& threads) {
          WiredHost host(threads, "host " + std::to_string(hosts[static_cast<std::size_t>(threads.rank())]));
          Communicator comm(host, {.timeout = 20s, .wire = "tcp"});
          try_deadlines(comm);
        });
    }
}

TEST(CreateGroup, WithAMemberThatHasGivenUpSaysHowToCallAgain) {
  for (const auto& hosts : {std::vector<int>{0, 0}, std::vector<int>{0, 1}})
    run_hosts(hosts, [](Communicator& comm) {
      const std::vector<Rank> both{0, 1};
      for (const Rank caller : both) {  // the calls of the two ranks are over before the next one begins
        comm.barrier();
        if (comm.rank() != caller) continue;
        const Error error = error_of([&] { (void)comm.create_group(both, "pair", {.timeout = 50ms}); });
        EXPECT_EQ(error.code(), Errc::timeout);
        EXPECT_EQ(error.peer(), 1 - caller);
        if (caller == 1) {
          EXPECT_SAYS(error.what(), "last answer: rank 0 gave up: all members have to be in the call at the same time");
        }
      }
      comm.barrier();
      comm.create_group(both, "pair").barrier();
    });
}

TEST(CreateGroup, ReportsThatAMemberUsesAnotherName) {
  std::atomic<bool> over{false};
  run_communicators(2, [&](Communicator& comm) {
    const std::vector<Rank> both{0, 1};
    while (!over) {
      const std::string name = comm.rank() == 0 ? "left" : "right";
      const Error error = error_of([&] { (void)comm.create_group(both, name, {.timeout = 100ms}); });
      EXPECT_EQ(error.code(), Errc::timeout);
      const std::string text = error.what();
      if (text.find("makes a communicator of ranks 0,1 with another name") != std::string::npos) over = true;
    }
    comm.barrier();
  });
}

TEST(CreateGroup, WithAMemberThatHasLeftIsToldToTheOthers) {
  run_ranks(3, [](Bootstrap& bootstrap) {
    auto comm = std::make_unique<Communicator>(bootstrap);
    comm->barrier();
    if (comm->rank() == 2) return;  // destroys the communicator
    if (comm->rank() == 1) {
      Communicator part = comm->create_group(std::vector<Rank>{0, 1}, "survivors");
      return part.barrier();
    }
    const Error error = error_of([&] { (void)comm->create_group(std::vector<Rank>{0, 2}, "lost", {.timeout = 20s}); });
    EXPECT_EQ(error.code(), Errc::peer_lost);
    EXPECT_SAYS(error.what(), "create_group \"lost\": rank 2 was lost: it left the communicator");
    Communicator part = comm->create_group(std::vector<Rank>{0, 1}, "survivors");
    part.barrier();
  });
}

}  // namespace
}  // namespace collectives::testing
