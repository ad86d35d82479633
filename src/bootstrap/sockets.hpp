// TCP as the rendezvous needs it: sockets that never block, one attempt to listen or to connect, and a bounded wait for
// several of them.
#pragma once

#include <netdb.h>
#include <poll.h>
#include <unistd.h>

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "bootstrap/world.hpp"
#include "collectives/deadline.hpp"

namespace collectives::tcp {

constexpr auto kRetry = std::chrono::milliseconds(20);  // between attempts to connect or to listen

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

std::string error_text(int code);
/// "10.0.0.1:29500", "[::1]:29500"
std::string place_of(const World& world);

void set_option(const Socket& socket, int level, int option, int value);

/// Waits for what `entries` ask for, until the deadline or for a second: callers look around and come again.
void wait(std::vector<pollfd>& entries, Deadline deadline);
void pause(std::chrono::milliseconds time);

using Addresses = std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)>;
/// Where rank 0 listens. Throws Error{bootstrap} naming the host.
Addresses resolve(const World& world);

/// Listens there, as rank 0. Throws Error{bootstrap} naming the port.
Socket listen_at(const World& world, Deadline deadline);

/// Takes an inherited listening socket: a duplicate, the original stays open for the next rendezvous. Empty when `fd`
/// does not listen at `port`.
std::optional<Socket> adopt(int fd, int port);

/// One attempt; an errno when it fails, EINPROGRESS when the deadline passed before anything was known.
int try_connect(const addrinfo* address, Deadline deadline, Socket& connection);

}  // namespace collectives::tcp
