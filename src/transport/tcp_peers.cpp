// Implementation of the peers of the TCP transport. The messages of a peer arrive by UDP datagrams or on the stream, a
// TCP connection. This file takes them in the order of their numbers, and finds lost peers.
#include "transport/tcp_peers.hpp"

#include <chrono>
#include <cstring>

#include "transport/tcp_control.hpp"

namespace collectives {

using namespace tcp_control;

namespace {

/// Maximum time from the end of a data connection until the peer is reported lost. A peer that leaves the communicator
/// sends a leave message on the control connection, and then closes both connections. The leave message may arrive
/// after the end of the data connection, if TCP must retransmit it. If a process is killed, the kernel closes both
/// connections at once, and the peer is reported at once.
constexpr auto kGoodbyePatience = std::chrono::seconds(3);

}  // namespace

// ---- messages ----

/// First reads from the source of the last message, the datagrams or the stream. Reason: the next message often has the
/// same source, and each attempt costs a system call.
bool TcpPeer::take(std::byte* place, std::size_t bytes, TcpControlChannel& controls) {
  const auto by_datagram = [&] { return datagrams != nullptr && take_datagram(place, bytes, controls); };
  const auto by_stream = [&] { return take_from_stream(place, bytes); };
  const bool taken = last_by_datagram ? by_datagram() || by_stream() : by_stream() || by_datagram();
  if (taken) ++expected;
  return taken;
}

bool TcpPeer::take_from_stream(std::byte* place, std::size_t bytes) {
  if (!stream.take(expected, place, bytes, message)) return false;
  last_by_datagram = false;
  return true;
}

bool TcpPeer::take_datagram(std::byte* place, std::size_t bytes, TcpControlChannel& controls) {
  if (stream.has_begun(expected)) return false;  // The message arrives on the stream.
  const auto arrived = datagrams->take(expected);
  if (!arrived) return false;
  const std::byte* data = arrived->data;
  if (place != nullptr && bytes == arrived->header.bytes && bytes > 0)
    data = static_cast<const std::byte*>(std::memcpy(place, data, bytes));
  if (arrived->retransmitted) controls.post(rank, kAcknowledged, bytes_of(Acknowledged{expected + 1, arrived->lost}));
  message = {arrived->header.tag, data, arrived->header.bytes};
  last_by_datagram = true;
  return true;
}

// ---- lost peers ----

void TcpPeers::note_end(Rank rank, std::string why) {
  (*this)[rank].stream.fail(std::move(why));
  ended_.push_back(rank);
}

std::optional<std::pair<Rank, std::string>> TcpPeers::next_lost() {
  const auto report = [](TcpPeer& lost) -> std::optional<std::pair<Rank, std::string>> {
    if (std::exchange(lost.reported, true)) return std::nullopt;
    return std::pair(lost.rank, lost.stream.failure());
  };
  while (!ended_.empty()) {
    const Rank rank = ended_.front();
    ended_.pop_front();
    if (auto lost = report((*this)[rank])) return lost;
  }
  const auto now = std::chrono::steady_clock::now();
  for (const auto& peer : peers_) {
    if (peer == nullptr || peer->stream.failure().empty() || peer->reported) continue;
    if (now - peer->stream.failed_at() >= kGoodbyePatience) return report(*peer);
  }
  return std::nullopt;
}

}  // namespace collectives
