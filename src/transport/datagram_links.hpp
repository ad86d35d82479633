// Datagram links: carry short messages between one rank and its peers by UDP. The TCP transport has one such link per
// peer, and also two TCP connections per peer. The stream is the TCP connection for data. The control channel uses the
// second one, for short texts. This class tests the links by a handshake, and retransmits lost messages.
//
// Handshake. First, the two ends of a link exchange the ports of their UDP sockets. Next, each end sends probes to the
// other end. A probe is a test datagram, which is as long as a packet and carries no message. Finally, each end reports
// whether it has received a probe. If a step of the handshake fails, the link is not used. All messages to that peer
// then use the stream. Probes must arrive in both directions, because the receiver of a message acknowledges it by
// datagrams in the other direction.
//
// Retransmission. If a datagram is lost, its sender sends the message again, on the control channel.
#pragma once

#include <poll.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "bootstrap/sockets.hpp"
#include "collectives/deadline.hpp"
#include "collectives/types.hpp"
#include "transport/datagrams.hpp"
#include "transport/network.hpp"
#include "transport/retransmitter.hpp"
#include "transport/tcp_control_channel.hpp"
#include "transport/wire_secret.hpp"

namespace collectives {

class DatagramLinks {
 public:
  /// Function that waits for events of sockets for at most the given time. After the wait, it reads the control
  /// channel, handles the messages of this channel, and progresses the streams. If this time is 0, the function returns
  /// without waiting.
  using Progress = std::function<void(std::chrono::nanoseconds)>;

  /// Makes an object for `ranks` ranks, without links. Its control messages go through `controls`.
  DatagramLinks(std::size_t ranks, TcpControlChannel& controls) : peers_(ranks), controls_(controls) {}
  /// Adds a peer before open(). `stream`: the data connection to the peer. `expected`: the number of the next message
  /// that this rank takes from the peer. Both must outlive this object.
  void add(Rank, const tcp::Socket& stream, const std::uint32_t& expected);
  /// Performs the handshake with all peers. TcpTransport::open_datagrams() describes the parameters.
  void open(const PeerAddresses&, const WireSecret&, const DatagramSettings&, const Progress&);
  /// Returns the link to `peer` after open(), or null if no datagrams can be exchanged with it.
  DatagramLink* link(Rank peer) const { return peers_[static_cast<std::size_t>(peer)].link.get(); }

  /// Notes that a link has sent a message, which may have to be retransmitted.
  void note_sent() { retransmitter_->note(); }
  /// Handles a message of the control channel. `text`: its kind (tcp_control.hpp) and its content.
  void handle_control(Rank from, std::string_view text);
  /// Sends all due acknowledgements, and retransmits all unacknowledged messages. Called when the transport ends,
  /// because no later call would retransmit a lost message.
  void flush();
  /// Ends the retransmissions of the retransmission thread. Blocks while it is retransmitting.
  void stop_retransmitter() { retransmitter_ = nullptr; }
  /// Returns the number of messages sent as datagrams, and of datagrams of other processes that were dropped.
  std::uint64_t sent() const;
  std::uint64_t dropped() const;

  /// Appends an entry for the socket of each link.
  void append_sockets(std::vector<pollfd>&) const;
  /// Reads the datagrams of the links whose sockets have events. `polled` holds what append_sockets() has appended.
  void read_polled(std::span<const pollfd> polled);

 private:
  struct Peer {
    const tcp::Socket* stream = nullptr;  // Null for a rank of the same host.
    const std::uint32_t* expected = nullptr;
    std::unique_ptr<DatagramLink> link;  // Null if no datagrams can be exchanged.
    std::optional<std::uint16_t> port;   // Port of the peer's UDP socket, once received; 0 if it has none.
    std::optional<std::chrono::steady_clock::time_point>
        probed;                 // Time at which the peer's report of its first probe arrived.
    std::optional<bool> heard;  // Whether the peer received a probe of this rank; empty before its report.
  };
  class Handshake;

  bool retransmit(bool all);

  std::vector<Peer> peers_;
  TcpControlChannel& controls_;
  std::unique_ptr<Retransmitter> retransmitter_;  // Must be destroyed first.
};

}  // namespace collectives
