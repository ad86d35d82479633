// Implementation of the attacker.
#include "fault/attacker.hpp"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <chrono>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>
#include <stdexcept>

#include "collectives/bootstrap.hpp"
#include "support/child.hpp"
#include "support/rank_processes.hpp"
#include "transport/datagram_pieces.hpp"
#include "transport/tcp_network.hpp"

namespace collectives::testing {
namespace {

constexpr std::size_t kMostHeld = 100;  // open connections

/// Returns the inodes of the sockets of a process.
void add_sockets(pid_t process, std::set<std::string>& inodes) {
  std::error_code gone;
  const auto folder = std::filesystem::path("/proc") / std::to_string(process) / "fd";
  for (std::filesystem::directory_iterator entry(folder, gone), end; !gone && entry != end; entry.increment(gone)) {
    std::error_code closed;
    const std::string target = std::filesystem::read_symlink(entry->path(), closed).string();
    if (target.starts_with("socket:[")) inodes.insert(target.substr(8, target.size() - 9));
  }
}

/// Appends the ports of a table of the kernel that belong to `inodes`. `state`: state of the sockets, in hexadecimal.
void add_ports(const char* table, const std::string& state, const std::set<std::string>& inodes,
               std::vector<int>& ports) {
  std::ifstream file(table);
  std::string line;
  std::getline(file, line);
  while (std::getline(file, line)) {
    std::istringstream words(line);
    std::vector<std::string> columns{std::istream_iterator<std::string>(words), {}};
    if (columns.size() < 10 || columns[3] != state || !inodes.contains(columns[9])) continue;
    ports.push_back(std::stoi(columns[1].substr(columns[1].rfind(':') + 1), nullptr, 16));
  }
}

/// Returns the first bytes that arrive at the listening socket, or an empty text after two seconds.
std::string first_bytes(int listener) {
  pollfd entry{listener, POLLIN, 0};
  if (::poll(&entry, 1, 2000) <= 0) return {};
  const int fd = ::accept4(listener, nullptr, nullptr, SOCK_CLOEXEC);
  std::string bytes(4096, '\0');
  entry = {fd, POLLIN, 0};
  const ssize_t got = ::poll(&entry, 1, 2000) > 0 ? ::recv(fd, bytes.data(), bytes.size(), 0) : 0;
  ::close(fd);
  bytes.resize(got > 0 ? static_cast<std::size_t>(got) : 0);
  return bytes;
}

/// Returns `address`, the address of a rank, with another port.
std::string with_port(std::string address, int port) {
  const std::string key = "\"port\":";
  const std::size_t begin = address.find(key);
  if (begin == address.npos) throw std::runtime_error("the address of a wire contains no port");
  std::size_t end = begin + key.size();
  while (end < address.size() && std::isdigit(static_cast<unsigned char>(address[end])) != 0) ++end;
  return address.replace(begin + key.size(), end - begin - key.size(), std::to_string(port));
}

void greet_rendezvous(const RendezvousPort& rendezvous) {
  rendezvous.set_environment(1, 3, "another job");
  bootstrap_from_environment(std::chrono::seconds(2));
}

void greet_wire(const RendezvousPort& rendezvous) {
  TcpNetwork network{TcpSettings{}};
  PeerAddresses peers;
  peers.self = 1;
  peers.addresses = {with_port(network.address(), rendezvous.port()), network.address()};
  peers.hosts = {0, 1};
  peers.token = "another job";
  peers.frame_bytes = 65536;
  peers.deadline = Deadline::in(std::chrono::seconds(2));
  network.connect(peers);
}

template <class Greet>
std::string recorded(Greet greet) {
  const RendezvousPort rendezvous;
  const Child child([&](Line&) {
    if (std::freopen("/dev/null", "w", stderr) == nullptr) return 1;
    greet(rendezvous);
    return 0;
  });
  std::string bytes = first_bytes(rendezvous.fd());
  if (bytes.empty()) throw std::runtime_error("the library sent no greeting");
  return bytes;
}

/// Connects to a port of the loopback interface. Returns a socket that does not block, or -1.
int connect_to(int port) {
  const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const linger reset{1, 0};
  ::setsockopt(fd, SOL_SOCKET, SO_LINGER, &reset, sizeof reset);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = ::htonl(INADDR_LOOPBACK);
  address.sin_port = ::htons(static_cast<std::uint16_t>(port));
  ::fcntl(fd, F_SETFL, O_NONBLOCK);  // a full backlog must not block the attacker
  if (::connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0) return fd;
  pollfd entry{fd, POLLOUT, 0};
  int error = errno;
  socklen_t size = sizeof error;
  if (error == EINPROGRESS && ::poll(&entry, 1, 20) > 0 && ::getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &size) == 0 &&
      error == 0)
    return fd;
  ::close(fd);
  return -1;
}

void send_all(int fd, const std::string& bytes) { ::send(fd, bytes.data(), bytes.size(), MSG_DONTWAIT | MSG_NOSIGNAL); }

}  // namespace

