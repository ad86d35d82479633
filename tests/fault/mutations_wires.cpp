// Targets of mutations: what arrives over TCP and UDP while ranks are connected. Each input gets connections of its
// own, over loopback or a pair of sockets, and the parsers read it there.
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <cstring>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "collectives/error.hpp"
#include "fault/mutations.hpp"
#include "monitoring/control_messages.hpp"
#include "transport/control_connection.hpp"
#include "transport/datagram_links.hpp"
#include "transport/tcp_addresses.hpp"
#include "transport/tcp_control.hpp"
#include "transport/tcp_stream.hpp"

namespace collectives::testing {
namespace {

constexpr std::size_t kFrameBytes = 4096;
constexpr std::size_t kMostBytesAtOnce = 48 << 10;  // A pair of sockets holds so many.
constexpr DatagramLink::Tokens kTokens{.sent = {1, 2}, .received = {3, 4}};

template <class T>
std::string bytes_from(const T& value) {
  return {reinterpret_cast<const char*>(&value), sizeof value};
}

/// Returns a number as letters, because a report of paths leaves digits out. Numbers above four are equal.
std::string counted(char letter, std::size_t number) { return std::string(std::min<std::size_t>(number, 5), letter); }

struct SocketPair {
  tcp::Socket here, there;
  SocketPair() {
    int ends[2];
    if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) != 0)
      throw Error(Errc::system, "socketpair");
    here = tcp::Socket(ends[0]);
    there = tcp::Socket(ends[1]);
  }
  /// Sends `bytes` to `here`, and then closes the connection.
  void send(std::string_view bytes) {
    bytes = bytes.substr(0, kMostBytesAtOnce);
    if (::send(there.fd(), bytes.data(), bytes.size(), MSG_NOSIGNAL) < 0 && !bytes.empty())
      throw Error(Errc::system, "send");
    there = tcp::Socket();
  }
};

// ---- frames on the stream ----

std::string frame(std::uint64_t tag, std::uint32_t number, std::string_view text) {
  return bytes_from(MessageHeader{tag, static_cast<std::uint32_t>(text.size()), number}) + std::string(text);
}

MutationOutcome parse_frames(std::string_view bytes) {
  SocketPair pair;
  pair.send(bytes);
  TcpStream stream(std::move(pair.here), kFrameBytes);
  std::vector<std::byte> place(100);
  std::uint32_t number = 0;
  Message message;
  // The caller expects a message of 100 bytes every other time.
  while (stream.take(number, place.data(), number % 2 == 0 ? place.size() : 0, message)) {
    if (message.bytes > kFrameBytes) throw std::runtime_error("a message exceeds the frame");
    ++number;
  }
  const std::string path = counted('m', number) + " " + stream.failure();
  if (stream.failure().starts_with("it sent")) return MutationOutcome::refused(path);
  return number > 0 ? MutationOutcome::accepted(path) : MutationOutcome::dropped(path);
}

// ---- datagrams ----

/// Two connected TCP sockets over loopback, because a link takes its addresses from one.
struct Loopback {
  tcp::Socket left{::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)}, right;
  Loopback() {
    const tcp::Socket listener(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t bytes = sizeof address;
    if (::bind(listener.fd(), reinterpret_cast<sockaddr*>(&address), bytes) != 0 || ::listen(listener.fd(), 1) != 0 ||
        ::getsockname(listener.fd(), reinterpret_cast<sockaddr*>(&address), &bytes) != 0 ||
        ::connect(left.fd(), reinterpret_cast<sockaddr*>(&address), bytes) != 0)
      throw Error(Errc::system, "loopback");
    right = tcp::Socket(::accept4(listener.fd(), nullptr, nullptr, SOCK_CLOEXEC));
  }
};

const tcp::Socket& stream_of_link() {
  static const Loopback loopback;
  return loopback.left;
}

std::string piece(datagram::Kind kind, std::uint32_t number, std::uint32_t whole, std::uint32_t offset,
                  std::string_view text) {
  return bytes_from(datagram::Heading{
             kTokens.received, kind, 0, {7, whole, number}, offset, static_cast<std::uint32_t>(text.size())}) +
         std::string(text);
}

MutationOutcome parse_datagrams(std::string_view bytes) {
  // A socket of its own sends to the link, and the link takes it for the peer.
  DatagramLink link(stream_of_link(), kTokens, {}), peer(stream_of_link(), kTokens, {});
  link.connect(stream_of_link(), peer.port());
  peer.connect(stream_of_link(), link.port());
  link.allow();
  link.send({1, 2, 0}, reinterpret_cast<const std::byte*>("hi"), 0);
  constexpr std::size_t kLongestDatagram = 65507;
  bytes = bytes.substr(0, kLongestDatagram);
  if (::send(peer.socket().fd(), bytes.data(), bytes.size(), 0) < 0) return MutationOutcome::dropped("not sent");
  link.retransmit(false, [](std::string_view) { return true; });
  std::uint32_t number = 0;
  for (; const auto arrived = link.take(number); ++number)
    if (arrived->header.bytes > DatagramLink::kLongest) throw std::runtime_error("a message exceeds its buffer");
  if (number > 0) return MutationOutcome::accepted(counted('m', number));
  return MutationOutcome::dropped(link.dropped() > 0 ? "not valid" : "not next");
}

