// Implementation of a rank other than rank 0 in a rendezvous (rendezvous.hpp). It connects to rank 0, sends a hello
// with its rank, and exchanges records. A record has a kind, a length and a payload.
#include "bootstrap/spoke.hpp"

#include <fmt/format.h>
#include <poll.h>

#include <cerrno>
#include <chrono>
#include <cstdint>
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

constexpr std::size_t kMaxAnswer = std::size_t{1}
                                   << 20;  // Maximum payload from a listener that may be another program.
// Time after this rank's deadline in which rank 0 may still name the cause.
constexpr auto kVerdictPatience = std::chrono::seconds(1);

/// A rank of a rendezvous other than rank 0.
class Spoke final : public Member {
 public:
  Spoke(const World& world, Deadline deadline) : Member(world) {
    const auto start = Deadline::Clock::now();
    const Addresses addresses = resolve(world);
    std::string last_answer;
    // Tries again until rank 0 has answered. The listener may be another program, or rank 0 of a job that is ending.
    while (!find_hub(addresses.get(), deadline, last_answer)) {
      if (deadline.passed()) {
        const std::string what = did_not_come({0}, place_of(world_), rank(), seconds_since(start));
        end(Errc::timeout, fmt::format("{}; last answer: {}", what, last_answer.empty() ? "none" : last_answer), 0);
      }
      pause(kRetry);
    }
    await(Kind::welcome, start, deadline);
  }

 private:
  std::vector<std::string> exchange(std::string_view mine, Deadline deadline) override {
    link_->post(Kind::contribution, mine);
    const std::string contributions = await(Kind::contributions, Deadline::Clock::now(), deadline);
    std::vector<std::string> gathered;
    std::string_view rest = contributions;
    for (std::size_t r = 0; r < ranks(); ++r) {
      std::uint64_t bytes = 0;
      if (!read_from(rest, bytes) || bytes > rest.size() - sizeof bytes) {
        end(Errc::bootstrap, "rank 0 sent a damaged frame", 0);
      }
      gathered.emplace_back(rest.substr(sizeof bytes, bytes));
      rest.remove_prefix(sizeof bytes + bytes);
    }
    return gathered;
  }

  /// Returns true if rank 0 has answered at one of its addresses. Otherwise sets `answer` to the error of the attempt.
  /// If the deadline interrupts an attempt to connect, `answer` keeps the error of an earlier attempt.
  bool find_hub(const addrinfo* addresses, Deadline deadline, std::string& answer) {
    for (const addrinfo* at = addresses; at && !link_; at = at->ai_next) {
      Socket socket;
      if (const int code = try_connect(at, deadline, socket); code != 0) {
        if (code != EINPROGRESS) answer = error_text(code);
      } else if (auto answered = introduce(std::move(socket), deadline, answer)) {
        link_.emplace(std::move(*answered));
      }
    }
    return link_.has_value();
  }

  /// Returns the link once rank 0 has answered. Returns nothing if the listener is not rank 0, or if the deadline
  /// passes.
  std::optional<Link> introduce(Socket socket, Deadline deadline, std::string& answer) {
    Link link(std::move(socket), kMaxAnswer);
    link.post(Kind::hello, bytes_of(Hello{.rank = rank(), .size = size()}));
    while (true) {
      if (const auto record = link.next()) {
        if (record->kind == Kind::seen) {
          link.set_max_payload((kMaxContribution + sizeof(std::uint64_t)) * ranks());
          return link;
        }
        if (record->kind == Kind::failure) fail_as_reported(*record);
        answer = "what listens there is not rank 0";
        return std::nullopt;
      }
      if (!link.lost().empty()) {
        answer = "what listens there " + link.lost();
        return std::nullopt;
      }
      if (deadline.passed()) {
        if (answer.empty()) answer = "a connection, and then silence";
        return std::nullopt;
      }
      std::vector<pollfd> entries{link.interest()};
      wait(entries, deadline);
    }
  }

  /// Returns the payload of the next record. Ends the rendezvous if that record has another kind than `kind`.
  std::string await(Kind kind, Deadline::Clock::time_point start, Deadline deadline) {
    double gave_up_after = 0;  // Seconds waited before the give_up record was sent; 0 before.
    while (true) {
      if (auto record = link_->next()) {
        if (record->kind == kind) return std::move(record->payload);
        if (record->kind == Kind::failure) fail_as_reported(*record);
        end(Errc::bootstrap, "rank 0 sent a frame that was not due", 0);
      }
      if (!link_->lost().empty()) {
        end(Errc::bootstrap, fmt::format("rank 0 left the rendezvous at {}: it {}", place_of(world_), link_->lost()),
            0);
      }
      if (deadline.passed()) {
        if (gave_up_after > 0) end(Errc::timeout, did_not_come({0}, place_of(world_), rank(), gave_up_after), 0);
        gave_up_after = seconds_since(start);
        link_->post(Kind::give_up, bytes_of(gave_up_after));  // If rank 0 is alive, its answer names the missing ranks.
        deadline = Deadline::in(kVerdictPatience);
      }
      std::vector<pollfd> entries{link_->interest()};
      wait(entries, deadline);
    }
  }

  [[noreturn]] void fail_as_reported(const Record& record) {
    Failure failure{};
    if (!read_from(record.payload, failure)) end(Errc::bootstrap, "rank 0 sent a damaged frame", 0);
    const bool known = failure.code >= static_cast<std::uint32_t>(Errc::invalid_argument) &&
                       failure.code <= static_cast<std::uint32_t>(Errc::system);
    end(known ? static_cast<Errc>(failure.code) : Errc::bootstrap, record.payload.substr(sizeof failure),
        failure.culprit);
  }

  std::optional<Link> link_;  // Connection to rank 0.
};

}  // namespace

std::unique_ptr<Bootstrap> make_spoke(const World& world, Deadline deadline) {
  return std::make_unique<Spoke>(world, deadline);
}

}  // namespace collectives::tcp
