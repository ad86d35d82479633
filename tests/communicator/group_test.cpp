// Tests of groups that are refused. A group is refused if one tensor's output overlaps another tensor, or if there is
// no memory for the copies of its tensors. The other ranks then get an error.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <mutex>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "collectives/communicator.hpp"
#include "support/errors.hpp"
#include "support/hosts.hpp"
#include "support/ranks.hpp"

namespace collectives::testing {
namespace {

/// Adds tensors to a group by `add`, and returns the error of run().
template <class Add>
Error error_of_group(Communicator& comm, const Add& add) {
  Group group = comm.group();
  add(group);
  const Error error = error_of([&] { group.run(); });
  group.run();  // the group is empty
  return error;
}

TEST(GroupOverlap, IsRefusedWithBothPositions) {
  run_communicators(2, [](Communicator& comm) {
    std::vector<float> data(100, 1), other(100, 2), small(3);
    const auto part = [&](std::size_t first, std::size_t count) { return std::span(data).subspan(first, count); };
    const auto refused = [&](auto&& add, std::string_view why) {
      const Error error = error_of_group(comm, add);
      EXPECT_EQ(error.code(), Errc::invalid_argument);
      EXPECT_SAYS(error.what(), why);
    };
    refused(
        [&](Group& group) {
          group.all_reduce(data, data);
          group.all_reduce(small, small);
          group.all_reduce(data, data);
        },
        ": the output of tensor 1 and the output of tensor 3 overlap in a group of 3 tensors");
    refused(
        [&](Group& group) {
          group.all_reduce(data, other);
          group.all_reduce(other, data);
        },
        "put of tensor 2 overlap in a group of 2 tensors");
    refused(
        [&](Group& group) {
          group.all_reduce(part(0, 50), std::span(other).first(50));
          group.all_reduce(part(49, 51), part(49, 51));
        },
        "the input of tensor 1 and the output of tensor 2 overlap");
    refused(
        [&](Group& group) {
          group.all_reduce(part(99, 1), part(99, 1));
          group.all_reduce(small, small);
          group.all_reduce(part(0, 100), other);
        },
        "the output of tensor 1 and the input of tensor 3 overlap");
    refused(  // packs of different types
        [&](Group& group) {
          group.all_reduce(data, data);
          group.all_reduce(std::as_writable_bytes(part(10, 1)), std::as_writable_bytes(part(10, 1)), ReduceOp::max);
        },
        "the output of tensor 1 and the output of tensor 2 overlap");
    EXPECT_EQ(data, std::vector<float>(100, 1)) << "nothing was sent";
    comm.barrier();
  });
}

TEST(GroupOverlap, OfInputsIsAllowed) {
  run_communicators(3, [](Communicator& comm) {
    const std::vector<float> shared(40, 1);
    std::vector<float> sum(40), largest(20), in_place(7, 2);
    std::vector<float> adjacent(20, 1);
    Group group = comm.group();
    for (int time = 0; time < 2; ++time) {  // the group is used again
      std::ranges::fill(in_place, 2.f);
      std::ranges::fill(adjacent, 1.f);
      group.all_reduce(shared, sum);
      group.all_reduce(std::span(shared).subspan(10, 20), largest, ReduceOp::max);
      group.all_reduce(in_place, in_place);
      group.all_reduce(std::span(adjacent).first(10), std::span(adjacent).first(10));
      group.all_reduce(std::span(adjacent).last(10), std::span(adjacent).last(10));
      group.all_reduce(std::span(adjacent).subspan(5, 0), std::span(adjacent).subspan(5, 0));  // no elements
      group.run();
      EXPECT_EQ(sum, std::vector<float>(40, 3));
      EXPECT_EQ(largest, std::vector<float>(20, 1));
      EXPECT_EQ(in_place, std::vector<float>(7, 6));
      EXPECT_EQ(adjacent, std::vector<float>(20, 3));
    }
  });
}

TEST(GroupOverlap, IsFoundBehindShorterTensors) {
  run_communicators(1, [](Communicator& comm) {
    std::vector<float> data(1000), out(1000), last(1);
    const Error error = error_of_group(comm, [&](Group& group) {
      group.all_reduce(data, out);
      // Inputs that end before that of tensor 1.
      std::vector<std::vector<float>> outs(4, std::vector<float>(10));
      for (std::size_t i = 0; i < outs.size(); ++i) group.all_reduce(std::span(data).subspan(100 * i, 10), outs[i]);
      group.all_reduce(last, std::span(data).subspan(999, 1));
    });
    EXPECT_SAYS(error.what(), "the input of tensor 1 and the output of tensor 6 overlap in a group of 6 tensors");
  });
}

// ---- refusals ----

/// Calls build(group, refuses) on each rank, and runs the group. Expects that the run fails with `code` on rank 1, for
/// which `refuses` is true. Returns the text of the mismatch that all ranks then get.
template <class Build>
std::string mismatch_after(const std::vector<int>& hosts, Errc code, const Build& build) {
  std::mutex mutex;
  std::set<std::string> texts;
  run_hosts(hosts,
            [&](Communicator& comm) {
              const Error error = error_of([&] {
                comm.barrier();
                Group group = comm.group();
                build(group, comm.rank() == 1);
                if (comm.rank() == 1) {
                  EXPECT_EQ(error_of([&] { group.run(); }).code(), code);
                  group.run();  // the group is empty
                } else {
                  group.run();
                }
                comm.barrier();
              });
              EXPECT_EQ(error.code(), Errc::mismatch);
              const std::lock_guard lock(mutex);
              texts.insert(error.what());
            },
            {.timeout = std::chrono::seconds(20)});
  EXPECT_EQ(texts.size(), 1u);
  return texts.empty() ? "" : *texts.begin();
}

const std::vector<std::vector<int>> kHosts = {{0, 0}, {0, 0, 0}, {0, 1}};

TEST(GroupRefusal, OfOverlapIsReportedToTheOtherRanks) {
  for (const auto& hosts : kHosts) {
    std::vector<std::vector<float>> data(hosts.size(), std::vector<float>(20));
    const std::string text = mismatch_after(hosts, Errc::invalid_argument, [&](Group& group, bool bad) {
      std::vector<float>& mine = data[static_cast<std::size_t>(rank_of_thread)];
      const std::span<float> all(mine);
      group.all_reduce(all.first(10), all.first(10));
      group.all_reduce(all.subspan(bad ? 5 : 10, 10), all.subspan(bad ? 5 : 10, 10));
    });
    EXPECT_SAYS(text, "all_reduce #2: rank 1 refused all_reduce #2: the output of tensor 1 and the output of tensor 2");
  }
}

/// Adds an all-gather into tensors whose copy exceeds every memory. They are never read.
void add_too_much(Group& group, int size) {
  constexpr std::size_t kCount = std::size_t{1} << 59;
  std::vector<Buffer> outputs;
  for (std::uintptr_t r = 0; r < static_cast<std::uintptr_t>(size); ++r)  // addresses above those of a process
    outputs.emplace_back(reinterpret_cast<void*>((std::uintptr_t{1} << 62) + (r << 60)), r < 2 ? kCount : 0,
                         DataType::u8);
  group.all_gather(ConstBuffer(outputs[static_cast<std::size_t>(rank_of_thread)]), outputs);
}

TEST(GroupRefusal, OfMissingMemoryIsReportedToTheOtherRanks) {
  for (const auto& hosts : kHosts) {
    std::vector<std::vector<float>> data(hosts.size(), std::vector<float>(20));
    const std::string text = mismatch_after(hosts, Errc::system, [&](Group& group, bool bad) {
      const std::span<float> all(data[static_cast<std::size_t>(rank_of_thread)]);
      group.all_reduce(all.first(10), all.first(10));
      if (bad) return add_too_much(group, static_cast<int>(hosts.size()));
      group.all_reduce(all.first(0), all.first(0), ReduceOp::max);
    });
    EXPECT_SAYS(text, "rank 1 refused all_gather #3: no memory for the ");
  }
}

TEST(GroupRefusal, LeavesTheCommunicatorGoodIfAllRanksRefuse) {
  for (const auto& hosts : kHosts)
    run_hosts(hosts,
              [](Communicator& comm) {
                std::vector<float> data(20, 1);
                for (int round = 0; round < 3; ++round) {
                  Group group = comm.group();
                  group.all_reduce(data, data);
                  group.all_reduce(data, data);
                  EXPECT_EQ(error_of([&] { group.run(); }).code(), Errc::invalid_argument);
                  add_too_much(group, comm.size());
                  EXPECT_EQ(error_of([&] { group.run(); }).code(), Errc::system);
                  EXPECT_EQ(error_of([&] { group.all_reduce(data, std::span(data).first(3)); }).code(),
                            Errc::invalid_argument);
                  std::ranges::fill(data, 1.f);
                  group.all_reduce(data, data);
                  group.run();
                  EXPECT_EQ(data, std::vector<float>(20, static_cast<float>(comm.size())));
                }
              },
              {.timeout = std::chrono::seconds(20)});
}

}  // namespace
}  // namespace collectives::testing