OpenPorts ports_of(const std::vector<pid_t>& processes) {
  std::set<std::string> inodes;
  for (const pid_t process : processes) add_sockets(process, inodes);
  OpenPorts ports;
  add_ports("/proc/net/tcp", "0A", inodes, ports.connections);
  add_ports("/proc/net/tcp6", "0A", inodes, ports.connections);
  for (const char* state : {"07", "01"})
    for (const char* table : {"/proc/net/udp", "/proc/net/udp6"}) add_ports(table, state, inodes, ports.datagrams);
  return ports;
}

Greetings record_greetings() { return {recorded(&greet_rendezvous), recorded(&greet_wire)}; }

std::string Attacker::junk(std::size_t bytes) {
  std::string text(bytes, '\0');
  for (char& byte : text) byte = static_cast<char>(random_());
  return text;
}

/// Changes some bytes and lengths.
std::string Attacker::mutated(std::string bytes) {
  constexpr std::uint64_t kNumbers[] = {0, 1, 2, 3, 255, 0x7fffffff, 0xffffffff, 1ULL << 40, ~0ULL, 1ULL << 63};
  for (std::size_t changes = below(4); changes > 0 && !bytes.empty(); --changes) {
    const std::size_t at = below(bytes.size());
    switch (below(5)) {
      case 0: bytes[at] = static_cast<char>(bytes[at] ^ (1 << below(8))); break;
      case 1: {
        const std::uint64_t number = kNumbers[below(std::size(kNumbers))];
        const std::size_t width = below(2) == 0 ? 4 : 8, begin = at / width * width;
        std::memcpy(bytes.data() + begin, &number, std::min(width, bytes.size() - begin));
        break;
      }
      case 2: bytes.resize(at); break;
      case 3: bytes.insert(at, junk(1 + below(40))); break;
      default: bytes += bytes.substr(0, std::size_t{1} << 16);
    }
  }
  return bytes;
}

bool Attacker::attack_connection(int port) {
  const int fd = connect_to(port);
  if (fd < 0) return false;
  const std::string& greeting = below(2) == 0 ? greetings_.rendezvous : greetings_.wire;
  const char* kind = "mutated greeting";
  switch (below(10)) {
    case 0: kind = "nothing"; break;
    case 1: kind = "noise", send_all(fd, junk(1 + below(300))); break;
    case 2: kind = "flood", send_all(fd, junk(1 << 20)); break;
    case 3: kind = "other protocol", send_all(fd, "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"); break;
    case 4: kind = "part of a greeting", send_all(fd, greeting.substr(0, below(greeting.size()))); break;
    case 5: kind = "greeting and noise", send_all(fd, greeting + junk(1 + below(5000))); break;
    default: send_all(fd, mutated(greeting));
  }
  ++sent_[kind];
  switch (below(3)) {
    case 0: ::close(fd); return true;
    case 1: ::shutdown(fd, SHUT_WR); break;
    default: break;
  }
  held_.push_back(fd);
  if (held_.size() > kMostHeld) {
    ::close(held_.front());
    held_.pop_front();
  }
  return true;
}

/// Returns a datagram with all fields as a rank writes them, except the token, which it guesses.
std::string Attacker::forged_datagram() {
  const std::uint64_t half = random_() & 0xffffffff, guessed = half << 32 | half;
  const datagram::Heading heading{.token = {below(2) == 0 ? guessed : random_(), guessed},
                                  .kind = below(4) == 0 ? datagram::kAcknowledgement : datagram::kMessage,
                                  .taken = static_cast<std::uint32_t>(below(40)),
                                  .message = {random_(), 64, static_cast<std::uint32_t>(below(40))},
                                  .offset = 0,
                                  .piece = 64};
  return std::string(reinterpret_cast<const char*>(&heading), sizeof heading) + junk(64);
}

bool Attacker::attack_datagrams(int port) {
  const int fd = ::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = ::htonl(INADDR_LOOPBACK);
  address.sin_port = ::htons(static_cast<std::uint16_t>(port));
  const std::size_t choice = below(4);
  const std::string bytes = choice == 0   ? mutated(greetings_.wire)
                            : choice == 1 ? junk(1 + below(1400))
                                          : mutated(forged_datagram());
  const ssize_t sent = ::sendto(fd, bytes.data(), std::min<std::size_t>(bytes.size(), 60'000), MSG_DONTWAIT,
                                reinterpret_cast<const sockaddr*>(&address), sizeof address);
  ::close(fd);
  if (sent >= 0) ++sent_["datagram"];
  return sent >= 0;
}

bool Attacker::attack(const OpenPorts& ports) {
  const bool datagram = !ports.datagrams.empty() && (ports.connections.empty() || below(3) == 0);
  const std::vector<int>& among = datagram ? ports.datagrams : ports.connections;
  if (among.empty()) return false;
  const int port = among[below(among.size())];
  return datagram ? attack_datagrams(port) : attack_connection(port);
}

void Attacker::end() {
  for (const int fd : held_) ::close(fd);
  held_.clear();
}

}  // namespace collectives::testing
