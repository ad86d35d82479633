// A transport moves messages between ranks: bytes in frames, in order for each pair of ranks, and nothing else. It
// knows no element types, reductions or collectives.
//
// Sending is two calls: stage() lends a frame to write into, send() hands it over. So a reduction can write its result
// straight into the memory that the peer will read, and a received message is a view, not a copy. Nothing here waits:
// what cannot go on says so by a null pointer, and the caller's one wait function does the waiting.
//
// Every message carries a `tag` word chosen by the caller (sequence number and signature hash of the collective call).
// One thread uses a Transport at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
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
  /// The largest payload of one message, in bytes.
  virtual std::size_t frame_bytes() const noexcept = 0;
  /// A frame for the next message to `to`, at least 64-byte aligned; null while all frames to `to` are in flight. There
  /// are at least two per peer: a ring whose ranks pass messages on while the next has not taken the last one needs
  /// them. Calling it again before send() lends the same frame.
  virtual std::byte* stage(Rank to) = 0;
  /// Hands over the staged frame with `bytes` of payload (at most frame_bytes(), may be 0).
  virtual void send(Rank to, std::uint64_t tag, std::size_t bytes) = 0;
  /// The next message from `from`; null while there is none. Calling it again before release() shows the same message.
  virtual const Message* receive(Rank from) = 0;
  /// Gives the frame of the message last received from `from` back.
  virtual void release(Rank from) = 0;
  /// Waits until everything handed over no longer needs this process to be alive. Throws Error{timeout}.
  virtual void flush(Deadline) = 0;
};

/// A transport between hosts. It also carries small control messages beside the data (abort, arrival records), which
/// the peers read on the slow path of their waits and at their next call.
class Wire : public Transport {
 public:
  /// Sends `text` to `to`, whatever the state of the data channels; drops it when it cannot go out.
  virtual void post_control(Rank to, std::string_view text) = 0;
  /// Whether post_control() may also be called from another thread, at any time, beside any other call.
  virtual bool posts_from_any_thread() const noexcept { return false; }
  /// The next control message and its sender, if one has arrived.
  virtual std::optional<std::pair<Rank, std::string>> poll_control() = 0;
};

}  // namespace collectives
