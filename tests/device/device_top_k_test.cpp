// Tests of top-k on the GPU: an all-reduce that sends only the k elements with the greatest magnitudes. The rest stays
// in a residual in GPU memory. A slice is the share of one rank in the sum of its host's gradients.
//
// The tests check that all options give the same bits as on the CPU, also if some calls of a tensor select on the CPU.
// They also check the number of copies, the residual that is copied back, and calls that fail. cuda_kernels_test tests
// the kernels.
#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <limits>
#include <memory>
#include <numeric>
#include <optional>
#include <ostream>
#include <string>
#include <thread>
#include <vector>

#include "collectives/communicator.hpp"
#include "collectives/top_k.hpp"
#include "fakes/gpu/fake_device.hpp"
#include "support/child.hpp"
#include "support/errors.hpp"
#include "support/hosts.hpp"
#include "support/system.hpp"
#include "support/top_k.hpp"
#include "support/worlds.hpp"

namespace collectives::testing {
namespace {

using namespace std::chrono_literals;

constexpr std::size_t kCount = 3000;

using Hosts = std::vector<int>;
const Hosts kTwoByTwo{0, 0, 1, 1};

/// Tests on hosts of one rank or of several. All ranks share two fake GPUs.
class DeviceTopK : public ::testing::Test {
 protected:
  FakeGpus gpus{2, true};

