// Implementation of ReportedWait. A loop that waits for other ranks calls ReportedWait after each test of its
// condition. ReportedWait checks whether a peer is lost, throws an error after the deadline, and logs a warning if the
// wait lasts long.
#include "base/reported_wait.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <utility>

#include "base/log.hpp"
#include "base/text.hpp"

namespace collectives {
namespace {

using std::chrono::nanoseconds;

constexpr auto kCheckEvery = std::chrono::milliseconds(1);
// maximum milliseconds of one poll, so that a lost peer is found within 10 ms
constexpr int kLongestPollWithCheck = 10;

// Time in nanoseconds from the beginning of a wait to its first warning. The next variable is the time from one warning
// to the next.
std::atomic<nanoseconds::rep> first_report = nanoseconds(std::chrono::seconds(10)).count();
std::atomic<nanoseconds::rep> next_report = nanoseconds(std::chrono::seconds(30)).count();

}  // namespace

ReportedWait::ReportedWait(std::string_view what, Rank self, Deadline deadline, Describe awaited, Check check)
    : what_(what),
      self_(self),
      deadline_(deadline),
      describe_(std::move(awaited)),
      check_(std::move(check)),
      report_at_(start_ + nanoseconds(first_report.load(std::memory_order_relaxed))) {}

bool ReportedWait::is_over() {
  const Clock::time_point now = Clock::now();
  if (check_ && now - checked_at_ >= kCheckEvery) {
    checked_at_ = now;
    check_();
  }
  if (deadline_.passed()) return true;
  if (now >= report_at_) {
    report_at_ = now + nanoseconds(next_report.load(std::memory_order_relaxed));
    log_warning(self_, "still waiting: {}", text());
  }
  return false;
}

std::string ReportedWait::text(const Awaited& awaited, std::string_view what, Rank waiter, double seconds) {
  std::string text = fmt::format("{} did not {} ({} waited {:.1f} s)",
                                 awaited.ranks.empty() ? "another rank" : ranks_text(awaited.ranks), what,
                                 waiter == kNoRank ? "this rank" : fmt::format("rank {}", waiter), seconds);
  if (!awaited.last_answer.empty()) text += "; last answer: " + awaited.last_answer;
  if (!awaited.hint.empty()) text += "; " + awaited.hint;
  return text;
}

std::string ReportedWait::text() const { return text(awaited(), what_, self_, seconds()); }

Error ReportedWait::timeout() const {
  const Awaited state = awaited();
  return {Errc::timeout, text(state, what_, self_, seconds()), self_,
          state.ranks.empty() ? kNoRank : state.ranks.front()};
}

int ReportedWait::milliseconds_left(int most) const {
  if (check_) most = std::min(most, kLongestPollWithCheck);
  const auto to_report = std::chrono::ceil<std::chrono::milliseconds>(report_at_ - Clock::now()).count();
  return deadline_.milliseconds_left(static_cast<int>(std::clamp<std::int64_t>(to_report, 0, most)));
}

void ReportedWait::set_report_times(nanoseconds first, nanoseconds next) noexcept {
  first_report.store(first.count(), std::memory_order_relaxed);
  next_report.store(next.count(), std::memory_order_relaxed);
}

}  // namespace collectives
