// Tests of the device path `kernels`, on which GPU kernels read and write the memory of other ranks. A device path is a
// way to handle buffers in GPU memory. The tests count kernels and copies, and check the calls for which another path
// is used. They also check ranks that are processes, and failures during a call. device_backend_test tests the results
// of every collective.
#include <gtest/gtest.h>

#include <chrono>
#include <csignal>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "collectives/communicator.hpp"
#include "communicator/operation.hpp"
#include "device/kernel_path.hpp"
#include "fakes/gpu/fake_device.hpp"
#include "planning/device_path_choice.hpp"
#include "support/device_processes.hpp"
#include "support/ranks.hpp"
#include "support/worlds.hpp"

namespace collectives::testing {
namespace {

using namespace std::chrono_literals;

constexpr std::size_t kCount = 1000;

class DeviceKernels : public ::testing::Test {
 protected:
  FakeGpus gpus{2};

  template <class F>
  void run(int ranks, F&& f) {
    run_ranks(ranks, [&](Bootstrap& bootstrap) {
      FakeGpus::set_current(bootstrap.rank() % 2);
      Communicator comm(bootstrap, {.timeout = 60s});
      f(comm);
    });
  }
  /// Returns the numbers of kernels and copies that all GPUs perform while all ranks make `call`.
  using Counted = std::pair<std::size_t, std::size_t>;
  template <class F>
  Counted counted(Communicator& comm, F&& call) {
    comm.barrier();
    const Counted before{gpus.kernels(), gpus.copies()};
    comm.barrier();
    call();
    comm.barrier();
    const Counted after{gpus.kernels(), gpus.copies()};
    comm.barrier();
    return {after.first - before.first, after.second - before.second};
  }
};

// ---- numbers of kernels and copies ----

TEST_F(DeviceKernels, AnAllReduceIsAKernelOfEachRankAndNoCopy) {
  run(4, [&](Communicator& comm) {
    const OnGpu<float> in(gpus, input_of<float>(comm.rank(), kCount)), out(gpus, kCount);
    EXPECT_EQ(counted(comm, [&] { comm.all_reduce(in.buffer(), out.buffer()); }), (Counted{4, 0}));
    EXPECT_EQ(out.values(), sum_of<float>(4, kCount));
    EXPECT_EQ(in.values(), input_of<float>(comm.rank(), kCount));
    EXPECT_EQ(counted(comm, [&] { comm.all_reduce(in.buffer()); }), (Counted{4, 0}));
    EXPECT_EQ(in.values(), sum_of<float>(4, kCount));
  });
}

TEST_F(DeviceKernels, OtherReductionsAreKernelsToo) {
  run(3, [&](Communicator& comm) {
    const OnGpu<float> in(gpus, input_of<float>(comm.rank(), 3 * kCount)), part(gpus, kCount);
    EXPECT_EQ(counted(comm, [&] { comm.reduce_scatter(in.buffer(), part.buffer()); }), (Counted{3, 0}));
    EXPECT_EQ(counted(comm, [&] { comm.reduce(in.buffer(), in.buffer(), ReduceOp::sum, 1); }), (Counted{3, 0}));
    if (comm.rank() == 1) {
      EXPECT_EQ(in.values(), sum_of<float>(3, 3 * kCount));
    }
  });
}

TEST_F(DeviceKernels, GathersAreCopiesToEachRank) {
  run(3, [&](Communicator& comm) {
    const OnGpu<float> in(gpus, input_of<float>(comm.rank(), kCount)), all(gpus, 3 * kCount);
    EXPECT_EQ(counted(comm, [&] { comm.all_gather(in.buffer(), all.buffer()); }), (Counted{0, 9}));
    EXPECT_EQ(counted(comm, [&] { comm.broadcast(in.buffer(), 2); }),
              (Counted{0, 6}));  // no copy to the root, which has the values
    EXPECT_EQ(in.values(), input_of<float>(2, kCount));
  });
}

TEST_F(DeviceKernels, ResultsAreCopiedIfAKernelCannotWriteToAllRanks) {
  run(10, [&](Communicator& comm) {
    const OnGpu<float> data(gpus, input_of<float>(comm.rank(), kCount));
    EXPECT_EQ(counted(comm, [&] { comm.all_reduce(data.buffer()); }), (Counted{10, 20}));
    EXPECT_EQ(data.values(), sum_of<float>(10, kCount));
  });
}

TEST_F(DeviceKernels, MemoryWithoutPeerAccessIsCopied) {
  run(2, [&](Communicator& comm) {
    const auto stream = gpus.new_stream();
    const OnGpu<float> managed(gpus, kCount, Device::Kind::managed);
    const auto in = input_of<float>(comm.rank(), kCount);
    std::ranges::copy(in, managed.data());
    EXPECT_EQ(counted(comm, [&] { comm.all_reduce(managed.buffer(), ReduceOp::sum, {.stream = stream}); }),
              (Counted{2, 4}));
    gpus.synchronize(stream);
    EXPECT_EQ(std::vector<float>(managed.data(), managed.data() + kCount), sum_of<float>(2, kCount));

    // Only one rank has an unaligned buffer, which it first copies. The other rank works as usual.
    const OnGpu<std::byte> bytes(gpus, kCount * 4 + 4);
    std::byte* const at = bytes.data() + (comm.rank() == 1 ? 2 : 0);
    gpus.upload(at, in.data(), kCount * 4);
    EXPECT_EQ(counted(comm, [&] { comm.all_reduce(Buffer{at, kCount, DataType::f32}); }), (Counted{2, 2}));
    std::vector<float> out(kCount);
    gpus.download(out.data(), at, kCount * 4);
    EXPECT_EQ(out, sum_of<float>(2, kCount));
  });
}

TEST_F(DeviceKernels, TensorsOfAGroupArePacked) {
  run(2, [&](Communicator& comm) {
    const OnGpu<float> one(gpus, 10), two(gpus, kCount), sum(gpus, kCount);
    Group group = comm.group();
    for (const std::size_t copies : {8u, 8u}) {
      one.set(input_of<float>(comm.rank(), 10));
      two.set(input_of<float>(comm.rank(), kCount));
      group.all_reduce(one.buffer(), one.buffer());
      group.all_reduce(two.buffer(), sum.buffer());
      EXPECT_EQ(counted(comm, [&] { group.run(); }), (Counted{2, copies}));
      EXPECT_EQ(one.values(), sum_of<float>(2, 10));
      EXPECT_EQ(sum.values(), sum_of<float>(2, kCount));
    }
  });
}

// ---- choice of the path ----

TEST(DevicePaths, AreChosenByWhatAllRanksKnow) {
  Topology host = Topology::from_hosts({"a", "a", "a"}, 4);
  host.gpus = {.everywhere = true, .peer_access = true};
  Request request{.count = kCount, .backend = "auto", .memory = Memory::device};
  const auto choose = [](const Request& asked, const Topology& topology) {
    return choose_device_path({.request = asked, .topology = topology}, [] { return HostSteps{}; });
  };
  EXPECT_EQ(choose(request, host).device_path, DevicePath::kernels);
  host.gpus.nccl = true;
  EXPECT_EQ(choose(request, host).device_path, DevicePath::nccl);
  request.backend = "hierarchical";
  EXPECT_EQ(choose(request, host).device_path, DevicePath::kernels);

  const auto reason_against = [&](const Request& asked, const Topology& topology) {
    const DevicePathChoice choice = choose(asked, topology);
    EXPECT_EQ(choice.device_path, DevicePath::host_copy);
    return choice.reason;
  };
  Request other = request;
  other.backend = "ring";
  EXPECT_EQ(choose(other, host).device_path, DevicePath::steps);
  other.backend = "hierarchical_two_level";
  EXPECT_EQ(reason_against(other, host), "hierarchical_two_level works in memory of the host");
  other = request;
  const UserOp op{"mine", [](const void*, void*, std::size_t, DataType) {}, true};
  other.op = ReduceOp::user(op);
  EXPECT_EQ(reason_against(other, host), "the op is a function of the host");

  Topology two = Topology::from_hosts({"a", "a", "b"}, 4);
  two.gpus = host.gpus;
  EXPECT_EQ(choose(request, two).device_path, DevicePath::steps);
  two.gpus.peer_access = false;
  two.gpus.apart = "rank 1: no way";
  EXPECT_EQ(reason_against(request, two), "there are several hosts, and rank 1: no way");
  host.gpus = {.everywhere = true, .apart = "rank 1: no way"};
  EXPECT_EQ(reason_against(request, host), "rank 1: no way");
  Topology many = Topology::from_hosts(std::vector<std::string>(257, "a"), 4);
  many.gpus = {.everywhere = true, .peer_access = true};
  EXPECT_EQ(reason_against(request, many), "a kernel reads from 256 ranks at most");

  other = request;
  other.memory = Memory::host;
  EXPECT_EQ(choose(other, many).device_path, DevicePath::host);
}

TEST_F(DeviceKernels, GpusWithoutPeerAccessUseTheHostCopyPath) {
  gpus.keep_apart(0, 1);
  run(2, [&](Communicator& comm) {
    const auto plan = comm.plan(Collective::all_reduce, kCount, DataType::f32, ReduceOp::sum, {.stream = nullptr});
    EXPECT_EQ(plan.device_path, DevicePath::host_copy);
    EXPECT_TRUE(plan.device_path_reason.starts_with("rank 0: GPU 0 has no way to GPU 1 (memory of rank 1)"))
        << plan.device_path_reason;
    const OnGpu<float> data(gpus, input_of<float>(comm.rank(), kCount));
    comm.all_reduce(data.buffer());
    EXPECT_EQ(data.values(), sum_of<float>(2, kCount));
  });
}

// ---- a kernel in progress ----

/// Two ranks in one process, each with a GPU, perform an all-reduce of two elements. The test itself calls progress()
/// of either rank.
class KernelInProgress : public ::testing::Test {
 protected:
  static constexpr ArenaShape kShape{.ranks = 2, .inline_bytes = 64, .chunk_bytes = 64, .frame_bytes = 64};

