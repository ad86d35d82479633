// Implementation of the connect phase of the TCP network, in which each rank connects to the ranks of other hosts. In
// one loop, a rank connects to all lower ranks and accepts connections from all higher ranks. The loop blocks only in
// poll(), for at most kTurn milliseconds per turn.
//
// An attempt is a connection that this rank has begun. An arrival is an accepted connection that has not yet proven
// that it belongs to the job. Any process may connect, so arrivals are limited in number. The loop reads from an
// arrival only if new bytes have arrived.
//
// A probe is an attempt to connect to a higher rank, which tests whether that rank still listens. A successful probe is
// closed at once.
#include "transport/tcp_connecting.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <list>
#include <optional>
#include <string>
#include <utility>

#include "base/error_text.hpp"
#include "base/text.hpp"
#include "collectives/error.hpp"
#include "transport/tcp_addresses.hpp"
#include "transport/tcp_control.hpp"
#include "transport/tcp_greeting.hpp"
#include "transport/tcp_peer_watch.hpp"

namespace collectives {
namespace {

using Clock = std::chrono::steady_clock;
using namespace std::chrono_literals;
using namespace tcp_greeting;
using tcp_control::would_block;

constexpr auto kNextAddressAfter = 250ms;  // Time after which a rank tries the peer's next address.
constexpr auto kFirstProbe = 200ms;        // Time after which a rank first probes higher ranks.
constexpr auto kNextProbe = 1s;            // Time from a successful probe to the next probe.
// Time that is added to kNextAddressAfter once a rank has tried the last address of a peer. After that, the rank tries
// the first address again.
constexpr auto kAgainAfter = 200ms;
constexpr auto kProofPatience = 5s;   // Maximum age of an arrival without proof.
constexpr auto kAnswerPatience = 5s;  // Maximum time of one attempt to connect.
constexpr int kTurn = 10;             // Longest sleep of the loop in milliseconds.
// Minimum age of an arrival that is closed because the process has no file descriptor left.
constexpr auto kSilent = 500ms;
constexpr std::size_t kArrivalsOfStrangers = 256;  // Maximum number of arrivals, in addition to four per rank.
constexpr int kArrivalsAtOnce = 64;                // Maximum number of connections that one turn accepts.

void set_options(const tcp::Socket& socket, const std::string& congestion_control) {
  tcp::set_option(socket, IPPROTO_TCP, TCP_NODELAY, 1);
  if (congestion_control != "system") choose_congestion_control(socket, congestion_control);
}

/// Makes the kernel end a control connection if the peer's host does not answer. Data connections have no time limit.
/// Data may wait because the peer does not read them, so a wait does not prove a failure.
void notice_silence(const tcp::Socket& socket) {
  const auto seconds = [](std::chrono::seconds time) { return static_cast<int>(time.count()); };
  tcp::set_option(socket, SOL_SOCKET, SO_KEEPALIVE, 1);
  tcp::set_option(socket, IPPROTO_TCP, TCP_KEEPIDLE, seconds(TcpTransport::kSilence / 3));
  tcp::set_option(socket, IPPROTO_TCP, TCP_KEEPINTVL, seconds(TcpTransport::kSilence / 5));
  tcp::set_option(socket, IPPROTO_TCP, TCP_KEEPCNT, 3);
  tcp::set_option(socket, IPPROTO_TCP, TCP_USER_TIMEOUT, seconds(TcpTransport::kSilence) * 1000);
}

/// Sends a short record on a new connection, whose send buffer has enough space. Returns 0 or an errno.
template <class T>
int send_record(const tcp::Socket& socket, const T& record) {
  const ssize_t sent = ::send(socket.fd(), &record, sizeof record, MSG_DONTWAIT | MSG_NOSIGNAL);
  return sent == sizeof record ? 0 : sent < 0 ? errno : EPIPE;
}

/// Record from the peer, which may arrive in several reads.
template <class T>
struct Reading {
  T record{};
  std::size_t read = 0;

  bool is_whole() const { return read == sizeof record; }
  /// Reads the bytes that have arrived. If the connection has ended, returns an errno, otherwise 0.
  int read_some(const tcp::Socket& socket) {
    while (!is_whole()) {
      const ssize_t got =
          ::recv(socket.fd(), reinterpret_cast<char*>(&record) + read, sizeof record - read, MSG_DONTWAIT);
      if (got < 0 && would_block(errno)) return 0;
      if (got <= 0) return got < 0 ? errno : ECONNRESET;
      read += static_cast<std::size_t>(got);
    }
    return 0;
  }
};

class Connecting {
 public:
  Connecting(const tcp::Socket& listener, const TcpSettings& settings, const PeerAddresses& peers,
             const WireSecret& secret)
      : listener_(listener),
        settings_(settings),
        peers_(peers),
        secret_(secret),
        links_(peers.addresses.size()),
        watch_(peers.addresses.size()) {
    const std::vector<NetworkInterface> mine = interfaces_up();
    for (Rank rank = 0; rank < peers.size(); ++rank) {
      Target& to = targets_.emplace_back();
      if (!peers.is_remote(rank)) continue;
      to.addresses = read_published_address(peers.addresses[static_cast<std::size_t>(rank)], mine);
      to.codes.resize(to.addresses.size());
      if (rank > peers.self) to.try_at = Clock::now() + kFirstProbe;
    }
  }

