// UCX transport: exchanges messages with the ranks of other hosts through UCX, a library for fast networks. Each
// message is an active message of UCX: its arrival runs a handler in the receiving process. UCX chooses the network
// devices.
//
// Parts. UcxConnections (ucx_connections.hpp) connects this rank with its peers and sends active messages. UcxHandshake
// makes sure that peers belong to the same job. UcxControlChannel carries short texts, such as reports of failures.
// UcxTransport carries the data of collectives. A frame is memory for one message, which UcxTransport lends to its
// caller. UcxTransport also limits the number of messages in flight, and puts received messages in order.
//
// Order. The header of an active message holds the tag, the sender and the number of the message. UCX does not promise
// that active messages arrive in order, so the receiver sorts messages by number.
//
// Payload. Over TCP, each message is sent eagerly, which means that the payload comes with the header. The caller reads
// this payload in the memory of UCX, or in a frame if the memory of UCX is not aligned. On a fast network device, a
// long message is only announced, and the receiver fetches its payload. The payload goes directly to the buffer that
// the caller has passed, if the buffer has the size of the payload. Otherwise the payload goes to a frame.
//
// Flow control. A receiver releases a message when it has read the message. It reports its releases in the headers of
// the messages that it sends to the same peer. After four releases without such a message, it reports them in a
// separate message. At most 16 messages from one rank to another may be sent and not yet reported as released.
#pragma once

#include <ucp/api/ucp.h>

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "transport/network.hpp"
#include "ucx/ucx_connections.hpp"
#include "ucx/ucx_control_channel.hpp"
#include "ucx/ucx_handshake.hpp"
#include "ucx/ucx_memory.hpp"
#include "ucx/ucx_worker.hpp"

namespace collectives {

class UcxNetwork final : public Network {
 public:
  /// Starts UCX. Throws Error{system} if that fails.
  UcxNetwork();
  std::string_view name() const noexcept override { return "ucx"; }
  std::string address() const override { return address_; }
  std::unique_ptr<Wire> connect(const PeerAddresses&) override;

 private:
  std::unique_ptr<UcxWorker> worker_;
  std::string address_;
};

class UcxTransport final : public Wire {
 public:
  /// Connects to all ranks of other hosts; see Network::connect().
  UcxTransport(std::unique_ptr<UcxWorker> worker, const PeerAddresses&);
  /// Waits at most 0.2 s for messages in flight, and closes the connections. Call flush() first if messages must
  /// arrive.
  ~UcxTransport() override;

  std::string_view name() const noexcept override { return "ucx"; }
  std::size_t frame_bytes() const noexcept override { return frames_.frame_bytes(); }
  std::byte* acquire_frame(Rank to) override;
  void send(Rank to, std::uint64_t tag, std::size_t bytes) override;
  const Message* receive(Rank from) override { return receive_into(from, nullptr, 0); }
  void release(Rank from) override;
  void send_from(Rank to, std::uint64_t tag, const std::byte* data, std::size_t bytes) override;
  const Message* receive_into(Rank from, std::byte* place, std::size_t bytes) override;
  /// Returns whether UCX still sends from or receives into any of these bytes, which are memory of the caller.
  bool lent(const std::byte* data, std::size_t bytes) const noexcept override { return lent_.overlap(data, bytes); }
  bool sending() override { return connections_.has_requests() || !lent_.empty(); }
  void progress() override {
    if (connections_.has_requests()) connections_.progress();
  }
  /// Blocks until UCX needs the memory of no message. By this time, long messages have reached their receivers.
  /// Afterwards, waits at most 0.1 s until the peers confirm the short messages.
  void flush(Deadline) override;

  int frames() const noexcept override { return kFrames; }
  void post_control(Rank to, std::string_view text) override { controls_.post(to, text); }
  std::optional<std::pair<Rank, std::string>> poll_control() override;
  /// Returns true. UCX notices at once that a process has ended. The keepalive of UCX or of the kernel's TCP detects a
  /// host that does not answer (UCX_TCP_KEEPIDLE, UCX_TCP_KEEPINTVL, UCX_TCP_KEEPCNT). Messages to a failed peer are
  /// dropped.
  bool detects_peer_failure() const noexcept override { return true; }
  std::optional<std::pair<Rank, std::string>> poll_failed_peer() override { return connections_.take_lost(controls_); }
  /// Waits at most 0.1 s until UCX uses no memory of callers. If UCX uses their memory even longer, closes all
  /// connections.
  void abandon() noexcept override;
  void wait_for_event(std::chrono::nanoseconds at_most) override { connections_.wait_for_event(at_most); }

 private:
  static constexpr int kFrames = 8;
  // Maximum number of messages to one peer that the peer has not reported as released. It exceeds the number of frames,
  // because the peer may have released kTellEvery - 1 messages without a report.
  static constexpr unsigned kWindow = 16;
  static constexpr std::uint16_t kTellEvery = 4;
  static_assert(kWindow >= kFrames + kTellEvery - 1 && 65536 % kWindow == 0);

  using Connection = UcxConnections::Connection;
  using Frame = UcxFrames::Frame;
  struct Peer;
  /// Message that this rank sends, as long as UCX needs its memory.
  struct Outgoing : UcxConnections::Outgoing {
    UcxTransport* wire = nullptr;
    Peer* peer = nullptr;
    Frame frame;
    std::pair<const std::byte*, std::size_t> lent;  // Range of the caller's memory that is sent; null: a frame is sent.
  };
  /// Message to this rank: it is announced, is being fetched, or has arrived.
  struct Incoming {
    enum class State : std::uint8_t { empty, announced, fetching, arrived };
    UcxTransport* wire = nullptr;
    State state = State::empty;
    Message message;
    void* kept = nullptr;  // Memory of UCX: the data or the announcement.
    Frame frame;
    bool lent = false;  // Whether UCX fetches the message into the caller's memory.
  };
  struct Peer {
    Connection* connection = nullptr;
    std::array<Outgoing, kWindow> out;
    Frame acquired;
    std::uint16_t next_out = 0;        // Number of the next message to send.
    std::uint16_t released_there = 0;  // Number of the first message that the peer has not released.
    int frames_out = 0;                // Number of frames that are in flight or acquired by the caller.

    std::array<Incoming, kWindow> in;
    std::uint16_t next_in = 0;        // Number of the next message to receive; earlier ones are released.
    std::uint16_t released_told = 0;  // Value of next_in that was last reported to the peer.
    Outgoing news;                    // Separate message that reports releases.

    bool has_busy_messages() const;
    void note_releases(const ucx::Header&) noexcept;
  };

  Peer& peer(Rank rank) { return peers_[static_cast<std::size_t>(rank)]; }
  void hand_over(Peer&, std::uint64_t tag, const std::byte* data, std::size_t bytes, bool from_frame);
  void finish(Outgoing&) noexcept;
  ucs_status_t on_data(const void* header, std::size_t header_bytes, void* data, std::size_t bytes,
                       const ucp_am_recv_param_t*) noexcept;
  void fetch(Peer&, Incoming&, std::byte* place, std::size_t bytes);
  void fetched(Incoming&, ucs_status_t) noexcept;
  void send_releases(Peer&) noexcept;
  void close() noexcept;

  UcxConnections connections_;
  UcxHandshake handshake_;
  UcxControlChannel controls_;
  UcxFrames frames_;
  std::vector<Peer> peers_;
  LentRanges lent_;
  bool closing_ = false;
};

}  // namespace collectives
