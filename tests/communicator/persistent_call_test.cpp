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

/// Returns the sum of the inputs of ranks 0 to `last` in element i.
int summed_to(Rank last, std::size_t i, int round) {
  int total = 0;
  for (Rank rank = 0; rank <= last; ++rank) total += value(rank, i, round);
  return total;
}

TEST(PersistentCall, OfOneBufferWorksInPlaceLikeOtherFormsOfTheCall) {
  run_communicators(3, [](Communicator& comm) {
    const float ranks = static_cast<float>(comm.size());
    std::vector<float> reduced(10), sent(10), grouped(10), async(10);
    PersistentCall reduce = comm.persistent_all_reduce(reduced, ReduceOp::average);
    PersistentCall send = comm.persistent_broadcast(sent, 1);
    for (int round = 0; round < 3; ++round) {
      const auto mine = static_cast<float>(comm.rank() + round);
      for (auto* const data : {&reduced, &sent, &grouped, &async}) std::ranges::fill(*data, mine);
      reduce.start();
      reduce.wait();
      send.start();
      send.wait();
      comm.all_reduce_async(async).wait();
      Group group = comm.group();
      group.all_reduce(grouped, ReduceOp::max);
      group.run();
      for (std::size_t i = 0; i < reduced.size(); ++i) {
        ASSERT_FLOAT_EQ(reduced[i], static_cast<float>(1 + round));
        ASSERT_FLOAT_EQ(sent[i], static_cast<float>(1 + round));
        ASSERT_FLOAT_EQ(async[i], ranks * static_cast<float>(1 + round));
        ASSERT_FLOAT_EQ(grouped[i], static_cast<float>(2 + round));
      }
    }
  });
}

TEST(PersistentCall, OfScansGivesTheResultsOfEachStart) {
  for (const auto& hosts : kWorlds)
    run_hosts(hosts, [](Communicator& comm) {
      const Rank self = comm.rank();
      std::vector<int> in(700), sum(700), before(700);
      PersistentCall scan = comm.persistent_scan(in, sum);
      PersistentCall exclusive = comm.persistent_exclusive_scan(in, before);
      for (int round = 0; round < 5; ++round) {
        for (std::size_t i = 0; i < in.size(); ++i) in[i] = value(self, i, round);
        scan.start(), exclusive.start();
        scan.wait(), exclusive.wait();
        for (std::size_t i = 0; i < in.size(); ++i) {
          ASSERT_EQ(sum[i], summed_to(self, i, round)) << i;
          if (self > 0) {
            ASSERT_EQ(before[i], summed_to(self - 1, i, round)) << i;
          }
        }
      }
    });
}

TEST(PersistentCall, OfAllToAllGatherAndScatterGivesTheResultsOfEachStart) {
  for (const auto& hosts : kWorlds)
    run_hosts(hosts, [](Communicator& comm) {
      const auto p = static_cast<std::size_t>(comm.size());
      const Rank self = comm.rank(), root = comm.size() - 1;
      for (const std::size_t count : {std::size_t{2}, std::size_t{5000}}) {
        std::vector<int> parts(p * count), swapped(p * count), part(count), gathered(p * count);
        PersistentCall all = comm.persistent_all_to_all(parts, swapped);
        PersistentCall scatter = comm.persistent_scatter(parts, part, root);
        PersistentCall gather = comm.persistent_gather(std::span(parts).first(count), gathered, root);
        for (int round = 0; round < 5; ++round) {
          for (std::size_t i = 0; i < parts.size(); ++i) parts[i] = value(self, i, round);
          all.start(), scatter.start(), gather.start();
          gather.wait(), scatter.wait(), all.wait();
          for (std::size_t i = 0; i < parts.size(); ++i) {
            const auto from = static_cast<Rank>(i / count);
            ASSERT_EQ(swapped[i], value(from, static_cast<std::size_t>(self) * count + i % count, round)) << i;
            if (self == root) {
              ASSERT_EQ(gathered[i], value(from, i % count, round)) << i;
            }
          }
          for (std::size_t i = 0; i < count; ++i)
            ASSERT_EQ(part[i], value(root, static_cast<std::size_t>(self) * count + i, round)) << i;
        }
      }
    });
}

