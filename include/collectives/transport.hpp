// A transport moves messages between ranks: bytes in frames, in order for each pair of ranks, and nothing else. It
// knows no element types, reductions or collectives.
//
// Sending is two calls: acquire_frame() lends a frame to write into, send() hands it over. So a reduction can write its
// result straight into the memory that the peer will read, and a received message is a view, not a copy. Nothing here
// waits: what cannot go on says so by a null pointer, and the caller's one wait function does the waiting.
//
// Every message carries a `tag` word chosen by the caller (sequence number and signature hash of the collective call).
// One thread uses a Transport at a time.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <utility>

#include "collectives/deadline.hpp"
#include "collectives/types.hpp"

namespace collectives {

/// A message that has arrived. The view stays good until release().
struct Message {
  std::uint64_t tag = 0;
  const std::byte* data = nullptr;
  std::size_t bytes = 0;
};

class Transport {
 public:
  virtual ~Transport() = default;

  /// "shared_memory": shown in plans, errors and bench tables.
  virtual std::string_view name() const noexcept = 0;
  /// The largest payload of one message, in bytes; the same on all ranks.
  virtual std::size_t frame_bytes() const noexcept = 0;
  /// A frame for the next message to `to`, at least 64-byte aligned; null while all frames to `to` are in flight. There
  /// are at least two per peer: a ring whose ranks pass messages on while the next has not taken the last one needs
  /// them. Calling it again before send() lends the same frame.
  virtual std::byte* acquire_frame(Rank to) = 0;
  /// Whether acquire_frame() would lend one now. For messages that are sent from elsewhere, which need no memory to
  /// write into.
  virtual bool has_frame(Rank to) { return acquire_frame(to) != nullptr; }
  /// Hands over the staged frame with `bytes` of payload (at most frame_bytes(), may be 0).
  virtual void send(Rank to, std::uint64_t tag, std::size_t bytes) = 0;
  /// The next message from `from`; null while there is none. Calling it again before release() shows the same message.
  virtual const Message* receive(Rank from) = 0;
  /// Gives the frame of the message last received from `from` back.
  virtual void release(Rank from) = 0;

  /// Like acquire_frame() and send(), but from the caller's memory, which stays as it is until it is no longer lent().
  /// There must be a free frame: acquire_frame(to) has just shown one. What cannot send from there copies into the
  /// frame.
  virtual void send_from(Rank to, std::uint64_t tag, const std::byte* data, std::size_t bytes) {
    if (bytes > 0) std::memcpy(acquire_frame(to), data, bytes);
    send(to, tag, bytes);
  }
  /// Like receive(), and the payload may come to `place`, if that is as long as the message: its view then begins
  /// there. Until the message has come, every call for `from` names the same place.
  virtual const Message* receive_into(Rank from, std::byte* /*place*/, std::size_t /*bytes*/) { return receive(from); }
  /// Whether any of [data, data + bytes) is still to be read for a message handed over, or a place of receive_into()
  /// that is being written to; progress() moves that on.
  virtual bool lent(const std::byte* /*data*/, std::size_t /*bytes*/) const noexcept { return false; }
  /// Whether anything that has been handed over still needs calls of this process to move on, as all does that is lent.
  virtual bool sending() { return false; }
  /// Moves that on, as far as it goes without waiting. With nothing to do it costs next to nothing.
  virtual void progress() {}

  /// Waits until everything handed over no longer needs this process to be alive. Throws Error{timeout}.
  virtual void flush(Deadline) = 0;
};

/// A transport between hosts. It also carries small control messages beside the data (abort, arrival records), which
/// the peers read on the slow path of their waits and at their next call.
class Wire : public Transport {
 public:
  /// Messages that can be on their way to one peer, staged ones included: at least 2. The same on every rank.
  virtual int frames() const noexcept { return 2; }
  /// Sends `text` to `to`, whatever the state of the data channels; drops it when it cannot go out.
  virtual void post_control(Rank to, std::string_view text) = 0;
  /// Whether post_control() may also be called from another thread, at any time, beside any other call.
  virtual bool control_is_thread_safe() const noexcept { return false; }
  /// The next control message and its sender, if one has arrived.
  virtual std::optional<std::pair<Rank, std::string>> poll_control() = 0;
  /// Whether a peer that is gone, or cannot be reached any more, is noticed without a message from it.
  virtual bool detects_peer_failure() const noexcept { return false; }
  /// A peer that is gone, and how that was noticed ("connection reset by peer"); each is told once, after all control
  /// messages that it has sent.
  virtual std::optional<std::pair<Rank, std::string>> poll_failed_peer() { return std::nullopt; }
  /// Whether receive() has been asked for a message of a peer that is gone, and that will never come.
  virtual bool is_blocked_on_failed_peer(Rank /*from*/) const { return false; }
  /// After a failure: lets go of the callers' memory, of what is sent from there and what comes there; data move no
  /// more. Control messages that have been posted arrive where what came before them is fetched; later ones may not:
  /// all connections may have to be given up to get back what is lent. Some tenths of a second at most.
  virtual void abandon() noexcept {}
  /// The way to a peer, in words that stay the same from run to run ("10.0.0.1 to 10.0.0.2"); empty where nothing is
  /// known of it.
  virtual std::string link(Rank /*to*/) const { return {}; }
  /// Sleeps until something may have arrived or gone out, and at most so long.
  virtual void wait_for_event(std::chrono::nanoseconds at_most) { std::this_thread::sleep_for(at_most); }
};

}  // namespace collectives
