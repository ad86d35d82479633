// Tests of collectives whose messages a codec encodes, with every backend, codec and world (a layout of ranks on
// hosts).
//
// All ranks must get the same bits, even of a value that several ranks have forwarded. The error of a result must be at
// most that of two roundings.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <map>
#include <mutex>
#include <random>
#include <string>
#include <tuple>
#include <vector>

#include "collectives/codec.hpp"
#include "collectives/communicator.hpp"
#include "collectives/error.hpp"
#include "support/hosts.hpp"
#include "support/ranks.hpp"
#include "support/worlds.hpp"

namespace collectives::testing {
namespace {

/// Number of elements of a long part. Sanitizers make loops over elements slow.
constexpr unsigned kLongPart = kSanitized ? 2003 : 20'011;

/// Computes a value for each key once, for all ranks of the process. Drawing numbers takes longer than a collective.
template <class Key, class Value>
class Once {
 public:
  template <class Make>
  const Value& operator()(const Key& key, Make&& make) {
    const std::lock_guard lock(mutex_);
    auto found = values_.find(key);
    if (found == values_.end()) found = values_.emplace(key, make()).first;
    return found->second;
  }

 private:
  std::mutex mutex_;
  std::map<Key, Value> values_;  // a map, because its elements never move: references to them stay valid
};

/// Returns normally distributed elements, the input of `rank`. Every rank can compute the input of every other rank.
const std::vector<float>& normal(Rank rank, std::size_t count, float mean = 0) {
  static Once<std::tuple<Rank, std::size_t, float>, std::vector<float>> drawn;
  return drawn({rank, count, mean}, [&] {
    std::mt19937 random(static_cast<unsigned>(rank) * 7919u + static_cast<unsigned>(count));
    std::normal_distribution<float> distribution(mean, 1);
    std::vector<float> values(count);
    for (float& value : values) value = distribution(random);
    return values;
  });
}

/// A codec and the bound of its error. One rounding changes a value by at most `unit` times a magnitude.
struct Coded {
  const char* name;
  const Codec& (*codec)();
  double unit;
  bool by_element;  ///< true: that magnitude is the value's own; false: it is the greatest magnitude of its block
};
const Coded kBf16{"bf16", []() -> const Codec& { return bf16_codec(); }, 0x1p-8, true};
const Coded kF16{"f16", []() -> const Codec& { return f16_codec(); }, 0x1p-11, true};
const Coded kInt8{"int8", []() -> const Codec& { return int8_codec(); }, 1.001 / 254, false};
const Coded kMxF8E4M3{"mx_f8e4m3", []() -> const Codec& { return mx_f8e4m3_codec(); }, 0x1p-4, false};
const Coded kMxF8E5M2{"mx_f8e5m2", []() -> const Codec& { return mx_f8e5m2_codec(); }, 0x1p-3, false};

/// The exact sum of the inputs of all ranks, and the bound of the error: each contribution is rounded once, and the sum
/// is rounded once.
struct Expected {
  std::vector<double> sum, bound;
};
Expected add_up(const Coded& coded, int p, std::size_t count) {
  Expected expected{std::vector<double>(count), std::vector<double>(count)};
  double all_greatest = 0;
  for (Rank r = 0; r < p; ++r) {
    const std::vector<float>& in = normal(r, count);
    double greatest = 0;
    for (std::size_t i = 0; i < count; ++i) {
      expected.sum[i] += static_cast<double>(in[i]);
      expected.bound[i] += std::abs(static_cast<double>(in[i]));
      greatest = std::max(greatest, std::abs(static_cast<double>(in[i])));
    }
    all_greatest += greatest;
  }
  for (double& bound : expected.bound) bound = 2.02 * coded.unit * (coded.by_element ? bound : all_greatest);
  return expected;
}
const Expected& expected_of(const Coded& coded, int p, std::size_t count) {
  static Once<std::tuple<std::string, int, std::size_t>, Expected> added;
  return added({coded.name, p, count}, [&] { return add_up(coded, p, count); });
}

/// Expects each value to differ from the exact value `should(i)` by at most `bound(i)`. Reports the first failure only,
/// without a macro for each value, which would take longer than the collective.
template <class Should, class Bound>
void expect_near(const std::vector<float>& values, Should&& should, Bound&& bound) {
  for (std::size_t i = 0; i < values.size(); ++i)
    if (!(std::abs(static_cast<double>(values[i]) - should(i)) <= bound(i))) {  // also true for NaN
      ADD_FAILURE() << "element " << i << " of " << values.size() << ": " << values[i] << ", not " << should(i)
                    << " within " << bound(i);
      return;
    }
}
/// Expects `values` to be the sums of `expected` from element `first` on, within their bounds.
void expect_near(const std::vector<float>& values, const Expected& expected, std::size_t first = 0) {
  expect_near(
      values, [&](std::size_t i) { return expected.sum[first + i]; },
      [&](std::size_t i) { return expected.bound[first + i] + 1e-5; });
}
/// Expects `values` to be those of `in` after one rounding.
void expect_rounded(const Coded& coded, const std::vector<float>& values, const std::vector<float>& in) {
  const double greatest =
      in.empty() ? 0 : std::abs(*std::ranges::max_element(in, {}, [](float v) { return std::abs(v); }));
  ASSERT_EQ(values.size(), in.size());
  expect_near(
      values, [&](std::size_t i) { return static_cast<double>(in[i]); },
      [&](std::size_t i) {
        return coded.unit * (coded.by_element ? std::abs(static_cast<double>(in[i])) : greatest) + 1e-7;
      });
}

class CodingConformance : public ::testing::TestWithParam<std::tuple<const char*, World>> {
 protected:
  bool coding_is_possible() const {
    const World& world = std::get<1>(GetParam());
    const bool one_host = std::ranges::count(world.hosts, world.hosts[0]) == world.ranks();
    return !(one_host && std::get<0>(GetParam()) == std::string_view("hierarchical"));
  }
  /// Calls f(comm, coded, options) with every codec.
  template <class F>
  void run(F&& f) {
    run_hosts(std::get<1>(GetParam()).hosts,
              [&](Communicator& comm) {
                for (const Coded& coded : {kBf16, kF16, kInt8, kMxF8E4M3, kMxF8E5M2}) {
                  SCOPED_TRACE(coded.name);
                  f(comm, coded, Options{.wire = coded.codec(), .force = true});
                }
              },
              {.backend = std::get<0>(GetParam()), .timeout = std::chrono::seconds(60)});
  }
};

/// Expects the same bits on every rank.
void expect_replicas(Communicator& comm, const std::vector<float>& mine, const std::string& what) {
  std::vector<std::uint32_t> bits(mine.size()), all(mine.size() * static_cast<std::size_t>(comm.size()));
  if (!mine.empty()) std::memcpy(bits.data(), mine.data(), mine.size() * sizeof(float));
  comm.all_gather(bits, all, {.backend = "auto"});
  for (Rank r = 0; r < comm.size(); ++r)
    EXPECT_TRUE(mine.empty() || std::memcmp(bits.data(), all.data() + mine.size() * static_cast<std::size_t>(r),
                                            mine.size() * sizeof(float)) == 0)
        << what << ": rank " << comm.rank() << " and rank " << r << " differ";
}

TEST_P(CodingConformance, AllReduceIsTheSameOnAllRanksAndWithinTwoRoundings) {
  run([&](Communicator& comm, const Coded& coded, const Options& options) {
    EXPECT_EQ(comm.plan(Collective::all_reduce, 1000, DataType::f32, ReduceOp::sum, options).coded,
              coding_is_possible());
    for (const std::size_t count : awkward_counts(comm.size())) {
      const Expected& expected = expected_of(coded, comm.size(), count);
      const std::vector<float>& in = normal(comm.rank(), count);
      std::vector<float> out(count, -1), inout = in;
      comm.all_reduce(in, out, ReduceOp::sum, options);
      comm.all_reduce(inout, ReduceOp::sum, options);
      expect_near(out, expected);
      EXPECT_TRUE(same_bits(out, inout)) << count << " elements in place";
      expect_replicas(comm, out, std::to_string(count) + " elements");
    }
  });
}

TEST_P(CodingConformance, AveragesAreScaledOnceAndRoundedAfterwards) {
  run([&](Communicator& comm, const Coded& coded, const Options& options) {
    for (const std::size_t count : {std::size_t{1}, std::size_t{1000}}) {
      std::vector<float> ones(count, 1);
      comm.all_reduce(ones, ReduceOp::average, options);
      for (const float value : ones) ASSERT_NEAR(value, 1, coded.by_element ? 0 : 2.02 * coded.unit) << comm.size();
    }
  });
}

TEST_P(CodingConformance, ReduceScattersPartsOfAnyLength) {
  run([&](Communicator& comm, const Coded& coded, const Options& options) {
    const auto p = static_cast<std::size_t>(comm.size()), self = static_cast<std::size_t>(comm.rank());
    for (const std::size_t each : {0u, 1u, 257u, kLongPart}) {
      const Expected& expected = expected_of(coded, comm.size(), each * p);
      std::vector<float> out(each, -1);
      comm.reduce_scatter(normal(comm.rank(), each * p), out, ReduceOp::sum, options);
      expect_near(out, expected, self * each);
    }
    std::vector<std::size_t> counts(p);
    for (std::size_t r = 0; r < p; ++r) counts[r] = 300 * r % 701;
    const std::size_t total = std::accumulate(counts.begin(), counts.end(), std::size_t{0}),
                      first = std::accumulate(counts.begin(), counts.begin() + comm.rank(), std::size_t{0});
    const Expected& expected = expected_of(coded, comm.size(), total);
    std::vector<float> out(counts[self], -1);
    comm.reduce_scatter_v(normal(comm.rank(), total), out, counts, ReduceOp::sum, options);
    expect_near(out, expected, first);
  });
}

TEST_P(CodingConformance, AllGathersTheSameEverywhereTheOwnPartToo) {
  run([&](Communicator& comm, const Coded& coded, const Options& options) {
    const auto p = static_cast<std::size_t>(comm.size());
    for (const std::size_t each : {0u, 1u, 257u, kLongPart}) {
      std::vector<float> out(each * p, -1);
      comm.all_gather(normal(comm.rank(), each), out, options);
      expect_replicas(comm, out, std::to_string(each) + " elements of each");
      for (Rank r = 0; r < comm.size(); ++r) {
        const auto part = out.begin() + static_cast<std::ptrdiff_t>(each) * r;
        expect_rounded(coded, {part, part + static_cast<std::ptrdiff_t>(each)}, normal(r, each));
      }
    }
  });
}

TEST_P(CodingConformance, BroadcastsFromAnyRootWhatTheRootKeepsToo) {
  run([&](Communicator& comm, const Coded& coded, const Options& options) {
    for (Rank root = 0; root < comm.size(); ++root)
      for (const std::size_t count : {0u, 1u, 1000u, 2 * kLongPart - 13}) {
        const std::vector<float>& in = normal(root, count);
        std::vector<float> data = comm.rank() == root ? in : std::vector<float>(count, -1);
        comm.broadcast(data, root, options);
        expect_replicas(comm, data, std::to_string(count) + " elements from " + std::to_string(root));
        expect_rounded(coded, data, in);
      }
  });
}

TEST_P(CodingConformance, ReducesToAnyRoot) {
  run([&](Communicator& comm, const Coded& coded, const Options& options) {
    for (Rank root = 0; root < comm.size(); ++root) {
      const std::size_t count = 1009;
      const Expected& expected = expected_of(coded, comm.size(), count);
      std::vector<float> out(comm.rank() == root ? count : 0);
      comm.reduce(normal(comm.rank(), count), out, ReduceOp::sum, root, options);
      expect_near(out, expected);  // no element, except at the root
    }
  });
}

TEST_P(CodingConformance, UnalignedBuffersWorkWithALateRank) {
  run([&](Communicator& comm, const Coded&, const Options& options) {
    const std::size_t count = 5003;
    const std::vector<float>& in = normal(comm.rank(), count);
    std::vector<float> aligned(count);
    comm.all_reduce(in, aligned, ReduceOp::sum, options);
    if (comm.rank() == comm.size() - 1) std::this_thread::sleep_for(std::chrono::milliseconds(20));
    std::vector<std::byte> bytes(count * sizeof(float) + 1);
    std::memcpy(bytes.data() + 1, in.data(), count * sizeof(float));
    const Buffer odd(bytes.data() + 1, count, DataType::f32);
    comm.all_reduce(odd, ReduceOp::sum, options);
    EXPECT_EQ(std::memcmp(bytes.data() + 1, aligned.data(), count * sizeof(float)), 0);
  });
}

TEST_P(CodingConformance, AsynchronousCallsInterleaveWithOtherCalls) {
  run([&](Communicator& comm, const Coded&, const Options& options) {
    const std::size_t count = 3001;
    const std::vector<float>& in = normal(comm.rank(), count);
    const std::vector<float> small = input_of<float>(comm.rank(), count);
    std::vector<float> expected(count), first(count), plain(count), second(count);
    comm.all_reduce(in, expected, ReduceOp::sum, options);
    Work a = comm.all_reduce_async(in, first, ReduceOp::sum, options);
    Work b = comm.all_reduce_async(small, plain);
    Work c = comm.all_reduce_async(in, second, ReduceOp::sum, options);
    c.wait();
    b.wait();
    a.wait();
    EXPECT_TRUE(same_bits(first, expected));
    EXPECT_TRUE(same_bits(second, expected));
    EXPECT_TRUE(same_bits(plain, sum_of<float>(comm.size(), count)));
  });
}

TEST_P(CodingConformance, NaNAndInfinityAreReceivedByEveryRank) {
  run([&](Communicator& comm, const Coded&, const Options& options) {
    if (comm.size() == 1) return;
    std::vector<float> data(2000, 1.0F);
    if (comm.rank() == comm.size() - 1) {
      data[3] = std::numeric_limits<float>::quiet_NaN();
      data[1500] = -std::numeric_limits<float>::infinity();
    }
    comm.all_reduce(data, ReduceOp::sum, options);
    EXPECT_TRUE(std::isnan(data[3]));
    EXPECT_FALSE(std::isfinite(data[1500]));
    expect_replicas(comm, data, "with NaN");
  });
}

/// One rank owns each part of the vector. It sums contributions that went through the codec once, in rank order. It
/// scales and rounds the sum once. `deterministic` promises that for every backend.
TEST_P(CodingConformance, DeterministicBitsAreThoseOfTheOwnersSum) {
  if (!coding_is_possible()) return;
  run([&](Communicator& comm, const Coded& coded, const Options& options) {
    if (!coded.by_element) return;  // blocks begin at the beginning of a message
    const std::size_t count = 3 * static_cast<std::size_t>(comm.size()) + 1000;
    const Codec& codec = coded.codec();
    std::vector<std::byte> wire(codec.encoded_bytes(count));
    const auto rounded = [&](std::vector<float> values) {
      codec.encode(values, wire.data());
      codec.decode(wire.data(), values);
      return values;
    };
    std::vector<float> expected = rounded(normal(0, count));
    for (Rank r = 1; r < comm.size(); ++r) {
      const std::vector<float> next = rounded(normal(r, count));
      for (std::size_t i = 0; i < count; ++i) expected[i] += next[i];
    }
    for (float& value : expected) value /= static_cast<float>(comm.size());
    Options exact = options;
    exact.deterministic = true;
    std::vector<float> out(count);
    comm.all_reduce(normal(comm.rank(), count), out, ReduceOp::average, exact);
    EXPECT_TRUE(same_bits(out, rounded(expected)));
  });
}

std::vector<World> coded_worlds() {
  return {
    {"2", {0, 0}}, {"3", {0, 0, 0}}, {"2hosts_of_1", {0, 1}}, {"2hosts_of_2", {0, 0, 1, 1}},
        {"3hosts_unequal", {0, 0, 1, 2, 2, 2}},
#if !defined(__SANITIZE_THREAD__) && !defined(__SANITIZE_ADDRESS__)  // sanitizers, which take minutes for more worlds
        {"7", {0, 0, 0, 0, 0, 0, 0}}, {"10hosts_of_1", {0, 1, 2, 3, 4, 5, 6, 7, 8, 9}},
        {"2hosts_interleaved", {0, 1, 0, 1, 1}},
#endif
  };
}
INSTANTIATE_TEST_SUITE_P(, CodingConformance,
                         ::testing::Combine(::testing::Values("ring", "hierarchical", "reduce_to_one_tree",
                                                              "reduce_to_one_direct"),
                                            ::testing::ValuesIn(coded_worlds())),
                         [](const auto& parameters) {
                           return std::string(std::get<0>(parameters.param)) + "_ranks_" +
                                  std::get<1>(parameters.param).name;
                         });

// ---- sums over many ranks ----

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr int kMany = 64;  // sanitizers take minutes for more ranks
#else
constexpr int kMany = 264;
#endif

TEST(CodedSum, OfManyOnesIsTheirNumber) {
  // A running sum in bf16 stops at 256.
  CommunicatorOptions small;  // frames between all ranks would take gigabytes otherwise
  small.tuning.emplace().frame_bytes = 64;
  small.tuning->chunk_bytes = 64;
  small.tuning->inline_bytes = 0;
  small.progress_thread = false;
  run_communicators(
      kMany,
      [](Communicator& comm) {
        const Options bf16{.backend = "reduce_to_one", .wire = DataType::bf16, .force = true};
        std::vector<float> ones(3, 1.0F);
        comm.all_reduce(ones, ReduceOp::sum, bf16);
        EXPECT_EQ(ones, std::vector<float>(3, static_cast<float>(kMany)));
        // A running sum in bf16 never leaves 1.
        std::vector<float> one_and_little(1, comm.rank() == 0 ? 1.0F : 0x1p-9F);
        comm.all_reduce(one_and_little, ReduceOp::sum, bf16);
        EXPECT_EQ(one_and_little[0], static_cast<float>(bfloat16(1.0F + (kMany - 1) * 0x1p-9F)));
      },
      small);
}

TEST(CodedSum, MeansOfOnesAreOneForAnyNumberOfRanks) {
  for (const int p : {7, 10, 14, 19})
    run_communicators(p, [&](Communicator& comm) {
      std::vector<float> ones(33, 1.0F);
      comm.all_reduce(ones, ReduceOp::average, {.backend = "ring", .wire = DataType::bf16, .force = true});
      EXPECT_EQ(ones, std::vector<float>(33, 1.0F)) << p << " ranks";
    });
}

TEST(CodedSum, IsCloserThanASumThatIsRoundedAtEveryHop) {
  const int p = 8;
  const std::size_t count = 4000;
  double ours = 0, ring = 0;
  std::vector<double> exact(count);
  std::vector<float> hops(count);
  for (Rank r = 0; r < p; ++r) {
    const std::vector<float>& in = normal(r, count);
    for (std::size_t i = 0; i < count; ++i) {
      exact[i] += static_cast<double>(in[i]);
      const float sum = r == 0 ? in[i] : hops[i] + in[i];
      hops[i] = static_cast<float>(bfloat16(sum));
    }
  }
  for (std::size_t i = 0; i < count; ++i) ring += std::pow(static_cast<double>(hops[i]) - exact[i], 2);
  run_communicators(p, [&](Communicator& comm) {
    std::vector<float> out(count);
    comm.all_reduce(normal(comm.rank(), count), out, ReduceOp::sum,
                    {.backend = "ring", .wire = DataType::bf16, .force = true});
    if (comm.rank() != 0) return;
    for (std::size_t i = 0; i < count; ++i) ours += std::pow(static_cast<double>(out[i]) - exact[i], 2);
  });
  EXPECT_LT(std::sqrt(ours), 0.75 * std::sqrt(ring));
}

// ---- the rule ----

TEST(CodingRule, RanksThatShareMemorySendValuesAsTheyAre) {
  run_communicators(2, [](Communicator& comm) {
    const Options bf16{.wire = DataType::bf16};
    const Plan plan = comm.plan(Collective::all_reduce, 1 << 20, DataType::f32, ReduceOp::sum, bf16);
    EXPECT_FALSE(plan.coded);
    EXPECT_NE(plan.codec_reason.find("not bf16"), std::string::npos) << plan.codec_reason;
    EXPECT_NE(comm.explain(Collective::all_reduce, 1 << 20, DataType::f32, ReduceOp::sum, bf16).find("not bf16"),
              std::string::npos);
    std::vector<float> thirds(1000, 1.0F / 3);
    comm.all_reduce(thirds, ReduceOp::sum, bf16);
    EXPECT_EQ(thirds, std::vector<float>(1000, 2.0F / 3));
    Options forced = bf16;
    forced.force = true;
    EXPECT_TRUE(comm.plan(Collective::all_reduce, 1 << 20, DataType::f32, ReduceOp::sum, forced).coded);
  });
}

TEST(CodingRule, ASlowWireIsWorthIt) {
  CommunicatorOptions options;
  options.tuning.emplace().wire_us_per_byte = 1 / 119.6;
  run_hosts(
      {0, 1},
      [](Communicator& comm) {
        const Plan plain = comm.plan(Collective::all_reduce, 1 << 20, DataType::f32);
        const Plan coded =
            comm.plan(Collective::all_reduce, 1 << 20, DataType::f32, ReduceOp::sum, {.wire = DataType::bf16});
        EXPECT_TRUE(coded.coded) << coded.codec_reason;
        EXPECT_NEAR(static_cast<double>(coded.estimate.bytes_between_hosts),
                    static_cast<double>(plain.estimate.bytes_between_hosts) / 2, 64);
        EXPECT_GT(plain.estimate.microseconds, 1.8 * coded.estimate.microseconds);
      },
      options);
}

TEST(CodingRule, CountsTheBytesThatAreSent) {
  run_hosts({0, 1}, [](Communicator& comm) {
    std::vector<float> data(10'000, 1);
    const std::uint64_t before = comm.bytes_sent_to_other_hosts();
    comm.all_reduce(data, ReduceOp::sum, {.wire = DataType::bf16, .force = true});
    EXPECT_EQ(comm.bytes_sent_to_other_hosts() - before, 20'000U);
    comm.all_reduce(data, ReduceOp::sum, {.wire = int8_codec(), .force = true});
    EXPECT_EQ(comm.bytes_sent_to_other_hosts() - before, 20'000U + int8_codec().encoded_bytes(10'000));
    comm.all_reduce(data);
    EXPECT_EQ(comm.coding().raw_bytes, 80'000U);
    EXPECT_EQ(comm.coding().sent_bytes, 20'000U + int8_codec().encoded_bytes(10'000));
    EXPECT_GT(comm.coding().seconds, 0);
  });
}

// ---- refused calls and codecs ----

TEST(CodingMistakes, UnsupportedTypesAreRefused) {
  run_communicators(2, [](Communicator& comm) {
    std::vector<float> floats(10, 1);
    std::vector<std::int32_t> integers(10, 1);
    const auto text_of = [](auto&& call) -> std::string {
      try {
        call();
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), Errc::invalid_argument);
        return error.what();
      }
      return "nothing thrown";
    };
    EXPECT_NE(text_of([&] {
                comm.all_reduce(integers, ReduceOp::sum, {.wire = DataType::bf16});
              }).find("wire bf16 carries f32, not i32"),
              std::string::npos);
    EXPECT_NE(
        text_of([&] { comm.all_reduce(floats, ReduceOp::sum, {.wire = DataType::i8}); }).find("nothing travels as i8"),
        std::string::npos);
    EXPECT_NE(text_of([&] { comm.broadcast(integers, 0, {.wire = int8_codec()}); }).find("carries f32, not i32"),
              std::string::npos);
    comm.all_reduce(floats, ReduceOp::sum, {.wire = DataType::f32});  // values without a code
    EXPECT_EQ(floats, std::vector<float>(10, 2));
    comm.all_reduce(integers, ReduceOp::sum, {.wire = DataType::i32});
    EXPECT_EQ(integers, std::vector<std::int32_t>(10, 2));
  });
}

/// A codec with blocks of a given number of zeros.
class Zeros final : public Codec {
 public:
  explicit Zeros(std::size_t block, std::size_t header = 0) : block_(block), header_(header) {}
  std::string_view name() const noexcept override { return "zeros"; }
  std::size_t block() const noexcept override { return block_; }
  std::size_t encoded_bytes(std::size_t count) const noexcept override {
    return header_ + (count + block_ - 1) / block_ * 2;
  }
  void encode(std::span<const float> values, std::byte* wire) const noexcept override {
    std::memset(wire, 0, encoded_bytes(values.size()));
  }
  void decode(const std::byte*, std::span<float> values) const noexcept override { std::ranges::fill(values, 0.0F); }

