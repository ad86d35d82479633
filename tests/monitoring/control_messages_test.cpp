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
          .force = true};
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
  EXPECT_EQ((ArrivalMessage{17, {}}.encode()), "R 17");
  const Signature signature{.collective = Collective::reduce_scatter, .root = 0, .count = 4096};
  EXPECT_EQ((ArrivalMessage{17, {{2, signature}, {5, signature}}}.encode()),
            "R 17 2 4096 1 0 0 0 0 0 5 4096 1 0 0 0 0 0");
}

TEST(ArrivalMessage, IsDecodedToTheSameFields) {
  const ArrivalMessage message{~std::uint64_t{0}, {{0, signature_of_all_fields()}, {7, Signature()}}};
  const auto decoded = ArrivalMessage::decode(message.encode());
  ASSERT_TRUE(decoded);
  EXPECT_EQ(decoded->sequence, message.sequence);
  ASSERT_EQ(decoded->arrived.size(), 2u);
  EXPECT_EQ(decoded->arrived[0].rank, 0);
  EXPECT_EQ(decoded->arrived[0].signature, signature_of_all_fields());
  EXPECT_EQ(decoded->arrived[1].rank, 7);
  EXPECT_EQ(decoded->arrived[1].signature, Signature());
}

TEST(ArrivalMessage, IsRejectedIfARecordIsTruncated) {
  const std::string bytes = ArrivalMessage{17, {{2, signature_of_all_fields()}}}.encode();
  ASSERT_TRUE(ArrivalMessage::decode(bytes));
  expect_no_begin_is_decoded<ArrivalMessage>(bytes, 3);
  for (std::size_t length = "R 17 "sv.size(); length <= bytes.rfind(' '); ++length)
    EXPECT_FALSE(ArrivalMessage::decode(std::string_view(bytes).substr(0, length))) << length;
}

TEST(ArrivalMessage, IsRejectedIfItIsMalformed) {
  for (const std::string_view bytes :
       {"R"sv, "R "sv, "R -1"sv, "R x"sv, "R 17 "sv, "R 17\n"sv, "R 17  2 1 0 0 0 0 0 0"sv, "R 17 -2 1 0 0 0 0 0 0"sv,
        "R 17 99999999999 1 0 0 0 0 0 0"sv, "R 17 2 1 0 0 0 0 0 18446744073709551616"sv, "R 17 2 1 0 0 x 0 0 0"sv,
        "R 17 2 1 0 0 0 0 0 0 "sv, "R 17 2 1 0 0 0 0 0 0\0"sv, "R 18446744073709551616"sv, "r 17"sv})
    EXPECT_FALSE(ArrivalMessage::decode(bytes)) << bytes;
}

TEST(ArrivalMessage, MayNameValuesThatNoCallHas) {
  const auto decoded = ArrivalMessage::decode("R 1 2 18446744073709551615 18446744073709551615 0 0 1 2 3");
  ASSERT_TRUE(decoded);
  EXPECT_NE(describe_mismatch({{0, Signature()}, decoded->arrived[0]}).find("unknown type"), std::string::npos);
}

TEST(ArrivalMessage, MayHaveManyRecords) {
  ArrivalMessage message{1, {}};
  for (Rank rank = 0; rank < 10'000; ++rank) message.arrived.push_back({rank, signature_of_all_fields()});
  const auto decoded = ArrivalMessage::decode(message.encode());
  ASSERT_TRUE(decoded);
  ASSERT_EQ(decoded->arrived.size(), message.arrived.size());
  EXPECT_EQ(decoded->arrived.back().rank, 9'999);
}

TEST(LeaveMessage, IsDecodedToTheSameField) {
  EXPECT_EQ(LeaveMessage{17}.encode(), "L 17");
  for (const std::uint64_t completed : {std::uint64_t{0}, std::uint64_t{17}, ~std::uint64_t{0}}) {
    const auto message = LeaveMessage::decode(LeaveMessage{completed}.encode());
    ASSERT_TRUE(message);
    EXPECT_EQ(message->completed, completed);
  }
}

TEST(LeaveMessage, IsRejectedIfItIsMalformed) {
  for (const std::string_view bytes :
       {""sv, "L"sv, "L "sv, "L -1"sv, "L 1 "sv, "L 1x"sv, "L  1"sv, "L 1\0"sv, "L 18446744073709551616"sv, "l 1"sv})
    EXPECT_FALSE(LeaveMessage::decode(bytes)) << bytes;
}

TEST(ControlMessage, HasTheKindOfItsFirstLetter) {
  EXPECT_TRUE(is<AbortMessage>("A 6 0\nabort\naborted by rank 0: enough"));
  EXPECT_TRUE(is<ArrivalMessage>("R 1"));
  EXPECT_TRUE(is<LeaveMessage>("L 1"));
  for (const std::string_view bytes : {""sv, "A"sv, "X 1"sv, "\0"sv, " R 1"sv, "\xff\xfe\xfd"sv})
    EXPECT_TRUE(is<std::monostate>(bytes)) << bytes;
}

}  // namespace
}  // namespace collectives::testing