MutationOutcome parse_retransmissions(std::string_view bytes) {
  DatagramLink link(stream_of_link(), kTokens, {});
  for (std::size_t at = 0, length = 1; at < bytes.size(); at += length) {
    length = 1 + static_cast<unsigned char>(bytes[at]) % 64;
    link.receive_retransmitted(bytes.substr(std::min(at + 1, bytes.size()), length - 1), 0);
  }
  std::uint32_t number = 0;
  for (; const auto arrived = link.take(number); ++number)
    if (arrived->header.bytes > DatagramLink::kLongest) throw std::runtime_error("a message exceeds its buffer");
  return number > 0 ? MutationOutcome::accepted(counted('m', number)) : MutationOutcome::dropped();
}

// ---- control messages ----

std::string control(std::string_view text) {
  return bytes_from(static_cast<std::uint32_t>(text.size())) + std::string(text);
}

MutationOutcome parse_controls(std::string_view bytes) {
  using namespace tcp_control;
  SocketPair pair;
  pair.send(bytes);
  ControlConnection connection(std::move(pair.here));
  TcpControlChannel channel(2);
  SocketPair answers;
  channel.add(1, std::move(answers.here));
  DatagramLinks links(2, channel);
  const std::uint32_t expected = 0;
  links.add(1, stream_of_link(), expected);
  const std::string end = connection.read();
  unsigned own = 0, texts = 0;
  while (const auto text = connection.take()) {
    if (text->starts_with('\0'))
      links.handle_control(1, *text), ++own;
    else
      ++texts;
  }
  const std::string path = counted('o', own) + counted('t', texts) + (connection.ended() ? " ended " + end : "");
  return own + texts > 0 ? MutationOutcome::accepted(path) : MutationOutcome::dropped(path);
}

MutationOutcome parse_control_messages(std::string_view bytes) {
  const ControlMessage message = decode_control_message(bytes);
  if (const auto* const abort = std::get_if<AbortMessage>(&message)) {
    AbortBlock block{};
    FirstFailure failure(block);
    const Failure& stated = abort->failure;
    failure.store(stated.code, stated.peer, stated.operation, stated.text);
    const Error error(failure.read()->code, failure.read()->text, 0, failure.read()->peer, failure.read()->operation);
    return MutationOutcome::accepted("abort " + std::string(to_string(error.code())));
  }
  if (message.index() == 0) return MutationOutcome::dropped();
  return MutationOutcome::accepted(counted('k', message.index()));
}

MutationOutcome parse_address(std::string_view bytes) {
  return MutationOutcome::accepted(counted('a', read_published_address(bytes, {}).size()));
}

}  // namespace

std::vector<MutationTarget> wire_targets() {
  using namespace tcp_control;
  const std::string hundred(100, 'x'), longest(kFrameBytes, 'y');
  const auto kind = [](std::string_view name, const auto& value) { return std::string(name) + bytes_from(value); };
  std::vector<MutationTarget> targets;
  targets.push_back({"frames",
                     {frame(1, 0, hundred), frame(1, 0, "") + frame(2, 1, hundred) + frame(3, 2, hundred),
                      frame(1, 0, hundred) + frame(2, 1, longest) + frame(3, 2, "z")},
                     parse_frames});
  targets.push_back({"datagrams",
                     {piece(datagram::kMessage, 0, 5, 0, "hello"), piece(datagram::kProbe, 0, 100, 0, hundred),
                      piece(datagram::kAcknowledgement, 0, 0, 0, ""),
                      piece(datagram::kMessage, 0, 150, 0, hundred) + piece(datagram::kMessage, 0, 150, 100, hundred),
                      piece(datagram::kMessage, 0, 200, 0, hundred) + piece(datagram::kMessage, 0, 200, 100, hundred) +
                          piece(datagram::kMessage, 1, 100, 0, hundred)},
                     parse_datagrams});
  targets.push_back({"retransmissions",
                     {char{20} + frame(1, 0, "text"), char{20} + frame(1, 0, "text") + char{20} + frame(1, 1, "more"),
                      char{16} + frame(1, 0, "")},
                     parse_retransmissions});
  targets.push_back(
      {"tcp_controls",
       {control("A 5 3\nbarrier #1\nlost"), control(kind(kPort, std::uint16_t{4000})),
        control(kind(kHeard, std::uint8_t{1})), control(kind(kProbed, std::uint8_t{0}).substr(0, 2)),
        control(kind(kAcknowledged, Acknowledged{1, 0})) + control(std::string(kRetransmission) + frame(1, 0, "text"))},
       parse_controls});
  targets.push_back({"control_messages",
                     {AbortMessage{{Errc::peer_lost, 2, "barrier #1", "rank 2 was lost"}}.encode(),
                      "R 1 1 8 0 0 0 0 0 0 2 8 0 0 0 0 0 0", "L 17"},
                     parse_control_messages});
  targets.push_back({"tcp_addresses",
                     {R"({"network":"a:1","port":4000,"at":["10.0.0.1","fd00::1"]})", published_address(4000, {})},
                     parse_address});
  return targets;
}

}  // namespace collectives::testing
