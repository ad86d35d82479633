// Tests of the communicator beyond single calls: groups, sub-communicators, construction, and names in errors.
#include "collectives/communicator.hpp"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "collectives/version.hpp"
#include "support/errors.hpp"
#include "support/hosts.hpp"
#include "support/ranks.hpp"

namespace collectives::testing {
namespace {

using namespace std::chrono_literals;

const std::vector<int> kTwoHosts{0, 0, 1, 1, 1};

TEST(Group, FusesTensorsOfOneKind) {
  for (const auto& hosts : {std::vector<int>{0, 0, 0}, kTwoHosts})
    run_hosts(hosts, [](Communicator& comm) {
      const auto p = static_cast<float>(comm.size());
      Group group = comm.group();
      for (int lap = 0; lap < 3; ++lap) {
        std::vector<std::vector<float>> tensors;
        for (std::size_t i = 0; i < 20; ++i) tensors.emplace_back(i * i, static_cast<float>(i));
        std::vector<double> other(9, 2.), largest(3, comm.rank());
        for (auto& tensor : tensors) group.all_reduce(tensor, tensor);
        group.all_reduce(other, other, ReduceOp::average);
        group.all_reduce(largest, largest, ReduceOp::max);
        if (lap == 1) {
          Work work = group.run_async();
          while (!work.test()) std::this_thread::yield();
        } else {
          group.run();
        }
        for (std::size_t i = 0; i < 20; ++i)
          EXPECT_EQ(tensors[i], std::vector<float>(i * i, static_cast<float>(i) * p)) << i;
        EXPECT_EQ(other, std::vector<double>(9, 2.));
        EXPECT_EQ(largest, std::vector<double>(3, comm.size() - 1));
      }
      group.run();  // the group is empty now
    });
}

TEST(Group, IsOneOperationForManyTensors) {
  run_communicators(2, [](Communicator& comm) {
    std::vector<std::vector<float>> tensors(100, std::vector<float>(10, 1.f));
    Group group = comm.group();
    for (auto& tensor : tensors) group.all_reduce(tensor, tensor);
    group.run();
    // The error of the next call contains its sequence number, which counts the calls before it.
    try {
      std::vector<float> data(comm.rank() == 0 ? 4 : 5);
      comm.all_reduce(data);
      comm.barrier();
      ADD_FAILURE() << "no error";
    } catch (const Error& error) {
      EXPECT_EQ(error.operation(), "all_reduce #2");
    }
  });
}

TEST(Group, RefusesABadTensorAndKeepsTheOthers) {
  run_communicators(2, [](Communicator& comm) {
    std::vector<float> good(4, 1.f), longer(5);
    Group group = comm.group();
    group.all_reduce(good, good);
    EXPECT_THROW(group.all_reduce(good, longer), Error);
    group.run();
    EXPECT_EQ(good, std::vector<float>(4, 2.f));
  });
}

TEST(Group, IsAMismatchIfTensorsDiffer) {
  run_communicators(2, [](Communicator& comm) {
    // All ranks pass the same number of elements, in tensors of different lengths.
    std::vector<float> a(comm.rank() == 0 ? 4 : 6, 1.f), b(comm.rank() == 0 ? 6 : 4, 1.f);
    Group group = comm.group();
    group.all_reduce(a, a);
    group.all_reduce(b, b);
    try {
      group.run();
      comm.barrier();
      ADD_FAILURE() << "no error";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Errc::mismatch);
      EXPECT_NE(std::string(error.what()).find("10 x f32 in a group of 4, 6"), std::string::npos) << error.what();
    }
  });
}

TEST(Group, StaysFailedAndWritesNothing) {
  run_communicators(2, [](Communicator& comm) {
    std::vector<float> a(10, 1.f), b(20, 1.f);
    Group group = comm.group();
    group.all_reduce(a, a);
    group.all_reduce(b, b);
    EXPECT_THROW(group.all_reduce(a, a, ReduceOp::sum, {.backend = "bogus"}), Error);
    if (comm.rank() == 1) return;  // rank 1 never runs the group
    Work work = group.run_async();
    EXPECT_THROW(work.wait(), Error);
    EXPECT_THROW(work.wait(), Error);
    EXPECT_THROW(work.test(), Error);
    EXPECT_EQ(a, std::vector<float>(10, 1.f));
  });
}

TEST(Group, FollowsACommunicatorThatMoves) {
  run_communicators(2, [](Communicator& comm) {
    std::vector<float> a(4, 1.f), b(4, 1.f);
    Group group = comm.group();
    Communicator moved = std::move(comm);
    group.all_reduce(a, a);
    group.all_reduce(b, b);
    group.run();
    EXPECT_EQ(b, std::vector<float>(4, 2.f));
  });
}

TEST(Split, FailsOnlyThePartOfTheRankWithABadOption) {
  run_communicators(4, [](Communicator& comm) {
    CommunicatorOptions options;
    if (comm.rank() == 2) options.backend = "bogus";
    const bool bad = comm.rank() % 2 == 0;
    try {
      auto half = comm.split(comm.rank() % 2, 0, options);
      EXPECT_FALSE(bad);
      half->barrier();
    } catch (const Error& error) {
      EXPECT_TRUE(bad) << error.what();
      EXPECT_EQ(error.code(), Errc::invalid_argument);
      EXPECT_NE(std::string(error.what()).find("unknown backend \"bogus\""), std::string::npos) << error.what();
    }
    comm.barrier();
  });
}

TEST(Backend, AnotherBackendNamePlansTheSameCallAgain) {
  run_communicators(3, [](Communicator& comm) {
    std::vector<float> data(10, 1.f);
    const auto planned_for = [&](const std::string& backend) {
      comm.all_reduce(data, ReduceOp::sum, {.backend = backend});
      return comm.recent_operations().back().plan;
    };
    const std::string automatic = planned_for("");
    const std::string by_ring = planned_for("ring");
    EXPECT_TRUE(by_ring.starts_with("ring")) << by_ring;
    EXPECT_EQ(planned_for("ring"), by_ring);
    EXPECT_TRUE(planned_for("reduce_to_one").starts_with("reduce_to_one"));
    EXPECT_EQ(planned_for("ring"), by_ring);
    EXPECT_THROW(planned_for("nonsense"), Error);
    EXPECT_EQ(planned_for(""), automatic);
    EXPECT_EQ(data, std::vector<float>(10, 729.f));
  });
}

TEST(Split, MakesOneCommunicatorForEachColor) {
  for (const auto& hosts : {std::vector<int>{0, 0, 0, 0, 0}, kTwoHosts})
    run_hosts(hosts, [](Communicator& comm) {
      auto half = comm.split(comm.rank() % 2, -comm.rank());  // ranks in reverse order
      ASSERT_TRUE(half);
      EXPECT_EQ(half->size(), comm.rank() % 2 == 0 ? 3 : 2);
      EXPECT_EQ(half->rank(), (comm.size() - 1 - comm.rank()) / 2);
      EXPECT_EQ(half->topology().hosts.size(), comm.topology().hosts.size());
      for (const char* backend : {"auto", "ring", "reduce_to_one"}) {
        std::vector<int> sum(1000, comm.rank());
        half->all_reduce(sum, ReduceOp::sum, {.backend = backend});
        EXPECT_EQ(sum, std::vector<int>(1000, comm.rank() % 2 == 0 ? 0 + 2 + 4 : 1 + 3));
        // The parent stays usable.
        std::vector<int> all(10, 1);
        comm.all_reduce(all, ReduceOp::sum, {.backend = backend});
        EXPECT_EQ(all, std::vector<int>(10, comm.size()));
      }
    });
}

TEST(Split, WorksOnASplitCommunicator) {
  run_hosts(kTwoHosts, [](Communicator& comm) {
    auto outer = comm.split(comm.rank() < 4 ? 0 : 1);
    ASSERT_TRUE(outer);
    auto inner = outer->split(outer->rank() % 2);
    ASSERT_TRUE(inner);
    int sum = comm.rank();
    inner->all_reduce(std::span(&sum, 1));
    EXPECT_EQ(sum, comm.rank() == 4 ? 4 : comm.rank() % 2 == 0 ? 0 + 2 : 1 + 3);
  });
}

TEST(Split, NegativeColorTakesPartAndGetsNothing) {
  run_communicators(4, [](Communicator& comm) {
    auto some = comm.split(comm.rank() == 1 ? -1 : 7);
    EXPECT_EQ(some.has_value(), comm.rank() != 1);
    if (some) {
      EXPECT_EQ(some->size(), 3);
      some->barrier();
    }
    comm.barrier();
  });
}

TEST(Split, FailureInOnePartLeavesTheOthersGood) {
  run_communicators(4, [](Communicator& comm) {
    auto pair = comm.split(comm.rank() / 2);
    ASSERT_TRUE(pair);
    if (comm.rank() == 0) pair->abort("on purpose");
    if (comm.rank() < 2) {
      EXPECT_THROW(pair->barrier(), Error);
    } else {
      pair->barrier();
    }
    comm.barrier();
  });
}

TEST(Communicator, SumsAreSentToOtherHostsFromTheOutputBuffer) {
  // The first 1,500 elements that a rank sends are its own contribution. They need no copy and are sent from the input,
  // unless they must first be scaled.
  for (const auto& [op, from_the_input] :
       {std::pair(ReduceOp::sum, std::size_t{1500}), std::pair(ReduceOp::product, std::size_t{1500}),
        std::pair(ReduceOp::average, std::size_t{1500}), std::pair(ReduceOp::pre_scaled_sum(0.5), std::size_t{0})}) {
    const auto mailbox = std::make_shared<WireMailbox>();
    std::map<Rank, std::vector<std::pair<const std::byte*, std::size_t>>> lent;
    std::mutex mutex;
    mailbox->lends = [&](Rank from, const std::byte* data, std::size_t bytes) {
      const std::lock_guard lock(mutex);
      lent[from].emplace_back(data, bytes);
    };
    run_hosts(
        {0, 1},
        [&, &op = op, expected = from_the_input](Communicator& comm) {
          const std::vector<float> in(3000, 2);
          std::vector<float> out(3000);
          comm.all_reduce(in, out, op, {.backend = "ring"});
          EXPECT_EQ(out, std::vector<float>(3000, op == ReduceOp::sum || op == ReduceOp::product ? 4.F : 2.F));
          const std::lock_guard lock(mutex);
          std::size_t from_input = 0;
          for (const auto& [data, bytes] : lent[comm.rank()])
            if (data >= reinterpret_cast<const std::byte*>(in.data()) &&
                data < reinterpret_cast<const std::byte*>(in.data() + in.size()))
              from_input += bytes / sizeof(float);
          EXPECT_EQ(from_input, expected) << to_string(op.kind());
        },
        {}, {}, mailbox);
  }
}

TEST(Communicator, ReportsItsNameRankAndTransport) {
  run_hosts(kTwoHosts, [](Communicator& comm) {
    EXPECT_EQ(comm.topology().hosts, (std::vector<std::vector<Rank>>{{0, 1}, {2, 3, 4}}));
    EXPECT_EQ(comm.transport(), "local+queue");
    EXPECT_NE(comm.explain(Collective::all_reduce, 1000, DataType::f32).find("5 ranks"), std::string::npos);
    EXPECT_EQ(comm.plan(Collective::all_reduce, 1000, DataType::f32, ReduceOp::sum, {.backend = "ring"}).backend,
              "ring");
  });
}

TEST(Communicator, UsesTheTuningOfTheProgramAndPassesItToItsParts) {
  Tuning tuning;
  tuning.inline_bytes = 100;
  run_communicators(2,
                    [](Communicator& comm) {
                      EXPECT_EQ(comm.tuning().inline_bytes, 100u);
                      EXPECT_EQ(comm.tuning().source, "the program");
                      EXPECT_NE(comm.explain(Collective::all_reduce, 4, DataType::f32).find("tuning: the program"),
                                std::string::npos);
                      EXPECT_EQ(comm.split(0)->tuning(), comm.tuning());
                    },
                    {.tuning = tuning});
  // No tuning is measured between ranks that are threads. They use the built-in numbers.
  run_communicators(2, [](Communicator& comm) {
    EXPECT_EQ(comm.tuning().source.substr(0, 8), "built-in");
    EXPECT_EQ(to_string(comm.topology()), "2 ranks (1 host)");
  });
}

TEST(Communicator, IsOfAVersion) {
  const std::string text(version());
  int major = -1, minor = -1, patch = -1, read = 0;
  EXPECT_EQ(std::sscanf(text.c_str(), "%d.%d.%d%n", &major, &minor, &patch, &read), 3) << text;
  EXPECT_EQ(static_cast<std::size_t>(read), text.size()) << text;
}

TEST(Communicator, CountsTheBytesItSends) {
  run_communicators(4, [](Communicator& comm) {
    std::vector<float> data(4000, 1.f);
    const auto before = comm.bytes_sent();
    comm.all_reduce(data, ReduceOp::sum, {.backend = "ring"});
    EXPECT_EQ(comm.bytes_sent() - before, 2 * 3 * 4000u);  // 2 (p-1)/p of 16,000 bytes
    EXPECT_EQ(comm.bytes_sent_to_other_hosts(), 0u);
  });
}

// Tests the bytes that leave a host, on 2 hosts of 2 ranks. A ring has neighbours on other hosts. The hierarchical
// algorithm sends every byte once between hosts.
TEST(Communicator, CountsTheBytesBetweenHosts) {
  run_hosts({0, 0, 1, 1}, [](Communicator& comm) {
    std::vector<float> data(4000, 1.f);
    const auto out_of_a_host = [&](std::string_view backend) {
      const std::uint64_t before = comm.bytes_sent_to_other_hosts();
      comm.all_reduce(data, ReduceOp::max, {.backend = backend});
      std::vector<std::uint64_t> all(4);
      const std::uint64_t mine = comm.bytes_sent_to_other_hosts() - before;
      comm.all_gather(std::span(&mine, 1), all);
      return std::max(all[0] + all[1], all[2] + all[3]);
    };
    EXPECT_EQ(out_of_a_host("ring"), 2 * 3 * 4000u);    // 2 (p-1)/p of 16,000 bytes
    EXPECT_EQ(out_of_a_host("hierarchical"), 16'000u);  // 2 (H-1)/H
  });
}

TEST(Communicator, NamesTheTensorInErrors) {
  run_communicators(2, [](Communicator& comm) {
    std::vector<float> data(comm.rank() == 0 ? 4 : 5);
    try {
      comm.all_reduce(data, ReduceOp::sum, {.name = "fc1"});
      comm.barrier();
      ADD_FAILURE() << "no error";
    } catch (const Error& error) {
      EXPECT_EQ(error.operation(), "all_reduce #1 (fc1)");
      EXPECT_EQ(error.rank(), comm.rank());
    }
  });
}

TEST(Communicator, OneRankPerformsEveryCollective) {
  run_communicators(1, [](Communicator& comm) {
    for (const char* backend : {"auto", "hierarchical", "ring", "reduce_to_one_direct", "reduce_to_one_tree"}) {
      const Options with{.backend = backend};
      std::vector<float> in{3, 4, 5}, out(3);
      comm.all_reduce(in, out, ReduceOp::average, with);
      EXPECT_EQ(out, in);
      comm.all_reduce(in, out, ReduceOp::pre_scaled_sum(2), with);
      EXPECT_EQ(out, (std::vector<float>{6, 8, 10}));
      comm.reduce_scatter(in, out, ReduceOp::sum, with);
      EXPECT_EQ(out, in);
      comm.broadcast(out, 0, with);
      comm.barrier(with);
    }
  });
}

TEST(Construction, NamesTheRankWithOtherSettings) {
  run_ranks(3, [](Bootstrap& bootstrap) {
    try {
      const Communicator comm(bootstrap, {.deterministic = bootstrap.rank() == 1});
      ADD_FAILURE() << "no error";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Errc::mismatch);
      EXPECT_EQ(error.peer(), 1);
      EXPECT_NE(std::string(error.what()).find("rank 1 has deterministic true"), std::string::npos) << error.what();
    }
  });
}

TEST(Construction, TimesOutNamingWhoDidNotCome) {
  auto bootstraps = bootstrap_threads(3);
  std::vector<std::jthread> threads;
  for (const int rank : {0, 2})
    threads.emplace_back([&, rank] {
      try {
        const Communicator comm(*bootstraps[static_cast<std::size_t>(rank)], {.timeout = 200ms});
        ADD_FAILURE() << "no error";
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), Errc::timeout);
        EXPECT_NE(std::string(error.what()).find("rank 1"), std::string::npos) << error.what();
      }
    });
}

