// Tests of the state of a top-k compressor, which sends only k elements of a gradient. Its residual is the part of
// gradients that was not sent yet. The tests check residuals after skipped calls, failed calls, save() and load(). They
// also check that load() refuses invalid states.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cmath>
#include <cstring>
#include <latch>
#include <limits>
#include <mutex>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "collectives/communicator.hpp"
#include "collectives/error.hpp"
#include "collectives/top_k.hpp"
#include "support/hosts.hpp"
#include "support/ranks.hpp"
#include "support/top_k.hpp"

namespace collectives::testing {
namespace {

TEST(TopKNonFinite, IsReportedOnTheDensePathToo) {
  const std::vector<int> three{0, 0, 0}, hosts_of_1{0, 1}, hosts_of_2{0, 0, 1, 1};
  for (const auto& [hosts, with_nan] : {std::pair(three, 1),
                                        {hosts_of_1, 0},
                                        {hosts_of_1, 1},
                                        {hosts_of_2, 0},
                                        {hosts_of_2, 1},
                                        {hosts_of_2, 2},
                                        {hosts_of_2, 3}})
    run_hosts(
        hosts,
        [with_nan](Communicator& comm) {
          const float nan = std::numeric_limits<float>::quiet_NaN();
          TopK skips({.k = 3, .momentum = 0.9F, .non_finite = NonFinite::skip});
          const Options whole{.name = "tensor", .compressor = &skips};
          std::vector<float> data(100, 1.0F);
          comm.all_reduce(data, ReduceOp::average, whole);
          ASSERT_FALSE(skips.report("tensor").sparse);
          std::vector<float> bad(100, 1.0F);
          if (comm.rank() == with_nan) bad[5] = nan;
          comm.all_reduce(bad, ReduceOp::average, whole);
          EXPECT_EQ(bad, std::vector<float>(100, 0.0F));
          std::vector<float> next(100, 1.0F);
          comm.all_reduce(next, ReduceOp::average, whole);
          for (const float value : next) EXPECT_TRUE(std::isfinite(value));
          EXPECT_GT(next[0], 1.9F);  // the other ranks' share of the skipped step is included
          TopK aborts({.k = 3, .non_finite = NonFinite::abort});
          const std::string text = error_of(Errc::aborted, [&] {
            std::vector<float> last(100, 1.0F);
            if (comm.rank() == with_nan) std::fill(last.begin() + 60, last.end(), nan);
            comm.all_reduce(last, ReduceOp::average, {.name = "tensor", .compressor = &aborts});
          });
          EXPECT_NE(text.find(": rank " + std::to_string(with_nan) + " gave NaN or infinity at index 60"),
                    std::string::npos)
              << text;
        },
        never_worth_it());
}

TEST(TopKNonFinite, TheFirstOfALongVectorIsNamed) {
  for (const std::size_t place : std::vector<std::size_t>{0, 1, 1023, 1024, 2500, 2999})
    run_hosts({0, 1}, [place](Communicator& comm) {
      TopK aborts({.k = 3, .non_finite = NonFinite::abort});
      std::vector<float> data(3000, 1.0F);
      if (comm.rank() == 1) data[2999] = std::nanf(""), data[place] = -std::numeric_limits<float>::infinity();
      const std::string text = error_of(Errc::aborted, [&] { comm.all_reduce(data, ReduceOp::sum, sparse(aborts)); });
      EXPECT_NE(text.find("rank 1 gave NaN or infinity at index " + std::to_string(place)), std::string::npos) << text;
    });
}

TEST(TopKNonFinite, OverflowIsReportedOnTheDensePathToo) {
  run_hosts(
      {0, 1},
      [](Communicator& comm) {
        const auto call = [&](TopK& top_k, float value) {
          std::vector<float> data{1, comm.rank() == 1 ? value : 0, 2};
          comm.all_reduce(data, ReduceOp::sum, {.name = "tensor", .compressor = &top_k});
          return data;
        };
        const float large = 3e38F;  // with momentum, the velocity overflows in the second call
        TopK skips({.momentum = 0.5F, .non_finite = NonFinite::skip});
        TopK aborts({.momentum = 0.5F, .non_finite = NonFinite::abort});
        EXPECT_EQ(call(skips, large), (std::vector<float>{2, large, 4}));
        EXPECT_EQ(call(skips, large), (std::vector<float>{0, 0, 0}));
        // The finite values of the skipped call arrive with the next one. The other values are lost.
        EXPECT_EQ(call(skips, 5), (std::vector<float>{6.5F, 5, 13}));
        call(aborts, large);
        const std::string text = error_of(Errc::aborted, [&] { call(aborts, large); });
        EXPECT_NE(text.find(": rank 1 gave NaN or infinity at index 1"), std::string::npos) << text;
      },
      never_worth_it());
}

TEST(TopKSkip, DropsOnlyNonFiniteValues) {
  for (const auto& hosts : {std::vector<int>{0, 0}, {0, 1}, {0, 0, 1, 1}})
    run_hosts(hosts, [](Communicator& comm) {
      // A residual that overflows is dropped. Later calls send their own gradients.
      TopK overflows({.k = 2, .non_finite = NonFinite::skip});
      const auto call = [&](TopK& top_k, float value) {
        std::vector<float> data{value, 1, 2, 3};
        comm.all_reduce(data, ReduceOp::sum, sparse(top_k));
        return data;
      };
      for (int step = 0; step < 3; ++step) call(overflows, 3e38F);
      bool counted = false;
      for (int step = 0; step < 4; ++step) {
        const std::vector<float> data = call(overflows, 0);
        counted = counted || std::ranges::any_of(data, [](float value) { return value != 0; });
      }
      EXPECT_TRUE(counted);
      // The velocity of elements selected in a skipped call is kept.
      TopK moves({.k = 4, .momentum = 0.5F, .non_finite = NonFinite::skip});
      call(moves, comm.rank() == 0 ? std::numeric_limits<float>::quiet_NaN() : 0.0F);
      const std::vector<float> next = call(moves, 0);
      for (const float value : next) EXPECT_TRUE(std::isfinite(value));
      EXPECT_GE(next[3], 3.0F * static_cast<float>(comm.size()));
    });
}

TEST(TopKSkip, EndsWhenWhatCannotArriveHasBeenDropped) {
  for (const auto& hosts : {std::vector<int>{0, 0}, {0, 1}, {0, 0, 1, 1}})
    run_hosts(hosts, [](Communicator& comm) {
      const auto call = [&](TopK& top_k, float value) {
        std::vector<float> data{comm.rank() == 0 ? value : 0, 1, comm.rank() == 0 ? value : 0, 3};
        comm.all_reduce(data, ReduceOp::sum, sparse(top_k));
        return data;
      };
      const std::vector<float> nothing(4, 0.0F);
      const auto counts = [&](const std::vector<float>& data) {
        return data != nothing && std::ranges::all_of(data, [](float value) { return std::isfinite(value); });
      };
      TopK rounded({.k = 2, .values = DataType::bf16, .non_finite = NonFinite::skip});
      EXPECT_EQ(call(rounded, 3.4e38F), nothing);  // finite in f32, not in bf16
      EXPECT_EQ(rounded.report("tensor").relative_error, rounded.report("tensor").residual_norm > 0 ? 1 : 0);
      EXPECT_TRUE(counts(call(rounded, 0)));
      TopK moves({.k = 2, .momentum = 0.9F, .masking = false, .non_finite = NonFinite::skip});
      EXPECT_TRUE(counts(call(moves, 3e38F)));
      EXPECT_EQ(call(moves, 3e38F), nothing);
      EXPECT_TRUE(counts(call(moves, 0)));
      TopK one_by_one({.k = 1, .non_finite = NonFinite::skip});
      EXPECT_TRUE(counts(call(one_by_one, 3e38F)));
      EXPECT_EQ(call(one_by_one, 3e38F), nothing);
      EXPECT_TRUE(counts(call(one_by_one, 0)));
    });
}

/// The compressors of all ranks, one for each. They outlive communicators.
class Keepers {
 public:
  Keepers(std::size_t ranks, const TopKOptions& options) {
    for (std::size_t r = 0; r < ranks; ++r) keepers_.emplace_back(options);
  }
  TopK& of(const Communicator& comm) { return keepers_[static_cast<std::size_t>(comm.rank())]; }

