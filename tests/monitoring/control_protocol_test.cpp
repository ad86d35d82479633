// Tests of the control protocol, by which ranks of different hosts report failures, arrivals at calls and departures.
// They check the messages that a rank sends and when, and the effect of those that it receives.
#include "monitoring/control_protocol.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <deque>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "collectives/topology.hpp"

namespace collectives::testing {
namespace {

constexpr ArenaShape kOneRank{.ranks = 1, .inline_bytes = 64, .chunk_bytes = 64, .frame_bytes = 64};

/// Wire that keeps the control messages that the protocol sends, and delivers those that the test has put into it.
class ControlOnlyWire final : public Wire {
 public:
  std::string_view name() const noexcept override { return "control only"; }
  std::size_t frame_bytes() const noexcept override { return 64; }
  std::byte* acquire_frame(Rank) override { return nullptr; }
  void send(Rank, std::uint64_t, std::size_t) override {}
  const Message* receive(Rank) override { return nullptr; }
  void release(Rank) override {}
  void flush(Deadline) override {}
  void post_control(Rank to, std::string_view text) override {
    if (fails) throw std::runtime_error("broken");
    posted.emplace_back(to, text);
  }
  bool control_is_thread_safe() const noexcept override { return thread_safe; }
  std::optional<std::pair<Rank, std::string>> poll_control() override { return next_of(arriving); }
  bool detects_peer_failure() const noexcept override { return detects; }
  std::optional<std::pair<Rank, std::string>> poll_failed_peer() override { return next_of(failed); }
  bool is_blocked_on_failed_peer(Rank) const override { return blocked; }

  using Messages = std::deque<std::pair<Rank, std::string>>;
  Messages posted, arriving, failed;
  bool fails = false, thread_safe = false, detects = true, blocked = false;

 private:
  static std::optional<std::pair<Rank, std::string>> next_of(Messages& messages) {
    if (messages.empty()) return std::nullopt;
    auto message = std::move(messages.front());
    messages.pop_front();
    return message;
  }
};

/// The protocol of rank 0. Ranks 1 and 2 are alone on two other hosts.
class ControlProtocolTest : public ::testing::Test {
 protected:
  const RankView view{Topology::regular(3, 1), 0};
  const std::unique_ptr<Arena> arena = Arena::create(kOneRank);
  ControlOnlyWire wire;
  ArrivalTable arrivals{view, *arena};
  FirstFailure failure{arena->abort_block()};
  ControlProtocol protocol{view, wire, arrivals, failure};