/// Rank r sends r + s + 1 elements to rank s, with a gap of one element after each part.
TEST(PersistentCall, WithCountsOfEachRankGivesTheResultsOfEachStart) {
  for (const auto& hosts : kWorlds)
    run_hosts(hosts, [](Communicator& comm) {
      const auto p = static_cast<std::size_t>(comm.size()), self = static_cast<std::size_t>(comm.rank());
      const Rank root = comm.size() - 1;
      std::vector<std::size_t> counts, firsts;
      std::size_t end = 0;
      for (std::size_t r = 0; r < p; ++r) {
        counts.push_back(self + r + 1);
        firsts.push_back(end);
        end += counts.back() + 1;
      }
      const std::size_t mine = self + static_cast<std::size_t>(root) + 1;  // elements that the root has for this rank
      std::vector<int> sent(end), received(end), part(mine), gathered(end);
      const PartLayout layout(counts, firsts);
      PersistentCall all = comm.persistent_all_to_all_v(sent, layout, received, layout);
      PersistentCall scatter = comm.persistent_scatter_v(sent, part, layout, root);
      PersistentCall gather = comm.persistent_gather_v(part, gathered, layout, root);
      // The object has copies of the lists.
      std::ranges::fill(counts, 0);
      std::ranges::fill(firsts, 0);
      for (int round = 0; round < 5; ++round) {
        std::ranges::fill(received, -1);
        for (std::size_t i = 0; i < end; ++i) sent[i] = value(comm.rank(), i, round);
        all.start(), scatter.start();
        scatter.wait(), all.wait();
        gather.start(), gather.wait();
        std::size_t at = 0;
        for (std::size_t r = 0; r < p; ++r) {
          std::size_t there = 0;  // first element of this rank's part in the buffer of rank r
          for (std::size_t s = 0; s < self; ++s) there += r + s + 2;
          for (std::size_t i = 0; i < self + r + 1; ++i) {
            ASSERT_EQ(received[at + i], value(static_cast<Rank>(r), there + i, round)) << r << " " << i;
            if (comm.rank() == root) {
              ASSERT_EQ(gathered[at + i], sent[at + i]) << r << " " << i;
            }
          }
          ASSERT_EQ(received[at + self + r + 1], -1);
          at += self + r + 2;
        }
      }
    });
}

TEST(PersistentCall, WithCountsThatDifferBetweenRanksIsAMismatch) {
  run_communicators(2,
                    [](Communicator& comm) {
                      const std::vector<std::size_t> counts{3, 3}, others{3, 4};
                      std::vector<int> in(7), out(7);
                      PersistentCall call =
                          comm.rank() == 0 ? comm.persistent_all_to_all_v(in, others, std::span(out).first(6), counts)
                                           : comm.persistent_all_to_all_v(std::span(in).first(6), counts,
                                                                          std::span(out).first(6), counts);
                      const Error error = error_of([&] { call.start(), call.wait(); });
                      EXPECT_EQ(error.code(), Errc::mismatch);
                      EXPECT_SAYS(error.what(), "rank 0 sends 4 elements to rank 1, which expects 3");
                    },
                    {.timeout = 20s});
}

