// Peers of the TCP transport: the ranks of other hosts, with which this rank exchanges messages.
//
// A TcpPeer holds the stream (the TCP connection for data) and the link for UDP datagrams to one peer. The messages of
// a peer are numbered. The function take() takes the messages of both the stream and the link in the order of the
// numbers.
//
// TcpPeers holds all peers, and finds the lost ones. A peer is lost if its control connection, which carries short
// texts, has ended. If only its data connection has ended, the peer counts as lost three seconds later.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "bootstrap/sockets.hpp"
#include "collectives/transport.hpp"
#include "transport/datagrams.hpp"
#include "transport/tcp_control_channel.hpp"
#include "transport/tcp_stream.hpp"

namespace collectives {

struct TcpPeer {
  TcpPeer(Rank of, tcp::Socket data, std::size_t frame_bytes) : rank(of), stream(std::move(data), frame_bytes) {}

  /// Takes the next message and stores it in the field `message`. Returns false if the next message has not arrived.
  /// `place` and `bytes` have the same meaning as in Transport::receive_into(). `controls` sends the acknowledgement of
  /// a retransmitted message.
  bool take(std::byte* place, std::size_t bytes, TcpControlChannel& controls);

  const Rank rank;
  TcpStream stream;
  DatagramLink* datagrams = nullptr;  // Null if datagrams do not arrive.
  // Numbers of the next message to the peer and of the next message from it.
  std::uint32_t numbered = DatagramLink::kFirstNumber, expected = DatagramLink::kFirstNumber;
  bool writing = false;  // Whether the transport's list of peers with queued messages contains this peer.

  Message message;                // Message that take() has stored last.
  bool open = false;              // Whether the caller still has to release `message`.
  bool last_by_datagram = false;  // Whether `message` arrived as a datagram.
  unsigned looks = 0;             // Number of attempts to receive so far.
  bool starved = false;           // Whether the caller waits for a message that never arrives.
  bool reported = false;          // Whether TcpPeers::next_lost() has returned the peer.

 private:
  bool take_from_stream(std::byte* place, std::size_t bytes);
  bool take_datagram(std::byte* place, std::size_t bytes, TcpControlChannel& controls);
};

class TcpPeers {
 public:
  /// Adds the next rank. `peer`: null for a rank of the same host.
  void add(std::unique_ptr<TcpPeer> peer) { peers_.push_back(std::move(peer)); }
  /// Returns a peer, which is not on the same host.
  TcpPeer& operator[](Rank rank) const { return *peers_[static_cast<std::size_t>(rank)]; }
  /// Returns the peer, or null for a rank of the same host.
  TcpPeer* find(Rank rank) const { return peers_[static_cast<std::size_t>(rank)].get(); }
  /// Calls `use` for each peer, in the order of ranks.
  template <class Use>
  void for_each(Use&& use) const {
    for (const auto& peer : peers_)
      if (peer != nullptr) use(*peer);
  }

  /// Notes that the control connection of a peer has ended. `why`: the reason.
  void note_end(Rank rank, std::string why);
  /// Returns the lost peer whose connections have ended first, and the reason. Returns each peer once.
  std::optional<std::pair<Rank, std::string>> next_lost();

 private:
  std::vector<std::unique_ptr<TcpPeer>> peers_;  // By rank.
  std::deque<Rank> ended_;  // Peers whose control connection has ended and that are not reported; the earliest first.
};

}  // namespace collectives
