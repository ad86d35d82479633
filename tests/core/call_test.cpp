// Tests of the checks of a call's arguments, and of what enters the signature of a call with parts.
#include "core/call.hpp"

#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "collectives/error.hpp"
#include "support/errors.hpp"

namespace collectives {
namespace {

using testing::error_of;
using Sizes = std::vector<std::size_t>;

constexpr int kRanks = 3;
std::vector<float> memory(1000);

ConstBuffer in(std::size_t count, std::size_t first = 0) { return {memory.data() + first, count, DataType::f32}; }
Buffer out(std::size_t count, std::size_t first = 500) { return {memory.data() + first, count, DataType::f32}; }

/// Returns the text of the refusal on rank `rank`; "accepted" if there is none.
std::string refusal(const Call& call, Rank rank = 1) {
  try {
    check_arguments(call, rank, kRanks);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Errc::invalid_argument);
    return error.what();
  }
  return "accepted";
}

Call gather_v(const PartLayout& parts, std::size_t whole = 12, std::size_t mine = 4) {
  return {.collective = Collective::all_gather,
          .input = in(mine),
          .output = out(whole),
          .counts = parts.counts,
          .displacements = parts.displacements,
          .has_counts = true};
}

TEST(Parts, MayHaveGapsAndAnyOrder) {
  const Sizes counts{3, 4, 0}, displacements{8, 1, 999};
  EXPECT_EQ(refusal(gather_v({counts, displacements})), "accepted");
  EXPECT_EQ(refusal(gather_v({counts, displacements}, 20)), "accepted") << "a longer buffer";
}

TEST(Parts, AreRefusedIfTheyLeaveTheBuffer) {
  const Sizes counts{3, 4, 2}, beyond{0, 3, 11}, far{0, 3, std::numeric_limits<std::size_t>::max()};
  EXPECT_SAYS(refusal(gather_v({counts, beyond})),
              "part 2 of output has 2 elements from element 11 on, and output has 12 elements");
  EXPECT_SAYS(refusal(gather_v({counts, far})), "part 2 of output");
}

TEST(Parts, OfAnOutputAreRefusedIfTheyOverlap) {
  const Sizes counts{3, 4, 2}, displacements{8, 1, 4};
  EXPECT_SAYS(refusal(gather_v({counts, displacements})),
              "parts 1 and 2 of output overlap: 4 elements from 1 on, and 2 from 4 on");
  Call call = gather_v({counts, displacements});
  call.collective = Collective::reduce_scatter;
  call.input = in(12);
  call.output = out(4);
  EXPECT_EQ(refusal(call), "accepted") << "parts of an input may overlap";
}

TEST(Parts, OfAnInputAreRefusedIfTheOutputReplacesOneThatOverlapsAnother) {
  const Sizes counts{3, 4, 2}, displacements{8, 1, 4};
  Call call = gather_v({counts, displacements});
  call.collective = Collective::reduce_scatter;
  call.input = in(12);
  call.output = out(4, 1);
  EXPECT_SAYS(refusal(call, 1), "the output replaces part 1 of the input, which overlaps part 2");
  call.output = out(2, 4);
  EXPECT_SAYS(refusal(call, 2), "the output replaces part 2 of the input, which overlaps part 1");
  call.output = out(3, 8);
  EXPECT_EQ(refusal(call, 0), "accepted") << "parts 1 and 2 overlap, and part 0 does not";
  call.collective = Collective::scatter;
  call.root = 1;
  call.output = out(4, 1);
  EXPECT_EQ(refusal(call, 1), "accepted") << "a scatter in place writes nothing at the root";
}

TEST(Parts, AreRefusedIfTheirListsHaveAnotherLength) {
  const Sizes two{4, 4}, three{4, 4, 4};
  EXPECT_SAYS(refusal(gather_v(two)), "2 counts for 3 ranks");
  EXPECT_SAYS(refusal(gather_v({three, two})), "2 displacements for 3 ranks");
  EXPECT_SAYS(refusal(gather_v(three, 13)), "output has 13 elements, the counts add up to 12");
  const Sizes many(3, std::numeric_limits<std::size_t>::max());
  EXPECT_SAYS(refusal(gather_v(many, 12, many[1])), "overflow");
}

TEST(Parts, OfAnAllToAllAreCheckedOnBothSides) {
  const Sizes four(3, 4), five{4, 5, 4}, overlapping{0, 3, 8};
  const auto call = [](const PartLayout& sent, const PartLayout& received, std::size_t into) {
    return Call{.collective = Collective::all_to_all,
                .input = in(12),
                .output = out(into),
                .counts = received.counts,
                .displacements = received.displacements,
                .input_parts = sent,
                .has_counts = true};
  };
  EXPECT_EQ(refusal(call(four, four, 12)), "accepted");
  EXPECT_SAYS(refusal(call(four, five, 13)), "the part of this rank has 4 elements in the input, 5 in the output");
  EXPECT_SAYS(refusal(call(five, four, 12)), "input has 12 elements, the counts add up to 13");
  EXPECT_SAYS(refusal(call(four, {four, overlapping}, 12)), "parts 0 and 1 of output overlap");
  EXPECT_EQ(refusal(call({four, overlapping}, four, 12)), "accepted");
}

TEST(AllToAll, RequiresEqualPartsAndMayBeInPlace) {
  Call call{.collective = Collective::all_to_all, .input = in(12), .output = out(12)};
  EXPECT_EQ(refusal(call), "accepted");
  call.output = out(12, 0);
  EXPECT_EQ(refusal(call), "accepted") << "in place";
  call.output = out(12, 4);
  EXPECT_SAYS(refusal(call), "overlap without being in place");
  call.input = in(10);
  call.output = out(10);
  EXPECT_SAYS(refusal(call), "input has 10 elements, which 3 ranks cannot divide evenly");
  call.output = out(9);
  EXPECT_SAYS(refusal(call), "input has 10 elements, output has 9");
}

TEST(Gather, ChecksTheOutputOfTheRootOnly) {
  Call call{.collective = Collective::gather, .input = in(4), .output = {}, .root = 1};
  EXPECT_EQ(refusal(call, 0), "accepted");
  EXPECT_SAYS(refusal(call, 1), "input has 4 elements, output has 0: for 3 ranks it must have 12");
  call.output = out(12);
  EXPECT_EQ(refusal(call, 1), "accepted");
  call.input = in(4, 504);
  EXPECT_EQ(refusal(call, 1), "accepted") << "in place";
  call.input = in(4, 503);
  EXPECT_SAYS(refusal(call, 1), "overlap without being in place");
  call.root = 3;
  EXPECT_SAYS(refusal(call, 0), "root 3 is not a rank of 0 to 2");
  call.root = 1;
  call.input = {memory.data(), std::numeric_limits<std::size_t>::max() / 8, DataType::f32};
  EXPECT_SAYS(refusal(call, 0), "overflow");
  call.input = {nullptr, 4, DataType::f32};
  EXPECT_SAYS(refusal(call, 0), "input is null with 4 elements");
}

TEST(Scatter, ChecksTheInputOfTheRootOnly) {
  Call call{.collective = Collective::scatter, .input = {}, .output = out(4), .root = 2};
  EXPECT_EQ(refusal(call, 0), "accepted");
  EXPECT_SAYS(refusal(call, 2), "output has 4 elements, input has 0: for 3 ranks it must have 12");
  call.input = in(12);
  EXPECT_EQ(refusal(call, 2), "accepted");
  call.output = out(4, 8);
  EXPECT_EQ(refusal(call, 2), "accepted") << "in place";
  call.output = out(4, 4);
  EXPECT_SAYS(refusal(call, 2), "overlap without being in place");
  EXPECT_EQ(refusal(call, 0), "accepted") << "other ranks use no input";
}

TEST(Scan, RequiresEqualCountsExceptOfAnOutputThatIsNotWritten) {
  Call call{.collective = Collective::scan, .input = in(4), .output = out(5)};
  EXPECT_SAYS(refusal(call), "input has 4 elements, output has 5");
  call.collective = Collective::exclusive_scan;
  EXPECT_SAYS(refusal(call), "input has 4 elements, output has 5");
  EXPECT_EQ(refusal(call, 0), "accepted");
  call.output = out(4, 2);
  EXPECT_SAYS(refusal(call), "overlap without being in place");
  EXPECT_EQ(refusal(call, 0), "accepted");
  call = {.collective = Collective::scan, .input = in(4), .output = out(4), .op = ReduceOp::pre_scaled_sum(2)};
  call.input.type = call.output.type = DataType::i32;
  EXPECT_SAYS(refusal(call), "i32 has no pre_scaled_sum");
}

std::uint64_t hash(const Call& call, Rank rank = 0) {
  return hash_of(sign(call, rank, kRanks, "auto", false, {}, false));
}

TEST(Signature, HoldsDisplacementsThatDoNotOnlyPutPartsOneAfterAnother) {
  const Sizes counts{3, 4, 0}, dense{0, 3, 999}, gaps{0, 4, 999};
  EXPECT_EQ(hash(gather_v(counts)), hash(gather_v({counts, dense})));
  EXPECT_EQ(hash(gather_v(counts)), hash(gather_v({counts, dense}, 20))) << "the buffer may be longer";
  EXPECT_NE(hash(gather_v(counts)), hash(gather_v({counts, gaps})));
}

TEST(Signature, OfRootedCallsIsEqualOnTheRootAndOnOtherRanks) {
  const Call at_root{.collective = Collective::gather, .input = in(4), .output = out(12), .root = 1};
  const Call elsewhere{.collective = Collective::gather, .input = in(4), .output = {}, .root = 1};
  EXPECT_EQ(hash(at_root, 1), hash(elsewhere, 0));
  const Call from_root{.collective = Collective::scatter, .input = in(12), .output = out(4), .root = 1};
  const Call to_others{.collective = Collective::scatter, .input = {}, .output = out(4), .root = 1};
  EXPECT_EQ(hash(from_root, 1), hash(to_others, 0));
  const Call longer{.collective = Collective::scatter, .input = {}, .output = out(5), .root = 1};
  EXPECT_NE(hash(from_root, 1), hash(longer, 0));
}

TEST(Signature, DoesNotHoldCountsThatOnlySomeRanksKnow) {
  const Sizes counts{3, 4, 5}, others{1, 2, 9};
  const auto call = [](const Sizes& parts) {
    return Call{
        .collective = Collective::gather, .input = in(4), .output = out(12), .counts = parts, .has_counts = true};
  };
  EXPECT_EQ(hash(call(counts)), hash(call(others)));
  EXPECT_EQ(hash(call(counts)), hash(call({})));
  Call equal_parts = call(counts);
  equal_parts.has_counts = false;
  EXPECT_NE(hash(call(counts)), hash(equal_parts));
}

}  // namespace
}  // namespace collectives