TEST(Construction, OverSeveralHostsNeedsATransportBetweenThem) {
  class Claims final : public Bootstrap {
   public:
    explicit Claims(Bootstrap& inner) : inner_(inner) {}
    std::string_view name() const noexcept override { return "claims"; }
    Rank rank() const noexcept override { return inner_.rank(); }
    int size() const noexcept override { return inner_.size(); }
    std::vector<std::string> all_gather(std::string_view mine, Deadline deadline) override {
      return inner_.all_gather(mine, deadline);
    }
    std::string host() const override { return "host " + std::to_string(rank()); }

   private:
    Bootstrap& inner_;
  };
  run_ranks(2, [](Bootstrap& bootstrap) {
    Claims claims(bootstrap);
    try {
      const Communicator comm(claims, {.transport = "shared_memory"});
      ADD_FAILURE() << "no error";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Errc::unsupported);
      EXPECT_NE(std::string(error.what()).find("the ranks are on 2 hosts"), std::string::npos) << error.what();
    }
    Communicator comm(claims);
    EXPECT_EQ(comm.transport(), "tcp");
    std::vector<int> data{comm.rank() + 1};
    comm.all_reduce(data);
    EXPECT_EQ(data[0], 3);
    const auto part = comm.split(comm.rank());
    EXPECT_EQ(part->transport(), "local") << "alone it needs no wire";
  });
}

