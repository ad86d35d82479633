#include "bootstrap/rendezvous.hpp"

#include <arpa/inet.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <deque>
#include <list>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "bootstrap/missing.hpp"
#include "collectives/error.hpp"

namespace collectives {
namespace {

using Seconds = std::chrono::duration<double>;

constexpr std::size_t kMaxContribution = std::size_t{64} << 20;  // bytes of one rank in one exchange
constexpr std::size_t kMaxHello = 64;                            // bytes from a stranger
constexpr auto kRetry = std::chrono::milliseconds(20);           // between attempts to connect or to listen
constexpr auto kPortPatience = std::chrono::seconds(1);          // a port may be held by a job that is just ending
constexpr auto kStrangerPatience = std::chrono::seconds(10);     // from connecting to a complete hello
constexpr auto kVerdictPatience = std::chrono::seconds(1);       // for rank 0 to say why nobody came

std::string error_text(int code) { return std::generic_category().message(code); }

double seconds_since(Deadline::Clock::time_point start) { return Seconds(Deadline::Clock::now() - start).count(); }

// ---- Sockets -------------------------------------------------------------------------------------------------------

class Socket {
 public:
  explicit Socket(int fd = -1) : fd_(fd) {}
  Socket(Socket&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Socket& operator=(Socket&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~Socket() {
    if (fd_ >= 0) ::close(fd_);
  }
  int fd() const { return fd_; }

 private:
  int fd_;
};

/// Waits for what `entries` ask for, until the deadline or for a second: callers look around and come again.
void wait(std::vector<pollfd>& entries, Deadline deadline) {
  const int ready = ::poll(entries.data(), entries.size(), deadline.milliseconds_left());
  if (ready < 0 && errno != EINTR) throw Error(Errc::system, "poll: " + error_text(errno));
}

void pause(std::chrono::milliseconds time) { ::poll(nullptr, 0, static_cast<int>(time.count())); }

std::string place_of(const World& world) {
  const bool ipv6 = world.address.find(':') != std::string::npos;
  return fmt::format(fmt::runtime(ipv6 ? "[{}]:{}" : "{}:{}"), world.address, world.port);
}

using Addresses = std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)>;

Addresses resolve(const World& world) {
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICSERV;
  addrinfo* found = nullptr;
  const int code = ::getaddrinfo(world.address.c_str(), std::to_string(world.port).c_str(), &hints, &found);
  if (code != 0) {
    throw Error(Errc::bootstrap,
                fmt::format("host '{}' of rank 0 does not resolve: {} (rank {}, from {})", world.address,
                            code == EAI_SYSTEM ? error_text(errno) : ::gai_strerror(code), world.rank, world.source),
                world.rank);
  }
  return {found, &::freeaddrinfo};
}

Socket open_socket(int family) { return Socket(::socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)); }

void set_option(const Socket& socket, int level, int option, int value) {
  ::setsockopt(socket.fd(), level, option, &value, sizeof value);
}

/// Listens at `address`; an errno otherwise.
int try_listen(const sockaddr* address, socklen_t bytes, Socket& listener) {
  Socket socket = open_socket(address->sa_family);
  if (socket.fd() < 0) return errno;
  set_option(socket, SOL_SOCKET, SO_REUSEADDR, 1);
  if (address->sa_family == AF_INET6) set_option(socket, IPPROTO_IPV6, IPV6_V6ONLY, 0);
  if (::bind(socket.fd(), address, bytes) != 0 || ::listen(socket.fd(), SOMAXCONN) != 0) return errno;
  listener = std::move(socket);
  return 0;
}

/// A literal address and localhost are taken at their word. What any other name resolves to here may not be what the
/// other hosts see (Debian maps a host's own name to 127.0.1.1), so under a name rank 0 listens everywhere.
int try_listen(const World& world, const addrinfo* addresses, Socket& listener) {
  in6_addr scratch{};
  const bool exact = world.address == "localhost" || ::inet_pton(AF_INET, world.address.c_str(), &scratch) == 1 ||
                     ::inet_pton(AF_INET6, world.address.c_str(), &scratch) == 1;
  int code = EADDRNOTAVAIL;
  if (exact) {
    for (const addrinfo* at = addresses; at && code != 0; at = at->ai_next) {
      code = try_listen(at->ai_addr, at->ai_addrlen, listener);
    }
    return code;
  }
  const auto port = htons(static_cast<std::uint16_t>(world.port));
  sockaddr_in6 any6{};
  any6.sin6_family = AF_INET6;
  any6.sin6_port = port;
  code = try_listen(reinterpret_cast<const sockaddr*>(&any6), sizeof any6, listener);
  if (code == 0 || code == EADDRINUSE) return code;
  sockaddr_in any4{};
  any4.sin_family = AF_INET;
  any4.sin_port = port;
  return try_listen(reinterpret_cast<const sockaddr*>(&any4), sizeof any4, listener);
}

Socket listen_at(const World& world, Deadline deadline) {
  const Addresses addresses = resolve(world);
  const Deadline patience = Deadline::in(kPortPatience);
  while (true) {
    Socket listener;
    const int code = try_listen(world, addresses.get(), listener);
    if (code == 0) return listener;
    if (code == EADDRINUSE && !patience.passed() && !deadline.passed()) {
      pause(kRetry);
      continue;
    }
    throw Error(Errc::bootstrap,
                code == EADDRINUSE ? fmt::format("port {} on {} is in use (rank 0 cannot listen): {}", world.port,
                                                 world.address, error_text(code))
                                   : fmt::format("rank 0 cannot listen at {}: {}", place_of(world), error_text(code)),
                0);
  }
}

/// The port that a listening socket sits on; 0 when `fd` is no such thing.
int listening_port(int fd) {
  int listening = 0;
  socklen_t bytes = sizeof listening;
  if (::getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listening, &bytes) != 0 || !listening) return 0;
  sockaddr_storage address{};
  bytes = sizeof address;
  if (::getsockname(fd, reinterpret_cast<sockaddr*>(&address), &bytes) != 0) return 0;
  return ntohs(address.ss_family == AF_INET6 ? reinterpret_cast<const sockaddr_in6&>(address).sin6_port
                                             : reinterpret_cast<const sockaddr_in&>(address).sin_port);
}

/// Takes an inherited listening socket: a duplicate, the original stays open for the next rendezvous.
std::optional<Socket> adopt(int fd, int port) {
  if (listening_port(fd) != port) return std::nullopt;
  ::fcntl(fd, F_SETFD, FD_CLOEXEC);
  ::fcntl(fd, F_SETFL, ::fcntl(fd, F_GETFL) | O_NONBLOCK);
  Socket own(::fcntl(fd, F_DUPFD_CLOEXEC, 0));
  if (own.fd() < 0) return std::nullopt;
  return own;
}

/// A loopback port in the range of outgoing connections can connect to itself when nobody listens.
bool connected_to_itself(const Socket& socket) {
  sockaddr_storage here{}, there{};
  socklen_t here_bytes = sizeof here, there_bytes = sizeof there;
  return ::getsockname(socket.fd(), reinterpret_cast<sockaddr*>(&here), &here_bytes) == 0 &&
         ::getpeername(socket.fd(), reinterpret_cast<sockaddr*>(&there), &there_bytes) == 0 &&
         here_bytes == there_bytes && std::memcmp(&here, &there, here_bytes) == 0;
}

/// One attempt; an errno when it fails.
int try_connect(const addrinfo* address, Deadline deadline, Socket& connection) {
  Socket socket = open_socket(address->ai_family);
  if (socket.fd() < 0) return errno;
  if (::connect(socket.fd(), address->ai_addr, address->ai_addrlen) != 0) {
    if (errno != EINPROGRESS) return errno;
    std::vector<pollfd> writable{{socket.fd(), POLLOUT, 0}};
    while (writable[0].revents == 0) {
      if (deadline.passed()) return ETIMEDOUT;
      wait(writable, deadline);
    }
    int code = 0;
    socklen_t bytes = sizeof code;
    ::getsockopt(socket.fd(), SOL_SOCKET, SO_ERROR, &code, &bytes);
    if (code != 0) return code;
  }
  if (connected_to_itself(socket)) return ECONNREFUSED;
  connection = std::move(socket);
  return 0;
}

// ---- Frames --------------------------------------------------------------------------------------------------------

/// The first word of a frame. A connection opens with `hello`, whose value nothing else is likely to send.
enum class Kind : std::uint64_t {
  hello = 0x31304c4c4f43c3a9,  // from the others: Hello
  seen = 1,                    // from rank 0: the hello is good
  welcome,                     // from rank 0: everybody is here
  contribution,                // to rank 0: one rank's bytes
  everyone,                    // from rank 0: for each rank a length (8 bytes) and its bytes
  give_up,                     // to rank 0: the deadline has passed; seconds waited (a double)
  failure,                     // from rank 0: Failure, then its text
};

struct Header {
  Kind kind;
  std::uint64_t bytes;  // that follow
};

constexpr std::uint32_t kVersion = 1;
struct Hello {
  std::uint32_t version = kVersion;
  std::int32_t rank = 0;
  std::int32_t size = 0;
};

struct Failure {
  std::uint32_t code;
  std::int32_t culprit;
};

struct Frame {
  Kind kind;
  std::string payload;
};

template <class T>
std::string bytes_of(const T& value) {
  return {reinterpret_cast<const char*>(&value), sizeof value};
}

/// False when `bytes` is too short.
template <class T>
bool read_from(std::string_view bytes, T& value) {
  if (bytes.size() < sizeof value) return false;
  std::memcpy(&value, bytes.data(), sizeof value);
  return true;
}

std::shared_ptr<const std::string> make_frame(Kind kind, std::string_view payload = {}) {
  auto frame = std::make_shared<std::string>(bytes_of(Header{kind, payload.size()}));
  frame->append(payload);
  return frame;
}

/// Frames over one connection. Nothing here waits; what cannot go on now goes on at the next push() or next().
class Link {
 public:
  Link(Socket socket, std::size_t max_payload) : socket_(std::move(socket)), max_payload_(max_payload) {
    set_option(socket_, IPPROTO_TCP, TCP_NODELAY, 1);
    set_option(socket_, SOL_SOCKET, SO_KEEPALIVE, 1);
  }

