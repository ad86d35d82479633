// What a communicator remembers of its calls: the last operations, and sums over all of them.
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

  std::uint64_t sequence = 0;  ///< its number, as in errors: all_reduce #17
  Collective collective = Collective::barrier;
  std::size_t count = 0;  ///< elements of the whole vector
  DataType type = DataType::f32;
  ReduceOp::Kind op = ReduceOp::Kind::sum;  ///< of collectives that reduce
  std::string plan;                         ///< algorithm and protocol: "hierarchical/inline"
  std::string name;                         ///< of the tensor, as far as there is room: 39 bytes
  State state = State::issued;
  /// Empty where it has not come to that, and for most blocking calls that are over at once, within some microseconds:
  /// of those one in about 30 is timed.
  Time issued = {}, started = {}, finished = {};
  Rank waited_for = kNoRank;  ///< whoever was last found not to have arrived, where that took a millisecond or more
};
COLLECTIVES_EXPORT std::string_view to_string(OperationRecord::State) noexcept;

/// Of the finished operations of one collective.
struct CollectiveCounters {
  std::uint64_t calls = 0;
  std::uint64_t bytes = 0;             ///< of the vectors, whatever had to travel for them
  std::chrono::nanoseconds time{};     ///< from start to end; of calls that are over at once estimated from some
  std::chrono::nanoseconds waiting{};  ///< how long the program stood still in a call or wait() for one of them, but
                                       ///< for the first microseconds of each call

  CollectiveCounters& operator+=(const CollectiveCounters& other) noexcept {
    calls += other.calls;
    bytes += other.bytes;
    time += other.time;
    waiting += other.waiting;
    return *this;
  }
};

/// Since construction of the communicator.
struct Counters {
  std::array<CollectiveCounters, std::size(kCollectives)> collectives;  ///< in the order of Collective

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
