// Measures the wire between two hosts by plain TCP sockets. Benchmarks compare collectives with its results.
//
//   wire_probe serve [PORT]             serves one measurement on one host, then ends
//   wire_probe measure HOST [PORT]      measures on another host and prints one line:
//
//   rate_mbyte_s 118.2 118.3 one_way_28k_ms 0.251 one_way_8_us 14.2
//
// The rates are the payload rates of two opposite streams at the same time, out and in, in 10^6 bytes per second. An
// all-reduce over H equal hosts takes at least 2 (H - 1) / H x bytes / rate. One-way times are halves of the median
// round trip, of 28 KiB and of 8 bytes. At 1 Gbit/s 28 KiB take 0.23 ms, and less on a link that does not limit short
// bursts. All sockets use the congestion control `cubic` and TCP_NODELAY.
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sched.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

namespace {

using Clock = std::chrono::steady_clock;
using namespace std::chrono_literals;

constexpr int kWaitSeconds = 20;  // seconds without data after which a peer counts as lost
constexpr auto kYield = 2ms;      // time for which a wait yields, because most messages arrive that soon

[[noreturn]] void fail(const std::string& what) { throw std::runtime_error(what + ": " + std::strerror(errno)); }

class Socket {
 public:
  explicit Socket(int fd) : fd_(fd) {
    if (fd < 0) fail("socket");
  }
  Socket(const Socket&) = delete;
  Socket& operator=(const Socket&) = delete;
  ~Socket() { ::close(fd_); }
  int fd() const { return fd_; }

