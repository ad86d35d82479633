// Short messages as datagrams, beside a TCP stream that carries the rest.
//
// Why. The acknowledgements, timers and queues of a stream cost the kernel a third to a half of the time of a message.
// Two processes that exchange a few bytes take 8 us over the kernel's TCP and 5 us over UDP.
//
// Order. All messages to a peer are numbered, whether they go as datagrams or on the stream. The receiver takes them in
// the order of their numbers.
//
// Long messages. A message may take several packets. The kernel gets it in one system call and cuts it into packets
// (UDP_SEGMENT), or the network device does. The receiving kernel joins packets that arrive (UDP_GRO). Inside one
// machine the message stays in one piece. Every piece has its own heading, so the receiver accepts any way of joining.
//
// Losses. The sender keeps a copy of each datagram until the receiver acknowledges it. It retransmits an unacknowledged
// datagram on the control connection, which loses nothing. This happens after one or two ticks of 10 ms, or after four
// or five ticks if the message takes several packets. A datagram is sent only once, so it needs no adaptive timer.
// A link that has lost a datagram uses the stream for a while. If the message had several pieces, only such messages
// use the stream.
//
// Flow control. At most kWindow datagrams and kWindowBytes bytes of a link are unacknowledged at any time. Further
// messages use the stream and its flow control. This file therefore needs no congestion control of its own.
//
// Acknowledgements. Every datagram acknowledges the messages taken from the other direction. A rank that sends no
// datagrams acknowledges after half a window. It usually acknowledges a message in several pieces at once, because a
// needless retransmission of such a message is expensive.
//
// Thread. One thread per process retransmits for all links (retransmitter.hpp).
//
// The price: one more descriptor per pair of ranks, the thread, and 0.1 s at the start if the network drops datagrams.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <string_view>
#include <utility>

#include "bootstrap/sockets.hpp"
#include "transport/datagram_pieces.hpp"
#include "transport/reorder_buffer.hpp"
#include "transport/tcp_message.hpp"

namespace collectives {

struct DatagramSettings {
  bool on = true;
  /// Time for which a link uses only the stream after its first lost datagram. A loss within a minute after such a
  /// pause doubles the time, up to one minute.
  std::chrono::milliseconds pause{100};
  /// Period of simulated losses, for tests: each `lose_every`-th datagram message is not sent. 0 for none.
  std::uint64_t lose_every = 0;
};

/// The datagrams between this rank and one peer. Only one thread may use a link at a time. The exception is
/// retransmit(), which another thread may call. It also reads acknowledgements that the first thread has not read.
class DatagramLink {
 public:
  static constexpr int kWindow = 8;                            ///< Most unacknowledged messages.
  static constexpr std::size_t kLongest = datagram::kLongest;  ///< Most bytes of a message.
  static constexpr std::size_t kWindowBytes = 128 << 10;  ///< Most unacknowledged bytes: a socket buffer holds as much.
  /// Number of the first message. Numbers wrap around early in the life of every link. An error in it therefore shows
  /// at once, not late in a long run.
  static constexpr std::uint32_t kFirstNumber = 0xffffffc0;
  /// Period of the retransmission thread.
  static constexpr std::chrono::milliseconds kTick{10};
  /// Number of ticks that begin between the sending of a message and its retransmission.
  static constexpr std::uint32_t kTicks = 2;
  /// Number of ticks for a message in several pieces, because its needless retransmission is expensive.
  static constexpr std::uint32_t kTicksOfPieces = 5;

  /// Binds a socket to the local address of `stream`. Both ends of the link have the same `token`, and no other process
  /// has it. Throws Error{system}.
  DatagramLink(const tcp::Socket& stream, std::uint64_t token, const DatagramSettings&);

  const tcp::Socket& socket() const { return socket_; }
  std::uint16_t port() const { return port_; }

  // Handshake. Each end sends its port to the other, then probes of one full packet. Then it reports whether it has
  // received a probe.

