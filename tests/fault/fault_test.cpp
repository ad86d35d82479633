// Tests of failures. Every rank must soon get an Error with a code, the operation, and the rank that caused the
// failure.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <barrier>
#include <bit>
#include <chrono>
#include <csignal>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "collectives/communicator.hpp"
#include "support/hosts.hpp"
#include "support/ranks.hpp"
#include "support/system.hpp"

namespace collectives::testing {
namespace {

using namespace std::chrono_literals;

/// Returns the error that `f` throws. Fails the test if it throws none.
template <class F>
std::optional<Error> error_of(F&& f) {
  try {
    f();
  } catch (const Error& error) {
    return error;
  }
  ADD_FAILURE() << "no error";
  return std::nullopt;
}

bool contains(const std::optional<Error>& error, std::string_view text) {
  return error && std::string_view(error->what()).find(text) != std::string_view::npos;
}

/// Calls `other` on rank `odd` and `usual` on all other ranks. Expects that every rank gets a mismatch whose text
/// contains all of `words`.
template <class Usual, class Other>
void expect_mismatch(const std::vector<int>& hosts, Rank odd, Usual usual, Other other,
                     const std::vector<std::string>& words) {
  run_hosts(hosts,
            [&](Communicator& comm) {
              comm.barrier();
              const auto error = error_of([&] {
                comm.rank() == odd ? other(comm) : usual(comm);
                // A rank whose call succeeded gets the error at its next call.
                for (int call = 0; call < 1000; ++call) {
                  comm.barrier();
                  std::this_thread::sleep_for(1ms);
                }
              });
              ASSERT_TRUE(error);
              EXPECT_EQ(error->code(), Errc::mismatch) << error->what();
              for (const std::string& word : words)
                EXPECT_TRUE(contains(error, word)) << error->what() << " lacks " << word;
            },
            {.timeout = 20s});
}

std::vector<float> floats(std::size_t count) { return std::vector<float>(count, 1.f); }

void reduce_floats(Communicator& comm, std::size_t count, const Options& options = {}) {
  auto data = floats(count);
  comm.all_reduce(data, ReduceOp::sum, options);
}

const std::vector<int> kFourOnOneHost{0, 0, 0, 0};
const std::vector<int> kTwoHosts{0, 0, 1, 1};

TEST(Mismatch, NamesTheRanksIfCountsDiffer) {
  expect_mismatch(
      kFourOnOneHost, 3, [](Communicator& comm) { reduce_floats(comm, 4095); },
      [](Communicator& comm) { reduce_floats(comm, 4096); },
      {"all_reduce #2", "rank 3 passed 4096 x f32", "ranks 0-2 passed 4095 x f32"});
}

TEST(Mismatch, IsReportedIfCountsNeedDifferentProtocols) {
  for (const auto& [few, many] : {std::pair(1u, 1'000'000u), {0u, 7u}, {511u, 513u}})
    expect_mismatch(
        kFourOnOneHost, 1, [n = few](Communicator& comm) { reduce_floats(comm, n); },
        [n = many](Communicator& comm) { reduce_floats(comm, n); }, {"rank 1 passed", "ranks 0, 2-3 passed"});
}

TEST(Mismatch, IsReportedForShortMessagesOnTheRing) {
  expect_mismatch(
      kFourOnOneHost, 0, [](Communicator& comm) { reduce_floats(comm, 1000, {.backend = "ring"}); },
      [](Communicator& comm) { reduce_floats(comm, 999, {.backend = "ring"}); },
      {"rank 0 passed 999 x f32", "ranks 1-3 passed 1000 x f32"});
}

TEST(Mismatch, IsReportedIfTypesDiffer) {
  expect_mismatch(
      kFourOnOneHost, 2, [](Communicator& comm) { reduce_floats(comm, 100); },
      [](Communicator& comm) {
        std::vector<bfloat16> data(100);
        comm.all_reduce(data);
      },
      {"rank 2 passed 100 x bf16", "ranks 0-1, 3 passed 100 x f32"});
}

TEST(Mismatch, IsReportedIfOpsDiffer) {
  expect_mismatch(
      kFourOnOneHost, 2, [](Communicator& comm) { reduce_floats(comm, 100); },
      [](Communicator& comm) {
        auto data = floats(100);
        comm.all_reduce(data, ReduceOp::max);
      },
      {"rank 2 passed 100 x f32 max", "passed 100 x f32 sum"});
}

TEST(Mismatch, IsReportedIfRootsDiffer) {
  expect_mismatch(
      kFourOnOneHost, 1,
      [](Communicator& comm) {
        auto data = floats(100);
        comm.broadcast(data, 0);
      },
      [](Communicator& comm) {
        auto data = floats(100);
        comm.broadcast(data, 2);
      },
      {"broadcast #2", "rank 1 passed 100 x f32 root 2", "root 0"});
}

TEST(Mismatch, IsReportedIfCollectivesDiffer) {
  expect_mismatch(
      kFourOnOneHost, 0, [](Communicator& comm) { reduce_floats(comm, 100); },
      [](Communicator& comm) {
        auto data = floats(100);
        comm.broadcast(data, 1);
      },
      {"rank 0 passed broadcast of 100 x f32", "ranks 1-3 passed all_reduce of 100 x f32"});
}

TEST(Mismatch, IsReportedIfBackendsDiffer) {
  expect_mismatch(
      kFourOnOneHost, 3, [](Communicator& comm) { reduce_floats(comm, 100, {.backend = "ring"}); },
      [](Communicator& comm) { reduce_floats(comm, 100, {.backend = "hierarchical"}); },
      {"rank 3 passed 100 x f32 backend hierarchical", "ranks 0-2 passed 100 x f32 backend ring"});
}

TEST(Mismatch, IsReportedIfCountsOfPartsDiffer) {
  expect_mismatch(
      kFourOnOneHost, 3,
      [](Communicator& comm) {
        const std::vector<std::size_t> counts{1, 2, 3, 4};
        auto in = floats(10);
        std::vector<float> out(counts[static_cast<std::size_t>(comm.rank())]);
        comm.reduce_scatter_v(in, out, counts);
      },
      [](Communicator& comm) {
        const std::vector<std::size_t> counts{4, 3, 2, 1};
        auto in = floats(10);
        std::vector<float> out(counts[static_cast<std::size_t>(comm.rank())]);
        comm.reduce_scatter_v(in, out, counts);
      },
      {"reduce_scatter #2", "rank 3 passed 10 x f32 counts"});
}

TEST(Mismatch, IsReportedForCallsWithoutElements) {
  for (const char* backend : {"hierarchical", "ring", "reduce_to_one"})
    expect_mismatch(
        kFourOnOneHost, 2, [backend](Communicator& comm) { reduce_floats(comm, 0, {.backend = backend}); },
        [backend](Communicator& comm) {
          std::vector<int> nothing;
          comm.all_gather(nothing, nothing, {.backend = backend});
        },
        {"rank 2 passed all_gather of 0 x i32", "ranks 0-1, 3 passed all_reduce of 0 x f32"});
}

TEST(UserOp, FailsEveryRankIfItThrows) {
  const UserOp bad{"bad", [](const void*, void*, std::size_t, DataType) { throw std::runtime_error("no such sum"); }};
  run_communicators(3, [&](Communicator& comm) {
    const auto error = error_of([&] {
      auto data = floats(1000);
      comm.reduce(data, data, ReduceOp::user(bad), 0);
      for (;;) comm.barrier();
    });
    ASSERT_TRUE(error);
    EXPECT_EQ(error->code(), Errc::system);
    // The error names the rank that arrived first at its part of the sum.
    EXPECT_TRUE(contains(error, "reduce #1: rank ") && contains(error, ": no such sum")) << error->what();
  });
}

TEST(Mismatch, IsReportedBetweenHosts) {
  expect_mismatch(
      kTwoHosts, 3, [](Communicator& comm) { reduce_floats(comm, 4095); },
      [](Communicator& comm) { reduce_floats(comm, 4096); },
      {"all_reduce #2: rank 3 passed 4096 x f32, ranks 0-2 passed 4095 x f32"});
  expect_mismatch(
      kTwoHosts, 0, [](Communicator& comm) { reduce_floats(comm, 64, {.backend = "ring"}); },
      [](Communicator& comm) { reduce_floats(comm, 60, {.backend = "ring"}); },
      {"all_reduce #2: rank 0 passed 60 x f32, ranks 1-3 passed 64 x f32"});
}

TEST(Mismatch, NamesLateAndFinishedRanksBetweenHosts) {
  // The root, alone on its host, waits for no message, so a neighbour reports the failure to it. Rank 3 arrives last.
  expect_mismatch(
      kTwoHosts, 0,
      [](Communicator& comm) {
        if (comm.rank() == 3) std::this_thread::sleep_for(30ms);
        auto data = floats(8);
        comm.broadcast(data, 0);
      },
      [](Communicator& comm) {
        auto data = floats(9);
        comm.broadcast(data, 0);
        std::this_thread::sleep_for(300ms);  // this rank is outside the library meanwhile
      },
      {"broadcast #2: rank 0 passed 9 x f32, ranks 1-3 passed 8 x f32"});
}

TEST(Mismatch, IsReportedToFinishedRanksAtTheirNextCall) {
  // The root of a broadcast waits for no rank, so it gets the error afterwards.
  expect_mismatch(
      kFourOnOneHost, 0,
      [](Communicator& comm) {
        auto data = floats(8);
        comm.broadcast(data, 0);
      },
      [](Communicator& comm) {
        auto data = floats(9);
        comm.broadcast(data, 0);
      },
      {"rank 0 passed 9 x f32", "ranks 1-3 passed 8 x f32"});
}

TEST(Timeout, NamesTheRanksThatDidNotArrive) {
  for (const auto& hosts : {kFourOnOneHost, kTwoHosts}) {
    std::atomic<bool> over{false};
    std::atomic<int> failed{0};
    std::mutex mutex;
    std::set<std::string> texts;
    run_hosts(hosts,
              [&](Communicator& comm) {
                comm.barrier();
                if (comm.rank() == 2) {
                  while (!over) std::this_thread::sleep_for(1ms);
                } else {
                  const auto error = error_of([&] { reduce_floats(comm, 10, {.timeout = 400ms}); });
                  if (++failed == 3) over = true;
                  ASSERT_TRUE(error);
                  EXPECT_EQ(error->code(), Errc::timeout);
                  EXPECT_EQ(error->peer(), 2);
                  EXPECT_TRUE(contains(error, "all_reduce #2")) << error->what();
                  EXPECT_TRUE(contains(error, "rank 2 has not arrived")) << error->what();
                }
                // The late rank gets the same error.
                const auto late = error_of([&] { reduce_floats(comm, 10); });
                ASSERT_TRUE(late);
                EXPECT_EQ(late->code(), Errc::timeout);
                EXPECT_TRUE(contains(late, "rank 2 has not arrived")) << late->what();
                const std::lock_guard lock(mutex);
                texts.insert(late->what());
              },
              {.timeout = 20s});
    const std::size_t hosts_of_ranks = hosts == kFourOnOneHost ? 1 : 2;
    EXPECT_LE(texts.size(), hosts_of_ranks) << "a host throws one text";
  }
}

TEST(Timeout, MayDifferBetweenTheRanksOfACall) {
  run_communicators(2, [](Communicator& comm) {
    for (int call = 0; call < 10; ++call)
      reduce_floats(comm, 10, {.timeout = comm.rank() == 0 ? 10s : std::chrono::nanoseconds::max()});
  });
}

TEST(Departure, IsReportedToRanksThatNeedTheDepartedRank) {
  run_communicators(4, [](Communicator& comm) {
    comm.barrier();
    if (comm.rank() == 1) return;  // destroys its communicator
    const auto error = error_of([&] { reduce_floats(comm, 100'000); });
    ASSERT_TRUE(error);
    EXPECT_EQ(error->code(), Errc::peer_lost);
    EXPECT_EQ(error->peer(), 1);
    EXPECT_TRUE(contains(error, "rank 1 was lost: it left the communicator")) << error->what();
  });
}

/// Stops a thread at an arbitrary instruction, as a scheduler may. The destructor lets the thread continue. It also
/// continues after ten seconds, so that a test cannot hang.
class Held {
 public:
  explicit Held(pthread_t thread) {
    inside_ = false;
    go_ = false;
    struct sigaction action {};
    action.sa_handler = [](int) {
      inside_ = true;
      for (int ms = 0; !go_ && ms < 10'000; ++ms) ::usleep(1000);
    };
    ::sigaction(SIGUSR1, &action, &before_);
    ::pthread_kill(thread, SIGUSR1);
    while (!inside_) std::this_thread::sleep_for(1ms);
  }
  ~Held() {
    go_ = true;
    ::sigaction(SIGUSR1, &before_, nullptr);
  }

 private:
  static inline std::atomic<bool> inside_{false}, go_{false};
  struct sigaction before_ {};
};

TEST(RankThatIsHeldUp, CompletesItsCallIfTheOtherRanksFailInTheNextOne) {
  if (kThreadSanitized) GTEST_SKIP() << "the thread sanitizer delivers a signal only at a system call";
  std::atomic<pthread_t> thread{0};
  std::barrier others(3);
  run_communicators(4, [&](Communicator& comm) {
    comm.barrier();
    if (comm.rank() == 0) {
      thread = ::pthread_self();
      comm.barrier();
      EXPECT_EQ(error_of([&] { reduce_floats(comm, 10); })->code(), Errc::aborted);
      return;
    }
    while (thread == pthread_t{}) std::this_thread::sleep_for(1ms);
    std::optional<Held> held;
    if (comm.rank() == 1) {
      std::this_thread::sleep_for(20ms);  // rank 0 waits in its second call now
      held.emplace(thread);
    }
    others.arrive_and_wait();
    comm.barrier();
    others.arrive_and_wait();
    if (comm.rank() == 1) comm.abort("no more");
  });
}

TEST(RankThatIsHeldUp, DoesNotTimeOutIfTheOtherRanksHaveArrived) {
  if (kThreadSanitized) GTEST_SKIP() << "the thread sanitizer delivers a signal only at a system call";
  for (const auto& hosts : {std::vector<int>{0, 0}, std::vector<int>{0, 1}}) {
    std::atomic<pthread_t> thread{0};
    run_hosts(hosts, [&](Communicator& comm) {
      comm.barrier();
      if (comm.rank() == 0) {
        thread = ::pthread_self();
        reduce_floats(comm, 10, {.timeout = 1500ms});
      } else {
        while (thread == pthread_t{}) std::this_thread::sleep_for(1ms);
        std::this_thread::sleep_for(20ms);
        const Held held(thread);
        reduce_floats(comm, 10);
        std::this_thread::sleep_for(1600ms);
      }
      comm.barrier();
    });
  }
}

TEST(Departure, IsDetectedByARootThatNeverWaits) {
  std::atomic<bool> left{false}, noticed{false};
  run_ranks(3, [&](Bootstrap& bootstrap) {
    {
      Communicator comm(bootstrap);
      auto data = floats(8);
      comm.broadcast(data, 0);
      if (comm.rank() == 0) {
        while (!left) std::this_thread::sleep_for(100us);
        std::this_thread::sleep_for(50ms);  // it does not check at every call
        const auto error = error_of([&] { comm.broadcast(data, 0); });
        noticed = true;
        ASSERT_TRUE(error);
        EXPECT_EQ(error->code(), Errc::peer_lost);
        EXPECT_EQ(error->peer(), 1);
        EXPECT_TRUE(contains(error, "broadcast #2: rank 1 was lost")) << error->what();
      } else if (comm.rank() == 2) {
        while (!noticed) std::this_thread::sleep_for(100us);
        EXPECT_EQ(error_of([&] { comm.broadcast(data, 0); })->peer(), 1);
      }
    }
    if (bootstrap.rank() == 1) left = true;
  });
}

TEST(Departure, IsReportedByItsCauseToARankThatFindsTwoRanksGone) {
  std::atomic<bool> failed{false};
  run_ranks(3, [&](Bootstrap& bootstrap) {
    std::optional<Communicator> comm(bootstrap);
    const Rank self = comm->rank();
    std::optional<Communicator> part = comm->split(self % 2);
    part->barrier();
    if (self == 2) {  // ends in the communicator of all ranks before rank 0 notices the end in the other one
      comm.reset();
      return;
    }
    if (self == 0) {  // loses rank 2, and leaves the communicator of all ranks because of it
      EXPECT_EQ(error_of([&] { part->barrier(); })->code(), Errc::peer_lost);
      comm.reset();
      failed = true;
      return;
    }
    while (!failed) std::this_thread::sleep_for(100us);
    EXPECT_EQ(error_of([&] { comm->barrier(); })->peer(), 2);
  });
}

TEST(Departure, AfterTheLastCallIsNoError) {
  for (int lap = 0; lap < 20; ++lap)
    run_communicators(4, [](Communicator& comm) {
      auto data = floats(20'000);
      comm.broadcast(data, 0);  // the root leaves while other ranks still read
    });
}

TEST(Abort, FromAnyThreadReachesEveryRank) {
  for (const auto& hosts : {kFourOnOneHost, kTwoHosts})
    run_hosts(hosts,
              [](Communicator& comm) {
                comm.barrier();
                std::thread other;
                if (comm.rank() == 1) {
                  other = std::thread([&] {
                    std::this_thread::sleep_for(20ms);
                    comm.abort("the loss is not a number");
                  });
                }
                const auto error = error_of([&] {
                  // Rank 0 never makes this call. Rank 1 waits in it when another of its threads aborts.
                  if (comm.rank() != 0) reduce_floats(comm, 10);
                  for (;;) {
                    comm.progress();
                    if (comm.rank() == 0) comm.barrier();
                  }
                });
                if (other.joinable()) other.join();
                ASSERT_TRUE(error);
                // Rank 0 may have issued a barrier before the abort arrives. Either error is a failure that names it.
                if (error->code() != Errc::mismatch) {
                  EXPECT_EQ(error->code(), Errc::aborted);
                  EXPECT_EQ(error->peer(), 1);
                  EXPECT_TRUE(contains(error, "aborted by rank 1: the loss is not a number")) << error->what();
                }
              },
              {.timeout = 20s});
}

TEST(Abort, ReachesOtherHostsFromARankWithoutFurtherCalls) {
  std::atomic<int> told{0};
  // An abort would end a barrier of the communicator.
  std::barrier together(static_cast<std::ptrdiff_t>(kTwoHosts.size()));
  run_hosts(kTwoHosts,
            [&](Communicator& comm) {
              together.arrive_and_wait();
              if (comm.rank() >= 2) {
                const auto error = error_of([&] { reduce_floats(comm, 10); });
                ++told;
                ASSERT_TRUE(error);
                EXPECT_EQ(error->code(), Errc::aborted);
                EXPECT_TRUE(contains(error, "aborted by rank 1: no data, sorry")) << "on one line: " << error->what();
              } else {
                if (comm.rank() == 1) comm.abort("no data,\nsorry");
                while (told < 2) std::this_thread::sleep_for(1ms);
              }
            },
            {.timeout = 5s});
}

TEST(Abort, FailsEveryPendingOperationAndEveryLaterCall) {
  std::atomic<int> issued{0};
  run_communicators(3, [&](Communicator& comm) {
    auto a = floats(50), b = floats(50);
    if (comm.rank() == 2) {
      while (issued < 2) std::this_thread::sleep_for(100us);
      comm.abort("enough");
    } else {
      Work first = comm.all_reduce_async(a, a), second = comm.all_reduce_async(b, b);
      ++issued;
      EXPECT_EQ(error_of([&] { second.wait(); })->code(), Errc::aborted);
      EXPECT_EQ(error_of([&] { first.wait(); })->code(), Errc::aborted);
    }
    for (int call = 0; call < 3; ++call) EXPECT_EQ(error_of([&] { comm.barrier(); })->code(), Errc::aborted);
  });
}

TEST(BadArguments, SendNothingAndLeaveTheCommunicatorGood) {
  run_communicators(3, [](Communicator& comm) {
    std::vector<float> four(4), twelve(12);
    std::vector<double> doubles(4);
    float* const null = nullptr;
    const auto refused = [&](std::string_view text, auto&& call) {
      const auto error = error_of(call);
      ASSERT_TRUE(error);
      EXPECT_EQ(error->code(), Errc::invalid_argument) << error->what();
      EXPECT_TRUE(contains(error, text)) << error->what();
    };
    refused("input has 4 elements, output has 12", [&] { comm.all_reduce(four, twelve); });
    refused("input is f32, output is f64", [&] { comm.all_reduce(four, doubles); });
    refused("input is null with 4 elements", [&] { comm.all_reduce(ConstBuffer(null, 4, DataType::f32), four); });
    refused("output is null with 4 elements", [&] { comm.all_reduce(four, Buffer(null, 4, DataType::f32)); });
    refused("overlap", [&] { comm.all_reduce(std::span(twelve.data(), 4), std::span(twelve.data() + 2, 4)); });
    refused("overlap", [&] { comm.all_gather(std::span(twelve.data() + 1, 4), twelve); });
    refused("root 3 is not a rank of 0 to 2", [&] { comm.broadcast(four, 3); });
    refused("root -1", [&] { comm.reduce(four, four, ReduceOp::sum, -1); });
    refused("for 3 ranks it must have 12", [&] { comm.all_gather(four, four); });
    refused("for 3 ranks it must have 12", [&] { comm.reduce_scatter(four, four); });
    refused("2 counts for 3 ranks", [&] { comm.all_gather_v(four, twelve, std::vector<std::size_t>{4, 4}); });
    refused("the counts add up to 9", [&] {
      comm.all_gather_v(std::span(four.data(), 3), twelve, std::vector<std::size_t>{3, 3, 3});
    });
    refused("i32 has no pre_scaled_sum", [&] {
      std::vector<int> ints(4);
      comm.all_reduce(ints, ReduceOp::pre_scaled_sum(2));
    });
    refused("no such type: 99", [&] { comm.all_reduce(Buffer(four.data(), 4, static_cast<DataType>(99))); });
    refused("no such type: 99", [&] { comm.broadcast(Buffer(four.data(), 4, static_cast<DataType>(99)), 0); });
    refused("no such type: 99", [&] { comm.explain(Collective::all_reduce, 4, static_cast<DataType>(99)); });
    refused("no such collective", [&] { comm.plan(static_cast<Collective>(99), 4, DataType::f32); });
    refused("no such op: 99", [&] {
      auto op = std::bit_cast<std::array<unsigned char, sizeof(ReduceOp)>>(ReduceOp::sum);
      op[0] = 99;  // kind of the op
      comm.all_reduce(four, std::bit_cast<ReduceOp>(op));
    });
    refused("overflow", [&] {
      const std::size_t huge = ~std::size_t{0} / 2;
      comm.all_reduce(Buffer(four.data(), huge, DataType::f32));
    });
    refused("unknown backend \"rong\"; known: auto, hierarchical, ring, reduce_to_one",
            [&] { comm.all_reduce(four, ReduceOp::sum, {.backend = "rong"}); });
    // None of the refused calls counts as a call.
    std::vector<float> ones(5, 1.f);
    comm.all_reduce(ones);
    EXPECT_EQ(ones, std::vector<float>(5, 3.f));
  });
}

TEST(LateRank, IsWaitedFor) {
  run_communicators(4, [](Communicator& comm) {
    for (const char* backend : {"hierarchical", "ring", "reduce_to_one"}) {
      if (comm.rank() == 2) std::this_thread::sleep_for(30ms);
      std::vector<float> ones(5000, 1.f);
      comm.all_reduce(ones, ReduceOp::sum, {.backend = backend});
      EXPECT_EQ(ones, std::vector<float>(5000, 4.f));
    }
  });
}

}  // namespace
}  // namespace collectives::testing
