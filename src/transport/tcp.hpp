// A wire over TCP: two connections to each peer, one for data and one for control, so that a control message never
// waits behind data that nobody takes.
//
// Bytes go straight between the kernel and where they belong. A message is sent from the frame in which it was made, or
// from the caller's own memory; it is read only when somebody asks for it, so that it can come straight to where it
// should be kept. What is not asked for waits in the kernel, whose buffers and windows are the flow control. A message
// is a header, then the payload. Short ones go as datagrams where these get through (datagrams.hpp); each has its
// number, by which the two ways come together again.
//
// A process that ends closes its connections, which the others see at once. A host that falls silent is given up after
// kSilence, by the kernel's own timers.
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
#include "transport/datagrams.hpp"

namespace collectives {

/// The connections to one peer, none to a rank of the same host.
struct TcpLink {
  tcp::Socket data, control;
};

class TcpTransport final : public Wire {
 public:
  /// How long a peer's host may be silent while it owes an answer.
  static constexpr std::chrono::seconds kSilence{15};

  /// links[r] leads to rank r.
  TcpTransport(std::vector<TcpLink> links, std::size_t frame_bytes);
  /// Finds out with which peers datagrams can be exchanged; all ranks call it, before anything else, or none. `token`
  /// is theirs alone. Waits for all peers that live, until the deadline at most, and for a datagram of each a tenth of
  /// a second after it has sent one.
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
  /// Waits until the kernel has everything: it delivers it whether this process lives or not.
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
  /// Messages that went as datagrams.
  std::uint64_t datagrams_sent() const;

 private:
  static constexpr int kFrames = 8;                // per peer
  static constexpr std::size_t kShort = 512;       // bytes of a message that is worth copying to send it in one piece
  static constexpr std::size_t kReadAhead = 4096;  // bytes read together with a header
  static constexpr unsigned kLooksPerControl = 64;
  static constexpr std::size_t kMaxControl = 1 << 20;

  using Header = MessageHeader;

  /// A message on its way out.
  struct Outgoing {
    Header header;
    AlignedBuffer frame;
    const std::byte* data = nullptr;
    bool lent = false;
  };
  struct Peer {
    tcp::Socket data, control;
    std::string gone;  // how it was noticed that the peer is; empty while it is there
    std::chrono::steady_clock::time_point data_ended{};
    bool reported = false;
    bool stream_ended = false;
    bool starved = false;  // it was asked for a message that will never come
    // The next message to it, and from it.
    std::uint32_t numbered = DatagramLink::kFirstNumber, expected = DatagramLink::kFirstNumber;

    std::unique_ptr<DatagramLink> datagrams;  // none where there can be none
    bool by_datagram = false;                 // theirs get through
    bool last_by_datagram = false;            // the message taken last was one
    unsigned looks = 0;
    std::optional<std::uint16_t> port;                            // what it has said: of its datagrams, 0 for none
    std::optional<std::chrono::steady_clock::time_point> probed;  // when it said that it had sent a probe
    std::optional<bool> heard;                                    // whether it has got ours

    std::array<Outgoing, kFrames> out;  // a ring: `queued` of them from `first` are not sent yet
    std::size_t first = 0, queued = 0;
    std::size_t written = 0;  // bytes of the first one, header included
    bool acquired = false;    // the frame after the queued ones is lent to whoever fills it
    bool writing = false;     // it is on the list of those that wait for room

    // What has been read of the next message: first whatever came with its header, then the payload.
    std::array<std::byte, kReadAhead> ahead;
    std::size_t ahead_first = 0, ahead_last = 0;
    bool known = false;  // the header is
    Header header;
    std::byte* target = nullptr;
    std::size_t arrived = 0;
    AlignedBuffer frame;
    bool open = false;
    Message message;

    std::string control_in, control_out;
    bool control_ended = false;
  };

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
  void write_control(Peer&);
  bool write_waiting_controls();
  void read_control(Rank);
  void look_at_controls();

  std::vector<std::unique_ptr<Peer>> peers_;
  std::size_t frame_bytes_;
  std::vector<Peer*> writing_;
  tcp::Socket everything_, controls_;  // epoll: whatever happens, but for datagrams; control connections only
  std::vector<pollfd> polled_;         // what wait_for_event() waits for
  std::deque<std::pair<Rank, std::string>> controls_in_;
  std::mutex controls_mutex_;  // of what goes out
  std::atomic<bool> controls_waiting_ = false;
  bool abandoned_ = false;
  std::unique_ptr<Retransmitter> retransmitter_;  // ends first
};

}  // namespace collectives
