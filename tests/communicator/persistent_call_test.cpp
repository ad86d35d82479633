// Tests of persistent calls: results of every collective, order of starts, and misuse.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <optional>
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

const std::vector<std::vector<int>> kWorlds = {{0}, {0, 0}, {0, 0, 0}, {0, 0, 1}, {0, 1}};

/// Value of element i in the input of a rank in one round.
int value(Rank rank, std::size_t i, int round) { return 1000 * rank + static_cast<int>(i) + 7 * round; }

/// Buffers of one rank, with the results that an ordinary program computes for itself.
struct Buffers {
  Buffers(Communicator& comm, std::size_t elements)
      : p(static_cast<std::size_t>(comm.size())),
        self(static_cast<std::size_t>(comm.rank())),
        count(elements),
        in(elements),
        sum(elements),
        whole(p * elements),
        part(elements),
        gathered(p * elements),
        sent(elements),
        reduced(elements) {}
  void fill(int round) {
    for (std::size_t i = 0; i < count; ++i) in[i] = sent[i] = value(static_cast<Rank>(self), i, round);
    for (std::size_t i = 0; i < p * count; ++i) whole[i] = value(static_cast<Rank>(self), i, round);
    for (auto* const output : {&sum, &part, &gathered, &reduced}) std::ranges::fill(*output, -1);
  }
  int summed(std::size_t i, int round) const {
    int total = 0;
    for (std::size_t r = 0; r < p; ++r) total += value(static_cast<Rank>(r), i, round);
    return total;
  }
  void check(int round, Rank root) const {
    for (std::size_t i = 0; i < count; ++i) {
      ASSERT_EQ(sum[i], summed(i, round)) << i;
      ASSERT_EQ(part[i], summed(self * count + i, round)) << i;
      ASSERT_EQ(sent[i], value(root, i, round)) << i;
      ASSERT_EQ(reduced[i], static_cast<Rank>(self) == root ? summed(i, round) : -1) << i;
    }
    for (std::size_t i = 0; i < p * count; ++i)
      ASSERT_EQ(gathered[i], value(static_cast<Rank>(i / count), i % count, round)) << i;
  }
  std::size_t p, self, count;
  std::vector<int> in, sum, whole, part, gathered, sent, reduced;
};

TEST(PersistentCall, OfEveryCollectiveGivesTheResultsOfEachStart) {
  for (const auto& hosts : kWorlds)
    run_hosts(hosts, [](Communicator& comm) {
      const Rank root = comm.size() - 1;
      for (const std::size_t count : {std::size_t{2}, std::size_t{5000}}) {
        Buffers data(comm, count);
        const std::vector<std::size_t> counts(data.p, count);
        std::vector<PersistentCall> calls;
        calls.push_back(comm.persistent_all_reduce(data.in, data.sum));
        calls.push_back(comm.persistent_reduce_scatter(data.whole, data.part));
        calls.push_back(comm.persistent_all_gather(data.in, data.gathered));
        calls.push_back(comm.persistent_broadcast(data.sent, data.sent, root));
        calls.push_back(comm.persistent_reduce(data.in, data.reduced, ReduceOp::sum, root));
        calls.push_back(comm.persistent_barrier());
        calls.push_back(comm.persistent_reduce_scatter_v(data.whole, data.part, counts));
        calls.push_back(comm.persistent_all_gather_v(data.in, data.gathered, counts));
        for (int round = 0; round < 5; ++round) {
          data.fill(round);
          if (round % 2 == 0)  // one after another
            for (PersistentCall& call : calls) call.start(), call.wait();
          else  // all in flight together, waited for in the opposite order
            for (PersistentCall& call : calls) call.start();
          for (auto call = calls.rbegin(); call != calls.rend(); ++call) call->wait();
          data.check(round, root);
        }
      }
    });
}

