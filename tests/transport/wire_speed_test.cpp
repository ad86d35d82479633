// Tests of the measurement of a wire's speed by two ranks. Both ranks must take the same branches of the protocol,
// whatever they measure. The wire is a queue in memory, whose speed does not matter.
#include "communicator/wire_speed.hpp"

#include <gtest/gtest.h>

#include <chrono>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/reported_wait.hpp"
#include "collectives/plan.hpp"
#include "core/tuning.hpp"
#include "support/child.hpp"
#include "support/errors.hpp"
#include "support/hosts.hpp"
#include "support/ranks.hpp"
#include "support/system.hpp"

namespace collectives::testing {
namespace {

using namespace std::chrono_literals;

constexpr auto kPatience = std::chrono::seconds(60);

/// Runs f(wire, other, first) on two ranks at the same time. `other` is the rank of the peer. `first` is true on rank
/// 0.
template <class F>
void between_two(std::size_t frame_bytes, F&& f) {
  const auto mailbox = std::make_shared<WireMailbox>();
  run_ranks(2, [&](Bootstrap& threads) {
    const Rank self = threads.rank(), other = 1 - self;
    QueueWire wire(mailbox, {0, 1}, self, 0, frame_bytes);
    f(wire, other, self == 0);
    threads.all_gather("", Deadline::in(kPatience));
    EXPECT_EQ(wire.receive(other), nullptr) << "what one has sent, the other has taken";
  });
}

WireEnd end_of(Wire& wire, Rank other) { return {wire, 1 - other, other, Deadline::in(kPatience)}; }

class WireSpeedOf : public ::testing::TestWithParam<std::size_t> {};

TEST_P(WireSpeedOf, BothEndsComeToAnEndWithNumbers) {
  between_two(GetParam(), [](Wire& wire, Rank other, bool first) {
    const WireSpeed speed = measure(end_of(wire, other), first);
    EXPECT_GT(speed.us_per_byte, 0);
    EXPECT_EQ(speed.work_us_per_byte, speed.us_per_byte / 2) << "of both directions it took no longer than the whole";
    EXPECT_EQ(speed.together_us_per_byte, 0) << "not measured";
    EXPECT_GT(speed.reduce_us_per_byte, 0);
  });
}

TEST_P(WireSpeedOf, AllPairsTalkTheSameAboutTheSameNumbers) {
  for (const double us_per_byte : {4e-3, 1e-2})
    between_two(GetParam(), [&](Wire& wire, Rank other, bool) {
      const WireSpeed alone{.latency_us = 1, .message_us = 1, .us_per_byte = us_per_byte};
      EXPECT_NE(measure_together(end_of(wire, other), alone), 0);
    });
}

INSTANTIATE_TEST_SUITE_P(Frames, WireSpeedOf,
                         ::testing::Values(std::size_t{64}, std::size_t{96} << 10, std::size_t{512} << 10),
                         [](const auto& of) { return std::to_string(of.param) + "_bytes"; });

TEST(WireSpeed, MessagesThatDoNotBelongToTheMeasurementEndIt) {
  struct Wrong {
    std::uint64_t tag;
    std::size_t bytes;
  };
  constexpr std::uint64_t kTag = 0x73706565;
  for (const Wrong wrong : {Wrong{kTag + 1, 8}, Wrong{kTag, 7}, Wrong{kTag, 0}}) {
    const auto mailbox = std::make_shared<WireMailbox>();
    QueueWire mine(mailbox, {0, 1}, 0, 0, 64), theirs(mailbox, {0, 1}, 1, 0, 64);
    theirs.acquire_frame(0);
    theirs.send(0, wrong.tag, wrong.bytes);
    const Error error = error_of([&] { measure(end_of(mine, 1), false); });
    EXPECT_EQ(error.code(), Errc::bootstrap) << error.what();
    EXPECT_EQ(error.peer(), 1);
  }
}

/// Otherwise the number of another rank would decide how long this rank measures.
TEST(WireSpeed, AMeasurementThatTheOtherRankDoesNotEndIsRefused) {
  const auto mailbox = std::make_shared<WireMailbox>();
  QueueWire mine(mailbox, {0, 1}, 0, 0, 64), theirs(mailbox, {0, 1}, 1, 0, 64);
  std::jthread other([&](const std::stop_token& over) {  // Asks for one more train of short messages, without end.
    while (!over.stop_requested()) {
      theirs.progress();
      if (theirs.acquire_frame(0) != nullptr) theirs.send(0, 0x73706565, 8);
      if (theirs.receive(0) != nullptr) theirs.release(0);
    }
  });
  const Error error = error_of([&] { measure(end_of(mine, 1), false); });
  EXPECT_EQ(error.code(), Errc::bootstrap) << error.what();
}

TEST(WireSpeed, ADeathThatTheBootstrapKnowsEndsTheMeasurement) {
  const auto mailbox = std::make_shared<WireMailbox>();
  QueueWire wire(mailbox, {0, 1}, 0, 0, 64);
  WireEnd end = end_of(wire, 1);
  end.check_peers = [] { throw Error(Errc::peer_lost, "rank 1 is gone", 0, 1); };
  for (const bool first : {true, false}) {
    const Error error = error_of([&] { measure(end, first); });
    EXPECT_EQ(error.code(), Errc::peer_lost) << error.what();
  }
}

TEST(WireSpeed, ALongWaitIsReportedWithTheAwaitedRank) {
  Child child([](Line&) {
    ReportedWait::set_report_times(50ms, 50ms);
    const StderrCapture captured;
    const auto mailbox = std::make_shared<WireMailbox>();
    QueueWire wire(mailbox, {0, 1}, 0, 0, 64);
    WireEnd end = end_of(wire, 1);
    end.deadline = Deadline::in(1s);
    if (error_of([&] { measure(end, false); }).code() != Errc::timeout) return 1;
    const std::string text = captured.text();
    return text.find("still waiting: rank 1 did not answer in the measurement of the wire (rank 0 waited 0.") !=
                   text.npos
               ? 0
               : 2;
  });
  EXPECT_EQ(child.wait(), 0);
}

TEST(WireSpeed, WorkPerByteIsTheSmallerOfTwoMeasurements) {
  const WireSpeed fast{.latency_us = 1, .message_us = 2, .us_per_byte = 3e-4, .work_us_per_byte = 1.5e-4};
  TuningParameters tuning;
  tuning.wire_work_us_per_byte = 2e-4;
  fast.put_into(tuning);
  EXPECT_EQ(tuning.wire_work_us_per_byte, 1.5e-4);
  EXPECT_EQ(tuning.wire_us_per_byte, 3e-4);
  tuning.wire_work_us_per_byte = 1e-4;
  fast.put_into(tuning);
  EXPECT_EQ(tuning.wire_work_us_per_byte, 1e-4);
}

/// A communicator that finds the numbers in the cache must plan like the one that has measured them.
TEST(WireSpeed, TheCacheKeepsAllThatWasMeasured) {
  TuningParameters measured;
  WireSpeed{.latency_us = 1,
            .message_us = 2,
            .us_per_byte = 3e-4,
            .together_us_per_byte = 4e-4,
            .work_us_per_byte = 1.5e-4,
            .reduce_us_per_byte = 2e-5}
      .put_into(measured);
  TuningParameters found;
  const nlohmann::json kept = WireSpeed::from(measured).to_json();
  for (const auto& [name, value] : kept.items()) {
    const nlohmann::json all = to_json(found);
    EXPECT_NE(all.at(name), value) << name << ": was that already";
    read_json({{name, value}}, found, "the cache");
  }
  EXPECT_EQ(to_json(found), to_json(measured));
}

}  // namespace
}  // namespace collectives::testing
