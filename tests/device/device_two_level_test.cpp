// Tests of the device path `multi_host`, one of the ways to handle buffers in GPU memory. It performs an all-reduce on
// several hosts, by GPU kernels inside hosts and by the CPU along rails between hosts. A rail is one rank of each host.
// A slice is the share of the vector that one rail handles.
//
// The tests check that every algorithm gives the same bits as on the CPU, the copies of each rank, and failures during
// a call. Other collectives are tested by device_backend_test.
#include <gtest/gtest.h>

#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include "collectives/communicator.hpp"
#include "fakes/gpu/fake_device.hpp"
#include "support/errors.hpp"
#include "support/hosts.hpp"
#include "support/worlds.hpp"

namespace collectives::testing {
namespace {

using namespace std::chrono_literals;

const std::vector<int> kTwoByTwo{0, 0, 1, 1};

class DeviceTwoLevel : public ::testing::Test {
 protected:
  FakeGpus gpus{2};
};

// ---- the same bits as on the CPU ----

class DeviceRails : public DeviceTwoLevel, public ::testing::WithParamInterface<const char*> {};

TEST_P(DeviceRails, ResultsEqualThoseOfTheHost) {
  for (const std::vector<int>& hosts :
       {kTwoByTwo, std::vector<int>{0, 0, 1, 2, 2, 2}, std::vector<int>{0, 1, 2, 0, 1, 2, 2}}) {
    run_hosts(
        hosts,
        [&](Communicator& comm) {
          for (const std::size_t count : {1U, 2U, 3U, 1000U, 70'001U}) {
            for (const ReduceOp op : {ReduceOp::sum, ReduceOp::average, ReduceOp::max, ReduceOp::pre_scaled_sum(0.3)}) {
              std::vector<float> host = uneven(comm.rank(), count);
              const OnGpu<float> in(gpus, host), out(gpus, count);
              const Options options{.backend = GetParam()};
              const std::string plan = comm.explain(Collective::all_reduce, count, DataType::f32, op,
                                                    Options{.backend = options.backend, .stream = nullptr});
              EXPECT_SAYS(plan, "device memory: multi_host");
              comm.all_reduce(host, op, options);
              comm.all_reduce(in.buffer(), out.buffer(), op, options);
              EXPECT_TRUE(same_bits(out.values(), host)) << count << " elements, " << to_string(op.kind());
              comm.all_reduce(in.buffer(), op, options);
              EXPECT_TRUE(same_bits(in.values(), host)) << count << " elements in place";
            }
            std::vector<std::int64_t> numbers = input_of<std::int64_t>(comm.rank(), count);
            const OnGpu<std::int64_t> data(gpus, numbers);
            comm.all_reduce(data.buffer(), ReduceOp::sum, {.backend = GetParam()});
            EXPECT_EQ(data.values(), sum_of<std::int64_t>(comm.size(), count));
          }
        },
        {.timeout = 60s});
  }
}
INSTANTIATE_TEST_SUITE_P(, DeviceRails,
                         ::testing::Values("hierarchical", "hierarchical_one_shot", "hierarchical_leaders"));

class DeviceRailsOfMany : public DeviceTwoLevel, public ::testing::WithParamInterface<const char*> {};

TEST_P(DeviceRailsOfMany, ResultsEqualThoseOfTheHost) {
  run_hosts({0, 0, 1, 1, 2, 2, 3, 3, 4},
            [&](Communicator& comm) {
              for (const std::size_t count : {1U, 5000U}) {
                std::vector<float> host = uneven(comm.rank(), count);
                const OnGpu<float> data(gpus, host);
                comm.all_reduce(host, ReduceOp::sum, {.backend = GetParam()});
                comm.all_reduce(data.buffer(), ReduceOp::sum, {.backend = GetParam()});
                EXPECT_TRUE(same_bits(data.values(), host)) << count << " elements";
              }
            },
            {.timeout = 60s});
}
INSTANTIATE_TEST_SUITE_P(, DeviceRailsOfMany,
                         ::testing::Values("hierarchical_doubling", "hierarchical_leaders_doubling",
                                           "hierarchical_halving"));

TEST_F(DeviceTwoLevel, SeveralRounds) {
  for (const std::vector<int>& hosts : {kTwoByTwo, std::vector<int>{0, 0, 1, 1, 2, 2}})
    run_hosts(hosts,
              [&](Communicator& comm) {
                constexpr std::size_t kLong = 1'000'003;
                for (const char* backend : {"hierarchical", "hierarchical_one_shot"}) {
                  // The contributions have exact sums in any order of addition, because a ring of three hosts adds in
                  // another order.
                  const OnGpu<float> exact(gpus, input_of<float>(comm.rank(), kLong));
                  comm.all_reduce(exact.buffer(), ReduceOp::sum, {.backend = backend});
                  EXPECT_TRUE(same_bits(exact.values(), sum_of<float>(comm.size(), kLong))) << backend;
                  std::vector<float> host = uneven(comm.rank(), kLong);
                  const OnGpu<float> data(gpus, host);
                  comm.all_reduce(host, ReduceOp::sum, {.backend = backend});
                  comm.all_reduce(data.buffer(), ReduceOp::sum, {.backend = backend});
                  std::vector<float> got = data.values(), first = got;
                  comm.broadcast(first, 0);
                  EXPECT_TRUE(same_bits(got, first)) << backend << ": ranks differ";
                  if (hosts.size() == 4 || backend != std::string("hierarchical")) {
                    EXPECT_TRUE(same_bits(got, host)) << backend;
                  }
                }
              },
              {.timeout = 60s});
}

TEST_F(DeviceTwoLevel, CodedAlongTheRails) {
  run_hosts({0, 0, 1, 1, 2, 2},
            [&](Communicator& comm) {
              for (const char* backend : {"hierarchical", "hierarchical_one_shot"}) {
                std::vector<float> host = uneven(comm.rank(), 5000);
                const OnGpu<float> data(gpus, host);
                const Options options{.backend = backend, .wire = DataType::bf16, .force = true};
                comm.all_reduce(host, ReduceOp::average, options);
                comm.all_reduce(data.buffer(), ReduceOp::average, options);
                EXPECT_TRUE(same_bits(data.values(), host)) << backend;
              }
            },
            {.timeout = 60s});
}

TEST_F(DeviceTwoLevel, GroupsArePacked) {
  run_hosts(kTwoByTwo,
            [&](Communicator& comm) {
              const OnGpu<float> one(gpus, input_of<float>(comm.rank(), 10)),
                  two(gpus, input_of<float>(comm.rank(), 3000));
              Group group = comm.group();
              for (int lap = 0; lap < 2; ++lap) {
                one.set(input_of<float>(comm.rank(), 10));
                two.set(input_of<float>(comm.rank(), 3000));
                group.all_reduce(one.buffer(), one.buffer());
                group.all_reduce(two.buffer(), two.buffer());
                group.run();
                EXPECT_EQ(one.values(), sum_of<float>(4, 10));
                EXPECT_EQ(two.values(), sum_of<float>(4, 3000));
              }
            },
            {.timeout = 60s});
}

TEST_F(DeviceTwoLevel, CallsFollowOneAnotherInAStream) {
  run_hosts(kTwoByTwo,
            [&](Communicator& comm) {
              const auto stream = gpus.new_stream();
              std::vector<float> host = input_of<float>(comm.rank(), 3000);
              const OnGpu<float> data(gpus, host);
              for (int lap = 0; lap < 3; ++lap) {
                comm.all_reduce(data.buffer(), ReduceOp::average, {.backend = "hierarchical", .stream = stream});
                comm.all_reduce(host, ReduceOp::average, {.backend = "hierarchical"});
              }
              gpus.synchronize(stream);
              EXPECT_TRUE(same_bits(data.values(), host));
              gpus.end_stream(stream);
            },
            {.timeout = 60s});
}

// ---- work and copies of each rank ----

TEST_F(DeviceTwoLevel, ARankMovesItsSliceOnly) {
  run_hosts(kTwoByTwo,
            [&](Communicator& comm) {
              const OnGpu<float> data(gpus, input_of<float>(comm.rank(), 1000));
              comm.all_reduce(data.buffer(), ReduceOp::sum, {.backend = "hierarchical_one_shot"});
              comm.barrier();
              const std::size_t kernels = gpus.kernels(), copies = gpus.copies(), allocations = gpus.allocations();
              comm.barrier();
              comm.all_reduce(data.buffer(), ReduceOp::sum, {.backend = "hierarchical_one_shot"});
              comm.barrier();
              EXPECT_EQ(gpus.kernels() - kernels, 4);  // each rank adds a slice
              EXPECT_EQ(gpus.copies() - copies,
                        4 * 4);  // per rank: to pinned memory, back, and to both ranks of its host
              EXPECT_EQ(gpus.allocations(), allocations);
              comm.barrier();
            },
            {.timeout = 60s});
}

TEST_F(DeviceTwoLevel, UnsupportedCallsFallBackToTheHostCopyPath) {
  run_hosts(kTwoByTwo,
            [&](Communicator& comm) {
              const auto explained = [&](Collective collective, DataType type, const char* backend) {
                return comm.explain(collective, 100'000, type, ReduceOp::sum, {.backend = backend, .stream = nullptr});
              };
              EXPECT_SAYS(explained(Collective::all_reduce, DataType::f32, "hierarchical"),
                          "device memory: multi_host: the GPUs");
              EXPECT_SAYS(explained(Collective::all_reduce, DataType::bf16, "hierarchical"), "device memory: steps");
              EXPECT_SAYS(explained(Collective::all_gather, DataType::f32, "hierarchical"), "device memory: steps");
            },
            {.timeout = 60s});
}

TEST(DeviceTwoLevelWithout, GpusThatAreApartAreStaged) {
  FakeGpus gpus(2, true);  // each host has ranks on both GPUs
  gpus.keep_apart(0, 1);
  run_hosts({0, 0, 0, 1, 1, 1},
            [&](Communicator& comm) {
              const OnGpu<float> data(gpus, input_of<float>(comm.rank(), 1000));
              comm.all_reduce(data.buffer(), ReduceOp::sum, {.backend = "hierarchical"});
              EXPECT_EQ(data.values(), sum_of<float>(6, 1000));
              EXPECT_SAYS(comm.explain(Collective::all_reduce, 1000, DataType::f32, ReduceOp::sum,
                                       {.backend = "hierarchical", .stream = nullptr}),
                          "device memory: host_copy");
            },
            {.timeout = 60s});
}

// ---- failures ----

TEST_F(DeviceTwoLevel, RanksDisagreeAboutTheLength) {
  run_hosts(kTwoByTwo,
            [&](Communicator& comm) {
              const std::size_t count = comm.rank() == 3 ? 999 : 1000;
              const OnGpu<float> data(gpus, input_of<float>(comm.rank(), count));
              const Error error =
                  error_of([&] { comm.all_reduce(data.buffer(), ReduceOp::sum, {.backend = "hierarchical"}); });
              EXPECT_EQ(error.code(), Errc::mismatch) << error.what();
            },
            {.timeout = 60s});
}

TEST_F(DeviceTwoLevel, ARankGivesUp) {
  run_hosts(kTwoByTwo,
            [&](Communicator& comm) {
              const OnGpu<float> data(gpus, input_of<float>(comm.rank(), 1000));
              comm.all_reduce(data.buffer(), ReduceOp::sum, {.backend = "hierarchical"});
              if (comm.rank() == 2) {
                std::this_thread::sleep_for(100ms);
                return comm.abort("enough");
              }
              const Error error =
                  error_of([&] { comm.all_reduce(data.buffer(), ReduceOp::sum, {.backend = "hierarchical"}); });
              EXPECT_EQ(error.code(), Errc::aborted) << error.what();
              EXPECT_SAYS(error.what(), "enough");
            },
            {.timeout = 60s});
}

TEST_F(DeviceTwoLevel, AGpuStopsWhileItAdds) {
  run_hosts(kTwoByTwo,
            [&](Communicator& comm) {
              const OnGpu<float> data(gpus, input_of<float>(comm.rank(), 1000));
              comm.all_reduce(data.buffer(), ReduceOp::sum, {.backend = "hierarchical"});
              comm.barrier();
              if (comm.rank() == 1) gpus.stop(0);
              comm.barrier();
              const Error error =
                  error_of([&] { comm.all_reduce(data.buffer(), ReduceOp::sum, {.backend = "hierarchical"}); });
              EXPECT_EQ(error.code(), Errc::timeout) << error.what();
              if (comm.rank() == 0) gpus.resume(0);
              while (!gpus.idle(nullptr)) std::this_thread::sleep_for(1ms);
            },
            {.timeout = 1s});
}

TEST_F(DeviceTwoLevel, AGpuDisappears) {
  run_hosts(kTwoByTwo,
            [&](Communicator& comm) {
              const OnGpu<float> data(gpus, input_of<float>(comm.rank(), 1000));
              comm.all_reduce(data.buffer(), ReduceOp::sum, {.backend = "hierarchical"});
              comm.barrier();
              if (comm.rank() == 1) gpus.disappear(0);
              const Error error = error_of([&] {
                comm.barrier();  // another rank may have left and failed before this rank
                comm.all_reduce(data.buffer(), ReduceOp::sum, {.backend = "hierarchical"});
              });
              EXPECT_EQ(error.code(), Errc::system) << error.what();
              EXPECT_SAYS(error.what(), "the GPU has fallen off the bus");
            },
            {.timeout = 60s});
}

}  // namespace
}  // namespace collectives::testing
