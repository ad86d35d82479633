// Tests of the interface to NCCL: the loading of the library, its communicator and its calls. GPUs and NCCL are fakes
// (fakes/nccl/fake_nccl.cpp), so no GPU is needed.
#include "support/nccl.hpp"

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

#include "collectives/deadline.hpp"
#include "collectives/error.hpp"
#include "cuda/nccl_communicator.hpp"
#include "device/nccl_collective.hpp"
#include "fakes/gpu/fake_device.hpp"
#include "fakes/nccl/fake_nccl.hpp"
#include "reduction/reduction.hpp"
#include "support/worlds.hpp"

namespace collectives::nccl {
namespace {

using namespace std::chrono_literals;

using testing::fake_nccl;
using testing::FakeGpus;
using testing::FakeNccl;
using testing::kFakeNccl;
using testing::OnGpu;

std::string why_not(const std::string& path) {
  std::string why_not;
  EXPECT_EQ(load_library(path, why_not), nullptr) << path;
  return why_not;
}

/// An exception as code and text. on_ranks() runs `of_rank` in one thread per rank, and returns the exception of each.
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
  EXPECT_EQ(version_text(fake_nccl().version), version_text(NCCL_VERSION_CODE));
  EXPECT_EQ(fake_nccl().path, kFakeNccl);
}

TEST(NcclLibrary, IsTakenWithoutFunctionsForMemory) {
  EXPECT_FALSE(Loaded(testing::fake_nccl_without_memory()).has_memory());
  EXPECT_TRUE(Loaded(fake_nccl()).has_memory());
}

TEST(NcclLibrary, IsReportedIfMissing) {
  EXPECT_NE(why_not("/nowhere/libnccl.so.2").find("/nowhere/libnccl.so.2"), std::string::npos);
}

TEST(NcclLibrary, IsRefusedIfItLacksFunctions) {
  EXPECT_NE(why_not(testing::kThatLacks).find("lacks ncclCommSplit, ncclSend"), std::string::npos);
}

TEST(NcclLibrary, IsTooOldOrOfAnotherMajorVersion) {
  const std::string old = why_not(testing::kThatIsOld);
  EXPECT_NE(old.find("is NCCL 2.18.5; it must be 2.19.0 or a later 2.x"), std::string::npos) << old;
  const std::string next = why_not(testing::kOfTomorrow);
  EXPECT_NE(next.find("is NCCL 3.1.0; it must be"), std::string::npos) << next;
}

TEST(NcclLibrary, IsRefusedIfItIsAnotherLibrary) {
  const std::string why = why_not("libm.so.6");
  EXPECT_NE(why.find("libm.so.6 does not tell its version"), std::string::npos) << why;
}

TEST(NcclReductions, WhatNcclDoesNotPromiseIsNamed) {
  EXPECT_EQ(why_no_native_nccl_reduction(ReduceOp::sum, DataType::f32, false), "");
  EXPECT_EQ(why_no_native_nccl_reduction(ReduceOp::average, DataType::f64, false), "");
  EXPECT_EQ(why_no_native_nccl_reduction(ReduceOp::max, DataType::i8, true), "");
  EXPECT_NE(why_no_native_nccl_reduction(ReduceOp::sum, DataType::f32, true), "");
  EXPECT_NE(why_no_native_nccl_reduction(ReduceOp::sum, DataType::bf16, false), "");
  EXPECT_NE(why_no_native_nccl_reduction(ReduceOp::max, DataType::f32, false), "");
  EXPECT_NE(why_no_native_nccl_reduction(ReduceOp::average, DataType::i32, false), "");
  EXPECT_EQ(why_no_native_nccl_reduction(ReduceOp::sum, DataType::complex64, false), "");
  EXPECT_EQ(why_no_native_nccl_reduction(ReduceOp::average, DataType::complex128, false), "");
  EXPECT_NE(why_no_native_nccl_reduction(ReduceOp::sum, DataType::complex64, true), "");
  EXPECT_EQ(why_no_native_nccl_reduction(ReduceOp::product, DataType::complex64, false),
            "NCCL has no product of complex64");
  EXPECT_EQ(why_no_native_nccl_reduction(ReduceOp::sum, DataType::boolean, false), "NCCL has no sum of boolean");
  EXPECT_EQ(why_no_native_nccl_reduction(ReduceOp::sum, DataType::i16, false), "NCCL has no sum of i16");
  EXPECT_EQ(why_no_native_nccl_reduction(ReduceOp::bitwise_or, DataType::u32, false), "NCCL has no bitwise_or");
  EXPECT_EQ(why_no_native_nccl_reduction(ReduceOp::min_loc, DataType::f32_index, false), "NCCL has no min_loc");
  EXPECT_EQ(why_no_native_nccl_reduction(ReduceOp::sum, DataType::f8e4m3, false),
            "NCCL rounds 8-bit floats at every hop, not once");
}

TEST(NcclReductions, WhatCannotBeDoneIsNamed) {
  const UserOp op{"mine", [](const void*, void*, std::size_t, DataType) {}, true};
  EXPECT_EQ(why_no_nccl_reduction(ReduceOp::sum, DataType::bf16, true, 256), "");
  EXPECT_NE(why_no_nccl_reduction(ReduceOp::sum, DataType::bf16, false, 257), "");
  EXPECT_EQ(why_no_nccl_reduction(ReduceOp::sum, DataType::f32, false, 257), "");
  EXPECT_NE(why_no_nccl_reduction(ReduceOp::user(op), DataType::f32, false, 2), "");
}

void wait_until_ready(NcclComm& nccl_comm, Deadline deadline = Deadline::in(20s)) {
  while (!nccl_comm.ready()) {
    if (deadline.passed()) throw Error(Errc::timeout, "it was not settled in time");
    std::this_thread::sleep_for(100us);
  }
}

/// Runs `action` in `size` threads, which form an NCCL communicator. `action` gets that communicator and its rank.
std::vector<std::optional<Failure>> in_nccl_comm(
    int size, const std::function<void(FakeGpus&, Device&, std::unique_ptr<NcclComm>, Rank)>& action) {
  FakeGpus gpus(size);
  const FakeNccl streams(gpus);
  const Loaded library(fake_nccl());
  const std::string id = library.new_id();
  return on_ranks(size, [&](Rank rank) {
    FakeGpus::set_current(rank);
    const auto device = gpus.device();
    auto nccl_comm = library.join(size, id, rank);
    wait_until_ready(*nccl_comm);
    action(gpus, *device, std::move(nccl_comm), rank);
  });
}
/// Runs `action` as in_nccl_comm() does, with an NcclCollective that has room for `scratch_bytes` bytes.
std::vector<std::optional<Failure>> run_collectives(
    int size, std::size_t scratch_bytes, const std::function<void(FakeGpus&, NcclCollective&, Rank)>& action) {
  return in_nccl_comm(size, [&](FakeGpus& gpus, Device& device, std::unique_ptr<NcclComm> nccl_comm, Rank rank) {
    NcclCollective by(device, std::move(nccl_comm), size, rank, scratch_bytes);
    action(gpus, by, rank);
  });
}
void put(NcclCollective& by, const NcclCollective::Call& call, Deadline deadline = Deadline::in(20s)) {
  by.start(std::span(&call, 1));
  while (!by.progress()) {
    if (deadline.passed()) throw Error(Errc::timeout, "it did not come into its stream in time");
    std::this_thread::sleep_for(100us);
  }
}

template <class T>
const std::byte* bytes_of(const OnGpu<T>& on_gpu) {
  return reinterpret_cast<const std::byte*>(on_gpu.data());
}
template <class T>
std::byte* bytes_of(OnGpu<T>& on_gpu) {
  return reinterpret_cast<std::byte*>(on_gpu.data());
}

/// Contributions of all ranks whose sum depends on the order of addition, and their sum in rank order.
template <class T>
struct Contributions {
  Contributions(int ranks, std::size_t count, const ReduceOp& op) {
    std::vector<Source> sources;
    for (Rank rank = 0; rank < ranks; ++rank) {
      std::vector<T> values(count);
      for (std::size_t i = 0; i < count; ++i)
        values[i] = static_cast<T>(static_cast<float>((static_cast<std::size_t>(rank) * 7 + i * 13) % 31) / 4 - 3);
      of.push_back(std::move(values));
    }
    for (const auto& one : of) sources.push_back({reinterpret_cast<const std::byte*>(one.data()), true});
    folded.resize(count);
    fold(op, data_type_v<T>, sources, reinterpret_cast<std::byte*>(folded.data()), count, ranks);
  }
  std::vector<std::vector<T>> of;
  std::vector<T> folded;
};

class NcclCalls : public ::testing::TestWithParam<int> {};

/// Runs all reductions of one type and op, in place and out of place, of difficult lengths. Depending on the scratch
/// memory, a call takes few rounds or many, each on some of the elements.
template <class T>
void check_reductions(int size, const ReduceOp& op, bool unsummed, std::size_t scratch_bytes) {
  SCOPED_TRACE(std::string(to_string(data_type_v<T>)) + " " + std::string(to_string(op.kind())) +
               (unsummed ? " unsummed" : ""));
  expect_none(run_collectives(size, scratch_bytes, [&](FakeGpus& gpus, NcclCollective& by, Rank rank) {
    const auto self = static_cast<std::size_t>(rank), p = static_cast<std::size_t>(size);
    const Device::Stream stream = gpus.new_stream();
    for (const std::size_t count : {std::size_t{1}, p, 3 * p + 2, std::size_t{2003}}) {
      const Contributions<T> all(size, count, op);
      std::vector<std::size_t> offsets{0};
      for (std::size_t r = 0; r < p; ++r)
        offsets.push_back(r + 1 == p ? count : std::min(count, offsets[r] + (r * 5 + 3) % 7 * count / (3 * p)));
      for (const bool in_place : {false, true}) {
        OnGpu<T> input(gpus, all.of[self]), output(gpus, count);
        std::byte* const out = in_place ? bytes_of(input) : bytes_of(output);
        const auto result = [&] {
          gpus.synchronize(stream);
          const auto values = (in_place ? input : output).values();
          if (in_place) input.set(all.of[self]);
          return values;
        };
        NcclCollective::Call call{.collective = Collective::all_reduce,
                                  .input = bytes_of(input),
                                  .output = out,
                                  .parts = Parts::equal({0, count}, 1),
                                  .type = data_type_v<T>,
                                  .op = op,
                                  .unsummed = unsummed,
                                  .wire = data_type_v<T>,
                                  .stream = stream};
        put(by, call);
        EXPECT_TRUE(testing::same_bits(result(), all.folded)) << count << " all_reduce";
        call.collective = Collective::reduce;
        call.root = size - 1;
        put(by, call);
        const auto at_root = result();
        EXPECT_TRUE(rank != size - 1 || testing::same_bits(at_root, all.folded)) << count << " reduce";
        EXPECT_TRUE(rank == size - 1 || !in_place || testing::same_bits(at_root, all.of[self])) << count << " reduce";
        call.collective = Collective::reduce_scatter;
        for (const bool equal : {false, true}) {
          if (equal && count % p != 0) continue;
          call.parts = equal ? Parts::equal({0, count}, size) : Parts::listed(offsets.data(), size);
          const Range mine = call.parts[rank];
          put(by, call);
          const auto scattered = result();
          EXPECT_TRUE(mine.count == 0 || std::memcmp(scattered.data() + mine.first, all.folded.data() + mine.first,
                                                     mine.count * sizeof(T)) == 0)
              << count << " reduce_scatter";
        }
      }
    }
    gpus.synchronize(stream);
  }));
}

TEST_P(NcclCalls, SumAsFoldDoes) {
  for (const ReduceOp op : {ReduceOp::sum, ReduceOp::average, ReduceOp::product, ReduceOp::pre_scaled_sum(0.5)})
    check_reductions<float>(GetParam(), op, false, NcclCollective::kScratchBytes);
  check_reductions<std::int64_t>(GetParam(), ReduceOp::max, false, NcclCollective::kScratchBytes);
}

TEST_P(NcclCalls, FoldWhatNcclDoesNotPromise) {
  for (const std::size_t scratch_bytes : {std::size_t{2048}, NcclCollective::kScratchBytes}) {
    check_reductions<bfloat16>(GetParam(), ReduceOp::sum, true, scratch_bytes);
    check_reductions<float>(GetParam(), ReduceOp::min, true, scratch_bytes);
  }
  check_reductions<float16>(GetParam(), ReduceOp::pre_scaled_sum(0.3), true, NcclCollective::kScratchBytes);
  check_reductions<std::int32_t>(GetParam(), ReduceOp::average, true, NcclCollective::kScratchBytes);
  check_reductions<double>(GetParam(), ReduceOp::sum, true, NcclCollective::kScratchBytes);
}

TEST_P(NcclCalls, ASixteenBitWireRoundsTwice) {
  const int size = GetParam();
  for (const std::size_t scratch_bytes : {std::size_t{4096}, NcclCollective::kScratchBytes})
    expect_none(run_collectives(size, scratch_bytes, [&](FakeGpus& gpus, NcclCollective& by, Rank rank) {
      const std::size_t count = 1501, self = static_cast<std::size_t>(rank);
      const Device::Stream stream = gpus.new_stream();
      std::vector<std::vector<bfloat16>> coded;
      std::vector<float> mine;
      for (Rank r = 0; r < size; ++r) {
        auto& values = coded.emplace_back(count);
        for (std::size_t i = 0; i < count; ++i) {
          const float value = static_cast<float>((static_cast<std::size_t>(r) * 7919 + i * 104'729) % 65'537) / 777;
          values[i] = static_cast<bfloat16>(value);
          if (r == rank) mine.push_back(value);
        }
      }
      std::vector<Source> sources;
      for (const auto& one : coded) sources.push_back({reinterpret_cast<const std::byte*>(one.data()), true});
      std::vector<bfloat16> folded(count);
      fold(ReduceOp::average, DataType::bf16, sources, reinterpret_cast<std::byte*>(folded.data()), count, size);
      std::vector<float> expected;
      for (const bfloat16 value : folded) expected.push_back(static_cast<float>(value));
      OnGpu<float> input(gpus, mine), output(gpus, count);
      NcclCollective::Call call{.collective = Collective::all_reduce,
                                .input = bytes_of(input),
                                .output = bytes_of(output),
                                .parts = Parts::equal({0, count}, 1),
                                .op = ReduceOp::average,
                                .unsummed = true,
                                .wire = DataType::bf16,
                                .stream = stream};
      put(by, call);
      gpus.synchronize(stream);
      EXPECT_TRUE(testing::same_bits(output.values(), expected));
      call.collective = Collective::reduce;
      put(by, call);
      gpus.synchronize(stream);
      EXPECT_TRUE(testing::same_bits(output.values(), expected));
      call.collective = Collective::reduce_scatter;
      call.parts = Parts::equal({0, count}, size);
      put(by, call);
      gpus.synchronize(stream);
      EXPECT_TRUE(testing::same_bits(output.values(), expected));
      EXPECT_TRUE(testing::same_bits(input.values(), mine)) << self;
    }));
}

TEST_P(NcclCalls, GatherAndBroadcastAnyType) {
  const int size = GetParam();
  expect_none(run_collectives(size, NcclCollective::kScratchBytes, [&](FakeGpus& gpus, NcclCollective& by, Rank rank) {
    const auto self = static_cast<std::size_t>(rank), p = static_cast<std::size_t>(size);
    const Device::Stream stream = gpus.new_stream();
    for (const DataType type : kDataTypes)
      for (const bool equal : {true, false}) {
        std::vector<std::size_t> offsets{0};
        for (std::size_t r = 0; r < p; ++r) offsets.push_back(offsets[r] + (equal ? 11 : r * 5 % 4 * 9));
        const std::size_t count = offsets.back(), element = size_of(type);
        std::vector<std::byte> all(count * element), mine;
        for (std::size_t i = 0; i < all.size(); ++i) all[i] = static_cast<std::byte>(i * 37);
        mine.assign(all.begin() + static_cast<std::ptrdiff_t>(offsets[self] * element),
                    all.begin() + static_cast<std::ptrdiff_t>(offsets[self + 1] * element));
        OnGpu<std::byte> input(gpus, std::max<std::size_t>(1, mine.size())), output(gpus, all.size() + 1);
        if (!mine.empty()) gpus.upload(input.data(), mine.data(), mine.size());
        put(by, {.collective = Collective::all_gather,
                 .input = input.data() - offsets[self] * element,
                 .output = output.data(),
                 .parts = Parts::listed(offsets.data(), size),
                 .type = type,
                 .wire = type,
                 .stream = stream});
        gpus.synchronize(stream);
        auto gathered = output.values();
        gathered.resize(all.size());
        EXPECT_TRUE(testing::same_bits(gathered, all)) << to_string(type);
        for (Rank root = 0; root < size && count > 0; ++root) {
          OnGpu<std::byte> data(gpus, rank == root ? all : std::vector<std::byte>(all.size()));
          put(by, {.collective = Collective::broadcast,
                   .input = data.data(),
                   .output = data.data(),
                   .parts = Parts::equal({0, count}, 1),
                   .type = type,
                   .root = root,
                   .wire = type,
                   .stream = stream});
          gpus.synchronize(stream);
          EXPECT_TRUE(testing::same_bits(data.values(), all)) << to_string(type);
        }
      }
  }));
}

TEST_P(NcclCalls, InStreamsThatChange) {
  const int size = GetParam();
  expect_none(run_collectives(size, 4096, [&](FakeGpus& gpus, NcclCollective& by, Rank rank) {
    gpus.slow_down(rank, std::chrono::microseconds(rank == 0 ? 500 : 0));
    const std::size_t count = 700;
    const Contributions<bfloat16> all(size, count, ReduceOp::sum);
    const Device::Stream streams[] = {gpus.new_stream(), gpus.new_stream(), gpus.new_stream()};
    OnGpu<bfloat16> input(gpus, all.of[static_cast<std::size_t>(rank)]);
    std::vector<std::unique_ptr<OnGpu<bfloat16>>> outputs;
    for (std::size_t i = 0; i < 12; ++i) {
      outputs.push_back(std::make_unique<OnGpu<bfloat16>>(gpus, count));
      put(by, {.collective = Collective::all_reduce,
               .input = bytes_of(input),
               .output = bytes_of(*outputs.back()),
               .parts = Parts::equal({0, count}, 1),
               .type = DataType::bf16,
               .unsummed = true,
               .wire = DataType::bf16,
               .stream = streams[i % 3]});
    }
    for (const Device::Stream stream : streams) gpus.synchronize(stream);
    for (const auto& output : outputs) EXPECT_TRUE(testing::same_bits(output->values(), all.folded));
  }));
}

class NcclComms : public ::testing::TestWithParam<int> {};

TEST_P(NcclComms, OfPartsOfTheRanks) {
  const int size = GetParam();
  expect_none(in_nccl_comm(size, [&](FakeGpus& gpus, Device& device, std::unique_ptr<NcclComm> all, Rank rank) {
    const int members = (size + (rank % 2 == 0 ? 1 : 0)) / 2;
    auto part = all->split(rank % 2, -rank);
    wait_until_ready(*part);
    const Device::Stream stream = gpus.new_stream();
    OnGpu<std::int32_t> one(gpus, std::vector<std::int32_t>{1}), count(gpus, 1);
    const Rank there = (size - 1 - rank) / 2;  // ranks are ordered by key, which reverses their order
    NcclCollective by(device, std::move(part), members, there);
    put(by, {.input = bytes_of(one),
             .output = bytes_of(count),
             .parts = Parts::equal({0, 1}, 1),
             .type = DataType::i32,
             .wire = DataType::i32,
             .stream = stream});
    gpus.synchronize(stream);
    EXPECT_EQ(count.values()[0], members);
    OnGpu<std::int32_t> first(gpus, std::vector<std::int32_t>{rank});
    put(by, {.collective = Collective::broadcast,
             .input = bytes_of(first),
             .output = bytes_of(first),
             .parts = Parts::equal({0, 1}, 1),
             .type = DataType::i32,
             .wire = DataType::i32,
             .stream = stream});
    gpus.synchronize(stream);
    EXPECT_EQ(first.values()[0], (size - 1 - rank) % 2 == 0 ? size - 1 : size - 2);
  }));
}

TEST_P(NcclComms, ARankWithNegativeColorKeepsItsCommunicator) {
  const int size = GetParam();
  expect_none(in_nccl_comm(size, [&](FakeGpus& gpus, Device& device, std::unique_ptr<NcclComm> all, Rank rank) {
    for (int lap = 0; lap < 2; ++lap) wait_until_ready(*all->split(rank == 0 ? -1 : 0, 0));
    const Device::Stream stream = gpus.new_stream();
    OnGpu<float> sum(gpus, std::vector<float>{1});
    NcclCollective by(device, std::move(all), size, rank);
    put(by, {.input = bytes_of(sum), .output = bytes_of(sum), .parts = Parts::equal({0, 1}, 1), .stream = stream});
    gpus.synchronize(stream);
    EXPECT_EQ(sum.values()[0], static_cast<float>(size));
  }));
}

TEST_P(NcclComms, LeaveWhenEverythingHasHappened) {
  const int size = GetParam();
  expect_none(in_nccl_comm(size, [&](FakeGpus& gpus, Device&, std::unique_ptr<NcclComm> nccl_comm, Rank rank) {
    const Device::Stream stream = gpus.new_stream();
    OnGpu<float> sum(gpus, std::vector<float>{1});
    gpus.slow_down(rank, 2ms);
    const NcclComm::Call call{.input = sum.data(), .output = sum.data(), .count = 1};
    nccl_comm->start(std::span(&call, 1), stream);
    wait_until_ready(*nccl_comm);
    nccl_comm->leave();
    wait_until_ready(*nccl_comm);
    nccl_comm.reset();
    gpus.synchronize(stream);
    EXPECT_EQ(sum.values()[0], static_cast<float>(size));
  }));
  EXPECT_TRUE(FakeNccl::all_end());
}
INSTANTIATE_TEST_SUITE_P(Ranks, NcclCalls, ::testing::Values(1, 2, 3, 5));
INSTANTIATE_TEST_SUITE_P(Ranks, NcclComms, ::testing::Values(1, 2, 3, 5));

TEST(NcclFailures, EveryCallThatFailsIsAnErrorThatSaysSo) {
  for (const char* const function :
       {"ncclCommInitRankConfig", "ncclCommGetAsyncError", "ncclAllReduce", "ncclGroupStart", "ncclGroupEnd",
        "ncclRedOpCreatePreMulSum", "ncclRedOpDestroy", "ncclCommSplit", "ncclCommFinalize", "ncclCommRegister",
        "ncclCommDeregister", "ncclAllGather", "ncclBroadcast", "ncclReduce", "ncclReduceScatter", "ncclSend",
        "ncclRecv", "ncclGetUniqueId"}) {
    SCOPED_TRACE(function);
    FakeGpus gpus(1);
    const FakeNccl streams(gpus);
    const Loaded library(fake_nccl());
    FakeNccl::fail(function);
    const auto failures = on_ranks(1, [&](Rank) {
      const auto nccl_comm = library.join(1, library.new_id(), 0);
      wait_until_ready(*nccl_comm);
      OnGpu<float> value(gpus, 1);
      using Kind = NcclComm::Kind;
      const Device::Stream stream = gpus.new_stream();
      for (const Kind kind :
           {Kind::all_reduce, Kind::reduce_scatter, Kind::all_gather, Kind::broadcast, Kind::reduce}) {
        const NcclComm::Call call{kind, value.data(), value.data(), 1, DataType::f32, ReduceOp::pre_scaled_sum(2), 0};
        nccl_comm->start(std::span(&call, 1), stream);
        wait_until_ready(*nccl_comm);
      }
      OnGpu<float> other(gpus, 1);
      const NcclComm::Call both[] = {{Kind::send, value.data(), nullptr, 1, DataType::f32, {}, 0},
                                     {Kind::receive, nullptr, other.data(), 1, DataType::f32, {}, 0}};
      nccl_comm->start(both, stream);
      wait_until_ready(*nccl_comm);
      gpus.synchronize(stream);
      nccl_comm->deregister_memory(nccl_comm->register_memory(value.data(), sizeof(float)));
      wait_until_ready(*nccl_comm->split(0, 0));
      gpus.synchronize(stream);
      nccl_comm->leave();
      wait_until_ready(*nccl_comm);
    });
    ASSERT_TRUE(failures[0].has_value());
    EXPECT_EQ(failures[0]->code, Errc::system);
    EXPECT_NE(failures[0]->text.find("internal error: a stand-in was asked to fail"), std::string::npos)
        << failures[0]->text;
    EXPECT_TRUE(FakeNccl::all_end());
  }
}

TEST(NcclFailures, InAStream) {
  FakeGpus gpus(1);
  const FakeNccl streams(gpus);
  const Loaded library(fake_nccl());
  const auto nccl_comm = library.join(1, library.new_id(), 0);
  wait_until_ready(*nccl_comm);
  OnGpu<float> value(gpus, 1);
  const Device::Stream stream = gpus.new_stream();
  FakeNccl::fail("in a stream");
  const NcclComm::Call call{.input = value.data(), .output = value.data(), .count = 1};
  nccl_comm->start(std::span(&call, 1), stream);
  EXPECT_THROW(for (;;) wait_until_ready(*nccl_comm), Error);
  gpus.synchronize(stream);  // ends all use of the buffers before they are freed
  EXPECT_THROW(nccl_comm->start(std::span(&call, 1), stream), Error);
  EXPECT_THROW((void)nccl_comm->ready(), Error);
  EXPECT_THROW((void)nccl_comm->split(0, 0), Error);
  EXPECT_THROW((void)nccl_comm->register_memory(value.data(), sizeof(float)), Error);
}

TEST(NcclFailures, ARankThatNeverCalls) {
  std::barrier both_have_looked(2);
  expect_none(in_nccl_comm(2, [&](FakeGpus& gpus, Device&, std::unique_ptr<NcclComm> nccl_comm, Rank rank) {
    const Device::Stream stream = gpus.new_stream();
    OnGpu<float> value(gpus, 1);
    const NcclComm::Call call{.input = value.data(), .output = value.data(), .count = 1};
    if (rank == 0) {
      nccl_comm->start(std::span(&call, 1), stream);
      EXPECT_THROW(wait_until_ready(*nccl_comm, Deadline::in(50ms)), Error);
      nccl_comm->stop();
      gpus.synchronize(stream);
    }
    both_have_looked.arrive_and_wait();
  }));
}

TEST(NcclFailures, ARankThatDoesNotAgreeStopsStreamsUntilTheyAreFreed) {
  std::barrier both_are_there(2);
  expect_none(in_nccl_comm(2, [&](FakeGpus& gpus, Device&, std::unique_ptr<NcclComm> nccl_comm, Rank rank) {
    const Device::Stream stream = gpus.new_stream();
    OnGpu<float> value(gpus, 2);
    const NcclComm::Call call{.input = value.data(), .output = value.data(), .count = rank == 0 ? 1U : 2U};
    nccl_comm->start(std::span(&call, 1), stream);
    wait_until_ready(*nccl_comm);
    both_are_there.arrive_and_wait();
    EXPECT_FALSE(gpus.idle(stream));
    both_are_there.arrive_and_wait();
    nccl_comm->stop();
    gpus.synchronize(stream);
  }));
}

TEST(NcclFailures, AnAbortThatBlocksHoldsNobodyUp) {
  FakeGpus gpus(1);
  const FakeNccl streams(gpus);
  const Loaded library(fake_nccl());
  const auto nccl_comm = library.join(1, library.new_id(), 0);
  wait_until_ready(*nccl_comm);
  FakeNccl::hold_aborts(true);
  nccl_comm->stop();
  EXPECT_EQ(FakeNccl::alive(), 1U);
  EXPECT_THROW((void)nccl_comm->ready(), Error);
  FakeNccl::hold_aborts(false);
  EXPECT_TRUE(FakeNccl::all_end());
}

TEST(NcclFailures, ASplitThatIsGivenUp) {
  expect_none(in_nccl_comm(2, [](FakeGpus&, Device&, std::unique_ptr<NcclComm> nccl_comm, Rank rank) {
    if (rank == 1) return;
    auto part = nccl_comm->split(0, 0);
    EXPECT_THROW(wait_until_ready(*part, Deadline::in(20ms)), Error);
    part.reset();
    EXPECT_THROW((void)nccl_comm->ready(), Error);
  }));
  EXPECT_TRUE(FakeNccl::all_end());
}

}  // namespace
}  // namespace collectives::nccl
