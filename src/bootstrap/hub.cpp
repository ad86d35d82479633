// Implementation of rank 0 of a rendezvous (rendezvous.hpp). The connections to the other ranks carry records. A record
// has a kind, a length and a payload. The first record of a connection is a hello: it contains the version of the
// protocol, the rank and the number of ranks. A stranger is a connection that has not sent a valid hello yet.
#include "bootstrap/hub.hpp"

#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <list>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "bootstrap/member.hpp"
#include "bootstrap/missing.hpp"
#include "bootstrap/rendezvous_link.hpp"
#include "bootstrap/sockets.hpp"
#include "collectives/error.hpp"

namespace collectives::tcp {
namespace {

constexpr std::size_t kMaxHello = 64;                         // Maximum payload in bytes of a record from a stranger.
constexpr auto kStrangerPatience = std::chrono::seconds(10);  // Longest time from connection to hello.

/// Rank 0 of a rendezvous.
class Hub final : public Member {
 public:
  Hub(const World& world, Socket listener, Deadline deadline) : Member(world), links_(ranks()) {
    begin();
    while (!everybody_here()) {
      greet(listener);
      receive_records([](Rank, Record) { return false; });
      if (everybody_here()) break;
      std::vector<pollfd> entries{{listener.fd(), POLLIN, 0}};
      for (const Stranger& stranger : strangers_) entries.push_back(stranger.link.interest());
      wait_for_members(std::move(entries), deadline);
    }
    strangers_.clear();
    send_to_all(make_record(Kind::welcome));
  }

 private:
  struct Stranger {
    Link link;
    Deadline patience;
  };

  /// Starts a wait for all ranks. Rank 0 itself counts as arrived.
  void begin() {
    here_.assign(ranks(), false);
    here_[0] = true;
    start_ = Deadline::Clock::now();
  }
  bool everybody_here() const {
    return std::ranges::all_of(here_, [](bool here) { return here; });
  }

  std::vector<std::string> exchange(std::string_view mine, Deadline deadline) override {
    begin();
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
      wait_for_members({}, deadline);
    }
    std::string contributions;
    for (const std::string& each : gathered) contributions += bytes_of(std::uint64_t{each.size()}) + each;
    send_to_all(make_record(Kind::contributions, contributions));
    deliver(deadline);
    return gathered;
  }

  void greet(const Socket& listener);
  void accept_hello(Stranger& stranger, const Record& record);

  /// Passes each record of a connected rank to take(rank, record), which returns whether it expected the record. Fails
  /// if a rank reports its deadline, has closed its connection, or sent an unexpected record.
  template <class Take>
  void receive_records(Take&& take) {
    for (Rank rank = 1; rank < size(); ++rank) {
      auto& link = links_[static_cast<std::size_t>(rank)];
      if (!link) continue;
      while (auto record = link->next()) {
        double seconds = 0;
        if (record->kind == Kind::give_up && read_from(record->payload, seconds)) too_late(rank, seconds);
        if (!take(rank, std::move(*record))) {
          fail(Errc::bootstrap, fmt::format("rank {} sent a frame that was not due", rank), rank);
        }
      }
      if (!link->lost().empty()) {
        fail(Errc::bootstrap,
             fmt::format("rank {} left the rendezvous at {}: it {}", rank, place_of(world_), link->lost()), rank);
      }
    }
  }

  void wait_for_members(std::vector<pollfd> entries, Deadline deadline) {
    if (deadline.passed()) too_late(rank(), seconds_since(start_));
    for (const auto& link : links_) {
      if (link) entries.push_back(link->interest());
    }
    wait(entries, deadline);
  }