  void set_max_payload(std::size_t bytes) { max_payload_ = bytes; }

  /// Why nothing more will come; empty while the connection is good.
  const std::string& lost() const { return lost_; }

  void post(std::shared_ptr<const std::string> frame) {
    out_.push_back(std::move(frame));
    push();
  }
  void post(Kind kind, std::string_view payload = {}) { post(make_frame(kind, payload)); }
  bool unsent() const { return !out_.empty(); }

  /// The next frame, if it is here.
  std::optional<Frame> next() {
    push();
    if (!pull()) return std::nullopt;
    Header header{};
    read_from(in_, header);
    Frame frame{header.kind, in_.substr(sizeof header)};
    in_.clear();
    return frame;
  }

  int fd() const { return socket_.fd(); }
  pollfd interest() const { return {fd(), static_cast<short>(unsent() ? POLLIN | POLLOUT : POLLIN), 0}; }

  /// Sends what can go out now.
  void push() {
    while (!out_.empty()) {
      const std::string& frame = *out_.front();
      const ssize_t moved = ::send(socket_.fd(), frame.data() + sent_, frame.size() - sent_, MSG_NOSIGNAL);
      if (moved < 0) {
        if (errno == EINTR) continue;
        if (errno == EAGAIN || errno == EWOULDBLOCK) return;
        out_.clear();  // the peer is gone; its last words may still be unread, so it is pull() that says so
        sent_ = 0;
        return;
      }
      sent_ += static_cast<std::size_t>(moved);
      if (sent_ == frame.size()) {
        out_.pop_front();
        sent_ = 0;
      }
    }
  }

