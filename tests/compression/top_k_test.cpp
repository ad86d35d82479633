// Tests of all-reduce with a top-k compressor, which sends only the k elements with the greatest magnitudes. The rest
// stays in the residual for later calls. The tests check sent elements, residuals, that every element is sent in the
// end, and equal results on all ranks.
#include "collectives/top_k.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "collectives/communicator.hpp"
#include "collectives/error.hpp"
#include "support/hosts.hpp"
#include "support/ranks.hpp"
#include "support/system.hpp"
#include "support/top_k.hpp"
#include "support/worlds.hpp"

namespace collectives::testing {
namespace {

/// Elements that a rank selects. take() returns the k elements of `all` with the greatest magnitudes, and sets them to
/// zero. Among equal magnitudes it takes the lowest index first.
struct Chosen {
  std::vector<std::size_t> indices;
  std::vector<float> values;
};
Chosen take(std::vector<float>& all, std::size_t k) {
  std::vector<std::size_t> order(all.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::stable_sort(order, [&](std::size_t a, std::size_t b) { return std::abs(all[a]) > std::abs(all[b]); });
  order.resize(std::min(k, order.size()));
  std::ranges::sort(order);
  Chosen chosen{order, {}};
  for (const std::size_t i : order) chosen.values.push_back(std::exchange(all[i], 0.0F));
  return chosen;
}

// ---- results, compared with a simple oracle ----

class TopKWorlds : public ::testing::TestWithParam<std::tuple<World, SparseForm>> {
 protected:
  const World& world() const { return std::get<0>(GetParam()); }
  TopKOptions with_form(TopKOptions options) const {
    options.form = std::get<1>(GetParam());
    return options;
  }
};

/// Computes the expected results, call by call. On several hosts, the ranks of a host first add their gradients. A
/// slice is the share of one rank in that sum. Each rank then adds its slice to its residual and selects from it.
class Oracle {
 public:
  Oracle(const World& world, std::size_t count, std::size_t k) : world_(world), count_(count), k_(k) {
    const int hosts = 1 + *std::ranges::max_element(world.hosts);
    const bool in_hosts = hosts > 1 && world.ranks() > hosts;
    for (int g = 0; g < (in_hosts ? hosts : world.ranks()); ++g) {
      groups_.emplace_back();
      for (Rank r = 0; r < world.ranks(); ++r)
        if (in_hosts ? world.hosts[static_cast<std::size_t>(r)] == g : r == g) groups_.back().push_back(r);
      residuals_.emplace_back(count);
    }
    slices_ = in_hosts ? std::ranges::min(groups_, {}, &std::vector<Rank>::size).size() : 1;
  }
  std::vector<float> step(int number) {
    std::vector<float> result(count_);
    for (std::size_t g = 0; g < groups_.size(); ++g) {
      std::vector<float>& residual = residuals_[g];
      std::vector<float> sum(count_);
      for (const Rank r : groups_[g]) {
        const std::vector<float> gradient = gradient_of(r, count_, number);
        for (std::size_t i = 0; i < count_; ++i) sum[i] = r == groups_[g][0] ? gradient[i] : sum[i] + gradient[i];
      }
      for (std::size_t i = 0; i < count_; ++i) residual[i] += sum[i];
      std::size_t first = 0;
      for (std::size_t s = 0; s < slices_; ++s) {
        const std::size_t length = count_ / slices_ + (s < count_ % slices_ ? 1 : 0),
                          k = k_ / slices_ + (s < k_ % slices_ ? 1 : 0);
        std::vector<float> slice(residual.begin() + static_cast<std::ptrdiff_t>(first),
                                 residual.begin() + static_cast<std::ptrdiff_t>(first + length));
        const Chosen chosen = take(slice, k);
        std::ranges::copy(slice, residual.begin() + static_cast<std::ptrdiff_t>(first));
        for (std::size_t c = 0; c < chosen.indices.size(); ++c) result[first + chosen.indices[c]] += chosen.values[c];
        first += length;
      }
    }
    for (float& value : result) value /= static_cast<float>(world_.ranks());
    return result;
  }

 private:
  World world_;
  std::size_t count_, k_, slices_ = 1;
  std::vector<std::vector<Rank>> groups_;
  std::vector<std::vector<float>> residuals_;
};

TEST_P(TopKWorlds, EveryStepIsThatOfTheOracleBitForBit) {
  for (const auto& [count, k] : {std::pair(1, 1), {7, 3}, {1000, 10}, {1000, 1000}, {70'001, 700}, {70'001, 33}}) {
    if (collectives::testing::kSanitized && k == 33) continue;  // sanitizers take half a minute for each long vector
    Oracle oracle(world(), static_cast<std::size_t>(count), static_cast<std::size_t>(k));
    std::vector<std::vector<float>> expected;
    for (int step = 0; step < 4; ++step) expected.push_back(oracle.step(step));
    run_hosts(world().hosts, [&, count = static_cast<std::size_t>(count),
                              k = static_cast<std::size_t>(k)](Communicator& comm) {
      TopK top_k(with_form({.k = k}));
      for (int step = 0; step < 4; ++step) {
        std::vector<float> out(count, -1);
        comm.all_reduce(gradient_of(comm.rank(), count, step), out, ReduceOp::average, sparse(top_k));
        // The sum of more than two ranks of a host depends on the order of addition, which differs from this loop's.
        const std::vector<float>& right = expected[static_cast<std::size_t>(step)];
        const auto is_near = [](float got, float wanted) { return std::abs(got - wanted) <= 1e-5F; };
        const auto far = std::ranges::mismatch(out, right, is_near).in1 - out.begin();
        ASSERT_EQ(far, std::ssize(out)) << "step " << step << ", top " << k << ": first wrong element";
        std::vector<float> all(count * static_cast<std::size_t>(comm.size()));
        comm.all_gather(out, all);
        for (Rank r = 0; r < comm.size(); ++r)
          ASSERT_EQ(std::memcmp(all.data() + count * static_cast<std::size_t>(r), out.data(), count * sizeof(float)), 0)
              << "rank " << r << " has other bits";
      }
    });
  }
}

TEST_P(TopKWorlds, NothingIsLostAndNothingStaysForEver) {
  // The gradient is the same in every call and has equal magnitudes. Each element is therefore sent once in n / k
  // calls. After n / k calls all elements have the same sum and the same residual.
  run_hosts(world().hosts, [this](Communicator& comm) {
    const std::size_t count = 600, k = 60;
    TopK top_k(with_form({.k = k}));
    std::vector<float> arrived(count);
    for (int step = 0; step < 20; ++step) {
      std::vector<float> ones(count, 1);
      comm.all_reduce(ones, ReduceOp::average, sparse(top_k));
      for (std::size_t i = 0; i < count; ++i) arrived[i] += ones[i];
    }
    // Ten calls send every element once; the next ten calls send every element a second time.
    for (std::size_t i = 0; i < count; ++i) {
      EXPECT_GE(arrived[i], 11 - 1e-3) << i;
      EXPECT_LE(arrived[i], 20 + 1e-3) << i;
    }
    const TopKReport report = top_k.report("tensor");
    EXPECT_EQ(report.calls, 20U);
    EXPECT_TRUE(report.sparse);
  });
}

TEST_P(TopKWorlds, ValuesThatTravelAsBf16LeaveTheirRoundingErrorBehind) {
  run_hosts(world().hosts, [this](Communicator& comm) {
    const std::size_t count = 300;
    TopK top_k(with_form({.density = 1, .values = DataType::bf16}));
    std::vector<double> arrived(count), given(count);
    const int steps = 64;
    for (int step = 0; step < steps; ++step) {
      std::vector<float> out(count);
      comm.all_reduce(gradient_of(comm.rank(), count, 0), out, ReduceOp::sum, sparse(top_k));
      for (std::size_t i = 0; i < count; ++i) arrived[i] += static_cast<double>(out[i]);
    }
    for (Rank r = 0; r < comm.size(); ++r) {
      const std::vector<float> gradient = gradient_of(r, count, 0);
      for (std::size_t i = 0; i < count; ++i) given[i] += static_cast<double>(gradient[i]);
    }
    // After any number of calls, the results lack at most one rounding error of each rank's sum.
    for (std::size_t i = 0; i < count; ++i)
      ASSERT_NEAR(arrived[i] / steps, given[i], 0x1p-8 * 5 * comm.size() / steps + 1e-4) << i;
  });
}

TEST_P(TopKWorlds, SkipsAStepThatAnyRankHasNaNIn) {
  run_hosts(world().hosts, [this](Communicator& comm) {
    const std::size_t count = 1000;
    TopK top_k(with_form({.k = 100, .non_finite = NonFinite::skip}));
    std::vector<float> first = gradient_of(comm.rank(), count, 0);
    comm.all_reduce(first, ReduceOp::average, sparse(top_k));
    const double before = top_k.report("tensor").residual_norm;
    std::vector<float> bad(count, 0.0F);
    if (comm.rank() == comm.size() - 1) bad[7] = std::numeric_limits<float>::quiet_NaN();
    comm.all_reduce(bad, ReduceOp::average, sparse(top_k));
    EXPECT_EQ(bad, std::vector<float>(count, 0.0F)) << "rank " << comm.rank();
    EXPECT_NEAR(top_k.report("tensor").residual_norm, before, 1e-4);
    std::vector<float> next(count, 0.0F);
    comm.all_reduce(next, ReduceOp::average, sparse(top_k));
    EXPECT_TRUE(std::ranges::all_of(next, [](float value) { return std::isfinite(value); }));
    EXPECT_TRUE(std::ranges::any_of(next, [](float value) { return value != 0; }));
  });
}

TEST_P(TopKWorlds, NaNReachesEveryRankInTheSameStep) {
  run_hosts(world().hosts, [this](Communicator& comm) {
    TopK top_k(with_form({.k = 10}));
    std::vector<float> data(1000, 1.0F);
    if (comm.rank() == 0) data[777] = std::numeric_limits<float>::quiet_NaN();
    comm.all_reduce(data, ReduceOp::sum, sparse(top_k));
    EXPECT_TRUE(std::isnan(data[777]));
  });
}

TEST_P(TopKWorlds, AbortsNamingRankTensorAndIndex) {
  run_hosts(world().hosts, [this](Communicator& comm) {
    TopK top_k(with_form({.k = 10, .non_finite = NonFinite::abort}));
    std::vector<float> data(1000, 1.0F);
    if (comm.rank() == 0) data[777] = std::numeric_limits<float>::infinity();
    const std::string text =
        error_of(Errc::aborted, [&] { comm.all_reduce(data, ReduceOp::sum, sparse(top_k, "fc1")); });
    EXPECT_NE(text.find("fc1"), std::string::npos) << text;
    const std::vector<int>& hosts = world().hosts;
    const bool alone = std::ranges::count(hosts, hosts[0]) == world().ranks() || std::ranges::count(hosts, 0) == 1;
    EXPECT_NE(text.find("all_reduce #1 (fc1): rank"), std::string::npos) << text;
    EXPECT_NE(text.find(alone ? "rank 0 gave NaN or infinity at index 777" : " gave NaN or infinity at index 777"),
              std::string::npos)
        << text;
  });
}

TEST_P(TopKWorlds, SeveralTensorsAreInFlightTogether) {
  run_hosts(world().hosts, [this](Communicator& comm) {
    const std::size_t count = 5000;
    TopK together(with_form({.k = 50})), alone(with_form({.k = 50}));
    for (int step = 0; step < 3; ++step) {
      std::array<std::vector<float>, 4> a, b;
      std::vector<Work> works;
      const std::array names{"a", "b", "c", "d"};
      for (std::size_t t = 0; t < 4; ++t) {
        a[t] = b[t] = gradient_of(comm.rank(), count, step * 10 + static_cast<int>(t));
        works.push_back(comm.all_reduce_async(a[t], a[t], ReduceOp::average, sparse(together, names[t])));
      }
      for (auto work = works.rbegin(); work != works.rend(); ++work) work->wait();
      for (std::size_t t = 0; t < 4; ++t) {
        comm.all_reduce(b[t], ReduceOp::average, sparse(alone, names[t]));
        EXPECT_TRUE(same_bits(a[t], b[t]));
      }
    }
    EXPECT_EQ(together.names(), (std::vector<std::string>{"a", "b", "c", "d"}));
  });
}

TEST_P(TopKWorlds, SavedAndLoadedGoesOnBitForBit) {
  run_hosts(world().hosts, [this](Communicator& comm) {
    const std::size_t count = 3000;
    const TopKOptions options = with_form({.k = 30, .momentum = 0.9F});
    TopK through(options), before(options), after(options);
    const auto step = [&](TopK& top_k, int number) {
      std::vector<float> data = gradient_of(comm.rank(), count, number);
      comm.all_reduce(data, ReduceOp::average, sparse(top_k));
      return data;
    };
    for (int number = 0; number < 3; ++number) EXPECT_TRUE(same_bits(step(through, number), step(before, number)));
    // Saves and loads as a checkpoint would, rank by rank.
    std::vector<std::vector<std::byte>> states(static_cast<std::size_t>(comm.size()));
    for (Rank r = 0; r < comm.size(); ++r) {
      std::vector<std::byte>& state = states[static_cast<std::size_t>(r)];
      if (r == comm.rank()) state = before.save();
      std::vector<std::uint64_t> bytes{state.size()};
      comm.broadcast(bytes, r);
      state.resize(bytes[0]);
      comm.broadcast(state, r);
    }
    after.load(states, comm.rank(), comm.size());
    for (int number = 3; number < 6; ++number) EXPECT_TRUE(same_bits(step(through, number), step(after, number)));
    EXPECT_EQ(through.save(), after.save());
  });
}

INSTANTIATE_TEST_SUITE_P(
    , TopKWorlds,
    ::testing::Combine(::testing::Values(World{"2", {0, 0}}, World{"3", {0, 0, 0}}, World{"2hosts_of_1", {0, 1}},
                                         World{"5hosts_of_1", {0, 1, 2, 3, 4}}, World{"2hosts_of_2", {0, 0, 1, 1}},
                                         World{"3hosts_unequal", {0, 0, 1, 2, 2, 2}},
                                         World{"2hosts_interleaved", {0, 1, 0, 1, 1}}),
                       ::testing::Values(SparseForm::gathered, SparseForm::split)),
    [](const auto& parameter) {
      return "Ranks_" + std::get<0>(parameter.param).name +
             (std::get<1>(parameter.param) == SparseForm::split ? "_split" : "_gathered");
    });

// ---- momentum, clipping, warm-up ----

TEST(TopKMomentum, WithEverythingSentAndNoMaskingIsMomentumSgdBitForBit) {
  run_communicators(2, [](Communicator& comm) {
    const std::size_t count = 500;
    TopK top_k({.density = 1, .momentum = 0.9F, .masking = false});
    std::array<std::vector<float>, 2> velocity{std::vector<float>(count), std::vector<float>(count)};
    for (int step = 0; step < 5; ++step) {
      std::vector<float> data = gradient_of(comm.rank(), count, step), expected(count);
      comm.all_reduce(data, ReduceOp::sum, sparse(top_k));
      for (Rank r = 0; r < 2; ++r) {
        const std::vector<float> gradient = gradient_of(r, count, step);
        std::vector<float>& v = velocity[static_cast<std::size_t>(r)];
        for (std::size_t i = 0; i < count; ++i) v[i] = 0.9F * v[i] + gradient[i];
      }
      for (std::size_t i = 0; i < count; ++i) expected[i] = velocity[0][i] + velocity[1][i];
      EXPECT_TRUE(same_bits(data, expected)) << "step " << step;
    }
    EXPECT_EQ(top_k.report("tensor").residual_norm, 0);
  });
}

TEST(TopKMomentum, WhereEverythingIsSentBecauseThatIsFasterToo) {
  run_communicators(2, [](Communicator& comm) {
    const std::size_t count = 500;
    TopK refused({.density = 0.01, .momentum = 0.9F}), forced({.density = 1, .momentum = 0.9F, .masking = false});
    for (int step = 0; step < 5; ++step) {
      std::vector<float> a = gradient_of(comm.rank(), count, step), b = a;
      comm.all_reduce(a, ReduceOp::sum, {.name = "tensor", .compressor = &refused});
      comm.all_reduce(b, ReduceOp::sum, sparse(forced));
      EXPECT_TRUE(same_bits(a, b)) << "step " << step;
    }
    EXPECT_FALSE(refused.report("tensor").sparse);
    EXPECT_NE(refused.report("tensor").reason.find("share memory"), std::string::npos);
  });
}

TEST(TopKMomentum, GoesOnWhereRanksBeginToAddInsideTheirHost) {
  // Constant gradients: the velocity is 1, 1.9, 2.71, 3.439. Everything is sent, because all elements of this tensor
  // are equal and selected.
  for (const auto& hosts : {std::vector<int>{0, 1}, {0, 0, 1, 1}, {0, 1, 1}})
    run_hosts(
        hosts,
        [](Communicator& comm) {
          TopK top_k({.density = 1, .momentum = 0.9F, .masking = false});
          const float expected[] = {1, 1.9F, 2.71F, 3.439F, 4.0951F, 4.68559F};
          for (int step = 0; step < 6; ++step) {
            std::vector<float> ones(500, 1);
            Options options = sparse(top_k);
            options.force = step == 2 || step == 3;  // everything, sparse, everything
            comm.all_reduce(ones, ReduceOp::average, options);
            EXPECT_EQ(top_k.report("tensor").sparse, options.force);
            for (const float value : ones) ASSERT_NEAR(value, expected[step], 1e-5) << "step " << step;
          }
        },
        never_worth_it());
}

TEST(TopKResidual, IsAddedToTheNextDenseGradient) {
  for (const float momentum : {0.0F, 0.5F})
    for (const auto& hosts : {std::vector<int>{0, 0}, {0, 1}, {0, 0, 1, 1}})
      run_hosts(
          hosts,
          [&](Communicator& comm) {
            TopK top_k({.k = 1, .momentum = momentum, .masking = false});
            std::vector<float> first{1, 2, 3, 4}, rest(4, 0.0F);
            comm.all_reduce(first, ReduceOp::average, sparse(top_k));
            comm.all_reduce(rest, ReduceOp::average, {.name = "tensor", .compressor = &top_k});
            ASSERT_FALSE(top_k.report("tensor").sparse);
            for (std::size_t i = 0; i < 4; ++i)
              EXPECT_NEAR(first[i] + rest[i], (1 + momentum) * static_cast<float>(i + 1), 1e-5)
                  << hosts.size() << " " << i;
            EXPECT_EQ(top_k.report("tensor").residual_norm, 0);
          },
          never_worth_it());
}

TEST(TopKClip, EachRankScalesItsGradientToItsShareOfTheNorm) {
  run_communicators(4, [](Communicator& comm) {
    TopK top_k({.density = 1, .clip = 1});
    std::vector<float> data(100, comm.rank() == 0 ? 10.0F : 0.0F);  // a norm of 100
    comm.all_reduce(data, ReduceOp::sum, sparse(top_k));
    for (const float value : data) EXPECT_NEAR(value, 0.05F, 1e-6);  // a norm of 1 / sqrt(4)
  });
}

TEST(TopKWarmUp, TheDensityFallsByEqualFactors) {
  run_communicators(2, [](Communicator& comm) {
    TopK top_k({.density = 0.01, .warm_up_calls = 2, .warm_up_density = 0.25});
    for (const std::size_t chosen : {250U, 50U, 10U, 10U}) {
      std::vector<float> data = gradient_of(comm.rank(), 1000, 0);
      comm.all_reduce(data, ReduceOp::average, sparse(top_k));
      EXPECT_EQ(top_k.report("tensor").chosen, chosen);
    }
  });
}

TEST(TopKWithoutErrorFeedback, DropsUnsentValues) {
  run_communicators(2, [](Communicator& comm) {
    TopK top_k({.k = 1, .error_feedback = false});
    for (int step = 0; step < 3; ++step) {
      std::vector<float> data{1, 2, 3};
      comm.all_reduce(data, ReduceOp::sum, sparse(top_k));
      EXPECT_EQ(data, (std::vector<float>{0, 0, 6}));
    }
    EXPECT_EQ(top_k.report("tensor").residual_norm, 0);
  });
}

TEST(TopKSlices, EverySliceSendsEvenForSmallK) {
  run_hosts({0, 0, 0, 0, 1, 1, 1, 1}, [](Communicator& comm) {
    for (const std::size_t k : {1U, 2U, 3U, 5U}) {
      TopK top_k({.k = k});
      std::vector<float> arrived(60);
      for (int step = 0; step < 120; ++step) {
        std::vector<float> ones(60, 1);
        comm.all_reduce(ones, ReduceOp::average, sparse(top_k));
        for (std::size_t i = 0; i < 60; ++i) arrived[i] += ones[i];
      }
      for (std::size_t i = 0; i < 60; ++i) EXPECT_GT(arrived[i], 50) << "element " << i << ", top " << k;
      TopK propagates({.k = k});
      std::vector<float> data(60, 1);
      if (comm.rank() == 2) data[59] = std::numeric_limits<float>::quiet_NaN();
      comm.all_reduce(data, ReduceOp::average, sparse(propagates));
      EXPECT_TRUE(std::isnan(data[59])) << "top " << k;
    }
    // Every rank reports the NaN, not only the rank whose slice contains it.
    TopK aborts({.k = 2, .non_finite = NonFinite::abort});
    std::vector<float> data(60, 1);
    if (comm.rank() == 2) data[59] = std::numeric_limits<float>::quiet_NaN();
    const std::string text = error_of(Errc::aborted, [&] { comm.all_reduce(data, ReduceOp::average, sparse(aborts)); });
    EXPECT_NE(text.find("ranks 0-3 gave NaN or infinity at index 59"), std::string::npos) << text;
  });
}

TEST(TopKBytes, AreThoseThatAreSentAndReported) {
  run_hosts({0, 1, 2}, [](Communicator& comm) {
    const std::size_t count = 100'000, k = 1000;
    TopK top_k({.k = k});
    std::vector<float> data = gradient_of(comm.rank(), count, 0);
    const std::uint64_t before = comm.bytes_sent_to_other_hosts();
    comm.all_reduce(data, ReduceOp::average, sparse(top_k));
    const TopKReport report = top_k.report("tensor");
    // 8 bytes about values that are not finite, 4 of header, 2 counts of blocks of 4, 2 bytes per index, 4 per value.
    EXPECT_EQ(report.sent_bytes, 2 * (8 + 4 + 2 * 4 + 6 * k));
    EXPECT_EQ(comm.bytes_sent_to_other_hosts() - before, report.sent_bytes);
    EXPECT_EQ(report.chosen, k);
    EXPECT_GE(report.union_size, k);
    EXPECT_LE(report.union_size, 3 * k);
    EXPECT_GT(report.raw_bytes, count * 4);
    EXPECT_GT(report.coding_seconds, 0);
    EXPECT_GT(report.residual_norm, 0);
    EXPECT_LT(report.relative_error, 1);
  });
}

}  // namespace
}  // namespace collectives::testing