 private:
  std::vector<TopK> keepers_;
};

/// Returns the sum of the residuals of all ranks. Makes calls with a gradient of zeros until all residuals are sent.
std::vector<float> rest_of(Communicator& comm, TopK& top_k) {
  std::vector<float> sum(100, 0.0F), data(100);
  for (int step = 0; step < 120; ++step) {
    std::ranges::fill(data, 0.0F);
    comm.all_reduce(data, ReduceOp::sum, sparse(top_k));
    for (std::size_t i = 0; i < data.size(); ++i) sum[i] += data[i];
  }
  EXPECT_LT(top_k.report("tensor").residual_norm, 1e-6);
  return sum;
}

/// Makes a call on all ranks but rank 0, which must time out. Rank 0 waits until it has failed.
void call_in_vain(Communicator& comm, TopK& top_k, std::latch& failed) {
  if (comm.rank() == 0) return failed.wait();
  std::vector<float> data = gradient_of(comm.rank(), 100, 1);
  error_of(Errc::timeout, [&] { comm.all_reduce(data, ReduceOp::sum, sparse(top_k)); });
  failed.count_down();
}

TEST(TopKFailure, RestoresTheSelectionAndServesAnotherCommunicator) {
  // Each host adds its gradients before it sends and keeps the sum after a failure. Rank 0's host formed no sum,
  // because rank 0 did not take part.
  const std::vector<int> hosts_of_1{0, 1}, hosts_of_2{0, 0, 1, 1};
  for (const auto& [hosts, first_kept] : {std::pair(hosts_of_1, 1), {hosts_of_2, 2}}) {
    const auto ranks = static_cast<Rank>(hosts.size());
    Keepers keepers(hosts.size(), {.density = 0.02, .warm_up_calls = 3, .warm_up_density = 0.5});
    std::vector<float> arrived(100), owed(100);
    for (Rank r = 0; r < ranks; ++r)
      for (std::size_t i = 0; i < 100; ++i)
        owed[i] += gradient_of(r, 100, 0)[i] + (r >= first_kept ? gradient_of(r, 100, 1)[i] : 0);
    std::latch failed(ranks - 1);
    run_hosts(hosts,
              [&](Communicator& comm) {
                std::vector<float> data = gradient_of(comm.rank(), 100, 0);
                comm.all_reduce(data, ReduceOp::sum, sparse(keepers.of(comm)));
                if (comm.rank() == 0) arrived = data;
                comm.barrier();
                call_in_vain(comm, keepers.of(comm), failed);
                EXPECT_EQ(keepers.of(comm).report("tensor").calls, 1U);
              },
              {.timeout = std::chrono::seconds(2)});
    run_hosts(hosts, [&](Communicator& comm) {
      std::vector<float> data(100, 0.0F);
      comm.all_reduce(data, ReduceOp::sum, sparse(keepers.of(comm)));
      EXPECT_EQ(keepers.of(comm).report("tensor").chosen,
                ranks == 2 ? 18U : 9U);  // the warm-up's number for the second call
      const std::vector<float> rest = rest_of(comm, keepers.of(comm));
      for (std::size_t i = 0; i < 100; ++i) EXPECT_NEAR(arrived[i] + data[i] + rest[i], owed[i], 1e-4) << i;
    });
  }
}

TEST(TopKFailure, OfTheFirstCallInsideHostsLeavesNothingOfIt) {
  const std::vector<int> hosts{0, 0, 1, 1};
  Keepers keepers(hosts.size(), {.k = 2, .momentum = 0.5F});
  std::latch failed(3);
  run_hosts(hosts, [&](Communicator& comm) { call_in_vain(comm, keepers.of(comm), failed); },
            {.timeout = std::chrono::seconds(2)});
  run_hosts(hosts,
            [&](Communicator& comm) { EXPECT_EQ(rest_of(comm, keepers.of(comm)), std::vector<float>(100, 0.0F)); });
}

TEST(TopKFailure, OfTheFirstCallKeepsResidualsOnOtherHosts) {
  Keepers keepers(4, {.k = 2, .non_finite = NonFinite::abort});
  std::vector<float> owed(100);
  for (Rank r = 0; r < 3; ++r)
    for (std::size_t i = 0; i < 100; ++i) owed[i] += gradient_of(r, 100, 0)[i];
  run_hosts({0, 1, 2, 3}, [&](Communicator& comm) {
    std::vector<float> data = gradient_of(comm.rank(), 100, 0);
    if (comm.rank() == 3) data[1] = std::numeric_limits<float>::quiet_NaN();
    error_of(Errc::aborted, [&] { comm.all_reduce(data, ReduceOp::sum, sparse(keepers.of(comm))); });
  });
  run_hosts({0, 0, 1, 1}, [&](Communicator& comm) {
    const std::vector<float> rest = rest_of(comm, keepers.of(comm));
    for (std::size_t i = 0; i < 100; ++i) EXPECT_NEAR(rest[i], owed[i], 1e-4) << i;
  });
}

TEST(TopKFailure, ByNaNLeavesTheGradientsOfTheOthersOnly) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  for (const float momentum : {0.0F, 0.5F})
    for (const bool force : {true, false})
      for (const auto& hosts : {std::vector<int>{0, 0}, {0, 1, 2}, {0, 0, 1, 1}}) {
        // If ranks add inside their host first, timing decides which of them have added before the failure.
        if (force && hosts.size() == 4) continue;
        SCOPED_TRACE(::testing::Message() << hosts.size() << " ranks, momentum " << momentum << ", force " << force);
        const auto ranks = static_cast<Rank>(hosts.size());
        Keepers keepers(hosts.size(), {.k = 5, .momentum = momentum, .masking = false, .non_finite = NonFinite::abort});
        std::vector<float> arrived, owed(100);
        for (Rank r = 0; r < ranks; ++r)
          for (std::size_t i = 0; i < 100; ++i)
            owed[i] += (gradient_of(r, 100, 0)[i] + (r < ranks - 1 ? gradient_of(r, 100, 1)[i] : 0)) / (1 - momentum);
        run_hosts(
            hosts,
            [&](Communicator& comm) {
              TopK& top_k = keepers.of(comm);
              Options options = sparse(top_k);
              options.force = force;
              std::vector<float> data = gradient_of(comm.rank(), 100, 0);
              comm.all_reduce(data, ReduceOp::sum, options);
              if (comm.rank() == 0) arrived = data;
              const std::vector<std::byte> before = top_k.save();
              data = gradient_of(comm.rank(), 100, 1);
              if (comm.rank() == ranks - 1) std::fill(data.begin(), data.begin() + 20, nan);
              error_of(Errc::aborted, [&] { comm.all_reduce(data, ReduceOp::sum, options); });
              EXPECT_EQ(top_k.save() == before, comm.rank() == ranks - 1);
            },
            never_worth_it());
        run_hosts(hosts, [&](Communicator& comm) {
          const std::vector<float> rest = rest_of(comm, keepers.of(comm));
          for (std::size_t i = 0; i < 100; ++i) EXPECT_NEAR(arrived[i] + rest[i], owed[i], 1e-4) << i;
        });
      }
}

TEST(TopKFailure, ByNaNLeavesTheVelocityOfWhatWasChosen) {
  Keepers keepers(2, {.density = 1, .momentum = 0.5F, .non_finite = NonFinite::abort});
  run_hosts({0, 1}, [&](Communicator& comm) {
    std::vector<float> data(100, comm.rank() == 0 ? 1 : std::numeric_limits<float>::quiet_NaN());
    error_of(Errc::aborted, [&] { comm.all_reduce(data, ReduceOp::sum, sparse(keepers.of(comm))); });
  });
  run_hosts({0, 1}, [&](Communicator& comm) {
    std::vector<float> data(100, 0.0F);
    comm.all_reduce(data, ReduceOp::sum, sparse(keepers.of(comm)));
    EXPECT_EQ(data, std::vector<float>(100, 1.5F));
  });
}

TEST(TopKFailure, ByNaNInsideAHostKeepsTheResidual) {
  const std::vector<int> hosts{0, 0, 1, 1};
  for (Rank with_nan = 0; with_nan < 4; ++with_nan) {
    Keepers keepers(hosts.size(), {.k = 4, .non_finite = NonFinite::abort});
    std::vector<float> arrived, owed(100);
    for (Rank r = 0; r < 4; ++r)
      for (std::size_t i = 0; i < 100; ++i) owed[i] += gradient_of(r, 100, 0)[i];
    run_hosts(hosts, [&](Communicator& comm) {
      std::vector<float> data = gradient_of(comm.rank(), 100, 0);
      comm.all_reduce(data, ReduceOp::sum, sparse(keepers.of(comm)));
      if (comm.rank() == 0) arrived = data;
      std::ranges::fill(data, 0.0F);
      if (comm.rank() == with_nan) std::fill_n(data.begin(), 20, std::numeric_limits<float>::quiet_NaN());
      const std::string text =
          error_of(Errc::aborted, [&] { comm.all_reduce(data, ReduceOp::sum, sparse(keepers.of(comm))); });
      EXPECT_NE(text.find(with_nan < 2 ? "ranks 0-1 gave NaN or infinity at index 0"
                                       : "ranks 2-3 gave NaN or infinity at index 0"),
                std::string::npos)
          << text;
    });
    run_hosts(hosts, [&](Communicator& comm) {
      const std::vector<float> rest = rest_of(comm, keepers.of(comm));
      for (std::size_t i = 0; i < 100; ++i) EXPECT_NEAR(arrived[i] + rest[i], owed[i], 1e-4) << i;
    });
  }
}

// ---- states loaded on other ranks, and malformed states ----

TEST(TopKState, LoadOnOtherRanksLosesNoResidual) {
  const std::size_t count = 400;
  for (const auto& before : {std::vector<int>{0, 0, 0, 0}, {0, 0, 1, 1}}) {
    std::vector<std::vector<std::byte>> states(4);
    std::vector<double> owed(count);
    std::mutex mutex;
    run_hosts(before, [&](Communicator& comm) {
      TopK top_k({.k = 4});
      std::vector<float> sum(count), data;
      for (int step = 0; step < 3; ++step) {
        data = gradient_of(comm.rank(), count, step);
        comm.all_reduce(data, ReduceOp::sum, sparse(top_k));
        for (std::size_t i = 0; i < count; ++i) sum[i] += data[i];
      }
      const std::lock_guard lock(mutex);
      states[static_cast<std::size_t>(comm.rank())] = top_k.save();
      for (int step = 0; step < 3; ++step) {
        const std::vector<float> gradient = gradient_of(comm.rank(), count, step);
        for (std::size_t i = 0; i < count; ++i) owed[i] += static_cast<double>(gradient[i]);
      }
      if (comm.rank() == 0)
        for (std::size_t i = 0; i < count; ++i) owed[i] -= static_cast<double>(sum[i]);
    });
    for (const auto& hosts :
         {std::vector<int>{0, 0}, {0, 0, 0, 0, 0, 0}, {0, 0, 1, 1}, {0, 1, 0, 1}, {0, 1, 2, 3}, {0, 1, 2}})
      run_hosts(hosts, [&](Communicator& comm) {
        TopK top_k({.k = count});
        top_k.load(states, comm.rank(), comm.size());
        std::vector<float> data(count);
        comm.all_reduce(data, ReduceOp::sum, sparse(top_k));
        for (std::size_t i = 0; i < count; ++i) ASSERT_NEAR(data[i], owed[i], 1e-4) << hosts.size() << " ranks, " << i;
      });
  }
}

TEST(TopKState, OfMoreElementsThanItKeepsTakesNoMemory) {
  std::vector<std::vector<std::byte>> kept(2), no_residual(2);
  run_communicators(2, [&](Communicator& comm) {
    const auto saved = [&](const Options& options) {
      std::vector<float> data(10, 1);
      comm.all_reduce(data, ReduceOp::sum, options);
      return options.compressor->save();
    };
    TopK some({.k = 2}), all({.k = 2});
    kept[static_cast<std::size_t>(comm.rank())] = saved(sparse(some));
    no_residual[static_cast<std::size_t>(comm.rank())] = saved({.name = "tensor", .compressor = &all});
  });
  TopK top_k;
  top_k.load(kept, 0, 1);
  for (const std::uint64_t count :
       {std::uint64_t{1} << 31, std::uint64_t{1} << 40, std::uint64_t{1} << 62, ~std::uint64_t{0}}) {
    const auto with_count = [count](std::vector<std::vector<std::byte>> states) {
      const std::size_t at = 8 + 8 + 8 + 6;  // offset after the magic, number of tensors, length of a name, "tensor"
      for (auto& state : states) std::memcpy(state.data() + at, &count, sizeof count);
      return states;
    };
    const std::string text = error_of(Errc::invalid_argument, [&] { top_k.load(with_count(kept), 0, 1); });
    EXPECT_NE(text.find("tensor"), std::string::npos) << text;
    if (count >> 32 != 0) {
      error_of(Errc::invalid_argument, [&] { top_k.load(with_count(no_residual), 0, 1); });
    } else {
      top_k.load(with_count(no_residual), 0, 1);
      EXPECT_EQ(top_k.save().size(), no_residual[0].size());
    }
  }
}

TEST(TopKState, AMalformedStateIsRefused) {
  TopK top_k;
  std::vector<std::vector<std::byte>> states{top_k.save()};
  top_k.load(states, 0, 1);
  for (std::size_t cut = 0; cut < states[0].size(); ++cut) {
    std::vector<std::vector<std::byte>> shorter{states};
    shorter[0].resize(cut);
    error_of(Errc::invalid_argument, [&] { top_k.load(shorter, 0, 1); });
  }
  run_communicators(1, [&](Communicator& comm) {
    std::vector<float> data(100, 1);
    comm.all_reduce(data, ReduceOp::sum, sparse(top_k));
  });
  const std::vector<std::byte> whole = top_k.save();
  std::mt19937 random(3);
  for (int i = 0; i < 2000; ++i) {  // any bytes: the result is an error or a state
    std::vector<std::vector<std::byte>> changed{whole};
    for (int byte = 0; byte < 3; ++byte) changed[0][random() % whole.size()] = static_cast<std::byte>(random());
    if (i % 3 == 0) changed[0].resize(random() % whole.size());
    try {
      TopK other;
      other.load(changed, 0, 1);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Errc::invalid_argument);
    }
  }
}

