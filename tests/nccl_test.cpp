// NCCL's communicator and its loading, with libraries that stand in for NCCL (nccl/stand_in.cpp): no GPU is needed.
#include <dlfcn.h>
#include <gtest/gtest.h>

#include <barrier>
#include <chrono>
#include <cstring>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "collectives/error.hpp"
#include "nccl/communicator.hpp"
#include "reduction.hpp"

namespace collectives::nccl {
namespace {

using namespace std::chrono_literals;

constexpr const char* kStandIn = STAND_IN_DIRECTORY "/libnccl_stand_in.so";

std::string why_not(const std::string& path) {
  std::string why_not;
  EXPECT_EQ(load_library(path, why_not), nullptr) << path;
  return why_not;
}

const Library& stand_in() {
  static const Library* const library = [] {
    std::string why_not;
    const Library* const found = load_library(kStandIn, why_not);
    if (found == nullptr) throw std::runtime_error(why_not);
    return found;
  }();
  return *library;
}

/// The next call of `function` fails.
void fail(const char* function) {
  void* const handle = ::dlopen(kStandIn, RTLD_NOW | RTLD_NOLOAD);
  reinterpret_cast<void (*)(const char*)>(::dlsym(handle, "stand_in_fail"))(function);
  ::dlclose(handle);
}

/// Runs `of_rank` on as many threads; what each of them threw, as code and text.
struct Failure {
  Errc code;
  std::string text;
};
std::vector<std::optional<Failure>> on_ranks(int size, const std::function<void(Rank)>& of_rank) {
  std::vector<std::optional<Failure>> failures(static_cast<std::size_t>(size));
  std::vector<std::jthread> threads;
  for (Rank rank = 0; rank < size; ++rank) {
    threads.emplace_back([&, rank] {
      try {
        of_rank(rank);
      } catch (const Error& error) {
        failures[static_cast<std::size_t>(rank)] = {error.code(), error.what()};
      }
    });
  }
  threads.clear();
  return failures;
}
void expect_none(const std::vector<std::optional<Failure>>& failures) {
  for (const auto& failure : failures) EXPECT_FALSE(failure.has_value()) << failure->text;
}

TEST(NcclLibrary, IsTakenWhereItIsWhole) {
  EXPECT_EQ(version_text(stand_in().version), version_text(NCCL_VERSION_CODE));
  EXPECT_EQ(stand_in().path, kStandIn);
}

TEST(NcclLibrary, IsNotThere) {
  EXPECT_NE(why_not("/nowhere/libnccl.so.2").find("/nowhere/libnccl.so.2"), std::string::npos);
}

TEST(NcclLibrary, LacksFunctions) {
  EXPECT_NE(why_not(STAND_IN_DIRECTORY "/libnccl_that_lacks.so").find("lacks ncclCommSplit, ncclSend"),
            std::string::npos);
}

TEST(NcclLibrary, IsTooOldOrOfAnotherMajorVersion) {
  const std::string old = why_not(STAND_IN_DIRECTORY "/libnccl_that_is_old.so");
  EXPECT_NE(old.find("is NCCL 2.18.5; it must be 2.19.0 or a later 2.x"), std::string::npos) << old;
  const std::string next = why_not(STAND_IN_DIRECTORY "/libnccl_of_tomorrow.so");
  EXPECT_NE(next.find("is NCCL 3.1.0; it must be"), std::string::npos) << next;
}

TEST(NcclLibrary, IsSomethingElse) {
  const std::string why = why_not("libm.so.6");
  EXPECT_NE(why.find("libm.so.6 does not tell its version"), std::string::npos) << why;
}

TEST(NcclReductions, WhatNcclDoesNotPromiseIsNamed) {
  const UserOp op{"mine", [](const void*, void*, std::size_t, DataType) {}, true};
  EXPECT_EQ(why_not_by_nccl(ReduceOp::sum, DataType::f32, false), "");
  EXPECT_EQ(why_not_by_nccl(ReduceOp::average, DataType::f64, false), "");
  EXPECT_EQ(why_not_by_nccl(ReduceOp::max, DataType::i8, true), "");
  EXPECT_NE(why_not_by_nccl(ReduceOp::sum, DataType::f32, true), "");
  EXPECT_NE(why_not_by_nccl(ReduceOp::sum, DataType::bf16, false), "");
  EXPECT_NE(why_not_by_nccl(ReduceOp::max, DataType::f32, false), "");
  EXPECT_NE(why_not_by_nccl(ReduceOp::average, DataType::i32, false), "");
  EXPECT_NE(why_not_by_nccl(ReduceOp::user(op), DataType::f32, false), "");
}

/// Communicators of `size` threads, and what each of them does with its own.
std::vector<std::optional<Failure>> in_clique(int size, const std::function<void(Communicator&, Rank)>& action) {
  const ncclUniqueId id = Communicator::new_id(stand_in());
  return on_ranks(size, [&](Rank rank) {
    Communicator communicator(stand_in(), size, id, rank, Deadline::in(20s));
    action(communicator, rank);
  });
}

class NcclCollectives : public testing::TestWithParam<int> {};

TEST_P(NcclCollectives, GiveWhatFoldGives) {
  const int size = GetParam();
  const std::size_t ranks = static_cast<std::size_t>(size), count = 37;
  const auto value = [](Rank rank, std::size_t i) {
    return static_cast<float>((rank + 2) * static_cast<int>(i % 11) - 7);
  };
  expect_none(in_clique(size, [&](Communicator& communicator, Rank rank) {
    std::vector<std::vector<float>> inputs(ranks, std::vector<float>(count * ranks));
    std::vector<Source> sources;
    for (int r = 0; r < size; ++r) {
      auto& input = inputs[static_cast<std::size_t>(r)];
      for (std::size_t i = 0; i < input.size(); ++i) input[i] = value(r, i);
      sources.push_back({reinterpret_cast<const std::byte*>(input.data()), true});
    }
    const auto& mine = inputs[static_cast<std::size_t>(rank)];
    for (const ReduceOp op : {ReduceOp::sum, ReduceOp::average, ReduceOp::product, ReduceOp::pre_scaled_sum(0.5)}) {
      std::vector<float> expected(count * ranks), output(count * ranks);
      fold(op, DataType::f32, sources, reinterpret_cast<std::byte*>(expected.data()), count * ranks, size);
      communicator.start({Collective::all_reduce, mine.data(), output.data(), output.size(), DataType::f32, op},
                         "all_reduce", Deadline::in(20s));
      EXPECT_EQ(output, expected);
      communicator.start({Collective::reduce_scatter, mine.data(), output.data(), count, DataType::f32, op},
                         "reduce_scatter", Deadline::in(20s));
      EXPECT_EQ(std::memcmp(output.data(), expected.data() + static_cast<std::size_t>(rank) * count, count * 4), 0);
      std::vector<float> at_root(output.size(), -1);
      communicator.start({Collective::reduce, mine.data(), at_root.data(), output.size(), DataType::f32, op, size - 1},
                         "reduce", Deadline::in(20s));
      EXPECT_EQ(at_root, rank == size - 1 ? expected : std::vector<float>(output.size(), -1));
    }
    std::vector<float> gathered(count * ranks);
    communicator.start({Collective::all_gather, mine.data(), gathered.data(), count, DataType::f32, {}}, "all_gather",
                       Deadline::in(20s));
    for (std::size_t r = 0; r < ranks; ++r)
      EXPECT_EQ(std::memcmp(gathered.data() + r * count, inputs[r].data(), count * 4), 0);
    std::vector<float> data = mine;
    communicator.start({Collective::broadcast, data.data(), data.data(), data.size(), DataType::f32, {}, 0},
                       "broadcast", Deadline::in(20s));
    EXPECT_EQ(data, inputs[0]);
    std::vector<float> exchanged(count * ranks);
    communicator.all_to_all(mine.data(), exchanged.data(), count, DataType::f32, nullptr, "exchange",
                            Deadline::in(20s));
    for (std::size_t r = 0; r < ranks; ++r)
      EXPECT_EQ(std::memcmp(exchanged.data() + r * count, inputs[r].data() + static_cast<std::size_t>(rank) * count,
                            count * 4),
                0);
    communicator.look("at the end");
  }));
}

TEST_P(NcclCollectives, OfEveryType) {
  const int size = GetParam();
  expect_none(in_clique(size, [&](Communicator& communicator, Rank) {
    for (const DataType type : kDataTypes) {
      std::vector<std::byte> ones(16 * size_of(type)), sum(16 * size_of(type)), expected(16 * size_of(type));
      for (std::size_t byte = 0; byte < ones.size(); byte += size_of(type)) ones[byte] = std::byte{1};
      const std::vector<Source> sources(static_cast<std::size_t>(size), Source{ones.data(), true});
      fold(ReduceOp::sum, type, sources, expected.data(), 16, size);
      communicator.start({Collective::all_reduce, ones.data(), sum.data(), 16, type, ReduceOp::sum},
                         std::string(to_string(type)), Deadline::in(20s));
      EXPECT_EQ(sum, expected) << to_string(type);
    }
  }));
}

TEST_P(NcclCollectives, OfPartsOfTheRanks) {
  const int size = GetParam();
  expect_none(in_clique(size, [&](Communicator& all, Rank rank) {
    const auto part = all.split(rank % 2, -rank, Deadline::in(20s));
    ASSERT_NE(part, nullptr);
    std::int32_t one = 1, count = 0;
    part->start({Collective::all_reduce, &one, &count, 1, DataType::i32, ReduceOp::sum}, "in a part",
                Deadline::in(20s));
    EXPECT_EQ(count, (size + (rank % 2 == 0 ? 1 : 0)) / 2);
    std::int32_t first = rank;  // by key, the last rank is the first there
    part->start({Collective::broadcast, &first, &first, 1, DataType::i32, {}, 0}, "in a part", Deadline::in(20s));
    EXPECT_EQ(first, (size - 1 - rank) % 2 == 0 ? size - 1 : size - 2);
  }));
}

TEST_P(NcclCollectives, WhoIsInNoPartGetsNone) {
  expect_none(in_clique(GetParam(), [](Communicator& all, Rank rank) {
    EXPECT_EQ(all.split(rank == 0 ? -1 : 0, 0, Deadline::in(20s)) == nullptr, rank == 0);
  }));
}
INSTANTIATE_TEST_SUITE_P(Ranks, NcclCollectives, testing::Values(1, 2, 3, 5));

TEST(NcclFailures, EveryCallThatFailsIsAnErrorThatSaysSo) {
  for (const char* const function :
       {"ncclCommInitRankConfig", "ncclCommGetAsyncError", "ncclAllReduce", "ncclGroupStart", "ncclGroupEnd",
        "ncclRedOpCreatePreMulSum", "ncclRedOpDestroy", "ncclCommSplit", "ncclCommCount", "ncclCommRegister",
        "ncclCommDeregister", "ncclAllGather", "ncclBroadcast", "ncclReduce", "ncclReduceScatter", "ncclSend",
        "ncclRecv"}) {
    SCOPED_TRACE(function);
    const ncclUniqueId id = Communicator::new_id(stand_in());
    fail(function);
    const auto failures = on_ranks(1, [&](Rank rank) {
      Communicator communicator(stand_in(), 1, id, rank, Deadline::in(20s));
      float value = 1;
      for (const Collective collective : {Collective::all_reduce, Collective::reduce_scatter, Collective::all_gather,
                                          Collective::broadcast, Collective::reduce})
        communicator.start({collective, &value, &value, 1, DataType::f32, ReduceOp::pre_scaled_sum(2)}, "the call",
                           Deadline::in(20s));
      communicator.all_to_all(&value, &value, 1, DataType::f32, nullptr, "the call", Deadline::in(20s));
      communicator.deregister_memory(communicator.register_memory(&value, sizeof value));
      EXPECT_NE(communicator.split(0, 0, Deadline::in(20s)), nullptr);
    });
    ASSERT_TRUE(failures[0].has_value());
    EXPECT_EQ(failures[0]->code, Errc::system);
    EXPECT_NE(failures[0]->text.find("internal error: a stand-in was asked to fail"), std::string::npos)
        << failures[0]->text;
  }
  fail("ncclGetUniqueId");
  EXPECT_THROW((void)Communicator::new_id(stand_in()), Error);
}

TEST(NcclFailures, OneRankFailsAndTheOthersHear) {
  const auto failures = in_clique(3, [](Communicator& communicator, Rank rank) {
    float value = 1;
    communicator.start({Collective::all_reduce, &value, &value, 1, DataType::f32, ReduceOp::sum}, "first",
                       Deadline::in(20s));
    if (rank == 1) throw Error(Errc::aborted, "this one gives up");
    communicator.start({Collective::all_reduce, &value, &value, 1, DataType::f32, ReduceOp::sum}, "second",
                       Deadline::in(200ms));
  });
  EXPECT_EQ(failures[1]->code, Errc::aborted);
  for (const std::size_t rank : {0U, 2U}) {
    ASSERT_TRUE(failures[rank].has_value());
    // Who is first to give up is told by its own deadline, the other by NCCL.
    EXPECT_TRUE(failures[rank]->code == Errc::timeout || failures[rank]->code == Errc::system) << failures[rank]->text;
    EXPECT_NE(failures[rank]->text.find("second"), std::string::npos) << failures[rank]->text;
  }
}

TEST(NcclFailures, ARankThatNeverComes) {
  const ncclUniqueId id = Communicator::new_id(stand_in());
  const auto failures = on_ranks(2, [&](Rank rank) { Communicator(stand_in(), 3, id, rank, Deadline::in(100ms)); });
  for (const auto& failure : failures) {
    ASSERT_TRUE(failure.has_value());
    EXPECT_EQ(failure->code, Errc::timeout);
  }
}

TEST(NcclFailures, StoppedFromAnotherThread) {
  std::barrier both_have_met(2);
  const auto failures = in_clique(2, [&](Communicator& communicator, Rank rank) {
    both_have_met.arrive_and_wait();
    if (rank == 1) return;  // never calls
    std::jthread stopper([&] { communicator.stop(); });
    float value = 1;
    communicator.start({Collective::all_reduce, &value, &value, 1, DataType::f32, ReduceOp::sum}, "this call",
                       Deadline::in(20s));
  });
  ASSERT_TRUE(failures[0].has_value());
  EXPECT_EQ(failures[0]->code, Errc::aborted);
  EXPECT_FALSE(failures[1].has_value());
}

TEST(NcclFailures, AfterOneNothingIsStartedAnyMore) {
  expect_none(in_clique(1, [](Communicator& communicator, Rank) {
    float value = 1;
    const auto call = [&] {
      communicator.start({Collective::all_reduce, &value, &value, 1, DataType::f32, ReduceOp::sum}, "a call",
                         Deadline::in(20s));
    };
    fail("ncclGroupEnd");
    EXPECT_THROW(call(), Error);
    EXPECT_THROW(call(), Error);
    EXPECT_THROW(communicator.look("a look"), Error);
    EXPECT_THROW((void)communicator.split(0, 0, Deadline::in(1s)), Error);
    EXPECT_THROW(communicator.register_memory(&value, sizeof value), Error);
  }));
}

}  // namespace
}  // namespace collectives::nccl
