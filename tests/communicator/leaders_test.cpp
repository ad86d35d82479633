// Tests of reduce-scatter and all-gather by leaders. A leader is the rank that exchanges messages for all ranks of its
// host. The tests check sums, the places of parts, and refused calls. steps_test proves the schedules themselves.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <numeric>
#include <string>
#include <vector>

#include "collectives/communicator.hpp"
#include "collectives/error.hpp"
#include "support/hosts.hpp"
#include "support/worlds.hpp"

namespace collectives::testing {
namespace {

class Leaders : public ::testing::TestWithParam<World> {
 protected:
  void run(const std::function<void(Communicator&)>& f) const {
    std::vector<int> ranks_of;
    for (const int host : GetParam().hosts) {
      ranks_of.resize(std::max(ranks_of.size(), static_cast<std::size_t>(host) + 1));
      ++ranks_of[static_cast<std::size_t>(host)];
    }
    const bool alone = *std::ranges::max_element(ranks_of) == 1;
    CommunicatorOptions options;
    options.backend = alone ? "hierarchical_halving" : "hierarchical_leaders_halving";
    options.timeout = std::chrono::seconds(60);
    run_hosts(GetParam().hosts, f, options);
  }
};

std::vector<World> hosts_in_order() {
  return {
      {"3hosts_of_1", {0, 1, 2}},    {"4hosts_of_1", {0, 1, 2, 3}},          {"5hosts_of_1", {0, 1, 2, 3, 4}},
      {"2hosts_of_2", {0, 0, 1, 1}}, {"3hosts_unequal", {0, 0, 1, 2, 2, 2}}, {"4hosts_of_2", {0, 0, 1, 1, 2, 2, 3, 3}}};
}

/// Returns unequal counts: 0 for some ranks, and one element more for rank 1.
std::vector<std::size_t> counts_of(int ranks, std::size_t scale) {
  std::vector<std::size_t> counts(static_cast<std::size_t>(ranks));
  for (std::size_t r = 0; r < counts.size(); ++r) counts[r] = (r * 7 + 3) % 4 * scale + (r == 1 ? 1 : 0);
  return counts;
}

template <class T>
void scatter_and_gather(
    Communicator& comm, const std::vector<std::size_t>& counts, const ReduceOp& op,
    const std::function<double(double)>& finish = [](double sum) { return sum; }) {
  const auto self = static_cast<std::size_t>(comm.rank());
  const std::size_t total = std::accumulate(counts.begin(), counts.end(), std::size_t{0});
  const std::size_t first = std::accumulate(counts.begin(), counts.begin() + comm.rank(), std::size_t{0});
  std::vector<T> expected;
  for (std::size_t i = first; i < first + counts[self]; ++i) {
    double sum = 0;
    for (Rank r = 0; r < comm.size(); ++r) sum += static_cast<double>(value_of<T>(r, i));
    expected.push_back(static_cast<T>(finish(sum)));
  }
  std::vector<T> in = input_of<T>(comm.rank(), total), out(counts[self]);
  comm.reduce_scatter_v(in, out, counts, op);
  EXPECT_TRUE(same_bits(out, expected)) << total << " elements, " << to_string(op.kind());
  const std::span<T> mine(in.data() + first, counts[self]);
  comm.reduce_scatter_v(in, mine, counts, op);
  EXPECT_TRUE(same_bits(std::vector<T>(mine.begin(), mine.end()), expected)) << total << " elements in place";

  std::vector<T> all, gathered(total), inout(total);
  for (Rank r = 0; r < comm.size(); ++r) {
    const auto part = input_of<T>(r, counts[static_cast<std::size_t>(r)]);
    all.insert(all.end(), part.begin(), part.end());
  }
  const auto part = input_of<T>(comm.rank(), counts[self]);
  comm.all_gather_v(part, gathered, counts);
  EXPECT_TRUE(same_bits(gathered, all)) << total << " elements";
  const std::span<T> own(inout.data() + first, counts[self]);
  std::copy(part.begin(), part.end(), own.begin());
  comm.all_gather_v(own, inout, counts);
  EXPECT_TRUE(same_bits(inout, all)) << total << " elements in place";
}

TEST_P(Leaders, BringSumsAndPartsToWhereTheyBelong) {
  run([](Communicator& comm) {
    for (const std::size_t each : {0u, 1u, 3u, 611u})
      scatter_and_gather<float>(comm, std::vector<std::size_t>(static_cast<std::size_t>(comm.size()), each),
                                ReduceOp::sum);
    for (const std::size_t scale : {0u, 1u, 13u, 400u})
      scatter_and_gather<double>(comm, counts_of(comm.size(), scale), ReduceOp::sum);
  });
}

// Tests that a contribution is scaled once and a sum is divided once, by every algorithm.
TEST_P(Leaders, ScaleAndDivideOnce) {
  run([](Communicator& comm) {
    const auto counts = counts_of(comm.size(), 5);
    scatter_and_gather<double>(comm, counts, ReduceOp::pre_scaled_sum(0.25), [](double sum) { return sum * 0.25; });
    scatter_and_gather<double>(comm, counts, ReduceOp::average, [&](double sum) { return sum / comm.size(); });
    scatter_and_gather<std::int64_t>(comm, counts, ReduceOp::sum);
  });
}

// Tests that no bytes of the caller's buffers are still being sent when a call returns.
TEST_P(Leaders, CallsFollowOneAnother) {
  run([](Communicator& comm) {
    const auto p = static_cast<std::size_t>(comm.size());
    std::vector<std::int32_t> mine(100), all(100 * p), sums(100);
    for (std::int32_t lap = 0; lap < 100; ++lap) {
      std::ranges::fill(mine, lap + comm.rank());
      comm.all_gather(mine, all);
      for (std::size_t r = 0; r < p; ++r) ASSERT_EQ(all[100 * r + 99], lap + static_cast<std::int32_t>(r));
      comm.reduce_scatter(all, sums);
      ASSERT_EQ(sums[0], comm.size() * (lap + comm.rank()));
    }
  });
}

// Tests a vector that just fits into one message, in which one rank's part is nearly the whole vector.
TEST_P(Leaders, ScatterAndGatherAVectorThatFillsAMessage) {
  run([](Communicator& comm) {
    std::vector<std::size_t> counts(static_cast<std::size_t>(comm.size()), 300);
    counts[1] = 16384 - 300 * (counts.size() - 1);
    scatter_and_gather<float>(comm, counts, ReduceOp::sum);
  });
}

TEST_P(Leaders, AVectorThatFitsInNoMessageIsRefusedByAllAlike) {
  run([](Communicator& comm) {
    const auto p = static_cast<std::size_t>(comm.size());
    std::vector<float> mine(1 << 20), all(p << 20);
    try {
      comm.all_gather(mine, all);
      ADD_FAILURE() << "no error";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Errc::unsupported);
      EXPECT_NE(std::string(error.what()).find("fits in a message"), std::string::npos) << error.what();
    }
    comm.all_gather(std::span(mine).first(3), std::span(all).first(3 * p));  // the communicator still works
  });
}

INSTANTIATE_TEST_SUITE_P(, Leaders, ::testing::ValuesIn(hosts_in_order()),
                         [](const auto& parameters) { return "Ranks_" + parameters.param.name; });

TEST(LeadersOfInterleavedHosts, AreRefused) {
  CommunicatorOptions options;
  options.backend = "hierarchical_leaders_halving";
  run_hosts(
      {0, 1, 0, 1},
      [](Communicator& comm) {
        std::vector<float> mine(1), all(4);
        EXPECT_THROW(comm.all_gather(mine, all), Error);
        comm.all_gather(mine, all, {.backend = "auto"});
      },
      options);
}

}  // namespace
}  // namespace collectives::testing
