// Tests of calls that NCCL performs, on fake GPUs and with a fake of NCCL (fakes/nccl). They check refused calls, the
// order of work in streams, and failures of NCCL. They also check ranks that disagree, are late, leave or never call.
// nccl_backend_test tests the results of every collective.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <barrier>
#include <chrono>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/log.hpp"
#include "collectives/communicator.hpp"
#include "cuda/nccl_communicator.hpp"
#include "fakes/gpu/fake_device.hpp"
#include "support/errors.hpp"
#include "support/hosts.hpp"
#include "support/nccl.hpp"
#include "support/worlds.hpp"

namespace collectives::testing {
namespace {

using namespace std::chrono_literals;

constexpr std::size_t kCount = 1000;

class NcclCalls : public ::testing::Test {
 protected:
  NcclCalls() { gpus.set_nccl(&library); }
  ~NcclCalls() override {
    EXPECT_TRUE(FakeNccl::all_end());
    EXPECT_EQ(FakeNccl::registered(), 0U);
  }
  FakeGpus gpus{4};
  FakeNccl streams{gpus};
  nccl::Loaded library{fake_nccl()};

  /// Runs f(Communicator&) on ranks that have a GPU each.
  template <class F>
  void run(int ranks, F&& f, CommunicatorOptions options = {}) {
    if (options.timeout.count() == 0) options.timeout = 60s;
    run_ranks(ranks, [&](Bootstrap& bootstrap) {
      FakeGpus::set_current(bootstrap.rank());
      Communicator comm(bootstrap, options);
      f(comm);
    });
  }
  OnGpu<float> input(const Communicator& comm, std::size_t count = kCount) {
    return {gpus, input_of<float>(comm.rank(), count)};
  }
};

// ---- chosen backends and refused calls ----

TEST_F(NcclCalls, AutoTakesNcclWhereItCan) {
  run(3, [&](Communicator& comm) {
    const Options in_stream{.stream = nullptr};
    EXPECT_EQ(comm.plan(Collective::all_reduce, kCount, DataType::f32, ReduceOp::sum, in_stream).name, "nccl");
    EXPECT_SAYS(comm.explain(Collective::all_reduce, kCount, DataType::bf16, ReduceOp::sum, in_stream),
                "contributions travel unsummed, their owner folds them in rank order: NCCL rounds 16-bit floats");
    EXPECT_NE(comm.plan(Collective::all_reduce, kCount, DataType::f32).name, "nccl");
    const UserOp mine{"mine", [](const void*, void*, std::size_t, DataType) {}, true};
    const Plan plan = comm.plan(Collective::all_reduce, kCount, DataType::f32, ReduceOp::user(mine), in_stream);
    EXPECT_EQ(plan.device_path, DevicePath::host_copy);
    EXPECT_SAYS(plan.device_path_reason, "a GPU calls no functions");
  });
}

TEST_F(NcclCalls, WhatNcclCannotDoIsRefusedWhereItIsForced) {
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
        comm.all_reduce(data.buffer());  // the communicator still works, because the refused call sent nothing
        comm.barrier();
        EXPECT_EQ(data.values(), sum_of<float>(2, kCount));
      },
      {.backend = "nccl"});
}