  KernelInProgress() {
    planned_.signature = {.collective = Collective::all_reduce, .type = DataType::f32, .count = 2};
    planned_.parts = Parts::equal({0, 2}, 1);
    for (auto* one : {&first, &second}) begin(*one);
  }
  struct OneRank {
    OneRank(FakeGpus& gpus, int number, const Arena& its)
        : arena(its),
          data(with_current(gpus, number), std::vector<float>{1, 2}),
          device(gpus.device()),
          path(std::make_unique<KernelPath>(*device, arena, std::make_shared<GpuPeers>(*device, arena))) {}
    static FakeGpus& with_current(FakeGpus& gpus, int number) {
      FakeGpus::set_current(number);
      return gpus;
    }
    bool touches() const { return arena.block(arena.self()).remote_access.value.load() != 0; }
    /// Calls progress() until it returns the state `until` or done.
    PathExecutor::PathState progress(PathExecutor::PathState until) {
      for (;; std::this_thread::sleep_for(1ms))
        if (const auto state = path->progress(); state == until || state == PathExecutor::PathState::done) return state;
    }
    const Arena& arena;
    OnGpu<float> data;
    std::unique_ptr<Device> device;
    std::unique_ptr<KernelPath> path;
    DeviceCall call;
    Job job;
  };
  void begin(OneRank& one) {
    one.call.call = {.collective = Collective::all_reduce, .input = one.data.buffer(), .output = one.data.buffer()};
    one.job.type = DataType::f32;
    one.job.input = one.job.output = reinterpret_cast<std::byte*>(one.data.data());
    one.job.tag = make_tag(1, 7);
    one.path->start(one.call, planned_, one.job);
  }

