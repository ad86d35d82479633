// Records of a communicator's operations (calls): data of the last 64 operations, and totals over all finished ones.
// Communicator::recent_operations() returns the data, and Communicator::counters() returns the totals.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "collectives/error.hpp"
#include "collectives/export.hpp"
#include "collectives/types.hpp"

namespace collectives {

/// One operation, as this rank has seen it.
struct OperationRecord {
  enum class State : std::uint8_t { issued, started, finished, failed };
  using Time = std::chrono::steady_clock::time_point;

  std::uint64_t sequence = 0;  ///< Number of the operation, as in errors: all_reduce #17.
  Collective collective = Collective::barrier;
  std::size_t count = 0;  ///< Number of elements of the whole vector.
  DataType type = DataType::f32;
  ReduceOp::Kind op = ReduceOp::Kind::sum;  ///< Op of a collective that reduces.
  std::string plan;                         ///< Algorithm and protocol: "hierarchical/inline".
  std::string name;                         ///< Name of the tensor, cut to 39 bytes.
  State state = State::issued;
  /// Times of issue, start and end. A time is empty if the event has not happened. Blocking calls of less than 8 KiB
  /// that end within microseconds are not all timed: about one in 30 has times, the rest has none.
  Time issued = {}, started = {}, finished = {};
  Rank waited_for = kNoRank;  ///< Rank that this rank last waited for, if the wait took 1 ms or more.
};
COLLECTIVES_EXPORT std::string_view to_string(OperationRecord::State) noexcept;

/// One point-to-point call, as this rank has seen it.
struct MessageRecord {
  std::uint64_t number = 0;  ///< Number of the call among the point-to-point calls of this rank, as in errors: recv #4.
  bool sends = false;        ///< True: a send. False: a receive.
  Rank peer = kNoRank;       ///< Rank at the other end, as the call named it: may be any_source.
  Rank source = kNoRank;     ///< Sender of the message that a receive has taken.
  int tag = 0;
  std::size_t count = 0;  ///< Number of elements.
  DataType type = DataType::f32;
  OperationRecord::State state = OperationRecord::State::started;
};

/// Totals of the finished operations of one collective.
struct CollectiveCounters {
  std::uint64_t calls = 0;
  std::uint64_t bytes = 0;          ///< Bytes of the vectors of these calls, not the bytes sent.
  std::chrono::nanoseconds time{};  ///< Sum of the times from start to end. Estimated for short calls.
  /// Time for which the program was blocked in a call or wait() for these operations. The first microseconds of each
  /// call are not included.
  std::chrono::nanoseconds waiting{};

  CollectiveCounters& operator+=(const CollectiveCounters& other) noexcept {
    calls += other.calls;
    bytes += other.bytes;
    time += other.time;
    waiting += other.waiting;
    return *this;
  }
};

/// Totals of all collectives since construction of the communicator.
struct Counters {
  std::array<CollectiveCounters, std::size(kCollectives)> collectives;  ///< Totals in the order of Collective.

  const CollectiveCounters& operator[](Collective collective) const noexcept {
    return collectives[static_cast<std::size_t>(collective)];
  }
  CollectiveCounters total() const noexcept {
    CollectiveCounters sum;
    for (const CollectiveCounters& one : collectives) sum += one;
    return sum;
  }
};

}  // namespace collectives