 private:
  /// Reads no further than the end of a frame; true when one is complete. Memory grows with what has come, not with
  /// what a header claims.
  bool pull() {
    char buffer[16384];
    while (lost_.empty()) {
      Header header{};
      std::size_t wanted = sizeof header;
      if (read_from(in_, header)) {
        if (header.bytes > max_payload_) {
          lost_ = fmt::format("sent a frame of {} bytes, more than {}", header.bytes, max_payload_);
          return false;
        }
        wanted += header.bytes;
        if (in_.size() == wanted) return true;
      }
      const ssize_t moved = ::recv(socket_.fd(), buffer, std::min(sizeof buffer, wanted - in_.size()), 0);
      if (moved > 0) {
        in_.append(buffer, static_cast<std::size_t>(moved));
      } else if (moved == 0 || errno == ECONNRESET) {
        lost_ = "connection closed";
      } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
        return false;
      } else if (errno != EINTR) {
        lost_ = error_text(errno);
      }
    }
    return false;
  }

  Socket socket_;
  std::size_t max_payload_;
  std::string in_;  // of a frame that is not complete yet
  std::deque<std::shared_ptr<const std::string>> out_;
  std::size_t sent_ = 0;  // bytes of out_.front()
  std::string lost_;
};

// ---- Ranks ---------------------------------------------------------------------------------------------------------