  void arrive(std::uint64_t sequence) {
    arrivals.arrive(sequence, {1, 2}, pack({.count = 8}));
    protocol.begin_call();
  }
  void receive(Rank from, std::string bytes) {
    wire.arriving.emplace_back(from, std::move(bytes));
    protocol.poll();
  }
  std::string lost(std::uint64_t sequence) {
    const auto rank = protocol.first_lost(sequence);
    return rank ? std::to_string(rank->rank) + ": " + rank->how : "";
  }
};

const ControlOnlyWire::Messages kNothing;
/// Returns the beginning of a message, followed by the record of call 5.
std::string with_record(std::string bytes) { return std::move(bytes.append(" 0 5 1 2 8 0 0 0 0 0 0 0:")); }
ControlOnlyWire::Messages to_both(const std::string& bytes) { return {{1, bytes}, {2, bytes}}; }

TEST_F(ControlProtocolTest, SendsNoRecordsOfAShortCall) {
  const auto begun = std::chrono::steady_clock::now();
  arrive(5);
  protocol.poll();
  // A busy machine may have taken the core for longer than a short call lasts.
  if (std::chrono::steady_clock::now() - begun < std::chrono::milliseconds(100)) {
    EXPECT_EQ(wire.posted, kNothing);
  }
}

TEST_F(ControlProtocolTest, SendsAllRecordsOncePerCall) {
  arrive(5);
  protocol.send_all_records();
  protocol.send_all_records();
  protocol.poll();
  EXPECT_EQ(wire.posted, to_both(with_record("R")));
}

TEST_F(ControlProtocolTest, SendsTheRecordOfARefusalAtOnce) {
  arrive(5);
  protocol.send_newest_record();
  EXPECT_EQ(wire.posted, to_both(with_record("R")));
}

TEST_F(ControlProtocolTest, SendsNoRecordsAfterItsBeginOfLeaveIfTheWireDetectsNoFailedPeers) {
  for (const bool detects : {false, true}) {
    wire.detects = detects;
    arrive(5);
    protocol.begin_leave();
    protocol.send_all_records();
    protocol.poll();
    EXPECT_EQ(wire.posted.size(), detects ? 2u : 0u);
  }
}

TEST_F(ControlProtocolTest, AddsReceivedRecordsToTheTable) {
  receive(1, "R 1 5 1 2 16 0 0 0 0 0 0 0:");
  ASSERT_TRUE(arrivals.record_of(1, 5));
  EXPECT_EQ(arrivals.record_of(1, 5)->signature, Signature{.count = 16});
  EXPECT_FALSE(arrivals.has_arrived(2, 5));
}

TEST_F(ControlProtocolTest, SendsTheFailureOnce) {
  protocol.send_failure();
  EXPECT_EQ(wire.posted, kNothing);
  failure.store(Errc::timeout, 2, "barrier #5", "late");
  protocol.send_failure();
  protocol.send_failure();
  EXPECT_EQ(wire.posted, to_both("A 4 2\nbarrier #5\nlate"));
}

TEST_F(ControlProtocolTest, SendsTheFailureFromAnyThreadOnlyIfTheWireAllowsIt) {
  failure.store(Errc::aborted, 0, "abort", "enough");
  protocol.send_failure_from_any_thread();
  EXPECT_EQ(wire.posted, kNothing);
  wire.thread_safe = true;
  protocol.send_failure_from_any_thread();
  EXPECT_EQ(wire.posted, to_both("A 6 0\nabort\nenough"));
}

TEST_F(ControlProtocolTest, StoresAReceivedFailureAndPassesItOnOnce) {
  receive(2, "A 6 2\nabort\naborted by rank 2: enough");
  const auto received = failure.read();
  ASSERT_TRUE(received);
  EXPECT_EQ(received->code, Errc::aborted);
  EXPECT_EQ(received->peer, 2);
  EXPECT_EQ(received->text, "aborted by rank 2: enough");
  protocol.send_failure();
  protocol.send_failure();
  EXPECT_EQ(wire.posted, to_both("A 6 2\nabort\naborted by rank 2: enough"));
}

TEST_F(ControlProtocolTest, PassesNoFailureOnIfTheWireDetectsNoFailedPeers) {
  wire.detects = false;
  receive(2, "A 6 2\nabort\naborted by rank 2: enough");
  protocol.send_failure();
  EXPECT_EQ(wire.posted, kNothing);
}

TEST_F(ControlProtocolTest, NamesNoRankThatDoesNotExist) {
  receive(2, "A 5 2000000000\nbarrier #3\nlost");
  EXPECT_EQ(failure.read()->peer, kNoRank);
}

TEST_F(ControlProtocolTest, ReportsTheRankThatWasLostFirst) {
  wire.failed = {{2, "connection closed"}, {1, "connection closed"}};
  EXPECT_EQ(lost(5), "2: its process or host is gone (connection closed)");
  EXPECT_EQ(lost(5), "2: its process or host is gone (connection closed)") << "it stays the cause";
}

TEST_F(ControlProtocolTest, IgnoresMessagesThatItCannotDecode) {
  for (const char* bytes : {"", "A", "A 6 2", "A 77 2\nabort\nenough", "R", "R 5 1 16",
                            "R 9 5 1 2 16 0 0 0 0 0 0 0:", "L", "L x", "what", "\xff\xff"})
    receive(1, bytes);
  EXPECT_FALSE(failure.exists());
  EXPECT_FALSE(arrivals.has_arrived(1, 1));
  wire.failed.emplace_back(1, "connection reset by peer");
  EXPECT_EQ(lost(1), "1: its process or host is gone (connection reset by peer)");
}

TEST_F(ControlProtocolTest, SurvivesAWireThatThrows) {
  wire.fails = true;
  failure.store(Errc::timeout, 2, "barrier #5", "late");
  protocol.send_failure();
  protocol.announce_leave();
  EXPECT_EQ(wire.posted, kNothing);
}

TEST_F(ControlProtocolTest, AnnouncesItsLeaveWithTheLastCompletedCallAndItsRecords) {
  arrive(5);
  arrivals.complete(7);
  wire.detects = false;
  protocol.announce_leave();
  EXPECT_EQ(wire.posted, kNothing);
  wire.detects = true;
  protocol.announce_leave();
  EXPECT_EQ(wire.posted, to_both(with_record("L 7")));
}

TEST_F(ControlProtocolTest, ReportsALostRankUntilItHasCompletedTheCall) {
  EXPECT_EQ(lost(5), "");
  receive(2, "L 5 2 5 1 2 16 0 0 0 0 0 0 0:");
  EXPECT_TRUE(protocol.has_left(2));
  EXPECT_TRUE(arrivals.record_of(2, 5));
  EXPECT_EQ(lost(6), "") << "the rank is still connected";
  wire.failed.emplace_back(2, "connection closed");
  EXPECT_EQ(lost(5), "");
  EXPECT_EQ(lost(6), "2: it left the communicator after its call #5");
  wire.blocked = true;
  EXPECT_EQ(lost(5), "2: it left the communicator after its call #5");
}

TEST_F(ControlProtocolTest, AnswersAPingWithAnEcho) {
  receive(2, "P 9");
  EXPECT_EQ(wire.posted, (ControlOnlyWire::Messages{{2, "E 9"}}));
}

TEST_F(ControlProtocolTest, FindsTheRanksThatAnswerNoPing) {
  const std::vector<Rank> all{0, 1, 2};
  wire.arriving = {{1, "E 1"}, {2, "E 0"}};
  EXPECT_EQ(protocol.silent_of(all), std::vector<Rank>{2});
  EXPECT_EQ(wire.posted, to_both("P 1"));
  wire.arriving = {{1, "E 2"}, {2, "E 2"}};
  EXPECT_EQ(protocol.silent_of(all), std::vector<Rank>{});
}

TEST_F(ControlProtocolTest, PingsNoRankThatHasLeft) {
  receive(2, "L 5");
  wire.arriving = {{1, "E 1"}};
  EXPECT_EQ(protocol.silent_of(std::vector<Rank>{1, 2}), std::vector<Rank>{});
  EXPECT_EQ(wire.posted, (ControlOnlyWire::Messages{{1, "P 1"}}));
}

TEST_F(ControlProtocolTest, WaitsForNoEchoAfterAFailure) {
  wire.arriving = {{2, "A 6 2\nabort\naborted by rank 2: enough"}};
  std::chrono::nanoseconds shortest = std::chrono::hours(1);  // of several, because other programs may delay one
  for (int i = 0; i < 5; ++i) {
    const auto begun = std::chrono::steady_clock::now();
    EXPECT_EQ(protocol.silent_of(std::vector<Rank>{1}), std::vector<Rank>{1});
    EXPECT_TRUE(failure.exists());
    shortest = std::min<std::chrono::nanoseconds>(shortest, std::chrono::steady_clock::now() - begun);
  }
  EXPECT_LT(shortest, std::chrono::milliseconds(300));
}

TEST_F(ControlProtocolTest, ReportsARankThatHasLeftOnlyIfNoOtherRankWasLost) {
  receive(1, "L 5");
  wire.failed.emplace_back(1, "connection closed");
  EXPECT_EQ(lost(6), "1: it left the communicator after its call #5");
  wire.failed.emplace_back(2, "connection reset");
  EXPECT_EQ(lost(6), "2: its process or host is gone (connection reset)");
}

}  // namespace
}  // namespace collectives::testing
