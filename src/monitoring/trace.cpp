// Implementation of Trace and TraceFile, which record when the operations of a communicator ran. They write a JSON file
// that trace viewers show as a time line. An event is one entry of that file. This file stores events in a buffer,
// converts them to JSON, and writes them.
#include "monitoring/trace.hpp"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstring>
#include <iterator>
#include <utility>

#include "base/error_text.hpp"
#include "base/log.hpp"
#include "base/safe_file.hpp"
#include "collectives/version.hpp"
#include "monitoring/flight_recorder.hpp"

namespace collectives {
namespace {

/// Number of events that the buffer can hold.
constexpr std::size_t kBufferedEvents = 1024;
/// kTraceTextBytes is the size in bytes of the buffer for JSON text. kLongestEvent is the maximum length of the text of
/// one event in bytes.
constexpr std::size_t kTraceTextBytes = 64 << 10, kLongestEvent = 2048;

/// Appends `text`, escaped for a JSON string. Writes a question mark for each unprintable byte. Reason: long names are
/// cut, and the cut may leave a part of a multi-byte letter, which JSON does not permit.
char* add_escaped(char* to, std::string_view text) {
  for (const char c : text)
    if (c == '"' || c == '\\')
      to = fmt::format_to(to, "\\{}", c);
    else
      *to++ = c < 0x20 || c > 0x7e ? '?' : c;
  return to;
}

std::string_view name_of(Trace::Phase phase) noexcept {
  switch (phase) {
    case Trace::Phase::none: break;
    case Trace::Phase::host_collective: return "intra-host collective";
    case Trace::Phase::messages: return "messages";
    case Trace::Phase::between_hosts: return "between hosts";
    case Trace::Phase::coding: return "coding";
    case Trace::Phase::top_k: return "top-k";
  }
  return "";
}

}  // namespace

TraceFile::TraceFile(const std::string& path, std::size_t host, bool begins)
    : path_(host == 0 ? path : fmt::format("{}.host{}", path, host)),
      fd_(begins ? open_to_overwrite(path_.c_str()).release() : open_to_append(path_.c_str()).release()) {
  if (fd_ < 0)
    throw Error(Errc::system, fmt::format("COLLECTIVES_TRACE: opening {}: {}", path_, file_error_text(errno)));
  if (begins && host == 0)
    append(
        fmt::format("[\n{{\"ph\":\"M\",\"pid\":0,\"name\":\"process_labels\",\"args\":{{\"labels\":\"collectives "
                    "{}\"}}}}",
                    version()));
}

TraceFile::~TraceFile() {
  if (fd_ >= 0) ::close(fd_);
}

void TraceFile::append(std::string_view events) noexcept {
  if (fd_ < 0) return;
  const std::size_t written = write_all(fd_, events);
  const int error = errno;
  struct stat file {};
  const bool seen = ::fstat(fd_, &file) == 0 && S_ISREG(file.st_mode);
  if (written == events.size()) {
    if (seen && static_cast<std::size_t>(file.st_size) >= most_bytes)
      end("it is as long as COLLECTIVES_TRACE_BYTES allows");
    return;
  }
  // The write has failed in the middle of an event. Removes the written part of this event from the file, unless
  // another rank has already written behind it.
  const std::size_t event = events.substr(0, written).rfind(",\n");
  const std::size_t whole = event == events.npos ? 0 : event;
  if (seen && ::lseek(fd_, 0, SEEK_CUR) == file.st_size)
    (void)!::ftruncate(fd_, file.st_size - static_cast<off_t>(written - whole));
  end(std::strerror(error));
}

void TraceFile::end(std::string_view why) noexcept {
  log_warning(kNoRank, "COLLECTIVES_TRACE: {}: {}: the trace ends here", path_, why);
  ::close(fd_.exchange(-1));
}

Trace::Trace(const TraceIdentity& identity, std::uint32_t communicator, std::string_view title)
    : identity_(identity), track_(2 * communicator), events_(kBufferedEvents), text_(kTraceTextBytes) {
  char name[HOST_NAME_MAX + 1] = "?";
  ::gethostname(name, sizeof name - 1);
  const auto describe = [&](std::uint32_t track, std::string_view what, std::string_view value) {
    return fmt::format(",\n{{\"ph\":\"M\",\"pid\":{},\"tid\":{},\"name\":\"{}\",\"args\":{}}}", identity_.rank, track,
                       what, value);
  };
  const auto named = [](std::string_view text) { return fmt::format("{{\"name\":\"{}\"}}", text); };
  identity_.file->append(
      describe(0, "process_name", named(fmt::format("rank {} ({}, process {})", identity_.rank, name, ::getpid()))) +
      describe(0, "process_sort_index", fmt::format("{{\"sort_index\":{}}}", identity_.rank)) +
      describe(track_, "thread_name", named(fmt::format("{}: operations", title))) +
      describe(track_ + 1, "thread_name", named(fmt::format("{}: program", title))));
}

Trace::Event& Trace::add(Event::Kind kind, std::string_view what, std::uint64_t from) noexcept {
  if (buffered_ == events_.size()) flush();
  Event& event = events_[buffered_++];
  event.kind = kind;
  event.what = what;
  event.from = from;
  event.to = ticks_now();
  return event;
}

void Trace::change_phase(Phase next) noexcept {
  if (phase_ != Phase::none)
    add(Event::Kind::phase, name_of(phase_), phase_since_).entry.sequence.store(sequence_, std::memory_order_relaxed);
  phase_ = next;
  phase_since_ = ticks_now();
}

void Trace::operation(const OperationEntry& entry) noexcept {
  phase(Phase::none);
  Event& event = add(Event::Kind::operation, {}, entry.started);
  event.to = entry.finished;
  std::memcpy(static_cast<void*>(&event.entry), static_cast<const void*>(&entry), sizeof entry);
  idle();
}

void Trace::program(std::string_view what, std::uint64_t from, std::uint64_t sequence, Collective collective) noexcept {
  Event& event = add(Event::Kind::program, what, from);
  event.entry.sequence.store(sequence, std::memory_order_relaxed);
  event.entry.shape.collective = static_cast<std::uint8_t>(collective);
}

void Trace::flush() noexcept {
  const TickScale scale(begun_);
  char* to = text_.data();
  const auto write_text = [&] {
    if (to != text_.data()) identity_.file->append({text_.data(), static_cast<std::size_t>(to - text_.data())});
    to = text_.data();
  };
  for (std::size_t i = 0; i < buffered_; ++i) {
    to = write(events_[i], scale, to);
    if (to > text_.data() + text_.size() - kLongestEvent) write_text();
  }
  write_text();
  buffered_ = 0;
  flushed_ = coarse_now();
}

/// Adjusts the times of an event, so that any two events are nested or disjoint. Viewers require this. Each write of
/// the buffer to the file measures the length of a clock tick anew. Without the adjustment, events of two writes might
/// therefore overlap by less than a microsecond.
void Trace::fit(const Event& event, std::uint64_t& from, std::uint64_t& to) noexcept {
  if (event.kind == Event::Kind::program) return;
  from = std::max(from, operations_until_);
  if (event.kind == Event::Kind::phase) {
    from = std::max(from, phases_until_);
    if (first_phase_ == 0) first_phase_ = from;
    to = phases_until_ = std::max(to, from);
  } else {
    if (first_phase_ != 0) from = std::min(from, std::exchange(first_phase_, 0));
    to = operations_until_ = std::max({to, from, phases_until_});
  }
}

char* Trace::write(const Event& event, const TickScale& scale, char* to) {
  const auto time = [&](std::uint64_t ticks) {
    return scale.at(ticks) + static_cast<std::uint64_t>(identity_.file->clock_offset);
  };
  const auto us = [&](std::string_view name, std::uint64_t nanoseconds) {
    to = fmt::format_to(to, "\"{}\":{}.{:03}", name, nanoseconds / 1000, nanoseconds % 1000);
  };
  const OperationEntry& entry = event.entry;
  const auto collective = to_string(static_cast<Collective>(entry.shape.collective));
  const std::uint64_t sequence = entry.sequence.load(std::memory_order_relaxed);
  std::uint64_t from = time(event.from), until = time(event.to);
  fit(event, from, until);
  to = fmt::format_to(to, ",\n{{\"ph\":\"X\",\"pid\":{},\"tid\":{},", identity_.rank,
                      track_ + (event.kind == Event::Kind::program ? 1 : 0));
  us("ts", from);
  *to++ = ',';
  us("dur", until - from);
  if (event.kind != Event::Kind::operation) {
    if (event.kind == Event::Kind::program)
      to = fmt::format_to(to, ",\"cat\":\"program\",\"name\":\"{} {} #{}\"", event.what, collective, sequence);
    else
      to = fmt::format_to(to, ",\"cat\":\"phase\",\"name\":\"{}\"", event.what);
    return fmt::format_to(to, ",\"args\":{{\"sequence\":{}}}}}", sequence);
  }
  const std::string_view tensor(entry.name), plan(entry.shape.plan);
  to = fmt::format_to(to, ",\"cat\":\"operation\",\"name\":\"{}{}", collective, tensor.empty() ? "" : " ");
  to = add_escaped(to, tensor);
  to = fmt::format_to(to, "\",\"args\":{{\"sequence\":{},\"collective\":\"{}\",\"count\":{},\"type\":\"{}\",", sequence,
                      collective, entry.shape.count, to_string(static_cast<DataType>(entry.shape.type)));
  to = fmt::format_to(to, "\"op\":\"{}\",\"bytes\":{},\"plan\":\"{}\",\"tensor\":\"",
                      to_string(static_cast<ReduceOp::Kind>(entry.shape.op)),
                      entry.shape.count * entry.shape.element_bytes, plan);
  to = add_escaped(to, tensor);
  to = fmt::format_to(to, "\",\"state\":\"{}\",", to_string(static_cast<OperationRecord::State>(entry.state)));
  if (entry.waits_for != kNoRank) to = fmt::format_to(to, "\"waited_for\":{},", entry.waits_for);
  us("queued_us", entry.issued == 0 ? 0 : scale.length(entry.started - entry.issued));
  return fmt::format_to(to, "}}}}");
}

}  // namespace collectives
