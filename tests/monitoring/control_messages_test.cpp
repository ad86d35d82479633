// Tests of control messages, by which ranks of different hosts report failures, arrivals at calls and departures. They
// check the bytes of each message, and that other bytes are rejected.
#include "monitoring/control_messages.hpp"

#include <gtest/gtest.h>

#include <string>
#include <string_view>
#include <variant>

namespace collectives::testing {
namespace {

using namespace std::string_view_literals;

Signature signature_of_all_fields() {
  return {.collective = Collective::broadcast,
          .type = DataType::bf16,
          .op = ReduceOp::Kind::max,
          .backend = 2,
          .deterministic = true,
          .has_counts = true,
          .memory = Memory::device,
          .root = 3,
          .count = ~std::uint64_t{0},
          .op_detail = 5,
          .counts_hash = 6,
          .wire = WireName("int8", 7),
          .force = true,
          .refused = true,
          .split = true};
}

CallRecord record_of_all_fields() {
  return {.sequence = ~std::uint64_t{0},
          .hash = {~std::uint64_t{0} - 1, 2},
          .signature = signature_of_all_fields(),
          .details = {.name = "fc1 =:\n", .op = "\"one\"", .compression = "c", .refusal = "r", .lengths = {1, 2, 3}}};
}

void expect_equal(const Arrived& a, const Arrived& b) {
  EXPECT_EQ(a.rank, b.rank);
  EXPECT_EQ(a.call.sequence, b.call.sequence);
  EXPECT_EQ(a.call.hash, b.call.hash);
  EXPECT_EQ(a.call.signature, b.call.signature);
  EXPECT_EQ(a.call.details, b.call.details);
}

template <class Message>
bool is(std::string_view bytes) {
  return std::holds_alternative<Message>(decode_control_message(bytes));
}

/// Expects that no prefix of `bytes` with fewer than `shortest` bytes is a message of this kind.
template <class Message>
void expect_no_begin_is_decoded(std::string_view bytes, std::size_t shortest) {
  for (std::size_t length = 0; length < shortest; ++length)
    EXPECT_FALSE(Message::decode(bytes.substr(0, length))) << length;
}

TEST(AbortMessage, HasTheBytesOfTheProtocol) {
  const AbortMessage message{{Errc::peer_lost, 3, "all_reduce #17", "all_reduce #17: rank 3 was lost"}};
  EXPECT_EQ(message.encode(), "A 5 3\nall_reduce #17\nall_reduce #17: rank 3 was lost");
}

TEST(AbortMessage, IsDecodedToTheSameFields) {
  for (const Errc code : {Errc::invalid_argument, Errc::aborted, Errc::system})
    for (const Rank peer : {kNoRank, 0, 123456})
      for (const char* text : {"", "one line", "two\nlines\n", "\n"}) {
        const auto message = AbortMessage::decode(AbortMessage{{code, peer, "barrier #1", text}}.encode());
        ASSERT_TRUE(message);
        EXPECT_EQ(message->failure.code, code);
        EXPECT_EQ(message->failure.peer, peer);
        EXPECT_EQ(message->failure.operation, "barrier #1");
        EXPECT_EQ(message->failure.text, text);
      }
}

TEST(AbortMessage, MayHaveAnEmptyOperation) {
  const auto message = AbortMessage::decode("A 6 0\n\ntext");
  ASSERT_TRUE(message);
  EXPECT_EQ(message->failure.operation, "");
  EXPECT_EQ(message->failure.text, "text");
}

TEST(AbortMessage, IsRejectedIfItIsTruncatedBeforeItsText) {
  expect_no_begin_is_decoded<AbortMessage>("A 5 3\nall_reduce #17\nlost", "A 5 3\nall_reduce #17\n"sv.size());
}

TEST(AbortMessage, IsRejectedIfItIsMalformed) {
  for (const std::string_view bytes :
       {"A 0 3\nbarrier\nlost"sv, "A 9 3\nbarrier\nlost"sv, "A 4294967301 3\nbarrier\nlost"sv,
        "A -5 3\nbarrier\nlost"sv, "A 5 -2\nbarrier\nlost"sv, "A 5 99999999999\nbarrier\nlost"sv,
        "A 5\nbarrier\nlost"sv, "A  5 3\nbarrier\nlost"sv, "A 5 3 barrier\nlost"sv, "A five 3\nbarrier\nlost"sv,
        "a 5 3\nbarrier\nlost"sv, "A 5 3\0\nbarrier\nlost"sv})
    EXPECT_FALSE(AbortMessage::decode(bytes)) << bytes;
}

TEST(AbortMessage, KeepsTextsThatContainZeroBytesOrAreLong) {
  const auto with_zero = AbortMessage::decode("A 5 3\nbar\0rier\nlo\0st"sv);
  ASSERT_TRUE(with_zero);
  EXPECT_EQ(with_zero->failure.operation, "bar\0rier"sv);
  EXPECT_EQ(with_zero->failure.text, "lo\0st"sv);
  const std::string text(1'000'000, 'x');
  const auto oversized = AbortMessage::decode("A 5 3\n" + text + "\n" + text);
  ASSERT_TRUE(oversized);
  EXPECT_EQ(oversized->failure.operation, text);
  EXPECT_EQ(oversized->failure.text, text);
}

TEST(AbortMessage, IsDecodedFromBytesWithoutATerminatingZero) {
  const std::string_view longer = "A 5 31234";
  EXPECT_FALSE(AbortMessage::decode(longer.substr(0, 6)));
  const auto message = LeaveMessage::decode("L 1234"sv.substr(0, 4));
  ASSERT_TRUE(message);
  EXPECT_EQ(message->completed, 12u);
}

TEST(ArrivalMessage, HasTheBytesOfTheProtocol) {
  EXPECT_EQ((ArrivalMessage{{}}.encode()), "R");
  const Signature signature{.collective = Collective::reduce_scatter, .root = 0, .count = 4096};
  CallRecord first{17, {5, 6}, signature, {}}, next{18, {6, 7}, signature, {}};
  EXPECT_EQ((ArrivalMessage{{{2, first}, {2, next}, {5, next}}}.encode()),
            "R 2 17 5 6 4096 1 0 0 0 0 0 0: =7 5 18 6 7 4096 1 0 0 0 0 0 0:");
  first.details.name = "fc1";
  EXPECT_EQ((ArrivalMessage{{{2, first}}}.encode()), "R 2 17 5 6 4096 1 0 0 0 0 0 6:n\3\0fc1"sv);
}

TEST(ArrivalMessage, IsDecodedToTheSameFields) {
  CallRecord next = record_of_all_fields();
  next.sequence = 0;
  next.hash = {2, 3};
  const ArrivalMessage message{
      {{0, record_of_all_fields()}, {0, next}, {7, CallRecord()}, {7, record_of_all_fields()}}};
  const auto decoded = ArrivalMessage::decode(message.encode());
  ASSERT_TRUE(decoded);
  ASSERT_EQ(decoded->records.size(), message.records.size());
  for (std::size_t i = 0; i < message.records.size(); ++i) expect_equal(decoded->records[i], message.records[i]);
}

TEST(ArrivalMessage, IsRejectedIfARecordIsTruncated) {
  const std::string bytes = ArrivalMessage{{{2, record_of_all_fields()}}}.encode();
  ASSERT_TRUE(ArrivalMessage::decode(bytes));
  for (std::size_t length = 2; length < bytes.size(); ++length)
    EXPECT_FALSE(ArrivalMessage::decode(std::string_view(bytes).substr(0, length))) << length;
}

TEST(ArrivalMessage, IsRejectedIfItIsMalformed) {
  for (const std::string_view bytes :
       {""sv, "R "sv, "R -1"sv, "R x"sv, "R 17 "sv, "R\n"sv, "R =7"sv, "R  2 17 5 6 1 0 0 0 0 0 0 0:"sv,
        "R -2 17 5 6 1 0 0 0 0 0 0 0:"sv, "R 99999999999 17 5 6 1 0 0 0 0 0 0 0:"sv,
        "R 2 17 5 6 1 0 0 0 0 0 18446744073709551616 0:"sv, "R 2 17 5 6 1 0 0 x 0 0 0 0:"sv,
        "R 2 17 5 6 1 0 0 0 0 0 0 0: "sv, "R 2 17 5 6 1 0 0 0 0 0 0 0:\0"sv, "R 2 17 5 6 1 0 0 0 0 0 0 1:"sv,
        "R 2 17 5 6 1 0 0 0 0 0 0 99999:"sv, "R 2 17 5 6 1 0 0 0 0 0 0 0: ="sv, "R 2 17 5 6 1 0 0 0 0 0 0"sv, "r"sv})
    EXPECT_FALSE(ArrivalMessage::decode(bytes)) << bytes;
}

TEST(ArrivalMessage, MayNameValuesThatNoCallHas) {
  const auto decoded =
      ArrivalMessage::decode("R 2 1 0 0 18446744073709551615 18446744073709551583 0 0 1 2 3 3:n\xff\xff");
  ASSERT_TRUE(decoded);
  EXPECT_FALSE(describe_mismatch({{0, CallRecord()}, decoded->records[0]}).text.empty());
}

TEST(ArrivalMessage, MayHaveManyRecordsWithinItsLimit) {
  ArrivalMessage message;
  for (Rank rank = 0; rank < 10'000; ++rank) message.records.push_back({rank, record_of_all_fields()});
  const auto decoded = ArrivalMessage::decode(message.encode());
  ASSERT_TRUE(decoded);
  ASSERT_EQ(decoded->records.size(), message.records.size());
  EXPECT_EQ(decoded->records.back().rank, 9'999);
  std::string bytes = "R 2 17 5 6 1 0 0 0 0 0 0 0:";
  for (std::size_t i = 1; i < kMostRecords; ++i) bytes += " =1";
  EXPECT_TRUE(ArrivalMessage::decode(bytes));
  EXPECT_FALSE(ArrivalMessage::decode(bytes + " =1"));
}

TEST(LeaveMessage, IsDecodedToTheSameFields) {
  EXPECT_EQ(LeaveMessage{17}.encode(), "L 17");
  for (const std::uint64_t completed : {std::uint64_t{0}, std::uint64_t{17}, ~std::uint64_t{0}}) {
    const auto message = LeaveMessage::decode(LeaveMessage{completed, {{3, record_of_all_fields()}}}.encode());
    ASSERT_TRUE(message);
    EXPECT_EQ(message->completed, completed);
    ASSERT_EQ(message->records.size(), 1u);
    expect_equal(message->records[0], {3, record_of_all_fields()});
  }
}

TEST(LeaveMessage, IsRejectedIfItIsMalformed) {
  for (const std::string_view bytes :
       {""sv, "L"sv, "L "sv, "L -1"sv, "L 1 "sv, "L 1x"sv, "L  1"sv, "L 1\0"sv, "L 18446744073709551616"sv, "l 1"sv})
    EXPECT_FALSE(LeaveMessage::decode(bytes)) << bytes;
}

TEST(PingMessage, IsDecodedToTheSameFields) {
  EXPECT_EQ((PingMessage{17, false}.encode()), "P 17");
  EXPECT_EQ((PingMessage{17, true}.encode()), "E 17");
  for (const bool is_echo : {false, true}) {
    const auto message = PingMessage::decode(PingMessage{~std::uint64_t{0}, is_echo}.encode());
    ASSERT_TRUE(message);
    EXPECT_EQ(message->number, ~std::uint64_t{0});
    EXPECT_EQ(message->is_echo, is_echo);
  }
}

TEST(PingMessage, IsRejectedIfItIsMalformed) {
  for (const std::string_view bytes : {""sv, "P"sv, "P "sv, "E"sv, "E x"sv, "P -1"sv, "P 1 "sv, "P 1\0"sv, "p 1"sv})
    EXPECT_FALSE(PingMessage::decode(bytes)) << bytes;
}

TEST(MemberMessage, IsDecodedToTheSameFields) {
  EXPECT_EQ((MemberMessage{1, 2, 3, 4, 5, "0,1", "two\nlines"}.encode()), "G 1 2 3 4 5\n0,1\ntwo\nlines");
  for (const char* text : {"", "one line", "two\nlines\n", "\n"}) {
    const auto message = MemberMessage::decode(MemberMessage{1, 2, 3, 4, MemberMessage::kFailed, "2,0", text}.encode());
    ASSERT_TRUE(message);
    EXPECT_EQ(message->number, 1u);
    EXPECT_EQ(message->answered, 2u);
    EXPECT_EQ(message->name, 3u);
    EXPECT_EQ(message->creation, 4u);
    EXPECT_EQ(message->round, MemberMessage::kFailed);
    EXPECT_EQ(message->list, "2,0");
    EXPECT_EQ(message->text, text);
  }
}

TEST(MemberMessage, IsRejectedIfItIsMalformed) {
  expect_no_begin_is_decoded<MemberMessage>("G 1 2 3 4 5\n0,1\ntext", "G 1 2 3 4 5\n0,1\n"sv.size());
  for (const std::string_view bytes :
       {"G -1 2 3 4 5\n\n"sv, "G 1 2 3 4\n\n"sv, "G  1 2 3 4 5\n\n"sv, "G 1 2 3 4 5 6\n\n"sv, "G 1 2 3 4 5\0\n\n"sv,
        "G 1 2 3 4 18446744073709551616\n\n"sv, "g 1 2 3 4 5\n\n"sv})
    EXPECT_FALSE(MemberMessage::decode(bytes)) << bytes;
}

TEST(ControlMessage, HasTheKindOfItsFirstLetter) {
  EXPECT_TRUE(is<AbortMessage>("A 6 0\nabort\naborted by rank 0: enough"));
  EXPECT_TRUE(is<ArrivalMessage>("R"));
  EXPECT_TRUE(is<LeaveMessage>("L 1"));
  EXPECT_TRUE(is<PingMessage>("P 1"));
  EXPECT_TRUE(is<PingMessage>("E 1"));
  EXPECT_TRUE(is<MemberMessage>("G 1 2 3 4 5\n0,1\ntext"));
  for (const std::string_view bytes : {""sv, "A"sv, "X 1"sv, "\0"sv, " R 1"sv, "\xff\xfe\xfd"sv})
    EXPECT_TRUE(is<std::monostate>(bytes)) << bytes;
}

}  // namespace
}  // namespace collectives::testing
