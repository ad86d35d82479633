// StepMessages: receives and sends the messages of the current Step of a rank. A Step is one action of a rank. A Step
// takes values, may reduce them, and may store and send the result.
//
// A route is the transport of the messages to and from one peer, such as shared memory or the wire. A frame is memory
// of a transport for one message. Values are either written into a frame, or sent by send_from() directly from a
// buffer. The wire, the transport between hosts, may read this buffer after send_from() has returned.
#pragma once

#include <algorithm>
#include <cassert>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "collectives/transport.hpp"
#include "shared_memory/host_operands.hpp"
#include "steps/step.hpp"

namespace collectives {

class StepMessages {
 public:
  /// Transport of the messages to and from one rank, and that rank's number in the transport.
  struct Route {
    Transport* transport = nullptr;
    Rank address = 0;
    bool between_hosts = false;  ///< whether the messages go to another host
    bool sends_in_place = true;  ///< whether send_from() may be called
  };
  /// `wire`: the only transport in `routes` that needs calls of progress(). It is the transport between hosts, or
  /// GpuMessages. It is null if no transport needs these calls.
  StepMessages(Rank self, std::vector<Route> routes, Transport* wire)
      : self_(self), routes_(std::move(routes)), wire_(wire) {}

  /// Begins an operation whose messages have `tag`.
  void start(std::uint64_t tag) noexcept {
    tag_ = tag;
    next_step();
  }
  void next_step() noexcept { from_ready_ = to_ready_ = 0; }

  /// Returns whether all incoming messages of `step` have arrived and all its outgoing messages have frames.
  /// `receive_target`: memory into which messages are received if the transport can do so; null: none.
  bool ready(const Step& step, std::byte* receive_target, std::size_t bytes) {
    for (; from_ready_ < step.from.size(); ++from_ready_) {
      if (is_self(step.from[from_ready_])) continue;
      const Route& route = route_to(step.from[from_ready_]);
      if (route.transport->receive_into(route.address, receive_target, bytes) == nullptr) return waits_for(route);
    }
    for (; to_ready_ < step.to.size(); ++to_ready_) {
      if (is_self(step.to[to_ready_])) continue;
      const Route& route = route_to(step.to[to_ready_]);
      if (!route.transport->has_frame(route.address)) return waits_for(route);
    }
    return true;
  }
  /// Returns the message that has arrived from `from`. Throws TagMismatch if its tag or its length is unexpected.
  const Message& taken(Rank from, std::size_t bytes) {
    const Route& route = route_to(from);
    const Message& message = *route.transport->receive(route.address);
    if (message.tag != tag_ || message.bytes != bytes) throw TagMismatch{from};
    return message;
  }
  /// Returns the frame for the first rank in `step.to` that is not this rank. Null if there is none.
  std::byte* first_frame(const Step& step) {
    for (const Rank peer : step.to)
      if (const Route& route = route_to(peer); !is_self(peer)) return route.transport->acquire_frame(route.address);
    return nullptr;
  }
  /// Calls fill() for the outgoing frames of `step`. `lent`: address of the value in memory from which a transport may
  /// send it without a frame, or null.
  template <class Fill>
  void fill_frames(const Step& step, const std::byte* lent, Fill&& fill) {
    for (const Rank peer : step.to) {
      if (is_self(peer)) continue;
      const Route& route = route_to(peer);
      if (lent == nullptr || !route.sends_in_place) fill(route.transport->acquire_frame(route.address));
    }
  }
  /// Sends the value of `step` to its receivers. Releases the received messages. Calls fill() for each frame
  /// immediately before it is sent. `lent`: as in fill_frames().
  template <class Fill>
  void hand_on(const Step& step, std::size_t bytes, const std::byte* lent, Fill&& fill) {
    for (const Rank peer : step.to) {
      if (is_self(peer)) continue;
      const Route& route = route_to(peer);
      assert(bytes <= route.transport->frame_bytes());
      if (lent != nullptr && route.sends_in_place) {
        route.transport->send_from(route.address, tag_, lent, bytes);
      } else {
        fill(route.transport->acquire_frame(route.address));
        route.transport->send(route.address, tag_, bytes);
      }
      bytes_sent_ += bytes;
      if (route.between_hosts) bytes_to_other_hosts_ += bytes;
    }
    for (const Rank peer : step.from) {
      if (is_self(peer)) continue;
      const Route& route = route_to(peer);
      route.transport->release(route.address);
    }
  }

  /// Lets the wire send and receive.
  void progress() {
    if (wire_ != nullptr) wire_->progress();
  }
  /// Returns whether the wire still reads or writes any of the `bytes` bytes at `place`.
  bool uses(const std::byte* place, std::size_t bytes) const { return wire_ != nullptr && wire_->lent(place, bytes); }
  /// Returns whether the wire has sent everything. If so, the caller may reuse the memory that was sent. Peers then
  /// receive the data without further calls on this rank.
  bool drained() {
    if (wire_ == nullptr || !wire_->sending()) return true;
    wire_->progress();
    waits_for_wire_ = true;
    return !wire_->sending();
  }

  /// Returns whether the wire was the reason why the last Step or drained() had to wait.
  bool waits_for_wire() const noexcept { return waits_for_wire_; }
  void set_waits_for_wire(bool waits) noexcept { waits_for_wire_ = waits; }
  bool is_self(Rank rank) const noexcept { return rank == self_; }
  /// Returns whether any message of `step` comes from or goes to another host.
  bool between_hosts(const Step& step) const {
    const auto leaves = [this](Rank peer) { return route_to(peer).between_hosts; };
    return wire_ != nullptr && (std::ranges::any_of(step.from, leaves) || std::ranges::any_of(step.to, leaves));
  }
  /// Returns the bytes of all messages since construction.
  std::uint64_t bytes_sent() const noexcept { return bytes_sent_; }
  /// Returns the bytes of bytes_sent() that went to other hosts.
  std::uint64_t bytes_to_other_hosts() const noexcept { return bytes_to_other_hosts_; }

 private:
  const Route& route_to(Rank peer) const noexcept { return routes_[static_cast<std::size_t>(peer)]; }
  bool waits_for(const Route& route) noexcept {
    waits_for_wire_ = route.between_hosts;
    return false;
  }

  const Rank self_;
  const std::vector<Route> routes_;
  Transport* const wire_;
  std::uint64_t tag_ = 0;
  // Numbers of peers of the current Step. `from_ready_`: those whose messages have arrived. `to_ready_`: those to which
  // there is a free frame.
  std::size_t from_ready_ = 0, to_ready_ = 0;
  bool waits_for_wire_ = false;
  std::uint64_t bytes_sent_ = 0, bytes_to_other_hosts_ = 0;
};

}  // namespace collectives
