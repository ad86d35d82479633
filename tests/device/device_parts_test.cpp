// Tests of gather, scatter and scans on buffers in GPU memory. The GPUs are fakes. The tests run for each backend that
// has a form of the collective. Backends that exchange messages use the device path `steps`. Others use `host_copy`.
//
// The expected results are computed from the inputs of all ranks. A world is a layout of ranks on hosts
// (support/worlds.hpp). backend_conformance.hpp tests all_to_all.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <span>
#include <string>
#include <tuple>
#include <vector>

#include "collectives/communicator.hpp"
#include "fakes/gpu/fake_device.hpp"
#include "planning/device_path_choice.hpp"
#include "support/errors.hpp"
#include "support/gpu_buffers.hpp"
#include "support/hosts.hpp"
#include "support/subject.hpp"
#include "support/worlds.hpp"

namespace collectives::testing {
namespace {

class PartsOnGpus : public ::testing::TestWithParam<std::tuple<const char*, World>> {
 protected:
  static std::string backend() { return std::get<0>(GetParam()); }
  static void run(const std::function<void(Subject&)>& f) {
    const std::string name = backend();
    run_hosts(std::get<1>(GetParam()).hosts,
              [&](Communicator& comm) {
                BuffersOnGpu buffers;
                Subject subject(comm, &buffers);
                f(subject);
              },
              {.backend = name, .timeout = std::chrono::seconds(60)});
  }

