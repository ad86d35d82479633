// Calls that go by NCCL, on pretended GPUs and with a library that stands in for NCCL: what is refused, what streams
// promise, ranks that disagree, are late, leave or never come, and NCCL that fails. Results of every collective are
// nccl_backend_test's subject.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include "collectives/communicator.hpp"
#include "nccl/communicator.hpp"
#include "support/errors.hpp"
#include "support/hosts.hpp"
#include "support/nccl.hpp"
#include "support/pretended_device.hpp"
#include "support/worlds.hpp"

namespace collectives::testing {
namespace {

using namespace std::chrono_literals;

constexpr std::size_t kCount = 1000;

class CallsByNccl : public ::testing::Test {
 protected:
  CallsByNccl() { gpus.set_nccl(&library); }
  ~CallsByNccl() override { EXPECT_EQ(StandIn::alive(), 0U); }
  PretendedGpus gpus{4};
  StandIn streams{gpus};
  nccl::Loaded library{stand_in()};

  /// Ranks that work on a GPU each.
  template <class F>
  void run(int ranks, F&& f, CommunicatorOptions options = {}) {
    if (options.timeout.count() == 0) options.timeout = 60s;
    run_ranks(ranks, [&](Bootstrap& bootstrap) {
      PretendedGpus::set_current(bootstrap.rank());
      Communicator comm(bootstrap, options);
      f(comm);
    });
  }
  OnGpu<float> input(const Communicator& comm, std::size_t count = kCount) {
    return {gpus, input_of<float>(comm.rank(), count)};
  }
};

// ---- what is chosen, and what is refused ----

TEST_F(CallsByNccl, AutoTakesNcclWhereItCan) {
  run(3, [&](Communicator& comm) {
    const Options in_stream{.stream = nullptr};
    EXPECT_EQ(comm.plan(Collective::all_reduce, kCount, DataType::f32, ReduceOp::sum, in_stream).name, "nccl");
    EXPECT_SAYS(comm.explain(Collective::all_reduce, kCount, DataType::bf16, ReduceOp::sum, in_stream),
                "contributions travel unsummed, their owner folds them in rank order: NCCL rounds 16-bit floats");
    EXPECT_NE(comm.plan(Collective::all_reduce, kCount, DataType::f32).name, "nccl");
    const UserOp mine{"mine", [](const void*, void*, std::size_t, DataType) {}, true};
    const Plan plan = comm.plan(Collective::all_reduce, kCount, DataType::f32, ReduceOp::user(mine), in_stream);
    EXPECT_EQ(plan.way, Way::staged);
    EXPECT_SAYS(plan.way_reason, "a GPU calls no functions");
  });
}

TEST_F(CallsByNccl, WhatNcclCannotDoIsRefusedWhereItIsForced) {
  run(2,
      [&](Communicator& comm) {
        const auto data = input(comm);
        const UserOp mine{"mine", [](const void*, void*, std::size_t, DataType) {}, true};
        std::vector<float> host(kCount, 1);
        const Error op = error_of([&] { comm.all_reduce(data.buffer(), ReduceOp::user(mine)); });
        EXPECT_EQ(op.code(), Errc::unsupported);
        EXPECT_SAYS(op.what(), "a GPU calls no functions of the program's own");
        const Error memory = error_of([&] { comm.all_reduce(host); });
        EXPECT_EQ(memory.code(), Errc::unsupported);
        EXPECT_SAYS(memory.what(), "backend \"nccl\" needs device memory");
        const Buffer odd(reinterpret_cast<std::byte*>(data.data()) + 1, kCount - 1, DataType::f32);
        const Error address = error_of([&] { comm.all_reduce(odd); });
        EXPECT_EQ(address.code(), Errc::invalid_argument);
        EXPECT_SAYS(address.what(), "lies at no multiple of the 4 bytes");
        comm.all_reduce(data.buffer());  // nothing was sent
        comm.barrier();
        EXPECT_EQ(data.values(), sum_of<float>(2, kCount));
      },
      {.backend = "nccl"});
}

TEST_F(CallsByNccl, ThereIsNoNccl) {
  gpus.set_nccl(nullptr);
  run(2, [&](Communicator& comm) {
    const auto data = input(comm);
    EXPECT_SAYS(comm.explain(Collective::all_reduce, 1, DataType::f32, ReduceOp::sum, {.stream = nullptr}),
                "not by NCCL: rank 0: NCCL cannot be loaded");
    comm.all_reduce(data.buffer());
    EXPECT_EQ(data.values(), sum_of<float>(2, kCount));
    EXPECT_SAYS(error_of([&] { comm.all_reduce(data.buffer(), ReduceOp::sum, {.backend = "nccl"}); }).what(),
                "NCCL cannot be loaded");
  });
  const Error error = error_of([&] { run(2, [](Communicator&) {}, {.backend = "nccl"}); });
  EXPECT_EQ(error.code(), Errc::unsupported);
  EXPECT_SAYS(error.what(), "construction: backend \"nccl\" was asked for: rank 0: NCCL cannot be loaded");
}

TEST_F(CallsByNccl, TwoRanksOnOneGpu) {
  const Error error =
      error_of([&] { run_communicators(2, [](Communicator&) {}, {.backend = "nccl", .timeout = 60s}); });
  EXPECT_EQ(error.code(), Errc::unsupported);
  EXPECT_SAYS(error.what(), "ranks 0 and 1 are on one GPU, which NCCL refuses");
  EXPECT_SAYS(error.what(), "NCCL_HOSTID");
}

// ---- streams ----

TEST_F(CallsByNccl, ABlockingCallReturnsBeforeTheGpuHasCalled) {
  run(2,
      [&](Communicator& comm) {
        const auto stream = gpus.new_stream();
        const OnGpu<float> data(gpus, kCount), seen(gpus, kCount);
        std::atomic<bool> go = false;
        // What the stream holds comes first, and what comes later sees the result.
        gpus.put(stream, {{data.data(), kCount * 4}}, [&] {
          while (!go) std::this_thread::yield();
          std::fill_n(data.data(), kCount, 1.F);
        });
        comm.all_reduce(data.buffer(), ReduceOp::sum, {.stream = stream});
        gpus.put(stream, {{data.data(), kCount * 4}, {seen.data(), kCount * 4}},
                 [&] { std::copy_n(data.data(), kCount, seen.data()); });
        go = true;
        gpus.synchronize(stream);
        EXPECT_EQ(seen.values(), std::vector<float>(kCount, 2));
      },
      {.backend = "nccl"});
}

TEST_F(CallsByNccl, MoreInFlightThanRecordsReach) {
  run(3, [&](Communicator& comm) {
    gpus.slow_down(comm.rank(), 1ms);
    const auto stream = gpus.new_stream();
    const OnGpu<float> sum(gpus, std::vector<float>{1});
    std::vector<Work> works;
    const OnGpu<std::int32_t> other(gpus, std::vector<std::int32_t>{1});
    for (int i = 0; i < 10; ++i) works.push_back(comm.all_reduce_async(other.buffer(), other.buffer()));
    for (int i = 0; i < 100; ++i) comm.all_reduce(sum.buffer(), ReduceOp::average, {.stream = stream});
    comm.barrier();
    for (Work& work : works) work.wait();
    gpus.synchronize(stream);
    EXPECT_EQ(sum.values()[0], 1);
    EXPECT_EQ(other.values()[0], 59049);
  });
}

TEST_F(CallsByNccl, GroupsOfTensors) {
  run(3, [&](Communicator& comm) {
    const auto one = input(comm, 7), two = input(comm, 1001);
    for (const ReduceOp op : {ReduceOp::sum, ReduceOp::min}) {  // by NCCL, and unsummed
      Group group = comm.group();
      group.all_reduce(one.buffer(), one.buffer(), op);
      group.all_reduce(two.buffer(), two.buffer(), op);
      group.run();
      EXPECT_EQ(one.values(), sum_of<float>(3, 7));
      EXPECT_EQ(two.values(), sum_of<float>(3, 1001));
    }
  });
}

TEST_F(CallsByNccl, TheCommunicatorGoesBeforeTheStreamIsDone) {
  std::vector<float> sums(2);
  run_ranks(2, [&](Bootstrap& bootstrap) {
    PretendedGpus::set_current(bootstrap.rank());
    gpus.slow_down(bootstrap.rank(), 5ms);
    const auto stream = gpus.new_stream();
    const OnGpu<float> sum(gpus, std::vector<float>{1});
    {
      Communicator comm(bootstrap, {.timeout = 60s});
      comm.all_reduce(sum.buffer(), ReduceOp::sum, {.stream = stream});
    }
    gpus.synchronize(stream);
    EXPECT_EQ(sum.values()[0], 2);
  });
}

// ---- split ----

TEST_F(CallsByNccl, PartsOfTheRanks) {
  run(4, [&](Communicator& comm) {
    auto part = comm.split(comm.rank() == 3 ? -1 : comm.rank() % 2, -comm.rank());
    if (comm.rank() == 3) {
      EXPECT_FALSE(part.has_value());
    } else {
      const auto data = input(*part);
      EXPECT_TRUE(part->topology().gpus.nccl);
      part->all_reduce(data.buffer());
      EXPECT_EQ(data.values(), sum_of<float>(part->size(), kCount));
    }
    const auto data = input(comm);
    comm.all_reduce(data.buffer());
    EXPECT_EQ(data.values(), sum_of<float>(4, kCount));
  });
}

// ---- failures ----

TEST_F(CallsByNccl, RanksThatDisagree) {
  run(3, [&](Communicator& comm) {
    const auto data = input(comm);
    const auto stream = gpus.new_stream();
    const Error error = error_of([&] {
      const std::size_t count = comm.rank() == 1 ? kCount - 1 : kCount;
      comm.all_reduce(Buffer(data.data(), count, DataType::f32), ReduceOp::sum, {.stream = stream});
      for (;;) {  // in flight: it is a later call that throws
        comm.progress();
        comm.barrier();
      }
    });
    EXPECT_EQ(error.code(), Errc::mismatch);
    EXPECT_STREQ(error.what(), "all_reduce #1: rank 1 passed 999 x f32, ranks 0, 2 passed 1000 x f32");
    gpus.synchronize(stream);  // which was freed
  });
}

TEST_F(CallsByNccl, RanksThatDisagreeInWhatNcclDoesNotSee) {
  run(2, [&](Communicator& comm) {
    const auto data = input(comm);
    const Error error =
        error_of([&] { comm.all_reduce(data.buffer(), comm.rank() == 0 ? ReduceOp::sum : ReduceOp::product); });
    EXPECT_EQ(error.code(), Errc::mismatch);
    EXPECT_SAYS(error.what(), "all_reduce #1: rank 0 passed 1000 x f32 sum, rank 1 passed 1000 x f32 product");
  });
}

TEST_F(CallsByNccl, ARankThatNeverCalls) {
  std::atomic<int> failed = 0;
  run(3, [&](Communicator& comm) {
    const auto data = input(comm);
    while (comm.rank() == 1 && failed < 2) std::this_thread::yield();
    if (comm.rank() == 1) return;
    const Error error = error_of([&] { comm.all_reduce(data.buffer(), ReduceOp::sum, {.timeout = 200ms}); });
    ++failed;
    EXPECT_EQ(error.code(), Errc::timeout);
    EXPECT_SAYS(error.what(), "rank 1 has not arrived");
  });
}

TEST_F(CallsByNccl, ARankThatLeaves) {
  run(3, [&](Communicator& comm) {
    const auto data = input(comm);
    comm.all_reduce(data.buffer());
    if (comm.rank() == 1) return;
    const Error error = error_of([&] { comm.all_reduce(data.buffer()); });
    EXPECT_EQ(error.code(), Errc::peer_lost);
    EXPECT_SAYS(error.what(), "rank 1 was lost");
  });
}

TEST_F(CallsByNccl, AbortFreesStreams) {
  run(2, [&](Communicator& comm) {
    const auto data = input(comm);
    const auto stream = gpus.new_stream();
    if (comm.rank() == 0) {
      Work work = comm.all_reduce_async(data.buffer(), data.buffer(), ReduceOp::sum, {.stream = stream});
      EXPECT_EQ(error_of([&] { work.wait(); }).code(), Errc::aborted);
      gpus.synchronize(stream);
    } else {
      comm.abort("enough");
    }
  });
}

TEST_F(CallsByNccl, ACallBehindThatHearsOfTheFailureFirstFreesStreams) {
  std::atomic<bool> in_flight = false, aborted = false;
  run(2,
      [&](Communicator& comm) {
        const auto data = input(comm);
        const auto stream = gpus.new_stream();
        const auto reduce = [&] { comm.all_reduce(data.buffer(), data.buffer(), ReduceOp::sum, {.stream = stream}); };
        reduce();
        gpus.synchronize(stream);
        if (comm.rank() == 0) {
          reduce();
          in_flight = true;
          while (!aborted) std::this_thread::yield();
          EXPECT_EQ(error_of([&] { comm.barrier(); }).code(), Errc::aborted);
          gpus.synchronize(stream);
        } else {
          while (!in_flight) std::this_thread::yield();
          comm.abort("enough");
          aborted = true;
        }
      },
      {.progress_thread = false});
}

TEST_F(CallsByNccl, AWayThatMayTakeMemoryWaitsForWhatIsInFlight) {
  run(2, [&](Communicator& comm) {
    const auto one = input(comm), two = input(comm);
    const auto stream = gpus.new_stream();
    gpus.slow_down(comm.rank(), 2000us);
    for (int i = 0; i < 3; ++i) {
      comm.all_reduce(one.buffer(), one.buffer(), ReduceOp::max, {.stream = stream});
      comm.all_reduce(two.buffer(), two.buffer(), ReduceOp::sum, {.backend = "ring", .stream = stream});
    }
    gpus.synchronize(stream);
    std::vector<float> sum = sum_of<float>(2, kCount);
    for (float& value : sum) value *= 4;
    EXPECT_EQ(two.values(), sum);
  });
}

TEST_F(CallsByNccl, NcclThatFails) {
  for (const char* const function :
       {"ncclCommGetAsyncError", "ncclAllReduce", "ncclGroupStart", "ncclGroupEnd", "in a stream"}) {
    SCOPED_TRACE(function);
    run(2, [&](Communicator& comm) {
      const auto data = input(comm);
      comm.barrier();
      if (comm.rank() == 0) StandIn::fail(function);
      comm.barrier();
      const Error error = error_of([&] { comm.all_reduce(data.buffer()); });
      EXPECT_EQ(error.code(), Errc::system);
      EXPECT_SAYS(error.what(), "all_reduce #3: rank ");
      EXPECT_SAYS(error.what(), "NCCL ");
      EXPECT_EQ(error_of([&] { comm.barrier(); }).code(), Errc::system);
    });
  }
}

TEST_F(CallsByNccl, NcclThatFailsToMeet) {
  for (const char* const function : {"ncclGetUniqueId", "ncclCommInitRankConfig", "ncclCommGetAsyncError"}) {
    SCOPED_TRACE(function);
    StandIn::fail(function);
    std::atomic<int> failed = 0;
    run_ranks(3, [&](Bootstrap& bootstrap) {
      PretendedGpus::set_current(bootstrap.rank());
      const Error error = error_of([&] { Communicator(bootstrap, {.timeout = 60s}); });
      EXPECT_EQ(error.code(), Errc::system);
      EXPECT_SAYS(error.what(), "internal error");
      ++failed;
    });
    EXPECT_EQ(failed, 3);
  }
}

}  // namespace
}  // namespace collectives::testing