class Member : public Bootstrap {
 public:
  explicit Member(const World& world) : world_(world) {}
  std::string_view name() const noexcept override { return "environment"; }
  Rank rank() const noexcept override { return world_.rank; }
  int size() const noexcept override { return world_.size; }

  std::vector<std::string> all_gather(std::string_view mine, Deadline deadline) final {
    if (end_) throw *end_;
    if (mine.size() > kMaxContribution) {
      throw Error(Errc::invalid_argument,
                  fmt::format("all_gather of {} bytes; the most is {}", mine.size(), kMaxContribution), rank());
    }
    return exchange(mine, deadline);
  }

 protected:
  virtual std::vector<std::string> exchange(std::string_view mine, Deadline) = 0;

  [[noreturn]] void end(Errc code, const std::string& what, Rank culprit) {
    end_.emplace(code, what, rank(), culprit);
    throw *end_;
  }
  std::size_t ranks() const { return static_cast<std::size_t>(size()); }

  const World world_;

 private:
  std::optional<Error> end_;
};

class Alone final : public Member {
 public:
  using Member::Member;

 private:
  std::vector<std::string> exchange(std::string_view mine, Deadline) override { return {std::string(mine)}; }
};

/// Rank 0.
class Hub final : public Member {
 public:
  Hub(const World& world, Socket listener, Deadline deadline) : Member(world), links_(ranks()) {
    begin();
    while (!everybody_here()) {
      greet(listener);
      hear([](Rank, Frame) { return false; });
      if (everybody_here()) break;
      std::vector<pollfd> entries{{listener.fd(), POLLIN, 0}};
      for (const Stranger& stranger : strangers_) entries.push_back(stranger.link.interest());
      wait_for_members(std::move(entries), deadline);
    }
    strangers_.clear();
    tell_all(make_frame(Kind::welcome));
  }

 private:
  struct Stranger {
    Link link;
    Deadline patience;
  };

