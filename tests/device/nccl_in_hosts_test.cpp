// Tests of all-reduce by NCCL inside hosts and by rails between hosts. A rail is one rank of each host. This path is
// used if the GPUs of a host have no access to one another's memory, or should not use it.
//
// The tests check when the path is chosen, its results, and failures during a call. GPUs and NCCL are fakes
// (tests/fakes). device_two_level_test tests the rails.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "collectives/communicator.hpp"
#include "collectives/top_k.hpp"
#include "cuda/nccl_communicator.hpp"
#include "fakes/gpu/fake_device.hpp"
#include "support/errors.hpp"
#include "support/hosts.hpp"
#include "support/nccl.hpp"
#include "support/top_k.hpp"
#include "support/worlds.hpp"

namespace collectives::testing {
namespace {

using namespace std::chrono_literals;

const std::vector<int> kTwoByTwo{0, 0, 1, 1};
constexpr std::string_view kNcclInHosts = "device memory: multi_host: NCCL adds inside hosts";

class NcclInHosts : public ::testing::Test {
 protected:
  NcclInHosts() {
    gpus.set_nccl(&library);
    for (int one = 0; one < kGpus; ++one)
      for (int other = 0; other < one; ++other) gpus.keep_apart(one, other);
  }
  ~NcclInHosts() override { EXPECT_TRUE(FakeNccl::all_end()); }

  static constexpr int kGpus = 8;
  FakeGpus gpus{kGpus, true};
  FakeNccl streams{gpus};
  nccl::Loaded library{fake_nccl()};

