// Wire over TCP.
//
// Connections. Each pair of ranks on different hosts has two: one for data and one for control messages. A control
// message therefore never waits behind data that the peer does not read. The price: two descriptors per pair of ranks.
//
// Messages. A message is a header and its payload. The transport sends it from a frame, which is its own memory for one
// message, or from the caller's memory. It reads a message only when the caller asks for it, so the kernel can copy the
// payload directly to its destination. Unread bytes stay in the kernel. The flow control is therefore that of the
// kernel: its buffers and windows.
//
// Datagrams. Short messages go as datagrams if probes got through at the start (datagrams.hpp). All messages to a peer
// are numbered, and the receiver takes them in that order from the stream and from the datagrams.
//
// Failures. A process that ends closes its connections, and its peers notice that at once. The kernel's timers report a
// host that does not answer after kSilence (15 s); the deadline of a call may end its wait earlier. A forked child
// keeps inherited connections open until it ends. If its parent is killed, peers therefore notice it only after the
// child has ended too, or by the deadline.
//
// Waiting. A wait for another host calls wait_for_event() after 300 us (wait.hpp). It sleeps until a message arrives,
// so hosts with more ranks than cores do not spin. An epoll watches the streams and the control connections all the
// time. It does not watch the datagram sockets: a datagram to a watched socket costs its sender 0.3 us more. These
// sockets are polled only while the rank sleeps. The price: some microseconds to wake up, and 0.1 us per peer for each
// sleep and each wake-up.
//
// Congestion control. It is cubic; tcp_network.hpp gives the reason. UCX offers no choice of it.
#pragma once

#include <poll.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "bootstrap/sockets.hpp"
#include "collectives/transport.hpp"
#include "transport/control_connection.hpp"
#include "transport/datagrams.hpp"
#include "transport/retransmitter.hpp"

namespace collectives {

/// The connections to one peer. Both are empty for a rank of the same host.
struct TcpLink {
  tcp::Socket data, control;
};

class TcpTransport final : public Wire {
 public:
  /// Time after which a host that does not answer counts as lost.
  static constexpr std::chrono::seconds kSilence{15};

  /// Takes over the connections; links[r] leads to rank r.
  TcpTransport(std::vector<TcpLink> links, std::size_t frame_bytes);
  /// Finds the peers with which this rank can exchange datagrams. Either all ranks call it, before any other function,
  /// or none does. No other job has the same `token`. Blocks until every living peer has taken part, at most until the
  /// deadline. Waits for the probe of a peer for 0.1 s after the peer has sent it.
  void open_datagrams(std::uint64_t token, const DatagramSettings&, Deadline);

  std::string_view name() const noexcept override { return "tcp"; }
  std::size_t frame_bytes() const noexcept override { return frame_bytes_; }
  int frames() const noexcept override { return kFrames; }
  std::byte* acquire_frame(Rank to) override;
  void send(Rank to, std::uint64_t tag, std::size_t bytes) override;
  void send_from(Rank to, std::uint64_t tag, const std::byte* data, std::size_t bytes) override;
  const Message* receive(Rank from) override { return receive_into(from, nullptr, 0); }
  const Message* receive_into(Rank from, std::byte* place, std::size_t bytes) override;
  void release(Rank from) override;
  bool lent(const std::byte* data, std::size_t bytes) const noexcept override;
  bool sending() override { return !writing_.empty(); }
  void progress() override;
  /// Blocks until the kernel has all bytes. The kernel delivers them even if this process ends.
  void flush(Deadline) override;

  void post_control(Rank to, std::string_view text) override { post(to, {}, text); }
  bool control_is_thread_safe() const noexcept override { return true; }
  std::optional<std::pair<Rank, std::string>> poll_control() override;
  bool detects_peer_failure() const noexcept override { return true; }
  std::optional<std::pair<Rank, std::string>> poll_failed_peer() override;
  bool is_blocked_on_failed_peer(Rank from) const override { return peers_[static_cast<std::size_t>(from)]->starved; }
  void abandon() noexcept override;
  ~TcpTransport() override;
  std::string link(Rank to) const override;
  void wait_for_event(std::chrono::nanoseconds at_most) override;
  /// Returns the number of messages sent as datagrams.
  std::uint64_t datagrams_sent() const;

