// Datagram link: carries short messages between two ranks by UDP. A TCP stream, the data connection of the two ranks,
// carries all other messages.
//
// Why. Short messages are faster over UDP than over TCP. A message of a few bytes takes 8 us over the kernel's TCP, and
// 5 us over UDP. TCP spends a third to a half of the kernel's time for a message on acknowledgements, timers and
// queues.
//
// Order. All messages to a peer are numbered, both those that are sent as datagrams and those on the stream. The
// receiver takes messages in the order of their numbers.
//
// Messages of several packets. A message that is longer than a packet is still sent by one system call. The kernel or
// the network device cuts the message into packets (UDP_SEGMENT). Each packet carries one piece of the message with a
// heading of its own. When the first piece of a message of several pieces arrives, the receiver turns on UDP_GRO for
// this link. From then on, the receiver's kernel may join arrived packets. Each heading holds the length of its piece,
// so the receiver can separate the pieces in joined packets.
//
// Losses. The sender keeps a copy of each datagram until the receiver acknowledges it. The sender retransmits an
// unacknowledged datagram on the control connection, a second TCP connection, which loses nothing. The retransmission
// begins after 10 to 20 ms, or after 40 to 50 ms if the message consists of several packets. These times do not adapt
// to the network, because each message is sent by UDP only once. A link that has lost a datagram uses only the stream
// for a while, at first 0.1 s. If the lost message had several pieces, only messages of several pieces use the stream.
//
// Strangers. Each datagram contains a token of 128 bits, one for each direction of a link. A datagram with another
// token, from another address, or of another form is dropped and counted. A process that can read the packets of the
// network can read the tokens. It can then forge datagrams.
//
// Flow control. At most kWindow messages and kWindowBytes bytes of a link are unacknowledged at any time. Further
// messages use the stream, which has the flow control of TCP. Datagrams therefore need no congestion control.
//
// Acknowledgements. Each datagram that carries a message also acknowledges the messages that its sender has taken from
// the peer. A rank without messages to send acknowledges after half a window. It usually acknowledges a message of
// several pieces at once, because a needless retransmission of such a message is expensive.
//
// Thread. One thread per process retransmits the datagrams of all links (retransmitter.hpp).
//
// Price: each pair of ranks has one more descriptor, and each process one more thread. If the network drops datagrams,
// construction takes 0.1 s longer.
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
  /// Pause: the time for which a link uses only the stream after its first lost datagram. A loss within a minute after
  /// a pause doubles the next pause, up to one minute.
  std::chrono::milliseconds pause{100};
  /// Period of simulated losses, for tests: each `lose_every`-th message is not sent as a datagram. 0: none.
  std::uint64_t lose_every = 0;
};

/// Link for datagrams between this rank and one peer. Only one thread may use a link at a time, but another thread may
/// call retransmit() at the same time. The function retransmit() also reads the acknowledgements that have arrived.
class DatagramLink {
 public:
  static constexpr int kWindow = 8;                            ///< maximum unacknowledged messages
  static constexpr std::size_t kLongest = datagram::kLongest;  ///< maximum payload bytes of a message
  /// Maximum unacknowledged bytes: the socket buffer of the receiver holds them.
  static constexpr std::size_t kWindowBytes = 128 << 10;
  /// Number of the first message. With this number, the message numbers of every link wrap around after 64 messages. An
  /// error in the handling of the wrap-around thus shows in short runs.
  static constexpr std::uint32_t kFirstNumber = 0xffffffc0;
  /// Period of the retransmission thread.
  static constexpr std::chrono::milliseconds kTick{10};
  /// Age of an unacknowledged message at which it is retransmitted, in ticks (periods of the thread).
  static constexpr std::uint32_t kTicks = 2;
  /// Age at which an unacknowledged message of several pieces is retransmitted, in ticks. It is longer than kTicks,
  /// because a needless retransmission of such a message is expensive.
  static constexpr std::uint32_t kTicksOfPieces = 5;

  /// Secrets that only the two ends of the link know, unless another process reads the packets of the network.
  struct Tokens {
    DatagramToken sent, received;  ///< token of the datagrams to the peer, and of those from it
  };