  /// Blocks until all records have been sent to all ranks. Records that arrive meanwhile belong to the next exchange.
  void deliver(Deadline deadline) {
    while (true) {
      std::vector<pollfd> entries;
      for (std::size_t r = 1; r < ranks(); ++r) {
        links_[r]->push();
        here_[r] = !links_[r]->unsent();  // After the deadline, ranks with unsent records count as missing.
        if (!here_[r]) entries.push_back({links_[r]->fd(), POLLOUT, 0});
      }
      if (entries.empty()) return;
      if (deadline.passed()) too_late(rank(), seconds_since(start_));
      wait(entries, deadline);
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
    fail(Errc::timeout, did_not_come(missing, place_of(world_), waiter, seconds), missing.front());
  }

  [[noreturn]] void fail(Errc code, const std::string& what, Rank culprit) {
    const auto record = make_record(Kind::failure, bytes_of(Failure{static_cast<std::uint32_t>(code), culprit}) + what);
    send_to_all(record);
    for (Stranger& stranger : strangers_) stranger.link.post(record);
    end(code, what, culprit);
  }

  std::vector<std::optional<Link>> links_;  // Connections by rank; empty for rank 0.
  std::vector<bool> here_;                  // Whether each rank has arrived at the current wait.
  std::list<Stranger> strangers_;           // Connections without a complete hello.
  Deadline::Clock::time_point start_;       // Start of the current wait.
};

/// Accepts connections and assigns those with a valid hello to their ranks. Drops other connections, such as those of
/// port scanners.
void Hub::greet(const Socket& listener) {
  int refusal = 0;
  while (true) {
    Socket socket(::accept4(listener.fd(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (socket.fd() < 0) {
      refusal = errno;
      break;
    }
    strangers_.push_back({Link(std::move(socket), kMaxHello), Deadline::in(kStrangerPatience)});
  }
  for (auto stranger = strangers_.begin(); stranger != strangers_.end();) {
    const auto record = stranger->link.next();
    if (record && record->kind == Kind::hello) accept_hello(*stranger, *record);
    const bool done = record || !stranger->link.lost().empty() || stranger->patience.passed();
    stranger = done ? strangers_.erase(stranger) : std::next(stranger);
  }
  if (refusal != EMFILE && refusal != ENFILE) return;
  // No descriptor is free. Drops the oldest connection without a hello; if it is a rank, it connects again.
  if (strangers_.empty()) fail(Errc::system, "rank 0 cannot accept: " + error_text(refusal), 0);
  strangers_.pop_front();
}

/// Assigns a connection to its rank. A hello with another size, another version or an already connected rank ends the
/// rendezvous: a process is configured wrongly, and rank 0 cannot know which one.
void Hub::accept_hello(Stranger& stranger, const Record& record) {
  std::uint32_t version = 0;
  if (read_from(record.payload, version) && version != kVersion) {
    fail(Errc::bootstrap,
         fmt::format("a process of protocol version {} came to the rendezvous at {}, which speaks version {}", version,
                     place_of(world_), kVersion),
         kNoRank);
  }
  Hello hello{};
  if (!read_from(record.payload, hello)) return;
  if (hello.size != size()) {
    fail(Errc::bootstrap,
         fmt::format("rank {} came to the rendezvous at {} as one of {} ranks, rank 0 as one of {}", hello.rank,
                     place_of(world_), hello.size, size()),
         hello.rank);
  }
  if (hello.rank < 0 || hello.rank >= size()) return;  // No process of this library sends such a rank.
  if (here_[static_cast<std::size_t>(hello.rank)]) {
    fail(Errc::bootstrap,
         fmt::format("rank {} came to the rendezvous at {} twice: two processes have the same rank", hello.rank,
                     place_of(world_)),
         hello.rank);
  }
  auto& link = links_[static_cast<std::size_t>(hello.rank)];
  link.emplace(std::move(stranger.link));
  link->set_max_payload(kMaxContribution);
  link->post(Kind::seen);
  here_[static_cast<std::size_t>(hello.rank)] = true;
}

}  // namespace

std::unique_ptr<Bootstrap> make_hub(const World& world, Socket listener, Deadline deadline) {
  return std::make_unique<Hub>(world, std::move(listener), deadline);
}

}  // namespace collectives::tcp