  template <class F>
  void run(const Hosts& hosts, F&& f) {
    run_hosts(hosts, f, {.timeout = 60s});
  }
  template <class F>
  void run(int ranks, F&& f) {
    Hosts hosts(static_cast<std::size_t>(ranks));
    std::iota(hosts.begin(), hosts.end(), 0);
    run(hosts, f);
  }
  OnGpu<float> gradient(const Communicator& comm, int step, std::size_t count = kCount) {
    return {gpus, gradient_of(comm.rank(), count, step)};
  }
};

Options chosen_by(TopK& top_k, std::optional<void*> stream = {}) {
  Options options = sparse(top_k);
  options.stream = stream;
  return options;
}

/// Returns the saved states of all ranks.
std::vector<std::vector<std::byte>> states_of(Communicator& comm, const TopK& top_k) {
  std::vector<std::vector<std::byte>> states;
  for (Rank rank = 0; rank < comm.size(); ++rank) {
    std::vector<std::byte> state = top_k.save();
    std::uint64_t bytes[] = {state.size()};
    comm.broadcast(bytes, rank);
    state.resize(bytes[0]);
    comm.broadcast(Buffer{state.data(), state.size(), DataType::u8}, rank);
    states.push_back(state);
  }
  return states;
}

struct Case {
  std::string name;
  TopKOptions options;
  friend void PrintTo(const Case& one, std::ostream* out) { *out << one.name; }
};
Case with(std::string name, const std::function<void(TopKOptions&)>& change) {
  Case one{std::move(name), {.density = 0.02}};
  change(one.options);
  return one;
}
const auto kName = [](const auto& parameter) { return parameter.param.name; };

// ---- the same bits as on the CPU ----

class DeviceTopKOptions : public DeviceTopK, public ::testing::WithParamInterface<Case> {};

TEST_P(DeviceTopKOptions, SelectionAndResidualEqualThoseOfTheHost) {
  const auto steps = [&](Communicator& comm) {
    TopK of_host(GetParam().options), of_device(GetParam().options);
    const auto stream = gpus.new_stream();
    for (int step = 0; step < 6; ++step) {
      const ReduceOp op = step % 2 == 0 ? ReduceOp::sum : ReduceOp::average;
      std::vector<float> expected = gradient_of(comm.rank(), kCount, step);
      comm.all_reduce(expected, op, chosen_by(of_host));
      const OnGpu<float> data = gradient(comm, step);
      const OnGpu<float> out(gpus, kCount);
      const bool in_place = step % 3 == 0;
      comm.all_reduce(data.buffer(), (in_place ? data : out).buffer(), op,
                      chosen_by(of_device, step % 3 == 1 ? std::optional<void*>(stream) : std::nullopt));
      EXPECT_TRUE(same_bits((in_place ? data : out).values(), expected)) << "step " << step;
      if (!in_place) {
        EXPECT_TRUE(same_bits(data.values(), gradient_of(comm.rank(), kCount, step)));
      }
      const TopKReport there = of_device.report("tensor"), here = of_host.report("tensor");
      EXPECT_EQ(there.chosen, here.chosen);
      EXPECT_EQ(there.union_size, here.union_size);
      EXPECT_EQ(there.sent_bytes, here.sent_bytes);
      EXPECT_EQ(there.residual_norm, here.residual_norm);
    }
    EXPECT_EQ(of_device.save(), of_host.save());
    gpus.end_stream(stream);
  };
  // The worlds have hosts in which some ranks have no slice, and more ranks than elements to choose. Sanitizers take
  // minutes for all of them.
  std::vector<Hosts> worlds{kTwoByTwo, {0, 0, 0, 1, 1, 2, 2}};
  if (!collectives::testing::kSanitized) {
    worlds.push_back({0, 1, 2});
    worlds.push_back({0, 1, 0, 1, 0, 1});
  }
  for (const Hosts& hosts : worlds) {
    SCOPED_TRACE(::testing::PrintToString(hosts));
    run(hosts, steps);
  }
}

INSTANTIATE_TEST_SUITE_P(, DeviceTopKOptions,
                         ::testing::Values(with("plain", [](auto&) {}),
                                           with("gathered", [](auto& o) { o.form = SparseForm::gathered; }),
                                           with("split", [](auto& o) { o.form = SparseForm::split; }),
                                           with("split_and_dense",
                                                [](auto& o) {  // a call that sends all elements
                                                  o.form = SparseForm::split;
                                                  o.density = 0.6;
                                                }),
                                           with("without_feedback", [](auto& o) { o.error_feedback = false; }),
                                           with("momentum", [](auto& o) { o.momentum = 0.9F; }),
                                           with("momentum_unmasked",
                                                [](auto& o) {
                                                  o.momentum = 0.9F;
                                                  o.masking = false;
                                                }),
                                           with("bf16", [](auto& o) { o.values = DataType::bf16; }),
                                           with("bf16_without_feedback",
                                                [](auto& o) {
                                                  o.values = DataType::bf16;
                                                  o.error_feedback = false;
                                                }),
                                           with("one_element", [](auto& o) { o.k = 1; }),
                                           with("everything", [](auto& o) { o.density = 1; }),
                                           with("warm_up",
                                                [](auto& o) {
                                                  o.warm_up_calls = 3;
                                                  o.warm_up_density = 0.5;
                                                })),
                         kName);

TEST_F(DeviceTopK, HostAndGpuTakeTurns) {
  const auto steps = [&](Communicator& comm) {
    TopK of_host({.density = 0.05, .momentum = 0.5F}), of_both({.density = 0.05, .momentum = 0.5F});
    for (int step = 0; step < 8; ++step) {
      std::vector<float> expected = gradient_of(comm.rank(), kCount, step), got = expected;
      comm.all_reduce(expected, ReduceOp::sum, chosen_by(of_host));
      if (step / 2 % 2 == 0) {
        comm.all_reduce(got, ReduceOp::sum, chosen_by(of_both));
      } else {
        const OnGpu<float> data(gpus, got);
        comm.all_reduce(data.buffer(), ReduceOp::sum, chosen_by(of_both));
        got = data.values();
      }
      EXPECT_TRUE(same_bits(got, expected)) << "step " << step;
    }
    EXPECT_EQ(of_both.save(), of_host.save());
  };
  run(2, steps);
  run(kTwoByTwo, steps);
}

/// Tests calls in which each rank keeps a residual of its own gradient, alternating with calls in which the ranks of a
/// host keep residuals of slices of their sum.
TEST_F(DeviceTopK, HostsAndRanksTakeTurns) {
  run(kTwoByTwo, [&](Communicator& comm) {
    std::optional<Communicator> rail = comm.split(comm.rank() % 2, comm.rank());
    ASSERT_EQ(rail->topology().hosts.size(), 2);
    TopK of_host({.density = 0.05, .momentum = 0.5F}), of_gpu({.density = 0.05, .momentum = 0.5F});
    for (const bool by_rank : {false, false, true, true, false, false, true}) {
      Communicator& those = by_rank ? *rail : comm;
      std::vector<float> expected = gradient_of(comm.rank(), kCount, by_rank);
      const OnGpu<float> data(gpus, expected);
      those.all_reduce(expected, ReduceOp::sum, chosen_by(of_host));
      those.all_reduce(data.buffer(), ReduceOp::sum, chosen_by(of_gpu));
      EXPECT_TRUE(same_bits(data.values(), expected));
    }
    EXPECT_EQ(of_gpu.save(), of_host.save());
  });
}

/// Tests a host on which only some ranks must move their residuals, because the ranks have made different numbers of
/// calls, or because their slices have changed.
TEST_F(DeviceTopK, SomeRanksHaveSomethingToMove) {
  run(kTwoByTwo, [&](Communicator& comm) {
    std::optional<Communicator> rail = comm.split(comm.rank() % 2 == 0 ? 0 : -1, comm.rank()),
                                turned = comm.split(0, -comm.rank());
    TopK of_host({.density = 0.05, .momentum = 0.5F}), of_gpu({.density = 0.05, .momentum = 0.5F});
    int step = 0;
    const auto call = [&](Communicator& those) {
      std::vector<float> expected = gradient_of(comm.rank(), kCount, step++), sum = expected;
      const OnGpu<float> data(gpus, expected);
      those.all_reduce(expected, ReduceOp::sum, chosen_by(of_host));
      those.all_reduce(data.buffer(), ReduceOp::sum, chosen_by(of_gpu));
      EXPECT_TRUE(same_bits(data.values(), expected)) << "step " << step;
    };
    for (int lap = 0; lap < 2; ++lap) {
      call(comm);
      if (rail) call(*rail);
      call(comm);
      call(*turned);
      call(*turned);
    }
    EXPECT_EQ(of_gpu.save(), of_host.save());
  });
}

/// Tests that no value is lost when residuals move between ranks: the sum of all contributions must equal the sum of
/// all results and residuals.
TEST(DeviceTopKSums, ResidualsAreMigratedBetweenRanks) {
  run_hosts(kTwoByTwo,
            [&](Communicator& comm) {
              std::optional<Communicator> turned = comm.split(0, -comm.rank());
              TopK top_k({.density = 0.05});
              std::vector<float> given(kCount), arrived(kCount);
              for (int step = 0; step < 6; ++step) {
                std::vector<float> values = gradient_of(comm.rank(), kCount, step);
                for (float& value : values) value = std::round(100 * value);  // whole numbers, exact in any order
                for (std::size_t i = 0; i < kCount; ++i) given[i] += values[i];
                (step % 2 == 0 ? comm : *turned).all_reduce(values, ReduceOp::sum, chosen_by(top_k));
                for (std::size_t i = 0; i < kCount; ++i) arrived[i] += values[i];
              }
              comm.all_reduce(given);
              std::vector<float> rest(kCount);
              TopK everything({.density = 1});
              everything.load(states_of(comm, top_k), comm.rank(), comm.size());
              comm.all_reduce(rest, ReduceOp::sum, chosen_by(everything));
              for (std::size_t i = 0; i < kCount; ++i) arrived[i] += rest[i];
              EXPECT_EQ(arrived, given);
            },
            {.timeout = 60s});
}

TEST_F(DeviceTopK, ASavedStateContinuesOnTheGpu) {
  const auto steps = [&](Communicator& comm) {
    TopK first({.density = 0.05}), second({.density = 0.05});
    for (int step = 0; step < 3; ++step)
      comm.all_reduce(gradient(comm, step).buffer(), ReduceOp::sum, chosen_by(first));
    const auto states = states_of(comm, first);
    second.load(states, comm.rank(), comm.size());
    const OnGpu<float> one = gradient(comm, 3), other = gradient(comm, 3);
    comm.all_reduce(one.buffer(), ReduceOp::sum, chosen_by(first));
    comm.all_reduce(other.buffer(), ReduceOp::sum, chosen_by(second));
    EXPECT_TRUE(same_bits(one.values(), other.values()));
    EXPECT_EQ(first.save(), second.save());
  };
  run(2, steps);
  run(kTwoByTwo, steps);
}

// ---- selection and copies ----

TEST_F(DeviceTopK, SaysThatTheGpuChooses) {
  run(2, [&](Communicator& comm) {
    TopK top_k, clipping({.clip = 1}), careful({.non_finite = NonFinite::skip});
    const auto explained = [&](TopK& how) {
      return comm.explain(Collective::all_reduce, kCount, DataType::f32, ReduceOp::sum, chosen_by(how, nullptr));
    };
    EXPECT_SAYS(explained(top_k), "device memory: top_k: chosen, and added up, on the GPU");
    EXPECT_SAYS(explained(clipping), "device memory: host_copy: the host clips");
    EXPECT_SAYS(explained(careful), "device memory: host_copy: the host looks for NaN and infinity");
  });
}

TEST_F(DeviceTopK, SaysThatTheGpusOfAHostAddFirst) {
  run(kTwoByTwo, [&](Communicator& comm) {
    TopK top_k;
    EXPECT_SAYS(comm.explain(Collective::all_reduce, kCount, DataType::f32, ReduceOp::sum, chosen_by(top_k, nullptr)),
                "device memory: multi_host: chosen, and added up, on the GPU");
  });
  gpus.keep_apart(0, 1);
  run(kTwoByTwo, [&](Communicator& comm) {
    TopK top_k;
    EXPECT_SAYS(
        comm.explain(Collective::all_reduce, kCount, DataType::f32, ReduceOp::sum, chosen_by(top_k, nullptr)),
        "device memory: host_copy: the ranks of a host add first, and the GPUs of one do not reach one another's "
        "memory: rank 0: GPU 0 has no way to GPU 1");
  });
}

TEST_F(DeviceTopK, OnlyTheSelectionIsCopied) {
  run(2, [&](Communicator& comm) {
    TopK top_k({.density = 0.01});
    comm.all_reduce(gradient(comm, 0).buffer(), ReduceOp::sum, chosen_by(top_k));
    const OnGpu<float> data = gradient(comm, 1);
    comm.barrier();
    const std::size_t copies = gpus.copies(), allocations = gpus.allocations();
    comm.barrier();
    comm.all_reduce(data.buffer(), ReduceOp::sum, chosen_by(top_k));
    comm.barrier();
    // Three copies per rank: its selection, the received selections, and the size of their union.
    EXPECT_EQ(gpus.copies() - copies, 2U * 3);
    EXPECT_EQ(gpus.allocations(), allocations);
    comm.barrier();
  });
}

TEST_F(DeviceTopK, OnlyTheSelectionOfAHostIsCopied) {
  run(kTwoByTwo, [&](Communicator& comm) {
    TopK top_k({.density = 0.01});
    for (int step = 0; step < 2; ++step)  // the first selection is staged
      comm.all_reduce(gradient(comm, step).buffer(), ReduceOp::sum, chosen_by(top_k));
    const OnGpu<float> data = gradient(comm, 2);
    comm.barrier();
    const std::size_t copies = gpus.copies(), allocations = gpus.allocations();
    comm.barrier();
    comm.all_reduce(data.buffer(), ReduceOp::sum, chosen_by(top_k));
    comm.barrier();
    // Five copies per rank: the three above, and the sum of its slice to itself and to the other rank of its host.
    EXPECT_EQ(gpus.copies() - copies, 4U * 5);
    EXPECT_EQ(gpus.allocations(), allocations);
    comm.barrier();
  });
}

TEST_F(DeviceTopK, ResidualsOutliveTheCommunicator) {
  std::vector<std::unique_ptr<TopK>> residuals(2), expected(2);
  for (auto* all : {&residuals, &expected})
    for (auto& one : *all) one = std::make_unique<TopK>(TopKOptions{.density = 0.05});
  for (int life = 0; life < 2; ++life)
    run(2, [&](Communicator& comm) {
      const auto self = static_cast<std::size_t>(comm.rank());
      const OnGpu<float> data = gradient(comm, life);
      std::vector<float> host = data.values();
      comm.all_reduce(data.buffer(), ReduceOp::sum, chosen_by(*residuals[self]));
      comm.all_reduce(host, ReduceOp::sum, chosen_by(*expected[self]));
      EXPECT_TRUE(same_bits(data.values(), host));
    });
  for (std::size_t rank = 0; rank < 2; ++rank) EXPECT_EQ(residuals[rank]->save(), expected[rank]->save());
  residuals.clear();
  EXPECT_EQ(gpus.allocations(), 0);
  EXPECT_EQ(gpus.streams(), 0);
}

TEST_F(DeviceTopK, AChildLeavesItToItsParent) {
  if (kThreadSanitized) GTEST_SKIP() << "the thread sanitizer permits no locks in a child of fork()";
  std::vector<std::unique_ptr<TopK>> residuals(2);
  for (auto& one : residuals) one = std::make_unique<TopK>();
  run(2, [&](Communicator& comm) {
    comm.all_reduce(gradient(comm, 0).buffer(), ReduceOp::sum,
                    chosen_by(*residuals[static_cast<std::size_t>(comm.rank())]));
  });
  Child child([&](Line&) {
    const std::string said = error_of([&] { (void)residuals[0]->save(); }).what();
    residuals.clear();
    return said.find("forked from") != std::string::npos ? 0 : 1;
  });
  EXPECT_EQ(child.wait(), 0);
  EXPECT_FALSE(residuals[0]->save().empty());
}

TEST_F(DeviceTopK, SeveralCommunicatorsHaveOneTensor) {
  run(2, [&](Communicator& comm) {
    TopK top_k({.density = 0.05}), of_host({.density = 0.05});
    std::optional<Communicator> part = comm.split(0, comm.rank());
    std::vector<std::size_t> allocations;
    for (int step = 0; step < 6; ++step) {
      std::vector<float> expected = gradient_of(comm.rank(), kCount, step);
      const OnGpu<float> data(gpus, expected);
      comm.all_reduce(expected, ReduceOp::sum, chosen_by(of_host));
      (step % 2 == 0 ? comm : *part).all_reduce(data.buffer(), ReduceOp::sum, chosen_by(top_k));
      EXPECT_TRUE(same_bits(data.values(), expected)) << "step " << step;
      comm.barrier();
      allocations.push_back(gpus.allocations());
      comm.barrier();
    }
    EXPECT_EQ(allocations[5], allocations[1]);  // the residual stays on the GPU
  });
}

// ---- failures ----

TEST_F(DeviceTopK, InfinityIsSentAndComesToAll) {
  run(2, [&](Communicator& comm) {
    TopK top_k({.density = 0.01});
    std::vector<float> values = gradient_of(comm.rank(), kCount, 0);
    if (comm.rank() == 1) values[1234] = std::numeric_limits<float>::infinity();
    const OnGpu<float> data(gpus, values);
    comm.all_reduce(data.buffer(), ReduceOp::sum, chosen_by(top_k));
    EXPECT_TRUE(std::isinf(data.values()[1234]));
  });
}

/// A call that failed has sent nothing. The residual keeps its content and the gradient, except values that are not
/// finite.
class DeviceTopKFailure : public DeviceTopK, public ::testing::WithParamInterface<Case> {
 protected:
  /// Returns the residual of rank 0 after its third call has selected, if the last rank aborts instead of calling.
  std::vector<std::byte> residuals(const Hosts& hosts, bool on_gpu) {
    std::vector<std::byte> state;
    run(hosts, [&](Communicator& comm) {
      TopK top_k(GetParam().options);
      for (int step = 0; step < 3; ++step) {
        std::vector<float> values = gradient_of(comm.rank(), kCount, step);
        if (step == 2) values[77] = values[1234] = std::numeric_limits<float>::infinity();
        const OnGpu<float> data(gpus, values);
        const auto call = [&] {
          comm.all_reduce(on_gpu ? data.buffer() : Buffer(values), ReduceOp::sum, chosen_by(top_k));
        };
        if (step < 2) {
          call();
        } else if (comm.rank() + 1 < comm.size()) {
          EXPECT_EQ(error_of(call).code(), Errc::aborted);
          EXPECT_EQ(top_k.report("tensor").calls, 2);
          if (comm.rank() == 0) state = top_k.save();
        } else {
          std::this_thread::sleep_for(200ms);
          comm.abort("enough");
        }
      }
    });
    return state;
  }
};

TEST_P(DeviceTopKFailure, ResidualEqualsThatOfTheHost) {
  for (const Hosts& hosts : {Hosts{0, 1}, kTwoByTwo}) EXPECT_EQ(residuals(hosts, true), residuals(hosts, false));
}

INSTANTIATE_TEST_SUITE_P(, DeviceTopKFailure,
                         ::testing::Values(with("plain", [](auto&) {}),
                                           with("bf16", [](auto& o) { o.values = DataType::bf16; }),
                                           with("momentum", [](auto& o) { o.momentum = 0.9F; }),
                                           with("momentum_unmasked",
                                                [](auto& o) {
                                                  o.momentum = 0.9F;
                                                  o.masking = false;
                                                })),
                         kName);

/// Two levels: the share of this rank is done, and that of another rank of its host is not.
TEST_F(DeviceTopK, TheSelectionIsRestoredWhenAnotherRankFailsToSendItsSlice) {
  for (const DataType values : {DataType::f32, DataType::bf16}) {
    run(kTwoByTwo, [&](Communicator& comm) {
      TopK top_k({.density = 1, .values = values});
      const auto whole = [](Rank rank, int step) {
        std::vector<float> gradient = gradient_of(rank, kCount, step);
        for (float& value : gradient) value = std::round(10 * value);  // a value that bf16 holds exactly
        return gradient;
      };
      const OnGpu<float> data(gpus, kCount);
      for (int step = 0; step < 2; ++step) {
        data.set(whole(comm.rank(), step));
        comm.all_reduce(data.buffer(), ReduceOp::sum, chosen_by(top_k));
      }
      data.set(whole(comm.rank(), 2));
      comm.barrier();
      if (comm.rank() % 2 == 1) gpus.slow_down(1, 300ms);  // so that the other ranks are done long before
      comm.barrier();
      Options options = chosen_by(top_k);
      options.timeout = 60s;
      Work work = comm.all_reduce_async(data.buffer(), data.buffer(), ReduceOp::sum, options);
      if (comm.rank() == 1) {
        const std::uint64_t sent = comm.bytes_sent();
        while (comm.bytes_sent() == sent) work.test();
        gpus.stop(1);
        std::this_thread::sleep_for(300ms);
        comm.abort("enough");
      }
      EXPECT_EQ(error_of([&] { work.wait(); }).code(), Errc::aborted);
      const Rank first_here = comm.rank() / 2 * 2;
      const std::vector<float> one = whole(first_here, 2), other = whole(first_here + 1, 2);
      double squares = 0;
      const std::size_t first = comm.rank() % 2 == 0 ? 0 : kCount / 2;
      for (std::size_t i = first; i < first + kCount / 2; ++i) squares += std::pow(one[i] + other[i], 2);
      if (comm.rank() % 2 == 1) {
        gpus.slow_down(1, 0us);
        gpus.resume(1);
      }
      EXPECT_NEAR(top_k.report("tensor").residual_norm, std::sqrt(squares), 1e-3);
      while (!gpus.idle(nullptr)) std::this_thread::sleep_for(1ms);
    });
  }
}

/// The GPU begins its work only after the call has failed.
TEST_F(DeviceTopK, TheSelectionIsRestoredWhenTheGpuResumes) {
  run(2, [&](Communicator& comm) {
    TopK top_k;
    std::vector<float> values = gradient_of(comm.rank(), kCount, 0);
    values[5] = std::numeric_limits<float>::quiet_NaN();
    const OnGpu<float> data(gpus, values);
    comm.barrier();
    if (comm.rank() == 0) {
      gpus.stop(0);
      EXPECT_ANY_THROW(comm.all_reduce(data.buffer(), ReduceOp::sum, chosen_by(top_k)));
      gpus.resume(0);
      double squares = 0;
      for (const float value : values) squares += std::isnan(value) ? 0 : static_cast<double>(value) * value;
      EXPECT_NEAR(top_k.report("tensor").residual_norm, std::sqrt(squares), 1e-3);
    } else {
      std::this_thread::sleep_for(200ms);
      comm.abort("enough");
      while (!gpus.idle(nullptr)) std::this_thread::sleep_for(1ms);
    }
  });
}

TEST_F(DeviceTopK, TheGpuDisappears) {
  run(2, [&](Communicator& comm) {
    TopK top_k;
    const OnGpu<float> data = gradient(comm, 0);
    comm.all_reduce(data.buffer(), ReduceOp::sum, chosen_by(top_k));
    comm.barrier();
    gpus.disappear(comm.rank());
    const Error error = error_of([&] {
      comm.barrier();  // another rank may have left and failed before this rank
      comm.all_reduce(data.buffer(), ReduceOp::sum, chosen_by(top_k));
    });
    EXPECT_EQ(error.code(), Errc::system);
    EXPECT_SAYS(error.what(), "the GPU has fallen off the bus");
    EXPECT_SAYS(error_of([&] { (void)top_k.save(); }).what(), "the GPU has fallen off the bus");
  });
}

TEST_F(DeviceTopK, AGpuThatStopsIsATimeout) {
  const std::vector<int> hosts{0, 1};
  run_hosts(hosts,
            [&](Communicator& comm) {
              TopK top_k;
              const OnGpu<float> data = gradient(comm, 0);
              comm.all_reduce(data.buffer(), ReduceOp::sum, chosen_by(top_k));
              comm.barrier();
              if (comm.rank() == 1) gpus.stop(0);
              comm.barrier();
              const Error error = error_of([&] { comm.all_reduce(data.buffer(), ReduceOp::sum, chosen_by(top_k)); });
              EXPECT_EQ(error.code(), Errc::timeout);
              if (comm.rank() == 0) gpus.resume(0);
              while (!gpus.idle(nullptr)) std::this_thread::sleep_for(1ms);
            },
            {.timeout = 1s});
}

}  // namespace
}  // namespace collectives::testing
