// Message operation: one send or receive, from its call to its end.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <string_view>

#include "collectives/error.hpp"
#include "collectives/messages.hpp"
#include "collectives/types.hpp"
#include "point_to_point/linked_list.hpp"

namespace collectives {

/// Arguments of a send or a receive.
struct MessageCall {
  enum class Kind : std::uint8_t { send, receive };
  Kind kind = Kind::send;
  Rank peer = 0;  ///< rank at the other end; any_source in a receive
  int tag = 0;
  std::byte* data = nullptr;  ///< buffer, which a send only reads
  std::size_t count = 0;
  DataType type = DataType::f32;
  bool in_sendrecv = false;  ///< whether the call is one half of a sendrecv

  static MessageCall send(ConstBuffer data, Rank to, int tag) noexcept {
    return {Kind::send, to, tag, static_cast<std::byte*>(const_cast<void*>(data.data)), data.count, data.type};
  }
  static MessageCall receive(Buffer data, Rank from, int tag) noexcept {
    return {Kind::receive, from, tag, static_cast<std::byte*>(data.data), data.count, data.type};
  }
  bool sends() const noexcept { return kind == Kind::send; }
  /// Returns the name of the call, for errors.
  std::string_view name() const noexcept { return in_sendrecv ? "sendrecv" : sends() ? "send" : "recv"; }
  std::size_t bytes() const noexcept { return count * size_of(type); }
};

/// Call whose arguments have been checked, with its deadline.
struct CheckedMessage {
  MessageCall call;
  std::chrono::nanoseconds timeout{};
};

struct MessageOperation {
  /// Stage of an operation. A send is `waiting` until it has sent its message or its request. A request announces a
  /// long message. After its request, a send is `open` until the receiver answers. A receive is `waiting` until a
  /// message matches it. Both are `moving` while the data of a long message are transferred.
  enum class Stage : std::uint8_t { waiting, open, moving, done, failed };

  MessageCall call;
  std::uint64_t number = 0;             ///< number of the call among the point-to-point calls of this rank, for texts
  std::uint64_t id = 0;                 ///< number of a long message at its sender
  std::uint64_t order = 0;              ///< place in the order in which receives were started
  Rank source = kNoRank;                ///< sender of the message that a receive has matched
  std::uint64_t address = 0, name = 0;  ///< sender's buffer of a long message, in the form of RemoteBuffer
  std::size_t moved = 0;                ///< bytes of a long message that have been transferred
  std::uint64_t copy = 0;               ///< number of the SharedCopy of a long message; 0: none
  std::size_t bytes = 0;                ///< call.bytes()
  std::chrono::nanoseconds timeout{};
  std::chrono::steady_clock::time_point issued{};  ///< time of the call; set at the first check of the deadline
  bool stall_reported = false;
  bool listed = false;  ///< whether the operation is on the list of unfinished ones
  std::exception_ptr error;
  ListLink<MessageOperation> unfinished, role;
  /// Stage of the operation. When the operation ends, the stage is written after all other fields. Another thread may
  /// therefore read the other fields once ended() returns true.
  std::atomic<Stage> stage{Stage::waiting};

  bool ended() const noexcept {
    const Stage now = stage.load(std::memory_order_acquire);
    return now == Stage::done || now == Stage::failed;
  }
  Stage now() const noexcept { return stage.load(std::memory_order_relaxed); }
  void set(Stage to) noexcept { stage.store(to, std::memory_order_release); }
  /// Describes a new call.
  void begin(const CheckedMessage& what) noexcept {
    call = what.call;
    bytes = call.bytes();
    timeout = what.timeout;
    source = kNoRank;
    moved = 0;
    copy = 0;
    issued = {};
    stall_reported = listed = false;
    error = nullptr;
    stage.store(Stage::waiting, std::memory_order_relaxed);
  }
};

using UnfinishedMessages = LinkedList<MessageOperation, &MessageOperation::unfinished>;
/// List of the operations that have the same role: posted receives, or sends that wait for the same event.
using MessageList = LinkedList<MessageOperation, &MessageOperation::role>;

}  // namespace collectives