TEST(Construction, RefusesAnUnknownWireOrTransport) {
  run_ranks(2, [](Bootstrap& bootstrap) {
    for (const auto& [options, why] :
         {std::pair(CommunicatorOptions{.wire = "pigeon"}, "unknown wire \"pigeon\"; known: tcp, ucx, mpi"),
          {CommunicatorOptions{.transport = "shared_memory", .wire = "pigeon"}, "unknown wire \"pigeon\""},
          {CommunicatorOptions{.transport = "pigeon"},
           "unknown transport \"pigeon\"; known: shared_memory, tcp, ucx, mpi"}}) {
      try {
        const Communicator comm(bootstrap, options);
        ADD_FAILURE() << "no error";
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), Errc::invalid_argument);
        EXPECT_NE(std::string(error.what()).find(why), std::string::npos) << error.what();
      }
    }
    EXPECT_EQ(Communicator(bootstrap, {.wire = "ucx"}).transport(), "local") << "which is not needed";
  });
}

TEST(Calls, AnotherUserOpAtTheSameAddressIsADifferentCall) {
  std::atomic<int> mismatches = 0;
  run_communicators(2, [&](Communicator& comm) {
    const auto add = [](const void* next, void* accumulated, std::size_t count, DataType) {
      for (std::size_t i = 0; i < count; ++i) static_cast<float*>(accumulated)[i] += static_cast<const float*>(next)[i];
    };
    UserOp op{"add", add};
    std::vector<float> data(3, 1.f);
    comm.all_reduce(data, ReduceOp::user(op));
    if (comm.rank() == 1) op.name = "subtract";
    try {
      comm.all_reduce(data, ReduceOp::user(op));
    } catch (const Error& error) {
      if (error.code() == Errc::mismatch) ++mismatches;
    }
  });
  EXPECT_EQ(mismatches, 2);
}