 private:
  static constexpr int kFrames = 8;  // Number of frames per peer.
  static constexpr std::size_t kShort =
      512;  // Longest payload, in bytes, that is copied behind its header to save a scattered write.
  static constexpr std::size_t kReadAhead = 4096;   // Bytes read together with a header.
  static constexpr unsigned kLooksPerControl = 64;  // Attempts to receive between two reads of the controls.

  using Header = MessageHeader;

  /// A message that the kernel does not have completely.
  struct Outgoing {
    Header header;
    AlignedBuffer frame;
    const std::byte* data = nullptr;
    bool lent = false;
  };
  struct Peer {
    tcp::Socket data;
    ControlConnection control;  // Writes are guarded by controls_mutex_.
    std::string gone;           // How the loss of the peer was noticed; empty while it is connected.
    std::chrono::steady_clock::time_point data_ended{};
    bool reported = false;
    bool stream_ended = false;
    bool starved = false;  // Whether the caller waits for a message that can never arrive.
    // Numbers of the next message to the peer and of the next message from it.
    std::uint32_t numbered = DatagramLink::kFirstNumber, expected = DatagramLink::kFirstNumber;

    std::unique_ptr<DatagramLink> datagrams;  // Null if no datagrams can be exchanged.
    bool by_datagram = false;                 // Whether the peer's datagrams get through.
    bool last_by_datagram = false;            // Whether the last message taken was a datagram.
    unsigned looks = 0;
    std::optional<std::uint16_t> port;  // Port of the peer's datagrams, as received; 0 if it has none.
    std::optional<std::chrono::steady_clock::time_point>
        probed;                 // Time at which the peer reported that it had sent a probe.
    std::optional<bool> heard;  // Whether the peer received a probe of this rank, as received.

    std::array<Outgoing, kFrames> out;  // Ring of messages; `queued` of them, from `first` on, are not sent yet.
    std::size_t first = 0, queued = 0;
    std::size_t written = 0;  // Bytes of the first message that are sent, including its header.
    bool acquired = false;    // Whether the caller has acquired the frame behind the queued ones.
    bool writing = false;     // Whether the peer is in `writing_`.

    // Bytes read with the header of the next message; payload that follows is read directly to `target`.
    std::array<std::byte, kReadAhead> ahead;
    std::size_t ahead_first = 0, ahead_last = 0;
    bool known = false;  // Whether `header` is that of the next message.
    Header header;
    std::byte* target = nullptr;
    std::size_t arrived = 0;
    AlignedBuffer frame;
    bool open = false;
    Message message;
  };

  class DatagramHandshake;

  Peer& peer(Rank rank) { return *peers_[static_cast<std::size_t>(rank)]; }
  Outgoing& next_out(Peer& to) { return to.out[(to.first + to.queued) % kFrames]; }
  void hand_over(Rank to, std::uint64_t tag, std::size_t bytes);
  bool write_now(Peer&);
  bool write_some(Peer&);
  bool retire(Peer&);
  void discard(Peer&);
  std::byte* memory_of(AlignedBuffer&) const;
  bool read_header(Peer&);
  std::size_t read_some(Peer&, std::byte* to, std::size_t bytes);
  bool take_datagram(Rank from, std::byte* place, std::size_t bytes);
  bool take_from_stream(Peer&, std::byte* place, std::size_t bytes);
  bool retransmit_datagrams(bool all);
  void flush_datagrams();
  void handle_datagram_control(Rank from, std::string_view text);
  void data_failed(Peer&, std::string why);
  bool post(Rank to, std::string_view kind, std::string_view text);
  bool write_waiting_controls();
  void read_control(Rank);
  void look_at_controls();

  std::vector<std::unique_ptr<Peer>> peers_;
  std::size_t frame_bytes_;
  std::vector<Peer*> writing_;
  tcp::Socket everything_, controls_;  // Epolls: all connections without datagrams; control connections only.
  std::vector<pollfd> polled_;         // Sockets that wait_for_event() polls.
  std::deque<std::pair<Rank, std::string>> controls_in_;
  std::mutex controls_mutex_;  // Guards the writes of all control connections.
  std::atomic<bool> controls_waiting_ = false;
  bool abandoned_ = false;
  std::unique_ptr<Retransmitter> retransmitter_;  // Must be destroyed first.
};

}  // namespace collectives
