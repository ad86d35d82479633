// Implementation of the hub, rank 0 of a rendezvous. In a rendezvous, all ranks connect to rank 0 and exchange bytes
// through it (rendezvous.hpp). A connection to rank 0 carries records. A record has a kind, a length and a payload. A
// connection becomes a member when it has proven that it belongs to a rank (greetings.hpp).
#include "bootstrap/hub.hpp"

#include <fmt/format.h>
#include <poll.h>

#include <algorithm>
#include <chrono>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/reported_wait.hpp"
#include "bootstrap/greetings.hpp"
#include "bootstrap/member.hpp"
#include "bootstrap/missing.hpp"
#include "bootstrap/rendezvous_link.hpp"
#include "bootstrap/sockets.hpp"
#include "collectives/error.hpp"

namespace collectives::tcp {
namespace {

using namespace std::chrono_literals;

// Time from the begin of a wait to the first list of missing ranks that rank 0 sends, and from one list to the next.
// The other ranks log the missing ranks later than that, so that they know a recent list.
constexpr auto kFirstList = 1s, kNextList = 5s;
// Maximum number of records that rank 0 keeps of each rank between exchanges. A rank sends at most two. The first is a
// contribution. The second is a farewell, or tells that the rank gives up. Rank 0 then still notices a lost connection.
constexpr std::size_t kMostEarly = 3;
// Time after a failure in which rank 0 still sends the cause to ranks that connect late.
constexpr auto kAnswersAfterFailure = 1s;

/// Rank 0 of a rendezvous.
class Hub final : public Member {
 public:
  Hub(const World& world, Socket listener, Deadline deadline)
      : Member(world), links_(ranks()), early_(ranks()), greetings_(world_), listener_(std::move(listener)) {
    make_space_for_descriptors(ranks());
    begin();
    ReportedWait waiting = wait_for_all(deadline);
    while (!everybody_here()) {
      greet();
      receive_records([](Rank, Record) { return false; });
      if (!everybody_here()) wait_once(waiting);
    }
    greetings_.clear();
    listener_.reset();
    send_to_all(make_record(Kind::welcome));
  }
  Hub(const Hub&) = delete;
  Hub& operator=(const Hub&) = delete;
  ~Hub() override {
    if (leaves_well()) send_to_all(make_record(Kind::farewell));
  }

  /// Throws an error if a rank has ended without a farewell. Keeps the records that arrive during this check for the
  /// next exchange.
  void check_peers() override {
    rethrow_end();
    for (Rank rank = 1; rank < size(); ++rank) {
      auto& early = early_[static_cast<std::size_t>(rank)];
      while (early.size() < kMostEarly && (early.empty() || early.back().kind != Kind::farewell)) {
        auto record = links_[static_cast<std::size_t>(rank)]->next();
        if (!record) {
          fail_if_lost(rank);
          break;
        }
        early.push_back(*std::move(record));
      }
    }
  }

 private:
  /// Begins a wait for all ranks: marks every rank but rank 0 as missing.
  void begin() {
    here_.assign(ranks(), false);
    here_[0] = true;
    list_at_ = Deadline::Clock::now() + kFirstList;
  }
  ReportedWait wait_for_all(Deadline deadline) {
    return {come_to_rendezvous(), rank(), deadline, [this] {
              return ReportedWait::Awaited{missing_ranks(here_), greetings_.last_refusal(), world_.hint};
            }};
  }
  bool everybody_here() const {
    return std::ranges::all_of(here_, [](bool here) { return here; });
  }
  bool is_joining() const { return listener_.has_value(); }

  std::vector<std::string> exchange(std::string_view mine, Deadline deadline) override {
    begin();
    ReportedWait waiting = wait_for_all(deadline);
    std::vector<std::string> gathered(ranks());
    gathered[0] = mine;
    while (true) {
      receive_records([&](Rank rank, Record record) {
        const auto r = static_cast<std::size_t>(rank);
        if (record.kind != Kind::contribution || here_[r]) return false;
        gathered[r] = std::move(record.payload);
        here_[r] = true;
        return true;
      });
      if (everybody_here()) break;
      wait_once(waiting);
    }
    send_to_all(make_record(Kind::contributions, contributions_of(gathered)));
    deliver(waiting);
    return gathered;
  }

  std::shared_ptr<const std::string> list_of_missing() const {
    return make_record(Kind::missing, ranks_bytes(missing_ranks(here_)));
  }

  /// Makes each connection that has sent its proof a member. Sends the list of missing ranks to the new member as a
  /// confirmation.
  void greet() {
    if (const int error = greetings_.accept(*listener_); error != 0)
      fail(Errc::system, "rank 0 cannot accept: " + error_text(error), 0);
    for (auto& [rank, link] : greetings_.step(here_)) {
      here_[static_cast<std::size_t>(rank)] = true;
      link.set_max_payload(max_contribution(ranks()));
      link.post(list_of_missing());
      links_[static_cast<std::size_t>(rank)].emplace(std::move(link));
    }
  }

  /// Passes each record of a member to take(rank, record), which returns whether it expected the record. Ends the
  /// rendezvous if a rank reports that its deadline has passed, or that it has left. An unexpected record ends the
  /// rendezvous, too, except while ranks connect. In that phase, the connection is dropped, and the rank may connect
  /// again.
  template <class Take>
  void receive_records(Take&& take) {
    for (Rank rank = 1; rank < size(); ++rank) {
      auto& link = links_[static_cast<std::size_t>(rank)];
      while (link) {
        auto record = next_record(rank);
        if (!record) break;
        const auto seconds = record->kind == Kind::give_up ? read_seconds(record->payload) : std::nullopt;
        if (seconds) too_late(rank, *seconds);
        if (record->kind == Kind::farewell) fail_as_left(rank, "left it");
        if (!take(rank, std::move(*record))) break_off(rank, "sent a frame that was not due");
      }
      if (link) fail_if_lost(rank);
    }
  }

