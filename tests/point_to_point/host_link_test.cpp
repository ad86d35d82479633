// Tests of HostLink, which carries messages between two ranks of one host. In these tests, one thread performs both
// ranks. Some messages arrive in part: the test writes the lines of the sender itself.
#include "point_to_point/host_link.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <memory>
#include <vector>

namespace collectives::testing {
namespace {

std::vector<std::byte> pattern(std::size_t bytes, unsigned seed) {
  std::vector<std::byte> all(bytes);
  for (std::size_t i = 0; i < bytes; ++i) all[i] = static_cast<std::byte>(i * 31 + i / 251 + seed);
  return all;
}

class HostLinkTest : public ::testing::Test {
 protected:
  static constexpr ArenaShape kShape{.ranks = 2, .inline_bytes = 64, .chunk_bytes = 64, .frame_bytes = 64};

  bool send(const std::vector<std::byte>& payload, MessageKind kind = MessageKind::eager) {
    return to_.send({.kind = kind, .tag = 5, .bytes = payload.size()}, payload.data(), payload.size());
  }
  void expect_next(const std::vector<std::byte>& payload) {
    const Envelope* const arrived = from_.arrived();
    ASSERT_NE(arrived, nullptr);
    EXPECT_EQ(arrived->bytes, payload.size());
    EXPECT_EQ(from_.payload_bytes(), payload.size());
    EXPECT_TRUE(from_.is_complete());
    std::vector<std::byte> got(payload.size());
    EXPECT_TRUE(from_.take(got.data()));
    EXPECT_TRUE(got == payload) << payload.size() << " bytes";
  }

  std::unique_ptr<Arena> first_ = Arena::create(kShape), second_ = Arena::join(first_->handle(), kShape, 1);
  HostLink to_{*first_, 1}, from_{*second_, 0};
};

TEST_F(HostLinkTest, CarriesPayloadsOfEveryLength) {
  for (int lap = 0; lap < 3; ++lap)
    for (const std::size_t bytes : {0U, 1U, 40U, 41U, 432U, 433U, 8191U, 8192U, 8193U, 16'384U, 40'000U, 65'536U}) {
      const auto payload = pattern(bytes, static_cast<unsigned>(lap));
      ASSERT_TRUE(send(payload)) << bytes;
      expect_next(payload);
    }
}

TEST_F(HostLinkTest, RefusesAMessageWithoutSpaceAndTakesItLater) {
  struct Case {
    std::size_t bytes;
    int sent;
  };
  // The short ring has space for 18 payloads of 7,000 bytes. The channel has lines for 12 payloads of 5 pieces.
  for (const auto& [bytes, most] : {Case{7'000, 18}, Case{40'000, 12}}) {
    const auto payload = pattern(bytes, 1);
    int sent = 0;
    while (send(payload)) ++sent;
    EXPECT_EQ(sent, most) << bytes;
    for (int i = 0; i < most; ++i) expect_next(payload);
    EXPECT_EQ(from_.arrived(), nullptr);
    EXPECT_TRUE(send(payload));
    expect_next(payload);
  }
}

TEST_F(HostLinkTest, UsesBothRingsInTurnManyTimes) {
  for (unsigned turn = 0; turn < 200; ++turn) {
    const auto longer = pattern(30'000 + turn, turn), shorter = pattern(5'000 + turn, turn);
    ASSERT_TRUE(send(longer) && send(shorter)) << turn;
    expect_next(longer);
    expect_next(shorter);
  }
}

TEST_F(HostLinkTest, TakesTheArrivedPartOfAPayload) {
  const auto payload = pattern(20'000, 2);
  MessageChannel& channel = first_->messages(0, 1);
  Envelope envelope{.kind = MessageKind::eager, .unused = 1, .tag = 5, .bytes = payload.size()};
  envelope.name = payload.size();
  std::memcpy(channel.lines[0].payload, &envelope, sizeof envelope);
  std::ranges::copy(payload, channel.long_ring(first_->ranks()).begin());
  EXPECT_EQ(from_.arrived(), nullptr);

  constexpr std::size_t kPiece = 8 << 10;
  std::vector<std::byte> got(payload.size());
  for (std::size_t pieces = 1; pieces <= 2; ++pieces) {
    channel.lines[pieces - 1].stamp.store(pieces);
    ASSERT_NE(from_.arrived(), nullptr);
    EXPECT_FALSE(from_.is_complete());
    EXPECT_FALSE(from_.take(got.data()));
    const auto here = static_cast<std::ptrdiff_t>(pieces * kPiece);
    EXPECT_TRUE(std::equal(got.begin(), got.begin() + here, payload.begin()));
    EXPECT_TRUE(std::all_of(got.begin() + here, got.end(), [](std::byte one) { return one == std::byte{0}; }));
  }
  channel.lines[2].stamp.store(3);
  EXPECT_TRUE(from_.is_complete());
  EXPECT_TRUE(from_.take(got.data()));
  EXPECT_TRUE(got == payload);
  EXPECT_EQ(from_.arrived(), nullptr);
}

}  // namespace
}  // namespace collectives::testing
