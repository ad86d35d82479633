// ReportedWait: checks the deadline and the peers during one wait for other ranks, and reports the wait if it lasts
// long.
//
// A wait of the library is a loop that tests a condition. Each turn that finds the condition false calls turn():
//
//   ReportedWait wait("connect over tcp", self, deadline, [&] { return ReportedWait::Awaited{missing(), answer}; });
//   while (!complete()) {
//     poll(entries, wait.milliseconds_left());
//     wait.turn();
//   }
//
// turn() does three things:
//
//   check      calls the function `check` of the caller, at most once per millisecond; that function throws if a
//              peer is lost or a rank has called abort()
//   deadline   throws Error{timeout} once the deadline has passed
//   report     logs a warning after 10 s and then every 30 s
//
// The texts of error and warning contain the same facts: the awaited ranks, the action that they did not perform, the
// time, and the last answer. Examples:
//
//   rank 3 did not connect over tcp (rank 0 waited 30.0 s); last answer: Connection refused
//   still waiting: rank 3 did not connect over tcp (rank 0 waited 10.0 s); last answer: Connection refused
//
// The folder base/ does not use transports or communicators. The caller therefore passes the functions `check` and
// `awaited`.
#pragma once

#include <chrono>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "collectives/deadline.hpp"
#include "collectives/error.hpp"
#include "collectives/types.hpp"

namespace collectives {

class ReportedWait {
 public:
  using Clock = Deadline::Clock;

  /// State of a wait at the time of a report.
  struct Awaited {
    std::vector<Rank> ranks = {};  ///< Awaited ranks in ascending order; empty if they are unknown.
    std::string last_answer = {};  ///< Last result of an attempt, such as "Connection refused"; may be empty.
    std::string hint = {};         ///< Probable cause, such as "started without srun?"; may be empty.
  };
  /// Returns the current state. turn() calls it for reports only.
  using Describe = std::function<Awaited()>;
  /// Throws if the wait cannot succeed any more.
  using Check = std::function<void()>;

  /// Begins a wait of rank `self`. `what` completes the sentence "rank 3 did not ..." with a verb and the place, such
  /// as "come to the rendezvous at 10.0.0.1:29500". `awaited` and `check` may be empty.
  ReportedWait(std::string_view what, Rank self, Deadline deadline, Describe awaited = {}, Check check = {});

  /// Performs the check, the deadline test, and the report. Does not block. Throws the error of the check, or
  /// timeout().
  void turn() {
    if (is_over()) throw timeout();
  }
  /// Performs the check and the report. Returns whether the deadline has passed. Throws the error of the check. A
  /// caller that must act before it throws timeout() uses it in place of turn().
  bool is_over();
  /// Returns Error{timeout}. Its peer is the first awaited rank.
  Error timeout() const;
  /// Returns the text of an error about rank `waiter`, which did not find `awaited` within `seconds`.
  static std::string text(const Awaited& awaited, std::string_view what, Rank waiter, double seconds);
  /// Returns the text of timeout().
  std::string text() const;

  /// Returns how long poll() may block before the next turn: at most `most` milliseconds, and at most 10 ms if there is
  /// a check.
  int milliseconds_left(int most = 1000) const;
  Deadline deadline() const { return deadline_; }
  /// Returns the time since the begin of the wait.
  double seconds() const { return std::chrono::duration<double>(Clock::now() - start_).count(); }

  /// Sets the time before the first report, and the time between reports, of all later waits of this process. Tests use
  /// it. Defaults: 10 s and 30 s.
  static void set_report_times(std::chrono::nanoseconds first, std::chrono::nanoseconds next) noexcept;

 private:
  Awaited awaited() const { return describe_ ? describe_() : Awaited{}; }

  std::string what_;
  Rank self_;
  Deadline deadline_;
  Describe describe_;
  Check check_;
  Clock::time_point start_ = Clock::now();
  Clock::time_point report_at_, checked_at_{};
};

}  // namespace collectives
