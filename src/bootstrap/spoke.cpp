// Implementation of the spoke. In a rendezvous, all ranks connect to rank 0 (rendezvous.hpp). Every rank except rank 0
// is a spoke. A spoke connects to rank 0 and sends a hello, which contains its rank. Rank 0 answers with a random
// number, which the spoke sends back as a proof (greetings.hpp). After that, the spoke and rank 0 exchange records. A
// record has a kind, a length and a payload.
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

#include "base/reported_wait.hpp"
#include "bootstrap/member.hpp"
#include "bootstrap/rendezvous_link.hpp"
#include "bootstrap/sockets.hpp"
#include "collectives/error.hpp"

namespace collectives::tcp {
namespace {

// Maximum payload in bytes that a spoke accepts until it knows that the listener is rank 0. Before that, the listener
// may be another program.
constexpr std::size_t kMaxAnswer = std::size_t{64} << 10;
// Time after the deadline of this rank in which rank 0 may still send the cause of the failure.
constexpr auto kVerdictPatience = std::chrono::seconds(1);
// kResolveAgain is the time between attempts to resolve the host name of rank 0, until an attempt succeeds.
// kRefreshAddresses is the time after which the spoke resolves the name again, because the address may change.
constexpr auto kResolveAgain = std::chrono::seconds(1), kRefreshAddresses = std::chrono::seconds(10);

// Minimum duration of an attempt without an answer that an error reports as such. In a shorter attempt, the listener
// may only be slow. The error then reports the answer to an earlier attempt.
constexpr auto kRealSilence = std::chrono::seconds(1);

/// Bootstrap of a rank that is not rank 0.
class Spoke final : public Member {
 public:
  Spoke(const World& world, Deadline deadline) : Member(world) {
    ReportedWait waiting(come_to_rendezvous(), rank(), deadline, [this] {
      return ReportedWait::Awaited{{0}, last_answer_.empty() ? "none" : last_answer_, world_.hint};
    });
    Addresses addresses{nullptr, &::freeaddrinfo};
    auto resolve_at = Deadline::Clock::now();
    // Connects repeatedly until rank 0 of this job answers. Another program, or a job that is ending, may listen at the
    // port.
    while (true) {
      if (Deadline::Clock::now() >= resolve_at) {
        if (Addresses found = resolve(world_, last_answer_); found != nullptr) addresses = std::move(found);
        resolve_at = Deadline::Clock::now() + (addresses != nullptr ? kRefreshAddresses : kResolveAgain);
      }
      if (find_hub(addresses.get(), waiting)) break;
      if (waiting.is_over()) end(waiting.timeout());
      pause(kRetry);
    }
    await(Kind::welcome, deadline);
  }
  Spoke(const Spoke&) = delete;
  Spoke& operator=(const Spoke&) = delete;
  ~Spoke() override {
    if (link_ && leaves_well()) link_->post(Kind::farewell);
  }

  void check_peers() override {
    rethrow_end();
    while (const auto record = hub_left_ ? std::nullopt : link_->next()) look_at(*record);
    if (!hub_left_) fail_if_lost();
  }

 private:
  std::vector<std::string> exchange(std::string_view mine, Deadline deadline) override {
    link_->post(Kind::contribution, mine);
    missing_.clear();
    auto gathered = read_contributions(await(Kind::contributions, deadline), ranks());
    if (!gathered) end(Errc::bootstrap, "rank 0 sent a damaged frame", 0);
    return *std::move(gathered);
  }

  /// Returns true if rank 0 has answered at one of its addresses. Otherwise sets last_answer_ to the error of the
  /// attempt. If the deadline interrupts an attempt to connect, last_answer_ keeps the error of an earlier attempt.
  /// Ends the rendezvous if no later attempt can succeed.
  bool find_hub(const addrinfo* addresses, ReportedWait& waiting) {
    bool hopeless = addresses != nullptr;
    int error = 0;
    for (const addrinfo* at = addresses; at && !link_; at = at->ai_next) {
      Socket socket;
      if (const int code = try_connect(at, waiting, socket); code != 0) {
        if (code != EINPROGRESS) last_answer_ = answer_of(code);
        hopeless = hopeless && is_permanent(code, at);
        error = code;
      } else {
        hopeless = false;
        introduce(std::move(socket), waiting);
      }
    }
    if (hopeless)
      end(is_out_of_descriptors(error) ? Errc::system : Errc::bootstrap,
          fmt::format("rank {} cannot connect to rank 0 at {}: {}", rank(), place_of(world_), last_answer_), 0);
    return link_.has_value();
  }

  static std::string answer_of(int code) {
    return code == ECONNREFUSED
               ? error_text(code) + ": no process listens there; rank 0 has not come, or has left again"
               : error_text(code);
  }

