// Flight recorder: keeps the last 64 operations of a communicator, and totals over all its operations.
//
// The recorder is always on. It writes into the process page, memory that other processes can read even if this process
// hangs (process_page.hpp). Recording an operation takes few stores and never allocates memory.
//
// Times. Reading the clock takes several times as long as recording a short call. A call is short if it is blocking,
// moves less than 8 KiB and completes in its first attempt. The recorder times all other calls, and a random sample of
// the short calls. Between two sampled calls lie 15 to 46 other short calls. The number between two samples is random,
// so that a repeated pattern of calls does not bias the totals. The totals of time count each short call since the
// previous sampled call with the time of the new sampled call. If a trace is written or debug messages are logged,
// every call is timed.
//
// The price: a call takes some nanoseconds longer. A communicator needs 9 KiB. For one kind of calls, the start time is
// inexact by a microsecond or two. These are blocking calls of less than 8 KiB that are not in the sample and do not
// complete in their first attempt.
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

/// Returns the fields that the recorder stores for every call with this signature (its arguments) and plan (its
/// algorithm).
OperationShape shape_of(const Signature&, const Plan&) noexcept;

class FlightRecorder {
 public:
  struct Identity {
    Rank rank = 0;
    int size = 1, hosts = 1;
    Rank known_as = 0;  ///< Rank in the first communicator of this thread. It is part of file names.
    std::string_view transport, backend;
  };
  explicit FlightRecorder(const Identity&);
  ~FlightRecorder() { give_back(block_); }
  FlightRecorder(const FlightRecorder&) = delete;
  FlightRecorder& operator=(const FlightRecorder&) = delete;

  /// Counts an operation that the program has issued. The operation may start later.
  void issue() noexcept { ++block_.issued; }
  /// Returns the number of operations that issue() has counted.
  std::uint64_t issued() const noexcept { return block_.issued; }
  /// Chooses at random whether the next call is timed. Returns how many calls this call represents in the totals, or 0
  /// if it is not timed.
  std::uint32_t sample() noexcept {
    if (--until_timed_ != 0) return 0;
    return draw();
  }
  /// Removes a started call from the sample, because the call did not complete in its first attempt. Times this call
  /// separately. `sample_weight`: result of sample() for this call.
  void lasts(std::uint64_t sequence, std::uint32_t sample_weight) noexcept;
  /// Writes the entry of an operation that starts. Times are in ticks. 0 means that the operation is not timed.
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
  /// Marks the operation as finished. Adds its duration to the totals, multiplied by `sample_weight`. If
  /// `sample_weight` is 0, the operation was not timed.
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
  /// Marks the operation as failed. Returns null if it had not started.
  const OperationEntry* fail(std::uint64_t sequence) noexcept;
  /// Adds time for which the program was blocked in a wait for an operation of `collective`.
  void waited(Collective collective, std::uint64_t ticks) noexcept {
    block_.totals[static_cast<std::size_t>(collective)].waiting_ticks += ticks;
  }
  /// Stores the ranks that have not entered the operation. Keeps the last stored ranks once all ranks have entered.
  void waits_for(std::uint64_t sequence, const Missing&) noexcept;

  /// Writes the entry of a point-to-point call that starts. Point-to-point calls need another lock than operations.
  void start_message(const MessageRecord& call) noexcept {
    MessageEntry& entry = block_.messages[call.number % kRecentOperations];
    entry.number.store(0, std::memory_order_relaxed);
    std::atomic_signal_fence(std::memory_order_seq_cst);
    entry.count = call.count;
    entry.peer = call.peer;
    entry.source = kNoRank;
    entry.tag = call.tag;
    entry.type = static_cast<std::uint8_t>(call.type);
    entry.sends = call.sends;
    entry.state = static_cast<std::uint8_t>(OperationRecord::State::started);
    block_.messages_begun = call.number;
    entry.number.store(call.number, std::memory_order_release);
  }
  /// Marks a point-to-point call as finished or failed. `source`: the sender of the message that a receive has taken.
  void end_message(std::uint64_t number, OperationRecord::State state, Rank source) noexcept {
    MessageEntry& entry = block_.messages[number % kRecentOperations];
    if (entry.number.load(std::memory_order_relaxed) != number) return;
    entry.source = source;
    entry.state = static_cast<std::uint8_t>(state);
  }

  /// Returns the recorded point-to-point calls, oldest first.
  std::vector<MessageRecord> recent_messages() const;
  /// Returns the recorded operations, oldest first.
  std::vector<OperationRecord> recent() const;
  /// Returns the record of an operation that has not started.
  OperationRecord record_of(std::uint64_t sequence, const OperationShape&, std::string_view name,
                            std::uint64_t issued) const;
  Counters counters() const;

  /// Appends `why`, `progress_text` and the last operations to the file `path` in one write. Logs a warning if that
  /// fails.
  void write_out(const std::string& path, std::string_view why, std::string_view progress_text) const noexcept;
  /// Returns the communicator's number in its process, from 1.
  std::uint32_t number() const noexcept { return block_.used.load(std::memory_order_relaxed); }

 private:
  OperationEntry& entry(std::uint64_t sequence) noexcept { return block_.operations[sequence % kRecentOperations]; }
  static void copy_name(OperationEntry&, std::string_view name) noexcept;
  std::uint32_t draw() noexcept;
  OperationRecord::Time time_of(std::uint64_t ticks) const noexcept;

  CommunicatorBlock& block_;
  std::uint32_t until_timed_ = 1, next_sample_weight_ = 1, random_ = 1;
};

/// Returns the operation as text, cut to the given space. An example:
/// "#17 all_reduce 4096 x f32 sum (fc1), hierarchical/staged: took 3.2 us, started 10.2 s ago".
std::string_view operation_text(const OperationEntry&, const TickScale&, std::span<char> space,
                                bool with_age = true) noexcept;

/// Writes `why` and the last operations of a communicator, oldest first, one line each, cut to the given space. Returns
/// the number of bytes. May be called in a signal handler, and for a block of another process.
std::size_t operations_text(std::span<char> space, const CommunicatorBlock&, const TickScale&, std::string_view why,
                            std::string_view progress_text = {}) noexcept;

/// Installs a handler for `signal` that writes the operations of all communicators of this process. They go to
/// PREFIX.rank3 and so on, or to stderr if `prefix` is empty. If the program handles the signal itself, logs a warning
/// and installs nothing. Only the first call in a process has an effect.
void write_out_on_signal(int signal, std::string_view prefix) noexcept;

/// Returns "PREFIX.rank3". The first call in a process logs a warning if the directory is not writable. The file itself
/// is written only after a failure, which would be too late for a warning.
std::string recorder_path(std::string_view prefix, Rank rank);

}  // namespace collectives