  /// Binds a UDP socket to the local address of `stream`, the TCP connection to the peer. Throws Error{system}.
  DatagramLink(const tcp::Socket& stream, const Tokens&, const DatagramSettings&);

  const tcp::Socket& socket() const { return socket_; }
  std::uint16_t port() const { return port_; }

  // Handshake. DatagramLinks performs it: each end sends its port, then probes, then a report whether a probe has
  // arrived. A probe is a datagram that fills one packet and carries no message.

  /// Connects the socket to the peer's address with `port`. From then on, the kernel drops datagrams from all other
  /// addresses. Drops those that have arrived before. Throws Error{system}.
  void connect(const tcp::Socket& stream, std::uint16_t port);
  /// Sends a probe.
  void probe();
  /// Returns whether any datagram of the peer has arrived.
  bool heard();
  /// Permits send(). Requires that the peer has reported a probe of this rank.
  void allow() { allowed_ = true; }

  // Sending.

  /// Sends a message as a datagram. Returns false if the message has to use the stream. Also acknowledges to the peer
  /// all its messages before number `taken`.
  bool send(const MessageHeader&, const std::byte* data, std::uint32_t taken);
  /// Frees the copies of all messages before `number`. The peer has acknowledged them on the control connection.
  /// `lost`: the last of them had not arrived as a datagram.
  void acknowledged(std::uint32_t number, bool lost);
  /// Retransmits the messages that are unacknowledged for too long, or `all` unacknowledged messages. Each goes out by
  /// say(text), which returns false if it cannot send. Returns whether some messages may still have to be
  /// retransmitted. Any thread may call it.
  bool retransmit(bool all, const std::function<bool(std::string_view)>& say);
  /// Returns the number of messages sent as datagrams.
  std::uint64_t sent() const { return sent_; }
  /// Returns the number of datagrams that were dropped, because they were malformed or had another token.
  std::uint64_t dropped() const { return dropped_; }
  /// Loses the next `messages` messages, as a network would. Returns how many of an earlier request are left.
  unsigned lose(unsigned messages) noexcept { return std::exchange(to_lose_, messages); }

  // Receiving.

  struct Arrived {
    MessageHeader header;
    const std::byte* data;
    bool retransmitted, lost;  // It arrived on the control connection; it had not arrived as a datagram.
  };
  /// Returns whether this rank has taken messages without acknowledging them. Counts them as acknowledged from now on.
  bool clear_unacknowledged() {
    unacknowledged_bytes_ = 0;
    return std::exchange(unacknowledged_, 0) > 0;
  }
  /// Returns message `number` if it has arrived. The data stay valid until the next call.
  std::optional<Arrived> take(std::uint32_t number);
  /// Reads all datagrams in the socket. Drops messages before `number`, because this rank has taken them already.
  void read_ahead(std::uint32_t number);
  /// Stores a retransmitted message. Returns false if its number precedes `number`, because it has been taken already.
  /// Ignores a malformed text, and a message for which the window has no space.
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
  Tokens tokens_;
  DatagramSettings settings_;
  std::size_t piece_ = 0, longest_ = 0;  // Maximum payload bytes of one packet, and of a message.
  bool heard_ = false, allowed_ = false;
  // Whether UDP_GRO is on. It is off until a message of several pieces arrives, because it makes short messages 1 %
  // slower.
  bool joined_ = false;
  std::uint64_t sent_ = 0, dropped_ = 0;
  unsigned to_lose_ = 0;  // Number of messages that lose() has asked to lose.

  std::mutex mutex_;  // Guards slots_, tick_ and the reads of the socket.
  std::array<Slot, kWindow> slots_;
  std::uint32_t tick_ = 0;
  Pause all_pause_, pieces_pause_;  // Pauses of all messages, and of messages of several pieces.

  ReorderBuffer arrived_{kWindow};  // Messages that arrived before their turn.
  AlignedBuffer incoming_;
  ReorderBuffer::Entry current_;
  int unacknowledged_ = 0;  // Number of messages taken and not acknowledged.
  std::size_t unacknowledged_bytes_ = 0;
  bool only_receives_ = false;  // Whether no message was sent since the last separate acknowledgement.
};

}  // namespace collectives