TEST_F(NcclCalls, WithoutNcclAForcedBackendIsRefused) {
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

TEST_F(NcclCalls, TwoRanksOnOneGpuAreRefused) {
  const Error error =
      error_of([&] { run_communicators(2, [](Communicator&) {}, {.backend = "nccl", .timeout = 60s}); });
  EXPECT_EQ(error.code(), Errc::unsupported);
  EXPECT_SAYS(error.what(), "ranks 0 and 1 are on one GPU, which NCCL refuses");
  EXPECT_SAYS(error.what(), "NCCL_HOSTID");
}

// ---- streams ----

TEST_F(NcclCalls, ABlockingCallReturnsBeforeTheGpuHasCalled) {
  run(2,
      [&](Communicator& comm) {
        const auto stream = gpus.new_stream();
        const OnGpu<float> data(gpus, kCount), seen(gpus, kCount);
        std::atomic<bool> go = false;
        // The collective runs after the work already in the stream, and before the work that is added later.
        gpus.put(stream, {{data.data(), kCount * 4}}, [&] {
          while (!go) std::this_thread::sleep_for(100us);
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

TEST_F(NcclCalls, MoreCallsThanRecordsAreInFlight) {
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

TEST_F(NcclCalls, GroupsOfTensors) {
  run(3, [&](Communicator& comm) {
    const auto one = input(comm, 7), two = input(comm, 1001);
    for (const ReduceOp op : {ReduceOp::sum, ReduceOp::min}) {  // NCCL computes sums of floats, but not min
      Group group = comm.group();
      group.all_reduce(one.buffer(), one.buffer(), op);
      group.all_reduce(two.buffer(), two.buffer(), op);
      group.run();
      EXPECT_EQ(one.values(), sum_of<float>(3, 7));
      EXPECT_EQ(two.values(), sum_of<float>(3, 1001));
    }
  });
}

TEST_F(NcclCalls, DestructionOfTheCommunicatorWaitsForItsStream) {
  std::vector<float> sums(2);
  run_ranks(2, [&](Bootstrap& bootstrap) {
    FakeGpus::set_current(bootstrap.rank());
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

// ---- memory ----

/// An NCCL without the functions that register and allocate memory, as in old versions.
class WithoutMemory final : public Nccl {
 public:
  explicit WithoutMemory(const Nccl& whole) : whole_(whole) {}
  int major() const noexcept override { return whole_.major(); }
  std::string description() const override { return whole_.description(); }
  std::string new_id() const override { return whole_.new_id(); }
  std::unique_ptr<NcclComm> join(int size, const std::string& id, Rank rank) const override {
    return whole_.join(size, id, rank);
  }
  bool has_memory() const noexcept override { return false; }
  void* allocate(std::size_t) const override { throw Error(Errc::system, "there is no ncclMemAlloc"); }
  void free(void*) const noexcept override {}

 private:
  const Nccl& whole_;
};

TEST_F(NcclCalls, MemoryFromNcclIsRegisteredUntilItIsFreed) {
  const std::size_t before = gpus.allocations();
  run(2, [&](Communicator& comm) {
    const std::size_t seen = FakeNccl::in_registered();
    {
      const DeviceArray<float> data = comm.allocate_on_device<float>(kCount);
      EXPECT_EQ(data.size(), kCount);
      EXPECT_EQ(data.access(), DeviceAccess::registered);
      EXPECT_SAYS(data.describe(), fmt::format(" on GPU {}: registered (NCCL ", comm.rank()));
      gpus.upload(data.data(), input_of<float>(comm.rank(), kCount).data(), kCount * 4);
      comm.all_reduce(data);
      std::vector<float> sum(kCount);
      gpus.download(sum.data(), data.data(), kCount * 4);
      EXPECT_EQ(sum, sum_of<float>(2, kCount));
      EXPECT_GE(FakeNccl::in_registered(), seen + 2);  // input and output
      EXPECT_GE(FakeNccl::registered(), 1U);
    }
    comm.barrier();
    EXPECT_EQ(FakeNccl::registered(), 0U);
    comm.barrier();
  });
  EXPECT_EQ(gpus.allocations(), before);
}

TEST_F(NcclCalls, MemoryOfTheProgramIsRegisteredWhileItsHandleLives) {
  run(2, [&](Communicator& comm) {
    const auto data = input(comm);
    DeviceMemory known = comm.register_memory(data.data(), kCount * 4);
    EXPECT_EQ(known.access(), DeviceAccess::registered);
    EXPECT_EQ(known.data(), reinterpret_cast<std::byte*>(data.data()));
    comm.barrier();
    EXPECT_EQ(FakeNccl::registered(), 2U);
    const std::size_t seen = FakeNccl::in_registered();
    comm.barrier();
    comm.all_reduce(data.buffer());
    comm.barrier();
    EXPECT_EQ(FakeNccl::in_registered(), seen + 4);
    comm.barrier();
    // Regions inside a registered region share its registration, which ends with the last of them.
    DeviceMemory same = comm.register_memory(data.data(), kCount * 4);
    const DeviceMemory piece = comm.register_memory(data.data() + 10, 40);
    known = {};
    comm.barrier();
    EXPECT_EQ(FakeNccl::registered(), 2U);
    comm.barrier();
    same = {};
    EXPECT_EQ(piece.access(), DeviceAccess::registered);
    comm.barrier();
    EXPECT_EQ(FakeNccl::registered(), 2U);
    comm.barrier();
  });
}

TEST_F(NcclCalls, MemoryOfAnotherKindOrGpuIsNotRegistered) {
  run(2, [&](Communicator& comm) {
    const auto data = input(comm);
    FakeGpus::set_current(3);
    const OnGpu<float> elsewhere(gpus, kCount);
    FakeGpus::set_current(comm.rank());
    const OnGpu<float> pinned(gpus, kCount, Device::Kind::pinned), managed(gpus, kCount, Device::Kind::managed);
    std::vector<float> host(kCount);
    const auto refused = [&](void* memory, std::size_t bytes, std::string_view why) {
      const Error error = error_of([&] { (void)comm.register_memory(memory, bytes); });
      EXPECT_EQ(error.code(), Errc::invalid_argument);
      EXPECT_EQ(error.operation(), "register_memory");
      EXPECT_EQ(error.rank(), comm.rank());
      EXPECT_SAYS(error.what(), fmt::format("register_memory: rank {}: ", comm.rank()));
      EXPECT_SAYS(error.what(), why);
    };
    refused(host.data(), 4, "it is host memory, not device memory");
    refused(nullptr, 4, "it is host memory");
    refused(pinned.data(), 4, "it is pinned host memory");
    refused(managed.data(), 4, "it is managed memory");
    refused(elsewhere.data(), 4, fmt::format("it lies on GPU 3, and the communicator works on GPU {}", comm.rank()));
    refused(data.data() + 10, kCount * 4, "4000 B reach beyond the allocation they begin in, which has 3960 B");
    const DeviceMemory piece = comm.register_memory(data.data() + 10, 40);
    refused(data.data(), kCount * 4, "overlap 40 B at");
    refused(data.data() + 5, 40, "overlap 40 B at");
    const DeviceMemory apart = comm.register_memory(data.data() + 20, 40);
    EXPECT_EQ(comm.register_memory(data.data(), 0).data(), nullptr);
    EXPECT_TRUE(comm.allocate_on_device<float>(0).empty());
    comm.all_reduce(data.buffer());  // nothing was sent, and the communicator still works
    EXPECT_EQ(data.values(), sum_of<float>(2, kCount));
  });
}

TEST_F(NcclCalls, MemoryOutlivesTheCommunicator) {
  const std::size_t before = gpus.allocations();
  run_ranks(2, [&](Bootstrap& bootstrap) {
    FakeGpus::set_current(bootstrap.rank());
    const OnGpu<float> mine(gpus, kCount);
    DeviceMemory known;
    DeviceArray<float> own;
    {
      Communicator comm(bootstrap, {.timeout = 60s});
      known = comm.register_memory(mine.data(), kCount * 4);
      own = comm.allocate_on_device<float>(kCount);
      comm.all_reduce(own);
      comm.barrier();
    }
    EXPECT_EQ(own.access(), DeviceAccess::copied);
    EXPECT_SAYS(own.describe(), "its communicator is gone");
    std::vector<float> values(kCount, 1);
    gpus.upload(own.data(), values.data(), kCount * 4);
  });
  EXPECT_EQ(gpus.allocations(), before);
}

TEST_F(NcclCalls, MemoryIsGivenBackBehindWhatUsesIt) {
  run(2, [&](Communicator& comm) {
    const auto stream = gpus.new_stream();
    gpus.slow_down(comm.rank(), 2ms);
    for (int lap = 0; lap < 3; ++lap) {
      const DeviceArray<float> data = comm.allocate_on_device<float>(kCount);
      comm.all_reduce(data, ReduceOp::sum, {.stream = stream});
      comm.all_reduce(data, ReduceOp::sum, {.stream = stream});
    }
    gpus.synchronize(stream);
  });
}

TEST_F(NcclCalls, MemoryOfACommunicatorThatWasAborted) {
  const std::size_t before = gpus.allocations();
  std::barrier behind(2);
  run(2, [&](Communicator& comm) {
    const OnGpu<float> data(gpus, kCount);
    const DeviceMemory known = comm.register_memory(data.data(), kCount * 4);
    const DeviceArray<float> own = comm.allocate_on_device<float>(kCount);
    comm.all_reduce(own);
    behind.arrive_and_wait();  // otherwise this call would be aborted
    comm.abort("enough");
    EXPECT_EQ(error_of([&] { comm.barrier(); }).code(), Errc::aborted);
    EXPECT_EQ(error_of([&] { (void)comm.allocate_on_device<float>(1); }).code(), Errc::aborted);
    EXPECT_EQ(error_of([&] { (void)comm.register_memory(data.data(), 4); }).code(), Errc::aborted);
  });
  EXPECT_EQ(gpus.allocations(), before);
}

TEST_F(NcclCalls, AnErrorIsThrownIfNcclRefusesMemory) {
  for (const char* const function : {"ncclMemAlloc", "ncclCommRegister"}) {
    SCOPED_TRACE(function);
    const std::size_t before = gpus.allocations();
    run(2, [&](Communicator& comm) {
      comm.barrier();
      if (comm.rank() == 1) {
        FakeNccl::fail(function);
        const Error error = error_of([&] { (void)comm.allocate_on_device<float>(1); });
        EXPECT_EQ(error.code(), Errc::system);
        EXPECT_EQ(error.rank(), 1);
        EXPECT_SAYS(error.what(), "allocate_on_device: rank 1: NCCL ");
        EXPECT_SAYS(error.what(), "internal error");
      }
      const auto data = input(comm);
      comm.all_reduce(data.buffer());
      EXPECT_EQ(data.values(), sum_of<float>(2, kCount));
    });
    EXPECT_EQ(gpus.allocations(), before);
  }
}

TEST_F(NcclCalls, UnreleasedMemoryIsReportedAndFreed) {
  const std::size_t before = gpus.allocations();
  std::barrier behind(2);
  ::testing::internal::CaptureStderr();
  run(2, [&](Communicator& comm) {
    DeviceArray<float> data = comm.allocate_on_device<float>(kCount);
    if (comm.rank() == 0) {
      FakeNccl::fail("ncclCommDeregister");
      data = {};
    }
    behind.arrive_and_wait();
    comm.abort("enough");
    EXPECT_EQ(error_of([&] { comm.barrier(); }).code(), Errc::aborted);
  });
  EXPECT_SAYS(::testing::internal::GetCapturedStderr(), "rank 0: giving back device memory: NCCL ");
  EXPECT_EQ(gpus.allocations(), before);
}

TEST_F(NcclCalls, NcclWithoutFunctionsForMemory) {
  const WithoutMemory without(library);
  gpus.set_nccl(&without);
  const std::size_t before = gpus.allocations();
  const LogLevel level = log_level();
  set_log_level(LogLevel::info);
  ::testing::internal::CaptureStderr();
  run(2, [&](Communicator& comm) {
    const DeviceArray<float> one = comm.allocate_on_device<float>(kCount), two = comm.allocate_on_device<float>(kCount);
    const DeviceMemory again = comm.register_memory(one.data(), kCount * 4);
    EXPECT_EQ(one.access(), DeviceAccess::mapped);
    EXPECT_EQ(again.access(), DeviceAccess::mapped);
    comm.all_reduce(one, two);
  });
  const std::string said = ::testing::internal::GetCapturedStderr();
  set_log_level(level);
  static bool first = true;  // a process prints the line only once
  const auto found = said.find("device memory is used unregistered");
  EXPECT_EQ(found != std::string::npos, std::exchange(first, false));
  EXPECT_EQ(said.rfind("device memory is used unregistered"), found);
  EXPECT_EQ(gpus.allocations(), before);
}

// ---- split ----

TEST_F(NcclCalls, PartsOfTheRanksUseNccl) {
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

TEST_F(NcclCalls, PartsWorkOnTheGpuOfTheWhole) {
  run(2, [&](Communicator& comm) {
    FakeGpus::set_current(3 - comm.rank());
    auto part = comm.split(0, 0);
    EXPECT_EQ(FakeGpus::current(), 3 - comm.rank());
    FakeGpus::set_current(comm.rank());
    EXPECT_TRUE(part->topology().gpus.nccl);
    const auto data = input(*part);
    part->all_reduce(data.buffer());
    EXPECT_EQ(data.values(), sum_of<float>(2, kCount));
  });
}

// ---- failures ----

/// An NCCL in which rank 1 fails while the ranks connect, by an exception of type Gone.
struct Gone {};
class LosesRank1 final : public Nccl {
 public:
  explicit LosesRank1(const Nccl& whole) : whole_(whole) {}
  int major() const noexcept override { return whole_.major(); }
  std::string description() const override { return whole_.description(); }
  std::string new_id() const override { return whole_.new_id(); }
  std::unique_ptr<NcclComm> join(int size, const std::string& id, Rank rank) const override {
    if (rank == 1) throw Gone{};
    return whole_.join(size, id, rank);
  }
  bool has_memory() const noexcept override { return whole_.has_memory(); }
  void* allocate(std::size_t bytes) const override { return whole_.allocate(bytes); }
  void free(void* memory) const noexcept override { whole_.free(memory); }

 private:
  const Nccl& whole_;
};

TEST_F(NcclCalls, ARankIsLostBeforeItMeetsTheOthers) {
  const LosesRank1 loses(library);
  gpus.set_nccl(&loses);
  std::atomic<int> failed = 0;
  run_ranks(3, [&](Bootstrap& bootstrap) {
    FakeGpus::set_current(bootstrap.rank());
    try {
      Communicator(bootstrap, {.timeout = 60s});
    } catch (const Gone&) {
      EXPECT_EQ(bootstrap.rank(), 1);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Errc::peer_lost);
      EXPECT_SAYS(error.what(), "construction: rank 1 was lost");
      ++failed;
    }
  });
  EXPECT_EQ(failed, 2);
}

TEST_F(NcclCalls, OperationsInFlightAtAFailureAreRecordedAsFailed) {
  std::atomic<int> begun = 0;
  std::atomic<bool> over = false;
  run(2, [&](Communicator& comm) {
    const auto data = input(comm);
    const auto stream = gpus.new_stream();
    comm.all_reduce(data.buffer());
    ++begun;
    while (begun < 2) std::this_thread::sleep_for(100us);
    if (comm.rank() == 0) {
      for (int i = 0; i < 3; ++i) comm.all_reduce(data.buffer(), ReduceOp::sum, {.stream = stream});
      comm.abort("enough");
      EXPECT_EQ(error_of([&] { comm.barrier(); }).code(), Errc::aborted);
      int unfinished = 0;
      for (const OperationRecord& record : comm.recent_operations())
        unfinished += record.state == OperationRecord::State::started ? 1 : 0;
      EXPECT_EQ(unfinished, 0);
      EXPECT_EQ(comm.recent_operations()[1].state, OperationRecord::State::failed);
      over = true;
    }
    while (!over) std::this_thread::sleep_for(100us);
  });
}

TEST_F(NcclCalls, AMismatchOfCountsFreesTheStreams) {
  run(3, [&](Communicator& comm) {
    const auto data = input(comm);
    const auto stream = gpus.new_stream();
    const Error error = error_of([&] {
      const std::size_t count = comm.rank() == 1 ? kCount - 1 : kCount;
      comm.all_reduce(Buffer(data.data(), count, DataType::f32), ReduceOp::sum, {.stream = stream});
      for (;;) {  // calls return while operations are in flight, so a later call throws the error
        comm.progress();
        comm.barrier();
      }
    });
    EXPECT_EQ(error.code(), Errc::mismatch);
    EXPECT_STREQ(error.what(), "all_reduce #1: rank 1 passed 999 x f32, ranks 0, 2 passed 1000 x f32");
    gpus.synchronize(stream);  // ends all use of the buffers before they are freed
  });
}

TEST_F(NcclCalls, AMismatchOfOpsIsReported) {
  run(2, [&](Communicator& comm) {
    const auto data = input(comm);
    const Error error =
        error_of([&] { comm.all_reduce(data.buffer(), comm.rank() == 0 ? ReduceOp::sum : ReduceOp::product); });
    EXPECT_EQ(error.code(), Errc::mismatch);
    EXPECT_SAYS(error.what(), "all_reduce #1: rank 0 passed 1000 x f32 sum, rank 1 passed 1000 x f32 product");
  });
}

TEST_F(NcclCalls, ARankThatNeverCallsIsATimeout) {
  std::atomic<int> failed = 0;
  run(3, [&](Communicator& comm) {
    const auto data = input(comm);
    while (comm.rank() == 1 && failed < 2) std::this_thread::sleep_for(100us);
    if (comm.rank() == 1) return;
    const Error error = error_of([&] { comm.all_reduce(data.buffer(), ReduceOp::sum, {.timeout = 200ms}); });
    ++failed;
    EXPECT_EQ(error.code(), Errc::timeout);
    EXPECT_SAYS(error.what(), "rank 1 has not arrived");
  });
}

TEST_F(NcclCalls, ARankThatLeavesIsReported) {
  run(3, [&](Communicator& comm) {
    const auto data = input(comm);
    comm.all_reduce(data.buffer());
    if (comm.rank() == 1) return;
    const Error error = error_of([&] { comm.all_reduce(data.buffer()); });
    EXPECT_EQ(error.code(), Errc::peer_lost);
    EXPECT_SAYS(error.what(), "rank 1 was lost");
  });
}

TEST_F(NcclCalls, AbortFreesStreams) {
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

TEST_F(NcclCalls, ALaterCallThatSeesTheFailureFirstFreesTheStreams) {
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
          while (!aborted) std::this_thread::sleep_for(100us);
          EXPECT_EQ(error_of([&] { comm.barrier(); }).code(), Errc::aborted);
          gpus.synchronize(stream);
        } else {
          while (!in_flight) std::this_thread::sleep_for(100us);
          comm.abort("enough");
          aborted = true;
        }
      },
      {.progress_thread = false});
}

TEST_F(NcclCalls, APathThatAllocatesWaitsForOperationsInFlight) {
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

TEST_F(NcclCalls, ScratchMemoryIsTakenWhenNothingIsInFlight) {
  std::atomic<bool> issued = false;
  run(2, [&](Communicator& comm) {
    gpus.allocate_when_idle(comm.rank());
    const auto one = input(comm), two = input(comm);
    comm.all_reduce(one.buffer());  // NCCL has connected the ranks
    // The operation in flight waits for rank 1, which waits until rank 0 has issued.
    while (comm.rank() == 1 && !issued) std::this_thread::sleep_for(100us);
    Work sum = comm.all_reduce_async(one.buffer(), one.buffer());
    Work max = comm.all_reduce_async(two.buffer(), two.buffer(), ReduceOp::max);
    for (int lap = 0; comm.rank() == 0 && lap < 50; ++lap, std::this_thread::sleep_for(1ms)) comm.progress();
    issued = true;
    sum.wait();
    max.wait();
    std::vector<float> expected = input_of<float>(0, kCount);
    const std::vector<float> other = input_of<float>(1, kCount);
    for (std::size_t i = 0; i < kCount; ++i) expected[i] = std::max(expected[i], other[i]);
    EXPECT_EQ(two.values(), expected);
  });
}

TEST_F(NcclCalls, NcclThatFails) {
  for (const char* const function :
       {"ncclCommGetAsyncError", "ncclAllReduce", "ncclGroupStart", "ncclGroupEnd", "in a stream"}) {
    SCOPED_TRACE(function);
    std::atomic<int> behind = 0;
    run(2, [&](Communicator& comm) {
      const auto data = input(comm);
      comm.barrier();
      if (comm.rank() == 0) FakeNccl::fail(function);
      comm.barrier();
      ++behind;
      while (behind < 2) std::this_thread::sleep_for(100us);  // otherwise the failure could be that of the barrier
      const Error error = error_of([&] { comm.all_reduce(data.buffer()); });
      EXPECT_EQ(error.code(), Errc::system);
      EXPECT_SAYS(error.what(), "all_reduce #3: rank ");
      EXPECT_SAYS(error.what(), "NCCL ");
      EXPECT_EQ(error_of([&] { comm.barrier(); }).code(), Errc::system);
    });
  }
}

TEST_F(NcclCalls, NcclThatFailsToMeet) {
  for (const char* const function : {"ncclGetUniqueId", "ncclCommInitRankConfig", "ncclCommGetAsyncError"}) {
    SCOPED_TRACE(function);
    FakeNccl::fail(function);
    std::atomic<int> failed = 0;
    run_ranks(3, [&](Bootstrap& bootstrap) {
      FakeGpus::set_current(bootstrap.rank());
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
