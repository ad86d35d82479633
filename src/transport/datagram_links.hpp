// Datagram links of the TCP transport to all peers: their handshake, and the retransmission of lost messages.
//
// Handshake. The two ends of a link exchange the ports of their sockets, then probes of one full packet. Then each end
// reports whether it has received a probe. A link that fails in one of these phases is dropped, and messages to its
// peer then use the stream. A link sends messages only if probes arrive in both directions, because acknowledgements
// need the other direction.
//
// Retransmission. A message that got lost as a datagram goes to the peer on the control channel.
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
#include "transport/retransmitter.hpp"
#include "transport/tcp_control_channel.hpp"

namespace collectives {

class DatagramLinks {
 public:
  /// Waits for an event for at most the given time, then reads the control channel, handles its messages and progresses
  /// the streams. Time 0 does not wait.
  using Progress = std::function<void(std::chrono::nanoseconds)>;

  /// Makes the links between `ranks` ranks, none of which is open. Control messages go to `controls`.
  DatagramLinks(std::size_t ranks, TcpControlChannel& controls) : peers_(ranks), controls_(controls) {}
  /// Adds a peer before open(). `stream` is the data connection to it, and `expected` the number of the next message
  /// that this rank takes from it. Both must outlive this object.
  void add(Rank, const tcp::Socket& stream, const std::uint32_t& expected);
  /// Performs the handshake with all peers; see TcpTransport::open_datagrams().
  void open(std::uint64_t token, const DatagramSettings&, Deadline, const Progress&);
  /// Returns the link to `peer` after open(), or null if no datagrams can be exchanged with it.
  DatagramLink* link(Rank peer) const { return peers_[static_cast<std::size_t>(peer)].link.get(); }

  /// Notes that a link has sent a message, which may have to be retransmitted.
  void note_sent() { retransmitter_->note(); }
  /// Handles a message that arrived on the control channel: its kind and its text.
  void handle_control(Rank from, std::string_view text);
  /// Sends all acknowledgements and retransmits all unacknowledged messages, because no later call may do so.
  void flush();
  /// Ends retransmissions by another thread. Blocks until a running one has ended.
  void stop_retransmitter() { retransmitter_ = nullptr; }
  /// Returns the number of messages sent as datagrams.
  std::uint64_t sent() const;

  /// Appends the sockets of all links.
  void append_sockets(std::vector<pollfd>&) const;
  /// Reads the datagrams of the links whose sockets have events. `polled` holds what append_sockets() has appended.
  void read_polled(std::span<const pollfd> polled);

 private:
  struct Peer {
    const tcp::Socket* stream = nullptr;  // Null for a rank of the same host.
    const std::uint32_t* expected = nullptr;
    std::unique_ptr<DatagramLink> link;  // Null if no datagrams can be exchanged.
    std::optional<std::uint16_t> port;   // Port of the peer's datagrams, as received; 0 if it has none.
    std::optional<std::chrono::steady_clock::time_point>
        probed;                 // Time at which the peer reported that it had sent a probe.
    std::optional<bool> heard;  // Whether the peer received a probe of this rank, as received.
  };
  class Handshake;

  bool retransmit(bool all);

  std::vector<Peer> peers_;
  TcpControlChannel& controls_;
  std::unique_ptr<Retransmitter> retransmitter_;  // Must be destroyed first.
};

}  // namespace collectives
