// Host link: message link between two ranks of one host.
//
// Each direction has a channel in the arena, the shared memory of the host. A channel has 64 cache lines and two rings
// of bytes. An envelope, a message's header, lies in one line. A short payload lies in the same line and in the lines
// that follow. A longer payload lies in a ring. The sender writes it in pieces of 8 KiB. After each piece, it writes a
// line. The receiver copies a piece while the sender writes the next one.
//
// The short ring fits into the second-level cache of a core. Payloads from 8 KiB on lie in the long ring. Its length is
// 2 MiB on hosts of up to four ranks. The sender thus uses a line again only after a long time. By then, the receiver's
// core no longer caches the line. Otherwise, each line must first leave that core. A payload of 32 KiB then takes twice
// the time.
//
// A line holds 56 bytes of payload and then a stamp, which is written last. The stamp is the number of the line since
// construction, so a line from an earlier use never has the expected stamp. One cache miss of the receiver therefore
// delivers both data and signal. The receiver publishes the number of lines that it has read, but not after each line.
// The sender reads that number only if it knows of no free line.
//
// A sender must not write to the channel of a peer that has left or ended. Before a send, it therefore reads the word
// `departed` of the peer. A rank finds ended processes of peers by a search, which takes one system call per rank. A
// rank searches if it waits, or if a peer to which it sends does not answer.
//
// Price: a channel takes 145 KiB of address space and its long ring. The kernel allocates a page when the first message
// uses it. A pair that exchanges only short messages takes three pages per direction.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <utility>

#include "point_to_point/message_link.hpp"
#include "shared_memory/arena.hpp"
#include "shared_memory/staging_stores.hpp"

namespace collectives {

class HostLink final : public MessageLink {
 public:
  /// Maximum payload in bytes that is sent in lines (eight lines). For a longer payload, a copy to lines takes longer
  /// than a copy to the ring.
  static constexpr std::size_t kInlineBytes = 40 + 7 * kLinePayload;

  /// Maximum payload in bytes of an eager message, if the long ring has space for two of them. A message of 128 KiB
  /// takes 5 us by the ring. By one copy of the kernel, it takes 6 us.
  static constexpr std::size_t kLongestEager = 128 << 10;

  /// Makes the link of this rank to the local rank `peer`.
  HostLink(const Arena& arena, int peer);

  std::size_t longest_eager() const noexcept override {
    return std::min(kLongestEager, out_rings_[1].memory.size() / 2);
  }
  std::size_t longest_piece() const noexcept override { return kMessageRingBytes / 4; }
  bool send(const Envelope& envelope, const std::byte* payload, std::size_t bytes) override {
    return bytes <= kInFirst && envelope.kind == MessageKind::eager ? send_short(envelope, payload, bytes)
                                                                    : send_long(envelope, payload, bytes);
  }
  const Envelope* receive(std::byte*, std::size_t) override { return arrived(); }
  std::size_t payload_bytes() const noexcept override { return payload_; }
  bool is_complete() const noexcept override { return !in_ring() || has_arrived(received_ + ring_lines(payload_)); }
  bool take(std::byte* to) override;

  /// Returns whether the peer has left or is known to have ended. Costs one load if this rank has read a message of the
  /// peer since the last call. Otherwise sometimes searches for ended ranks.
  bool peer_has_ended() noexcept {
    if (departed_.value.load(std::memory_order_relaxed) != 0) return true;
    if (std::exchange(received_at_send_, received_) != received_)
      unanswered_ = 0;
    else if (unanswered_++ % kSendsPerSearch == 0)
      return search_end();
    return false;
  }

  /// Publishes the number of bytes of eager messages from the peer that receives of this rank have taken.
  void publish_matched(std::uint64_t bytes) noexcept { in_.matched.value.store(bytes, std::memory_order_release); }
  /// Returns the number that the peer has last published by publish_matched(): bytes of eager messages from this rank
  /// that its receives have taken.
  std::uint64_t peer_matched() const noexcept { return out_.matched.value.load(std::memory_order_acquire); }

  /// Returns the envelope of the next message, or null. Costs one load if there is none.
  const Envelope* arrived() {
    if (open_) return &envelope_;
    if (!has_arrived(received_ + 1)) return nullptr;
    return read_header() ? &envelope_ : nullptr;
  }

 private:
  // Layout of the first line: kind, type, flags, tag and bytes, then 40 bytes of payload or the rest of the envelope.
  static constexpr std::size_t kHeader = 16, kInFirst = kLinePayload - kHeader;
  static constexpr std::uint16_t kInRing = 1;  // value of Envelope::unused: the payload lies in the ring

  // Maximum bytes of a piece of a payload in a ring. With shorter pieces, their lines take longer than they save.
  static constexpr std::size_t kRingPiece = 8 << 10;