TEST(Calls, ARepeatedCallIsCorrectAfterADifferentCall) {
  run_communicators(3, [](Communicator& comm) {
    for (const std::size_t count : {std::size_t{1}, std::size_t{14}, std::size_t{100}})
      for (const ReduceOp op : {ReduceOp::sum, ReduceOp::average, ReduceOp::max, ReduceOp::pre_scaled_sum(0.5)}) {
        std::vector<float> mine(count), all(count), others(count + 3);
        for (int time = 0; time < 4; ++time) {
          mine.assign(count, static_cast<float>(time + comm.rank()));
          comm.all_reduce(mine, all, op);
          const auto sum = static_cast<float>(3 * time + 3);
          const float expected = op == ReduceOp::sum       ? sum
                                 : op == ReduceOp::average ? sum / 3
                                 : op == ReduceOp::max     ? static_cast<float>(time + 2)
                                                           : sum / 2;
          EXPECT_EQ(all, std::vector<float>(count, expected)) << to_string(op.kind()) << ", time " << time;
          others.assign(count + 3, static_cast<float>(comm.rank() - time));
          if (time % 2 == 0) continue;
          comm.all_reduce_async(others, others, ReduceOp::min).wait();
          EXPECT_EQ(others, std::vector<float>(count + 3, static_cast<float>(-time)));
        }
      }
  });
}