  /// Connects the socket to the peer's address with `port`. Throws Error{system}.
  void connect(const tcp::Socket& stream, std::uint16_t port);
  /// Sends a probe.
  void probe();
  /// Returns whether any datagram of the peer has arrived.
  bool heard();
  /// Permits send(), because the peer has received a probe.
  void allow() { allowed_ = true; }

  // Sending.

  /// Sends a message as a datagram. Returns false if the message has to use the stream. Acknowledges all messages of
  /// the other direction before number `taken`.
  bool send(const MessageHeader&, const std::byte* data, std::uint32_t taken);
  /// Frees the copies of all messages before `number`, which the peer has acknowledged on the control connection.
  /// `lost` means that the last of them had not arrived as a datagram.
  void acknowledged(std::uint32_t number, bool lost);
  /// Retransmits by say(text) the messages that are unacknowledged for too many ticks, or `all` unacknowledged
  /// messages. A false result of say() means that it could not send. Returns whether some messages may still have to be
  /// retransmitted. May be called from any thread.
  bool retransmit(bool all, const std::function<bool(std::string_view)>& say);
  /// Returns the number of messages sent as datagrams.
  std::uint64_t sent() const { return sent_; }

  // Receiving.

  struct Arrived {
    MessageHeader header;
    const std::byte* data;
    bool retransmitted, lost;  // Arrived on the control connection; had not arrived as a datagram.
  };
  /// Returns whether some taken messages are unacknowledged, and counts them as acknowledged from now on.
  bool clear_unacknowledged() {
    unacknowledged_bytes_ = 0;
    return std::exchange(unacknowledged_, 0) > 0;
  }
  /// Returns message `number` if it has arrived. The data stay valid until the next call.
  std::optional<Arrived> take(std::uint32_t number);
  /// Reads all datagrams in the socket. Messages before `number` are taken already.
  void read_ahead(std::uint32_t number);
  /// Stores a retransmitted message. Returns false if its number precedes `number`, because it has been taken already.
  bool receive_retransmitted(std::string_view text, std::uint32_t number);

 private:
  struct Slot {
    AlignedBuffer buffer;
    MessageHeader header;
    std::uint32_t tick = 0;
    bool used = false, retransmitted = false;
  };
  struct Pause {
    std::chrono::steady_clock::time_point until{};
    std::chrono::milliseconds last{0};
    void begin(std::chrono::milliseconds first);
    bool lasts() const;
  };

  bool write(std::byte* from, std::size_t bytes) noexcept;
  bool write_whole(std::byte* heading, datagram::Kind kind, std::uint32_t taken, const MessageHeader& message) noexcept;
  Slot* slot_for(std::size_t bytes);
  bool read(std::uint32_t number);
  std::byte* keep_if_whole(std::uint32_t number, std::byte* at, const std::byte* end);
  void take_in(std::uint32_t number, const datagram::Heading&, const std::byte* piece);
  void free_slots_before(std::uint32_t number);
  void free_before(std::uint32_t number);
  void free_acknowledged();
  void acknowledge(std::uint32_t taken);

  tcp::Socket socket_;
  std::uint16_t port_ = 0;
  std::uint64_t token_;
  DatagramSettings settings_;
  std::size_t piece_ = 0, longest_ = 0;  // Payload bytes of one packet, and of the longest message.
  bool heard_ = false, allowed_ = false;
  bool joined_ = false;  // Whether UDP_GRO is on. It is off until pieces arrive: it makes short messages 1 % slower.
  std::uint64_t sent_ = 0;

  std::mutex mutex_;  // Guards the slots, the tick and the reads of the socket.
  std::array<Slot, kWindow> slots_;
  std::uint32_t tick_ = 0;
  Pause all_pause_, pieces_pause_;  // Pauses of all messages, and of messages in several pieces.

  ReorderBuffer arrived_{kWindow};  // Messages that arrived before their turn.
  AlignedBuffer incoming_;
  ReorderBuffer::Entry current_;
  int unacknowledged_ = 0;  // Number of messages taken and not acknowledged.
  std::size_t unacknowledged_bytes_ = 0;
  bool only_receives_ = false;  // Whether no message was sent since the last separate acknowledgement.
};

}  // namespace collectives