TEST(PersistentCall, OfMessagesGivesTheMessagesOfEachStart) {
  for (const auto& hosts : kWorlds)
    run_hosts(hosts, [](Communicator& comm) {
      const Rank self = comm.rank(), next = (self + 1) % comm.size(), last = (self + comm.size() - 1) % comm.size();
      for (const std::size_t count : {std::size_t{0}, std::size_t{2}, std::size_t{300'000}}) {
        std::vector<int> out(count), in(count), echo(count);
        PersistentCall exchange = comm.persistent_sendrecv(out, next, in, any_source, 5);
        PersistentCall send = comm.persistent_send(in, last, 6);
        PersistentCall receive = comm.persistent_recv(echo, next, 6);
        EXPECT_EQ(receive.source(), kNoRank);
        for (int round = 0; round < 5; ++round) {
          for (std::size_t i = 0; i < count; ++i) out[i] = value(self, i, round);
          receive.start();
          exchange.start();
          exchange.wait();
          EXPECT_EQ(exchange.source(), last);
          send.start();
          while (!receive.test()) {
          }
          send.wait();
          EXPECT_EQ(receive.source(), next);
          ASSERT_EQ(echo, out);
        }
      }
    });
}

TEST(PersistentCall, OfAMessageIsMatchedByAnOrdinaryCall) {
  run_communicators(2, [](Communicator& comm) {
    std::vector<int> data(10, comm.rank());
    if (comm.rank() == 0) {
      PersistentCall send = comm.persistent_send(data, 1, 3);
      for (int round = 0; round < 3; ++round) send.start(), send.wait();
    } else {
      for (int round = 0; round < 3; ++round) {
        std::ranges::fill(data, 7);
        comm.recv(data, 0, 3);
        EXPECT_EQ(data, std::vector<int>(10, 0));
      }
    }
  });
}

TEST(PersistentCall, OfAMessageIsRefusedIfMisused) {
  run_communicators(2, [](Communicator& comm) {
    std::vector<float> data(10);
    const auto refused = [](auto&& call, std::string_view why) {
      const Error error = error_of(call);
      EXPECT_EQ(error.code(), Errc::invalid_argument);
      EXPECT_SAYS(error.what(), why);
    };
    const Rank other = 1 - comm.rank();
    refused([&] { (void)comm.persistent_send(data, 2); }, "send: rank 2 is not a rank of 0 to 1");
    refused([&] { (void)comm.persistent_recv(data, other, -1); }, "recv: tag -1 is not in 0 to");
    refused([&] { (void)comm.persistent_sendrecv(data, other, data, other); }, "sendrecv: input and output overlap");
    refused([&] { (void)comm.persistent_sendrecv(data, 2, data, other); }, "sendrecv: rank 2 is not a rank of 0 to 1");
    PersistentCall receive = comm.persistent_recv(data, other);
    receive.start();
    refused([&] { receive.start(); }, "recv: this persistent call is started already");
    comm.send(std::vector<float>(10, 2.F), other);
    receive.wait();
    EXPECT_EQ(data, std::vector<float>(10, 2.F));
    std::optional<SharedArray<float>> freed = comm.allocate<float>(10);
    PersistentCall of_freed = comm.persistent_send(*freed, other);
    freed.reset();
    refused([&] { of_freed.start(); }, "send: the buffer of this persistent call was freed");
    comm.barrier();
  });
}

TEST(PersistentCall, OfAReceiveThatIsNeverSentTimesOut) {
  run_communicators(2, [](Communicator& comm) {
    std::vector<float> data(10);
    if (comm.rank() == 0) {
      PersistentCall receive = comm.persistent_recv(data, 1, 4, {.timeout = 200ms});
      receive.start();
      EXPECT_FALSE(receive.wait_for(10ms));
      const Error error = error_of([&] { receive.wait(); });
      EXPECT_EQ(error.code(), Errc::timeout);
      EXPECT_SAYS(error.what(), "rank 1");
      EXPECT_SAYS(error.what(), "tag 4");
    } else {
      EXPECT_NE(error_of([&] { comm.barrier({.timeout = 20s}); }).code(), Errc::invalid_argument);
    }
  });
}

TEST(PersistentCall, OfAMessageOutlivesItsCommunicator) {
  run_ranks(2, [](Bootstrap& bootstrap) {
    std::vector<int> data(10, 1);
    PersistentCall idle, started;
    {
      Communicator comm(bootstrap);
      idle = comm.persistent_send(data, 1 - bootstrap.rank());
      started = comm.persistent_recv(data, 1 - bootstrap.rank());
      comm.barrier();
      started.start();
    }
    EXPECT_TRUE(idle.test());
    EXPECT_SAYS(error_of([&] { idle.start(); }).what(), "the communicator of this persistent call was destroyed");
    EXPECT_NE(error_of([&] { started.wait(); }).code(), Errc::invalid_argument);
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
    run_communicators(2,
                      [&](Communicator& comm) {
                        std::optional<SharedArray<float>> freed = comm.allocate<float>(10);
                        std::vector<float> kept(10);
                        PersistentCall call = in_input ? comm.persistent_all_reduce(*freed, kept)
                                                       : comm.persistent_all_reduce(kept, *freed);
                        call.start();
                        call.wait();
                        freed.reset();
                        const Error error =
                            error_of([&] { call.start(); });  // all ranks refuse it, so the communicator stays usable
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