// ---- mistakes ----

TEST(TopKMistakes, MeaninglessOptionsAreRefused) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const std::vector<std::pair<TopKOptions, const char*>> mistakes{
      {{.density = 0}, "density"},
      {{.density = 1.5}, "density"},
      {{.density = -1}, "density"},
      {{.density = static_cast<double>(nan)}, "density"},
      {{.momentum = 1}, "momentum"},
      {{.momentum = nan}, "momentum"},
      {{.error_feedback = false, .momentum = 0.5F}, "error_feedback"},
      {{.clip = -1}, "clip"},
      {{.warm_up_density = 0}, "warm_up_density"},
      {{.values = DataType::f16}, "f16"}};
  for (const auto& [options, word] : mistakes) {
    const std::string text = error_of(Errc::invalid_argument, [&, &options = options] { TopK top_k(options); });
    EXPECT_NE(text.find(word), std::string::npos) << text;
  }
}

TEST(TopKMistakes, UnsupportedCallsAreRefused) {
  run_communicators(2, [](Communicator& comm) {
    TopK top_k;
    std::vector<float> data(100, 1), half(50);
    std::vector<double> doubles(100, 1);
    const Options options = sparse(top_k);
    const auto refused = [&](const char* word, auto&& call) {
      const std::string text = error_of(Errc::invalid_argument, call);
      EXPECT_NE(text.find(word), std::string::npos) << text;
    };
    refused("all_reduce only", [&] { comm.reduce_scatter(data, half, ReduceOp::sum, options); });
    refused("all_reduce only", [&] { comm.broadcast(data, 0, options); });
    refused("all_reduce only", [&] { comm.all_gather(half, data, options); });
    refused("f64", [&] { comm.all_reduce(doubles, ReduceOp::sum, options); });
    refused("max", [&] { comm.all_reduce(data, ReduceOp::max, options); });
    refused("name", [&] { comm.all_reduce(data, ReduceOp::sum, {.compressor = &top_k}); });
    comm.all_reduce(data, ReduceOp::sum, options);
    refused("50 elements, but those before had 100", [&] { comm.all_reduce(half, ReduceOp::sum, options); });
    Work work = comm.all_reduce_async(data, data, ReduceOp::sum, options);
    comm.barrier();  // complete, but not yet reported to this rank
    refused("under way", [&] { comm.all_reduce(data, ReduceOp::sum, options); });
    work.wait();
    comm.all_reduce(data, ReduceOp::sum, options);
    std::vector<std::byte> odd(101 * sizeof(float));
    refused("aligned", [&] { comm.all_reduce(Buffer(odd.data() + 1, 100, DataType::f32), ReduceOp::sum, options); });
    std::vector<float> empty;
    comm.all_reduce(empty, ReduceOp::sum, sparse(top_k, "empty"));
    comm.all_reduce(data);  // the communicator still works
  });
}

