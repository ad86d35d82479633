// The flight recorder: the last operations of a communicator and sums over all of them, always on, in the block that
// its process shows (process_page.hpp). Writing down a call costs a few stores, and no memory is ever allocated.
//
// To time a call that is over at once would cost several times that. So of those only some are timed, at random
// distances that no rhythm of the program can fool, and each stands for as many.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/ticks.hpp"
#include "collectives/records.hpp"
#include "core/signature.hpp"
#include "monitoring/process_page.hpp"

namespace collectives {

struct Plan;

/// What is written down of every call that is planned so.
OperationShape shape_of(const Signature&, const Plan&) noexcept;

class FlightRecorder {
 public:
  struct Identity {
    Rank rank = 0;
    int size = 1, hosts = 1;
    Rank known_as = 0;  ///< the rank in the first communicator of its thread, which names files
    std::string_view transport, backend;
  };
  explicit FlightRecorder(const Identity&);
  ~FlightRecorder() { give_back(block_); }
  FlightRecorder(const FlightRecorder&) = delete;
  FlightRecorder& operator=(const FlightRecorder&) = delete;

  /// One more operation that may start later.
  void issue() noexcept { ++block_.issued; }
  /// How many there were.
  std::uint64_t issued() const noexcept { return block_.issued; }
  /// How many calls the next one stands for; 0: it is not timed.
  std::uint32_t sample() noexcept {
    if (--until_timed_ != 0) return 0;
    return draw();
  }
  /// The call is not over at once, and is timed for itself. It has started.
  void lasts(std::uint64_t sequence, std::uint32_t sample_weight) noexcept;
  /// `issued`, `started`: in ticks; 0: it is not timed.
  void start(std::uint64_t sequence, const OperationShape& shape, std::string_view name, std::uint64_t issued,
             std::uint64_t started) noexcept {
    OperationEntry& entry = this->entry(sequence);
    entry.sequence.store(0, std::memory_order_relaxed);
    std::atomic_signal_fence(std::memory_order_seq_cst);
    entry.started = started;
    entry.issued = issued;
    entry.finished = 0;
    entry.waits_for = kNoRank;
    entry.missing = 0;
    entry.state = static_cast<std::uint8_t>(OperationRecord::State::started);
    entry.shape = shape;
    entry.name[0] = '\0';
    if (!name.empty()) copy_name(entry, name);
    block_.started = sequence;
    entry.sequence.store(sequence, std::memory_order_release);
  }
  OperationEntry& finish(std::uint64_t sequence, std::uint32_t sample_weight) noexcept {
    OperationEntry& entry = this->entry(sequence);
    CollectiveTotals& totals = block_.totals[entry.shape.collective];
    ++totals.calls;
    totals.bytes += entry.shape.bytes();
    entry.state = static_cast<std::uint8_t>(OperationRecord::State::finished);
    if (sample_weight != 0) {
      entry.finished = ticks_now();
      totals.ticks += (entry.finished - entry.started) * sample_weight;
    }
    return entry;
  }
  /// Null if it had not started.
  const OperationEntry* fail(std::uint64_t sequence) noexcept;
  /// The program has stood still for an operation of `collective`.
  void waited(Collective collective, std::uint64_t ticks) noexcept {
    block_.totals[static_cast<std::size_t>(collective)].waiting_ticks += ticks;
  }
  /// Who has not arrived at it. Whoever was missed last stays written down when all have.
  void waits_for(std::uint64_t sequence, const Missing&) noexcept;

  /// Oldest first.
  std::vector<OperationRecord> recent() const;
  /// Of one that has not started.
  OperationRecord record_of(std::uint64_t sequence, const OperationShape&, std::string_view name,
                            std::uint64_t issued) const;
  Counters counters() const;

  /// Appends to `path` in one piece: `why`, `progress_text` and the last operations. What fails is warned about.
  void write_out(const std::string& path, std::string_view why, std::string_view progress_text) const noexcept;
  /// Its number in the process, from 1.
  std::uint32_t number() const noexcept { return block_.used.load(std::memory_order_relaxed); }

 private:
  OperationEntry& entry(std::uint64_t sequence) noexcept { return block_.operations[sequence % kRecentOperations]; }
  static void copy_name(OperationEntry&, std::string_view name) noexcept;
  std::uint32_t draw() noexcept;
  OperationRecord::Time time_of(std::uint64_t ticks) const noexcept;

  CommunicatorBlock& block_;
  std::uint32_t until_timed_ = 1, next_sample_weight_ = 1, random_ = 1;
};

/// "#17 all_reduce 4096 x f32 sum (fc1), hierarchical/staged: took 3.2 us, started 10.2 s ago", as far as there is
/// room.
std::string_view operation_text(const OperationEntry&, const TickScale&, std::span<char> space,
                                bool with_age = true) noexcept;

/// `why` and the last operations of a communicator, oldest first, one line each, as far as there is room; how long that
/// is. May be called in a signal handler, and for a block of another process.
std::size_t operations_text(std::span<char> space, const CommunicatorBlock&, const TickScale&, std::string_view why,
                            std::string_view progress_text = {}) noexcept;

/// From now on `signal` writes out the operations of all communicators of this process: to `prefix`.rank3 and so on, or
/// to stderr if `prefix` is empty. Not where the program handles the signal itself: a warning says so. The first call
/// of a process counts.
void write_out_on_signal(int signal, std::string_view prefix) noexcept;

/// "PREFIX.rank3". The first call of a process warns where that cannot be written: after a failure it would be too
/// late.
std::string recorder_path(std::string_view prefix, Rank rank);

}  // namespace collectives
