// Implementation of FlightRecorder, which keeps records of the last 64 operations of a communicator. This file returns
// the operations to programs as OperationRecords or as text. After a failure, it writes the text to a file. After a
// signal, it writes the text to a file or to stderr.
#include "monitoring/flight_recorder.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <mutex>
#include <utility>

#include "base/log.hpp"
#include "base/safe_file.hpp"
#include "collectives/messages.hpp"
#include "collectives/plan.hpp"
#include "core/collective.hpp"

namespace collectives {
namespace {

template <std::size_t space>
void copy_text(char (&to)[space], std::string_view text) noexcept {
  const std::size_t letters = std::min(space - 1, text.size());
  std::memcpy(to, text.data(), letters);
  to[letters] = '\0';
}

template <std::size_t space>
std::string_view text_of(const char (&text)[space]) noexcept {
  return {text, ::strnlen(text, space)};
}

bool is(const OperationEntry& entry, OperationRecord::State state) noexcept {
  return static_cast<OperationRecord::State>(entry.state) == state;
}

/// Text that is written to memory of the caller. A signal handler may use this class, because its functions allocate no
/// memory and take no lock.
class Text {
 public:
  explicit Text(std::span<char> space) noexcept : space_(space) {}
  template <class... Args>
  void add(fmt::format_string<Args...> format, Args&&... args) noexcept {
    const std::size_t left = space_.size() - used_;
    used_ += std::min(left, fmt::format_to_n(space_.data() + used_, left, format, std::forward<Args>(args)...).size);
  }
  /// Appends a time such as "3.2 us".
  void add_time(std::uint64_t nanoseconds) noexcept {
    constexpr std::pair<std::uint64_t, const char*> kUnits[] = {{1'000'000'000, "s"}, {1'000'000, "ms"}, {1'000, "us"}};
    const auto* unit = kUnits;
    while (unit->first > 1000 && nanoseconds < unit->first) ++unit;
    add("{}.{} {}", nanoseconds / unit->first, nanoseconds % unit->first * 10 / unit->first, unit->second);
  }
  void add_now() noexcept {
    using namespace std::chrono;
    const auto now = floor<seconds>(system_clock::now());
    const auto day = floor<days>(now);
    const year_month_day date(day);
    const hh_mm_ss time(now - day);
    add("{}-{:02}-{:02} {:02}:{:02}:{:02} UTC", static_cast<int>(date.year()), static_cast<unsigned>(date.month()),
        static_cast<unsigned>(date.day()), time.hours().count(), time.minutes().count(), time.seconds().count());
  }
  std::size_t size() const noexcept { return used_; }

