// Epolls. An epoll is an object of the kernel that watches several sockets. The descriptor of an epoll is readable
// while one of its sockets has an event.
#pragma once

#include <sys/epoll.h>

#include <cerrno>
#include <cstdint>

#include "bootstrap/sockets.hpp"
#include "collectives/error.hpp"

namespace collectives {

/// Returns an empty epoll. Throws Error{system}.
inline tcp::Socket make_epoll() {
  tcp::Socket epoll(::epoll_create1(EPOLL_CLOEXEC));
  if (epoll.fd() < 0) throw Error(Errc::system, "epoll_create1: " + tcp::error_text(errno));
  return epoll;
}

/// Adds `socket` to the epoll. From then on, the epoll reports the given events of the socket. Each report contains
/// `number`. Throws Error{system}.
inline void epoll_add(const tcp::Socket& epoll, const tcp::Socket& socket, std::uint32_t events, std::uint32_t number) {
  epoll_event event{};
  event.events = events;
  event.data.u32 = number;
  if (::epoll_ctl(epoll.fd(), EPOLL_CTL_ADD, socket.fd(), &event) != 0)
    throw Error(Errc::system, "epoll_ctl: " + tcp::error_text(errno));
}

}  // namespace collectives
