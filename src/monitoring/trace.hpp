// Trace: records when the operations of a communicator ran, for the viewers ui.perfetto.dev and chrome://tracing. Users
// request it by COLLECTIVES_TRACE=FILE.
//
// Files. FILE is a JSON array of events. All ranks of a host append to one file. Each rank writes whole events. Viewers
// accept an array without the "]" at the end. The file is therefore readable after a process is killed. The host of
// rank 0 writes FILE. The other hosts write FILE.host1, FILE.host2 and so on, whose events continue the array. The
// command `cat FILE FILE.host*` gives the whole trace.
//
// Tracks. A viewer shows each rank as a process. A track is a row of events in the viewer. Each rank has two tracks per
// communicator. One track shows the operations with their phases. The other track shows when the program waits for an
// operation, or selects values to send.
//
// Times. All times are given in the steady clock of rank 0's host. The difference between this clock and that of each
// other host is measured once, during the construction of a communicator. The price: the clocks of hosts drift apart,
// so the times of different hosts in a long trace do, too.
//
// Buffering. A memory buffer holds up to 1,024 binary events. A rank writes the buffer to the file when it is full. If
// the last write was more than a second ago, a rank also writes the buffer when it waits or when an operation ends. An
// event allocates no memory. A killed process loses the events in its buffer.
//
// If the disk is full or the file has reached its maximal length, the trace ends with a whole event and a warning. The
// program continues.
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

/// Open trace file of a host.
class TraceFile {
 public:
  /// Opens the trace file of host number `host`. Host 0 is the host of rank 0, and `path` is the path of its file.
  /// Empties the file if `begins` is true. Throws Error{system} naming COLLECTIVES_TRACE.
  TraceFile(const std::string& path, std::size_t host, bool begins);
  ~TraceFile();
  TraceFile(const TraceFile&) = delete;
  TraceFile& operator=(const TraceFile&) = delete;
  /// Appends events as text. Each event begins with a comma. If the write fails or the file has reached `most_bytes`,
  /// logs a warning and closes the file. Later calls do nothing.
  void append(std::string_view events) noexcept;
  /// Nanoseconds to add to times of this host to get times of rank 0's host.
  std::int64_t clock_offset = 0;
  /// File length in bytes at which the trace ends. The append() that reaches this length is the last one.
  std::size_t most_bytes = kMostBytes;

  static constexpr std::size_t kMostBytes = std::size_t{1} << 30;  // Viewers hardly open larger files.

 private:
  void end(std::string_view why) noexcept;

  std::string path_;
  std::atomic<int> fd_;
};

/// Identity of a thread in traces and in file names. It consists of the thread's rank in the first communicator that
/// the thread has constructed, and of its trace file, if any. A thread without a communicator has the identity of its
/// process. If ranks are threads, each thread has its own rank.
struct TraceIdentity {
  Rank rank = 0;
  std::shared_ptr<TraceFile> file;
};

/// Trace of one communicator.
class Trace {
 public:
  /// Kinds of work of an operation, which does one kind at a time.
  enum class Phase : std::uint8_t { none, host_collective, messages, between_hosts, coding, top_k };

  /// Writes the names of the tracks, which contain `title`. `communicator` is the number of the communicator in its
  /// process.
  Trace(const TraceIdentity&, std::uint32_t communicator, std::string_view title);
  ~Trace() { flush(); }
  Trace(const Trace&) = delete;
  Trace& operator=(const Trace&) = delete;

  /// Starts operation `sequence`.
  void begin(std::uint64_t sequence) noexcept { sequence_ = sequence; }
  /// Enters `phase` unless the operation is in it.
  void phase(Phase phase) noexcept {
    if (phase != phase_) change_phase(phase);
  }
  /// Adds the event of an operation that has ended.
  void operation(const OperationEntry& entry) noexcept;
  /// Adds an event to the program's track: `what` the program has done since `from` for operation `sequence`.
  void program(std::string_view what, std::uint64_t from, std::uint64_t sequence, Collective) noexcept;
  /// Writes the buffered events if a second has passed since the last write.
  void idle() noexcept {
    if (coarse_now() - flushed_ > std::chrono::seconds(1)) flush();
  }

 private:
  /// One event. Operations use the whole entry, phases only its number, program events its number and collective.
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
  std::uint64_t sequence_ = 0;  // Number of the operation that runs.
  std::size_t buffered_ = 0;
  // Ends of the last written operation and phase, and start of the first phase of the operation that runs.
  std::uint64_t operations_until_ = 0, phases_until_ = 0, first_phase_ = 0;
  std::vector<Event> events_;
  std::vector<char> text_;
};

}  // namespace collectives