  void prepare() const {
    const int one = 1;
    const timeval wait{.tv_sec = kWaitSeconds, .tv_usec = 0};
    ::setsockopt(fd_, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    ::setsockopt(fd_, IPPROTO_TCP, TCP_CONGESTION, "cubic", 5);  // fails if the machine does not allow the choice
    ::setsockopt(fd_, SOL_SOCKET, SO_RCVTIMEO, &wait, sizeof wait);
    ::setsockopt(fd_, SOL_SOCKET, SO_SNDTIMEO, &wait, sizeof wait);
  }
  void put(const void* data, std::size_t bytes) const {
    for (const char* at = static_cast<const char*>(data); bytes > 0;) {
      const ssize_t sent = ::send(fd_, at, bytes, MSG_NOSIGNAL);
      if (sent <= 0) fail("send");
      at += sent;
      bytes -= static_cast<std::size_t>(sent);
    }
  }
  void take(void* data, std::size_t bytes) const {
    for (char* at = static_cast<char*>(data); bytes > 0;) {
      const ssize_t received = ::recv(fd_, at, bytes, 0);
      if (received == 0) throw std::runtime_error("the other host has left");
      if (received < 0) fail("recv");
      at += received;
      bytes -= static_cast<std::size_t>(received);
    }
  }
  void wait_readable() const {
    pollfd readable{.fd = fd_, .events = POLLIN, .revents = 0};
    if (::poll(&readable, 1, 1000 * kWaitSeconds) == 0) throw std::runtime_error("the other host is silent");
  }

 private:
  int fd_;
};

/// Measures round trips by polling. Returns the median in microseconds.
struct RoundTrips {
  std::uint32_t bytes, count;
};

/// Receives `data`. Polls and yields at first, because a blocked receiver wakes up late. Blocks after 2 ms, because
/// endless yields may take the core from other programs.
void poll_for(const Socket& socket, std::vector<char>& data) {
  const Clock::time_point start = Clock::now();
  for (std::size_t got = 0; got < data.size();) {
    const ssize_t received = ::recv(socket.fd(), data.data() + got, data.size() - got, MSG_DONTWAIT);
    if (received == 0) throw std::runtime_error("the other host has left");
    if (received < 0 && errno != EAGAIN && errno != EINTR) fail("recv");
    if (received < 0) Clock::now() - start < kYield ? static_cast<void>(::sched_yield()) : socket.wait_readable();
    if (received > 0) got += static_cast<std::size_t>(received);
  }
}

double round_trip_us(const Socket& socket, RoundTrips trips) {
  socket.put(&trips, sizeof trips);
  std::vector<char> data(trips.bytes);
  std::vector<double> times;
  for (std::uint32_t i = 0; i < trips.count; ++i) {
    const Clock::time_point start = Clock::now();
    socket.put(data.data(), data.size());
    poll_for(socket, data);
    times.push_back(std::chrono::duration<double, std::micro>(Clock::now() - start).count());
  }
  std::ranges::sort(times);
  return times[times.size() / 2];
}

void answer_round_trips(const Socket& socket) {
  RoundTrips trips{};
  socket.take(&trips, sizeof trips);
  std::vector<char> data(trips.bytes);
  for (std::uint32_t i = 0; i < trips.count; ++i) {
    poll_for(socket, data);
    socket.put(data.data(), data.size());
  }
}

constexpr auto kStarting = 400ms, kStreaming = 1200ms;

/// Sends for a while. Then shuts down this direction of the connection, by which the peer recognises the end.
void pour(const Socket& socket) {
  const std::vector<char> data(256 << 10);
  for (const Clock::time_point start = Clock::now(); Clock::now() - start < kStarting + kStreaming + 100ms;)
    socket.put(data.data(), data.size());
  ::shutdown(socket.fd(), SHUT_WR);
}

/// Returns the rate of arriving bytes, without start and end, in 10^6 bytes per second.
double drain(const Socket& socket) {
  std::vector<char> data(256 << 10);
  const Clock::time_point begin = Clock::now() + kStarting;
  Clock::time_point first{}, last{};
  double bytes = 0;
  for (;;) {
    const ssize_t received = ::recv(socket.fd(), data.data(), data.size(), 0);
    if (received < 0) fail("recv");
    if (received == 0) break;
    const Clock::time_point now = Clock::now();
    if (now < begin || now > begin + kStreaming) continue;
    if (first == Clock::time_point{}) {
      first = now;  // bytes that have just arrived belong to the start
    } else {
      bytes += static_cast<double>(received);
    }
    last = now;
  }
  return bytes / std::chrono::duration<double, std::micro>(last - first).count();
}

/// Runs both directions at once, each on its own connection. Returns the rate of arriving bytes.
double stream(const Socket& out, const Socket& in) {
  std::thread sender([&out] {
    try {
      pour(out);
    } catch (const std::exception& error) {
      std::fprintf(stderr, "wire_probe: %s\n", error.what());
    }
  });
  const double rate = drain(in);
  sender.join();
  return rate;
}

void serve(std::uint16_t port) {
  const Socket listener(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const int one = 1;
  ::setsockopt(listener.fd(), SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  if (::bind(listener.fd(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) fail("bind");
  if (::listen(listener.fd(), 2) != 0) fail("listen");
  const auto next = [&] {
    pollfd ready{.fd = listener.fd(), .events = POLLIN, .revents = 0};
    if (::poll(&ready, 1, kWaitSeconds * 1000) <= 0) throw std::runtime_error("nobody wants a measurement");
    return ::accept4(listener.fd(), nullptr, nullptr, SOCK_CLOEXEC);
  };
  // Connections may be accepted in another order than they were made, so each sends its number.
  const Socket one_of_two(next()), other_of_two(next());
  char which = 0;
  one_of_two.prepare();
  other_of_two.prepare();
  one_of_two.take(&which, 1);
  const Socket& first = which == 1 ? one_of_two : other_of_two;
  const Socket& second = which == 1 ? other_of_two : one_of_two;
  other_of_two.take(&which, 1);
  answer_round_trips(first);
  answer_round_trips(first);
  const double rate = stream(second, first);
  const Socket third(next());
  third.put(&rate, sizeof rate);
}

/// Connects, and repeats until a process listens.
int connected(const std::string& host, const std::string& port) {
  addrinfo hints{}, *found = nullptr;
  hints.ai_family = AF_INET;
  hints.ai_socktype = SOCK_STREAM;
  if (const int error = ::getaddrinfo(host.c_str(), port.c_str(), &hints, &found); error != 0)
    throw std::runtime_error(host + ": " + ::gai_strerror(error));
  const Clock::time_point start = Clock::now();
  for (;;) {
    const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (::connect(fd, found->ai_addr, found->ai_addrlen) == 0) {
      ::freeaddrinfo(found);
      return fd;
    }
    ::close(fd);
    if (Clock::now() - start > 10s) fail(host);
    std::this_thread::sleep_for(20ms);
  }
}

void measure(const std::string& host, const std::string& port) {
  const Socket first(connected(host, port)), second(connected(host, port));
  first.prepare();
  second.prepare();
  first.put("\1", 1);
  second.put("\2", 1);
  const double small = round_trip_us(first, {.bytes = 8, .count = 2000});
  const double medium = round_trip_us(first, {.bytes = 28 << 10, .count = 300});
  const double back = stream(first, second);
  double there = 0;
  const Socket third(connected(host, port));
  third.prepare();
  third.take(&there, sizeof there);
  std::printf("rate_mbyte_s %.1f %.1f one_way_28k_ms %.3f one_way_8_us %.1f\n", there, back, medium / 2e3, small / 2);
}

}  // namespace

int main(int argc, char** argv) {
  constexpr const char* kPort = "29399";
  const std::string what = argc > 1 ? argv[1] : "";
  try {
    if (what == "serve") {
      serve(static_cast<std::uint16_t>(std::atoi(argc > 2 ? argv[2] : kPort)));
    } else if (what == "measure" && argc > 2) {
      measure(argv[2], argc > 3 ? argv[3] : kPort);
    } else {
      std::fprintf(stderr, "wire_probe serve [PORT] | wire_probe measure HOST [PORT]\n");
      return 2;
    }
  } catch (const std::exception& error) {
    std::fprintf(stderr, "wire_probe: %s\n", error.what());
    return 1;
  }
  return 0;
}
