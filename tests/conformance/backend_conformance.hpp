// Conformance suite that every backend (ring, hierarchical ...) must pass. It tests every collective, in place and out
// of place, with any count and any root. All ranks must get equal bits. One line in backend_test.cpp runs the suite for
// a backend.
//
// Inputs are small integers, so their sums are exact in any order, and results are compared bit for bit. reduction_test
// tests rounding, NaN and overflow. A world is a layout of ranks on hosts (support/worlds.hpp).
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <cmath>
#include <cstring>
#include <functional>
#include <numeric>
#include <span>
#include <string>
#include <vector>

#include "collectives/communicator.hpp"
#include "core/tuning_parameters.hpp"
#include "support/element_values.hpp"
#include "support/errors.hpp"
#include "support/hosts.hpp"
#include "support/subject.hpp"
#include "support/worlds.hpp"

namespace collectives::testing {

/// Function that returns the memory in which a rank's buffers lie, such as that of a GPU. Null: ordinary memory.
inline std::unique_ptr<BufferPlacement> (*placement)() = nullptr;

/// Whether a build with a sanitizer performs fewer ops. Other tests cover the loops of all ops.
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
inline constexpr bool kBrief = true;
#else
inline constexpr bool kBrief = false;
#endif

class BackendConformance : public ::testing::TestWithParam<std::tuple<const char*, World>> {
 protected:
  /// Returns true unless NCCL performs the calls. Only NCCL refuses ops of the program and unaligned elements.
  static bool on_the_host() { return std::get<0>(GetParam()) != std::string_view("nccl"); }
  int ranks() const { return std::get<1>(GetParam()).ranks(); }
  void run(const std::function<void(Subject&)>& f, CommunicatorOptions options = {}) {
    options.backend = std::get<0>(GetParam());
    options.timeout = std::chrono::seconds(60);
    const World& world = std::get<1>(GetParam());
    // Traffic between the domains of a host gets a high price, so that the two-level algorithm is chosen if possible.
    if (!world.domains.empty()) {
      TuningParameters tuning;
      tuning.domain_us = 1e6;
      options.tuning = tuning;
    }
    run_hosts(
        world.hosts,
        [&](Communicator& comm) {
          const std::unique_ptr<BufferPlacement> there = placement ? placement() : nullptr;
          Subject subject(comm, there.get());
          f(subject);
        },
        options, world.domains);
  }
};

TEST_P(BackendConformance, AllReducesAnyCount) {
  run([](Subject& comm) {
    for (const std::size_t count : awkward_counts(comm.size())) {
      const auto in = input_of<float>(comm.rank(), count), expected = sum_of<float>(comm.size(), count);
      std::vector<float> out(count, -1), inout = in;
      comm.all_reduce(in, out);
      EXPECT_TRUE(same_bits(out, expected)) << count << " elements";
      comm.all_reduce(inout);
      EXPECT_TRUE(same_bits(inout, expected)) << count << " elements in place";
    }
  });
}

TEST_P(BackendConformance, ReduceScattersAnyCount) {
  run([](Subject& comm) {
    const auto p = static_cast<std::size_t>(comm.size()), self = static_cast<std::size_t>(comm.rank());
    for (const std::size_t count : awkward_counts(comm.size())) {
      auto in = input_of<float>(comm.rank(), count * p);
      const auto all = sum_of<float>(comm.size(), count * p);
      const std::vector<float> expected(all.begin() + static_cast<std::ptrdiff_t>(self * count),
                                        all.begin() + static_cast<std::ptrdiff_t>((self + 1) * count));
      std::vector<float> out(count, -1);
      comm.reduce_scatter(in, out);
      EXPECT_TRUE(same_bits(out, expected)) << count << " elements";
      const std::span<float> mine(in.data() + self * count, count);
      comm.reduce_scatter(in, mine);
      EXPECT_TRUE(same_bits(std::vector<float>(mine.begin(), mine.end()), expected)) << count << " elements in place";
    }
  });
}

TEST_P(BackendConformance, AllGathersAnyCount) {
  run([](Subject& comm) {
    const auto p = static_cast<std::size_t>(comm.size()), self = static_cast<std::size_t>(comm.rank());
    for (const std::size_t count : awkward_counts(comm.size())) {
      std::vector<float> expected;
      for (Rank r = 0; r < comm.size(); ++r) {
        const auto part = input_of<float>(r, count);
        expected.insert(expected.end(), part.begin(), part.end());
      }
      const auto in = input_of<float>(comm.rank(), count);
      std::vector<float> out(count * p, -1), inout(count * p, -1);
      comm.all_gather(in, out);
      EXPECT_TRUE(same_bits(out, expected)) << count << " elements";
      const std::span<float> mine(inout.data() + self * count, count);
      std::copy(in.begin(), in.end(), mine.begin());
      comm.all_gather(mine, inout);
      EXPECT_TRUE(same_bits(inout, expected)) << count << " elements in place";
    }
  });
}

TEST_P(BackendConformance, SendsABlockToEachRankOrRefuses) {
  const std::string_view backend = std::get<0>(GetParam());
  const bool performs = backend == "auto" || backend == "hierarchical";
  run([&](Subject& comm) {
    const auto p = static_cast<std::size_t>(comm.size()), self = static_cast<std::size_t>(comm.rank());
    if (!performs) {
      std::vector<float> in(p), out(p);
      EXPECT_EQ(error_of([&] { comm.all_to_all(in, out); }).code(), Errc::unsupported);
      return;
    }
    for (const std::size_t count : awkward_counts(comm.size())) {
      const std::size_t each = count / p;
      std::vector<float> expected;
      for (Rank r = 0; r < comm.size(); ++r) {
        const auto theirs = input_of<float>(r, each * p);
        const auto block = theirs.begin() + static_cast<std::ptrdiff_t>(self * each);
        expected.insert(expected.end(), block, block + static_cast<std::ptrdiff_t>(each));
      }
      auto in = input_of<float>(comm.rank(), each * p);
      std::vector<float> out(each * p, -1);
      comm.all_to_all(in, out);
      EXPECT_TRUE(same_bits(out, expected)) << each << " elements";
      comm.all_to_all(in, in);
      EXPECT_TRUE(same_bits(in, expected)) << each << " elements in place";
    }
  });
}

TEST_P(BackendConformance, BroadcastsFromAnyRoot) {
  run([](Subject& comm) {
    for (Rank root = 0; root < comm.size(); ++root)
      for (const std::size_t count : awkward_counts(comm.size())) {
        const auto expected = input_of<float>(root, count);
        auto inout = input_of<float>(comm.rank(), count);
        const auto in = inout;
        std::vector<float> out(count, -1);
        comm.broadcast(in, out, root);
        EXPECT_TRUE(same_bits(out, expected)) << count << " elements from " << root;
        comm.broadcast(inout, root);
        EXPECT_TRUE(same_bits(inout, expected)) << count << " elements in place from " << root;
      }
  });
}

TEST_P(BackendConformance, ReducesToAnyRoot) {
  run([](Subject& comm) {
    for (Rank root = 0; root < comm.size(); ++root)
      for (const std::size_t count : awkward_counts(comm.size())) {
        const auto in = input_of<float>(comm.rank(), count), expected = sum_of<float>(comm.size(), count);
        const bool at_root = comm.rank() == root;
        std::vector<float> out(at_root ? count : 0, -1), inout = in;
        comm.reduce(in, out, ReduceOp::sum, root);
        EXPECT_TRUE(!at_root || same_bits(out, expected)) << count << " elements to " << root;
        comm.reduce(inout, inout, ReduceOp::sum, root);
        EXPECT_TRUE(same_bits(inout, at_root ? expected : in)) << count << " elements in place to " << root;
      }
  });
}

TEST_P(BackendConformance, HandlesPartsOfUnequalLength) {
  run([](Subject& comm) {
    const auto p = static_cast<std::size_t>(comm.size()), self = static_cast<std::size_t>(comm.rank());
    for (const std::size_t scale : {0u, 1u, 13u, 30'000u}) {
      std::vector<std::size_t> counts(p);
      for (std::size_t r = 0; r < p; ++r) counts[r] = (r * 7 + 3) % 4 * scale + (r == 1 ? 1u : 0u);
      const std::size_t total = std::accumulate(counts.begin(), counts.end(), std::size_t{0});
      const std::size_t first = std::accumulate(counts.begin(), counts.begin() + comm.rank(), std::size_t{0});

      const auto in = input_of<float>(comm.rank(), total), all = sum_of<float>(comm.size(), total);
      std::vector<float> out(counts[self], -1);
      comm.reduce_scatter_v(in, out, counts);
      EXPECT_TRUE(same_bits(out, {all.begin() + static_cast<std::ptrdiff_t>(first),
                                  all.begin() + static_cast<std::ptrdiff_t>(first + counts[self])}))
          << "scale " << scale;

      std::vector<float> expected, gathered(total, -1);
      for (Rank r = 0; r < comm.size(); ++r) {
        const auto part = input_of<float>(r, counts[static_cast<std::size_t>(r)]);
        expected.insert(expected.end(), part.begin(), part.end());
      }
      comm.all_gather_v(input_of<float>(comm.rank(), counts[self]), gathered, counts);
      EXPECT_TRUE(same_bits(gathered, expected)) << "scale " << scale;
    }
  });
}

TEST_P(BackendConformance, BarrierWaitsForEveryone) {
  std::atomic<int> arrived{0};
  run([&](Subject& comm) {
    for (int lap = 1; lap <= 20; ++lap) {
      ++arrived;
      comm.barrier();
      EXPECT_GE(arrived.load(), lap * comm.size());
      comm.barrier();
    }
  });
}

template <class T>
void check_every_op(Subject& comm, bool functions) {
  const UserOp largest{"largest", [](const void* next, void* accumulated, std::size_t count, DataType) {
                         const T* a = static_cast<const T*>(next);
                         T* b = static_cast<T*>(accumulated);
                         for (std::size_t i = 0; i < count; ++i)
                           if (static_cast<float>(b[i]) < static_cast<float>(a[i])) b[i] = a[i];
                       }};
  std::vector<ReduceOp> ops{ReduceOp::sum, ReduceOp::average, ReduceOp::product, ReduceOp::min, ReduceOp::max};
  if (functions) ops.push_back(ReduceOp::user(largest));
  if (is_floating(data_type_v<T>)) ops.push_back(ReduceOp::pre_scaled_sum(0.5));
  for (const ReduceOp& op : ops)
    for (const std::size_t count : {1u, 5u, 3001u}) {
      // The values are 1 and 2, so that products of up to seven ranks are exact in every type.
      std::vector<T> in(count), expected(count), out(count);
      for (std::size_t i = 0; i < count; ++i) {
        double sum = 0, product = 1, low = 2, high = 1;
        for (Rank r = 0; r < comm.size(); ++r) {
          const double x = 1 + static_cast<double>((static_cast<std::size_t>(r) + i) % 2);
          if (r == comm.rank()) in[i] = static_cast<T>(static_cast<float>(x));
          sum += x;
          product *= x;
          low = std::min(low, x);
          high = std::max(high, x);
        }
        double result = high;
        if (op.kind() == ReduceOp::Kind::sum) result = sum;
        if (op.kind() == ReduceOp::Kind::product) result = product;
        if (op.kind() == ReduceOp::Kind::min) result = low;
        if (op.kind() == ReduceOp::Kind::pre_scaled_sum) result = sum * 0.5;
        if (op.kind() == ReduceOp::Kind::average) {
          // An average is divided in the type in which sums are accumulated: f64, f32, or an integer.
          if constexpr (std::is_same_v<T, double>)
            result = sum / comm.size();
          else if constexpr (is_floating(data_type_v<T>))
            result = static_cast<float>(sum) / static_cast<float>(comm.size());
          else
            result = std::trunc(sum / comm.size());
        }
        if constexpr (std::is_same_v<T, double>)
          expected[i] = result;
        else
          expected[i] = static_cast<T>(static_cast<float>(result));
      }
      comm.all_reduce(in, out, op);
      EXPECT_TRUE(same_bits(out, expected))
          << to_string(data_type_v<T>) << ' ' << to_string(op.kind()) << ' ' << count << " all_reduce";
      std::vector<T> at_root(comm.rank() == 0 ? count : 0);
      comm.reduce(in, at_root, op, 0);
      EXPECT_TRUE(comm.rank() != 0 || same_bits(at_root, expected))
          << to_string(data_type_v<T>) << ' ' << to_string(op.kind()) << ' ' << count << " reduce";
      std::vector<std::size_t> counts(static_cast<std::size_t>(comm.size()), 0);
      counts.back() = count;
      std::vector<T> scattered(counts[static_cast<std::size_t>(comm.rank())]);
      comm.reduce_scatter_v(in, scattered, counts, op);
      EXPECT_TRUE(scattered.empty() || same_bits(scattered, expected))
          << to_string(data_type_v<T>) << ' ' << to_string(op.kind()) << ' ' << count << " reduce_scatter";
    }
}

TEST_P(BackendConformance, HandlesEveryTypeAndOp) {
  run([](Subject& comm) {
    check_every_op<float>(comm, on_the_host());
    check_every_op<double>(comm, on_the_host());
    check_every_op<bfloat16>(comm, on_the_host());
    check_every_op<std::int8_t>(comm, on_the_host());
#if !defined(__SANITIZE_THREAD__) && !defined(__SANITIZE_ADDRESS__)  // reduction_test covers the kernels of all types
    check_every_op<float16>(comm, on_the_host());
    check_every_op<std::uint8_t>(comm, on_the_host());
    check_every_op<std::int32_t>(comm, on_the_host());
    check_every_op<std::uint32_t>(comm, on_the_host());
    check_every_op<std::int64_t>(comm, on_the_host());
    check_every_op<std::uint64_t>(comm, on_the_host());
#endif
  });
}

/// Performs every op of every type that is not covered above, and moves elements of these types.
TEST_P(BackendConformance, HandlesElementsOfEveryClass) {
  run([](Subject& comm) {
    const auto ranks = static_cast<std::size_t>(comm.size());
    const auto number = [](std::size_t rank, std::size_t i) { return static_cast<int>((rank * 5 + i * 3) % 16); };
    for (const DataType type : kDataTypes) {
      const std::size_t size = size_of(type);
      for (const ReduceOp& op : ops_of_type(type)) {
        const bool covered = op.kind() <= ReduceOp::Kind::user && type <= DataType::u64;
        if (covered || (kBrief && op.kind() != ReduceOp::Kind::sum && op.kind() != ReduceOp::Kind::max_loc)) continue;
        SCOPED_TRACE(std::string(to_string(type)) + " " + std::string(to_string(op.kind())));
        for (const std::size_t count : {1u, 7u, 2001u}) {
          std::vector<std::byte> in(count * size), out(count * size), expected(count * size);
          std::vector<int> numbers(ranks);
          for (std::size_t i = 0; i < count; ++i) {
            for (std::size_t r = 0; r < ranks; ++r) numbers[r] = number(r, i);
            put_element(&in[i * size], type, op.kind(), numbers[static_cast<std::size_t>(comm.rank())]);
            put_result(&expected[i * size], type, op.kind(), numbers);
          }
          comm.all_reduce({in.data(), count, type}, {out.data(), count, type}, op);
          EXPECT_EQ(out, expected) << count << " elements";
        }
      }
      const std::size_t count = 2001, bytes = count * size;
      std::vector<std::byte> in(bytes), gathered(bytes * ranks), expected(bytes * ranks);
      for (std::size_t r = 0; r < ranks; ++r)
        for (std::size_t i = 0; i < count; ++i)
          put_element(&expected[r * bytes + i * size], type, ReduceOp::Kind::sum, number(r, i));
      std::memcpy(in.data(), &expected[static_cast<std::size_t>(comm.rank()) * bytes], bytes);
      comm.all_gather({in.data(), count, type}, {gathered.data(), count * ranks, type});
      EXPECT_EQ(gathered, expected) << to_string(type);
    }
  });
}

/// Values whose sum depends on the order of addition.
inline std::vector<float> rough_input(Rank rank, std::size_t count) {
  std::vector<float> values(count);
  for (std::size_t i = 0; i < count; ++i)
    values[i] =
        std::ldexp(static_cast<float>((i * 2654435761u + static_cast<std::size_t>(rank) * 40503u) % 8191) - 4095.f,
                   static_cast<int>((i + static_cast<std::size_t>(rank) * 5) % 24) - 12);
  return values;
}

TEST_P(BackendConformance, EveryRankHasTheSameBits) {
  run([](Subject& comm) {
    for (const std::size_t count : {7u, 4099u, 70'001u}) {
      std::vector<float> out(count), all(count * static_cast<std::size_t>(comm.size()));
      comm.all_reduce(rough_input(comm.rank(), count), out, ReduceOp::average);
      comm.all_gather(out, all);
      for (Rank r = 0; r < comm.size(); ++r)
        EXPECT_EQ(std::memcmp(out.data(), all.data() + static_cast<std::size_t>(r) * count, count * sizeof(float)), 0)
            << "rank " << r << ", " << count << " elements";
    }
  });
}

TEST_P(BackendConformance, DeterministicAddsInRankOrder) {
  run([](Subject& comm) {
    const std::size_t count = 50'021;
    std::vector<float> expected = rough_input(0, count), out(count);
    for (Rank r = 1; r < comm.size(); ++r) {
      const auto next = rough_input(r, count);
      for (std::size_t i = 0; i < count; ++i) expected[i] += next[i];
    }
    comm.all_reduce(rough_input(comm.rank(), count), out, ReduceOp::sum, {.deterministic = true});
    EXPECT_TRUE(same_bits(out, expected));
    // A single element uses another protocol and gives equal bits.
    for (const std::size_t i : {std::size_t{0}, count / 2, count - 1}) {
      const float mine = rough_input(comm.rank(), count)[i];
      float one = 0;
      comm.all_reduce(std::span(&mine, 1), std::span(&one, 1), ReduceOp::sum, {.deterministic = true});
      EXPECT_EQ(one, expected[i]);
    }
  });
}

TEST_P(BackendConformance, OpsThatDoNotCommuteSeeRankOrder) {
  if (!on_the_host()) GTEST_SKIP() << "a GPU calls no functions of the program's own";
  // Affine maps under composition: associative, not commutative.
  const UserOp compose{"compose",
                       [](const void* next, void* accumulated, std::size_t count, DataType) {
                         const auto* a = static_cast<const std::uint32_t*>(next);
                         auto* b = static_cast<std::uint32_t*>(accumulated);
                         for (std::size_t i = 0; i < count; ++i) {  // high half: factor, low half: offset, modulo 2^16
                           const std::uint32_t factor = (a[i] >> 16) * (b[i] >> 16) & 0xffff;
                           const std::uint32_t offset = ((a[i] >> 16) * (b[i] & 0xffff) + (a[i] & 0xffff)) & 0xffff;
                           b[i] = factor << 16 | offset;
                         }
                       },
                       false};
  run([&](Subject& comm) {
    for (const std::size_t count : {1u, 9001u}) {
      const auto input = [&](Rank rank) {
        std::vector<std::uint32_t> values(count);
        for (std::size_t i = 0; i < count; ++i)
          values[i] = (2 * static_cast<std::uint32_t>(rank) + 3) << 16 | static_cast<std::uint32_t>(i % 1000 + 7);
        return values;
      };
      auto expected = input(0);
      for (Rank r = 1; r < comm.size(); ++r) compose.combine(input(r).data(), expected.data(), count, DataType::u32);
      std::vector<std::uint32_t> out(count);
      comm.all_reduce(input(comm.rank()), out, ReduceOp::user(compose));
      EXPECT_TRUE(same_bits(out, expected));
    }
  });
}

/// A value and its place, as for MPI_MAXLOC, with a checksum that a cut element does not have. Its 12 bytes are no
/// power of two.
struct Located {
  float value = 0;
  std::uint32_t place = 0, checksum = 0;

  static Located of(float value, std::uint32_t place) {
    return {value, place, std::bit_cast<std::uint32_t>(value) * 0x9e3779b9U + place * 0x85ebca6bU + 1};
  }
  bool is_whole() const { return checksum == of(value, place).checksum; }
  bool operator==(const Located&) const = default;
};
inline std::vector<Located> located_input(Rank rank, std::size_t count) {
  std::vector<Located> values(count);
  for (std::size_t i = 0; i < count; ++i) {
    const std::size_t value = (i * 2654435761U + static_cast<std::size_t>(rank) * 40503U) % 8191;
    values[i] = Located::of(static_cast<float>(value), static_cast<std::uint32_t>(rank));
  }
  return values;
}
/// Returns the largest value of all ranks at each index, with the lowest rank that has it.
inline std::vector<Located> largest_located(int ranks, std::size_t count) {
  std::vector<Located> largest = located_input(0, count);
  for (Rank rank = 1; rank < ranks; ++rank) {
    const std::vector<Located> next = located_input(rank, count);
    for (std::size_t i = 0; i < count; ++i)
      if (next[i].value > largest[i].value) largest[i] = next[i];
  }
  return largest;
}
inline UserOp max_with_place(std::atomic<int>& cut) {
  return {"max with place",
          [&cut](const void* next, void* accumulated, std::size_t count, DataType type) {
            const auto* theirs = static_cast<const Located*>(next);
            auto* mine = static_cast<Located*>(accumulated);
            if (count * size_of(type) % sizeof(Located) != 0) ++cut;
            for (std::size_t i = 0; i < count * size_of(type) / sizeof(Located); ++i) {
              if (!theirs[i].is_whole() || !mine[i].is_whole()) ++cut;
              const bool later = theirs[i].value < mine[i].value ||
                                 (theirs[i].value == mine[i].value && theirs[i].place > mine[i].place);
              if (!later) mine[i] = theirs[i];
            }
          },
          true, sizeof(Located)};
}
/// Returns the elements as a buffer of their bytes, or of 32-bit integers.
inline Buffer as(DataType type, std::span<Located> values) {
  return {values.data(), values.size_bytes() / size_of(type), type};
}

TEST_P(BackendConformance, UserOpsSeeWholeElements) {
  if (!on_the_host()) GTEST_SKIP() << "a GPU calls no functions of the program's own";
  std::atomic<int> cut = 0;
  const UserOp op = max_with_place(cut);
  const ReduceOp largest = ReduceOp::user(op);
  run([&](Subject& comm) {
    const auto p = static_cast<std::size_t>(comm.size()), self = static_cast<std::size_t>(comm.rank());
    for (const DataType type : {DataType::u8, DataType::i32})
      for (const std::size_t count : {std::size_t{1}, p + 1, std::size_t{1001}, std::size_t{20'011}}) {
        std::vector<Located> in = located_input(comm.rank(), count), out(count), in_place = in;
        const std::vector<Located> expected = largest_located(comm.size(), count);
        comm.all_reduce(as(type, in), as(type, out), largest);
        EXPECT_TRUE(out == expected) << count << " all_reduce";
        comm.all_reduce_async(as(type, in_place), as(type, in_place), largest).wait();
        EXPECT_TRUE(in_place == expected) << count << " all_reduce in place";
        comm.reduce(as(type, in), as(type, out), largest, comm.size() - 1);
        EXPECT_TRUE(comm.rank() + 1 < comm.size() || out == expected) << count << " reduce";

        const std::size_t each = count / p;
        std::vector<Located> part(each);
        comm.reduce_scatter(as(type, std::span(in).first(each * p)), as(type, part), largest);
        EXPECT_TRUE(std::ranges::equal(part, std::span(expected).subspan(self * each, each))) << count << " scatter";
        std::vector<std::size_t> counts(p, 0);
        counts[0] = count / 3 * (sizeof(Located) / size_of(type));
        counts.back() += (count - count / 3) * (sizeof(Located) / size_of(type));
        const std::size_t mine = counts[self] * size_of(type) / sizeof(Located);
        std::vector<Located> uneven(mine);
        comm.reduce_scatter_v(as(type, in), as(type, uneven), counts, largest);
        EXPECT_TRUE(std::ranges::equal(uneven, std::span(expected).subspan(self == 0 ? 0 : count - mine, mine)))
            << count << " scatter of unequal parts";
      }
  });
  EXPECT_EQ(cut, 0) << "elements were cut";
}

TEST_P(BackendConformance, HandlesUnalignedBuffers) {
  if (!on_the_host()) GTEST_SKIP() << "a GPU reads elements at multiples of their size";
  run([](Subject& comm) {
    const std::size_t count = 5003;
    const auto in = input_of<float>(comm.rank(), count), expected = sum_of<float>(comm.size(), count);
    std::vector<std::byte> from(count * 4 + 1), to(count * 4 + 3);
    std::memcpy(from.data() + 1, in.data(), count * 4);
    comm.all_reduce({from.data() + 1, count, DataType::f32}, {to.data() + 3, count, DataType::f32});
    EXPECT_EQ(std::memcmp(to.data() + 3, expected.data(), count * 4), 0);
  });
}

TEST_P(BackendConformance, ManyOperationsAreInFlight) {
  run([](Subject& comm) {
    constexpr std::size_t kOperations = 40;
    std::vector<std::vector<float>> in, out;
    for (std::size_t k = 0; k < kOperations; ++k) {
      in.push_back(input_of<float>(comm.rank(), k * 97));
      out.emplace_back(k * 97, -1.f);
    }
    std::vector<Subject::Pending> works;
    for (std::size_t k = 0; k < kOperations; ++k)
      works.push_back(k % 3 == 2 ? comm.broadcast_async(in[k], out[k], static_cast<Rank>(k) % comm.size())
                                 : comm.all_reduce_async(in[k], out[k]));
    // Operations are waited for in another order.
    for (std::size_t k = 0; k < kOperations; ++k) works[(k * 7) % kOperations].wait();
    for (std::size_t k = 0; k < kOperations; ++k)
      EXPECT_TRUE(same_bits(out[k], k % 3 == 2 ? input_of<float>(static_cast<Rank>(k) % comm.size(), k * 97)
                                               : sum_of<float>(comm.size(), k * 97)))
          << "operation " << k;
  });
}

TEST_P(BackendConformance, ARootMayRunAhead) {
  run([](Subject& comm) {
    for (int lap = 0; lap < 200; ++lap) {
      std::vector<int> data(3, comm.rank() == 0 ? lap : -1);
      comm.broadcast(data, 0);
      EXPECT_EQ(data, std::vector<int>(3, lap));
      int sum = 0;
      const int one = 1;
      comm.reduce(std::span(&one, 1), std::span(&sum, 1), ReduceOp::sum, comm.size() - 1);
      EXPECT_EQ(sum, comm.rank() == comm.size() - 1 ? comm.size() : 0);
    }
  });
}

}  // namespace collectives::testing
