// Targets of mutations: what arrives over TCP and UDP while ranks are connected. Each input arrives at a new object of
// the library, through a pair of sockets or over loopback.
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "collectives/error.hpp"
#include "collectives/topology.hpp"
#include "fault/mutations.hpp"
#include "monitoring/arrival_table.hpp"
#include "monitoring/call_difference.hpp"
#include "monitoring/control_messages.hpp"
#include "shared_memory/arena.hpp"
#include "steps/algorithm.hpp"
#include "transport/datagram_links.hpp"
#include "transport/tcp_addresses.hpp"
#include "transport/tcp_control.hpp"
#include "transport/tcp_control_channel.hpp"
#include "transport/tcp_stream.hpp"

namespace collectives::testing {
namespace {

constexpr std::size_t kFrameBytes = 4096;
constexpr std::size_t kMostBytesAtOnce = 48 << 10;  // A pair of sockets holds so many.
constexpr std::uint64_t kOwnCalls = 3;              // Calls that this rank has entered.
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
  // One socket sends to all links, and each link takes it for the peer.
  static DatagramLink peer(stream_of_link(), kTokens, {});
  DatagramLink link(stream_of_link(), kTokens, {});
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

/// Opens datagram links to a peer that sends `bytes` on its control connection and then closes it.
MutationOutcome parse_controls(std::string_view bytes) {
  static const PeerAddresses peers{
      .self = 0, .addresses = {"", ""}, .hosts = {0, 1}, .token = "", .frame_bytes = kFrameBytes};
  static const std::uint32_t expected = 0;
  SocketPair pair;
  pair.send(bytes);
  TcpControlChannel channel(2);
  channel.add(1, std::move(pair.here));
  DatagramLinks links(2, channel);
  links.add(1, stream_of_link(), expected);
  unsigned own = 0, texts = 0;
  links.open(peers, WireSecret(""), {}, [&](std::chrono::nanoseconds) {
    channel.read();
    while (const auto text = channel.take_own()) links.handle_control(text->first, text->second), ++own;
  });
  while (channel.take()) ++texts;
  links.stop_retransmitter();
  const auto end = channel.take_ended();
  const std::string path = counted('o', own) + counted('t', texts) + (links.link(1) != nullptr ? "l " : " ") +
                           (end ? end->second : "still open");
  return own + texts > 0 ? MutationOutcome::accepted(path) : MutationOutcome::dropped(path);
}

/// Returns how the records of ranks of another host differ from the calls of this rank.
std::string difference_from(std::vector<Arrived> records) {
  static const RankView view(Topology::regular(4, 1), 0);
  static const std::unique_ptr<Arena> arena = Arena::create({.ranks = 1, .frame_bytes = 64});
  ArrivalTable table(view, *arena);
  RunningHash hash;
  for (std::uint64_t call = 1; call <= kOwnCalls; ++call) {
    const Signature signature{.count = 8};
    hash.append(hash_of(signature));
    table.arrive(call, hash, pack(signature));
  }
  table.add_records(std::move(records));
  const auto difference = first_difference(table);
  if (!difference) return "equal";
  return (difference->earlier ? describe_earlier_mismatch(difference->records) : describe_mismatch(difference->records))
      .text;
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
  if (const auto* const arrival = std::get_if<ArrivalMessage>(&message))
    return MutationOutcome::accepted("arrival " + difference_from(arrival->records));
  if (const auto* const leave = std::get_if<LeaveMessage>(&message))
    return MutationOutcome::accepted("leave " + difference_from(leave->records));
  if (const auto* const member = std::get_if<MemberMessage>(&message))
    return MutationOutcome::accepted(counted('g', member->list.size()));
  return MutationOutcome::dropped();
}

/// Returns records of the calls of rank 1 up to call `calls`. The last one has the arguments of `last`.
std::vector<Arrived> records_of_a_peer(std::uint64_t calls, const Signature& last, const CallDetails& details = {}) {
  std::vector<Arrived> records;
  RunningHash hash;
  for (std::uint64_t call = 1; call <= calls; ++call) {
    const Signature signature = call == calls ? last : Signature{.count = 8};
    hash.append(hash_of(signature));
    records.push_back({1, {call, hash, signature, call == calls ? details : CallDetails{}}});
  }
  return records;
}

std::vector<std::string> control_message_seeds() {
  const CallDetails details{.name = "fc1", .op = "\"mine\"", .compression = "k 3", .refusal = "", .lengths = {3, 4}};
  const CallDetails refusal{.refusal = "output has 9 elements"};
  return {AbortMessage{{Errc::peer_lost, 2, "barrier #1", "rank 2 was lost"}}.encode(),
          ArrivalMessage{records_of_a_peer(3, {.count = 8})}.encode(),
          ArrivalMessage{records_of_a_peer(2, {.count = 9}, details)}.encode(),
          ArrivalMessage{records_of_a_peer(1, {.count = 8}, refusal)}.encode(),
          LeaveMessage{17, records_of_a_peer(2, {.count = 8, .wire = WireName("int8"), .force = true})}.encode(),
          "L 17",
          MemberMessage{1, 1, 7, 8, 2, "0,1", "text"}.encode(),
          MemberMessage{2, 1, 7, 8, MemberMessage::kFailed, "", "0 1 rank 0 passed ranks 0,1"}.encode()};
}

MutationOutcome parse_address(std::string_view bytes) {
  static const std::vector<NetworkInterface> mine{{"a", "10.0.0.9", {10, 0, 0, 9}, 8}};
  return MutationOutcome::accepted(counted('a', read_published_address(bytes, mine).size()));
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
  const std::string port = control(kind(kPort, std::uint16_t{4000})), probed = control(kProbed);
  targets.push_back(
      {"tcp_controls",
       {port + probed + control(kind(kHeard, std::uint8_t{1})) +
            control(std::string(kRetransmission) + frame(1, 0, "text")) +
            control(kind(kAcknowledged, Acknowledged{1, 1})),
        port + control(std::string(kRetransmission) + frame(1, 0, "text")), control("A 5 3\nbarrier #1\nlost"),
        control(kind(kPort, std::uint16_t{4000})), control(kind(kHeard, std::uint8_t{1})),
        control(kind(kProbed, std::uint8_t{0}).substr(0, 2)),
        control(kind(kAcknowledged, Acknowledged{1, 0})) + control(std::string(kRetransmission) + frame(1, 0, "text"))},
       parse_controls,
       4});
  targets.push_back({"control_messages", control_message_seeds(), parse_control_messages});
  targets.push_back({"tcp_addresses",
                     {R"({"network":"a:1","port":4000,"at":["10.0.0.1","fd00::1"]})", published_address(4000, {})},
                     parse_address});
  return targets;
}

}  // namespace collectives::testing