 private:
  std::size_t block_, header_;
};

TEST(CodingMistakes, CodecsOfOneNameThatCutOtherwiseAreOthers) {
  run_hosts({0, 1}, [](Communicator& comm) {
    const Zeros long_blocks(3000), short_blocks(1);
    for (const Codec* codec : {static_cast<const Codec*>(&long_blocks), static_cast<const Codec*>(&short_blocks)}) {
      std::vector<float> data(200'000, 1);
      comm.all_reduce(data, ReduceOp::sum, {.wire = *codec, .force = true});
      EXPECT_EQ(data[199'999], 0);
    }
    std::vector<float> data(1000, 1);
    const Codec& mine = comm.rank() == 0 ? long_blocks : short_blocks;
    try {
      comm.all_reduce(data, ReduceOp::sum, {.wire = mine, .force = true});
      ADD_FAILURE() << "no error";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Errc::mismatch);
      EXPECT_NE(std::string(error.what()).find("rank 0 passed 1000 x f32 compressed by zeros (3000 elements in 2 bytes), "
                                               "rank 1 passed 1000 x f32 compressed by zeros (1 elements in 2 bytes)"),
                std::string::npos)
          << error.what();
    }
  });
}

TEST(CodingMistakes, CodecsThatDoNotKeepTheirRateAndBlocksThatDependOnTheCut) {
  run_hosts({0, 1}, [](Communicator& comm) {
    const Zeros with_header(1, 64);
    std::vector<float> data(1000, 1);
    const auto code_of = [&](const Options& options) {
      try {
        comm.all_reduce(data, ReduceOp::sum, options);
      } catch (const Error& error) {
        return error.code();
      }
      return Errc::system;
    };
    EXPECT_EQ(code_of({.wire = with_header, .force = true}), Errc::invalid_argument);
    EXPECT_EQ(code_of({.deterministic = true, .wire = int8_codec()}), Errc::unsupported);
    comm.all_reduce(data);  // the communicator still works
  });
}

TEST(CodingMistakes, DeterministicSumsThatAreNotRoundedWhereOthersAre) {
  run_communicators(2, [](Communicator& comm) {
    std::vector<float> data(100, 1);
    try {
      comm.all_reduce(data, ReduceOp::sum, {.backend = "hierarchical", .deterministic = true, .wire = DataType::bf16});
      ADD_FAILURE() << "no error";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Errc::unsupported);
    }
  });
}

TEST(CodingMistakes, RanksWithDifferentCodecsAreAMismatch) {
  std::array<std::string, 3> texts;
  run_hosts({0, 1, 1}, [&](Communicator& comm) {
    std::vector<float> data(1000, 1);
    Options options{.force = true};
    if (comm.rank() == 1) options.wire = DataType::bf16;
    try {
      comm.all_reduce(data, ReduceOp::sum, options);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Errc::mismatch);
      texts[static_cast<std::size_t>(comm.rank())] = error.what();
    }
  });
  for (const std::string& text : texts) {
    EXPECT_NE(text.find("rank 1 passed 1000 x f32 compressed by bf16"), std::string::npos) << text;
    EXPECT_NE(text.find("passed 1000 x f32 not compressed"), std::string::npos) << text;
  }
}

/// A codec of a program: values up to 2^11 as the nearest multiple of 1/16, in 16 bits.
class Sixteenths final : public Codec {
 public:
  std::string_view name() const noexcept override { return "sixteenths of a user"; }
  std::size_t encoded_bytes(std::size_t count) const noexcept override { return 2 * count; }
  void encode(std::span<const float> values, std::byte* wire) const noexcept override {
    for (std::size_t i = 0; i < values.size(); ++i) {
      const auto number = static_cast<std::int16_t>(std::clamp(std::nearbyint(values[i] * 16), -32767.0F, 32767.0F));
      std::memcpy(wire + 2 * i, &number, 2);
    }
  }
  void decode(const std::byte* wire, std::span<float> values) const noexcept override {
    for (std::size_t i = 0; i < values.size(); ++i) {
      std::int16_t number;
      std::memcpy(&number, wire + 2 * i, 2);
      values[i] = static_cast<float>(number) / 16;
    }
  }
};

TEST(UserCodec, TravelsLikeTheLibrarysOwn) {
  const Sixteenths sixteenths;
  for (const char* backend : {"ring", "hierarchical", "reduce_to_one"})
    run_hosts({0, 0, 1, 1, 2}, [&](Communicator& comm) {
      std::vector<float> data(5000);
      for (std::size_t i = 0; i < data.size(); ++i)
        data[i] = static_cast<float>(i % 100) + 0.01F * static_cast<float>(comm.rank() + 1);
      const Options options{.backend = backend, .wire = sixteenths, .force = true};
      EXPECT_NE(comm.explain(Collective::all_reduce, 5000, DataType::f32, ReduceOp::sum, options)
                    .find("sixteenths of a user"),
                std::string::npos);
      comm.all_reduce(data, ReduceOp::sum, options);
      for (std::size_t i = 0; i < data.size(); ++i)
        ASSERT_NEAR(data[i], 5 * static_cast<float>(i % 100) + 0.15F, 6.0F / 32) << backend;
      expect_replicas(comm, data, backend);
    });
}

TEST(UserCodec, IsRefusedIfItsBlockExceedsAFrame) {
  // A frame holds 64 KiB. A block of 100,000 bytes must be refused before it overruns the frame.
  class Long final : public Codec {
   public:
    std::string_view name() const noexcept override { return "long"; }
    std::size_t block() const noexcept override { return 100'000; }
    std::size_t encoded_bytes(std::size_t count) const noexcept override { return count; }
    void encode(std::span<const float> values, std::byte* wire) const noexcept override {
      std::memset(wire, 0, values.size());
    }
    void decode(const std::byte*, std::span<float> values) const noexcept override { std::ranges::fill(values, 0.0F); }
  };
  const Long codec;
  run_communicators(2, [&](Communicator& comm) {
    std::vector<float> data(1000, 1);
    try {
      comm.all_reduce(data, ReduceOp::sum, {.backend = "ring", .wire = codec, .force = true});
      ADD_FAILURE() << "no error";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Errc::invalid_argument);
      EXPECT_NE(std::string(error.what()).find("block"), std::string::npos) << error.what();
    }
  });
}

}  // namespace
}  // namespace collectives::testing