  template <class F>
  static void run(const std::vector<int>& hosts, F&& f, CommunicatorOptions options = {}) {
    if (options.timeout.count() == 0) options.timeout = 60s;
    if (options.backend.empty()) options.backend = "hierarchical";
    run_hosts(hosts, std::forward<F>(f), options);
  }
  static std::string explain(Communicator& comm, Options options = {}) {
    options.stream = nullptr;
    return comm.explain(Collective::all_reduce, 1000, DataType::f32, ReduceOp::sum, options);
  }
};

// ---- choice of the path ----

TEST_F(NcclInHosts, WhereGpusOfAHostAreApart) {
  run(kTwoByTwo, [](Communicator& comm) {
    EXPECT_TRUE(comm.topology().gpus.nccl_in_hosts);
    EXPECT_FALSE(comm.topology().gpus.nccl);  // this backend does not use NCCL between all ranks
    EXPECT_SAYS(explain(comm), kNcclInHosts);
    EXPECT_SAYS(explain(comm), "whose GPUs do not reach one another's memory: rank 0: GPU 0 has no way to GPU 1");
  });
}

TEST_F(NcclInHosts, WhereNcclConnectsEveryoneItDoesAll) {
  run(kTwoByTwo,
      [&](Communicator& comm) {
        EXPECT_SAYS(explain(comm), "nccl: NCCL connects the GPUs");
        EXPECT_SAYS(explain(comm, {.backend = "hierarchical"}), kNcclInHosts);
        const OnGpu<float> one(gpus, input_of<float>(comm.rank(), 1000)), two(gpus, input_of<float>(comm.rank(), 1000));
        for (int lap = 0; lap < 3; ++lap) {  // one call is in flight when the other begins
          one.set(input_of<float>(comm.rank(), 1000));
          two.set(input_of<float>(comm.rank(), 1000));
          Work first = comm.all_reduce_async(one.buffer(), one.buffer());
          comm.all_reduce(two.buffer(), ReduceOp::sum, {.backend = "hierarchical"});
          first.wait();
          EXPECT_EQ(one.values(), sum_of<float>(4, 1000));
          EXPECT_EQ(two.values(), sum_of<float>(4, 1000));
        }
      },
      {.backend = "auto"});
}

TEST_F(NcclInHosts, NotOnOneHostNorForOneRankEach) {
  run({0, 0}, [](Communicator& comm) { EXPECT_FALSE(comm.topology().gpus.nccl_in_hosts); });
  run({0, 1}, [](Communicator& comm) { EXPECT_FALSE(comm.topology().gpus.nccl_in_hosts); });
}

TEST_F(NcclInHosts, NotForABackendThatAddsInMemoryOfTheHost) {
  run(kTwoByTwo,
      [](Communicator& comm) {
        EXPECT_FALSE(comm.topology().gpus.nccl_in_hosts);
        EXPECT_SAYS(explain(comm), "device memory: host_copy");
      },
      {.backend = "ring"});
}

TEST_F(NcclInHosts, WithoutNcclGpusThatAreApartAreStaged) {
  gpus.set_nccl(nullptr);
  run(kTwoByTwo, [&](Communicator& comm) {
    EXPECT_SAYS(
        explain(comm),
        "device memory: host_copy: there are several hosts, and the GPUs of one do not reach one another's memory: "
        "rank 0: GPU 0 has no way to GPU 1");
    const OnGpu<float> data(gpus, input_of<float>(comm.rank(), 1000));
    comm.all_reduce(data.buffer());
    EXPECT_EQ(data.values(), sum_of<float>(4, 1000));
  });
}

class NcclOnGpusWithPeerAccess : public ::testing::Test {
 protected:
  NcclOnGpusWithPeerAccess() { gpus.set_nccl(&library); }
  ~NcclOnGpusWithPeerAccess() override { ::unsetenv("COLLECTIVES_GPU_PEERS"); }
  FakeGpus gpus{4, true};
  FakeNccl streams{gpus};
  nccl::Loaded library{fake_nccl()};
};

TEST_F(NcclOnGpusWithPeerAccess, KernelsAddUnlessPeersAreOff) {
  for (const bool off : {false, true}) {
    if (off) ::setenv("COLLECTIVES_GPU_PEERS", "off", 1);
    run_hosts(kTwoByTwo,
              [&](Communicator& comm) {
                const std::string plan =
                    comm.explain(Collective::all_reduce, 1000, DataType::f32, ReduceOp::sum, {.stream = nullptr});
                EXPECT_SAYS(plan, off ? kNcclInHosts : "device memory: multi_host: the GPUs of each host reach");
                if (off) {
                  EXPECT_SAYS(plan, "rank 0: COLLECTIVES_GPU_PEERS is off");
                }
                const OnGpu<float> data(gpus, input_of<float>(comm.rank(), 1000));
                comm.all_reduce(data.buffer());
                EXPECT_EQ(data.values(), sum_of<float>(4, 1000));
              },
              {.backend = "hierarchical", .timeout = 60s});
  }
}

TEST_F(NcclOnGpusWithPeerAccess, OnOneHostPeersThatAreOffAreStaged) {
  ::setenv("COLLECTIVES_GPU_PEERS", "off", 1);
  run_hosts({0, 0},
            [&](Communicator& comm) {
              EXPECT_SAYS(comm.explain(Collective::all_reduce, 1000, DataType::f32, ReduceOp::sum, {.stream = nullptr}),
                          "device memory: host_copy: rank 0: COLLECTIVES_GPU_PEERS is off");
            },
            {.backend = "hierarchical", .timeout = 60s});
}

TEST_F(NcclOnGpusWithPeerAccess, TwoRanksOfAHostOnOneGpuAreStaged) {
  ::setenv("COLLECTIVES_GPU_PEERS", "off", 1);
  run_hosts({0, 1, 1, 1, 0},  // ranks 0 and 4 have GPU 0
            [&](Communicator& comm) {
              EXPECT_FALSE(comm.topology().gpus.nccl_in_hosts);
              const OnGpu<float> data(gpus, input_of<float>(comm.rank(), 1000));
              comm.all_reduce(data.buffer());
              EXPECT_EQ(data.values(), sum_of<float>(5, 1000));
            },
            {.backend = "hierarchical", .timeout = 60s});
}

/// Tests a split after which NCCL connects the new communicator and each of its hosts, although it connects neither the
/// parent nor its hosts. Ranks 0 and 4 share a GPU, and rank 4 is left out. The construction of the new communicator
/// then makes all exchanges that are possible.
TEST_F(NcclOnGpusWithPeerAccess, APartMayHaveNcclThatTheWholeHasNot) {
  ::setenv("COLLECTIVES_GPU_PEERS", "off", 1);
  run_hosts({0, 1, 1, 1, 0},  // ranks 0 and 4 have GPU 0
            [&](Communicator& comm) {
              EXPECT_FALSE(comm.topology().gpus.nccl);
              std::optional<Communicator> part = comm.split(comm.rank() == 4 ? -1 : 0, comm.rank());
              if (part) {
                EXPECT_TRUE(part->topology().gpus.nccl && part->topology().gpus.nccl_in_hosts);
                for (const char* backend : {"auto", "hierarchical"}) {
                  const OnGpu<float> data(gpus, input_of<float>(part->rank(), 1000));
                  part->all_reduce(data.buffer(), ReduceOp::sum, {.backend = backend});
                  EXPECT_EQ(data.values(), sum_of<float>(4, 1000));
                }
              }
              comm.barrier();
            },
            {.timeout = 60s});
}

// ---- results ----

/// Makes calls in place and out of place, and compares the results with those on the CPU. Buffers begin `at` elements
/// after the beginning of their allocation.
template <class T>
void expect_result(Communicator& comm, FakeGpus& gpus, std::size_t count, const ReduceOp& op, std::size_t at = 0) {
  std::vector<T> expected = input_of<T>(comm.rank(), count);
  comm.all_reduce(expected, op);  // computes the expected result on the CPU
  const OnGpu<T> in(gpus, at + count), out(gpus, at + count);
  std::vector<T> values(at + count);
  const std::vector<T> mine = input_of<T>(comm.rank(), count);
  std::copy(mine.begin(), mine.end(), values.begin() + static_cast<std::ptrdiff_t>(at));
  in.set(values);
  const Buffer from{in.data() + at, count, data_type_v<T>}, to{out.data() + at, count, data_type_v<T>};
  const auto result = [&](const OnGpu<T>& of) {
    const std::vector<T> all = of.values();
    return std::vector<T>(all.begin() + static_cast<std::ptrdiff_t>(at), all.end());
  };
  comm.all_reduce(from, to, op);
  EXPECT_TRUE(same_bits(result(out), expected)) << count << " elements, " << to_string(op.kind());
  EXPECT_TRUE(same_bits(result(in), mine)) << "the input of " << count << " elements has changed";
  comm.all_reduce(from, op);
  EXPECT_TRUE(same_bits(result(in), expected)) << count << " elements in place, " << to_string(op.kind());
}

#if defined(__SANITIZE_THREAD__)  // the thread sanitizer would take a minute for more worlds
constexpr const char* kBackends[] = {"hierarchical"};
#else
constexpr const char* kBackends[] = {"hierarchical", "hierarchical_one_shot", "hierarchical_leaders"};
#endif

TEST_F(NcclInHosts, GiveExactResults) {
  for (const std::vector<int>& hosts :
       {kTwoByTwo, std::vector<int>{0, 0, 1, 2, 2, 2}, std::vector<int>{0, 1, 2, 0, 1, 2, 2}})
    for (const char* backend : kBackends)
      run(hosts,
          [&](Communicator& comm) {
            EXPECT_SAYS(explain(comm), kNcclInHosts);
            for (const std::size_t count : {1U, 7U, 8U, 1001U, 70'001U}) {
              for (const ReduceOp op : {ReduceOp::sum, ReduceOp::average, ReduceOp::max, ReduceOp::pre_scaled_sum(0.5)})
                expect_result<float>(comm, gpus, count, op);
              expect_result<double>(comm, gpus, count, ReduceOp::sum);
              expect_result<std::int64_t>(comm, gpus, count, ReduceOp::min);
              expect_result<std::uint8_t>(comm, gpus, count, ReduceOp::sum);
            }
            expect_result<float>(comm, gpus, 1001, ReduceOp::sum, 1);
          },
          {.backend = backend});
}

TEST_F(NcclInHosts, SeveralRoundsAndRailsOfThreeHosts) {
  run({0, 0, 1, 1, 2, 2}, [&](Communicator& comm) { expect_result<float>(comm, gpus, 1'000'003, ReduceOp::sum); });
}

TEST_F(NcclInHosts, AllRanksHaveTheSameBits) {
  run({0, 0, 0, 1, 1, 1}, [&](Communicator& comm) {
    const OnGpu<float> data(gpus, uneven(comm.rank(), 10'007));
    comm.all_reduce(data.buffer(), ReduceOp::average);
    std::vector<float> first = data.values();
    comm.broadcast(first, 0);
    EXPECT_TRUE(same_bits(data.values(), first));
  });
}

TEST_F(NcclInHosts, ElementsThatLieAtNoMultipleOfTheirSize) {
  run(kTwoByTwo, [&](Communicator& comm) {
    const OnGpu<std::byte> data(gpus, 4002);
    const std::vector<float> values = input_of<float>(comm.rank(), 1000);
    std::vector<std::byte> bytes(4002);
    std::memcpy(bytes.data() + 2, values.data(), 4000);
    data.set(bytes);
    comm.all_reduce(Buffer{data.data() + 2, 1000, DataType::f32});
    std::vector<float> sums(1000);
    std::memcpy(sums.data(), data.values().data() + 2, 4000);
    EXPECT_EQ(sums, sum_of<float>(4, 1000));
  });
}

TEST_F(NcclInHosts, CodedAlongTheRails) {
  run({0, 0, 1, 1, 2, 2}, [&](Communicator& comm) {
    std::vector<float> host = input_of<float>(comm.rank(), 5000);  // whose sums inside hosts are exact
    const OnGpu<float> data(gpus, host);
    const Options options{.wire = DataType::bf16, .force = true};
    comm.all_reduce(host, ReduceOp::average, options);
    comm.all_reduce(data.buffer(), ReduceOp::average, options);
    EXPECT_TRUE(same_bits(data.values(), host));
  });
}

TEST_F(NcclInHosts, GroupsAndStreams) {
  run(kTwoByTwo, [&](Communicator& comm) {
    const auto stream = gpus.new_stream();
    const OnGpu<float> one(gpus, input_of<float>(comm.rank(), 10)), two(gpus, input_of<float>(comm.rank(), 3000));
    for (int lap = 0; lap < 3; ++lap) {
      Group group = comm.group();
      group.all_reduce(one.buffer(), one.buffer(), ReduceOp::average, {.stream = stream});
      group.all_reduce(two.buffer(), two.buffer(), ReduceOp::average, {.stream = stream});
      group.run();
      comm.all_reduce(two.buffer(), ReduceOp::average, {.stream = stream});
    }
    gpus.synchronize(stream);
    std::vector<float> average = sum_of<float>(4, 3000);
    for (float& value : average) value /= 4;
    EXPECT_EQ(two.values(), average);
    gpus.end_stream(stream);
  });
}

TEST_F(NcclInHosts, EachOwnerChoosesFromItsSlice) {
  run({0, 0, 1, 1, 1}, [&](Communicator& comm) {
    const TopKOptions options{.density = 0.02, .momentum = 0.5F};
    TopK of_host(options), of_gpus(options);
    EXPECT_SAYS(explain(comm, sparse(of_gpus)), "device memory: multi_host: chosen, and added up, on the GPU");
    for (int step = 0; step < 4; ++step) {
      // Whole numbers, whose sums are exact in any order.
      std::vector<float> expected = gradient_of(comm.rank(), 3001, step);
      for (float& value : expected) value = std::round(1000 * value);
      const OnGpu<float> data(gpus, expected);
      comm.all_reduce(expected, ReduceOp::sum, sparse(of_host));
      comm.all_reduce(data.buffer(), ReduceOp::sum, sparse(of_gpus));
      EXPECT_TRUE(same_bits(data.values(), expected)) << "step " << step;
    }
    EXPECT_EQ(of_gpus.save(), of_host.save());
  });
}

TEST_F(NcclInHosts, PartsMeetByThemselves) {
  run({0, 0, 0, 1, 1, 1}, [&](Communicator& comm) {
    std::optional<Communicator> part = comm.split(comm.rank() % 3 == 0 ? -1 : 0, comm.rank());
    if (!part) return;
    EXPECT_SAYS(explain(*part), kNcclInHosts);
    const OnGpu<float> data(gpus, std::vector<float>(1000, static_cast<float>(comm.rank())));
    part->all_reduce(data.buffer());
    EXPECT_EQ(data.values(), std::vector<float>(1000, 12));
  });
}

// ---- failures ----

TEST_F(NcclInHosts, RanksDisagreeAboutTheLength) {
  for (const Rank other : {1, 3})
    run(kTwoByTwo, [&](Communicator& comm) {
      const OnGpu<float> data(gpus, input_of<float>(comm.rank(), comm.rank() == other ? 999 : 1000));
      const Error error = error_of([&] { comm.all_reduce(data.buffer()); });
      EXPECT_EQ(error.code(), Errc::mismatch) << error.what();
    });
}

TEST_F(NcclInHosts, NcclFails) {
  for (const char* const function :
       {"ncclReduceScatter", "ncclAllGather", "ncclGroupEnd", "ncclCommGetAsyncError", "in a stream"}) {
    SCOPED_TRACE(function);
    run(kTwoByTwo,
        [&](Communicator& comm) {
          const OnGpu<float> data(gpus, input_of<float>(comm.rank(), 1000));
          comm.all_reduce(data.buffer());
          comm.barrier();
          if (comm.rank() == 2) FakeNccl::fail(function);
          const Error error = error_of([&] {
            comm.barrier();  // another rank may have left and failed before this rank
            comm.all_reduce(data.buffer());
            comm.barrier();  // the other host may be done when NCCL fails
          });
          EXPECT_EQ(error.code(), Errc::system) << error.what();
          EXPECT_SAYS(error.what(), "NCCL ");
          EXPECT_EQ(error_of([&] { comm.all_reduce(data.buffer()); }).code(), Errc::system);
        },
        {.backend = "hierarchical_one_shot"});
  }
}

/// Tests that a failed call delivers nothing, even if all its data had reached CPU memory.
TEST_F(NcclInHosts, TheSelectionIsRestoredWhenNcclFailsAtTheEnd) {
  for (const DataType values : {DataType::f32, DataType::bf16}) {
    std::atomic<int> have_it_back = 0;
    run(kTwoByTwo, [&](Communicator& comm) {
      TopK top_k({.density = 1, .values = values});
      const auto whole = [](Rank rank, int step) {
        std::vector<float> gradient = gradient_of(rank, 3000, step);
        for (float& value : gradient) value = std::round(10 * value);  // a value that bf16 holds exactly
        return gradient;
      };
      const OnGpu<float> data(gpus, 3000);
      for (int step = 0; step < 2; ++step) {
        data.set(whole(comm.rank(), step));
        comm.all_reduce(data.buffer(), ReduceOp::sum, sparse(top_k));
      }
      comm.barrier();
      EXPECT_EQ(top_k.report("tensor").residual_norm, 0);
      data.set(whole(comm.rank(), 2));
      if (comm.rank() == 2) FakeNccl::fail("ncclAllGather");
      const Error error = error_of([&] {
        comm.barrier();
        comm.all_reduce(data.buffer(), ReduceOp::sum, sparse(top_k));
        comm.barrier();
      });
      EXPECT_EQ(error.code(), Errc::system) << error.what();
      const Rank first_here = comm.rank() / 2 * 2;
      const std::vector<float> one = whole(first_here, 2), other = whole(first_here + 1, 2);
      double squares = 0;
      const std::size_t first = comm.rank() == first_here ? 0 : 1500;
      for (std::size_t i = first; i < first + 1500; ++i) squares += std::pow(one[i] + other[i], 2);
      const double kept = top_k.report("tensor").residual_norm;
      if (kept == 0) return;  // a rank of the host on which NCCL has not failed
      EXPECT_NEAR(kept, std::sqrt(squares), 1e-3);
      ++have_it_back;
    });
    EXPECT_GE(have_it_back, 1);  // the other rank of that host may not have selected yet
  }
}

TEST_F(NcclInHosts, NcclFailsToMeet) {
  for (const char* const function : {"ncclGetUniqueId", "ncclCommInitRankConfig"}) {
    SCOPED_TRACE(function);
    FakeNccl::fail(function);
    const Error error = error_of([&] { run(kTwoByTwo, [](Communicator&) {}); });
    EXPECT_EQ(error.code(), Errc::system) << error.what();
    EXPECT_SAYS(error.what(), "internal error");
  }
}

TEST_F(NcclInHosts, ARankGivesUp) {
  run(kTwoByTwo, [&](Communicator& comm) {
    const OnGpu<float> data(gpus, input_of<float>(comm.rank(), 1000));
    comm.all_reduce(data.buffer());
    if (comm.rank() == 2) {
      std::this_thread::sleep_for(100ms);
      return comm.abort("enough");
    }
    const Error error = error_of([&] { comm.all_reduce(data.buffer()); });
    EXPECT_EQ(error.code(), Errc::aborted) << error.what();
    EXPECT_SAYS(error.what(), "enough");
  });
}

TEST_F(NcclInHosts, AGpuStops) {
  run(kTwoByTwo, [&](Communicator& comm) {
    const OnGpu<float> data(gpus, input_of<float>(comm.rank(), 1000));
    comm.all_reduce(data.buffer());
    comm.barrier();
    if (comm.rank() == 1) gpus.stop(1);
    comm.barrier();
    const Error error = error_of([&] { comm.all_reduce(data.buffer(), ReduceOp::sum, {.timeout = 1s}); });
    EXPECT_EQ(error.code(), Errc::timeout) << error.what();
    if (comm.rank() == 1) gpus.resume(1);
    while (!gpus.idle(nullptr)) std::this_thread::sleep_for(1ms);
  });
}

}  // namespace
}  // namespace collectives::testing
