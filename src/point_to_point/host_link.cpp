// Implementation of the host link, which carries point-to-point messages between two ranks of one host. Each direction
// has a channel in shared memory. A channel has 64 cache lines, called lines, and two rings of bytes. An envelope is
// the header of a message. It takes less than one line. A short payload follows in the same line and in the next ones.
// A longer payload lies in a ring.
#include "point_to_point/host_link.hpp"

#include <chrono>

#include "base/coarse_clock.hpp"

namespace collectives {

HostLink::HostLink(const Arena& arena, int peer)
    : arena_(arena),
      departed_(arena.block(peer).departed),
      out_(arena.messages(arena.self(), peer)),
      in_(arena.messages(peer, arena.self())),
      out_rings_(rings_of(arena, arena.self(), peer)),
      in_rings_(rings_of(arena, peer, arena.self())) {}

HostLink::Rings HostLink::rings_of(const Arena& arena, int from, int to) {
  MessageChannel& channel = arena.messages(from, to);
  return {Ring{channel.ring, &channel.ring_read[0].value},
          Ring{channel.long_ring(arena.ranks()), &channel.ring_read[1].value}};
}

bool HostLink::search_end() const noexcept {
  // Minimum time between searches for ended ranks of this host. Checks of collectives have the same minimum.
  constexpr std::chrono::milliseconds kSearchEvery{10};
  arena_.search_ended(coarse_now(), kSearchEvery);
  return departed_.value.load(std::memory_order_relaxed) != 0;
}

bool HostLink::send_long(const Envelope& envelope, const std::byte* payload, std::size_t bytes) {
  const bool in_lines = envelope.kind == MessageKind::eager && bytes <= kInlineBytes;
  if (!in_lines && (envelope.kind == MessageKind::eager || envelope.kind == MessageKind::data))
    return send_in_ring(envelope, payload, bytes);
  if (!has_lines(in_lines ? lines_for(bytes) : 1)) return false;
  MessageLine* line = &out_.lines[sent_ % kMessageLines];
  if (!in_lines) {
    std::memcpy(line->payload, &envelope, sizeof envelope);
    line->stamp.store(++sent_, std::memory_order_release);
    return true;
  }
  std::memcpy(line->payload, &envelope, kHeader);
  std::size_t done = std::min(bytes, kInFirst);
  if (done > 0) std::memcpy(line->payload + kHeader, payload, done);
  line->stamp.store(++sent_, std::memory_order_release);
  while (done < bytes) {
    line = &out_.lines[sent_ % kMessageLines];
    const std::size_t part = std::min(bytes - done, kLinePayload);
    std::memcpy(line->payload, payload + done, part);
    line->stamp.store(++sent_, std::memory_order_release);
    done += part;
  }
  return true;
}

/// Sends a message whose payload lies in a ring. Writes a line after each piece. The first line holds the envelope. The
/// others are empty.
bool HostLink::send_in_ring(const Envelope& envelope, const std::byte* payload, std::size_t bytes) {
  const std::uint64_t lines = ring_lines(bytes);
  if (!has_lines(lines)) return false;
  Ring& ring = ring_of(out_rings_, bytes);
  const std::uint64_t place = ring.place(bytes);
  if (!ring.has_space(place, bytes)) return false;
  ring.use(place, bytes);
  Envelope header = envelope;
  header.unused = kInRing;
  // The payload may be only a part of the message. The field `bytes` holds the length of the message. The field `name`
  // is otherwise unused here. It holds the length of the payload.
  header.name = bytes;
  std::memcpy(out_.lines[sent_ % kMessageLines].payload, &header, sizeof header);
  for (std::uint64_t piece = 0; piece < lines; ++piece) {
    const std::size_t first = piece * kRingPiece;
    ring_stores_.copy(ring.at(place) + first, payload + first, std::min(bytes - first, kRingPiece));
    out_.lines[sent_ % kMessageLines].stamp.store(sent_ + 1, std::memory_order_release);
    ++sent_;
  }
  return true;
}

/// Reads the envelope of the next message. Returns false if the sender has not yet written all lines of the payload.
bool HostLink::read_header() {
  const MessageLine& line = in_.lines[received_ % kMessageLines];
  std::memcpy(static_cast<void*>(&envelope_), line.payload, kHeader);
  const bool in_lines = envelope_.kind == MessageKind::eager && envelope_.unused != kInRing;
  if (in_lines) {
    payload_ = envelope_.bytes;
    const std::uint64_t last = received_ + lines_for(payload_);
    if (last > received_ + 1 && !has_arrived(last)) return false;
  } else {
    std::memcpy(static_cast<void*>(&envelope_), line.payload, sizeof envelope_);
    payload_ = envelope_.unused == kInRing ? envelope_.name : 0;
  }
  open_ = true;
  return true;
}

bool HostLink::take(std::byte* to) {
  if (in_ring()) return take_from_ring(to);
  std::uint64_t lines = 1;
  if (envelope_.kind == MessageKind::eager) {
    lines = lines_for(payload_);
    std::size_t done = std::min(payload_, kInFirst);
    const std::byte* const first = in_.lines[received_ % kMessageLines].payload + kHeader;
    if (to != nullptr && done > 0) {
      if (done == 8)
        std::memcpy(to, first, 8);
      else
        std::memcpy(to, first, done);
      for (std::uint64_t next = received_ + 1; done < payload_; ++next) {
        const std::size_t part = std::min(payload_ - done, kLinePayload);
        std::memcpy(to + done, in_.lines[next % kMessageLines].payload, part);
        done += part;
      }
    }
  }
  release_lines(lines);
  return true;
}

bool HostLink::take_from_ring(std::byte* to) {
  Ring& ring = ring_of(in_rings_, payload_);
  const std::uint64_t place = ring.place(payload_), lines = ring_lines(payload_);
  for (; pieces_taken_ < lines; ++pieces_taken_) {
    if (!has_arrived(received_ + pieces_taken_ + 1)) return false;
    const std::size_t first = pieces_taken_ * kRingPiece, bytes = std::min(payload_ - first, kRingPiece);
    if (to != nullptr && bytes > 0) std::memcpy(to + first, ring.at(place) + first, bytes);
  }
  pieces_taken_ = 0;
  ring.use(place, payload_);
  ring.read->store(ring.used, std::memory_order_release);
  release_lines(lines);
  return true;
}

}  // namespace collectives