  /// A wait begins: nobody but rank 0 is here.
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
      hear([&](Rank rank, Frame frame) {
        const auto r = static_cast<std::size_t>(rank);
        if (frame.kind != Kind::contribution || here_[r]) return false;
        gathered[r] = std::move(frame.payload);
        here_[r] = true;
        return true;
      });
      if (everybody_here()) break;
      wait_for_members({}, deadline);
    }
    std::string everyone;
    for (const std::string& each : gathered) everyone += bytes_of(std::uint64_t{each.size()}) + each;
    tell_all(make_frame(Kind::everyone, everyone));
    deliver(deadline);
    return gathered;
  }

  void greet(const Socket& listener);
  void admit(Stranger& stranger, const Frame& frame);

  /// Takes what members have sent; take(rank, frame) says whether it was due.
  template <class Take>
  void hear(Take&& take) {
    for (Rank rank = 1; rank < size(); ++rank) {
      auto& link = links_[static_cast<std::size_t>(rank)];
      if (!link) continue;
      while (auto frame = link->next()) {
        double seconds = 0;
        if (frame->kind == Kind::give_up && read_from(frame->payload, seconds)) too_late(rank, seconds);
        if (!take(rank, std::move(*frame))) {
          fail(Errc::bootstrap, fmt::format("rank {} sent a frame that was not due", rank), rank);
        }
      }
      if (!link->lost().empty()) {
        fail(Errc::bootstrap,
             fmt::format("rank {} left the rendezvous at {}: {}", rank, place_of(world_), link->lost()), rank);
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

  /// Waits until everybody has been sent everything. What they send meanwhile belongs to the next exchange.
  void deliver(Deadline deadline) {
    while (true) {
      std::vector<pollfd> entries;
      for (std::size_t r = 1; r < ranks(); ++r) {
        links_[r]->push();
        here_[r] = !links_[r]->unsent();  // missing is now who does not read
        if (!here_[r]) entries.push_back({links_[r]->fd(), POLLOUT, 0});
      }
      if (entries.empty()) return;
      if (deadline.passed()) too_late(rank(), seconds_since(start_));
      wait(entries, deadline);
    }
  }

  void tell_all(const std::shared_ptr<const std::string>& frame) {
    for (auto& link : links_) {
      if (link) link->post(frame);
    }
  }

  [[noreturn]] void too_late(Rank waiter, double seconds) {
    auto missing = missing_ranks(here_);
    if (missing.empty()) missing = {rank()};  // all others came, and one has not waited until rank 0 did
    fail(Errc::timeout, did_not_come(missing, place_of(world_), waiter, seconds), missing.front());
  }

  [[noreturn]] void fail(Errc code, const std::string& what, Rank culprit) {
    const auto frame = make_frame(Kind::failure, bytes_of(Failure{static_cast<std::uint32_t>(code), culprit}) + what);
    tell_all(frame);
    for (Stranger& stranger : strangers_) stranger.link.post(frame);
    end(code, what, culprit);
  }

  std::vector<std::optional<Link>> links_;  // by rank; none for rank 0
  std::vector<bool> here_;                  // who has come to the meeting or exchange under way
  std::list<Stranger> strangers_;           // connected, hello not yet complete
  Deadline::Clock::time_point start_;       // of the meeting or exchange under way
};

/// Accepts who knocks and makes members of those who say who they are. Others (port scanners) are dropped.
void Hub::greet(const Socket& listener) {
  while (true) {
    Socket socket(::accept4(listener.fd(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (socket.fd() < 0) {
      if (errno == EMFILE || errno == ENFILE) fail(Errc::system, "rank 0 cannot accept: " + error_text(errno), 0);
      break;
    }
    strangers_.push_back({Link(std::move(socket), kMaxHello), Deadline::in(kStrangerPatience)});
  }
  for (auto stranger = strangers_.begin(); stranger != strangers_.end();) {
    const auto frame = stranger->link.next();
    if (frame && frame->kind == Kind::hello) admit(*stranger, *frame);
    const bool done = frame || !stranger->link.lost().empty() || stranger->patience.passed();
    stranger = done ? strangers_.erase(stranger) : std::next(stranger);
  }
}

/// A hello that does not fit ends the rendezvous: somebody is configured wrongly, and who is not for rank 0 to guess.
void Hub::admit(Stranger& stranger, const Frame& frame) {
  std::uint32_t version = 0;
  if (read_from(frame.payload, version) && version != kVersion) {
    fail(Errc::bootstrap,
         fmt::format("a process of protocol version {} came to the rendezvous at {}, which speaks version {}", version,
                     place_of(world_), kVersion),
         kNoRank);
  }
  Hello hello{};
  if (!read_from(frame.payload, hello)) return;
  if (hello.size != size()) {
    fail(Errc::bootstrap,
         fmt::format("rank {} came to the rendezvous at {} as one of {} ranks, rank 0 as one of {}", hello.rank,
                     place_of(world_), hello.size, size()),
         hello.rank);
  }
  if (hello.rank < 0 || hello.rank >= size() || here_[static_cast<std::size_t>(hello.rank)]) {
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

/// Any rank but 0.
class Spoke final : public Member {
 public:
  Spoke(const World& world, Deadline deadline) : Member(world) {
    const auto start = Deadline::Clock::now();
    const Addresses addresses = resolve(world);
    std::string last = "no answer";
    // Until rank 0 has answered, the other end may be something else, or a rank 0 of yesterday about to end: try again.
    while (!find_hub(addresses.get(), deadline, last)) {
      if (deadline.passed()) {
        const std::string what = did_not_come({0}, place_of(world_), rank(), seconds_since(start));
        end(Errc::timeout, fmt::format("{}; last attempt: {}", what, last), 0);
      }
      pause(kRetry);
    }
    await(Kind::welcome, start, deadline);
  }

 private:
  std::vector<std::string> exchange(std::string_view mine, Deadline deadline) override {
    link_->post(Kind::contribution, mine);
    const std::string everyone = await(Kind::everyone, Deadline::Clock::now(), deadline);
    std::vector<std::string> gathered;
    std::string_view rest = everyone;
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

  /// True when rank 0 has answered at one of its addresses; otherwise says what came instead.
  bool find_hub(const addrinfo* addresses, Deadline deadline, std::string& why_not) {
    for (const addrinfo* at = addresses; at && !link_; at = at->ai_next) {
      Socket socket;
      if (const int code = try_connect(at, deadline, socket); code != 0) {
        why_not = error_text(code);
      } else if (auto answered = introduce(std::move(socket), deadline, why_not)) {
        link_.emplace(std::move(*answered));
      }
    }
    return link_.has_value();
  }

  /// The link, once rank 0 has answered; none when what listens there is not rank 0.
  std::optional<Link> introduce(Socket socket, Deadline deadline, std::string& why_not) {
    Link link(std::move(socket), (kMaxContribution + sizeof(std::uint64_t)) * ranks());
    link.post(Kind::hello, bytes_of(Hello{.rank = rank(), .size = size()}));
    while (true) {
      if (const auto frame = link.next()) {
        if (frame->kind == Kind::seen) return link;
        if (frame->kind == Kind::failure) fail_as_told(*frame);
        why_not = "what listens there does not speak our protocol";
        return std::nullopt;
      }
      why_not = link.lost();
      if (!why_not.empty()) return std::nullopt;
      if (deadline.passed()) {
        why_not = "what listens there does not answer";
        return std::nullopt;
      }
      std::vector<pollfd> entries{link.interest()};
      wait(entries, deadline);
    }
  }

  /// The payload of the next frame, which is of this kind or the end.
  std::string await(Kind kind, Deadline::Clock::time_point start, Deadline deadline) {
    double gave_up_after = 0;  // seconds; 0: not yet
    while (true) {
      if (auto frame = link_->next()) {
        if (frame->kind == kind) return std::move(frame->payload);
        if (frame->kind == Kind::failure) fail_as_told(*frame);
        end(Errc::bootstrap, "rank 0 sent a frame that was not due", 0);
      }
      if (!link_->lost().empty()) {
        end(Errc::bootstrap, fmt::format("rank 0 left the rendezvous at {}: {}", place_of(world_), link_->lost()), 0);
      }
      if (deadline.passed()) {
        if (gave_up_after > 0) end(Errc::timeout, did_not_come({0}, place_of(world_), rank(), gave_up_after), 0);
        gave_up_after = seconds_since(start);
        link_->post(Kind::give_up, bytes_of(gave_up_after));  // rank 0, if it is there, knows who is missing
        deadline = Deadline::in(kVerdictPatience);
      }
      std::vector<pollfd> entries{link_->interest()};
      wait(entries, deadline);
    }
  }

  [[noreturn]] void fail_as_told(const Frame& frame) {
    Failure failure{};
    if (!read_from(frame.payload, failure)) end(Errc::bootstrap, "rank 0 sent a damaged frame", 0);
    const bool known = failure.code >= static_cast<std::uint32_t>(Errc::invalid_argument) &&
                       failure.code <= static_cast<std::uint32_t>(Errc::system);
    end(known ? static_cast<Errc>(failure.code) : Errc::bootstrap, frame.payload.substr(sizeof failure),
        failure.culprit);
  }

  std::optional<Link> link_;  // to rank 0
};

}  // namespace

std::unique_ptr<Bootstrap> rendezvous(const World& world, std::optional<int> listening,
                                      std::chrono::nanoseconds timeout) {
  const Deadline deadline = Deadline::in(timeout);
  if (world.size == 1) return std::make_unique<Alone>(world);
  if (world.rank != 0) return std::make_unique<Spoke>(world, deadline);
  std::optional<Socket> listener;
  if (listening) listener = adopt(*listening, world.port);
  if (!listener) listener = listen_at(world, deadline);
  return std::make_unique<Hub>(world, std::move(*listener), deadline);
}

}  // namespace collectives
