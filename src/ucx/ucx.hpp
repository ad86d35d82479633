// Wire over UCX: active messages of UCP between the workers of the ranks, over the networks that UCX finds.
//
// Order. The header of an active message holds the tag, the sender and the number of the message. UCX does not promise
// that active messages arrive in order, so the receiver sorts them by number.
//
// Payload. A short message travels with its announcement (eager). The caller reads it in the memory of UCX. A long
// message is announced first, and the receiver fetches it (rendezvous). The data go directly to the caller's memory if
// the caller has passed any.
//
// Flow control. A peer may have at most 16 messages in flight or not yet released by their receiver. A receiver reports
// its releases in the headers of its own messages. If it has sent none for four releases, it reports them in a separate
// message.
#pragma once

#include <ucp/api/ucp.h>

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <deque>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "collectives/error.hpp"
#include "transport/network.hpp"
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
  UcxTransport(const UcxTransport&) = delete;
  UcxTransport& operator=(const UcxTransport&) = delete;
  /// Waits up to 0.2 s for messages in flight, then closes the connections. Call flush() first if messages must arrive.
  ~UcxTransport() override;

  std::string_view name() const noexcept override { return "ucx"; }
  std::size_t frame_bytes() const noexcept override { return frame_bytes_; }
  std::byte* acquire_frame(Rank to) override;
  void send(Rank to, std::uint64_t tag, std::size_t bytes) override;
  const Message* receive(Rank from) override { return receive_into(from, nullptr, 0); }
  void release(Rank from) override;
  void send_from(Rank to, std::uint64_t tag, const std::byte* data, std::size_t bytes) override;
  const Message* receive_into(Rank from, std::byte* place, std::size_t bytes) override;
  /// Also returns true for memory passed to receive_into() that UCX writes to.
  bool lent(const std::byte* data, std::size_t bytes) const noexcept override;
  bool sending() override { return in_progress_ > 0 || !lent_.empty(); }
  void progress() override;
  /// Blocks until the network has taken every message; a long one must have reached its receiver. Then waits up to 0.1
  /// s for confirmations of the peers.
  void flush(Deadline) override;

  int frames() const noexcept override { return kFrames; }
  void post_control(Rank to, std::string_view text) override;
  std::optional<std::pair<Rank, std::string>> poll_control() override;
  /// Returns true. UCX notices a process that has ended at once. Its keepalive or that of the kernel (UCX_TCP_KEEPIDLE,
  /// UCX_TCP_KEEPINTVL, UCX_TCP_KEEPCNT) detects a host that does not answer. Messages to a failed peer are dropped.
  bool detects_peer_failure() const noexcept override { return true; }
  std::optional<std::pair<Rank, std::string>> poll_failed_peer() override;
  /// Waits up to 0.1 s until no memory of callers is in use, then closes all connections if some still is.
  void abandon() noexcept override;
  void wait_for_event(std::chrono::nanoseconds at_most) override;

 private:
  static constexpr int kFrames = 8;
  // Most messages to one peer that it has not reported as released. More than the frames, because the peer may have
  // released kTellEvery - 1 messages without a report.
  static constexpr unsigned kWindow = 16;
  static constexpr std::uint16_t kTellEvery = 4;
  static_assert(kWindow >= kFrames + kTellEvery - 1 && 65536 % kWindow == 0);
  static constexpr std::size_t kMaxControlsInFlight = 256;

  // Numbers of the active messages.
  enum Id : unsigned { kHello, kWelcome, kRefusal, kReady, kData, kNews, kControl };

  /// Header of every active message. Both sides have the same byte order, because UCX's addresses require it.
  struct Header {
    std::uint64_t tag = 0;
    std::uint64_t key = 0;       // Hash of the token of the job.
    std::uint32_t from = 0;      // Sending rank.
    std::uint16_t number = 0;    // Number of the message; data and control messages have separate numbers.
    std::uint16_t released = 0;  // Number of the first message that `from` has not released.
  };
  struct Free {
    void operator()(std::byte* memory) const noexcept { std::free(memory); }
  };
  using Frame = std::unique_ptr<std::byte, Free>;
  struct Peer;
  /// A sent message while UCX needs its memory.
  struct Outgoing {
    UcxTransport* wire = nullptr;
    Peer* peer = nullptr;
    Header header;
    Frame frame;
    std::pair<const std::byte*, std::size_t> lent;  // Range in the caller's memory; null if a frame is sent.
    bool busy = false;
  };
  /// A message that has arrived, is announced, or is being fetched.
  struct Incoming {
    enum class State : std::uint8_t { empty, announced, fetching, arrived };
    UcxTransport* wire = nullptr;
    State state = State::empty;
    Message message;
    void* kept = nullptr;  // Memory of UCX: the data or the announcement.
    Frame frame;
    bool lent = false;  // Whether the message is fetched into the caller's memory.
  };
  struct Peer {
    UcxTransport* wire = nullptr;
    Rank rank = 0;
    ucp_ep_h endpoint = nullptr;
    bool heard = false, answered = false;  // Whether its hello, and its answer to this rank's hello, have arrived.
    bool up = false, up_there = false;     // Whether this rank, and the peer, have connected everything.
    std::optional<std::string> lost;       // How the loss of the peer was noticed; empty while it is connected.

    std::array<Outgoing, kWindow> out;
    Frame acquired;
    std::uint16_t next_out = 0;        // Number of the next message to send.
    std::uint16_t released_there = 0;  // Number of the first message that the peer has not released.
    int frames_out = 0;                // Number of frames in flight or acquired.
    bool flushed = false;              // Whether nothing was sent since the last flush began.
    void* pending = nullptr;           // UCX's request of that flush.

    std::array<Incoming, kWindow> in;
    std::uint16_t next_in = 0;        // Number of the next message to receive; earlier ones are released.
    std::uint16_t released_told = 0;  // Value of next_in that was last reported to the peer.
    Outgoing hello, welcome, ready;
    Outgoing news;  // Separate report of releases.

    std::uint16_t next_control_out = 0, next_control_in = 0;
    std::map<std::uint16_t, std::string> early_controls;
  };
  struct Control {
    UcxTransport* wire = nullptr;
    Rank to = kNoRank;  // Receiver; kNoRank for a process that is no rank of this job.
    Header header;
    std::string text;
    bool busy = false;
  };

  // Connecting and closing, in ucx_connect.cpp.
  void make_endpoint(Peer&, const std::string& address);
  void shake_hands(Deadline);
  void greet(Peer&, unsigned id, Outgoing&, std::string_view text, std::uint32_t flags);
  void bring_up(Peer&);
  ucs_status_t on_hello(const void* header, std::size_t header_bytes, std::string_view token,
                        const ucp_am_recv_param_t*) noexcept;
  ucs_status_t on_answer(unsigned id, const void* header, std::size_t header_bytes) noexcept;
  bool flushed(Peer&);
  void close() noexcept;

  // Messages, in ucx.cpp.
  Peer& peer(Rank rank) { return peers_[static_cast<std::size_t>(rank)]; }
  void set_handlers();
  void progress_worker();
  Frame take_frame() noexcept;
  void give_frame(Frame) noexcept;
  void hand_over(Peer&, std::uint64_t tag, const std::byte* data, std::size_t bytes, bool from_frame);
  ucs_status_t post(ucp_ep_h, unsigned id, const Header&, const void* data, std::size_t bytes, std::uint32_t flags,
                    ucp_send_nbx_callback_t done, void* of, bool& busy);
  static void sent(void* request, ucs_status_t, void* of);          // `of` is an Outgoing.
  static void control_done(void* request, ucs_status_t, void* of);  // `of` is a Control.
  void finish(Outgoing&) noexcept;
  void note_releases(Peer&, const Header&) noexcept;
  void fetch(Peer&, Incoming&, std::byte* place, std::size_t bytes);
  void fetched(Incoming&, ucs_status_t) noexcept;
  void send_releases(Peer&) noexcept;
  void lend(const std::byte* data, std::size_t bytes);
  void take_back(const std::byte* data, std::size_t bytes) noexcept;
  void lose(Peer&, ucs_status_t) noexcept;
  /// Copies `header` and returns the peer that sent it. Returns null if it is no peer of this wire.
  Peer* sender(const void* header, std::size_t header_bytes, Header&) noexcept;

  ucs_status_t on_data(const void* header, std::size_t header_bytes, void* data, std::size_t bytes,
                       const ucp_am_recv_param_t*) noexcept;
  void on_news(const void* header, std::size_t header_bytes) noexcept;
  void on_control(const void* header, std::size_t header_bytes, std::string_view text) noexcept;

  std::unique_ptr<UcxWorker> worker_;
  Rank self_;
  std::string token_;
  std::uint64_t key_;
  std::size_t frame_bytes_;
  std::size_t eager_bytes_;  // Longest payload that is sent eagerly.
  std::vector<Peer> peers_;
  std::vector<Frame> free_frames_;
  std::vector<std::pair<const std::byte*, std::size_t>> lent_;
  int in_progress_ = 0;  // Number of requests that UCX has not completed.
  std::optional<Rank> refused_by_;
  std::list<Control> controls_out_;
  std::deque<std::pair<Rank, std::string>> controls_in_;
  std::deque<Rank> lost_;  // Failed peers that poll_failed_peer() has not returned yet.
  bool closing_ = false;
};

}  // namespace collectives
