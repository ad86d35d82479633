// COLLECTIVES_TRACE=FILE: what a communicator does and when, as events that ui.perfetto.dev and chrome://tracing show.
//
// All ranks of a host append to one file, whole events with each write(), so that it is one trace in the end, and
// readable whenever a process is killed: a JSON array whose "]" is missing, as the format allows. Ranks of other hosts
// than rank 0's have FILE.host1 and so on, continuations of the same array: `cat FILE FILE.host*` is the whole. Every
// rank is a process in it, with two tracks for each communicator: what it performs, and what the program does there.
//
// Times are those of the steady clock of rank 0's host: the others' differences are measured when the ranks have met.
//
// Events are kept in binary until there are many, a wait gives time, or a second has passed; nothing is allocated for
// them. A killed process loses those that it has kept. Where the disk is full, or the file as long as it may be, the
// trace ends with a whole event and a warning, and the program goes on.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/coarse_clock.hpp"
#include "base/ticks.hpp"
#include "collectives/types.hpp"
#include "monitoring/process_page.hpp"

namespace collectives {

/// The file of a host, as a process has it open.
class TraceFile {
 public:
  /// `path` as it is for the host of rank 0, `host` counting from there. The one that `begins` it empties it. Throws
  /// Error{system} naming the variable.
  TraceFile(const std::string& path, std::size_t host, bool begins);
  ~TraceFile();
  TraceFile(const TraceFile&) = delete;
  TraceFile& operator=(const TraceFile&) = delete;
  /// Appends events, each with its comma in front. After a failure, or when the file is as long as it may be, of which
  /// it warns, it does nothing.
  void append(std::string_view events) noexcept;
  /// To be added to times of this host.
  std::int64_t clock_offset = 0;
  /// The file ends with the append() that reaches so many.
  std::size_t most_bytes = kMostBytes;

  static constexpr std::size_t kMostBytes = std::size_t{1} << 30;  // viewers open hardly more

 private:
  void end(std::string_view why) noexcept;

  std::string path_;
  std::atomic<int> fd_;
};

/// What a thread is in traces and in the names of files: its rank in the first communicator that it has met in, and
/// the file that it writes to, if any. A thread that has met in none is what its process is; where ranks are threads,
/// it has its own rank.
struct TraceIdentity {
  Rank rank = 0;
  std::shared_ptr<TraceFile> file;
};

/// Of one communicator.
class Trace {
 public:
  /// What an operation is doing.
  enum class Phase : std::uint8_t { none, host_collective, messages, between_hosts, coding, top_k };

  /// `communicator`: its number in the process; `title`: what it is, in words.
  Trace(const TraceIdentity&, std::uint32_t communicator, std::string_view title);
  ~Trace() { flush(); }
  Trace(const Trace&) = delete;
  Trace& operator=(const Trace&) = delete;

  /// Operation `sequence` begins.
  void begin(std::uint64_t sequence) noexcept { sequence_ = sequence; }
  /// It has come to `phase`, if it was not there.
  void phase(Phase phase) noexcept {
    if (phase != phase_) change_phase(phase);
  }
  /// It has ended as `entry` says.
  void operation(const OperationEntry& entry) noexcept;
  /// The program has done `what` since `from`, for operation `sequence`.
  void program(std::string_view what, std::uint64_t from, std::uint64_t sequence, Collective) noexcept;
  /// A moment to write what has been kept for a while.
  void idle() noexcept {
    if (coarse_now() - flushed_ > std::chrono::seconds(1)) flush();
  }

 private:
  /// Of the entry an operation's event has everything, the others' have number and collective.
  struct Event {
    enum class Kind : std::uint8_t { operation, phase, program } kind;
    std::string_view what;
    std::uint64_t from, to;
    OperationEntry entry;
  };
  Event& add(Event::Kind, std::string_view what, std::uint64_t from) noexcept;
  void change_phase(Phase) noexcept;
  void flush() noexcept;
  char* write(const Event&, const TickScale&, char* to);
  void fit(const Event&, std::uint64_t& from, std::uint64_t& to) noexcept;

  const TraceIdentity identity_;
  const std::uint32_t track_;
  const TickMark begun_ = TickMark::now();
  Phase phase_ = Phase::none;
  std::uint64_t phase_since_ = 0;
  std::chrono::nanoseconds flushed_ = coarse_now();
  std::uint64_t sequence_ = 0;  // of the operation under way
  std::size_t buffered_ = 0;
  // What has been written: until when operations, until when their phases, and where those of the next one begin.
  std::uint64_t operations_until_ = 0, phases_until_ = 0, first_phase_ = 0;
  std::vector<Event> events_;
  std::vector<char> text_;
};

}  // namespace collectives
