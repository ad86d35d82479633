// Tests of calls that differ between ranks although no data shows it at once, of refusals, and of ranks that leave.
// Every rank must get the same error, which names the first call that differs.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <functional>
#include <mutex>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "collectives/communicator.hpp"
#include "collectives/top_k.hpp"
#include "support/errors.hpp"
#include "support/hosts.hpp"
#include "support/ranks.hpp"
#include "support/system.hpp"

namespace collectives::testing {
namespace {

using namespace std::chrono_literals;

const std::vector<std::vector<int>> kHosts = {{0, 0}, {0, 0, 0}, {0, 1}, {0, 1, 1}, {0, 0, 1, 1}};
const std::vector<int> kTwo{0, 0};

/// Calls `calls` on every rank, then barriers until a call fails. Expects that all ranks get one mismatch. Returns its
/// text. Hosts exchange messages through a queue, or over `options.wire`.
std::string mismatch_of(const std::vector<int>& hosts, const std::function<void(Communicator&)>& calls,
                        const CommunicatorOptions& options = {.timeout = 20s}) {
  std::mutex mutex;
  std::set<std::string> texts;
  const auto rank = [&](Communicator& comm) {
    const Error error = error_of([&] {
      calls(comm);
      for (int call = 0; call < 1000; ++call) {
        comm.barrier();
        std::this_thread::sleep_for(1ms);
      }
    });
    const std::lock_guard lock(mutex);
    EXPECT_EQ(error.code(), Errc::mismatch) << error.what();
    texts.insert(error.what());
  };
  if (options.wire.empty())
    run_hosts(hosts, rank, options);
  else
    run_ranks(static_cast<int>(hosts.size()), [&](Bootstrap& threads) {
      WiredHost bootstrap(threads, "host " + std::to_string(hosts[static_cast<std::size_t>(threads.rank())]));
      Communicator comm(bootstrap, options);
      rank(comm);
    });
  EXPECT_EQ(texts.size(), 1u);
  std::string all;
  for (const std::string& text : texts) all += text + "\n";
  return all;
}

void broadcast(Communicator& comm, Rank root, std::size_t count = 10) {
  std::vector<float> data(count);
  comm.broadcast(data, root);
}

void reduce(Communicator& comm, std::string_view name = {}, std::size_t count = 10) {
  std::vector<float> data(count);
  comm.all_reduce(data, ReduceOp::sum, {.name = name});
}

TEST(Mismatch, IsReportedInTheNextCallIfEachRankNamesItselfAsRoot) {
  for (const auto& hosts : kHosts)
    for (const char* backend : {"auto", "ring", "reduce_to_one"}) {
      const std::string text = mismatch_of(hosts, [](Communicator& comm) { broadcast(comm, comm.rank()); },
                                           {.backend = backend, .timeout = 20s});
      EXPECT_SAYS(text, "broadcast #1: rank 0 passed 10 x f32 root 0, rank 1 passed 10 x f32 root 1");
    }
}

TEST(Mismatch, IsReportedIfEachRankGathersAtItselfOrScattersFromItself) {
  for (const auto& hosts : kHosts)
    for (const bool gathers : {true, false}) {
      const std::string text = mismatch_of(hosts, [&](Communicator& comm) {
        std::vector<float> whole(10 * hosts.size()), part(10);
        gathers ? comm.gather(part, whole, comm.rank()) : comm.scatter(whole, part, comm.rank());
      });
      const std::string count = std::to_string(10 * hosts.size());
      EXPECT_SAYS(text, (gathers ? "gather #1: rank 0 passed " : "scatter #1: rank 0 passed ") + count +
                            " x f32 root 0, rank 1 passed " + count + " x f32 root 1");
    }
}

TEST(Mismatch, IsReportedIfPartsHaveOtherLengthsOnOneRank) {
  for (const auto& hosts : kHosts)
    EXPECT_SAYS(mismatch_of(hosts,
                            [&](Communicator& comm) {
                              const std::size_t count = comm.rank() == 0 ? 8 : 10;
                              std::vector<float> whole(count * hosts.size()), part(count);
                              comm.gather(part, whole, 1);
                            }),
                "gather #1: rank 0 passed " + std::to_string(8 * hosts.size()) + " x f32, rank");
}

TEST(Mismatch, IsReportedIfAScanMeetsAnExclusiveScan) {
  for (const auto& hosts : kHosts)
    EXPECT_SAYS(mismatch_of(hosts,
                            [](Communicator& comm) {
                              std::vector<float> in(10), out(10);
                              comm.rank() == 0 ? comm.scan(in, out) : comm.exclusive_scan(in, out);
                            }),
                "#1: rank 0 passed scan of 10 x f32, rank");
}

TEST(Mismatch, NamesTheFirstDisplacementThatDiffers) {
  for (const auto& hosts : kHosts) {
    const std::string text = mismatch_of(hosts, [](Communicator& comm) {
      const auto p = static_cast<std::size_t>(comm.size());
      std::vector<std::size_t> counts(p, 3), displacements(p);
      for (std::size_t r = 0; r < p; ++r) displacements[r] = 4 * r + (comm.rank() == 0 && r == 1 ? 1 : 0);
      std::vector<float> whole(5 * p), part(3);
      comm.all_gather_v(part, whole, {counts, displacements});
    });
    EXPECT_SAYS(text, "displacements differ first at rank 1: 5 and 4");
  }
}

TEST(Mismatch, IsReportedIfTheRootAloneBroadcastsOnceMore) {
  for (const auto& hosts : kHosts)
    EXPECT_SAYS(mismatch_of(hosts,
                            [](Communicator& comm) {
                              comm.barrier();
                              if (comm.rank() == 0) broadcast(comm, 0);
                              comm.barrier();
                              reduce(comm);
                            }),
                "#2: rank 0 passed broadcast of 10 x f32, rank");
}

TEST(Mismatch, NamesBothTensorsIfNamesAreSwapped) {
  for (const auto& hosts : kHosts)
    EXPECT_SAYS(mismatch_of(hosts,
                            [](Communicator& comm) {
                              const bool first = comm.rank() == 0;
                              reduce(comm, first ? "weight" : "bias");
                              reduce(comm, first ? "bias" : "weight");
                            }),
                "all_reduce #1: rank 0 passed 10 x f32 named \"weight\", rank");
}

TEST(Mismatch, IsReportedIfNamesDifferInCaseOrInBlanksOrAreMissing) {
  for (const char* other : {"Weight", "weight ", " weight", ""})
    EXPECT_SAYS(mismatch_of(kTwo, [&](Communicator& comm) { reduce(comm, comm.rank() == 0 ? "weight" : other); }),
                *other == '\0' ? "without a name" : "named \"" + std::string(other) + "\"");
}

TEST(Mismatch, NamesTheTensorsOfAGroup) {
  for (const auto& hosts : {kTwo, std::vector<int>{0, 1}}) {
    const std::string text = mismatch_of(hosts, [](Communicator& comm) {
      std::vector<float> a(3), b(3);
      Group group = comm.group();
      const bool first = comm.rank() == 0;
      group.all_reduce(a, a, ReduceOp::sum, {.name = first ? "a" : "b"});
      group.all_reduce(b, b, ReduceOp::sum, {.name = first ? "b" : "a"});
      group.run();
    });
    EXPECT_SAYS(text, "named \"a, b\", rank 1 passed 6 x f32 named \"b, a\"");
  }
}

TEST(Mismatch, IsReportedIfTheNamesOfAGroupAreEqualOnlyWhenJoined) {
  for (const auto& hosts : {kTwo, std::vector<int>{0, 1}}) {
    const std::string text = mismatch_of(hosts, [](Communicator& comm) {
      std::vector<float> a(3), b(3);
      Group group = comm.group();
      const bool first = comm.rank() == 0;
      group.all_reduce(a, a, ReduceOp::sum, {.name = first ? "a, b" : "a"});
      group.all_reduce(b, b, ReduceOp::sum, {.name = first ? "c" : "b, c"});
      group.run();
    });
    EXPECT_SAYS(text, "named \"a\\, b, c\", rank 1 passed 6 x f32 named \"a, b\\, c\"");
  }
}

TEST(Mismatch, NamesTheArgumentsOfARankThatComputesAfterItsCall) {
  const std::string text = mismatch_of({0, 1}, [](Communicator& comm) {
    broadcast(comm, 0, comm.rank() == 0 ? 9 : 10);
    if (comm.rank() == 0) std::this_thread::sleep_for(1s);
  });
  EXPECT_SAYS(text, "broadcast #1: rank 0 passed 9 x f32, rank 1 passed 10 x f32");
}

TEST(Mismatch, NamesACallThatTheRootHasMadeLongBefore) {
  for (const int ahead : {63, 64, 65, 100, 1000}) {
    std::atomic<bool> root_is_ahead{false};
    const auto calls = [&](Communicator& comm) {
      if (comm.rank() == 0) {
        for (int call = 0; call < ahead; ++call) broadcast(comm, 0, 5);
        root_is_ahead = true;
      } else {
        while (!root_is_ahead) std::this_thread::sleep_for(1ms);
        broadcast(comm, 0, 6);
      }
    };
    const std::string text = mismatch_of({0, 1}, calls, {.timeout = 20s, .wire = "tcp"});
    // The root then enters a barrier, which takes the place of its oldest record.
    EXPECT_SAYS(text, ahead < 64
                          ? "broadcast #1: rank 0 passed 5 x f32, rank 1 passed 6 x f32"
                          : "broadcast #1: rank 1 passed 6 x f32, rank 0 made another call, of which no record is "
                            "left");
  }
}

TEST(Mismatch, NamesARefusalOfACallThatTheRootHasMadeLongBefore) {
  const std::string text = mismatch_of({0, 1}, [&](Communicator& comm) {
    if (comm.rank() == 0)
      for (int call = 0; call < 100; ++call) broadcast(comm, 0);
    else
      EXPECT_EQ(error_of([&] { broadcast(comm, 7); }).code(), Errc::invalid_argument);
  });
  EXPECT_SAYS(text, "rank 1 refused broadcast #1: root 7 is not a rank of 0 to 1");
}

TEST(Mismatch, NamesTheTensorsOfTopK) {
  for (const auto& hosts : {kTwo, std::vector<int>{0, 1}})
    EXPECT_SAYS(mismatch_of(hosts,
                            [](Communicator& comm) {
                              TopK top_k({.density = 0.01});
                              std::vector<float> data(1000);
                              for (const bool first : {comm.rank() == 0, comm.rank() == 1})
                                comm.all_reduce(data, ReduceOp::sum,
                                                {.name = first ? "weight" : "bias", .compressor = &top_k});
                            }),
                "all_reduce #1: rank 0 passed 1000 x f32 named \"weight\", rank 1 passed 1000 x f32 named \"bias\"");
}

TEST(Mismatch, IsReportedAfterAMillionNamesThatTakeNoMemory) {
  constexpr int kNames = kSanitized ? 20'000 : 1'000'000;
  std::size_t grown = 0;
  const std::string text = mismatch_of(kTwo, [&](Communicator& comm) {
    std::vector<float> data(1);
    const auto call = [&](int number) {
      char name[32];
      const int length = std::snprintf(name, sizeof name, "tensor %d", number);
      comm.broadcast(data, 0, {.name = {name, static_cast<std::size_t>(length)}});
    };
    call(0);
    const std::size_t before = status_bytes("VmRSS");
    for (int number = 1; number < kNames; ++number) call(number);
    if (comm.rank() == 0) grown = std::max(before, status_bytes("VmRSS")) - before;
    call(kNames + comm.rank());
  });
  if (!kSanitized) {
    EXPECT_LT(grown, std::size_t{8} << 20);
  }
  const std::string number = std::to_string(kNames), next = std::to_string(kNames + 1);
  EXPECT_SAYS(text, "broadcast #" + next + ": rank 0 passed 1 x f32 named \"tensor " + number +
                        "\", rank 1 passed 1 x f32 named \"tensor " + next + "\"");
}

TEST(Mismatch, NamesTheFirstLengthThatDiffers) {
  EXPECT_SAYS(mismatch_of(kTwo,
                          [](Communicator& comm) {
                            std::vector<float> a(3), b(comm.rank() == 0 ? 4 : 5), c(comm.rank() == 0 ? 5 : 4);
                            Group group = comm.group();
                            for (auto* tensor : {&a, &b, &c}) group.all_reduce(*tensor, *tensor);
                            group.run();
                          }),
              "; lengths differ first at tensor 1: 4 and 5");
  EXPECT_SAYS(mismatch_of({0, 0, 0},
                          [](Communicator& comm) {
                            std::vector<std::size_t> counts{2, 2, 3};
                            if (comm.rank() == 0) counts = {2, 3, 2};
                            std::vector<float> in(counts[static_cast<std::size_t>(comm.rank())]), out(7);
                            comm.all_gather_v(in, out, counts);
                          }),
              "rank 0 passed 7 x f32 counts 2, 3, 2, ranks 1-2 passed 7 x f32 counts 2, 2, 3; counts differ first at "
              "rank 1: 3 and 2");
}

TEST(Mismatch, NamesUserOps) {
  const auto add = [](const void*, void*, std::size_t, DataType) {};
  const UserOp one{"one", add}, two{"two", add};
  EXPECT_SAYS(mismatch_of(kTwo,
                          [&](Communicator& comm) {
                            std::vector<float> data(10);
                            comm.all_reduce(data, ReduceOp::user(comm.rank() == 0 ? one : two));
                          }),
              "rank 0 passed 10 x f32 user \"one\", rank 1 passed 10 x f32 user \"two\"");
}

TEST(Mismatch, NamesASplitThatARankHasMissed) {
  for (const auto& hosts : kHosts)
    EXPECT_SAYS(mismatch_of(hosts,
                            [](Communicator& comm) {
                              if (comm.rank() == 0) {
                                (void)comm.split(0, 0);
                              } else {
                                std::vector<int> mine(2), all(2 * static_cast<std::size_t>(comm.size()));
                                comm.all_gather(mine, all);
                              }
                            }),
                "#1: rank 0 passed split, rank");
}

TEST(Mismatch, NamesBothValuesOfKIfAWarmUpDiffersAfterAResume) {
  EXPECT_SAYS(mismatch_of(kTwo,
                          [](Communicator& comm) {
                            TopK top_k({.density = 0.01, .warm_up_calls = 4});
                            std::vector<float> data(1000);
                            const auto call = [&] {
                              comm.all_reduce(data, ReduceOp::sum, {.name = "w", .compressor = &top_k, .force = true});
                            };
                            call();
                            if (comm.rank() == 0) top_k = TopK({.density = 0.01, .warm_up_calls = 4});
                            call();
                          }),
              "rank 0 passed 1000 x f32 compressed by top 250, rank 1 passed 1000 x f32 compressed by top ");
}

TEST(Mismatch, NamesTheFirstCallOrSaysThatItLiesFurtherBack) {
  for (const auto& hosts : {kTwo, std::vector<int>{0, 1}})
    for (const int back : {62, 63, 64, 65, 10'000}) {
      // Each rank names itself as root, so no rank waits for another before the barrier.
      const std::string text = mismatch_of(hosts, [&](Communicator& comm) {
        comm.barrier();
        for (int call = 0; call < back; ++call) broadcast(comm, comm.rank());
      });
      const bool named = text.starts_with("broadcast #2: rank 0 passed 10 x f32 root 0, rank 1 passed 10 x f32 root 1");
      // A rank that is far behind finds no record of the other rank's call.
      const bool further = text.find("rank 0 and rank 1 differ in a call before #") != text.npos ||
                           text.find("made another call, of which no record is left") != text.npos;
      EXPECT_TRUE(named || (further && back > 63)) << back << ": " << text;
    }
}

// ---- refusals ----

TEST(Refusal, IsReportedToTheRanksInTheCall) {
  for (const auto& hosts : kHosts) {
    const auto begun = std::chrono::steady_clock::now();
    EXPECT_SAYS(mismatch_of(hosts,
                            [](Communicator& comm) {
                              comm.barrier();
                              std::vector<float> in(10), out(comm.rank() == 1 ? 9 : 10);
                              try {
                                comm.all_reduce(in, out);
                              } catch (const Error& error) {
                                if (error.code() != Errc::invalid_argument) throw;
                              }
                            }),
                "all_reduce #2: rank 1 refused all_reduce #2: input has 10 elements, output has 9");
    EXPECT_LT(std::chrono::steady_clock::now() - begun, 15s);
  }
}

TEST(Refusal, NamesTheNumberOfTheCallAndTheTensor) {
  run_hosts({0, 1}, [](Communicator& comm) {
    std::vector<float> in(10), out(9), data(10);
    comm.barrier();
    const Work before = comm.all_reduce_async(data, data);  // may be unfinished, and then counts
    for (const auto& [backend, why] :
         {std::pair("auto", "input has 10 elements, output has 9"), {"none", "unknown backend \"none\""}}) {
      const bool short_output = std::string_view(backend) == "auto";
      const Error error = error_of([&] {
        comm.all_reduce(in, short_output ? Buffer(out) : Buffer(in), ReduceOp::sum,
                        {.backend = backend, .name = "weight"});
      });
      const std::string label = short_output ? "all_reduce #3 (weight)" : "all_reduce #4 (weight)";
      EXPECT_EQ(error.operation(), label);
      EXPECT_SAYS(error.what(), label + ": " + why);
    }
    comm.barrier();
  });
}

TEST(Refusal, LeavesTheCommunicatorGoodIfAllRanksRefuse) {
  for (const auto& hosts : kHosts)
    run_hosts(hosts,
              [](Communicator& comm) {
                std::vector<float> in(10, 1.F), out(9);
                for (int round = 0; round < 3; ++round) {
                  EXPECT_EQ(error_of([&] { comm.all_reduce(in, out); }).code(), Errc::invalid_argument);
                  EXPECT_EQ(error_of([&] { comm.reduce(in, in, ReduceOp::sum, 77); }).code(), Errc::invalid_argument);
                  EXPECT_EQ(error_of([&] { reduce(comm, std::string(257, 'x')); }).code(), Errc::invalid_argument);
                  EXPECT_EQ(error_of([&] { (void)comm.all_reduce_async(in, out); }).code(), Errc::invalid_argument);
                  reduce(comm, std::string(256, 'x'));
                  comm.barrier();
                }
              },
              {.timeout = 20s});
}

TEST(Refusal, IsReportedInEveryForm) {
  const std::vector<std::function<void(Communicator&, bool)>> forms = {
      [](Communicator& comm, bool bad) {
        std::vector<float> in(10), out(bad ? 9 : 10);
        comm.all_reduce_async(in, out).wait();
      },
      [](Communicator& comm, bool bad) {
        std::vector<float> in(10), out(bad ? 9 : 10);
        Group group = comm.group();
        group.all_reduce(in, out);
        group.run();
      },
      [](Communicator& comm, bool bad) {
        std::vector<float> data(10);
        TopK top_k;
        comm.all_reduce(data, ReduceOp::sum, {.name = bad ? "" : "w", .compressor = &top_k});
      },
      [](Communicator& comm, bool bad) {
        std::vector<float> in(5), out(10);
        const std::vector<std::size_t> counts{5, bad ? std::size_t{6} : std::size_t{5}};
        comm.all_gather_v(in, out, counts);
      },
      [](Communicator& comm, bool bad) { comm.barrier({.backend = bad ? "none" : ""}); },
      [](Communicator& comm, bool bad) {
        std::vector<float> data(20);
        comm.all_reduce(std::span(data).first(10), std::span(data).subspan(bad ? 5 : 10, 10));
      }};
  for (const auto& form : forms)
    EXPECT_SAYS(mismatch_of(kTwo,
                            [&](Communicator& comm) {
                              try {
                                form(comm, comm.rank() == 1);
                              } catch (const Error& error) {
                                if (error.code() != Errc::invalid_argument) throw;
                              }
                            }),
                "#1: rank 1 refused ");
}

TEST(Refusal, KeepsItsPlaceAmongAsynchronousCalls) {
  EXPECT_SAYS(mismatch_of(kTwo,
                          [](Communicator& comm) {
                            std::vector<float> a(100'000), in(10), out(comm.rank() == 1 ? 9 : 10);
                            Work before = comm.all_reduce_async(a, a);
                            try {
                              comm.all_reduce_async(in, out).wait();
                            } catch (const Error& error) {
                              if (error.code() != Errc::invalid_argument) throw;
                            }
                            before.wait();
                          }),
              "all_reduce #2: rank 1 refused all_reduce #2");
}

// ---- the end ----

/// Returns what rank 1 logs if rank 0 makes `calls` and leaves, and rank 1 then makes its calls and leaves.
std::string log_of_the_last(const std::function<void(Communicator&)>& calls) {
  std::atomic<bool> gone{false};
  ::testing::internal::CaptureStderr();
  run_ranks(2, [&](Bootstrap& bootstrap) {
    {
      Communicator comm(bootstrap);
      comm.barrier();
      if (comm.rank() == 1) gone.wait(false);
      calls(comm);
    }
    if (bootstrap.rank() == 0) {
      gone = true;
      gone.notify_all();
    }
  });
  return ::testing::internal::GetCapturedStderr();
}

TEST(Mismatch, IsLoggedByARankThatLeavesLast) {
  EXPECT_SAYS(log_of_the_last([](Communicator& comm) { broadcast(comm, comm.rank()); }),
              "leaving a communicator: mismatch: broadcast #2: rank 0 passed 10 x f32 root 0, rank 1 passed");
  EXPECT_SAYS(log_of_the_last([](Communicator& comm) {
                if (comm.rank() == 0) broadcast(comm, 0);
              }),
              "mismatch: broadcast #2: rank 0 made this call, rank 1 left the communicator before it");
  EXPECT_EQ(log_of_the_last([](Communicator&) {}), "");
}

TEST(Mismatch, IsReportedByACallAfterARankWithOtherCallsHasLeft) {
  std::atomic<bool> gone{false};
  run_ranks(2, [&](Bootstrap& bootstrap) {
    Communicator comm(bootstrap, {.timeout = 20s});
    comm.barrier();
    if (bootstrap.rank() == 1) gone.wait(false);
    broadcast(comm, comm.rank());
    if (bootstrap.rank() == 0) {
      { const Communicator leaver = std::move(comm); }
      gone = true;
      gone.notify_all();
      return;
    }
    const Error error = error_of([&] { comm.barrier(); });
    EXPECT_EQ(error.code(), Errc::mismatch);
    EXPECT_SAYS(error.what(), "broadcast #2: rank 0 passed 10 x f32 root 0");
  });
}

}  // namespace
}  // namespace collectives::testing
