// A wire over UCX: active messages of UCP between the workers of ranks, over whatever network UCX finds.
//
// A message is an active message whose header says the tag, the sender and the message's number; UCX does not promise
// that active messages arrive in order, so the receiver puts them in order by number. Short ones travel at once
// (eager) and are shown where UCX has put them. Long ones are announced and then fetched by the receiver (rendezvous),
// straight to where the caller wants them if he has said so.
//
// A window of messages per peer bounds what is on its way and not yet released. What a receiver has released travels
// back in the headers of its own messages, or by itself when it has not sent any for a while.
//
// Settings are UCX's own: UCX_TLS, UCX_NET_DEVICES and all others that `ucx_info -cf` lists apply, and with
// COLLECTIVES_ in front (COLLECTIVES_UCX_TLS) they apply to this library alone. TLS and KEEPALIVE_INTERVAL are changed
// only where the user has left them alone:
//
// | setting            | here | because                                                                             |
// | ------------------ | ---- | ----------------------------------------------------------------------------------- |
// | TLS                | ^sm  | ranks of one host have the library's own shared memory                              |
// | KEEPALIVE_INTERVAL | 2s   | a host that vanishes is noticed while somebody waits for it; inf where there is     |
// |                    |      | only TCP, whose own keepalive works only while UCX does not send anything           |
// | TCP_CONN_NB        | y    | an address that nobody answers must not outlast the deadline                        |
// | TCP_KEEPIDLE       | 2s   | that keepalive: with TCP_KEEPINTVL 1s and TCP_KEEPCNT 3 it takes 3 to 5 s           |
//
// What UCX would log in calls of this library is left out where UCX_LOG_LEVEL is at its default, "warn": it comes out
// as errors and lost peers. Any other level is the user's wish, and so everything is printed.
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

namespace collectives {

/// A UCX context with one worker, which one thread uses at a time. Costs some 2 ms, a few file descriptors and 4 MiB.
class UcxWorker {
 public:
  /// Throws Error{system} with UCX's own words.
  UcxWorker();
  UcxWorker(const UcxWorker&) = delete;
  UcxWorker& operator=(const UcxWorker&) = delete;
  ~UcxWorker();

  ucp_worker_h get() const noexcept { return worker_; }
  /// What others need to connect to it: a few hundred bytes.
  std::string address() const;
  /// Readable when something has happened since the worker was armed; -1 where the devices in use cannot tell.
  int event_fd() const noexcept { return event_fd_; }

 private:
  ucp_context_h context_ = nullptr;
  ucp_worker_h worker_ = nullptr;
  int event_fd_ = -1;
};

class UcxNetwork final : public Network {
 public:
  /// Throws Error{system} where UCX cannot be started.
  UcxNetwork();
  std::string_view name() const noexcept override { return "ucx"; }
  std::string address() const override { return address_; }
  std::unique_ptr<Wire> connect(const Everyone&) override;

  /// Whether UCX finds a network device here that it drives past the kernel (InfiniBand, RoCE): without one it is a
  /// detour to TCP. Opens every device for a moment: some milliseconds.
  static bool has_fast_device();

 private:
  std::unique_ptr<UcxWorker> worker_;
  std::string address_;
};

class UcxTransport final : public Wire {
 public:
  /// Connects; see Network::connect().
  UcxTransport(std::unique_ptr<UcxWorker> worker, const Everyone&);
  UcxTransport(const UcxTransport&) = delete;
  UcxTransport& operator=(const UcxTransport&) = delete;
  /// Gives what is in flight a fifth of a second, then cuts it off: flush() first what matters.
  ~UcxTransport() override;

  std::string_view name() const noexcept override { return "ucx"; }
  std::size_t frame_bytes() const noexcept override { return frame_bytes_; }
  std::byte* stage(Rank to) override;
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
  bool sees_lost_peers() const noexcept override { return true; }
  std::optional<std::pair<Rank, std::string>> poll_lost() override;
  /// What peers have not taken by then is cut off, with the connections.
  void abandon() noexcept override;
  void doze(std::chrono::nanoseconds at_most) override;

 private:
  static constexpr int kFrames = 8;
  // Messages to one peer that it may not have released yet. More than frames: news of up to kTellEvery - 1 releases
  // may still be with the peer.
  static constexpr unsigned kWindow = 16;
  static constexpr std::uint16_t kTellEvery = 4;
  static_assert(kWindow >= kFrames + kTellEvery - 1 && 65536 % kWindow == 0);
  static constexpr std::size_t kMaxControlsInFlight = 256;

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
    Frame staged;
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

  Peer& peer(Rank rank) { return peers_[static_cast<std::size_t>(rank)]; }
  void set_handlers();
  void make_endpoint(Peer&, const std::string& address);
  void shake_hands(Deadline);
  void bring_up(Peer&);
  bool flushed(Peer&);
  void greet(Peer&, unsigned id, Outgoing&, std::string_view text, std::uint32_t flags);
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
  void tell_releases(Peer&) noexcept;
  void lend(const std::byte* data, std::size_t bytes);
  void take_back(const std::byte* data) noexcept;
  void lose(Peer&, ucs_status_t) noexcept;
  void close() noexcept;
  /// Who `header` says it is from; null unless that is a peer of this wire.
  Peer* sender(const void* header, std::size_t header_bytes, Header&) noexcept;

  ucs_status_t on_hello(const void* header, std::size_t header_bytes, std::string_view token,
                        const ucp_am_recv_param_t*) noexcept;
  ucs_status_t on_answer(unsigned id, const void* header, std::size_t header_bytes) noexcept;
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
