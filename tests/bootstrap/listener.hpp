// Helpers for tests of the rendezvous: ports of the loopback, and processes outside the job that connect to them.
#pragma once

#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <random>
#include <string>
#include <string_view>

#include "bootstrap/records.hpp"
#include "bootstrap/rendezvous.hpp"
#include "bootstrap/sockets.hpp"
#include "bootstrap/world.hpp"
#include "conformance/bootstrap_conformance.hpp"

namespace collectives::testing {

/// A port of the loopback that no other process gets. Its socket listens, like the one that collectives_run passes to
/// rank 0. A `reserved` port is only bound and does not listen, so rank 0 can listen at it.
class Listener {
 public:
  enum class Kind { listening, reserved };

  explicit Listener(Kind kind = Kind::listening) : fd_(::socket(AF_INET, SOCK_STREAM, 0)) {
    const int yes = 1;
    EXPECT_EQ(::setsockopt(fd_, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes), 0);
    sockaddr_in address = loopback(0);
    socklen_t bytes = sizeof address;
    EXPECT_EQ(::bind(fd_, reinterpret_cast<sockaddr*>(&address), bytes), 0);
    if (kind == Kind::listening) {
      EXPECT_EQ(::listen(fd_, 64), 0);
    }
    EXPECT_EQ(::getsockname(fd_, reinterpret_cast<sockaddr*>(&address), &bytes), 0);
    port_ = ntohs(address.sin_port);
  }
  Listener(const Listener&) = delete;
  Listener& operator=(const Listener&) = delete;
  ~Listener() { ::close(fd_); }

  int fd() const { return fd_; }
  int port() const { return port_; }
  World place(Rank rank, int size, const char* address = "127.0.0.1") const {
    return {.rank = rank, .size = size, .address = address, .port = port_, .source = "test"};
  }
  /// Connects as a process outside the job would, and sends `bytes`. Returns the descriptor of the connection.
  int knock(std::string_view bytes) const {
    const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const sockaddr_in address = loopback(port_);
    EXPECT_EQ(::connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
    EXPECT_EQ(::send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL), static_cast<ssize_t>(bytes.size()));
    return fd;
  }

 private:
  static sockaddr_in loopback(int port) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    address.sin_port = htons(static_cast<std::uint16_t>(port));
    return address;
  }
  int fd_, port_ = 0;
};

inline constexpr auto kPatience = std::chrono::seconds(60);
inline constexpr auto kImpatience = std::chrono::seconds(1);

inline std::string frame_header(std::uint64_t kind, std::uint64_t bytes) {
  const std::uint64_t header[] = {kind, bytes};
  return {reinterpret_cast<const char*>(header), sizeof header};
}

/// Returns a record as bytes: kind, length and payload.
inline std::string frame(tcp::Kind kind, std::string_view payload) { return *tcp::make_record(kind, payload); }

/// Returns the greeting of a process that claims to be `rank` of `size` ranks.
inline std::string hello(Rank rank = 1, int size = 2, const Job& job = {}) {
  return frame(tcp::Kind::hello, tcp::hello_of({.rank = rank, .size = size, .job = job}));
}

/// Returns the greeting of protocol version 1: kind, length, version, rank and size.
inline std::string old_hello(std::uint32_t version, std::uint32_t rank = 1, std::uint32_t size = 2) {
  const std::uint32_t payload[] = {version, rank, size};
  return frame_header(static_cast<std::uint64_t>(tcp::Kind::hello), sizeof payload) +
         std::string(reinterpret_cast<const char*>(payload), sizeof payload);
}

/// Returns the next record that arrives at `fd`. Its kind is `hello` if the connection has closed.
inline tcp::Record read_record(int fd) {
  tcp::Header header{};
  if (::recv(fd, &header, sizeof header, MSG_WAITALL) != sizeof header) return {tcp::Kind::hello, {}};
  std::string payload(header.bytes, '\0');
  if (header.bytes > 0 &&
      ::recv(fd, payload.data(), payload.size(), MSG_WAITALL) != static_cast<ssize_t>(payload.size()))
    return {tcp::Kind::hello, {}};
  return {header.kind, std::move(payload)};
}

/// Connects as rank `rank`, greets, and proves to be alive. Returns the descriptor of the connection, which is then a
/// member. Requires that rank 0 runs.
inline int become_member(const Listener& listener, Rank rank = 1, int size = 2, std::string_view then = {}) {
  const int fd = listener.knock(hello(rank, size));
  const tcp::Record seen = read_record(fd);
  EXPECT_EQ(seen.kind, tcp::Kind::seen);
  const std::string bytes = frame(tcp::Kind::proof, seen.payload) + std::string(then);
  ::send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL);
  return fd;
}

inline std::string noise(std::minstd_rand& random, std::size_t most) {
  std::string bytes(random() % (most + 1), '\0');
  for (char& byte : bytes) byte = static_cast<char>(random());
  return bytes;
}

/// Runs the rendezvous of all ranks in threads. Expects that all ranks fail with the same error, whose text contains
/// `text`.
inline void expect_all_refused(const Listener& listener, const std::vector<World>& places, Errc code,
                               const std::string& text, std::chrono::nanoseconds timeout = kPatience) {
  in_threads(static_cast<int>(places.size()), [&](int i) {
    const auto error = error_of([&] { rendezvous(places[static_cast<std::size_t>(i)], listener.fd(), timeout); });
    ASSERT_TRUE(error);
    EXPECT_EQ(error->code(), code);
    EXPECT_NE(std::string(error->what()).find(text), std::string::npos) << error->what();
  });
}

}  // namespace collectives::testing
