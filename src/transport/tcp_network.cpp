// Implementation of the network over TCP, which connects ranks of different hosts. This file finds the addresses of
// this host, sets the options of sockets, and makes all connections of one rank.
//
// Each pair of ranks on different hosts has two connections, called channels: 0 for data, and 1 for control messages
// (short texts). The rank with the higher number connects. Its first message on a connection is a hello. The hello
// contains the channel, the two ranks, and the token, a secret of the job.
#include "transport/tcp_network.hpp"

#include <arpa/inet.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <fstream>
#include <list>
#include <optional>

#include "base/json.hpp"
#include "base/text.hpp"
#include "collectives/error.hpp"
#include "transport/tcp.hpp"

namespace collectives {
namespace {

using Clock = std::chrono::steady_clock;
using namespace std::chrono_literals;
using nlohmann::json;

constexpr auto kNextAddressAfter = 250ms;  // Time after which the next address of a peer is tried too.
constexpr auto kAgainAfter = 200ms;        // Extra time after the last address, before the first is tried again.
constexpr auto kHelloPatience = 5s;        // Maximum time in which an accepted connection must send its hello.
constexpr auto kAnswerPatience = 5s;       // Maximum time of one attempt to connect.

/// First message on a connection, from the rank that connects. Both ends run the same version of the library, because
/// an exchange through the bootstrap has compared the versions.
struct Hello {
  std::array<char, 8> magic{'c', 'o', 'l', 'l', 'w', 'i', 'r', '1'};
  std::array<char, 32> token{};
  std::int32_t from = 0, to = 0, channel = 0, reserved = 0;
};
constexpr char kWelcome = 'w', kTaken = 't';

std::array<char, 32> token_bytes(std::string_view token) {
  std::array<char, 32> bytes{};
  std::copy_n(token.begin(), std::min(token.size(), bytes.size()), bytes.begin());
  return bytes;
}

/// Returns a text that identifies the network namespace of this process: boot id and inode. Processes with the same
/// text can connect over loopback.
std::string network_of_this_process() {
  std::string boot;
  std::getline(std::ifstream("/proc/sys/kernel/random/boot_id"), boot);
  struct stat status {};
  if (boot.empty() || ::stat("/proc/self/ns/net", &status) != 0) return "";
  return fmt::format("{}:{}", boot, status.st_ino);
}

std::string text_of(const sockaddr* address) {
  char text[INET6_ADDRSTRLEN] = "";
  if (address->sa_family == AF_INET)
    ::inet_ntop(AF_INET, &reinterpret_cast<const sockaddr_in*>(address)->sin_addr, text, sizeof text);
  if (address->sa_family == AF_INET6)
    ::inet_ntop(AF_INET6, &reinterpret_cast<const sockaddr_in6*>(address)->sin6_addr, text, sizeof text);
  return text;
}

struct Interface {
  std::string name, address;
  std::vector<std::uint8_t> bytes;  // The address in binary.
  int prefix = 0;                   // Length of the network prefix in bits.
};

std::vector<std::uint8_t> bytes_of(const sockaddr* address) {
  if (address->sa_family == AF_INET) {
    const auto* at = reinterpret_cast<const std::uint8_t*>(&reinterpret_cast<const sockaddr_in*>(address)->sin_addr);
    return {at, at + 4};
  }
  const auto* at = reinterpret_cast<const std::uint8_t*>(&reinterpret_cast<const sockaddr_in6*>(address)->sin6_addr);
  return {at, at + 16};
}

std::vector<Interface> interfaces_up() {
  std::vector<Interface> found;
  ifaddrs* all = nullptr;
  if (::getifaddrs(&all) != 0) throw Error(Errc::system, "getifaddrs: " + tcp::error_text(errno));
  for (const ifaddrs* at = all; at != nullptr; at = at->ifa_next) {
    if (at->ifa_addr == nullptr || (at->ifa_flags & IFF_UP) == 0 || (at->ifa_flags & IFF_LOOPBACK) != 0) continue;
    const int family = at->ifa_addr->sa_family;
    if (family != AF_INET && family != AF_INET6) continue;
    Interface one{at->ifa_name, text_of(at->ifa_addr), bytes_of(at->ifa_addr), 0};
    if (family == AF_INET6 && one.bytes[0] == 0xfe && (one.bytes[1] & 0xc0) == 0x80) continue;  // Link-local.
    if (at->ifa_netmask != nullptr)
      for (const std::uint8_t byte : bytes_of(at->ifa_netmask)) one.prefix += __builtin_popcount(byte);
    found.push_back(std::move(one));
  }
  ::freeifaddrs(all);
  return found;
}

bool allowed(const Interface& one, const std::vector<std::string>& interfaces) {
  return interfaces.empty() || std::ranges::any_of(interfaces, [&](const std::string& wanted) {
           return one.name == wanted || one.address.starts_with(wanted);
         });
}

struct Address {
  sockaddr_storage storage{};
  socklen_t bytes = 0;
  std::string text;  // The address with the port.
};

std::optional<Address> parse(const std::string& text, int port) {
  Address address;
  auto* four = reinterpret_cast<sockaddr_in*>(&address.storage);
  auto* six = reinterpret_cast<sockaddr_in6*>(&address.storage);
  if (::inet_pton(AF_INET, text.c_str(), &four->sin_addr) == 1) {
    four->sin_family = AF_INET;
    four->sin_port = htons(static_cast<std::uint16_t>(port));
    address.bytes = sizeof *four;
    address.text = fmt::format("{}:{}", text, port);
  } else if (::inet_pton(AF_INET6, text.c_str(), &six->sin6_addr) == 1) {
    six->sin6_family = AF_INET6;
    six->sin6_port = htons(static_cast<std::uint16_t>(port));
    address.bytes = sizeof *six;
    address.text = fmt::format("[{}]:{}", text, port);
  } else {
    return std::nullopt;
  }
  return address;
}

bool same_network(const Interface& mine, const Address& theirs) {
  const auto bytes = bytes_of(reinterpret_cast<const sockaddr*>(&theirs.storage));
  if (bytes.size() != mine.bytes.size()) return false;
  for (int bit = 0; bit < mine.prefix; ++bit) {
    const auto byte = static_cast<std::size_t>(bit / 8);
    if (((bytes[byte] ^ mine.bytes[byte]) >> (7 - bit % 8)) & 1) return false;
  }
  return true;
}

/// Returns the addresses at which a rank may be reached. Loopback comes first if both processes share a network
/// namespace, then addresses in networks of this host, then the rest.
std::vector<Address> candidates(const std::string& said, const std::vector<Interface>& mine) {
  const json peer_info = parse_json(said);
  if (!peer_info.is_object()) return {};
  const int port = peer_info.at("port").get<int>();
  std::vector<Address> near, far;
  if (const std::string network = network_of_this_process(); !network.empty() && peer_info.at("network") == network)
    for (const char* loopback : {"127.0.0.1", "::1"}) near.push_back(*parse(loopback, port));
  for (const auto& text : peer_info.at("at"))
    if (const auto address = parse(text.get<std::string>(), port))
      (std::ranges::any_of(mine, [&](const Interface& one) { return same_network(one, *address); }) ? near : far)
          .push_back(*address);
  near.insert(near.end(), far.begin(), far.end());
  return near;
}

/// Sets the congestion control. Returns false and changes nothing if the kernel lacks it or reserves it for root.
bool choose_congestion_control(const tcp::Socket& socket, const std::string& name) {
  return ::setsockopt(socket.fd(), IPPROTO_TCP, TCP_CONGESTION, name.data(), static_cast<socklen_t>(name.size())) == 0;
}

void set_options(const tcp::Socket& socket, const std::string& congestion_control) {
  tcp::set_option(socket, IPPROTO_TCP, TCP_NODELAY, 1);
  if (congestion_control != "system") choose_congestion_control(socket, congestion_control);
}

/// Makes the kernel end a control connection whose host does not answer. Data connections have no such limit: their
/// data may wait because the peer does not read them, so silence there proves nothing.
void notice_silence(const tcp::Socket& socket) {
  const auto seconds = [](std::chrono::seconds time) { return static_cast<int>(time.count()); };
  tcp::set_option(socket, SOL_SOCKET, SO_KEEPALIVE, 1);
  tcp::set_option(socket, IPPROTO_TCP, TCP_KEEPIDLE, seconds(TcpTransport::kSilence / 3));
  tcp::set_option(socket, IPPROTO_TCP, TCP_KEEPINTVL, seconds(TcpTransport::kSilence / 5));
  tcp::set_option(socket, IPPROTO_TCP, TCP_KEEPCNT, 3);
  tcp::set_option(socket, IPPROTO_TCP, TCP_USER_TIMEOUT, seconds(TcpTransport::kSilence) * 1000);
}

/// Raises the limit of open files to what the system allows, at most 2^20, if there are more than 50 peers. Every
/// communicator has two connections to every peer.
void make_space_for_descriptors(int peers) {
  constexpr int kFew = 50;
  constexpr rlim_t kEnough = 1 << 20;
  rlimit limit{};
  if (peers <= kFew || ::getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= kEnough) return;
  limit.rlim_cur = std::min(kEnough, limit.rlim_max);
  ::setrlimit(RLIMIT_NOFILE, &limit);
}

/// Makes all connections of one rank.
class Connecting {
 public:
  Connecting(const tcp::Socket& listener, const TcpSettings& settings, const PeerAddresses& peers)
      : listener_(listener), settings_(settings), peers_(peers), token_(token_bytes(peers.token)) {
    const std::vector<Interface> mine = interfaces_up();
    for (Rank rank = 0; rank < peers.size(); ++rank) {
      links_.emplace_back();
      targets_.emplace_back();
      if (peers.is_remote(rank) && rank < peers.self)
        targets_.back().addresses = candidates(peers.addresses[static_cast<std::size_t>(rank)], mine);
    }
  }

