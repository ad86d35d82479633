// Tests of Work, the handle of an asynchronous operation: progress in calls, waits, and the progress thread.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <span>
#include <thread>
#include <vector>

#include "collectives/communicator.hpp"
#include "core/tuning_parameters.hpp"
#include "support/hosts.hpp"
#include "support/ranks.hpp"

namespace collectives::testing {
namespace {

using namespace std::chrono_literals;

const std::vector<int> kTwoHosts{0, 0, 1, 1, 1};

TEST(Work, ProgressesByTestAlone) {
  run_communicators(3, [](Communicator& comm) {
    std::vector<float> data(100'000, 1.f);
    Work work = comm.all_reduce_async(data, data);
    while (!work.test()) std::this_thread::yield();
    EXPECT_EQ(data, std::vector<float>(100'000, 3.f));
    EXPECT_TRUE(work.test());  // a complete operation stays complete
    work.wait();
  });
}

/// Returns a tuning with which long vectors pass through staging memory, also if the ranks are threads.
TuningParameters staged_tuning() {
  TuningParameters tuning;
  tuning.zero_copy_bytes = tuning.single_copy_bytes = tuning.single_copy_reduce_bytes = Tuning::kNever;
  return tuning;
}

TEST(Work, LongVectorsInChunksLongerThanTheDistanceBetweenMoves) {
  TuningParameters tuning = staged_tuning();
  for (const std::size_t chunk : {std::size_t{64} << 10, std::size_t{1} << 20}) {
    for (const std::size_t streaming : {std::size_t{1}, Tuning::kNever}) {
      tuning.chunk_bytes = chunk;
      tuning.streaming_bytes = streaming;
      run_communicators(2,
                        [](Communicator& comm) {
                          constexpr std::size_t kCount = 3'000'001;
                          std::vector<float> in(kCount), out(kCount), all(2 * kCount);
                          for (std::size_t i = 0; i < kCount; ++i)
                            in[i] = static_cast<float>(i % 1000 + 1000 * static_cast<std::size_t>(comm.rank()));
                          comm.all_reduce(std::span<const float>(in), std::span(out));
                          comm.all_gather(std::span<const float>(in), std::span(all));
                          comm.all_reduce(in);
                          std::size_t wrong = 0;
                          for (std::size_t i = 0; i < kCount; ++i) {
                            const auto x = static_cast<float>(i % 1000);
                            if (out[i] != 2 * x + 1000 || in[i] != out[i] || all[i] != x || all[kCount + i] != x + 1000)
                              ++wrong;
                          }
                          EXPECT_EQ(wrong, 0u);
                        },
                        {.tuning = tuning});
    }
  }
}

TEST(Work, AnotherThreadContinuesAnUnfinishedOperation) {
  TuningParameters tuning = staged_tuning();
  tuning.streaming_bytes = 1;
  run_communicators(2,
                    [](Communicator& comm) {
                      constexpr std::size_t kCount = 1'000'000;
                      const std::vector<float> in(kCount, 1.f);
                      std::vector<float> out(kCount);
                      Work work = comm.all_reduce_async(std::span<const float>(in), std::span(out));
                      for (int turn = 0; turn < 20; ++turn) work.test();
                      std::thread([&] {
                        work.wait();
                        EXPECT_EQ(std::ranges::count(out, 2.f), static_cast<std::ptrdiff_t>(kCount));
                      }).join();
                    },
                    {.tuning = tuning});
}

TEST(Work, ProgressesInsideOtherCalls) {
  run_communicators(2, [](Communicator& comm) {
    std::vector<float> first(50'000, 1.f), second(10, 1.f);
    Work work = comm.all_reduce_async(first, first);
    comm.all_reduce(second);  // issued later, so the first operation is complete when this call returns
    EXPECT_TRUE(work.test());
    EXPECT_EQ(first, std::vector<float>(50'000, 2.f));
  });
}

TEST(Work, WaitForGivesUpAndTheOperationGoesOn) {
  std::atomic<bool> gave_up{false};
  run_communicators(2, [&](Communicator& comm) {
    std::vector<int> data(10, 1);
    if (comm.rank() == 0) {
      Work work = comm.all_reduce_async(data, data);
      EXPECT_FALSE(work.wait_for(5ms));
      gave_up = true;
      work.wait();
    } else {
      while (!gave_up) std::this_thread::sleep_for(100us);
      comm.all_reduce(data);
    }
    EXPECT_EQ(data, std::vector<int>(10, 2));
  });
}

TEST(Work, DestructionOfUnfinishedWorkWaits) {
  run_communicators(3, [](Communicator& comm) {
    std::vector<int> data(5000, 1);
    { const Work work = comm.all_reduce_async(data, data); }
    EXPECT_EQ(data, std::vector<int>(5000, 3));
    Work work = comm.all_reduce_async(data, data);
    work = comm.barrier_async();  // the assignment first waits for the operation that `work` held
    EXPECT_EQ(data, std::vector<int>(5000, 9));
    work.wait();
  });
}

TEST(Work, OutlivesItsCommunicator) {
  run_ranks(2, [](Bootstrap& bootstrap) {
    std::vector<int> data(10, 1);
    Work work;
    {
      Communicator comm(bootstrap);
      if (comm.rank() == 0) work = comm.all_reduce_async(data, data);
      // Rank 1 destroys its communicator without making the call.
    }
    if (bootstrap.rank() == 0) {
      try {
        work.wait();
        ADD_FAILURE() << "no error";
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), Errc::peer_lost);
      }
    }
  });
}

const CommunicatorOptions kNoProgressThread{.timeout = 20s, .progress_thread = false};

TEST(Work, OfTwoCommunicatorsIsWaitedForInOppositeOrders) {
  for (const auto& hosts : {std::vector<int>{0, 0, 0}, kTwoHosts})
    run_hosts(
        hosts,
        [](Communicator& comm) {
          auto other = comm.split(0);
          const bool even = comm.rank() % 2 == 0;
          for (const char* backend : {"hierarchical", "ring"})
            for (int how = 0; how < 3; ++how) {
              std::vector<float> a(300'000, 1.f), b(300'000, 2.f);
              Work first = comm.all_reduce_async(a, a, ReduceOp::sum, {.backend = backend});
              Work second = other->all_reduce_async(b, b, ReduceOp::sum, {.backend = backend});
              Work& mine = even ? first : second;
              if (how == 0) mine.wait();
              if (how == 1 && !even) first.wait();
              if (how == 1) other->barrier();
              if (how == 2)
                while (!mine.test()) std::this_thread::yield();
              first.wait();
              second.wait();
              const auto p = static_cast<float>(comm.size());
              EXPECT_EQ(a, std::vector<float>(a.size(), p));
              EXPECT_EQ(b, std::vector<float>(b.size(), 2 * p));
            }
        },
        kNoProgressThread);
}

TEST(Work, IsHandedToAnotherThread) {
  run_communicators(
      2,
      [](Communicator& comm) {
        auto other = comm.split(0);
        for (int lap = 0; lap < 20; ++lap) {
          std::vector<float> a(100'000, 1.f), b(100'000, 1.f);
          Work work = comm.all_reduce_async(a, a);
          std::thread thread([&] { work.wait(); });  // from here on, this thread no longer progresses the operation
          other->all_reduce(b);
          thread.join();
          comm.all_reduce(a);
          EXPECT_EQ(a, std::vector<float>(a.size(), 4.f));
          EXPECT_EQ(b, std::vector<float>(b.size(), 2.f));
        }
      },
      kNoProgressThread);
}

TEST(ProgressThread, FinishesWorkWhileTheProgramComputes) {
  std::atomic<int> returned{0};
  run_communicators(3,
                    [&](Communicator& comm) {
                      for (int lap = 1; lap <= 50; ++lap) {
                        std::vector<float> data(20'000, 1.f);
                        if (comm.rank() == 0) {
                          Work work = comm.all_reduce_async(data, data);
                          // Blocking calls of the other ranks need this rank, which makes no call until they have
                          // returned.
                          while (returned < 2 * lap) std::this_thread::sleep_for(100us);
                          work.wait();
                        } else {
                          comm.all_reduce(data);
                          ++returned;
                        }
                        EXPECT_EQ(data, std::vector<float>(20'000, 3.f));
                      }
                    },
                    {.progress_thread = true});
}

TEST(ProgressThread, CountsTheBytesItSends) {
  run_communicators(2,
                    [](Communicator& comm) {
                      std::vector<float> data(200'000, 1.f);
                      Work work = comm.all_reduce_async(data, data, ReduceOp::sum, {.backend = "ring"});
                      while (comm.bytes_sent() < data.size() * sizeof(float)) std::this_thread::sleep_for(100us);
                      work.wait();
                      EXPECT_EQ(comm.bytes_sent(), data.size() * sizeof(float));
                    },
                    {.progress_thread = true});
}

TEST(ProgressThread, SharesTheWorkWithAProgramThatWaits) {
  run_communicators(3,
                    [](Communicator& comm) {
                      for (int lap = 0; lap < 50; ++lap) {
                        std::vector<float> data(20'000, 1.f), more(7, 1.f);
                        Work first = comm.all_reduce_async(data, data), second = comm.all_reduce_async(more, more);
                        second.wait();
                        while (!first.test()) std::this_thread::yield();
                        EXPECT_EQ(data, std::vector<float>(20'000, 3.f));
                        EXPECT_EQ(more, std::vector<float>(7, 3.f));
                        comm.barrier();
                      }
                    },
                    {.progress_thread = true});
}

TEST(Work, TakesTheLongestTimeouts) {
  run_communicators(2,
                    [](Communicator& comm) {
                      std::vector<int> data(5, 1);
                      Work work = comm.all_reduce_async(data, data);
                      EXPECT_TRUE(work.wait_for(std::chrono::nanoseconds::max() - 1ns));
                    },
                    {.timeout = std::chrono::nanoseconds::max() - 1ns});
}

}  // namespace
}  // namespace collectives::testing
