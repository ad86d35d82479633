// Tests of ReportedWait: a deadline, reports and a check of peers for one wait. Tests of the bootstrap read the
// reports.
#include "base/reported_wait.hpp"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <chrono>
#include <string>
#include <thread>

#include "base/error_text.hpp"
#include "support/child.hpp"
#include "support/system.hpp"

namespace collectives::testing {
namespace {

using namespace std::chrono_literals;

TEST(ReportedWait, TimeoutNamesRanksPlaceTimeAndLastAnswer) {
  ReportedWait wait("connect over tcp", 2, Deadline::in(0s), [] {
    return ReportedWait::Awaited{.ranks = {0, 1, 5}, .last_answer = "Connection refused", .hint = "is it up?"};
  });
  try {
    wait.turn();
    FAIL() << "the deadline has passed";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Errc::timeout);
    EXPECT_EQ(error.rank(), 2);
    EXPECT_EQ(error.peer(), 0);
    EXPECT_EQ(
        std::string(error.what()),
        "ranks 0-1, 5 did not connect over tcp (rank 2 waited 0.0 s); last answer: Connection refused; is it up?");
  }
}

TEST(ReportedWait, CheckThrowsBeforeTheDeadline) {
  int checks = 0;
  ReportedWait wait("come", 0, Deadline::never(), {}, [&] {
    if (++checks == 3) throw Error(Errc::peer_lost, "rank 1 was lost");
  });
  const auto patience = Deadline::in(60s);
  EXPECT_THROW(
      while (!patience.passed()) {
        EXPECT_LE(wait.milliseconds_left(), 10);
        wait.turn();
      },
      Error);
  EXPECT_EQ(checks, 3);
}

TEST(ReportedWait, PollEndsBeforeTheNextReport) {
  ReportedWait wait("come", 0, Deadline::never());
  EXPECT_EQ(wait.milliseconds_left(1000), 1000);
  EXPECT_LE(wait.milliseconds_left(3'600'000), 10'000);
}

TEST(ErrorText, LimitOfDescriptorsIsNamed) {
  Child child([](Line&) {
    set_limit(RLIMIT_NOFILE, 68);
    return error_text(EMFILE) == "no file descriptor is left: RLIMIT_NOFILE is 68 (raise it with ulimit -n)" ? 0 : 1;
  });
  EXPECT_EQ(child.wait(), 0);
}

TEST(ErrorText, SoftLimitOfDescriptorsIsRaisedIfNeeded) {
  Child child([](Line&) {
    const rlimit soft{68, 4096};
    rlimit now{};
    if (::setrlimit(RLIMIT_NOFILE, &soft) != 0) return 2;
    make_space_for_descriptors(100);
    ::getrlimit(RLIMIT_NOFILE, &now);
    return now.rlim_cur == 4096 && now.rlim_max == 4096 ? 0 : 1;
  });
  EXPECT_EQ(child.wait(), 0);
}

}  // namespace
}  // namespace collectives::testing