  /// Sets link_ once rank 0 has made this rank a member, which it states by a list of missing ranks. Returns without
  /// link_ if the listener is not rank 0, or if the deadline passes.
  void introduce(Socket socket, ReportedWait& waiting) {
    Link link(std::move(socket), kMaxAnswer);
    link.post(Kind::hello, hello_of(world_));
    const std::string earlier = std::exchange(last_answer_, "a connection, and then silence");
    const auto since = Deadline::Clock::now();
    while (!link_) {
      if (const auto record = link.next()) {
        if (!answer(link, *record)) {
          last_answer_ = "what listens there is not rank 0";
          return;
        }
      } else if (!link.lost().empty()) {
        last_answer_ = "what listens there " + link.lost();
        return;
      } else if (waiting.is_over()) {
        // The deadline may interrupt an attempt that has just begun.
        if (!earlier.empty() && Deadline::Clock::now() - since < kRealSilence) last_answer_ = earlier;
        return;
      } else {
        std::vector<pollfd> entries{link.interest()};
        wait(entries, waiting.milliseconds_left());
      }
    }
  }

  /// Reacts to a record of a listener. Returns whether it may be rank 0.
  bool answer(Link& link, const Record& record) {
    std::uint64_t number = 0;
    if (record.kind == Kind::failure) fail_as_reported(record);
    if (record.kind == Kind::seen && read_from(record.payload, number)) {
      link.post(Kind::proof, bytes_of(number));
      return true;
    }
    auto missing = record.kind == Kind::missing ? read_ranks(record.payload, size()) : std::nullopt;
    if (!missing) return false;
    missing_ = *std::move(missing);
    link.set_max_payload((max_contribution(ranks()) + sizeof(std::uint64_t)) * ranks());
    link_.emplace(std::move(link));
    return true;
  }

  /// Returns the payload of the next record of kind `kind`. Meanwhile keeps the last list of missing ranks. Ends the
  /// rendezvous if another record arrives.
  std::string await(Kind kind, Deadline deadline) {
    ReportedWait waiting(come_to_rendezvous(), rank(), deadline, [this] {
      return ReportedWait::Awaited{missing_, {}, world_.hint};
    });
    std::optional<Deadline> verdict;  // Set once a give_up record has been sent.
    double waited = 0;
    while (true) {
      if (auto record = link_->next()) {
        if (record->kind == kind) return std::move(record->payload);
        look_at(*record);
        continue;
      }
      if (hub_left_) fail_as_left("left it");
      fail_if_lost();
      if (!verdict && waiting.is_over()) {
        waited = waiting.seconds();
        link_->post(Kind::give_up, bytes_of(waited));  // If rank 0 lives, its answer names the missing ranks.
        verdict = Deadline::in(kVerdictPatience);
      } else if (verdict && verdict->passed()) {
        end(Errc::timeout, ReportedWait::text({{0}, {}, {}}, come_to_rendezvous(), rank(), waited), 0);
      }
      std::vector<pollfd> entries{link_->interest()};
      wait(entries, verdict ? verdict->milliseconds_left() : waiting.milliseconds_left());
    }
  }

  /// Takes notice of a record that may arrive at any time.
  void look_at(const Record& record) {
    if (record.kind == Kind::failure) fail_as_reported(record);
    if (record.kind == Kind::farewell) {
      hub_left_ = true;
      return;
    }
    auto missing = record.kind == Kind::missing ? read_ranks(record.payload, size()) : std::nullopt;
    if (!missing) end(Errc::bootstrap, "rank 0 sent a frame that was not due", 0);
    missing_ = *std::move(missing);
  }

  void fail_if_lost() {
    if (!link_->lost().empty()) fail_as_left(link_->lost());
  }
  [[noreturn]] void fail_as_left(const std::string& how) {
    end(Errc::bootstrap, fmt::format("rank 0 left the rendezvous at {}: it {}", place_of(world_), how), 0);
  }

  [[noreturn]] void fail_as_reported(const Record& record) {
    const auto failure = read_failure(record.payload);
    if (!failure) end(Errc::bootstrap, "rank 0 sent a damaged frame", 0);
    end(failure->code, failure->text, failure->culprit);
  }

  bool hub_left_ = false;      // Whether rank 0 has left without an error.
  std::optional<Link> link_;   // Connection to rank 0.
  std::string last_answer_;    // Result of the last attempt to reach rank 0.
  std::vector<Rank> missing_;  // Missing ranks of the last list from rank 0.
};

}  // namespace

std::unique_ptr<Bootstrap> make_spoke(const World& world, Deadline deadline) {
  return std::make_unique<Spoke>(world, deadline);
}

}  // namespace collectives::tcp