  // Number of unanswered sends per reading of the clock, which tells whether a search is due. A reading takes some 4
  // ns, so it costs such a send 1 ns.
  static constexpr unsigned kSendsPerSearch = 4;

  static std::uint64_t lines_for(std::size_t bytes) noexcept {
    return bytes <= kInFirst ? 1 : 1 + (bytes - kInFirst + kLinePayload - 1) / kLinePayload;
  }
  /// Minimum bytes of a payload in the long ring.
  static constexpr std::size_t kLongPayload = 8 << 10;

  /// One ring of a channel, as the sender or the receiver uses it.
  struct Ring {
    std::span<std::byte> memory;
    std::atomic<std::uint64_t>* read;  // bytes that the receiver has read, ever
    std::uint64_t used = 0;            // bytes that this rank has written or read, ever
    std::uint64_t released = 0;        // on the sender: last known value of `read`

    /// Returns the position of the next payload, in bytes since construction. A payload does not wrap around.
    std::uint64_t place(std::size_t bytes) const noexcept {
      const std::uint64_t left = memory.size() - used % memory.size();
      return left < bytes ? used + left : used;
    }
    std::byte* at(std::uint64_t place) const noexcept { return memory.data() + place % memory.size(); }
    bool has_space(std::uint64_t place, std::size_t bytes) {
      if (place + bytes - released <= memory.size()) return true;
      released = read->load(std::memory_order_acquire);
      return place + bytes - released <= memory.size();
    }
    void use(std::uint64_t place, std::size_t bytes) noexcept { used = (place + bytes + 63) / 64 * 64; }
  };
  using Rings = std::array<Ring, 2>;
  static Rings rings_of(const Arena& arena, int from, int to);
  static Ring& ring_of(Rings& rings, std::size_t bytes) noexcept { return rings[bytes >= kLongPayload ? 1 : 0]; }

  /// Returns the number of lines of a payload in a ring.
  static std::uint64_t ring_lines(std::size_t bytes) noexcept {
    return std::max<std::uint64_t>(1, (bytes + kRingPiece - 1) / kRingPiece);
  }
  bool in_ring() const noexcept { return envelope_.unused == kInRing; }
  /// Returns whether the line with this number has arrived. Numbers begin with 1.
  bool has_arrived(std::uint64_t number) const noexcept {
    return in_.lines[(number - 1) % kMessageLines].stamp.load(std::memory_order_acquire) == number;
  }
  bool has_lines(std::uint64_t lines) {
    if (sent_ + lines - lines_read_ <= kMessageLines) return true;
    lines_read_ = out_.lines_read.value.load(std::memory_order_acquire);
    return sent_ + lines - lines_read_ <= kMessageLines;
  }
  /// Sends an eager message of one line.
  bool send_short(const Envelope& envelope, const std::byte* payload, std::size_t bytes) {
    if (!has_lines(1)) return false;
    MessageLine& line = out_.lines[sent_ % kMessageLines];
    std::memcpy(line.payload, &envelope, kHeader);
    if (bytes == 8)
      std::memcpy(line.payload + kHeader, payload, 8);
    else if (bytes > 0)
      std::memcpy(line.payload + kHeader, payload, bytes);
    line.stamp.store(++sent_, std::memory_order_release);
    return true;
  }
  bool send_long(const Envelope& envelope, const std::byte* payload, std::size_t bytes);
  bool send_in_ring(const Envelope& envelope, const std::byte* payload, std::size_t bytes);
  bool take_from_ring(std::byte* to);
  /// Searches for ended ranks, unless a rank of this host has just done so. Returns whether the peer has ended.
  bool search_end() const noexcept;
  bool read_header();
  void release_lines(std::uint64_t lines) {
    received_ += lines;
    open_ = false;
    if (received_ - published_ >= kMessageLines / 4) {
      in_.lines_read.value.store(received_, std::memory_order_release);
      published_ = received_;
    }
  }

  const Arena& arena_;
  const PolledWord& departed_;  // whether the peer has left or ended
  MessageChannel &out_, &in_;
  std::uint64_t sent_ = 0, lines_read_ = 0;  // lines sent, and of these, lines that the peer is known to have read
  Rings out_rings_, in_rings_;
  std::uint64_t received_ = 0, published_ = 0;  // lines read, and of these, lines that the peer may use again
  StagingStores ring_stores_;
  std::uint64_t received_at_send_ = 0;  // lines read at the last call of peer_has_ended()
  unsigned unanswered_ = 0;             // calls of peer_has_ended() since then in which no further line had been read
  bool open_ = false;                   // whether receive() has returned a message that take() has not ended
  Envelope envelope_;
  std::size_t payload_ = 0;
  std::uint64_t pieces_taken_ = 0;  // pieces of this payload that take() has copied from the ring
};

}  // namespace collectives