  std::vector<TcpLink> links() {
    while (!complete()) {
      const auto now = Clock::now();
      for (Rank rank = 0; rank < peers_.self; ++rank)
        if (peers_.is_remote(rank)) try_next(rank, now);
      if (peers_.deadline.passed()) give_up();
      wait();
      accept_all();
      std::erase_if(arrivals_, [&](Arrival& arrival) { return !progress(arrival); });
      std::erase_if(attempts_, [&](Attempt& attempt) { return !progress(attempt); });
    }
    for (const TcpLink& link : links_)
      if (link.control.fd() >= 0) notice_silence(link.control);
    return std::move(links_);
  }

 private:
  static constexpr int kChannels = 2;  // Data and control.

  /// State of the attempts to connect to one lower rank.
  struct Target {
    std::vector<Address> addresses;
    std::size_t next = 0;
    std::optional<std::size_t> proven;  // Index of the address that has answered.
    Clock::time_point try_at{};
    std::vector<std::string> outcomes;  // Result of the last attempt for each address, as text.
  };
  struct Attempt {
    tcp::Socket socket;
    Rank to;
    int channel;
    std::size_t address;
    bool connected = false;
    Clock::time_point since = Clock::now();
  };
  struct Arrival {
    tcp::Socket socket;
    Hello hello;
    std::size_t read = 0;
    bool welcomed = false;
    Clock::time_point since = Clock::now();
  };

