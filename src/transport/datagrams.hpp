// Short messages as datagrams, beside a stream that carries the rest. A stream's acknowledgements, timers and queues
// cost the kernel a third to a half of the time of a message; datagrams cost their packets. What takes several is given
// to the kernel at once, which cuts it up (UDP_SEGMENT), or the card does, and joins what comes (UDP_GRO): through one
// machine it goes in one piece. Every piece has a heading of its own, so it does not matter how they are joined.
//
// All messages to a peer are numbered, whichever way they go, and the receiver takes them in that order. A datagram
// that has not been acknowledged after one or two ticks, four or five if it takes several packets, is retransmitted
// over the control connection, which loses nothing. So a datagram needs neither timers nor windows that adapt: it is
// tried once. At most kWindow of them, and kWindowBytes, are not acknowledged at any time; what comes beyond that goes
// by the stream, and has its flow control. Every datagram acknowledges what has been taken of the other direction; who
// has nothing to say does so after half a window, or after each message in several pieces.
//
// The sender may be away from the library, computing, when a datagram is to be retransmitted: a thread does that, one
// for the whole process, which sleeps while nothing is on its way. A link that has lost one is left to the stream for a
// while, by messages in several pieces or by all.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "bootstrap/sockets.hpp"

namespace collectives {

/// Memory for a payload, aligned to 64 bytes.
struct FreeMemory {
  void operator()(std::byte* memory) const { std::free(memory); }
};
using AlignedBuffer = std::unique_ptr<std::byte, FreeMemory>;
/// Throws std::bad_alloc.
AlignedBuffer make_aligned_buffer(std::size_t bytes);

/// Before the payload of a message, by either way.
struct MessageHeader {
  std::uint64_t tag = 0;
  std::uint32_t bytes = 0, number = 0;
};

/// Whether number `a` comes before `b`; they wrap.
inline bool is_before(std::uint32_t a, std::uint32_t b) { return static_cast<std::int32_t>(a - b) < 0; }

struct DatagramSettings {
  bool on = true;
  /// How long a link that has lost a datagram is left to the stream, first; twice as long each time, up to a minute.
  std::chrono::milliseconds pause{100};
  /// For tests: of so many messages that are sent as datagrams the last one gets lost; 0: none.
  std::uint64_t lose_every = 0;
};

/// The datagrams between this rank and one peer. One thread uses it at a time, but for retransmit(), which also reads
/// acknowledgements that nobody has looked for.
class DatagramLink {
 public:
  static constexpr int kWindow = 8;
  static constexpr std::size_t kLongest = 32 << 10;       ///< bytes of a message; beyond, the stream is no slower
  static constexpr std::size_t kWindowBytes = 128 << 10;  ///< which buffers of sockets hold, of the usual packets
  /// Of the first message. They wrap early in the life of every link, rather than in a long one's late.
  static constexpr std::uint32_t kFirstNumber = 0xffffffc0;
  static constexpr std::chrono::milliseconds kTick{10};
  /// A message is retransmitted when so many ticks have begun since it was sent.
  static constexpr std::uint32_t kTicks = 2;
  /// Likewise one in several pieces, which is dear to retransmit in vain.
  static constexpr std::uint32_t kTicksOfPieces = 5;

  /// Between the addresses that `stream` is connected with. `token` is the same at both ends and nowhere else. Throws
  /// Error{system}.
  DatagramLink(const tcp::Socket& stream, std::uint64_t token, const DatagramSettings&);

  const tcp::Socket& socket() const { return socket_; }
  std::uint16_t port() const { return port_; }

  // Getting to know each other. Each says its port to the other, sends probes of the greatest length to it, and says
  // whether it has got one.

  /// Throws Error{system}.
  void connect(const tcp::Socket& stream, std::uint16_t port);
  void probe();
  /// Whether a probe has come.
  bool heard();
  /// The peer has heard.
  void allow() { allowed_ = true; }

  // Sending.

  /// False when it has to go by the stream. Of the other direction all before number `taken` have been taken.
  bool send(const MessageHeader&, const std::byte* data, std::uint32_t taken);
  /// The peer has taken all before `number`, as it said over the control connection; `lost`: one of them had not come
  /// as a datagram.
  void acknowledged(std::uint32_t number, bool lost);
  /// Retransmits, by say(text), what has not been acknowledged for so many ticks, or `all` of it; say() returns false
  /// when it cannot. Returns whether something is left that may have to be retransmitted. From any thread.
  bool retransmit(bool all, const std::function<bool(std::string_view)>& say);
  /// How many it has sent.
  std::uint64_t sent() const { return sent_; }

  // Receiving.

  struct Arrived {
    MessageHeader header;
    const std::byte* data;
    bool retransmitted, lost;  // by the control connection; it had not come before
  };
  /// Whether something has been taken and not acknowledged; from now on that counts as done.
  bool clear_unacknowledged() {
    unacknowledged_bytes_ = 0;
    return std::exchange(unacknowledged_, 0) > 0;
  }
  /// The message `number`, when it has come; it stays until the next call.
  std::optional<Arrived> take(std::uint32_t number);
  /// Reads what has come, of which all before `number` have been taken.
  void read_ahead(std::uint32_t number);
  /// What the peer has retransmitted, when all before `number` have been taken. False when that one had been, too.
  bool receive_retransmitted(std::string_view text, std::uint32_t number);