  FakeGpus gpus{2};
  const std::unique_ptr<Arena> arena = Arena::create(kShape), joined = Arena::join(arena->handle(), kShape, 1);
  OneRank first{gpus, 0, *arena}, second{gpus, 1, *joined};
  PlannedCall planned_;
};

TEST_F(KernelInProgress, TouchesTheOthersBuffersUntilItIsDone) {
  gpus.stop(1);
  EXPECT_EQ(first.path->progress(), PathExecutor::PathState::peers);
  EXPECT_FALSE(first.touches());
  EXPECT_EQ(second.path->progress(), PathExecutor::PathState::gpu);
  EXPECT_TRUE(second.touches());
  EXPECT_EQ(first.progress(PathExecutor::PathState::peers), PathExecutor::PathState::peers);
  EXPECT_FALSE(first.touches());
  EXPECT_EQ(second.path->progress(), PathExecutor::PathState::gpu);
  EXPECT_TRUE(second.touches());
  gpus.resume(1);
  EXPECT_EQ(second.progress(PathExecutor::PathState::done), PathExecutor::PathState::done);
  EXPECT_FALSE(second.touches());
  EXPECT_EQ(first.progress(PathExecutor::PathState::done), PathExecutor::PathState::done);
  EXPECT_EQ(first.data.values(), (std::vector<float>{2, 4}));
  EXPECT_EQ(second.data.values(), (std::vector<float>{2, 4}));
}

TEST_F(KernelInProgress, StillHasRemoteAccessWhenItsCallFails) {
  gpus.stop(1);
  first.path->progress();
  EXPECT_EQ(second.path->progress(), PathExecutor::PathState::gpu);
  second.path->abandon();
  EXPECT_TRUE(second.touches());
  gpus.resume(1);
  while (second.touches()) second.path->abandon();
}

TEST_F(KernelInProgress, IsNotBegunAfterAFailure) {
  first.path->progress();
  arena->abort_block().state = 2;
  EXPECT_EQ(second.path->progress(), PathExecutor::PathState::peers);
  EXPECT_EQ(first.path->progress(), PathExecutor::PathState::peers);
  EXPECT_FALSE(first.touches() || second.touches());
  EXPECT_EQ(gpus.kernels(), 0u);
}

TEST_F(KernelInProgress, APeerIsInAnotherCall) {
  second.job.tag = make_tag(1, std::uint64_t{9} << 32);
  second.path->start(second.call, planned_, second.job);
  first.path->progress();
  EXPECT_THROW(second.path->progress(), TagMismatch);
  EXPECT_EQ(gpus.kernels(), 0u);
}

TEST_F(DeviceKernels, ARankLeavesWhileItsGpuWorks) {
  const OnGpu<float> zero(gpus, input_of<float>(0, kCount));
  FakeGpus::set_current(1);
  const OnGpu<float> one(gpus, input_of<float>(1, kCount));
  std::optional<Work> left;
  run(2, [&](Communicator& comm) {
    if (comm.rank() == 1) {
      gpus.stop(1);
      left = comm.all_reduce_async(one.buffer(), one.buffer());
      EXPECT_FALSE(left->wait_for(20ms));
      return;
    }
    try {
      comm.all_reduce(zero.buffer());
      ADD_FAILURE() << "no error";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Errc::peer_lost);
      EXPECT_EQ(error.peer(), 1);
    }
  });
  EXPECT_THROW(left->wait(), Error);
}

// ---- between processes ----

TEST_F(DeviceProcesses, OpenOneAnothersMemory) {
  EXPECT_EQ(run([](FakeGpus& gpus, Communicator& comm) {
              expect(
                  comm.plan(Collective::all_reduce, 1, DataType::f32, ReduceOp::sum, {.stream = nullptr}).device_path ==
                      DevicePath::kernels,
                  "not by kernels");
              const OnGpu<float> in(gpus, input_of<float>(comm.rank(), kCount)), out(gpus, kCount);
              for (int lap = 0; lap < 3; ++lap) {
                const auto copies = gpus.copies(), kernels = gpus.kernels();
                comm.all_reduce(in.buffer(), out.buffer());
                expect(out.values() == sum_of<float>(2, kCount), "another sum");
                expect(gpus.copies() == copies && gpus.kernels() == kernels + 1, "more than a kernel");
              }
              comm.broadcast(Buffer{in.data() + 10, 100, DataType::f32}, 1);
              const auto there = input_of<float>(1, kCount);
              const auto here = in.values();
              expect(std::equal(here.begin() + 10, here.begin() + 110, there.begin() + 10), "another root");
            }),
            0);
}

TEST_F(DeviceProcesses, MemoryComesBackAtTheSameAddress) {
  EXPECT_EQ(run([](FakeGpus& gpus, Communicator& comm) {
              std::size_t again = 0;
              const float* before = nullptr;
              for (std::size_t lap = 0; lap < 20; ++lap) {
                const OnGpu<float> data(gpus, input_of<float>(comm.rank(), kCount + lap));
                again += data.data() == before;
                before = data.data();
                comm.all_reduce(data.buffer());
                expect(data.values() == sum_of<float>(2, kCount + lap), "what was freed was read or written");
              }
              expect(again > 0, "no address came back");
              expect(gpus.allocations() < 10, "freed memory stays open");
            }),
            0);
}

TEST_F(DeviceProcesses, MoreAllocationsThanPlaces) {
  EXPECT_EQ(run([](FakeGpus& gpus, Communicator& comm) {
              std::vector<std::unique_ptr<OnGpu<float>>> all;
              for (std::size_t i = 0; i < kGpuMemoryRecords + 6; ++i)
                all.push_back(std::make_unique<OnGpu<float>>(gpus, kCount));
              for (int lap = 0; lap < 2; ++lap)
                for (const auto& one : all) {
                  one->set(input_of<float>(comm.rank(), kCount));
                  comm.all_reduce(one->buffer());
                  expect(one->values() == sum_of<float>(2, kCount), "memory was mistaken for another");
                }
              expect(gpus.allocations() <= all.size() + kGpuMemoryRecords, "what is out of its place stays open");
            }),
            0);
}

TEST_F(DeviceProcesses, MemoryOfAPoolIsCopied) {
  EXPECT_EQ(run([](FakeGpus& gpus, Communicator& comm) {
              const OnGpu<float> data(gpus, input_of<float>(comm.rank(), kCount));
              if (comm.rank() == 1) gpus.take_from_pool(data.data());
              for (std::size_t call = 1; call < 3; ++call) {
                data.set(input_of<float>(comm.rank(), kCount));
                comm.all_reduce(data.buffer());
                expect(data.values() == sum_of<float>(2, kCount), "another sum");
                expect(gpus.copies() == (comm.rank() == 1 ? 2 * call : 0), "copies");
              }
            }),
            0);
}

TEST_F(DeviceProcesses, OneIsKilledWhileItsGpuWorks) {
  Child child([&](Line& line) {
    LineBootstrap bootstrap(1, line);
    FakeGpus gpus;
    Communicator comm(bootstrap, {.timeout = 60s, .tuning = Tuning{}});
    const OnGpu<float> data(gpus, input_of<float>(1, kCount));
    gpus.stop(0);
    line.put(1);
    comm.all_reduce(data.buffer());
    return 0;
  });
  LineBootstrap bootstrap(0, child.line());
  FakeGpus gpus;
  Communicator comm(bootstrap, {.timeout = 60s, .tuning = Tuning{}});
  const OnGpu<float> data(gpus, input_of<float>(0, kCount));
  child.line().take();
  auto work = comm.all_reduce_async(data.buffer(), data.buffer());
  EXPECT_FALSE(work.wait_for(50ms));
  child.kill(SIGKILL);
  child.wait();
  try {
    work.wait();
    ADD_FAILURE() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Errc::peer_lost);
    EXPECT_EQ(error.peer(), 1);
  }
}

}  // namespace
}  // namespace collectives::testing