  tcp::Socket& end(Rank rank, int channel) {
    TcpLink& link = links_[static_cast<std::size_t>(rank)];
    return channel == 0 ? link.data : link.control;
  }
  Target& target(Rank rank) { return targets_[static_cast<std::size_t>(rank)]; }
  bool connected(Rank rank) { return end(rank, 0).fd() >= 0 && end(rank, 1).fd() >= 0; }
  bool complete() {
    for (Rank rank = 0; rank < peers_.size(); ++rank)
      if (peers_.is_remote(rank) && !connected(rank)) return false;
    return true;
  }

  /// Starts another attempt if one is due. Tries all addresses in turn for the data connection. Uses the address that
  /// answered for the control connection.
  void try_next(Rank rank, Clock::time_point now) {
    Target& to = target(rank);
    if (connected(rank) || to.addresses.empty() || now < to.try_at) return;
    const int channel = end(rank, 0).fd() < 0 ? 0 : 1;
    const std::size_t at = to.proven.value_or(to.next);
    const bool last = at + 1 == to.addresses.size();
    to.next = last ? 0 : at + 1;
    to.try_at = now + (to.proven || last ? kNextAddressAfter + kAgainAfter : kNextAddressAfter);
    to.outcomes.resize(to.addresses.size(), "not tried");

    const Address& address = to.addresses[at];
    tcp::Socket socket(::socket(address.storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (socket.fd() < 0) return failed(rank, at, errno);
    set_options(socket, settings_.congestion_control);
    to.outcomes[at] = "no answer";
    if (::connect(socket.fd(), reinterpret_cast<const sockaddr*>(&address.storage), address.bytes) != 0 &&
        errno != EINPROGRESS)
      return failed(rank, at, errno);
    attempts_.push_back({.socket = std::move(socket), .to = rank, .channel = channel, .address = at});
  }
  void failed(Rank rank, std::size_t address, int code) {
    Target& to = target(rank);
    to.outcomes[address] = tcp::error_text(code);
    if (to.next != 0 && !to.proven) to.try_at = {};  // Tries the next address at once.
  }

  void wait() {
    std::vector<pollfd> entries{{listener_.fd(), POLLIN, 0}};
    for (const Attempt& attempt : attempts_)
      entries.push_back({attempt.socket.fd(), static_cast<short>(attempt.connected ? POLLIN : POLLOUT), 0});
    for (const Arrival& arrival : arrivals_) entries.push_back({arrival.socket.fd(), POLLIN, 0});
    if (::poll(entries.data(), entries.size(), peers_.deadline.milliseconds_left(20)) < 0 && errno != EINTR)
      throw Error(Errc::system, "poll: " + tcp::error_text(errno));
  }

  /// Advances an attempt. Returns false once it has succeeded or failed.
  bool progress(Attempt& attempt) {
    const int fd = attempt.socket.fd();
    if (end(attempt.to, attempt.channel).fd() >= 0) return false;      // Another attempt was faster.
    if (Clock::now() - attempt.since > kAnswerPatience) return false;  // try_next() will try the address again.
    if (!attempt.connected) {
      pollfd writable{fd, POLLOUT, 0};
      if (::poll(&writable, 1, 0) <= 0) return true;
      int code = 0;
      socklen_t bytes = sizeof code;
      ::getsockopt(fd, SOL_SOCKET, SO_ERROR, &code, &bytes);
      Hello hello;
      hello.token = token_;
      hello.from = peers_.self;
      hello.to = attempt.to;
      hello.channel = attempt.channel;
      if (code == 0 && ::send(fd, &hello, sizeof hello, MSG_DONTWAIT | MSG_NOSIGNAL) != sizeof hello) code = errno;
      if (code != 0) return failed(attempt.to, attempt.address, code), false;
      attempt.connected = true;
    }
    char answer = 0;
    const ssize_t got = ::recv(fd, &answer, 1, MSG_DONTWAIT);
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) return true;
    if (got != 1 || answer != kWelcome || ::send(fd, &kTaken, 1, MSG_DONTWAIT | MSG_NOSIGNAL) != 1) {
      failed(attempt.to, attempt.address, got < 0 ? errno : ECONNREFUSED);
      target(attempt.to).outcomes[attempt.address] = "somebody else answered";
      return false;
    }
    Target& to = target(attempt.to);
    to.proven = attempt.address;
    to.try_at = {};
    end(attempt.to, attempt.channel) = std::move(attempt.socket);
    return false;
  }

  void accept_all() {
    for (;;) {
      tcp::Socket socket(::accept4(listener_.fd(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
      if (socket.fd() < 0) return;
      set_options(socket, settings_.congestion_control);
      arrivals_.push_back({.socket = std::move(socket), .hello = {}});
    }
  }

  /// Advances an accepted connection. Returns false once it belongs to a link or is refused.
  bool progress(Arrival& arrival) {
    const int fd = arrival.socket.fd();
    if (arrival.read < sizeof arrival.hello) {
      const ssize_t got = ::recv(fd, reinterpret_cast<char*>(&arrival.hello) + arrival.read,
                                 sizeof arrival.hello - arrival.read, MSG_DONTWAIT);
      if (got < 0 && (errno == EAGAIN || errno == EINTR)) return Clock::now() - arrival.since < kHelloPatience;
      if (got <= 0) return false;
      arrival.read += static_cast<std::size_t>(got);
      if (arrival.read < sizeof arrival.hello) return true;
      if (!expected(arrival.hello) || ::send(fd, &kWelcome, 1, MSG_DONTWAIT | MSG_NOSIGNAL) != 1) return false;
    }
    char answer = 0;
    const ssize_t got = ::recv(fd, &answer, 1, MSG_DONTWAIT);
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) return true;
    if (got == 1 && answer == kTaken) end(arrival.hello.from, arrival.hello.channel) = std::move(arrival.socket);
    return false;
  }
  bool expected(const Hello& hello) {
    return hello.magic == Hello{}.magic && hello.token == token_ && hello.to == peers_.self &&
           hello.from > peers_.self && hello.from < peers_.size() && peers_.is_remote(hello.from) &&
           hello.channel >= 0 && hello.channel < kChannels && end(hello.from, hello.channel).fd() < 0;
  }

  [[noreturn]] void give_up() {
    std::vector<Rank> absent;
    std::string tried;
    Rank peer = kNoRank;
    for (Rank rank = 0; rank < peers_.size(); ++rank) {
      if (!peers_.is_remote(rank) || connected(rank)) continue;
      if (peer == kNoRank) peer = rank;
      if (rank > peers_.self) {
        absent.push_back(rank);
        continue;
      }
      const Target& to = target(rank);
      std::vector<std::string> each;
      for (std::size_t i = 0; i < to.addresses.size(); ++i)
        each.push_back(
            fmt::format("{}: {}", to.addresses[i].text, i < to.outcomes.size() ? to.outcomes[i] : "not tried"));
      if (!tried.empty()) tried += "; ";
      tried +=
          fmt::format("rank {} cannot be reached ({})", rank,
                      each.empty() ? "it has no address that could be used" : fmt::to_string(fmt::join(each, ", ")));
    }
    if (!absent.empty())
      tried += fmt::format("{}{} did not connect to this rank, which listens at {}", tried.empty() ? "" : "; ",
                           ranks_text(absent), fmt::join(own_addresses(settings_.interfaces), ", "));
    throw Error(Errc::timeout, "transport tcp: " + tried, peers_.self, peer, "construction");
  }

  const tcp::Socket& listener_;
  const TcpSettings& settings_;
  const PeerAddresses& peers_;
  std::array<char, 32> token_;
  std::vector<TcpLink> links_;
  std::vector<Target> targets_;
  std::list<Attempt> attempts_;
  std::list<Arrival> arrivals_;
};

}  // namespace

std::vector<std::string> own_addresses(const std::vector<std::string>& interfaces) {
  std::vector<std::string> addresses;
  for (const Interface& one : interfaces_up())
    if (allowed(one, interfaces)) addresses.push_back(one.address);
  return addresses;
}

std::string what_matches_nothing(const TcpSettings& settings) {
  std::string text;
  const std::vector<Interface> up = interfaces_up();
  for (const std::string& wanted : settings.interfaces) {
    if (std::ranges::any_of(up, [&](const Interface& one) { return allowed(one, {wanted}); })) continue;
    std::vector<std::string> known;
    for (const Interface& one : up) known.push_back(fmt::format("{} ({})", one.name, one.address));
    text += fmt::format("no interface is \"{}\"; up are: {}. ", wanted, fmt::join(known, ", "));
  }
  if (settings.congestion_control != "system") {
    const tcp::Socket any(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    if (!choose_congestion_control(any, settings.congestion_control)) {
      // Root may use everything that the kernel has. Other users may use what root allows.
      std::string known, allowed;
      std::getline(std::ifstream("/proc/sys/net/ipv4/tcp_available_congestion_control"), known);
      std::getline(std::ifstream("/proc/sys/net/ipv4/tcp_allowed_congestion_control"), allowed);
      text += fmt::format(
          "congestion control \"{}\" cannot be used here; the kernel has: {}; net.ipv4.tcp_allowed_congestion_control "
          "allows every user: {}. ",
          settings.congestion_control, known, allowed);
    }
  }
  return text;
}

TcpNetwork::TcpNetwork(TcpSettings settings) : settings_(std::move(settings)) {
  const auto listen = [this](const sockaddr* address, socklen_t bytes) {
    tcp::Socket socket(::socket(address->sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (socket.fd() < 0) return errno;
    if (address->sa_family == AF_INET6) tcp::set_option(socket, IPPROTO_IPV6, IPV6_V6ONLY, 0);
    if (::bind(socket.fd(), address, bytes) != 0 || ::listen(socket.fd(), SOMAXCONN) != 0) return errno;
    sockaddr_storage bound{};
    socklen_t size = sizeof bound;
    if (::getsockname(socket.fd(), reinterpret_cast<sockaddr*>(&bound), &size) != 0) return errno;
    port_ = ntohs(bound.ss_family == AF_INET6 ? reinterpret_cast<sockaddr_in6&>(bound).sin6_port
                                              : reinterpret_cast<sockaddr_in&>(bound).sin_port);
    listener_ = std::move(socket);
    return 0;
  };
  sockaddr_in6 six{};
  six.sin6_family = AF_INET6;
  if (listen(reinterpret_cast<const sockaddr*>(&six), sizeof six) == 0) return;
  sockaddr_in four{};
  four.sin_family = AF_INET;
  if (const int code = listen(reinterpret_cast<const sockaddr*>(&four), sizeof four); code != 0)
    throw Error(Errc::bootstrap, "transport tcp: cannot listen: " + tcp::error_text(code));
}

std::string TcpNetwork::address() const {
  return json_text(
      json{{"network", network_of_this_process()}, {"port", port_}, {"at", own_addresses(settings_.interfaces)}});
}

std::unique_ptr<Wire> TcpNetwork::connect(const PeerAddresses& peers) {
  make_space_for_descriptors(peers.size());
  std::vector<TcpLink> links = Connecting(listener_, settings_, peers).links();
  auto wire = std::make_unique<TcpTransport>(std::move(links), peers.frame_bytes);
  std::uint64_t token = 0;
  std::memcpy(&token, token_bytes(peers.token).data(), sizeof token);
  wire->open_datagrams(token, settings_.datagrams, peers.deadline);
  return wire;
}

}  // namespace collectives