  std::vector<TcpLink> links() {
    while (!complete()) {
      const auto now = Clock::now();
      for (Rank rank = 0; rank < peers_.size(); ++rank)
        if (peers_.is_remote(rank)) try_next(rank, now);
      if (peers_.is_over([this] { return awaited(); })) give_up();
      if (const auto lost = watch_.lost(now)) refuse_lost(*lost);
      wait();
    }
    for (const TcpLink& link : links_)
      if (link.control.fd() >= 0) notice_silence(link.control);
    return std::move(links_);
  }

 private:
  static constexpr int kChannels = 2;       // Data and control.
  static constexpr int kProbe = kChannels;  // Channel of a probe, which no rank accepts.

  /// State of the attempts to connect to one rank.
  struct Target {
    std::vector<TcpAddress> addresses;
    std::size_t next = 0;
    std::optional<std::size_t> proven;  // Index of the address that has answered.
    Clock::time_point try_at{};
    std::vector<std::string> outcomes;  // Result of the last attempt for each address, as text.
    std::vector<int> codes;             // Error of the last attempt that has ended, for each address; 0: none.
  };
  struct Attempt {
    tcp::Socket socket;
    Rank to;
    std::size_t address;
    Hello hello;
    Reading<Challenge> challenge = {};
    bool connected = false;
    Clock::time_point since = Clock::now();
  };
  struct Arrival {
    tcp::Socket socket;
    Reading<Hello> hello = {};
    Nonce challenge{};
    Reading<std::uint64_t> proof = {};
    bool challenged = false;
    Clock::time_point since = Clock::now();
  };

  tcp::Socket& end(Rank rank, int channel) {
    TcpLink& link = links_[static_cast<std::size_t>(rank)];
    return channel == 0 ? link.data : link.control;
  }
  Target& target(Rank rank) { return targets_[static_cast<std::size_t>(rank)]; }
  bool connected(Rank rank) { return end(rank, 0).fd() >= 0 && end(rank, 1).fd() >= 0; }
  bool complete() { return missing().empty(); }
  std::vector<Rank> missing() {
    std::vector<Rank> ranks;
    for (Rank rank = 0; rank < peers_.size(); ++rank)
      if (peers_.is_remote(rank) && !connected(rank)) ranks.push_back(rank);
    return ranks;
  }

