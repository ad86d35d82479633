// Tests of call records: running hashes, encoded details, and the texts that name the calls of ranks that differ.
#include "core/call_record.hpp"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "core/call.hpp"

namespace collectives::testing {
namespace {

Arrived arrived(Rank rank, const Signature& signature, CallDetails details = {}) {
  return {rank, {.sequence = 17, .hash = {}, .signature = signature, .details = std::move(details)}};
}

std::string text_of(const std::vector<Arrived>& records) { return describe_mismatch(records).text; }

TEST(RunningHash, DiffersAfterOneDifferentCallWhateverFollows) {
  RunningHash a, b;
  a.append(hash_of({.count = 1}));
  b.append(hash_of({.count = 2}));
  for (int call = 0; call < 1'000'000; ++call) {
    ASSERT_NE(a.after >> 33, b.after >> 33) << call;
    a.append(hash_of({.count = 3}));
    b.append(hash_of({.count = 3}));
  }
}

TEST(RunningHash, DependsOnTheOrderOfCalls) {
  RunningHash a, b;
  for (const std::uint64_t count : {std::uint64_t{1}, std::uint64_t{2}}) a.append(hash_of({.count = count}));
  for (const std::uint64_t count : {std::uint64_t{2}, std::uint64_t{1}}) b.append(hash_of({.count = count}));
  EXPECT_NE(a.after, b.after);
}

TEST(Signature, KeepsItsFieldsInWords) {
  const Signature signature{.root = 3, .count = 5, .wire = WireName("int8"), .refused = true, .split = true};
  EXPECT_EQ(unpack(pack(signature)), signature);
  Signature other = signature;
  other.split = false;
  EXPECT_NE(hash_of(other), hash_of(signature));
}

TEST(Signature, KeepsEveryTypeOpAndCollectiveInWords) {
  for (const Collective collective : kCollectives)
    for (const DataType type : kDataTypes)
      for (const ReduceOp::Kind op : kReduceKinds) {
        const Signature signature{
            .collective = collective, .type = type, .op = op, .backend = 63, .memory = Memory::device, .root = 7};
        ASSERT_EQ(unpack(pack(signature)), signature) << to_string(type) << " " << to_string(op);
      }
}

TEST(Signature, OfARefusalIsEqualWhateverTheArguments) {
  const Call one{.collective = Collective::reduce, .input = {nullptr, 3, DataType::f32}, .root = 9};
  EXPECT_EQ(sign_refusal(one), sign_refusal({.collective = Collective::reduce}));
  EXPECT_FALSE(sign_refusal(one) == sign_refusal({.collective = Collective::barrier}));
  EXPECT_FALSE(sign_refusal(one) == sign_refusal({.collective = Collective::reduce, .has_counts = true}));
}

TEST(CallDetails, AreDecodedAndCut) {
  std::string bytes;
  append_detail(bytes, Detail::name, std::string(1000, 'n'), kNameBytes);
  append_detail(bytes, Detail::refusal, "why", kRefusalBytes);
  append_lengths(bytes, std::vector<std::size_t>(100, 7));
  const CallDetails details = decode_details(bytes);
  EXPECT_EQ(details.name, std::string(kNameBytes, 'n'));
  EXPECT_EQ(details.refusal, "why");
  EXPECT_EQ(details.lengths, std::vector<std::uint64_t>(kDetailLengths, 7));
  EXPECT_LE(bytes.size(), kDetailBytes);
  for (std::size_t length = 0; length < bytes.size(); ++length)
    decode_details(std::string_view(bytes).substr(0, length));
}

TEST(DescribeMismatch, NamesTheArgumentsThatDiffer) {
  const Signature call{.count = 4095};
  Signature other = call;
  other.count = 4096;
  other.op = ReduceOp::Kind::max;
  EXPECT_EQ(text_of({arrived(0, call), arrived(1, call), arrived(3, other)}),
            "all_reduce #17: rank 3 passed 4096 x f32 max, ranks 0-1 passed 4095 x f32 sum");
  EXPECT_EQ(describe_mismatch({arrived(0, call), arrived(1, call), arrived(3, other)}).peer, 3);
}

TEST(DescribeMismatch, NamesBarrierAndSplitWithoutElements) {
  EXPECT_EQ(text_of({arrived(0, {.collective = Collective::barrier}),
                     arrived(1, {.collective = Collective::all_gather, .count = 4, .split = true}),
                     arrived(2, {.collective = Collective::all_gather, .count = 4, .split = true})}),
            "split #17: rank 0 passed barrier, ranks 1-2 passed split");
}

TEST(DescribeMismatch, NamesDetailsInWords) {
  const Signature one{.op = ReduceOp::Kind::user, .count = 10, .op_detail = 1};
  Signature two = one;
  two.op_detail = 2;
  EXPECT_EQ(text_of({arrived(0, one, {.op = "\"one\""}), arrived(1, two, {.op = "\"two\""})}),
            "all_reduce #17: rank 0 passed 10 x f32 user \"one\", rank 1 passed 10 x f32 user \"two\"");
  EXPECT_EQ(text_of({arrived(0, {.count = 10}, {.name = "fc1"}), arrived(1, {.count = 9}, {.name = "fc1"})}),
            "all_reduce #17 (fc1): rank 0 passed 10 x f32, rank 1 passed 9 x f32");
  EXPECT_EQ(text_of({arrived(0, {.count = 10}, {.name = "fc1"}), arrived(1, {.count = 10}, {.name = "fc1 "})}),
            "all_reduce #17: rank 0 passed 10 x f32 named \"fc1\", rank 1 passed 10 x f32 named \"fc1 \"");
  const Signature v{.collective = Collective::all_gather, .has_counts = true, .count = 3, .counts_hash = 1};
  Signature w = v;
  w.counts_hash = 2;
  EXPECT_EQ(text_of({arrived(0, v, {.lengths = {1, 2}}), arrived(1, w, {.lengths = {1, 3}})}),
            "all_gather #17: rank 0 passed 3 x f32 counts 1, 2, rank 1 passed 3 x f32 counts 1, 3; counts differ first "
            "at rank 1: 2 and 3");
  const Signature group{.count = 10, .counts_hash = 1};
  Signature displaced = group;
  displaced.counts_hash = 2;
  EXPECT_NE(text_of({arrived(0, group, {.lengths = {4, 6}}), arrived(1, displaced, {.lengths = {4, 6}})})
                .find("; counts or displacements of a tensor differ"),
            std::string::npos);
  const Signature top{.count = 10, .wire = WireName("top 5", 1)};
  Signature pot = top;
  pot.wire = WireName("top 5", 2);
  EXPECT_EQ(
      text_of({arrived(0, top, {.compression = "momentum 0"}), arrived(1, pot, {.compression = "momentum 0.9"})}),
      "all_reduce #17: rank 0 passed 10 x f32 compressed by top 5 (momentum 0), rank 1 passed 10 x f32 compressed "
      "by top 5 (momentum 0.9)");
}

TEST(DescribeMismatch, NamesNoTotalOfPartsWhoseCountsOnlyTheirRanksKnow) {
  for (const Collective collective : {Collective::gather, Collective::scatter, Collective::all_to_all}) {
    const std::string name(to_string(collective));
    const Signature parts{.collective = collective, .has_counts = true};
    Signature other = parts;
    other.type = DataType::f64;
    EXPECT_EQ(text_of({arrived(0, parts), arrived(1, parts), arrived(2, other)}),
              name + " #17: rank 2 passed parts of f64, ranks 0-1 passed parts of f32");
    EXPECT_EQ(text_of({arrived(0, {.collective = collective, .count = 6}), arrived(1, parts)}),
              name + " #17: rank 0 passed 6 x f32 in equal parts, rank 1 passed parts of f32 with counts");
    EXPECT_EQ(text_of({arrived(0, {.count = 6}), arrived(1, parts)}),
              name + " #17: rank 0 passed all_reduce of 6 x f32 in no group, rank 1 passed " + name +
                  " of parts of f32 with counts");
  }
  EXPECT_EQ(text_of({arrived(0, {.collective = Collective::gather, .count = 6}),
                     arrived(1, {.collective = Collective::gather, .count = 9})}),
            "gather #17: rank 0 passed 6 x f32, rank 1 passed 9 x f32");
}

TEST(DescribeMismatch, StatesThatRecordsDoNotHoldTheDifference) {
  const Signature one{.op = ReduceOp::Kind::user, .count = 10, .op_detail = 1};
  Signature two = one;
  two.op_detail = 2;
  EXPECT_EQ(
      text_of({arrived(0, one, {.op = "\"long\""}), arrived(1, two, {.op = "\"long\""})}),
      "all_reduce #17: rank 0 passed 10 x f32 user \"long\", rank 1 passed 10 x f32 user \"long\"; arguments that "
      "are not shown here differ");
  EXPECT_EQ(text_of({arrived(0, one, {.name = "long"}), arrived(1, one, {.name = "long"})}),
            "all_reduce #17 (long): ranks 0-1 passed 10 x f32; names that are too long to show here differ");
}

TEST(DescribeMismatch, NamesRefusalsFirst) {
  EXPECT_EQ(text_of({arrived(0, {.count = 10}), arrived(1, {.count = 10}),
                     arrived(2, {.refused = true}, {.refusal = "output has 9 elements"})}),
            "all_reduce #17: rank 2 refused all_reduce #17: output has 9 elements, ranks 0-1 passed 10 x f32");
}

TEST(Signature, OfACallThatMovesDataHasTheForeignType) {
  const Call bytes{.collective = Collective::broadcast, .output = {nullptr, 16, DataType::u8}, .foreign_type = 7};
  Call other = bytes;
  other.foreign_type = 8;
  const auto hash = [](const Call& call) { return hash_of(sign(call, 0, 4, "auto", false, {}, false)); };
  EXPECT_NE(hash(bytes), hash(other));
  other.foreign_type = 7;
  EXPECT_EQ(hash(bytes), hash(other));
}

TEST(DescribeMismatch, UsesTheVocabularyOfAnotherInterface) {
  static constexpr Vocabulary words{
      [](const Signature&) noexcept -> std::string_view { return "Bcast"; },
      [](const Signature& s) { return std::to_string(s.count) + " odd " + std::to_string(s.op_detail); }};
  set_vocabulary(&words);
  const Signature known{.collective = Collective::broadcast, .count = 4};
  Signature odd = known;
  odd.op_detail = 7;
  EXPECT_EQ(text_of({arrived(0, known), arrived(1, odd)}), "Bcast #17: rank 0 passed 4 x f32, rank 1 passed 4 odd 7");
  set_vocabulary(nullptr);
}

TEST(DescribeMismatch, NamesTheRanksThatDifferInACallWithoutRecords) {
  std::vector<Arrived> records{arrived(0, {}), arrived(1, {}), arrived(2, {})};
  records[1].call.hash.before = 1;
  EXPECT_EQ(describe_earlier_mismatch(records).text,
            "all_reduce #17: rank 1 and ranks 0, 2 differ in a call before #17, of which no record is left");
}

TEST(DescribeMismatch, NamesRanksInTheirOrderHoweverTheirRecordsArrive) {
  std::vector<Arrived> records{arrived(1, {}), arrived(0, {})};
  records[0].call.hash.before = 1;
  EXPECT_EQ(describe_earlier_mismatch(records).text,
            "all_reduce #17: rank 0 and rank 1 differ in a call before #17, of which no record is left");
}

TEST(Agree, FindsCallsThatDifferAlthoughTheirHashesAreEqual) {
  replace_hash_for_tests([](const Signature& s) noexcept { return s.count <= 2 ? std::uint64_t{1} : s.count; });
  RunningHash a, b;
  a.append(hash_of({.count = 1}));
  b.append(hash_of({.count = 2}));
  EXPECT_EQ(a, b);
  EXPECT_FALSE(agree({1, a, {.count = 1}, {}}, {1, b, {.count = 2}, {}}));
  EXPECT_TRUE(agree({1, a, {.count = 1}, {}}, {1, b, {.count = 1}, {}}));
  replace_hash_for_tests(nullptr);
  EXPECT_NE(hash_of({.count = 1}), hash_of({.count = 2}));
}

}  // namespace
}  // namespace collectives::testing
