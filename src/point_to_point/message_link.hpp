// Message link: carries envelopes (headers of messages) and payloads between this rank and one peer, in order. There
// are two kinds of links. A HostLink passes them through the arena, the shared memory of the host. A WireLink passes
// them between hosts.
#pragma once

#include <cstddef>

#include "point_to_point/envelope.hpp"

namespace collectives {

class MessageLink {
 public:
  virtual ~MessageLink() = default;
  /// Returns the longest payload of an eager message in bytes.
  virtual std::size_t longest_eager() const noexcept = 0;
  /// Returns the longest payload of a data piece in bytes.
  virtual std::size_t longest_piece() const noexcept = 0;
  /// Sends an envelope. Envelopes of the kinds eager and data have a payload of `bytes` bytes. Returns false if there
  /// is no space now. The payload of a data envelope must not change while lends() returns true for it.
  virtual bool send(const Envelope& envelope, const std::byte* payload, std::size_t bytes) = 0;
  /// Returns whether the link still reads from [data, data + bytes).
  virtual bool lends(const std::byte* /*data*/, std::size_t /*bytes*/) const noexcept { return false; }

  /// Returns the next envelope that has arrived, or null. If the next envelope is of the kind data, its payload may be
  /// written to `place`, which has `bytes` bytes. A null `place` means that the memory is unknown.
  virtual const Envelope* receive(std::byte* place, std::size_t bytes) = 0;
  /// Returns the length of the payload of the message that receive() has returned.
  virtual std::size_t payload_bytes() const noexcept = 0;
  /// Returns whether the whole payload of the message that receive() has returned has arrived.
  virtual bool is_complete() const noexcept { return true; }
  /// Copies the payload of the message that receive() has returned to `to`, unless `to` is null or receive() has stored
  /// it there. Ends the message and returns true if the whole payload has arrived. Otherwise copies the arrived bytes
  /// and returns false. The caller then calls it again later with the same address.
  virtual bool take(std::byte* to) = 0;
  /// Returns whether no further message can arrive, because the peer is lost.
  virtual bool ended() const noexcept { return false; }
};

}  // namespace collectives
