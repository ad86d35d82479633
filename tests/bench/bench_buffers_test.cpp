// Tests of the benchmark's buffers: their addresses, the guard bytes that detect stray writes around them, and the sets
// of buffers that successive calls use in turn.
#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <set>

#include "collectives_bench/buffers.hpp"

namespace collectives::bench {
namespace {

TEST(GuardedBuffers, SeeWritesOnEitherSide) {
  for (const std::size_t count : {1UL, 3UL}) {
    GuardedBuffers buffers(BufferMemory(GuardedBuffers::memory_for(1000, count)));
    for (const std::size_t bytes : {0UL, 1UL, 63UL, 64UL, 1000UL}) {
      std::byte* const first = buffers.use(bytes, count);
      std::size_t damage = 0;
      for (std::size_t i = 0; i < (bytes == 0 ? 1 : count); ++i) {
        std::byte* const data = first + i * buffers.stride();
        EXPECT_EQ(reinterpret_cast<std::uintptr_t>(data) % kLineBytes, 0);
        std::memset(data, 1, bytes);
        EXPECT_EQ(buffers.damaged(), damage) << bytes << " bytes, buffer " << i;
        data[bytes] = std::byte{1};
        EXPECT_EQ(buffers.damaged(), ++damage) << bytes << " bytes, buffer " << i;
        data[-1] = std::byte{1};
        EXPECT_EQ(buffers.damaged(), ++damage) << bytes << " bytes, buffer " << i;
      }
    }
  }
}

TEST(Footprint, IsWhatEachRankReadsAndWrites) {
  const auto of = [](Operation operation, bool in_place, Rank rank) {
    const Footprint bytes =
        footprint({operation, "auto", DataType::f32, ReduceOp::Kind::sum, 10, in_place}, rank, 3, 1);
    return std::pair(bytes.input, bytes.output);
  };
  using Bytes = std::pair<std::size_t, std::size_t>;
  EXPECT_EQ(of(Operation::all_reduce, false, 0), Bytes(40, 40));
  EXPECT_EQ(of(Operation::reduce_scatter, false, 0), Bytes(120, 40));
  EXPECT_EQ(of(Operation::all_gather, false, 0), Bytes(40, 120));
  EXPECT_EQ(of(Operation::broadcast, false, 0), Bytes(0, 40));
  EXPECT_EQ(of(Operation::broadcast, false, 1), Bytes(40, 40));
  EXPECT_EQ(of(Operation::reduce, false, 0), Bytes(40, 0));
  EXPECT_EQ(of(Operation::reduce, false, 1), Bytes(40, 40));
  EXPECT_EQ(of(Operation::all_gather, true, 0), Bytes(120, 0));
  EXPECT_EQ(of(Operation::broadcast, true, 0), Bytes(40, 0));
  EXPECT_EQ(of(Operation::all_to_all, false, 0), Bytes(120, 120));
  EXPECT_EQ(of(Operation::gather, false, 0), Bytes(40, 0));
  EXPECT_EQ(of(Operation::gather, false, 1), Bytes(40, 120));
  EXPECT_EQ(of(Operation::scatter, false, 0), Bytes(0, 40));
  EXPECT_EQ(of(Operation::scatter, false, 1), Bytes(120, 40));
  EXPECT_EQ(of(Operation::scan, false, 2), Bytes(40, 40));
  EXPECT_EQ(of(Operation::sendrecv, false, 2), Bytes(40, 40));
}

TEST(Footprint, OfUnequalPartsHasTheirLengths) {
  using Counts = std::vector<std::size_t>;
  EXPECT_EQ(part_counts(Operation::gather_v, 10, 2, 3), (Counts{12, 8, 12}));
  EXPECT_EQ(part_counts(Operation::gather, 10, 2, 3), (Counts{10, 10, 10}));
  for (Rank r = 0; r < 3; ++r)
    for (Rank s = 0; s < 3; ++s)  // both ranks of a pair name one length
      EXPECT_EQ(part_counts(Operation::all_to_all_v, 10, r, 3)[static_cast<std::size_t>(s)],
                part_counts(Operation::all_to_all_v, 10, s, 3)[static_cast<std::size_t>(r)]);
  const Footprint bytes =
      footprint({Operation::gather_v, "auto", DataType::f32, ReduceOp::Kind::sum, 10, false}, 1, 3, 1);
  EXPECT_EQ(bytes.input, 32U);
  EXPECT_EQ(bytes.output, 128U);
}

TEST(SetsFor, ReturnsAnOddNumberOfSetsThatCoversTheRequestedBytes) {
  EXPECT_EQ(sets_for({1024, 1024}, 0), 1);
  EXPECT_EQ(sets_for({1024, 1024}, 2048), 1);
  EXPECT_EQ(sets_for({1024, 1024}, 2049), 3);
  EXPECT_EQ(sets_for({8, 8}, 1 << 20), (1 << 20) / (2 * kLineBytes) + 1);
  EXPECT_EQ(sets_for({0, 0}, 1 << 20), 1);  // empty buffers never fill a cache, so one set is enough
}

TEST(Rotation, TakesEverySetBeforeTheFirstAgain) {
  GuardedBuffers input(BufferMemory(GuardedBuffers::memory_for(100, 4))),
      output(BufferMemory(GuardedBuffers::memory_for(200, 4)));
  std::byte* const in = input.use(100, 4);
  std::byte* const out = output.use(200, 4);
  const Call first{Operation::all_gather,    DataType::u8, ReduceOp::sum, 0, 0, false, {in, 100, DataType::u8},
                   {out, 200, DataType::u8}, nullptr};
  Rotation rotation(first, 4, input.stride(), output.stride());
  EXPECT_EQ(rotation.current().input.data, in);
  std::set<const void*> inputs, outputs;
  for (std::size_t i = 0; i < 4; ++i) {
    const Call& call = rotation.next();
    inputs.insert(call.input.data);
    outputs.insert(call.output.data);
    EXPECT_EQ(call.whole, nullptr);
    std::memset(call.output.data, 1, call.output.bytes());
  }
  EXPECT_EQ(inputs.size(), 4);
  EXPECT_EQ(outputs.size(), 4);
  EXPECT_EQ(input.damaged() + output.damaged(), 0);
  EXPECT_EQ(rotation.current().input.data, in);
}

TEST(Rotation, InPlaceTheWholeVectorMovesWithItsParts) {
  GuardedBuffers vectors(BufferMemory(GuardedBuffers::memory_for(200, 2)));
  std::byte* const whole = vectors.use(200, 2);
  const Call first{
      Operation::all_gather,      DataType::u8, ReduceOp::sum, 0, 1, true, {whole + 100, 100, DataType::u8},
      {whole, 200, DataType::u8}, whole};
  Rotation rotation(first, 2, vectors.stride(), vectors.stride());
  const Call& second = rotation.next();
  EXPECT_EQ(second.whole, whole + vectors.stride());
  EXPECT_EQ(second.output.data, second.whole);
  EXPECT_EQ(second.input.data, whole + vectors.stride() + 100);
}

}  // namespace
}  // namespace collectives::bench
