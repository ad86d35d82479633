// Transports move messages between ranks. A program that brings its own network implements the interface Wire.
//
// A message is a sequence of bytes. A frame is memory of a transport for one message. Messages from one rank to another
// arrive in the order in which they were sent. A transport knows no element types, reductions or collectives.
//
// A rank sends a message by two calls: acquire_frame() returns a frame to write into, and send() passes the frame to
// the peer. A reduction can therefore write its result directly into the memory that the peer will read. A received
// message is a view of a frame, not a copy.
//
// Only flush(), Wire::wait_for_event() and Wire::abandon() may block. The other functions return null or false if they
// cannot proceed, and the caller tries again later.
//
// Every message has a tag, a number of 64 bits that the caller chooses. The library's tag holds the number of the call
// and a hash of its arguments. A rank thus detects that a peer performs another call. Only one thread at a time uses a
// Transport.
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

/// Received message. The view is valid until release().
struct Message {
  std::uint64_t tag = 0;
  const std::byte* data = nullptr;
  std::size_t bytes = 0;
};

/// Transport of messages between the ranks of one communicator.
class Transport {
 public:
  virtual ~Transport() = default;

  /// Returns the name that plans, errors and benchmark tables show: "shared_memory".
  virtual std::string_view name() const noexcept = 0;
  /// Returns the largest payload of one message in bytes. It is equal on all ranks.
  virtual std::size_t frame_bytes() const noexcept = 0;
  /// Returns a frame for the next message to rank `to`, aligned to at least 64 bytes. Returns null while all frames for
  /// `to` hold messages that `to` has not released. Another call before send() returns the same frame.
  ///
  /// There are at least two frames for each peer. A ring algorithm needs two: a rank passes a message on while the next
  /// rank still holds the previous message.
  virtual std::byte* acquire_frame(Rank to) = 0;
  /// Returns true if acquire_frame() would now return a frame. Used before send_from(), which needs a free frame but no
  /// address to write to.
  virtual bool has_frame(Rank to) { return acquire_frame(to) != nullptr; }
  /// Sends the acquired frame with `bytes` bytes of payload: at most frame_bytes(), may be 0.
  virtual void send(Rank to, std::uint64_t tag, std::size_t bytes) = 0;
  /// Returns the next message from `from`, or null if none has arrived. Another call before release() returns the same
  /// message.
  virtual const Message* receive(Rank from) = 0;
  /// Returns the frame of the last message received from `from` to the transport.
  virtual void release(Rank from) = 0;

  /// Sends a message from the caller's memory. The memory must not change while lent() returns true for it. Requires a
  /// free frame: acquire_frame(to) or has_frame(to) has just returned one. A transport that cannot send from this
  /// memory copies it into the frame.
  virtual void send_from(Rank to, std::uint64_t tag, const std::byte* data, std::size_t bytes) {
    if (bytes > 0) std::memcpy(acquire_frame(to), data, bytes);
    send(to, tag, bytes);
  }
  /// Returns the next message like receive(). If `place` is as long as the message, the transport may receive the
  /// payload there, and the view then begins at `place`. Until the message has arrived, every call for `from` passes
  /// the same place.
  virtual const Message* receive_into(Rank from, std::byte* /*place*/, std::size_t /*bytes*/) { return receive(from); }
  /// Returns true while a message that was sent still reads from [data, data + bytes). Also returns true while a place
  /// of receive_into() in this range is being written. progress() completes both.
  virtual bool lent(const std::byte* /*data*/, std::size_t /*bytes*/) const noexcept { return false; }
  /// Returns true if a message that was sent needs further calls of this process. Lent memory always does.
  virtual bool sending() { return false; }
  /// Progresses sent messages and places of receive_into() as far as possible without waiting. Costs next to nothing if
  /// there is nothing to do.
  virtual void progress() {}

  /// Blocks until all messages that were sent would arrive even if this process ended. Throws Error{timeout}.
  virtual void flush(Deadline) = 0;
};

/// Fault that a wire can cause, so that a program can test how it handles it (docs/fault_injection.md).
enum class WireFault : std::uint8_t {
  cut,  ///< the connections to a peer end
  lose  ///< a datagram to a peer is lost
};

/// Transport between hosts. It also sends control messages beside the data, by which ranks report failures and the
/// calls that they have entered. A rank reads them while it waits for long, and in its next call.
class Wire : public Transport {
 public:
  /// Returns the number of messages that can be in flight to one peer, acquired frames included. It is at least 2 and
  /// equal on all ranks.
  virtual int frames() const noexcept { return 2; }
  /// Sends `text` to `to`, independent of the state of the data channels. Drops the text if it cannot be sent.
  virtual void post_control(Rank to, std::string_view text) = 0;
  /// Returns true if any thread may call post_control() at any time, also during another call.
  virtual bool control_is_thread_safe() const noexcept { return false; }
  /// Returns the next control message and its sender, if one has arrived.
  virtual std::optional<std::pair<Rank, std::string>> poll_control() = 0;
  /// Returns true if the wire notices the loss of a peer without a message from it.
  virtual bool detects_peer_failure() const noexcept { return false; }
  /// Returns a lost peer and the evidence ("connection reset by peer"). Returns each lost peer once, after all control
  /// messages that it had sent.
  virtual std::optional<std::pair<Rank, std::string>> poll_failed_peer() { return std::nullopt; }
  /// Returns true if receive() was called for a message of a lost peer that will never arrive.
  virtual bool is_blocked_on_failed_peer(Rank /*from*/) const { return false; }
  /// Releases all memory of the callers after a failure: memory that messages are sent from, and places that they are
  /// received into. No data moves afterwards. Takes some tenths of a second at most.
  ///
  /// Control messages that were posted arrive if the peer receives the data before them. Later control messages may be
  /// lost, because releasing lent memory may require closing all connections.
  virtual void abandon() noexcept {}
  /// Returns a description of the link to a peer that is equal in every run: "10.0.0.1 to 10.0.0.2". Empty if the link
  /// is unknown.
  virtual std::string link(Rank /*to*/) const { return {}; }
  /// Sleeps until data may have arrived or may have been sent, for at most `at_most`.
  virtual void wait_for_event(std::chrono::nanoseconds at_most) { std::this_thread::sleep_for(at_most); }

  /// Returns whether the wire can cause a fault on the way to a peer. A wire that implements neither cut() nor lose()
  /// keeps the functions of this class.
  virtual bool can_cause(WireFault, Rank /*to*/) const noexcept { return false; }
  /// Ends all connections to a peer. Both ends then notice the loss of the other one.
  virtual void cut(Rank /*to*/) noexcept {}
  /// Loses the next `datagrams` datagrams to a peer, which the wire retransmits later. 0: loses no more. Returns how
  /// many of an earlier request are left.
  virtual unsigned lose(Rank /*to*/, unsigned /*datagrams*/) noexcept { return 0; }
};

}  // namespace collectives