  /// Returns the next record of a member: an early one, or else one that has arrived since.
  std::optional<Record> next_record(Rank rank) {
    auto& early = early_[static_cast<std::size_t>(rank)];
    if (early.empty()) return links_[static_cast<std::size_t>(rank)]->next();
    Record record = std::move(early.front());
    early.pop_front();
    return record;
  }

  void fail_if_lost(Rank rank) {
    const Link& link = *links_[static_cast<std::size_t>(rank)];
    if (link.has_noise()) {
      break_off(rank, link.lost());
    } else if (!link.lost().empty()) {
      fail_as_left(rank, link.lost());
    }
  }
  [[noreturn]] void fail_as_left(Rank rank, const std::string& how) {
    fail(Errc::bootstrap, fmt::format("rank {} left the rendezvous at {}: it {}", rank, place_of(world_), how), rank);
  }

  /// Drops a member that breaks the protocol.
  void break_off(Rank rank, const std::string& why) {
    const std::string what = fmt::format("rank {} {}", rank, why);
    if (!is_joining()) fail(Errc::bootstrap, what, rank);
    greetings_.note(what);
    links_[static_cast<std::size_t>(rank)].reset();
    here_[static_cast<std::size_t>(rank)] = false;
  }

  void wait_once(ReportedWait& waiting) {
    if (waiting.is_over()) too_late(rank(), waiting.seconds());
    if (Deadline::Clock::now() >= list_at_) {
      list_at_ = Deadline::Clock::now() + kNextList;
      send_to_all(list_of_missing());
    }
    std::vector<pollfd> entries;
    const int most = is_joining() ? greetings_.add_interests(entries, *listener_) : 1000;
    for (const auto& link : links_) {
      if (link) entries.push_back(link->interest());
    }
    wait(entries, waiting.milliseconds_left(most));
  }

  /// Blocks until all records have been sent to all ranks. Records that arrive meanwhile belong to the next exchange.
  void deliver(ReportedWait& waiting) {
    while (true) {
      std::vector<pollfd> entries;
      for (std::size_t r = 1; r < ranks(); ++r) {
        links_[r]->push();
        here_[r] = !links_[r]->unsent();  // After the deadline, ranks with unsent records count as missing.
        if (!here_[r]) entries.push_back({links_[r]->fd(), POLLOUT, 0});
      }
      if (entries.empty()) return;
      if (waiting.is_over()) too_late(rank(), waiting.seconds());
      wait(entries, waiting.milliseconds_left());
    }
  }

  void send_to_all(const std::shared_ptr<const std::string>& record) {
    for (auto& link : links_) {
      if (link) link->post(record);
    }
  }

  [[noreturn]] void too_late(Rank waiter, double seconds) {
    auto missing = missing_ranks(here_);
    if (missing.empty()) missing = {rank()};  // All ranks have arrived, so rank 0 itself was late.
    const Rank first = missing.front();
    const std::string text = ReportedWait::text({std::move(missing), greetings_.last_refusal(), world_.hint},
                                                come_to_rendezvous(), waiter, seconds);
    fail(Errc::timeout, text, first);
  }

  [[noreturn]] void fail(Errc code, const std::string& what, Rank culprit) {
    const auto record = make_record(Kind::failure, failure_bytes({code, culprit, what}));
    send_to_all(record);
    greetings_.answer_with(record);
    if (is_joining() && code != Errc::timeout) answer_late_ranks();
    end(code, what, culprit);
  }

  /// Answers greetings of ranks that come late, so that they receive the cause at once. Returns when all ranks have
  /// it, or after one second.
  void answer_late_ranks() {
    std::vector<bool> aware(ranks());
    for (std::size_t rank = 1; rank < ranks(); ++rank) {
      aware[rank] = links_[rank].has_value();
      if (aware[rank] && !links_[rank]->unsent()) links_[rank].reset();  // Late ranks may need the descriptor.
    }
    const Deadline until = Deadline::in(kAnswersAfterFailure);
    while (!until.passed()) {
      bool all_have_it = true;
      for (Rank rank = 1; rank < size(); ++rank)
        all_have_it = all_have_it && (aware[static_cast<std::size_t>(rank)] || greetings_.has_failure(rank));
      if (all_have_it) return;
      std::vector<pollfd> entries;
      const int most = greetings_.add_interests(entries, *listener_);
      wait(entries, until.milliseconds_left(most));
      if (greetings_.accept(*listener_) != 0) return;
      greetings_.step(std::vector<bool>(ranks(), false));
    }
  }

  std::vector<std::optional<Link>> links_;  // Connections by rank; empty for rank 0.
  std::vector<std::deque<Record>> early_;   // Each rank's records that arrived between exchanges, in order.
  std::vector<bool> here_;                  // Whether each rank has arrived at the current wait.
  Greetings greetings_;                     // Connections that are no members yet.
  std::optional<Socket> listener_;          // Empty once all ranks have connected.
  Deadline::Clock::time_point list_at_{};   // Time of the next list of missing ranks.
};

}  // namespace

std::unique_ptr<Bootstrap> make_hub(const World& world, Socket listener, Deadline deadline) {
  return std::make_unique<Hub>(world, std::move(listener), deadline);
}

}  // namespace collectives::tcp