TEST(TopKMistakes, InvalidWireFormatIsReportedFirstIfTheCompressorIsInvalidToo) {
  run_communicators(2, [](Communicator& comm) {
    TopK top_k;
    std::vector<float> data(100, 1);
    std::vector<double> doubles(100, 1);
    const Options no_format{.name = "tensor", .wire = DataType::i8, .compressor = &top_k};
    const Options bf16{.name = "tensor", .wire = DataType::bf16, .compressor = &top_k};
    const auto refused = [&](const char* words, auto&& call) {
      const std::string text = error_of(Errc::invalid_argument, call);
      EXPECT_NE(text.find(words), std::string::npos) << text;
    };
    refused("nothing travels as i8", [&] { comm.all_reduce(data, ReduceOp::max, no_format); });
    refused("nothing travels as i8", [&] { comm.all_reduce_async(data, data, ReduceOp::max, no_format).wait(); });
    refused("wire bf16 carries f32, not f64", [&] { comm.all_reduce(doubles, ReduceOp::sum, bf16); });
    comm.all_reduce(data);  // the communicator still works
  });
}

TEST(TopKMistakes, RanksWithOtherCompressorsAreAMismatch) {
  for (const int variant : {0, 1, 2, 3})
    run_hosts({0, 1}, [&](Communicator& comm) {
      TopK top_k({.k = comm.rank() == 1 && variant == 0 ? std::size_t{11} : std::size_t{10},
                  .values = comm.rank() == 1 && variant == 1 ? DataType::bf16 : DataType::f32,
                  .non_finite = comm.rank() == 1 && variant == 3 ? NonFinite::skip : NonFinite::propagate});
      std::vector<float> data(1000, 1);
      const Options none{.name = "tensor"};
      const std::string text = error_of(Errc::mismatch, [&] {
        comm.all_reduce(data, ReduceOp::sum, comm.rank() == 1 && variant == 2 ? none : sparse(top_k));
      });
      EXPECT_NE(text.find("compressed by top 10"), std::string::npos) << text;
    });
}