 private:
  std::span<char> space_;
  std::size_t used_ = 0;
};

/// Maximum number of bytes of the text about the operations of one communicator.
constexpr std::size_t kTextBytes = 16 << 10;
/// Minimum length in bytes of calls that are always timed. A call of this length takes some microseconds, so two clock
/// readings hardly slow it down. A shorter call is timed only if it must wait or belongs to a random sample.
constexpr std::uint64_t kLongEnough = 8 << 10;

void add_operation(Text& out, const OperationEntry& entry, const TickScale& scale, bool with_age) noexcept {
  const OperationShape& shape = entry.shape;
  const auto collective = static_cast<Collective>(shape.collective);
  out.add("#{} {}", entry.sequence.load(std::memory_order_relaxed), to_string(collective));
  if (collective != Collective::barrier) out.add(" {} x {}", shape.count, to_string(static_cast<DataType>(shape.type)));
  if (reduces(collective)) out.add(" {}", to_string(static_cast<ReduceOp::Kind>(shape.op)));
  if (entry.name[0] != '\0') out.add(" ({})", text_of(entry.name));
  out.add(", {}: ", text_of(shape.plan));
  const bool failed = is(entry, OperationRecord::State::failed);
  const bool ended = failed || is(entry, OperationRecord::State::finished);
  if (!ended) {
    out.add("not finished");
  } else if (entry.finished == 0) {
    out.add("{} at once", failed ? "failed" : "over");
  } else {
    out.add("{} ", failed ? "failed after" : "took");
    out.add_time(scale.length(entry.finished - entry.started));
  }
  if (entry.waits_for != kNoRank) {
    out.add(", {} rank {}", ended ? "had waited for" : "waits for", entry.waits_for);
    if (entry.missing > 1) out.add(" and {} more", entry.missing - 1);
  }
  if (!with_age || entry.started == 0) return;
  const std::uint64_t started = scale.at(entry.started), now = steady_nanoseconds();
  out.add(", started ");
  out.add_time(now > started ? now - started : 0);
  out.add(" ago");
}

/// Appends a point-to-point call as text, such as "recv #4 from rank 1 (tag 7), 4096 x f32: not finished".
void add_message(Text& out, const MessageEntry& entry) noexcept {
  out.add("{} #{} ", entry.sends != 0 ? "send" : "recv", entry.number.load(std::memory_order_relaxed));
  if (entry.peer == any_source)
    out.add("from any rank");
  else
    out.add("{} rank {}", entry.sends != 0 ? "to" : "from", entry.peer);
  out.add(" (tag {}), {} x {}: ", entry.tag, entry.count, to_string(static_cast<DataType>(entry.type)));
  const auto state = static_cast<OperationRecord::State>(entry.state);
  const bool ended = state == OperationRecord::State::finished || state == OperationRecord::State::failed;
  if (ended)
    out.add("{}", to_string(state));
  else
    out.add("not finished");
  if (entry.peer == any_source && entry.source >= 0) out.add(", came from rank {}", entry.source);
}

// ---- the signal ----

char signal_prefix[PATH_MAX];  // Begin of the path of the files that the handler writes; empty: it writes to stderr.
constexpr int kUnset = 0;
std::atomic<int> signal_in_use{kUnset};

void append(const char* path, std::string_view text) noexcept {
  const Descriptor file = *path == '\0' ? Descriptor(::dup(STDERR_FILENO)) : open_to_append(path);
  write_all(file.fd(), text);
}

void on_signal(int) {
  const int error = errno;
  if (const ProcessPage* page = page_of_this_process()) {
    const TickScale scale(page->begun);
    for (const CommunicatorBlock& block : page->blocks) {
      if (block.used.load(std::memory_order_acquire) == 0) continue;
      char text[kTextBytes], path[sizeof signal_prefix + 16] = {};
      const std::size_t bytes = operations_text(text, block, scale, "asked by a signal");
      if (signal_prefix[0] != '\0')
        *fmt::format_to_n(path, sizeof path - 1, "{}.rank{}", signal_prefix, block.known_as).out = '\0';
      append(path, {text, bytes});
    }
  }
  errno = error;
}

}  // namespace

std::string_view to_string(OperationRecord::State state) noexcept {
  switch (state) {
    case OperationRecord::State::issued: return "issued";
    case OperationRecord::State::started: return "started";
    case OperationRecord::State::finished: return "finished";
    case OperationRecord::State::failed: return "failed";
  }
  return "unknown state";
}

OperationShape shape_of(const Signature& signature, const Plan& plan) noexcept {
  OperationShape shape{.count = signature.count,
                       .collective = static_cast<std::uint8_t>(signature.collective),
                       .type = static_cast<std::uint8_t>(signature.type),
                       .op = static_cast<std::uint8_t>(signature.op),
                       .element_bytes = static_cast<std::uint8_t>(size_of(signature.type))};
  shape.long_enough = shape.bytes() >= kLongEnough;
  fmt::format_to_n(shape.plan, sizeof shape.plan - 1, "{}{}{}", plan.name, plan.protocol.empty() ? "" : "/",
                   plan.protocol);
  return shape;
}

FlightRecorder::FlightRecorder(const Identity& who) : block_(claim_block()) {
  block_.rank = who.rank;
  block_.size = who.size;
  block_.hosts = who.hosts;
  block_.known_as = who.known_as;
  copy_text(block_.transport, who.transport);
  copy_text(block_.backend, who.backend);
}

const OperationEntry* FlightRecorder::fail(std::uint64_t sequence) noexcept {
  OperationEntry& failed = entry(sequence);
  if (failed.sequence.load(std::memory_order_relaxed) != sequence || !is(failed, OperationRecord::State::started))
    return nullptr;
  failed.finished = failed.started != 0 ? ticks_now() : 0;
  failed.state = static_cast<std::uint8_t>(OperationRecord::State::failed);
  return &failed;
}

void FlightRecorder::copy_name(OperationEntry& entry, std::string_view name) noexcept { copy_text(entry.name, name); }

std::uint32_t FlightRecorder::draw() noexcept {
  random_ = random_ * 1664525 + 1013904223;
  until_timed_ = 16 + (random_ >> 27);
  return std::exchange(next_sample_weight_, until_timed_);
}

/// Removes a call from the sample, because only calls that complete in their first attempt belong to it. If the call
/// was chosen for the sample, the next call is sampled in its place. If the call was not chosen, its time starts now,
/// and the next sampled call comes one call later.
void FlightRecorder::lasts(std::uint64_t sequence, std::uint32_t sample_weight) noexcept {
  if (sample_weight > 0) {
    until_timed_ = 1;
    next_sample_weight_ = sample_weight;
  } else {
    ++until_timed_;
    entry(sequence).started = ticks_now();
  }
}

void FlightRecorder::waits_for(std::uint64_t sequence, const Missing& missing) noexcept {
  if (missing.ranks == 0) return;
  OperationEntry& waiting = entry(sequence);
  waiting.waits_for = missing.first;
  waiting.missing = static_cast<std::uint16_t>(std::min(missing.ranks, 0xffff));
}

OperationRecord FlightRecorder::record_of(std::uint64_t sequence, const OperationShape& shape, std::string_view name,
                                          std::uint64_t issued) const {
  return {.sequence = sequence,
          .collective = static_cast<Collective>(shape.collective),
          .count = shape.count,
          .type = static_cast<DataType>(shape.type),
          .op = static_cast<ReduceOp::Kind>(shape.op),
          .plan = std::string(text_of(shape.plan)),
          .name = std::string(name),
          .issued = time_of(issued)};
}

OperationRecord::Time FlightRecorder::time_of(std::uint64_t ticks) const noexcept {
  return OperationRecord::Time(
      std::chrono::nanoseconds(ticks == 0 ? 0 : TickScale(page_of_this_process()->begun).at(ticks)));
}

std::vector<OperationRecord> FlightRecorder::recent() const {
  std::vector<OperationRecord> records;
  for_each_operation(block_, [&](const OperationEntry& entry) {
    OperationRecord& record = records.emplace_back(
        record_of(entry.sequence.load(std::memory_order_relaxed), entry.shape, text_of(entry.name), entry.issued));
    record.state = static_cast<OperationRecord::State>(entry.state);
    record.started = time_of(entry.started);
    if (entry.issued == 0) record.issued = record.started;
    record.finished = time_of(entry.finished);
    record.waited_for = entry.waits_for;
  });
  return records;
}

std::vector<MessageRecord> FlightRecorder::recent_messages() const {
  std::vector<MessageRecord> records;
  for_each_message(block_, [&](const MessageEntry& entry) {
    records.push_back({.number = entry.number.load(std::memory_order_relaxed),
                       .sends = entry.sends != 0,
                       .peer = entry.peer,
                       .source = entry.source,
                       .tag = entry.tag,
                       .count = entry.count,
                       .type = static_cast<DataType>(entry.type),
                       .state = static_cast<OperationRecord::State>(entry.state)});
  });
  return records;
}

Counters FlightRecorder::counters() const {
  const TickScale scale(page_of_this_process()->begun);
  Counters counters;
  for (std::size_t c = 0; c < counters.collectives.size(); ++c) {
    const CollectiveTotals& totals = block_.totals[c];
    counters.collectives[c] = {.calls = totals.calls,
                               .bytes = totals.bytes,
                               .time = std::chrono::nanoseconds(scale.length(totals.ticks)),
                               .waiting = std::chrono::nanoseconds(scale.length(totals.waiting_ticks))};
  }
  return counters;
}

std::string_view operation_text(const OperationEntry& entry, const TickScale& scale, std::span<char> space,
                                bool with_age) noexcept {
  Text out(space);
  add_operation(out, entry, scale, with_age);
  return {space.data(), out.size()};
}

std::size_t operations_text(std::span<char> space, const CommunicatorBlock& block, const TickScale& scale,
                            std::string_view why, std::string_view progress_text) noexcept {
  Text out(space);
  out.add("rank {} of {}, communicator {} of process {}, ", block.rank, block.size,
          block.used.load(std::memory_order_relaxed), block.process);
  out.add_now();
  out.add(": {}\n", why);
  if (!progress_text.empty()) out.add("  {}\n", progress_text);
  for_each_operation(block, [&](const OperationEntry& entry) {
    out.add("  ");
    add_operation(out, entry, scale, true);
    out.add("\n");
  });
  for_each_message(block, [&](const MessageEntry& entry) {
    out.add("  ");
    add_message(out, entry);
    out.add("\n");
  });
  if (block.issued > block.started) out.add("  {} more issued behind it\n", block.issued - block.started);
  return out.size();
}

void FlightRecorder::write_out(const std::string& path, std::string_view why,
                               std::string_view progress_text) const noexcept {
  char text[kTextBytes];
  const std::size_t bytes = operations_text(text, block_, TickScale(page_of_this_process()->begun), why, progress_text);
  const Descriptor file = open_to_append(path.c_str());
  if (!file || write_all(file.fd(), {text, bytes}) != bytes)
    log_warning(block_.rank, "COLLECTIVES_FLIGHT_RECORDER: {}: {}", path, file_error_text(errno));
}

std::string recorder_path(std::string_view prefix, Rank rank) {
  static std::once_flag looked;
  std::call_once(looked, [&] {
    const std::string parent = std::filesystem::path(prefix).parent_path();
    const std::string directory = parent.empty() ? "." : parent;
    if (::access(directory.c_str(), W_OK | X_OK) != 0)
      log_warning(rank, "COLLECTIVES_FLIGHT_RECORDER: {}: {}: nothing can be written there", directory,
                  std::strerror(errno));
  });
  return fmt::format("{}.rank{}", prefix, rank);
}

void write_out_on_signal(int signal, std::string_view prefix) noexcept {
  static std::mutex mutex;
  const std::lock_guard lock(mutex);
  if (signal_in_use.load(std::memory_order_relaxed) != kUnset) return;
  signal_in_use.store(signal, std::memory_order_relaxed);
  struct sigaction now {};
  if (::sigaction(signal, nullptr, &now) != 0 || now.sa_handler != SIG_DFL) {
    log_warning(kNoRank, "COLLECTIVES_DUMP_SIGNAL: the program handles {} itself, so it writes nothing out",
                ::sigabbrev_np(signal));
    return;
  }
  copy_text(signal_prefix, prefix);
  struct sigaction ours {};
  ours.sa_handler = on_signal;
  ours.sa_flags = SA_RESTART;
  ::sigaction(signal, &ours, nullptr);
}

}  // namespace collectives
