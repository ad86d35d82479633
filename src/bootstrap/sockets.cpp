// Functions for the TCP sockets of the rendezvous, in which all ranks connect to rank 0. The functions resolve
// addresses, listen, connect, and wait for events of sockets.
#include "bootstrap/sockets.hpp"

#include <arpa/inet.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstring>

#include "collectives/error.hpp"

namespace collectives::tcp {
namespace {

// Maximum time for which rank 0 waits until another job that is ending releases the port.
constexpr auto kPortPatience = std::chrono::seconds(1);

Socket open_socket(int family) { return Socket(::socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)); }

/// Listens at `address`, and stores the socket in `listener`. Returns 0, or an errno.
int try_listen(const sockaddr* address, socklen_t bytes, Socket& listener) {
  Socket socket = open_socket(address->sa_family);
  if (socket.fd() < 0) return errno;
  set_option(socket, SOL_SOCKET, SO_REUSEADDR, 1);
  if (address->sa_family == AF_INET6) set_option(socket, IPPROTO_IPV6, IPV6_V6ONLY, 0);
  if (::bind(socket.fd(), address, bytes) != 0 || ::listen(socket.fd(), SOMAXCONN) != 0) return errno;
  listener = std::move(socket);
  return 0;
}

/// Listens at the address of rank 0. Returns 0, or an errno. If the address is numeric or "localhost", listens only at
/// this address. If it is a host name, listens at all addresses of this host. Reason: another host may resolve the name
/// to a different address than this host does. Debian, for example, maps a host's own name to 127.0.1.1.
int try_listen(const World& world, Socket& listener) {
  in6_addr scratch{};
  const bool exact = world.address == "localhost" || ::inet_pton(AF_INET, world.address.c_str(), &scratch) == 1 ||
                     ::inet_pton(AF_INET6, world.address.c_str(), &scratch) == 1;
  std::string unresolved;
  const Addresses addresses = exact ? resolve(world, unresolved) : Addresses{nullptr, &::freeaddrinfo};
  int code = EADDRNOTAVAIL;
  if (addresses != nullptr) {
    for (const addrinfo* at = addresses.get(); at && code != 0; at = at->ai_next) {
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

/// Returns the port of a listening socket. Returns 0 if `fd` is no listening socket.
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

/// Returns whether the socket is connected to itself. This happens on loopback if no process listens at a port, and the
/// kernel chooses this port as the source port of the connection.
bool connected_to_itself(const Socket& socket) {
  sockaddr_storage here{}, there{};
  socklen_t here_bytes = sizeof here, there_bytes = sizeof there;
  return ::getsockname(socket.fd(), reinterpret_cast<sockaddr*>(&here), &here_bytes) == 0 &&
         ::getpeername(socket.fd(), reinterpret_cast<sockaddr*>(&there), &there_bytes) == 0 &&
         here_bytes == there_bytes && std::memcmp(&here, &there, here_bytes) == 0;
}

}  // namespace

std::string place_of(const World& world) {
  const bool ipv6 = world.address.find(':') != std::string::npos;
  return fmt::format(fmt::runtime(ipv6 ? "[{}]:{}" : "{}:{}"), world.address, world.port);
}

void set_option(const Socket& socket, int level, int option, int value) {
  ::setsockopt(socket.fd(), level, option, &value, sizeof value);
}

void wait(std::vector<pollfd>& entries, int milliseconds) {
  const int ready = ::poll(entries.data(), entries.size(), milliseconds);
  if (ready < 0 && errno != EINTR) throw Error(Errc::system, "poll: " + error_text(errno));
}

void pause(std::chrono::milliseconds time) { ::poll(nullptr, 0, static_cast<int>(time.count())); }

Addresses resolve(const World& world, std::string& answer) {
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICSERV;
  addrinfo* found = nullptr;
  const int code = ::getaddrinfo(world.address.c_str(), std::to_string(world.port).c_str(), &hints, &found);
  if (code == 0) return {found, &::freeaddrinfo};
  answer = fmt::format("host '{}' of rank 0 does not resolve: {} (from {})", escaped_text(world.address),
                       code == EAI_SYSTEM ? error_text(errno) : ::gai_strerror(code), world.source);
  return {nullptr, &::freeaddrinfo};
}

Socket listen_at(const World& world, Deadline deadline) {
  const Deadline patience = Deadline::in(kPortPatience);
  while (true) {
    Socket listener;
    const int code = try_listen(world, listener);
    if (code == 0) return listener;
    if (code == EADDRINUSE && !patience.passed() && !deadline.passed()) {
      pause(kRetry);
      continue;
    }
    throw Error(is_out_of_descriptors(code) ? Errc::system : Errc::bootstrap,
                code == EADDRINUSE ? fmt::format("port {} on {} is in use (rank 0 cannot listen): {}", world.port,
                                                 world.address, error_text(code))
                                   : fmt::format("rank 0 cannot listen at {}: {}", place_of(world), error_text(code)),
                0);
  }
}

std::optional<Socket> adopt(int fd, int port) {
  if (listening_port(fd) != port) return std::nullopt;
  ::fcntl(fd, F_SETFD, FD_CLOEXEC);
  ::fcntl(fd, F_SETFL, ::fcntl(fd, F_GETFL) | O_NONBLOCK);
  Socket own(::fcntl(fd, F_DUPFD_CLOEXEC, 0));
  if (own.fd() < 0) throw Error(Errc::system, "rank 0 cannot listen: " + error_text(errno), 0);
  return own;
}

int try_connect(const addrinfo* address, ReportedWait& waiting, Socket& connection) {
  Socket socket = open_socket(address->ai_family);
  if (socket.fd() < 0) return errno;
  if (::connect(socket.fd(), address->ai_addr, address->ai_addrlen) != 0) {
    if (errno != EINPROGRESS) return errno;
    std::vector<pollfd> writable{{socket.fd(), POLLOUT, 0}};
    while (true) {
      wait(writable, waiting.milliseconds_left());
      if (writable[0].revents != 0) break;
      if (waiting.is_over()) return EINPROGRESS;
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

bool is_permanent(int error, const addrinfo* address) {
  if (error == EACCES || error == EPERM || error == EAFNOSUPPORT || is_out_of_descriptors(error)) return true;
  const bool unreachable = error == ENETUNREACH || error == EHOSTUNREACH || error == EADDRNOTAVAIL;
  if (!unreachable) return false;
  if (address->ai_family == AF_INET6)
    return IN6_IS_ADDR_LOOPBACK(&reinterpret_cast<const sockaddr_in6*>(address->ai_addr)->sin6_addr);
  constexpr std::uint32_t kLoopbackNet = 127;
  const auto ip = ntohl(reinterpret_cast<const sockaddr_in*>(address->ai_addr)->sin_addr.s_addr);
  return address->ai_family == AF_INET && ip >> 24 == kLoopbackNet;
}

}  // namespace collectives::tcp