TEST(PersistentCall, MixesWithOtherCallsInTheOrderOfStarts) {
  for (const auto& hosts : kWorlds)
    run_hosts(hosts, [](Communicator& comm) {
      std::vector<int> first(10), second(10), third(300'000);
      PersistentCall a = comm.persistent_all_reduce(first, first), b = comm.persistent_all_reduce(third, third);
      for (int round = 1; round < 4; ++round) {
        std::ranges::fill(first, round);
        std::ranges::fill(second, 2 * round);
        std::ranges::fill(third, 3 * round);
        b.start();
        Work work = comm.all_reduce_async(second, second);
        a.start();
        comm.barrier();  // issued last, so the others are complete when it returns
        EXPECT_TRUE(a.test());
        EXPECT_TRUE(b.test());
        EXPECT_TRUE(work.test());
        EXPECT_EQ(first, std::vector<int>(10, comm.size() * round));
        EXPECT_EQ(second, std::vector<int>(10, 2 * comm.size() * round));
        EXPECT_EQ(third, std::vector<int>(300'000, 3 * comm.size() * round));
      }
    });
}

TEST(PersistentCall, MatchesAnOrdinaryCallOfAnotherRank) {
  run_communicators(2, [](Communicator& comm) {
    std::vector<int> data(10, 1);
    PersistentCall call = comm.persistent_all_reduce(data, data, ReduceOp::sum, {.name = "gradient"});
    for (int round = 0; round < 3; ++round) {
      if (comm.rank() == 0)
        call.start(), call.wait();
      else
        comm.all_reduce(data, data, ReduceOp::sum, {.name = "gradient"});
    }
    EXPECT_EQ(data, std::vector<int>(10, 8));
  });
}

TEST(PersistentCall, ProgressesByTestAlone) {
  run_communicators(2, [](Communicator& comm) {
    std::vector<int> data(100'000, 1);
    PersistentCall call = comm.persistent_all_reduce(data, data);
    EXPECT_TRUE(call.test()) << "it is not started";
    call.start();
    while (!call.test()) std::this_thread::yield();
    EXPECT_TRUE(call.test());
    EXPECT_EQ(data, std::vector<int>(100'000, 2));
    call.start();
    while (!call.wait_for(1ms)) {
    }
    EXPECT_EQ(data, std::vector<int>(100'000, 4));
  });
}

TEST(PersistentCall, UsesAllocatedMemoryInPlace) {
  run_communicators(3, [](Communicator& comm) {
    SharedArray<float> data = comm.allocate<float>(200'000), other = comm.allocate<float>(3);
    PersistentCall call = comm.persistent_all_reduce(data, data);
    for (int round = 0; round < 3; ++round) {
      std::ranges::fill(data, 1.F);
      { const SharedArray<float> temporary = comm.allocate<float>(100); }  // memory of another call is freed
      call.start();
      call.wait();
      EXPECT_EQ(std::ranges::count(data, 3.F), 200'000);
    }
  });
}

// ---- misuse ----

TEST(PersistentCall, StartedTwiceIsRefusedAndTheFirstStartContinues) {
  for (const auto& hosts : {std::vector<int>{0, 0}, std::vector<int>{0, 1}})
    run_hosts(hosts, [](Communicator& comm) {
      std::vector<int> data(10, 1);
      PersistentCall call = comm.persistent_all_reduce(data, data);
      call.start();
      if (comm.rank() == 0) {  // the other rank is not affected
        const Error error = error_of([&] { call.start(); });
        EXPECT_EQ(error.code(), Errc::invalid_argument);
        EXPECT_SAYS(error.what(), "all_reduce: this persistent call is started already: wait for it before the next");
      }
      call.wait();
      EXPECT_EQ(data, std::vector<int>(10, 2));
      call.start();
      call.wait();
      EXPECT_EQ(data, std::vector<int>(10, 4));
      comm.barrier();
    });
}

TEST(PersistentCall, StartedOnOneRankOnlyReachesItsDeadline) {
  std::atomic<bool> over{false};
  run_communicators(2, [&](Communicator& comm) {
    std::vector<int> data(10, 1);
    PersistentCall call = comm.persistent_all_reduce(data, data, ReduceOp::sum, {.timeout = 100ms});
    if (comm.rank() == 0) {
      call.start();
      const Error error = error_of([&] { call.wait(); });
      over = true;
      EXPECT_EQ(error.code(), Errc::timeout);
      EXPECT_SAYS(error.what(), "rank 1 has not arrived");
      EXPECT_EQ(error_of([&] { call.start(); }).code(), Errc::timeout) << "the communicator has failed";
      call.wait();  // nothing is started
    } else {
      while (!over) std::this_thread::sleep_for(1ms);
    }
  });
}

TEST(PersistentCall, StartedInAnotherOrderIsAMismatch) {
  run_communicators(2,
                    [&](Communicator& comm) {
                      std::vector<int> data(10, 1), other(20, 1);
                      PersistentCall first = comm.persistent_all_reduce(data, data);
                      PersistentCall second = comm.persistent_all_reduce(other, other);
                      (comm.rank() == 0 ? first : second).start();
                      const Error error = error_of([&] {
                        (comm.rank() == 0 ? second : first).start();
                        first.wait();
                        second.wait();
                      });
                      EXPECT_EQ(error.code(), Errc::mismatch);
                      EXPECT_SAYS(error.what(), "10 x i32");
                      EXPECT_SAYS(error.what(), "20 x i32");
                    },
                    {.timeout = 20s});
}

TEST(PersistentCall, DestroyedWhileStartedWaits) {
  run_communicators(3, [](Communicator& comm) {
    std::vector<int> data(5000, 1);
    {
      PersistentCall call = comm.persistent_all_reduce(data, data);
      call.start();
    }
    EXPECT_EQ(data, std::vector<int>(5000, 3));
    PersistentCall call = comm.persistent_all_reduce(data, data);
    call.start();
    call = comm.persistent_barrier();  // the assignment first waits for the operation that `call` held
    EXPECT_EQ(data, std::vector<int>(5000, 9));
    call.start();
    call.wait();
  });
}

TEST(PersistentCall, WithFreedMemoryIsRefusedAndReported) {
  for (const bool in_input : {true, false})
    run_communicators(
        2,
        [&](Communicator& comm) {
          std::optional<SharedArray<float>> freed = comm.allocate<float>(10);
          std::vector<float> kept(10);
          PersistentCall call =
              in_input ? comm.persistent_all_reduce(*freed, kept) : comm.persistent_all_reduce(kept, *freed);
          call.start();
          call.wait();
          freed.reset();
          const Error error = error_of([&] { call.start(); });  // all ranks refuse it, so the communicator stays usable
          EXPECT_EQ(error.code(), Errc::invalid_argument);
          EXPECT_SAYS(error.what(), in_input ? ": the input of this persistent call was freed"
                                             : ": the output of this persistent call was freed");
          comm.all_reduce(kept);
          // Only rank 0 refuses it. Rank 1 gets a mismatch with the reason.
          if (comm.rank() == 0) {
            EXPECT_EQ(error_of([&] { call.start(); }).code(), Errc::invalid_argument);
          }
          const Error mismatch = error_of([&] {
            comm.all_reduce(kept);
            comm.barrier();
          });
          EXPECT_EQ(mismatch.code(), Errc::mismatch);
          EXPECT_SAYS(mismatch.what(), "rank 0 refused");
          EXPECT_SAYS(mismatch.what(), "of this persistent call was freed");
        },
        {.timeout = 20s});
}

TEST(PersistentCall, OutlivesItsCommunicator) {
  run_ranks(2, [](Bootstrap& bootstrap) {
    std::vector<int> data(10, 1);
    PersistentCall idle, started;
    {
      Communicator comm(bootstrap);
      idle = comm.persistent_all_reduce(data, data);
      started = comm.persistent_all_reduce(data, data);
      comm.barrier();
      if (bootstrap.rank() == 0) started.start();
    }
    EXPECT_TRUE(idle.test());
    const Error error = error_of([&] { idle.start(); });
    EXPECT_EQ(error.code(), Errc::invalid_argument);
    EXPECT_SAYS(error.what(), "the communicator of this persistent call was destroyed");
    if (bootstrap.rank() == 0) {
      EXPECT_EQ(error_of([&] { started.wait(); }).code(), Errc::peer_lost);
    }
  });
}

TEST(PersistentCall, WithBadArgumentsIsRefusedOnThisRankOnly) {
  run_communicators(2, [](Communicator& comm) {
    std::vector<float> data(10), small(3);
    if (comm.rank() == 0) {
      const auto refused = [&](auto&& make, Errc code, std::string_view why) {
        const Error error = error_of(make);
        EXPECT_EQ(error.code(), code);
        EXPECT_SAYS(error.what(), why);
      };
      refused([&] { (void)comm.persistent_all_reduce(data, small); }, Errc::invalid_argument,
              "all_reduce: input has 10 elements, output has 3");
      refused([&] { (void)comm.persistent_broadcast(data, data, 2); }, Errc::invalid_argument,
              "broadcast: root 2 is not a rank of 0 to 1");
      refused([&] { (void)comm.persistent_barrier({.backend = "rng"}); }, Errc::invalid_argument, "unknown backend");
      TopK top_k({.k = 3});
      refused([&] { (void)comm.persistent_all_reduce(data, data, ReduceOp::sum, {.name = "t", .compressor = &top_k}); },
              Errc::unsupported, "all_reduce: a persistent call takes no compressor");
      EXPECT_EQ(error_of([] { PersistentCall().start(); }).code(), Errc::invalid_argument);
    }
    comm.barrier();  // nothing was sent
  });
}

TEST(PersistentCall, IsAnOrdinaryCallInRecordsAndCounters) {
  run_communicators(2, [](Communicator& comm) {
    std::vector<int> data(10, 1);
    PersistentCall call = comm.persistent_all_reduce(data, data, ReduceOp::sum, {.name = "gradient"});
    for (int round = 0; round < 5; ++round) call.start(), call.wait();
    EXPECT_EQ(comm.counters()[Collective::all_reduce].calls, 5U);
    const OperationRecord last = comm.recent_operations().back();
    EXPECT_EQ(last.sequence, 5U);
    EXPECT_EQ(last.name, "gradient");
    EXPECT_EQ(last.state, OperationRecord::State::finished);
  });
}

}  // namespace
}  // namespace collectives::testing