 private:
  /// Before each piece of a message.
  struct Heading {
    std::uint64_t token = 0;
    std::uint32_t kind = 0, taken = 0;
    MessageHeader message;
    std::uint32_t offset = 0, piece = 0;  ///< where it belongs; bytes of all pieces but the last

    std::size_t length() const;
    bool makes_sense() const;
  };
  static_assert(sizeof(Heading) == 40 && sizeof(MessageHeader) == 16);
  enum Kind : std::uint32_t { kProbe, kAcknowledgement, kMessage };
  /// A heading that ends where the payload begins, aligned as that of a frame.
  using Buffer = AlignedBuffer;
  struct Slot {
    Buffer buffer;
    MessageHeader header;
    std::uint32_t tick = 0;
    bool used = false, retransmitted = false;
  };
  struct Stored {
    MessageHeader header;
    Buffer buffer;
    std::size_t come = 0;      // bytes
    std::size_t piece = 0;     // bytes of each but the last
    std::uint64_t pieces = 0;  // which of them have come
    bool retransmitted = false, lost = false;
    bool whole() const { return come == header.bytes; }
  };

  struct Pause {
    std::chrono::steady_clock::time_point until{};
    std::chrono::milliseconds last{0};
    void begin(std::chrono::milliseconds first);
    bool lasts() const;
  };

  static constexpr std::size_t kPayloadAt = 64;
  static constexpr std::size_t kMostPieces = 64;      // that the kernel cuts, and bits of Stored::pieces
  static constexpr std::size_t kMostJoined = 0xffff;  // bytes of pieces and headings
  static Buffer make_buffer(std::size_t payload) { return make_aligned_buffer(kPayloadAt + payload); }
  static std::byte* payload_in(const Buffer& buffer) { return buffer.get() + kPayloadAt; }
  static std::byte* heading_in(const Buffer& buffer) { return payload_in(buffer) - sizeof(Heading); }
  bool write(std::byte* from, std::size_t bytes) noexcept;
  bool write_whole(std::byte* heading, Kind kind, std::uint32_t taken, const MessageHeader& message) noexcept;
  Slot* slot_for(std::size_t bytes);
  static Heading heading_at(const std::byte* at);
  bool understands(const std::byte* at, const std::byte* end) const;
  bool read(std::uint32_t number);
  std::byte* keep_if_whole(std::uint32_t number, std::byte* at, const std::byte* end);
  void take_in(std::uint32_t number, const Heading&, const std::byte* piece);
  bool has_space(std::uint32_t number);
  Stored& store(const MessageHeader&, Buffer);
  Stored* find(std::uint32_t number);
  Buffer empty_buffer();
  void free_slots_before(std::uint32_t number);
  void free_before(std::uint32_t number);
  void free_acknowledged();
  void acknowledge(std::uint32_t taken);

  tcp::Socket socket_;
  std::uint16_t port_ = 0;
  std::uint64_t token_;
  DatagramSettings settings_;
  std::size_t piece_ = 0, longest_ = 0;  // bytes of a message: in one packet, and of the longest
  bool heard_ = false, allowed_ = false;
  bool joined_ = false;  // pieces, by the kernel: not before there are any, as it makes short messages 1 % dearer
  std::uint64_t sent_ = 0;

  std::mutex mutex_;  // of the slots, the tick, and what there is to read
  std::array<Slot, kWindow> slots_;
  std::uint32_t tick_ = 0;
  Pause all_pause_, pieces_pause_;  // of messages in several pieces

  std::vector<Stored> stored_;  // come before their turn
  std::vector<Buffer> spare_;
  Buffer incoming_;
  Stored current_;
  int unacknowledged_ = 0;  // taken and not acknowledged
  std::size_t unacknowledged_bytes_ = 0;
  bool one_way_ = false;  // nothing has been sent since the last acknowledgement by itself
};

/// One thread of the process looks at all that have something on its way, every tick; it sleeps while nobody has.
class Retransmitter {
 public:
  /// look() says whether there is; when it throws, as for want of memory, it is called again. Throws std::system_error
  /// or Error{system} where there can be no thread.
  explicit Retransmitter(std::function<bool()> look);
  /// Waits for a look that is under way.
  ~Retransmitter();
  Retransmitter(const Retransmitter&) = delete;
  Retransmitter& operator=(const Retransmitter&) = delete;
  /// Something has been sent.
  void note() {
    if (rests_.load(std::memory_order_relaxed)) wake();
  }

 private:
  class Thread;
  void wake();
  bool look();

  std::function<bool()> look_;
  std::atomic<bool> rests_{false};
  std::shared_ptr<Thread> thread_;
};

}  // namespace collectives
