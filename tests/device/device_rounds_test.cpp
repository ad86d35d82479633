// Tests of vectors in GPU memory that are copied to CPU memory in rounds (device/pipelined_copy.hpp). A round is one
// pass of a plan, the algorithm of a call, over a segment of the vector. The copies of one round overlap with the work
// of another. The tests check equal bits with every plan, copies that overlap, and a GPU that stops during a call.
#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "collectives/communicator.hpp"
#include "fakes/gpu/fake_device.hpp"
#include "support/errors.hpp"
#include "support/hosts.hpp"
#include "support/system.hpp"
#include "support/worlds.hpp"

namespace collectives::testing {
namespace {

using namespace std::chrono_literals;

// Number of elements of a vector that is copied in several groups of rounds: 12 MB of floats.
#if defined(__SANITIZE_THREAD__)  // fewer elements, because a call takes ten times as long with the thread sanitizer
constexpr std::size_t kLong = 600'001;
#else
constexpr std::size_t kLong = 3'000'001;
#endif

class DeviceRounds : public ::testing::Test {
 protected:
  FakeGpus gpus{2, true};
};

class DeviceRoundsOf : public DeviceRounds, public ::testing::WithParamInterface<const char*> {};

TEST_P(DeviceRoundsOf, ResultsHaveTheBitsOfTheHost) {
  run_hosts({0, 1, 2},
            [&](Communicator& comm) {
              const auto stream = gpus.new_stream();
              for (const std::size_t count : {std::size_t{300'007}, kLong}) {
                const std::vector<float> mine = uneven(comm.rank(), count);
                std::vector<float> host = mine;
                const Options options{.backend = GetParam()};
                comm.all_reduce(host, ReduceOp::average, options);
                const OnGpu<float> in(gpus, mine), out(gpus, count);
                comm.all_reduce(in.buffer(), out.buffer(), ReduceOp::average, options);
                EXPECT_TRUE(same_bits(out.values(), host)) << count;
                EXPECT_TRUE(same_bits(in.values(), mine)) << count;
                // Two calls one after another use the same pinned memory.
                Options in_stream = options;
                in_stream.stream = stream;
                out.set(mine);
                comm.all_reduce(out.buffer(), ReduceOp::average, in_stream);
                comm.all_reduce(in.buffer(), ReduceOp::average, in_stream);
                gpus.synchronize(stream);
                EXPECT_TRUE(same_bits(out.values(), host)) << count;
                EXPECT_TRUE(same_bits(in.values(), host)) << count;
              }
              gpus.end_stream(stream);
            },
            {.timeout = 60s});
}
INSTANTIATE_TEST_SUITE_P(, DeviceRoundsOf,
                         ::testing::Values("ring", "hierarchical", "hierarchical_doubling", "hierarchical_halving",
                                           "reduce_to_one"));

TEST_F(DeviceRounds, HostsOfSeveralRanksWhoseGpusAreApart) {
  ::setenv("COLLECTIVES_GPU_PEERS", "off", 1);
  run_hosts({0, 0, 1, 1, 1},
            [&](Communicator& comm) {
              for (const char* backend : {"auto", "ring", "hierarchical", "reduce_to_one"}) {
                std::vector<bfloat16> host;
                for (const float value : uneven(comm.rank(), kLong / 3)) host.emplace_back(value);
                const OnGpu<bfloat16> data(gpus, host);
                comm.all_reduce(host, ReduceOp::sum, {.backend = backend});
                comm.all_reduce(data.buffer(), ReduceOp::sum, {.backend = backend});
                EXPECT_TRUE(same_bits(data.values(), host)) << backend;
              }
            },
            {.timeout = 60s});
  ::unsetenv("COLLECTIVES_GPU_PEERS");
}

TEST_F(DeviceRounds, CodedOnTheWire) {
  run_hosts({0, 1, 2},
            [&](Communicator& comm) {
              std::vector<float> host = uneven(comm.rank(), kLong);
              const OnGpu<float> data(gpus, host);
              const Options options{.backend = "ring", .wire = DataType::bf16, .force = true};
              comm.all_reduce(host, ReduceOp::sum, options);
              comm.all_reduce(data.buffer(), ReduceOp::sum, options);
              EXPECT_TRUE(same_bits(data.values(), host));
            },
            {.timeout = 60s});
}

TEST_F(DeviceRounds, MessagesLeaveAndResultsGoBackWhileTheRestComes) {
  if (kThreadSanitized) GTEST_SKIP() << "copies take too long with the thread sanitizer";
  constexpr std::size_t kCount = 12 << 20, kBytes = kCount * sizeof(float);
  run_hosts({0, 1},
            [&](Communicator& comm) {
              const OnGpu<float> data(gpus, input_of<float>(comm.rank(), kCount));
              gpus.slow_down(comm.rank(), 1ms);  // makes each copy take 1 ms longer
              const std::uint64_t sent = comm.bytes_sent();
              comm.barrier();
              const std::size_t before = gpus.copies();
              comm.barrier();
              Work work = comm.all_reduce_async(data.buffer(), data.buffer(), ReduceOp::sum, {.backend = "ring"});
              const auto copies_when_sent = [&](std::size_t bytes) {
                while (comm.bytes_sent() - sent < bytes && !work.test()) std::this_thread::yield();
                return gpus.copies() - before;
              };
              const std::size_t at_first = copies_when_sent(kBytes / 100),
                                near_the_end = copies_when_sent(kBytes / 10 * 9);
              work.wait();
              comm.barrier();
              const std::size_t all = gpus.copies() - before;  // half of them to CPU memory, half of them back
              EXPECT_GT(all, 2 * 2 * 40);
              EXPECT_LT(at_first, all / 3);
              EXPECT_GT(near_the_end, all / 2 + all / 8);
              EXPECT_EQ(data.values(), sum_of<float>(2, kCount));
            },
            {.timeout = 60s});
}

TEST_F(DeviceRounds, AGpuStopsInTheMiddle) {
  run_hosts({0, 1},
            [&](Communicator& comm) {
              const OnGpu<float> data(gpus, input_of<float>(comm.rank(), kLong));
              comm.all_reduce(data.buffer(), ReduceOp::sum, {.backend = "ring"});
              comm.barrier();
              const std::uint64_t sent = comm.bytes_sent();
              if (comm.rank() == 1) gpus.slow_down(1, 10ms);
              Work work = comm.all_reduce_async(data.buffer(), data.buffer(), ReduceOp::sum,
                                                {.backend = "ring", .timeout = comm.rank() == 1 ? 2s : 60s});
              while (comm.rank() == 1 && comm.bytes_sent() - sent < (1 << 20) && !work.test())
                std::this_thread::yield();
              if (comm.rank() == 1) gpus.stop(1);
              const Error error = error_of([&] { work.wait(); });
              EXPECT_EQ(error.code(), Errc::timeout) << error.what();
              if (comm.rank() == 1) {
                EXPECT_SAYS(error.what(), "all ranks have arrived, but the GPU of rank 1 has not done its part");
                gpus.slow_down(1, 0us);
                gpus.resume(1);
              }
              while (!gpus.idle(nullptr)) std::this_thread::sleep_for(1ms);
            },
            {.timeout = 60s});
}

TEST_F(DeviceRounds, AGpuDisappearsInTheMiddle) {
  run_hosts({0, 1},
            [&](Communicator& comm) {
              const OnGpu<float> data(gpus, input_of<float>(comm.rank(), kLong));
              comm.barrier();
              const std::uint64_t sent = comm.bytes_sent();
              if (comm.rank() == 1) gpus.slow_down(1, 10ms);
              Work work = comm.all_reduce_async(data.buffer(), data.buffer(), ReduceOp::sum, {.backend = "ring"});
              const Error error = error_of([&] {
                while (comm.rank() == 1 && comm.bytes_sent() - sent < (1 << 20)) work.test();
                if (comm.rank() == 1) gpus.disappear(1);
                work.wait();
              });
              EXPECT_EQ(error.code(), Errc::system) << error.what();
              EXPECT_SAYS(error.what(), "all_reduce #2: rank 1: ");
              EXPECT_SAYS(error.what(), "the GPU has fallen off the bus");
            },
            {.timeout = 60s});
}

}  // namespace
}  // namespace collectives::testing