TEST(TopKHostile, MalformedSelectionsFailOnEveryRank) {
  for (const SparseForm form : {SparseForm::gathered, SparseForm::split})
    for (const std::size_t at : {0U, 4U, 8U, 12U, 16U, 24U}) {
      std::array<std::string, 3> texts;
      auto mailbox = std::make_shared<WireMailbox>();
      std::atomic<bool> armed = false;
      mailbox->tamper = [&](Rank from, std::vector<std::byte>& bytes) {
        if (!armed || from != 1 || bytes.size() < at + 4) return;
        std::fill_n(bytes.begin() + static_cast<std::ptrdiff_t>(at), 4, std::byte{0xff});
      };
      run_hosts(
          {0, 1, 2},
          [&](Communicator& comm) {
            TopK top_k({.k = 40, .form = form});
            std::vector<float> data = gradient_of(comm.rank(), 1000, 0);
            comm.all_reduce(data, ReduceOp::sum, sparse(top_k));
            comm.barrier();
            armed = true;
            try {
              comm.all_reduce(data, ReduceOp::sum, sparse(top_k));
              comm.barrier();  // the rank that sent the bytes has seen no error in them
              // The number of values that are not finite may be anything.
              if (form == SparseForm::gathered) {
                EXPECT_LT(at, 8U);
              }
            } catch (const Error& error) {
              EXPECT_TRUE(error.code() == Errc::system || error.code() == Errc::mismatch) << error.what();
              texts[static_cast<std::size_t>(comm.rank())] = error.what();
            }
          },
          {.timeout = std::chrono::seconds(20)}, {}, mailbox);
      if (texts[0].empty() && texts[1].empty() && texts[2].empty()) continue;
      for (const std::string& text : texts)
        EXPECT_NE(text.find("(tensor): rank 1 sent what is no selection"), std::string::npos) << at << ": " << text;
    }
}

}  // namespace
}  // namespace collectives::testing
