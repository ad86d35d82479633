// Tests of Wires, which chooses the wire between hosts: long waits are reported, and of several errors the cause is
// thrown. Ranks are threads.
#include "transport/wires.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/json.hpp"
#include "base/reported_wait.hpp"
#include "bootstrap/exchange.hpp"
#include "support/child.hpp"
#include "support/errors.hpp"
#include "support/ranks.hpp"
#include "support/system.hpp"

namespace collectives::testing {
namespace {

using namespace std::chrono_literals;
using nlohmann::json;

Wires::Situation two_hosts(Rank rank, const std::string& asked_for) {
  return {.rank = rank,
          .hosts = {{0}, {1}},
          .token = "00112233445566778899aabbccddeeff",
          .frame_bytes = 64,
          .asked_for = asked_for,
          .factory = {},
          .context = 0,
          .deadline = Deadline::in(1min),
          .check_peers = {}};
}

/// Connects two ranks over TCP. Rank 1 begins to connect only after a report of rank 0. Returns what is on stderr.
std::string report_of_rank_0() {
  ReportedWait::set_report_times(50ms, 50ms);
  const StderrCapture captured;
  std::string text;
  run_ranks(2, [&](Bootstrap& bootstrap) {
    bool has_offered = false;
    Wires wires(two_hosts(bootstrap.rank(), "tcp"), [&](const json& mine, bool) {
      auto all = exchange(bootstrap, mine, Deadline::in(1min), OnError::collect);
      const bool waits = bootstrap.rank() == 1 && !std::exchange(has_offered, true);
      for (const Deadline patience = Deadline::in(20s); waits && text.find("connect over") == text.npos;) {
        if (patience.passed()) break;
        std::this_thread::sleep_for(1ms);
        text += captured.text();
      }
      return all;
    });
    EXPECT_EQ(wires.connect()->name(), "tcp");
  });
  return text;
}

TEST(Wires, ReportTheRankThatDoesNotConnect) {
  if (kThreadSanitized) GTEST_SKIP() << "the thread sanitizer lets a forked child start no threads";
  Child child([](Line&) {
    const std::string text = report_of_rank_0();
    const bool named =
        text.find("warning: rank 0: still waiting: rank 1 did not connect over tcp (rank 0 waited 0.") != text.npos;
    return named && text.find("; last answer: rank 1 did not connect to this rank, which listens at") != text.npos ? 0
                                                                                                                   : 1;
  });
  EXPECT_EQ(child.wait(), 0);
}

TEST(Wires, ThrowTheErrorThatIsTheCauseOfTheOthers) {
  const auto error_of_rank = [](Errc code, const char* text) {
    return attempt([&]() -> json { throw Error(code, text); });
  };
  const json offer{{"wires", {{"fake", ""}}}, {"why_not", json::object()}, {"fast", false}};
  for (const Errc consequence : {Errc::peer_lost, Errc::timeout}) {
    int exchanges = 0;
    Wires::Situation situation = two_hosts(0, "fake");
    situation.factory = {"fake", true,
                         [](const auto&, std::size_t, std::size_t) -> std::unique_ptr<Wire> { return nullptr; },
                         std::make_shared<std::atomic<std::size_t>>(0)};
    Wires wires(situation, [&](const json&, bool is_last) {
      EXPECT_TRUE(is_last);
      const json first = error_of_rank(consequence, "rank 1 was lost"),
                 second = error_of_rank(Errc::system, "no memory");
      const bool offers = exchanges++ == 0;
      return std::vector<JsonRecord>{record_of(0, json_text(offers ? offer : first)),
                                     record_of(1, json_text(offers ? offer : second))};
    });
    const Error error = error_of([&] { wires.connect(); });
    EXPECT_EQ(error.code(), Errc::system);
    EXPECT_EQ(error.peer(), 1);
    EXPECT_SAYS(error.what(), "rank 1: no memory");
  }
}

}  // namespace
}  // namespace collectives::testing
