// Tests of calls on device memory, with fake GPUs. They check refused calls, the order of work in streams, and GPUs
// that are slow, stop or disappear. The results of every collective are tested by device_backend_test.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

#include "collectives/communicator.hpp"
#include "device/loader.hpp"
#include "fakes/gpu/fake_device.hpp"
#include "support/errors.hpp"
#include "support/hosts.hpp"
#include "support/worlds.hpp"

namespace collectives::testing {
namespace {

using namespace std::chrono_literals;

constexpr std::size_t kCount = 1000;

/// Tests that run with each device path for one host. A device path is a way to handle buffers in GPU memory.
class DeviceCalls : public ::testing::TestWithParam<DevicePath> {
 protected:
  DeviceCalls() {
    if (GetParam() == DevicePath::host_copy) ::setenv("COLLECTIVES_GPU_PEERS", "off", 1);
  }
  ~DeviceCalls() override { ::unsetenv("COLLECTIVES_GPU_PEERS"); }

  FakeGpus gpus{2};

  static const char* backend() { return GetParam() == DevicePath::steps ? "ring" : "auto"; }
  CommunicatorOptions settings() { return {.backend = backend(), .timeout = 60s}; }

  /// Runs f(Communicator&) on ranks that all work on GPU 0.
  template <class F>
  void run(int ranks, F&& f, CommunicatorOptions options = {}) {
    options.backend = backend();
    options.timeout = 60s;
    run_communicators(ranks, f, options);
  }
  OnGpu<float> input(const Communicator& comm, std::size_t count = kCount) {
    return {gpus, input_of<float>(comm.rank(), count)};
  }
};

// ---- refused calls ----

TEST_P(DeviceCalls, InputAndOutputAreOfTwoKinds) {
  run(2, [&](Communicator& comm) {
    const auto in = input(comm);
    std::vector<float> out(kCount);
    const Error error = error_of([&] { comm.all_reduce(in.buffer(), out); });
    EXPECT_EQ(error.code(), Errc::invalid_argument);
    EXPECT_STREQ(error.what(),
                 "all_reduce #1: input is device memory, output is host memory: both must be the device's or both the "
                 "host's");
    comm.all_reduce(in.buffer());  // the communicator still works, because the refused call sent nothing
    EXPECT_EQ(in.values(), sum_of<float>(2, kCount));
  });
}

TEST_P(DeviceCalls, HostAndDeviceMemoryOfOneCallIsAMismatch) {
  const auto body = [&](Communicator& comm) {
    const auto data = input(comm);
    std::vector<float> host(kCount);
    const Error error = error_of([&] { comm.all_reduce(comm.rank() == 2 ? Buffer(host) : data.buffer()); });
    EXPECT_EQ(error.code(), Errc::mismatch);
    EXPECT_EQ(error.peer(), 2);
    EXPECT_STREQ(
        error.what(),
        "all_reduce #1: rank 2 passed 1000 x f32 in host memory, ranks 0-1 passed 1000 x f32 in device memory");
  };
  run(3, body);
  run_hosts({0, 1, 1}, body, {.timeout = 60s});
}

TEST_P(DeviceCalls, MemoryOfAnotherGpuIsRefused) {
  run(1, [&](Communicator& comm) {
    FakeGpus::set_current(1);
    const auto in = input(comm);
    const Error error = error_of([&] { comm.all_reduce(in.buffer()); });
    EXPECT_EQ(error.code(), Errc::invalid_argument);
    EXPECT_STREQ(
        error.what(),
        "all_reduce #1: input lies on GPU 1, and the communicator works on GPU 0, which was current when it was "
        "made: make one with GPU 1 current");
  });
}

TEST_P(DeviceCalls, AStreamOfAnotherGpuIsRefused) {
  run(1, [&](Communicator& comm) {
    const auto in = input(comm);
    FakeGpus::set_current(1);
    const Error error = error_of([&] { comm.all_reduce(in.buffer(), ReduceOp::sum, {.stream = gpus.new_stream()}); });
    EXPECT_EQ(error.code(), Errc::invalid_argument);
    EXPECT_SAYS(error.what(), "the stream is one of GPU 1, the buffers lie on GPU 0");
  });
}

TEST_P(DeviceCalls, ACapturedStreamIsRefused) {
  run(1, [&](Communicator& comm) {
    const auto in = input(comm);
    const auto stream = gpus.new_stream();
    gpus.capture(stream, true);
    const Error error = error_of([&] { comm.all_reduce(in.buffer(), ReduceOp::sum, {.stream = stream}); });
    EXPECT_EQ(error.code(), Errc::unsupported);
    EXPECT_SAYS(error.what(), "being captured");
  });
}

TEST_P(DeviceCalls, AStreamWithHostMemoryIsRefused) {
  run(2, [&](Communicator& comm) {
    std::vector<float> host(kCount, 1);
    const OnGpu<float> pinned(gpus, kCount, Device::Kind::pinned);
    const auto stream = gpus.new_stream();
    EXPECT_SAYS(error_of([&] { comm.all_reduce(host, ReduceOp::sum, {.stream = stream}); }).what(),
                "a stream was given, and input is host memory");
    EXPECT_SAYS(error_of([&] { comm.all_reduce(pinned.buffer(), ReduceOp::sum, {.stream = stream}); }).what(),
                "input is pinned host memory");
    EXPECT_EQ(error_of([&] { comm.barrier({.stream = stream}); }).code(), Errc::unsupported);
    comm.all_reduce(host);
    EXPECT_EQ(host, std::vector<float>(kCount, 2));
  });
}

TEST_P(DeviceCalls, AStreamIsRefusedIfDeviceBuffersAreOff) {
  run(1,
      [&](Communicator& comm) {
        std::vector<float> host(kCount);
        const Error error = error_of([&] { comm.all_reduce(host, ReduceOp::sum, {.stream = nullptr}); });
        EXPECT_EQ(error.code(), Errc::unsupported);
        EXPECT_SAYS(error.what(), "takes no device buffers: device_buffers is off");
      },
      {.device_buffers = false});
}

TEST_P(DeviceCalls, OneRankHasNoGpu) {
  std::atomic<int> asked = 0;
  replace_devices([&](std::string& why_not) -> std::unique_ptr<Device> {
    if (asked++ == 0) return gpus.device();
    why_not = "the machine has none";
    return nullptr;
  });
  run(2, [&](Communicator& comm) {
    std::vector<float> host(kCount, 1);
    comm.all_reduce(host);
    EXPECT_EQ(host, std::vector<float>(kCount, 2));
    if (comm.topology().gpus.missing.starts_with(comm.rank() == 0 ? "rank 0" : "rank 1")) return;
    const auto data = input(comm);
    const Error error = error_of([&] { comm.all_reduce(data.buffer()); });
    EXPECT_EQ(error.code(), Errc::unsupported);
    EXPECT_SAYS(error.what(), "has no GPU: the machine has none");
  });
}

TEST_P(DeviceCalls, DeviceBuffersAreRefusedWithoutADriver) {
  replace_devices([](std::string& why_not) -> std::unique_ptr<Device> {
    why_not = "GPUs cannot be used: there is no driver";
    return nullptr;
  });
  run_ranks(2, [](Bootstrap& bootstrap) {
    const Error error = error_of(
        [&] { const Communicator comm(bootstrap, {.timeout = 60s, .device_buffers = bootstrap.rank() == 1}); });
    EXPECT_EQ(error.code(), Errc::unsupported);
    EXPECT_SAYS(error.what(), "rank 1: device_buffers is on, and GPUs cannot be used: there is no driver");
  });
}

// ---- kinds of memory ----

TEST_P(DeviceCalls, ManagedMemoryIsTheHostsUnlessThereIsAStream) {
  run(2, [&](Communicator& comm) {
    const OnGpu<float> managed(gpus, kCount, Device::Kind::managed);
    std::ranges::copy(input_of<float>(comm.rank(), kCount), managed.data());
    const auto before = gpus.copies();
    comm.all_reduce(managed.buffer());
    EXPECT_EQ(std::vector<float>(managed.data(), managed.data() + kCount), sum_of<float>(2, kCount));
    comm.barrier();
    EXPECT_EQ(gpus.copies(), before);
    comm.barrier();
    std::ranges::copy(input_of<float>(comm.rank(), kCount), managed.data());
    const auto stream = gpus.new_stream();
    comm.all_reduce(managed.buffer(), ReduceOp::sum, {.stream = stream});
    gpus.synchronize(stream);
    EXPECT_EQ(std::vector<float>(managed.data(), managed.data() + kCount), sum_of<float>(2, kCount));
    comm.barrier();
    const std::size_t messages = GetParam() == DevicePath::steps ? 2 : 0;
    EXPECT_EQ(gpus.copies(), before + 4 + messages);
  });
}

TEST_P(DeviceCalls, EmptyVectorsMayHaveAnyAddress) {
  run(2, [&](Communicator& comm) {
    const auto data = input(comm);
    comm.all_reduce(Buffer(comm.rank() == 0 ? data.data() : nullptr, 0, DataType::f32));
    comm.reduce_scatter_v(
        data.buffer(), Buffer(comm.rank() == 0 ? data.data() : nullptr, comm.rank() == 0 ? kCount : 0, DataType::f32),
        std::vector<std::size_t>{kCount, 0});
    if (comm.rank() == 0) {
      EXPECT_EQ(data.values(), sum_of<float>(2, kCount));
    }
  });
}

TEST_P(DeviceCalls, HostAndDeviceInTurn) {
  run(3, [&](Communicator& comm) {
    const OnGpu<float> data(gpus, kCount);
    for (int lap = 0; lap < 20; ++lap) {
      std::vector<float> host = input_of<float>(comm.rank(), kCount);
      data.set(host);
      comm.all_reduce(host);
      comm.all_reduce(data.buffer());
      EXPECT_EQ(host, sum_of<float>(3, kCount));
      EXPECT_EQ(data.values(), host);
    }
  });
}

TEST_P(DeviceCalls, ExplainNamesTheDevicePath) {
  run(2, [&](Communicator& comm) {
    const Options on_device{.stream = nullptr};
    EXPECT_EQ(comm.plan(Collective::all_reduce, kCount, DataType::f32).device_path, DevicePath::host);
    EXPECT_EQ(comm.plan(Collective::all_reduce, kCount, DataType::f32, ReduceOp::sum, on_device).device_path,
              GetParam());
    EXPECT_SAYS(comm.explain(Collective::all_reduce, kCount, DataType::f32, ReduceOp::sum, on_device),
                "device memory: " + std::string(to_string(GetParam())) + ": ");
  });
}

// ---- successful calls ----

TEST_P(DeviceCalls, TheStageGrowsWithTheVector) {
  run(2, [&](Communicator& comm) {
    for (const std::size_t count : {10u, 100'000u, 7u, 300'000u}) {
      const auto data = input(comm, count);
      comm.all_reduce(data.buffer());
      EXPECT_EQ(data.values(), sum_of<float>(2, count));
    }
  });
}

TEST_P(DeviceCalls, TensorsOfAGroupTravelTogether) {
  run(3, [&](Communicator& comm) {
    const auto one = input(comm, 10), two = input(comm, 3000);
    const OnGpu<float> sum(gpus, 3000);
    std::vector<float> host = input_of<float>(comm.rank(), 500);
    Group group = comm.group();
    for (int lap = 1; lap <= 2; ++lap) {
      one.set(input_of<float>(comm.rank(), 10));
      group.all_reduce(one.buffer(), one.buffer());
      group.all_reduce(host, host);
      group.all_reduce(two.buffer(), sum.buffer());
      group.run();
      EXPECT_EQ(one.values(), sum_of<float>(3, 10));
      EXPECT_EQ(sum.values(), sum_of<float>(3, 3000));
      EXPECT_EQ(two.values(), input_of<float>(comm.rank(), 3000));
      EXPECT_EQ(comm.counters()[Collective::all_reduce].calls, static_cast<std::uint64_t>(2 * lap));
    }
  });
}

TEST_P(DeviceCalls, TopKGivesWhatItGivesTheHost) {
  run_hosts({0, 1, 1},
            [&](Communicator& comm) {
              TopK of_host({.density = 0.01}), of_device({.density = 0.01});
              const std::size_t count = 20'000;
              const OnGpu<float> data(gpus, count);
              for (int call = 0; call < 3; ++call) {
                std::vector<float> gradient = input_of<float>(comm.rank() + call, count);
                for (std::size_t i = 0; i < count; ++i) gradient[i] /= static_cast<float>(1 + i % 977);
                data.set(gradient);
                comm.all_reduce(gradient, ReduceOp::average, {.name = "w", .compressor = &of_host, .force = true});
                comm.all_reduce(data.buffer(), ReduceOp::average,
                                {.name = "w", .compressor = &of_device, .force = true});
                EXPECT_TRUE(same_bits(data.values(), gradient)) << "call " << call;
              }
              EXPECT_EQ(of_device.save(), of_host.save());
              Work first = comm.all_reduce_async(data.buffer(), data.buffer(), ReduceOp::sum,
                                                 {.name = "w", .compressor = &of_device, .force = true});
              EXPECT_SAYS(error_of([&] {
                            comm.all_reduce(data.buffer(), ReduceOp::sum,
                                            {.name = "w", .compressor = &of_device, .force = true});
                          }).what(),
                          "another call of this name is under way");
              first.wait();
            },
            {.timeout = 60s});
}

TEST_P(DeviceCalls, CodedAsOnTheHost) {
  for (const std::vector<int>& hosts : {std::vector<int>{0, 1}, std::vector<int>{0, 0, 0}})
    run_hosts(hosts,
              [&](Communicator& comm) {
                std::vector<float> host(kCount);
                for (std::size_t i = 0; i < kCount; ++i)
                  host[i] = static_cast<float>(1 + comm.rank()) / static_cast<float>(3 + i);
                const OnGpu<float> data(gpus, host);
                const Options coded{.wire = DataType::bf16, .force = true};
                comm.all_reduce(host, ReduceOp::sum, coded);
                comm.all_reduce(data.buffer(), ReduceOp::sum, coded);
                EXPECT_TRUE(same_bits(data.values(), host));
                for (float& value : host) value /= 3;
                data.set(host);
                comm.broadcast(host, 1, coded);  // in place, so the root rounds its own values
                comm.broadcast(data.buffer(), 1, coded);
                EXPECT_TRUE(same_bits(data.values(), host));
              },
              {.timeout = 60s});
}

TEST_P(DeviceCalls, PartsTakeDeviceBuffersToo) {
  run(4, [&](Communicator& comm) {
    auto part = comm.split(comm.rank() % 2);
    const auto data = input(comm);
    part->all_reduce(data.buffer());
    std::vector<float> expected = input_of<float>(comm.rank() % 2, kCount);
    for (std::size_t i = 0; i < kCount; ++i) expected[i] += value_of<float>(comm.rank() % 2 + 2, i);
    EXPECT_EQ(data.values(), expected);
  });
}

TEST_P(DeviceCalls, WithAProgressThread) {
  run(2,
      [&](Communicator& comm) {
        const auto data = input(comm);
        Work work = comm.all_reduce_async(data.buffer(), data.buffer());
        while (!work.test()) std::this_thread::sleep_for(1ms);
        EXPECT_EQ(data.values(), sum_of<float>(2, kCount));
      },
      {.timeout = 60s, .progress_thread = true});
}

TEST_P(DeviceCalls, EverythingIsGivenBack) {
  const auto allocations = gpus.allocations(), streams = gpus.streams();
  run(3, [&](Communicator& comm) {
    const auto data = input(comm);
    for (int call = 0; call < 3; ++call) comm.all_reduce(data.buffer());
    std::vector<Work> works;
    for (int call = 0; call < 3; ++call) works.push_back(comm.all_reduce_async(data.buffer(), data.buffer()));
  });
  EXPECT_EQ(gpus.allocations(), allocations);
  EXPECT_EQ(gpus.streams(), streams);
}

// ---- streams ----

class DeviceStreams : public DeviceCalls {
 protected:
  /// Overwrites `data` with `values`, as a slow kernel does.
  void write_slowly(Device::Stream stream, const OnGpu<float>& data, std::vector<float> values) {
    gpus.put(stream, {{data.data(), data.buffer().bytes()}}, [to = data.data(), values = std::move(values)] {
      std::this_thread::sleep_for(20ms);
      std::ranges::copy(values, to);
    });
  }
};

TEST_P(DeviceStreams, EarlierWorkInTheStreamRunsFirst) {
  run(2, [&](Communicator& comm) {
    const OnGpu<float> data(gpus, std::vector<float>(kCount, -1));
    const auto stream = gpus.new_stream();
    write_slowly(stream, data, input_of<float>(comm.rank(), kCount));
    Work work = comm.all_reduce_async(data.buffer(), data.buffer(), ReduceOp::sum, {.stream = stream});
    work.wait();
    EXPECT_EQ(data.values(), sum_of<float>(2, kCount));
    write_slowly(stream, data, input_of<float>(comm.rank(), kCount));
    comm.all_reduce(data.buffer(), ReduceOp::sum, {.stream = stream});
    gpus.synchronize(stream);
    EXPECT_EQ(data.values(), sum_of<float>(2, kCount));
  });
}

TEST_P(DeviceStreams, LaterWorkInTheStreamSeesTheResult) {
  gpus.slow_down(0, 5ms);
  run(2, [&](Communicator& comm) {
    const auto data = input(comm);
    const auto stream = gpus.new_stream();
    std::vector<std::vector<float>> seen(3);
    for (auto& copy : seen) {
      comm.all_reduce(data.buffer(), ReduceOp::sum, {.stream = stream});
      gpus.put(stream, {{data.data(), kCount * sizeof(float)}},
               [&copy, from = data.data()] { copy.assign(from, from + kCount); });
    }
    gpus.synchronize(stream);
    std::vector<float> expected = sum_of<float>(2, kCount);
    for (const auto& copy : seen) {
      EXPECT_EQ(copy, expected);
      for (float& value : expected) value *= 2;
    }
  });
}

TEST_P(DeviceStreams, TheDefaultStreamIsOne) {
  run(2, [&](Communicator& comm) {
    const OnGpu<float> data(gpus, std::vector<float>(kCount, -1));
    write_slowly(nullptr, data, input_of<float>(comm.rank(), kCount));
    comm.all_reduce(data.buffer(), ReduceOp::sum, {.stream = nullptr});
    gpus.synchronize(nullptr);
    EXPECT_EQ(data.values(), sum_of<float>(2, kCount));
  });
}

TEST_P(DeviceStreams, ACommunicatorGoesBeforeItsResultIsThere) {
  const auto allocations = gpus.allocations();
  {
    const OnGpu<float> data(gpus, input_of<float>(0, kCount));
    const auto stream = gpus.new_stream();
    run(1, [&](Communicator& comm) {
      gpus.slow_down(0, 20ms);
      comm.all_reduce(data.buffer(), ReduceOp::average, {.stream = stream});
    });
    gpus.synchronize(stream);
    EXPECT_EQ(data.values(), input_of<float>(0, kCount));
  }
  EXPECT_EQ(gpus.allocations(), allocations);
}

// ---- GPUs that stop or fail ----

TEST_P(DeviceCalls, OneGpuIsSlow) {
  run_ranks(2, [&](Bootstrap& bootstrap) {
    FakeGpus::set_current(bootstrap.rank());
    Communicator comm(bootstrap, settings());
    if (comm.rank() == 1) gpus.slow_down(1, 30ms);
    const auto data = input(comm);
    comm.all_reduce(data.buffer());
    EXPECT_EQ(data.values(), sum_of<float>(2, kCount));
  });
}

TEST_P(DeviceCalls, OneGpuStops) {
  run_ranks(3, [&](Bootstrap& bootstrap) {
    FakeGpus::set_current(bootstrap.rank() == 1 ? 1 : 0);
    Communicator comm(bootstrap, settings());
    const auto data = input(comm);
    comm.all_reduce(data.buffer());
    comm.barrier();
    if (comm.rank() == 1) gpus.stop(1);
    const Error error =
        error_of([&] { comm.all_reduce(data.buffer(), ReduceOp::sum, {.name = "fc1", .timeout = 1s}); });
    EXPECT_EQ(error.code(), Errc::timeout);
    EXPECT_EQ(error.peer(), 1);
    EXPECT_EQ(error.operation(), "all_reduce #3 (fc1)");
    EXPECT_SAYS(error.what(), "all ranks have arrived, but the GPU of rank 1 has not done its part");
    EXPECT_EQ(error_of([&] { comm.all_reduce(data.buffer()); }).code(), Errc::timeout);
  });
}

TEST_P(DeviceCalls, OneGpuDisappears) {
  for (const bool in_stream : {false, true}) {
    FakeGpus others(2);
    run_ranks(3, [&](Bootstrap& bootstrap) {
      FakeGpus::set_current(bootstrap.rank() == 1 ? 1 : 0);
      Communicator comm(bootstrap, settings());
      const OnGpu<float> data(others, input_of<float>(comm.rank(), kCount));
      const Options options{.stream = in_stream ? std::optional<void*>(others.new_stream()) : std::nullopt};
      comm.all_reduce(data.buffer(), ReduceOp::sum, options);
      const Error error = error_of([&] {
        comm.barrier();
        if (comm.rank() == 1) others.disappear(1);
        for (;;) comm.all_reduce(data.buffer(), ReduceOp::sum, options);
      });
      EXPECT_EQ(error.code(), Errc::system);
      EXPECT_EQ(error.peer(), 1);
      EXPECT_SAYS(error.what(), "rank 1: fake GPU: the GPU has fallen off the bus");
    });
  }
}

TEST_P(DeviceCalls, AGpuDisappearsBeforeAGroup) {
  run_ranks(2, [&](Bootstrap& bootstrap) {
    FakeGpus::set_current(bootstrap.rank());
    Communicator comm(bootstrap, settings());
    const auto one = input(comm), two = input(comm);
    comm.barrier();
    if (comm.rank() == 1) gpus.disappear(1);
    Group group = comm.group();
    group.all_reduce(one.buffer(), one.buffer());
    group.all_reduce(two.buffer(), two.buffer());
    const Error error = error_of([&] { group.run(); });
    EXPECT_EQ(error.code(), Errc::system);
    EXPECT_EQ(error.peer(), 1);
    EXPECT_SAYS(error.what(), "all_reduce #2: rank 1: fake GPU: the GPU has fallen off the bus");
  });
}

TEST_P(DeviceCalls, MemoryHasTheAccessOfItsDevicePath) {
  run(2, [&](Communicator& comm) {
    const DeviceAccess expected = GetParam() == DevicePath::host_copy ? DeviceAccess::copied : DeviceAccess::mapped;
    const DeviceArray<float> sum = comm.allocate_on_device<float>(kCount);
    EXPECT_EQ(sum.access(), expected);
    const auto data = input(comm);
    const DeviceMemory known = comm.register_memory(data.data(), kCount * 4);
    EXPECT_EQ(known.access(), expected);
    comm.all_reduce(data.buffer(), sum);
    std::vector<float> values(kCount);
    gpus.download(values.data(), sum.data(), kCount * 4);
    EXPECT_EQ(values, sum_of<float>(2, kCount));
  });
}

TEST_P(DeviceCalls, AGpuDisappearsInTheMiddle) {
  run_ranks(2, [&](Bootstrap& bootstrap) {
    FakeGpus::set_current(bootstrap.rank());
    Communicator comm(bootstrap, settings());
    const auto data = input(comm);
    comm.barrier();
    if (comm.rank() == 0) gpus.stop(0);
    Work work = comm.all_reduce_async(data.buffer(), data.buffer());
    if (comm.rank() == 0) {
      EXPECT_FALSE(work.wait_for(20ms));
      gpus.disappear(0);
    }
    const Error error = error_of([&] { work.wait(); });
    EXPECT_EQ(error.code(), Errc::system);
    EXPECT_EQ(error.peer(), 0);
    EXPECT_EQ(error.operation(), "all_reduce #2");
  });
}

TEST_P(DeviceCalls, ARankThatLeavesIsNoticedByThoseWithAGpu) {
  run(2, [&](Communicator& comm) {
    const auto data = input(comm);
    if (comm.rank() == 1) return;
    EXPECT_EQ(error_of([&] { comm.all_reduce(data.buffer()); }).code(), Errc::peer_lost);
  });
}

const auto kName = [](const auto& parameters) { return std::string(to_string(parameters.param)); };
constexpr DevicePath kByEach[] = {DevicePath::kernels, DevicePath::steps, DevicePath::host_copy};
INSTANTIATE_TEST_SUITE_P(by, DeviceCalls, ::testing::ValuesIn(kByEach), kName);
INSTANTIATE_TEST_SUITE_P(by, DeviceStreams, ::testing::ValuesIn(kByEach), kName);

}  // namespace
}  // namespace collectives::testing
