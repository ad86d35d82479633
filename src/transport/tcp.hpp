// TCP transport: exchanges messages with other hosts over TCP.
//
// Connections. Each pair of ranks on different hosts has two connections: one for data, and one for control messages
// (short texts that are not data of calls). A control message therefore never waits behind data that the peer does not
// read. Price: a rank needs two descriptors per peer.
//
// Parts. TcpStream (tcp_stream.hpp) carries messages on one data connection. TcpControlChannel carries the control
// messages to all peers. DatagramLinks carries short messages to all peers by UDP. TcpPeer takes the messages from one
// peer in order. TcpPeers holds all TcpPeer objects, and finds lost peers. TcpTransport decides whether a message is
// sent by stream or by datagram, and waits for events of all sockets.
//
// Messages. A message is a header and its payload. The transport sends the payload from the caller's memory, or from a
// frame: memory of the transport for one message. It reads a message only when the caller asks for the message, so that
// the kernel can copy the payload directly to its destination. Until then, the bytes stay in the kernel. If the buffer
// of the kernel is full, TCP makes the sender wait.
//
// Datagrams. Short messages go as UDP datagrams if test datagrams arrived during construction (datagrams.hpp). The
// messages to a peer have consecutive numbers, because some arrive on the stream (the data connection) and others by
// datagrams. The receiver takes them in the order of the numbers.
//
// Failures. The kernel closes the connections of a process that ends, and the peers notice the closing at once. The
// kernel's timers report a host that does not answer after kSilence (15 s). The deadline of a call may end the call
// earlier. A forked child keeps inherited connections open until it calls exec or ends. If the parent is killed, its
// peers therefore notice only after that, or by a deadline.
//
// Waiting. A rank that waits for another host spins for 300 us (wait.hpp), and then calls wait_for_event(). That
// function sleeps until a message arrives, so that other ranks can use the core. An epoll, an object of the kernel,
// watches the streams and the control connections all the time. The epoll does not watch the datagram sockets, because
// a datagram to a watched socket costs its sender 0.3 us more. The kernel watches these sockets only while the rank
// sleeps. Price: a wake-up takes some microseconds, and each sleep and each wake-up takes 0.1 us per peer.
//
// Congestion control. The default algorithm is cubic; tcp_network.hpp gives the reason.
#pragma once

#include <poll.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "bootstrap/sockets.hpp"
#include "collectives/transport.hpp"
#include "transport/datagram_links.hpp"
#include "transport/network.hpp"
#include "transport/tcp_control_channel.hpp"
#include "transport/tcp_peers.hpp"
#include "transport/wire_secret.hpp"

namespace collectives {

/// The two connections to one peer. Both sockets are empty if the peer is on the same host.
struct TcpLink {
  tcp::Socket data, control;
};

class TcpTransport final : public Wire {
 public:
  /// Time after which the kernel reports a host that does not answer.
  static constexpr std::chrono::seconds kSilence{15};

  /// Takes over the connections. Entry links[r] holds the connections to rank r. `frame_bytes`: maximum payload of a
  /// message.
  TcpTransport(std::vector<TcpLink> links, std::size_t frame_bytes);
  /// Finds the peers with which this rank can exchange datagrams. Either all ranks call this function, before any
  /// other, or none does. Blocks until every living peer has taken part, at most until the deadline of `peers`. Waits
  /// 0.1 s for the test datagram of a peer after the peer has reported it. Throws the errors of PeerAddresses::turn.
  void open_datagrams(const PeerAddresses& peers, const WireSecret&, const DatagramSettings&);

  std::string_view name() const noexcept override { return "tcp"; }
  std::size_t frame_bytes() const noexcept override { return frame_bytes_; }
  int frames() const noexcept override { return TcpStream::kFrames; }
  std::byte* acquire_frame(Rank to) override;
  void send(Rank to, std::uint64_t tag, std::size_t bytes) override;
  void send_from(Rank to, std::uint64_t tag, const std::byte* data, std::size_t bytes) override;
  const Message* receive(Rank from) override { return receive_into(from, nullptr, 0); }
  const Message* receive_into(Rank from, std::byte* place, std::size_t bytes) override;
  void release(Rank from) override;
  bool lent(const std::byte* data, std::size_t bytes) const noexcept override;
  bool sending() override { return !writing_.empty(); }
  void progress() override;
  /// Blocks until the kernel has taken all bytes of all sent messages. The kernel delivers them even if this process
  /// ends.
  void flush(Deadline) override;

  void post_control(Rank to, std::string_view text) override { controls_.post(to, text); }
  bool control_is_thread_safe() const noexcept override { return true; }
  std::optional<std::pair<Rank, std::string>> poll_control() override;
  bool detects_peer_failure() const noexcept override { return true; }
  /// Returns the lost peer whose connections have ended first. Reads the control connections of all peers before.
  std::optional<std::pair<Rank, std::string>> poll_failed_peer() override;
  bool is_blocked_on_failed_peer(Rank from) const override { return peers_[from].starved; }
  void abandon() noexcept override;
  ~TcpTransport() override;
  std::string link(Rank to) const override;
  void wait_for_event(std::chrono::nanoseconds at_most) override;
  bool can_cause(WireFault fault, Rank to) const noexcept override;
  void cut(Rank to) noexcept override;
  unsigned lose(Rank to, unsigned datagrams) noexcept override;
  /// Returns the links for datagrams, which count sent and dropped datagrams.
  const DatagramLinks& datagrams() const noexcept { return datagrams_; }

 private:
  // Number of attempts to receive from a peer after which the control channel is read once, because each read costs a
  // system call.
  static constexpr unsigned kLooksPerControl = 64;

  void hand_over(Rank to, std::uint64_t tag, const std::byte* data, std::size_t bytes, bool lent);
  void read_controls();

  std::size_t frame_bytes_;
  TcpPeers peers_;
  std::vector<TcpPeer*> writing_;  // Peers with queued messages.
  TcpControlChannel controls_;
  DatagramLinks datagrams_;
  tcp::Socket everything_;      // Epoll with the sockets of all streams and the epoll of the control channel.
  std::vector<pollfd> polled_;  // Sockets that wait_for_event() polls.
  bool abandoned_ = false;
};

}  // namespace collectives