 private:
  FakeGpus gpus_{2, true};
};

std::vector<float> unwritten(std::size_t count) { return std::vector<float>(count, -1); }

std::vector<float> parts_of_all(int ranks, std::size_t count) {
  std::vector<float> all;
  for (Rank r = 0; r < ranks; ++r) {
    const auto part = input_of<float>(r, count);
    all.insert(all.end(), part.begin(), part.end());
  }
  return all;
}

void expect_path(Subject& comm, const std::string& backend, Collective collective) {
  EXPECT_SAYS(comm.communicator().explain(collective, 1000, DataType::f32, ReduceOp::sum, {.stream = nullptr}),
              std::string("device memory: ") + (passes_messages(backend) ? "steps" : "host_copy") + ": ");
}

class RootedOnGpus : public PartsOnGpus {};

TEST_P(RootedOnGpus, GathersAtAnyRoot) {
  run([](Subject& comm) {
    expect_path(comm, backend(), Collective::gather);
    const auto p = static_cast<std::size_t>(comm.size());
    for (Rank root = 0; root < comm.size(); ++root)
      for (const std::size_t count : awkward_counts(comm.size())) {
        const bool at_root = comm.rank() == root;
        const auto in = input_of<float>(comm.rank(), count), expected = parts_of_all(comm.size(), count);
        std::vector<float> out = unwritten(at_root ? p * count : 0);
        comm.gather(in, out, root);
        EXPECT_TRUE(!at_root || same_bits(out, expected)) << count << " elements at " << root;
        std::vector<float> inout = unwritten(at_root ? p * count : count);
        const std::span<float> mine(inout.data() + (at_root ? static_cast<std::size_t>(root) * count : 0), count);
        std::ranges::copy(in, mine.begin());
        comm.gather(mine, at_root ? Buffer(inout) : Buffer(), root);
        EXPECT_TRUE(same_bits(inout, at_root ? expected : in)) << count << " elements in place at " << root;
      }
  });
}

TEST_P(RootedOnGpus, ScattersFromAnyRoot) {
  run([](Subject& comm) {
    expect_path(comm, backend(), Collective::scatter);
    for (Rank root = 0; root < comm.size(); ++root)
      for (const std::size_t count : awkward_counts(comm.size())) {
        const bool at_root = comm.rank() == root;
        const auto expected = input_of<float>(comm.rank(), count), all = parts_of_all(comm.size(), count);
        std::vector<float> out = unwritten(count), data = at_root ? all : unwritten(count);
        comm.scatter(at_root ? ConstBuffer(all) : ConstBuffer(), out, root);
        EXPECT_TRUE(same_bits(out, expected)) << count << " elements from " << root;
        const std::span<float> mine(data.data() + (at_root ? static_cast<std::size_t>(root) * count : 0), count);
        comm.scatter(at_root ? ConstBuffer(data) : ConstBuffer(), mine, root);
        EXPECT_TRUE(std::ranges::equal(mine, expected)) << count << " elements in place from " << root;
      }
  });
}

class ScansOnGpus : public PartsOnGpus {};

TEST_P(ScansOnGpus, ScanAnyCount) {
  run([](Subject& comm) {
    expect_path(comm, backend(), Collective::scan);
    for (const std::size_t count : awkward_counts(comm.size())) {
      const auto in = input_of<float>(comm.rank(), count), expected = sum_of<float>(comm.rank() + 1, count);
      std::vector<float> out = unwritten(count), inout = in;
      comm.scan(in, out);
      EXPECT_TRUE(same_bits(out, expected)) << count << " elements";
      comm.scan(inout, inout);
      EXPECT_TRUE(same_bits(inout, expected)) << count << " elements in place";
    }
  });
}

TEST_P(ScansOnGpus, ExclusiveScanLeavesTheOutputOfRankZeroAlone) {
  run([](Subject& comm) {
    expect_path(comm, backend(), Collective::exclusive_scan);
    for (const std::size_t count : awkward_counts(comm.size())) {
      const bool first = comm.rank() == 0;
      const auto in = input_of<float>(comm.rank(), count);
      const auto expected = first ? unwritten(count) : sum_of<float>(comm.rank(), count);
      std::vector<float> out = unwritten(count), inout = in;
      comm.exclusive_scan(in, out);
      EXPECT_TRUE(same_bits(out, expected)) << count << " elements";
      comm.exclusive_scan(inout, inout);
      EXPECT_TRUE(same_bits(inout, first ? in : expected)) << count << " elements in place";
    }
  });
}

const auto kName = [](const auto& parameters) {
  return std::string(std::get<0>(parameters.param)) + "_" + std::get<1>(parameters.param).name;
};
const std::vector<World> kWorlds{{"1", {0}}, {"3", {0, 0, 0}}, {"2hosts_interleaved", {0, 1, 0, 1, 1}}};

INSTANTIATE_TEST_SUITE_P(Backends, RootedOnGpus,
                         ::testing::Combine(::testing::Values("auto", "hierarchical", "reduce_to_one"),
                                            ::testing::ValuesIn(kWorlds)),
                         kName);
INSTANTIATE_TEST_SUITE_P(Backends, ScansOnGpus,
                         ::testing::Combine(::testing::Values("auto", "hierarchical", "ring"),
                                            ::testing::ValuesIn(kWorlds)),
                         kName);

TEST(PartsInDeviceMemory, RefuseLocalCountsAndStayUsable) {
  FakeGpus gpus(2, true);
  run_hosts({0, 0}, [](Communicator& comm) {
    BuffersOnGpu buffers;
    std::byte* const memory = buffers.take(2 * sizeof(float));
    const std::vector<std::size_t> counts{1, 1};
    const ConstBuffer all(memory, 2, DataType::f32), mine(memory, 1, DataType::f32);
    const Buffer out(memory, 2, DataType::f32), out_mine(memory, 1, DataType::f32);
    const auto expect_refusal = [&](const std::string& call, const std::function<void()>& f) {
      const Error error = error_of(f);
      EXPECT_EQ(error.code(), Errc::unsupported);
      EXPECT_SAYS(error.what(), "device memory has no " + call + ": pass buffers in host memory");
    };
    expect_refusal("all_to_all_v", [&] { comm.all_to_all_v(all, counts, out, counts); });
    expect_refusal("gather_v", [&] { comm.gather_v(mine, out, counts, 0); });
    expect_refusal("scatter_v", [&] { comm.scatter_v(all, out_mine, counts, 0); });
    comm.barrier();
    buffers.give_back(memory);
  });
}

}  // namespace
}  // namespace collectives::testing
