// A wire over UCX: active messages of UCP between the workers of ranks, over whatever network UCX finds.
//
// A message is an active message whose header says the tag, the sender and the message's number; UCX does not promise
// that active messages arrive in order, so the receiver puts them in order by number. Short ones travel at once
// (eager) and are shown where UCX has put them. Long ones are announced and then fetched by the receiver (rendezvous),
// straight to where the caller wants them if he has said so.
//
// A window of messages per peer bounds what is on its way and not yet released. What a receiver has released travels
// back in the headers of its own messages, or by itself when it has not sent any for a while.
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
  /// Throws Error{system} where UCX cannot be started.
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
  /// Connects; see Network::connect().
  UcxTransport(std::unique_ptr<UcxWorker> worker, const PeerAddresses&);
  UcxTransport(const UcxTransport&) = delete;
  UcxTransport& operator=(const UcxTransport&) = delete;
  /// Gives what is in flight a fifth of a second, then cuts it off: flush() first what matters.
  ~UcxTransport() override;

  std::string_view name() const noexcept override { return "ucx"; }
  std::size_t frame_bytes() const noexcept override { return frame_bytes_; }
  std::byte* acquire_frame(Rank to) override;
  void send(Rank to, std::uint64_t tag, std::size_t bytes) override;
  const Message* receive(Rank from) override { return receive_into(from, nullptr, 0); }
  void release(Rank from) override;
  void send_from(Rank to, std::uint64_t tag, const std::byte* data, std::size_t bytes) override;
  const Message* receive_into(Rank from, std::byte* place, std::size_t bytes) override;
  /// Also true of a place of receive_into() that is being written to.
  bool lent(const std::byte* data, std::size_t bytes) const noexcept override;
  bool sending() override { return in_progress_ > 0 || !lent_.empty(); }
  void progress() override;
  /// Waits until the network has taken every message over, long ones until their receivers have them. Waits a tenth of
  /// a second more for the peers to confirm that.
  void flush(Deadline) override;

  int frames() const noexcept override { return kFrames; }
  void post_control(Rank to, std::string_view text) override;
  std::optional<std::pair<Rank, std::string>> poll_control() override;
  /// A process that ended is noticed at once; a host that vanished, by UCX's keepalive or the kernel's
  /// (UCX_TCP_KEEPIDLE and its sisters). What was sent to a peer that is gone is dropped.
  bool detects_peer_failure() const noexcept override { return true; }
  std::optional<std::pair<Rank, std::string>> poll_failed_peer() override;
  /// What peers have not taken by then is cut off, with the connections.
  void abandon() noexcept override;
  void wait_for_event(std::chrono::nanoseconds at_most) override;

 private:
  static constexpr int kFrames = 8;
  // Messages to one peer that it may not have released yet. More than frames: news of up to kTellEvery - 1 releases
  // may still be with the peer.
  static constexpr unsigned kWindow = 16;
  static constexpr std::uint16_t kTellEvery = 4;
  static_assert(kWindow >= kFrames + kTellEvery - 1 && 65536 % kWindow == 0);
  static constexpr std::size_t kMaxControlsInFlight = 256;

  // Active messages by number.
  enum Id : unsigned { kHello, kWelcome, kRefusal, kReady, kData, kNews, kControl };

  /// In front of every active message. Both sides have the same byte order: UCX's addresses demand that already.
  struct Header {
    std::uint64_t tag = 0;
    std::uint64_t key = 0;       // of the ranks that belong together, from their token
    std::uint32_t from = 0;      // who sends
    std::uint16_t number = 0;    // of the message on its way from `from`; data and control are numbered apart
    std::uint16_t released = 0;  // the number up to which `from` has released
  };
  struct Free {
    void operator()(std::byte* memory) const noexcept { std::free(memory); }
  };
  using Frame = std::unique_ptr<std::byte, Free>;
  struct Peer;
  /// A message handed over, while UCX needs its memory.
  struct Outgoing {
    UcxTransport* wire = nullptr;
    Peer* peer = nullptr;
    Header header;
    Frame frame;
    std::pair<const std::byte*, std::size_t> lent;  // in the caller's memory; nothing for a frame
    bool busy = false;
  };
  /// A message that has come, or is announced, or is being fetched.
  struct Incoming {
    enum class State : std::uint8_t { empty, announced, fetching, arrived };
    UcxTransport* wire = nullptr;
    State state = State::empty;
    Message message;
    void* kept = nullptr;  // UCX's: the data, or the announcement
    Frame frame;
    bool lent = false;  // fetched into the caller's memory
  };
  struct Peer {
    UcxTransport* wire = nullptr;
    Rank rank = 0;
    ucp_ep_h endpoint = nullptr;
    bool heard = false, answered = false;  // its hello, and its answer to ours
    bool up = false, up_there = false;     // everything behind the endpoint is connected
    std::optional<std::string> lost;       // how it was noticed

    std::array<Outgoing, kWindow> out;
    Frame acquired;
    std::uint16_t next_out = 0;        // number of the message to hand over next
    std::uint16_t released_there = 0;  // up to here the peer has released
    int frames_out = 0;                // frames in flight and staged
    bool flushed = false;              // nothing was sent since the last flush began
    void* pending = nullptr;           // UCX's request of that flush

    std::array<Incoming, kWindow> in;
    std::uint16_t next_in = 0;        // number of the message to receive next; those before it are released
    std::uint16_t released_told = 0;  // up to here the peer knows
    Outgoing hello, welcome, ready;
    Outgoing news;  // of releases, by itself

    std::uint16_t next_control_out = 0, next_control_in = 0;
    std::map<std::uint16_t, std::string> early_controls;
  };
  struct Control {
    UcxTransport* wire = nullptr;
    Rank to = kNoRank;  // no rank: a stranger
    Header header;
    std::string text;
    bool busy = false;
  };

  // Meeting and parting, in ucx_connect.cpp.
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
  void drive();
  Frame take_frame() noexcept;
  void give_frame(Frame) noexcept;
  void hand_over(Peer&, std::uint64_t tag, const std::byte* data, std::size_t bytes, bool from_frame);
  ucs_status_t post(ucp_ep_h, unsigned id, const Header&, const void* data, std::size_t bytes, std::uint32_t flags,
                    ucp_send_nbx_callback_t done, void* of, bool& busy);
  static void sent(void* request, ucs_status_t, void* of);          // of: Outgoing
  static void control_done(void* request, ucs_status_t, void* of);  // of: Control
  void finish(Outgoing&) noexcept;
  void note_releases(Peer&, const Header&) noexcept;
  void fetch(Peer&, Incoming&, std::byte* place, std::size_t bytes);
  void fetched(Incoming&, ucs_status_t) noexcept;
  void send_releases(Peer&) noexcept;
  void lend(const std::byte* data, std::size_t bytes);
  void take_back(const std::byte* data, std::size_t bytes) noexcept;
  void lose(Peer&, ucs_status_t) noexcept;
  /// Who `header` says it is from; null unless that is a peer of this wire.
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
  std::size_t eager_bytes_;  // longer messages are announced and fetched
  std::vector<Peer> peers_;
  std::vector<Frame> free_frames_;
  std::vector<std::pair<const std::byte*, std::size_t>> lent_;
  int in_progress_ = 0;  // requests that UCX has not completed
  std::optional<Rank> refused_by_;
  std::list<Control> controls_out_;
  std::deque<std::pair<Rank, std::string>> controls_in_;
  std::deque<Rank> lost_;  // not yet told
  bool closing_ = false;
};

}  // namespace collectives