  /// Starts another attempt if one is due. For the data connection and for probes, tries all addresses in turn. For the
  /// control connection, uses the address that has answered.
  void try_next(Rank rank, Clock::time_point now) {
    Target& to = target(rank);
    if (connected(rank) || to.addresses.empty() || now < to.try_at) return;
    const int channel = rank > peers_.self ? kProbe : end(rank, 0).fd() < 0 ? 0 : 1;
    const std::size_t at = to.proven.value_or(to.next);
    const bool last = at + 1 == to.addresses.size();
    to.next = last ? 0 : at + 1;
    to.try_at = now + (to.proven || last ? kNextAddressAfter + kAgainAfter : kNextAddressAfter);
    to.outcomes.resize(to.addresses.size(), "not tried");

    const TcpAddress& address = to.addresses[at];
    tcp::Socket socket(::socket(address.storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (socket.fd() < 0) return failed(rank, at, errno);
    set_options(socket, settings_.congestion_control);
    to.outcomes[at] = "no answer";
    if (::connect(socket.fd(), reinterpret_cast<const sockaddr*>(&address.storage), address.bytes) != 0 &&
        errno != EINPROGRESS)
      return failed(rank, at, errno);
    const Hello hello{.nonce = make_nonce(), .from = peers_.self, .to = rank, .channel = channel};
    attempts_.push_back({.socket = std::move(socket), .to = rank, .address = at, .hello = hello});
  }
  void failed(Rank rank, std::size_t address, int code) {
    if (is_out_of_descriptors(code)) refuse_descriptors(code);
    Target& to = target(rank);
    to.outcomes[address] = error_text(code);
    set_code(rank, address, code);
    if (to.next != 0 && !to.proven) to.try_at = {};  // Tries the next address at once.
  }
  /// Notes the result of an attempt. `code`: its error, or 0 if the address has accepted a connection.
  void set_code(Rank rank, std::size_t address, int code) {
    Target& to = target(rank);
    to.codes[address] = code;
    const bool all_failed = std::ranges::all_of(to.codes, [](int one) { return one != 0; });
    const bool is_refused =
        to.proven ? to.codes[*to.proven] == ECONNREFUSED : all_failed && std::ranges::count(to.codes, ECONNREFUSED) > 0;
    watch_.note_refused(rank, is_refused, Clock::now());
  }
  [[noreturn]] void refuse_descriptors(int code) const {
    throw Error(Errc::system, "transport tcp: " + error_text(code), peers_.self, peers_.self, "construction");
  }

  /// Sleeps until a connection has an event, and advances the connections that have one.
  void wait() {
    std::vector<pollfd> entries{{accepts_ ? listener_.fd() : -1, POLLIN, 0}};
    for (const Attempt& attempt : attempts_)
      entries.push_back({attempt.socket.fd(), static_cast<short>(attempt.connected ? POLLIN : POLLOUT), 0});
    for (const Arrival& arrival : arrivals_) entries.push_back({arrival.socket.fd(), POLLIN, 0});
    const std::vector<Rank> connected_ranks = add_connections(entries);
    const int ready = ::poll(entries.data(), entries.size(), peers_.deadline.milliseconds_left(kTurn));
    if (ready < 0 && errno != EINTR) throw Error(Errc::system, "poll: " + error_text(errno));
    const auto now = Clock::now();
    auto entry = entries.begin() + 1;
    const auto has_event = [&] { return (entry++)->revents != 0; };
    std::erase_if(attempts_, [&](Attempt& attempt) { return !progress(attempt, has_event(), now); });
    std::erase_if(arrivals_, [&](Arrival& arrival) { return !progress(arrival, has_event(), now); });
    for (const Rank rank : connected_ranks)
      if (has_event()) watch_.note_closed(rank, now);
    accept_some(now);
  }

  /// Adds the connections that have proven themselves, for the event that the peer closes them. Returns the rank of
  /// each added connection.
  std::vector<Rank> add_connections(std::vector<pollfd>& entries) {
    std::vector<Rank> ranks;
    for (Rank rank = 0; rank < peers_.size(); ++rank)
      for (int channel = 0; channel < kChannels; ++channel)
        if (end(rank, channel).fd() >= 0 && !watch_.has_closed(rank)) {
          entries.push_back({end(rank, channel).fd(), POLLRDHUP, 0});
          ranks.push_back(rank);
        }
    return ranks;
  }

  /// Advances an attempt. Returns false once it has succeeded or failed.
  bool progress(Attempt& attempt, bool has_event, Clock::time_point now) {
    const bool is_probe = attempt.hello.channel == kProbe;
    // Another attempt may have been faster.
    if (is_probe ? connected(attempt.to) : end(attempt.to, attempt.hello.channel).fd() >= 0) return false;
    if (now - attempt.since > kAnswerPatience) return false;  // try_next() will try the address again.
    if (!has_event) return true;
    int code = 0;
    if (!attempt.connected) {
      socklen_t bytes = sizeof code;
      ::getsockopt(attempt.socket.fd(), SOL_SOCKET, SO_ERROR, &code, &bytes);
      if (code == 0 && !is_probe) code = send_record(attempt.socket, attempt.hello);
      if (code != 0) return failed(attempt.to, attempt.address, code), false;
      set_code(attempt.to, attempt.address, 0);
      if (is_probe) target(attempt.to).try_at = now + kNextProbe;
      attempt.connected = true;
      return !is_probe;
    }
    code = attempt.challenge.read_some(attempt.socket);
    if (code == 0 && !attempt.challenge.is_whole()) return true;
    const Challenge& theirs = attempt.challenge.record;
    if (code != 0 || theirs.proof != proof_of(Side::listener, secret_, attempt.hello, theirs.nonce) ||
        send_record(attempt.socket, proof_of(Side::connector, secret_, attempt.hello, theirs.nonce)) != 0) {
      failed(attempt.to, attempt.address, code == 0 ? EPROTO : code);
      if (code == 0) set_code(attempt.to, attempt.address, 0);  // A process listens there.
      target(attempt.to).outcomes[attempt.address] = "a process that is no rank of this job answered";
      return false;
    }
    Target& to = target(attempt.to);
    to.proven = attempt.address;
    to.try_at = {};
    end(attempt.to, attempt.hello.channel) = std::move(attempt.socket);
    return false;
  }

  /// Accepts connections. Closes the oldest arrivals if there are too many. If no descriptor is left, closes a silent
  /// arrival. Throws if there is no arrival that could become silent.
  void accept_some(Clock::time_point now) {
    accepts_ = true;
    for (int i = 0; i < kArrivalsAtOnce; ++i) {
      tcp::Socket socket(::accept4(listener_.fd(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
      if (socket.fd() < 0) {
        if (!is_out_of_descriptors(errno)) return;
        if (arrivals_.empty()) refuse_descriptors(errno);
        if (now - arrivals_.front().since < kSilent) {
          accepts_ = false;  // The waiting connection would end every poll at once.
          return;
        }
        arrivals_.pop_front();
        continue;
      }
      set_options(socket, settings_.congestion_control);
      arrivals_.push_back({.socket = std::move(socket), .since = now});
      if (arrivals_.size() > kArrivalsOfStrangers + 4 * links_.size()) arrivals_.pop_front();
    }
  }

  /// Advances an arrival. Returns false once it belongs to a link or is refused.
  bool progress(Arrival& arrival, bool has_event, Clock::time_point now) {
    if (now - arrival.since > kProofPatience) return false;
    if (!has_event) return true;
    const Hello& hello = arrival.hello.record;
    if (!arrival.challenged) {
      if (arrival.hello.read_some(arrival.socket) != 0) return false;
      if (!arrival.hello.is_whole()) return true;
      if (!is_expected(hello)) return false;
      arrival.challenge = make_nonce();
      const Challenge mine{arrival.challenge, proof_of(Side::listener, secret_, hello, arrival.challenge)};
      if (send_record(arrival.socket, mine) != 0) return false;
      arrival.challenged = true;
    }
    if (arrival.proof.read_some(arrival.socket) != 0) return false;
    if (!arrival.proof.is_whole()) return true;
    if (is_expected(hello) && arrival.proof.record == proof_of(Side::connector, secret_, hello, arrival.challenge))
      end(hello.from, hello.channel) = std::move(arrival.socket);
    return false;
  }
  bool is_expected(const Hello& hello) {
    return hello.magic == Hello{}.magic && hello.to == peers_.self && hello.from > peers_.self &&
           hello.from < peers_.size() && peers_.is_remote(hello.from) && hello.channel >= 0 &&
           hello.channel < kChannels && end(hello.from, hello.channel).fd() < 0;
  }

  /// Returns what has become of the attempts to connect to one rank: "10.0.0.1:4000: Connection refused".
  std::string outcomes_of(Rank rank) {
    const Target& to = target(rank);
    std::vector<std::string> each;
    for (std::size_t i = 0; i < to.addresses.size(); ++i)
      each.push_back(
          fmt::format("{}: {}", to.addresses[i].text, i < to.outcomes.size() ? to.outcomes[i] : "not tried"));
    return each.empty() ? "it has no address that could be used" : fmt::to_string(fmt::join(each, ", "));
  }

  /// Returns what has become of all attempts, for the error and for reports of a long wait.
  std::string outcomes_text() {
    std::vector<Rank> absent;
    std::string tried;
    for (const Rank rank : missing()) {
      if (rank > peers_.self) {
        absent.push_back(rank);
        continue;
      }
      if (!tried.empty()) tried += "; ";
      tried += fmt::format("rank {} cannot be reached ({})", rank, outcomes_of(rank));
    }
    if (!absent.empty())
      tried += fmt::format("{}{} did not connect to this rank, which listens at {}", tried.empty() ? "" : "; ",
                           ranks_text(absent), fmt::join(own_addresses(settings_.interfaces), ", "));
    return tried;
  }
  ReportedWait::Awaited awaited() { return {.ranks = missing(), .last_answer = outcomes_text()}; }
  [[noreturn]] void give_up() {
    throw Error(Errc::timeout, "transport tcp: " + outcomes_text(), peers_.self, missing().front(), "construction");
  }

  [[noreturn]] void refuse_lost(const TcpPeerWatch::Lost& lost) {
    const std::string how = lost.is_refused ? "no process listens at its addresses (" + outcomes_of(lost.rank) + ")"
                                            : "it closed a connection";
    throw Error(Errc::peer_lost, fmt::format("transport tcp: rank {} was lost while ranks connect: {}", lost.rank, how),
                peers_.self, lost.rank, "construction");
  }

  const tcp::Socket& listener_;
  const TcpSettings& settings_;
  const PeerAddresses& peers_;
  const WireSecret& secret_;
  std::vector<TcpLink> links_;
  std::vector<Target> targets_;
  std::list<Attempt> attempts_;
  std::list<Arrival> arrivals_;  // The oldest first.
  TcpPeerWatch watch_;
  bool accepts_ = true;  // Whether the next poll watches the listener.
};

}  // namespace

std::vector<TcpLink> make_tcp_links(const tcp::Socket& listener, const TcpSettings& settings,
                                    const PeerAddresses& peers, const WireSecret& secret) {
  return Connecting(listener, settings, peers, secret).links();
}

}  // namespace collectives
