// Tests of split() with ranks that are late and with ranks that send hostile bytes. Ranks are threads on one host, or
// on hosts that a queue connects.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/reported_wait.hpp"
#include "collectives/communicator.hpp"
#include "support/child.hpp"
#include "support/errors.hpp"
#include "support/hosts.hpp"
#include "support/ranks.hpp"
#include "support/system.hpp"

namespace collectives::testing {
namespace {

using namespace std::chrono_literals;

/// Blocks until stderr has the text `part`. Returns all of stderr up to then, or after 30 s.
std::string stderr_until(const StderrCapture& captured, std::string_view part) {
  std::string text;
  for (const Deadline patience = Deadline::in(30s); text.find(part) == text.npos && !patience.passed();) {
    std::this_thread::sleep_for(1ms);
    text += captured.text();
  }
  return text;
}

/// Runs ranks of which rank 1 calls split() only after two reports of long waits. Returns what they write to stderr.
std::string reports_of(const std::vector<int>& hosts) {
  ReportedWait::set_report_times(50ms, 50ms);
  const StderrCapture captured;
  std::string text;
  run_hosts(hosts, [&](Communicator& comm) {
    comm.barrier();
    if (comm.rank() == 1)
      for (int reports = 0; reports < 2; ++reports) text += stderr_until(captured, "still waiting");
    EXPECT_EQ(comm.split(0)->size(), comm.size());
  });
  return text;
}

TEST(Split, ReportsTheRanksForWhichItWaits) {
  if (kThreadSanitized) GTEST_SKIP() << "the thread sanitizer lets a forked child start no threads";
  for (const std::vector<int>& hosts : {std::vector<int>{0, 0, 0}, std::vector<int>{0, 1}}) {
    Child child([&](Line&) {
      const std::string text = reports_of(hosts);
      const bool named = text.find(
                             "warning: rank 0: still waiting: rank 1 did not take part in split() (rank 0 waited "
                             "0.") != text.npos;
      const bool answer = text.find("; last answer: ") != text.npos &&
                          (hosts.size() == 2 || text.find("rank 1 after barrier #1") != text.npos);
      const bool once = text.find("has waited for") == text.npos;  // the report of a call
      return named && answer && once ? 0 : 1;
    });
    EXPECT_EQ(child.wait(), 0) << hosts.size() << " ranks";
  }
}

TEST(Split, RefusesTheLengthThatAHostileRankAnnounces) {
  const auto mailbox = std::make_shared<WireMailbox>();
  // After color and key, each rank sends the length of its record, in 8 bytes.
  std::atomic<bool> hostile = false;
  mailbox->tamper = [&](Rank from, std::vector<std::byte>& bytes) {
    const std::uint64_t length = std::uint64_t{1} << 40;
    if (from != 1 || !hostile || bytes.size() != 2 * sizeof(int)) return;
    int values[2];
    std::memcpy(values, bytes.data(), sizeof values);
    if (values[0] == 77) return;  // color and key
    std::memcpy(bytes.data(), &length, sizeof length);
    hostile = false;
  };
  const std::size_t before = status_bytes("VmHWM");
  run_hosts(
      {0, 1},
      [&](Communicator& comm) {
        if (comm.rank() == 1) hostile = true;
        const Error error = error_of([&] { comm.split(77, comm.rank()); });
        EXPECT_EQ(error.code(), Errc::mismatch);
        EXPECT_SAYS(error.what(), "split: rank 1 announces a record of 1 TiB; at most 64 KiB are possible");
      },
      {.timeout = 20s}, {}, mailbox);
  EXPECT_LT(status_bytes("VmHWM"), before + (std::size_t{64} << 20));
}

}  // namespace
}  // namespace collectives::testing
