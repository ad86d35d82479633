// Implementation of Greetings, which decides which connections to rank 0 belong to ranks of the job. In a rendezvous,
// all ranks connect to rank 0. A process that connects sends a hello with its rank. Rank 0 answers with a random
// number, which the process sends back as a proof. A connection that has sent no proof is a stranger. A connection that
// has sent its proof is a member.
#include "bootstrap/greetings.hpp"

#include <fmt/format.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <utility>

#include "base/log.hpp"
#include "base/random_word.hpp"

namespace collectives::tcp {
namespace {

using Clock = Deadline::Clock;

// Maximum time from a connection's begin to its proof.
constexpr auto kStrangerPatience = std::chrono::seconds(10);
// Maximum time from a connection's begin to its proof if rank 0 has no file descriptor left.
constexpr auto kPatienceWithoutDescriptors = std::chrono::milliseconds(500);
constexpr int kPollWithoutDescriptors = 20;  // Milliseconds between attempts to accept without a free descriptor.
// Maximum number of connections that one call of accept() accepts, so that members do not wait long for rank 0.
constexpr int kAcceptedAtOnce = 1024;
constexpr std::size_t kMaxLogged = 16;

}  // namespace

int Greetings::accept(const Socket& listener) {
  out_of_descriptors_ = false;
  for (int i = 0; i < kAcceptedAtOnce; ++i) {
    Socket socket(::accept4(listener.fd(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (socket.fd() >= 0) {
      add(std::move(socket));
    } else if (is_out_of_descriptors(errno)) {
      const int error = errno;
      if (strangers_.empty()) return error;
      // No descriptor is left, so old strangers are dropped. A rank whose connection is dropped connects again.
      out_of_descriptors_ = true;
      strangers_.remove_if(
          [](const Stranger& each) { return Clock::now() - each.since > kPatienceWithoutDescriptors; });
      return 0;
    } else if (errno != EINTR && errno != ECONNABORTED) {
      return 0;
    }
  }
  return 0;
}

void Greetings::add(Socket socket) { strangers_.push_back({.link = Link(std::move(socket), kMaxHello)}); }

std::vector<Greetings::Arrival> Greetings::step(const std::vector<bool>& is_member) {
  std::vector<Arrival> arrivals;
  std::vector<bool> members = is_member;
  for (auto stranger = strangers_.begin(); stranger != strangers_.end();) {
    const State state = examine_records(*stranger, members);
    if (state == State::proven) {
      members[static_cast<std::size_t>(*stranger->rank)] = true;
      arrivals.push_back({*stranger->rank, std::move(stranger->link)});
    }
    stranger = state == State::open ? std::next(stranger) : strangers_.erase(stranger);
  }
  return arrivals;
}

int Greetings::add_interests(std::vector<pollfd>& entries, const Socket& listener) const {
  for (const Stranger& stranger : strangers_) entries.push_back(stranger.link.interest());
  // If no descriptor is free, does not poll the listener. Each poll would return at once, because a connection waits to
  // be accepted.
  if (out_of_descriptors_) return kPollWithoutDescriptors;
  entries.push_back({listener.fd(), POLLIN, 0});
  return 1000;
}

void Greetings::answer_with(std::shared_ptr<const std::string> failure) {
  failure_ = std::move(failure);
  strangers_.remove_if([this](Stranger& stranger) {
    if (!stranger.rank) return false;
    stranger.link.post(failure_);
    informed_[static_cast<std::size_t>(*stranger.rank)] = true;
    return true;
  });
}

Greetings::State Greetings::examine_records(Stranger& stranger, const std::vector<bool>& is_member) {
  while (const auto record = stranger.link.next()) {
    if (const State state = examine(stranger, *record, is_member); state != State::open) return state;
  }
  const std::string claimed = stranger.rank ? fmt::format(" as rank {}", *stranger.rank) : "";
  if (stranger.link.has_noise() || (stranger.rank && !stranger.link.lost().empty()))
    return drop(fmt::format("a process that came{} {}", claimed, stranger.link.lost()));
  // The process has closed the connection without a valid hello, as port scanners do.
  if (!stranger.link.lost().empty()) return State::dropped;
  if (Clock::now() - stranger.since > kStrangerPatience)
    return drop(fmt::format("a process that came{} was silent for {} s", claimed, kStrangerPatience.count()));
  return State::open;
}

Greetings::State Greetings::examine(Stranger& stranger, const Record& record, const std::vector<bool>& is_member) {
  if (!stranger.rank) {
    const auto hello = record.kind == Kind::hello ? read_hello(record.payload) : std::nullopt;
    return hello ? greet(stranger, *hello, is_member) : drop("a process that came sent no greeting");
  }
  std::uint64_t number = 0;
  if (record.kind != Kind::proof || !read_from(record.payload, number) || number != stranger.number)
    return drop(fmt::format("a process that came as rank {} sent a frame that was not due", *stranger.rank));
  return is_member[static_cast<std::size_t>(*stranger.rank)] ? refuse_second(stranger, *stranger.rank) : State::proven;
}

Greetings::State Greetings::greet(Stranger& stranger, const Hello& hello, const std::vector<bool>& is_member) {
  const std::string place = place_of(world_);
  if (hello.version != kVersion)
    return refuse(stranger, kNoRank,
                  fmt::format("a process of protocol version {} came to the rendezvous at {}, which has version {}",
                              hello.version, place, kVersion));
  if (!is_same_job(hello.job, world_.job))
    return refuse(stranger, hello.rank,
                  fmt::format("rank {} of {} came to the rendezvous at {} of {}; if they belong together, set "
                              "COLLECTIVES_JOB to one name on all ranks",
                              hello.rank, job_text(hello.job), place, job_text(world_.job)));
  if (hello.size != world_.size)
    return refuse(stranger, hello.rank,
                  fmt::format("rank {} came to the rendezvous at {} as one of {} ranks, rank 0 as one of {}",
                              hello.rank, place, hello.size, world_.size));
  if (hello.rank < 0 || hello.rank >= world_.size)
    return refuse(stranger, kNoRank,
                  fmt::format("rank {} came to the rendezvous at {} of {} ranks", hello.rank, place, world_.size));
  if (hello.rank == 0 || is_member[static_cast<std::size_t>(hello.rank)]) return refuse_second(stranger, hello.rank);
  if (failure_ != nullptr) {
    stranger.link.post(failure_);
    informed_[static_cast<std::size_t>(hello.rank)] = true;
    return State::dropped;
  }
  stranger.rank = hello.rank;
  stranger.number = random_word();
  stranger.link.post(Kind::seen, bytes_of(stranger.number));
  return State::open;
}

Greetings::State Greetings::refuse_second(Stranger& stranger, Rank rank) {
  return refuse(stranger, rank,
                fmt::format("rank {} came to the rendezvous at {} twice: two processes have the same rank", rank,
                            place_of(world_)));
}

/// Sends the text `refusal` to this process only.
Greetings::State Greetings::refuse(Stranger& stranger, Rank rank, const std::string& refusal) {
  stranger.link.post(Kind::failure, failure_bytes({Errc::bootstrap, std::max(rank, kNoRank), refusal}));
  return drop(refusal);
}

Greetings::State Greetings::drop(const std::string& refusal) {
  note(refusal);
  return State::dropped;
}

void Greetings::note(const std::string& refusal) {
  last_refusal_ = "refused: " + refusal;
  if (logged_.size() >= kMaxLogged || !logged_.insert(refusal).second) return;
  log_warning(world_.rank, "rendezvous at {}: {}; it is dropped, and the start goes on", place_of(world_), refusal);
}

}  // namespace collectives::tcp
