// Conformance suite of gather, scatter and scans, and of displacements of all_gather_v and reduce_scatter_v. It runs
// for every backend. A backend without a form of a collective must refuse it and name the backends that have one.
//
// Expected results are computed element by element from the inputs of all ranks. A world is a layout of ranks on hosts
// (support/worlds.hpp).
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <tuple>
#include <vector>

#include "collectives/communicator.hpp"
#include "collectives/memory.hpp"
#include "core/tuning_parameters.hpp"
#include "steps/algorithm.hpp"
#include "support/errors.hpp"
#include "support/hosts.hpp"
#include "support/worlds.hpp"

namespace collectives::testing {
namespace {

class PartConformance : public ::testing::TestWithParam<std::tuple<const char*, World>> {
 protected:
  static std::string backend() { return std::get<0>(GetParam()); }
  static bool performed(Collective collective) {
    return std::ranges::any_of(algorithms(), [&](const Algorithm& one) {
      return performs(one, collective) && (backend() == "auto" || backend() == one.backend || backend() == one.name);
    });
  }
  /// Runs `f` on every rank, or expects that each rank refuses `refused` if the backend has no form of `collective`.
  void run(Collective collective, const std::function<void(Communicator&)>& f,
           const std::function<void(Communicator&)>& refused = {}) {
    CommunicatorOptions options;
    const std::string name = backend();
    options.backend = name;
    options.timeout = std::chrono::seconds(60);
    const World& world = std::get<1>(GetParam());
    const auto expect_refusal = [&](Communicator& comm) {
      if (!refused) return;
      const Error error = error_of([&] { refused(comm); });
      EXPECT_EQ(error.code(), Errc::unsupported);
      EXPECT_SAYS(error.what(), "has no " + std::string(to_string(collective)) + "; backends that have one: ");
      EXPECT_EQ(error.rank(), comm.rank());
    };
    run_hosts(world.hosts, performed(collective) ? f : expect_refusal, options, world.domains);
  }
};

std::vector<float> ordinary(std::size_t count) { return std::vector<float>(count, -1); }

std::vector<float> parts_of_all(int ranks, std::size_t count) {
  std::vector<float> all;
  for (Rank r = 0; r < ranks; ++r) {
    const auto part = input_of<float>(r, count);
    all.insert(all.end(), part.begin(), part.end());
  }
  return all;
}

TEST_P(PartConformance, GathersAtAnyRoot) {
  run(
      Collective::gather,
      [](Communicator& comm) {
        const auto p = static_cast<std::size_t>(comm.size());
        for (Rank root = 0; root < comm.size(); ++root)
          for (const std::size_t count : awkward_counts(comm.size())) {
            const bool at_root = comm.rank() == root;
            const auto in = input_of<float>(comm.rank(), count), expected = parts_of_all(comm.size(), count);
            std::vector<float> out = ordinary(at_root ? p * count : 0);
            comm.gather(in, out, root);
            EXPECT_TRUE(!at_root || same_bits(out, expected)) << count << " elements at " << root;
            std::vector<float> inout = ordinary(at_root ? p * count : count);
            const std::span<float> mine(inout.data() + (at_root ? static_cast<std::size_t>(root) * count : 0), count);
            std::ranges::copy(in, mine.begin());
            comm.gather_async(mine, at_root ? Buffer(inout) : Buffer(), root).wait();
            EXPECT_TRUE(same_bits(inout, at_root ? expected : in)) << count << " elements in place at " << root;
          }
      },
      [](Communicator& comm) { comm.gather(ordinary(1), ordinary(static_cast<std::size_t>(comm.size())), 0); });
}

TEST_P(PartConformance, ScattersFromAnyRoot) {
  run(
      Collective::scatter,
      [](Communicator& comm) {
        const auto p = static_cast<std::size_t>(comm.size());
        for (Rank root = 0; root < comm.size(); ++root)
          for (const std::size_t count : awkward_counts(comm.size())) {
            const bool at_root = comm.rank() == root;
            const auto expected = input_of<float>(comm.rank(), count), all = parts_of_all(comm.size(), count);
            std::vector<float> in = at_root ? all : std::vector<float>(), out = ordinary(count);
            comm.scatter(in, out, root);
            EXPECT_TRUE(same_bits(out, expected)) << count << " elements from " << root;
            std::vector<float> data = at_root ? all : ordinary(count);
            const std::span<float> mine(data.data() + (at_root ? static_cast<std::size_t>(root) * count : 0), count);
            comm.scatter_async(at_root ? ConstBuffer(data) : ConstBuffer(), mine, root).wait();
            EXPECT_TRUE(same_bits(data, at_root ? all : expected)) << count << " elements in place from " << root;
            EXPECT_EQ(p * count, all.size());
          }
      },
      [](Communicator& comm) { comm.scatter(ordinary(static_cast<std::size_t>(comm.size())), ordinary(1), 0); });
}

TEST_P(PartConformance, ScansAnyCount) {
  run(
      Collective::scan,
      [](Communicator& comm) {
        for (const std::size_t count : awkward_counts(comm.size())) {
          const auto in = input_of<float>(comm.rank(), count), expected = sum_of<float>(comm.rank() + 1, count);
          std::vector<float> out = ordinary(count), inout = in;
          comm.scan(in, out);
          EXPECT_TRUE(same_bits(out, expected)) << count << " elements";
          comm.scan_async(inout, inout).wait();
          EXPECT_TRUE(same_bits(inout, expected)) << count << " elements in place";
        }
      },
      [](Communicator& comm) { comm.scan(ordinary(1), ordinary(1)); });
}

TEST_P(PartConformance, ExclusiveScansLeaveTheOutputOfRankZeroAlone) {
  run(
      Collective::exclusive_scan,
      [](Communicator& comm) {
        for (const std::size_t count : awkward_counts(comm.size())) {
          const bool first = comm.rank() == 0;
          const auto in = input_of<float>(comm.rank(), count);
          const auto expected = first ? ordinary(count) : sum_of<float>(comm.rank(), count);
          std::vector<float> out = ordinary(count), inout = in;
          comm.exclusive_scan(in, out);
          EXPECT_TRUE(same_bits(out, expected)) << count << " elements";
          comm.exclusive_scan_async(inout, inout).wait();
          EXPECT_TRUE(same_bits(inout, first ? in : expected)) << count << " elements in place";
          comm.exclusive_scan(in, first ? Buffer() : Buffer(out));
          EXPECT_TRUE(same_bits(out, expected)) << count << " elements without an output of rank 0";
        }
      },
      [](Communicator& comm) { comm.exclusive_scan(ordinary(1), ordinary(1)); });
}

/// Compares both scans of one type and op with `expected(values)`, which reduces the values of the first ranks.
template <class T, class Expected>
void check_scans(Communicator& comm, const ReduceOp& op, const Options& options,
                 const std::function<T(Rank, std::size_t)>& element, const Expected& expected) {
  for (const std::size_t count : {1u, 5u, 30'001u}) {
    std::vector<T> in(count), out(count), exclusive(count), right(count), right_exclusive(count);
    for (std::size_t i = 0; i < count; ++i) {
      in[i] = element(comm.rank(), i);
      std::vector<T> values;
      for (Rank r = 0; r <= comm.rank(); ++r) values.push_back(element(r, i));
      right[i] = expected(values);
      values.pop_back();
      if (!values.empty()) right_exclusive[i] = expected(values);
    }
    comm.scan(in, out, op, options);
    EXPECT_TRUE(same_bits(out, right)) << to_string(data_type_v<T>) << ' ' << to_string(op.kind()) << ' ' << count;
    comm.exclusive_scan(in, exclusive, op, options);
    EXPECT_TRUE(comm.rank() == 0 || same_bits(exclusive, right_exclusive))
        << to_string(data_type_v<T>) << ' ' << to_string(op.kind()) << ' ' << count << " exclusive";
  }
}

template <class T>
void check_scans_of_integers(Communicator& comm) {
  const auto element = [](Rank r, std::size_t i) { return static_cast<T>(1 + (static_cast<std::size_t>(r) + i) % 3); };
  const auto folded = [](auto&& combine) {
    return [combine](const std::vector<T>& values) {
      T result = values[0];
      for (std::size_t v = 1; v < values.size(); ++v) result = static_cast<T>(combine(result, values[v]));
      return result;
    };
  };
  check_scans<T>(comm, ReduceOp::sum, {}, element, folded([](T a, T b) { return a + b; }));
  check_scans<T>(comm, ReduceOp::product, {}, element, folded([](T a, T b) { return a * b; }));
  check_scans<T>(comm, ReduceOp::min, {}, element, folded([](T a, T b) { return std::min(a, b); }));
  check_scans<T>(comm, ReduceOp::max, {}, element, folded([](T a, T b) { return std::max(a, b); }));
  check_scans<T>(comm, ReduceOp::average, {}, element, [](const std::vector<T>& values) {
    std::int64_t sum = 0;
    for (const T value : values) sum += static_cast<std::int64_t>(value);
    return static_cast<T>(sum / static_cast<std::int64_t>(values.size()));
  });
}

TEST_P(PartConformance, ScansHandleEveryTypeAndOp) {
  run(Collective::scan, [](Communicator& comm) {
    check_scans_of_integers<std::int32_t>(comm);
    check_scans_of_integers<std::int8_t>(comm);
    check_scans_of_integers<std::uint64_t>(comm);
    // Sums of 16-bit floats are made in f32, in rank order, and rounded once. The values make every rounding visible.
    const auto rough = [](Rank r, std::size_t i) {
      return static_cast<float>((i * 2654435761U + static_cast<std::size_t>(r) * 40503U) % 8191) / 97.0F;
    };
    check_scans<bfloat16>(
        comm, ReduceOp::sum, {}, [&](Rank r, std::size_t i) { return bfloat16(rough(r, i)); },
        [](const std::vector<bfloat16>& values) {
          float sum = 0;
          for (const bfloat16 value : values) sum += static_cast<float>(value);
          return bfloat16(sum);
        });
    check_scans<float>(comm, ReduceOp::sum, {.deterministic = true}, rough, [](const std::vector<float>& values) {
      float sum = values[0];
      for (std::size_t v = 1; v < values.size(); ++v) sum += values[v];
      return sum;
    });
    check_scans<float>(comm, ReduceOp::average, {}, rough, [](const std::vector<float>& values) {
      float sum = values[0];
      for (std::size_t v = 1; v < values.size(); ++v) sum += values[v];
      return sum / static_cast<float>(values.size());
    });
    check_scans<double>(
        comm, ReduceOp::pre_scaled_sum(0.5), {}, [](Rank r, std::size_t i) { return r + static_cast<double>(i % 9); },
        [](const std::vector<double>& values) {
          double sum = 0;
          for (const double value : values) sum += value / 2;
          return sum;
        });
  });
}

TEST_P(PartConformance, ScansApplyOpsThatDoNotCommuteInRankOrder) {
  // Affine maps x -> factor x + offset under composition, modulo 2^16.
  const auto composed = [](std::uint32_t first, std::uint32_t next) {
    const std::uint32_t factor = (next >> 16) * (first >> 16) & 0xffff;
    return factor << 16 | (((next >> 16) * (first & 0xffff) + (next & 0xffff)) & 0xffff);
  };
  const UserOp compose{"compose",
                       [&](const void* next, void* accumulated, std::size_t count, DataType) {
                         for (std::size_t i = 0; i < count; ++i) {
                           auto& first = static_cast<std::uint32_t*>(accumulated)[i];
                           first = composed(first, static_cast<const std::uint32_t*>(next)[i]);
                         }
                       },
                       false};
  run(Collective::scan, [&](Communicator& comm) {
    check_scans<std::uint32_t>(
        comm, ReduceOp::user(compose), {},
        [](Rank r, std::size_t i) {
          return (2 * static_cast<std::uint32_t>(r) + 3) << 16 | static_cast<std::uint32_t>(i % 1000 + 7);
        },
        [&](const std::vector<std::uint32_t>& values) {
          std::uint32_t result = values[0];
          for (std::size_t v = 1; v < values.size(); ++v) result = composed(result, values[v]);
          return result;
        });
  });
}

TEST_P(PartConformance, AllocatedBuffersGiveTheSameResults) {
  run(Collective::gather, [](Communicator& comm) {
    const auto p = static_cast<std::size_t>(comm.size()), self = static_cast<std::size_t>(comm.rank());
    for (const std::size_t count : {std::size_t{3}, std::size_t{5000}, std::size_t{300'001}}) {
      auto part = comm.allocate<float>(count), all = comm.allocate<float>(p * count);
      const Rank root = comm.size() - 1;
      std::ranges::copy(input_of<float>(comm.rank(), count), part.begin());
      comm.gather(part, all, root);
      const auto expected = parts_of_all(comm.size(), count);
      EXPECT_TRUE(comm.rank() != root || std::ranges::equal(all, expected)) << count;
      std::ranges::fill(part, -1.0F);
      comm.scatter(all, part, root);
      EXPECT_TRUE(std::ranges::equal(part, input_of<float>(comm.rank(), count))) << count;
      if (!performed(Collective::scan)) continue;
      auto sum = comm.allocate<float>(count);
      comm.scan(part, sum);
      EXPECT_TRUE(std::ranges::equal(sum, sum_of<float>(comm.rank() + 1, count))) << count;
      comm.exclusive_scan(part, part);
      EXPECT_TRUE(self == 0 || std::ranges::equal(part, sum_of<float>(comm.rank(), count))) << count;
    }
  });
}

TEST_P(PartConformance, ManyCallsAreInFlight) {
  run(Collective::gather, [](Communicator& comm) {
    constexpr std::size_t kCalls = 150;
    const auto p = static_cast<std::size_t>(comm.size());
    std::vector<std::vector<float>> in, out, back;
    for (std::size_t k = 0; k < kCalls; ++k) {
      in.push_back(input_of<float>(comm.rank(), k * 37 % 900));
      out.push_back(ordinary(p * in.back().size()));
      back.push_back(ordinary(in.back().size()));
    }
    std::vector<Work> works;
    for (std::size_t k = 0; k < kCalls; ++k) {
      const Rank root = static_cast<Rank>(k % 3) % comm.size();
      works.push_back(comm.gather_async(in[k], out[k], root));
      works.push_back(comm.scatter_async(out[k], back[k], root));
    }
    for (std::size_t k = 0; k < works.size(); ++k) works[k * 7 % works.size()].wait();
    for (std::size_t k = 0; k < kCalls; ++k) EXPECT_TRUE(same_bits(back[k], in[k])) << k;
  });
}

/// A layout with gaps, in which the last rank has the first part.
struct Displaced {
  std::vector<std::size_t> counts, displacements;
  std::size_t total = 0;
  Displaced(std::size_t p, std::size_t scale) : counts(p), displacements(p) {
    for (std::size_t place = 0; place < p; ++place) {
      const std::size_t rank = p - 1 - place;
      counts[rank] = (rank * 7 + 3) % 4 * scale + (rank == 1 ? 1 : 0);
      displacements[rank] = total + place % 3;
      total = displacements[rank] + counts[rank];
    }
    total += 2;
  }
  PartLayout layout() const { return {counts, displacements}; }
};

TEST_P(PartConformance, AllGathersDisplacedPartsAndKeepsTheElementsBetween) {
  run(Collective::all_gather, [](Communicator& comm) {
    const auto p = static_cast<std::size_t>(comm.size()), self = static_cast<std::size_t>(comm.rank());
    for (const std::size_t scale : {0u, 1u, 13u, 30'000u}) {
      const Displaced parts(p, scale);
      std::vector<float> expected = ordinary(parts.total), out = expected, inout = expected;
      for (Rank r = 0; r < comm.size(); ++r) {
        const auto at = static_cast<std::size_t>(r);
        std::ranges::copy(input_of<float>(r, parts.counts[at]),
                          expected.begin() + static_cast<std::ptrdiff_t>(parts.displacements[at]));
      }
      const auto in = input_of<float>(comm.rank(), parts.counts[self]);
      comm.all_gather_v(in, out, parts.layout());
      EXPECT_TRUE(same_bits(out, expected)) << scale;
      const std::span<float> mine(inout.data() + parts.displacements[self], parts.counts[self]);
      std::ranges::copy(in, mine.begin());
      comm.all_gather_v_async(mine, inout, parts.layout()).wait();
      EXPECT_TRUE(same_bits(inout, expected)) << scale << " in place";
    }
  });
}

TEST_P(PartConformance, ReduceScattersDisplacedParts) {
  run(Collective::reduce_scatter, [](Communicator& comm) {
    const auto p = static_cast<std::size_t>(comm.size()), self = static_cast<std::size_t>(comm.rank());
    for (const std::size_t scale : {0u, 1u, 13u, 30'000u}) {
      const Displaced parts(p, scale);
      auto in = input_of<float>(comm.rank(), parts.total);
      const auto all = sum_of<float>(comm.size(), parts.total);
      const auto first = all.begin() + static_cast<std::ptrdiff_t>(parts.displacements[self]);
      const std::vector<float> expected(first, first + static_cast<std::ptrdiff_t>(parts.counts[self]));
      std::vector<float> out = ordinary(parts.counts[self]);
      comm.reduce_scatter_v(in, out, parts.layout());
      EXPECT_TRUE(same_bits(out, expected)) << scale;
      const std::span<float> mine(in.data() + parts.displacements[self], parts.counts[self]);
      comm.reduce_scatter_v_async(in, mine, parts.layout()).wait();
      EXPECT_TRUE(std::ranges::equal(mine, expected)) << scale << " in place";
    }
  });
}

const auto kWorldName = [](const auto& parameters) { return "Ranks_" + std::get<1>(parameters.param).name; };

#define COLLECTIVES_PARTS_CONFORM(backend)           \
  INSTANTIATE_TEST_SUITE_P(backend, PartConformance, \
                           ::testing::Combine(::testing::Values(#backend), ::testing::ValuesIn(worlds())), kWorldName)

COLLECTIVES_PARTS_CONFORM(auto);
COLLECTIVES_PARTS_CONFORM(hierarchical);
COLLECTIVES_PARTS_CONFORM(ring);
COLLECTIVES_PARTS_CONFORM(reduce_to_one);

TEST(HierarchicalTree, GathersAndScattersShortVectorsBetweenHosts) {
  for (const std::vector<int>& hosts :
       {std::vector{0, 0, 1, 1}, {0, 0, 1, 2, 2, 2}, {0, 1, 2, 3, 4}, {0, 0, 1, 1, 2, 2, 3}})
    run_hosts(hosts,
              [](Communicator& comm) {
                const auto p = static_cast<std::size_t>(comm.size());
                for (Rank root = 0; root < comm.size(); ++root)
                  for (const std::size_t count : {1u, 7u, 500u}) {
                    const auto in = input_of<float>(comm.rank(), count), expected = parts_of_all(comm.size(), count);
                    std::vector<float> out = ordinary(p * count), back = ordinary(count);
                    comm.gather(in, out, root);
                    EXPECT_TRUE(comm.rank() != root || same_bits(out, expected)) << count << " at " << root;
                    comm.scatter(out, back, root);
                    EXPECT_TRUE(same_bits(back, in)) << count << " from " << root;
                  }
              },
              {.backend = "hierarchical_tree", .timeout = std::chrono::seconds(60)});
}

}  // namespace
}  // namespace collectives::testing