TEST(Calls, AFactorOfMinusZeroIsNotOneOfZero) {
  const ReduceOp plus = ReduceOp::pre_scaled_sum(0.0), minus = ReduceOp::pre_scaled_sum(-0.0);
  run_communicators(2, [&](Communicator& comm) {
    std::vector<float> ones(3, 1.f), first(3), second(3);
    const auto expect_signs = [&](const char* how) {
      EXPECT_FALSE(std::signbit(first[0])) << how;
      EXPECT_TRUE(std::signbit(second[0])) << how;
    };
    comm.all_reduce(ones, second, plus);
    first = second;
    comm.all_reduce(ones, second, minus);
    expect_signs("one call after the other");
    Group group = comm.group();
    group.all_reduce(ones, first, plus);
    group.all_reduce(ones, second, minus);
    group.run();
    expect_signs("in one group");
  });
}

// A rank performs the exchanges of split() by hand, and announces a length that it never sends.
TEST(Split, RefusesALengthThatNoRankCanSend) {
  rusage before{}, after{};
  ::getrusage(RUSAGE_SELF, &before);
  run_communicators(3, [](Communicator& comm) {
    if (comm.rank() != 1) {
      EXPECT_EQ(error_of([&] { comm.split(0); }).code(), Errc::mismatch);
      return;
    }
    const int color_and_key[] = {0, 0};
    std::vector<int> all(6);
    const std::size_t length = 1'000'000'000;
    std::vector<std::size_t> lengths(3);
    try {
      comm.all_gather(color_and_key, all);
      comm.all_gather(std::span(&length, 1), lengths);
    } catch (const Error&) {  // the others may have left already
    }
  });
  ::getrusage(RUSAGE_SELF, &after);
  EXPECT_LE(after.ru_maxrss - before.ru_maxrss, 64 << 10) << "KiB";
}

TEST(Communicator, RefusesASecondThreadDuringACall) {
  std::atomic<bool> refused{false};
  run_communicators(2, [&](Communicator& comm) {
    const auto call = [&] {
      try {
        comm.barrier();
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), Errc::invalid_argument);
        EXPECT_NE(std::string_view(error.what()).find("another thread is in a call of this communicator"),
                  std::string_view::npos)
            << error.what();
        refused = true;
      }
    };
    if (comm.rank() == 0) {
      std::thread other(call);
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
      call();
      other.join();
      EXPECT_TRUE(refused);
    } else {
      while (!refused) std::this_thread::sleep_for(std::chrono::milliseconds(1));
      call();
    }
    comm.barrier();
  });
}

TEST(Communicator, ExplainsACallWithTheUserOpOfThatCall) {
  run_communicators(2, [](Communicator& comm) {
    for (int lap = 0; lap < 3; ++lap) {
      const auto op = std::make_unique<UserOp>(UserOp{"largest", [](const void*, void*, std::size_t, DataType) {}});
      EXPECT_NE(comm.explain(Collective::all_reduce, 8, DataType::f32, ReduceOp::user(*op)), "");
    }
  });
}

}  // namespace
}  // namespace collectives::testing
