// Implementation of Observer, which records the operations of a communicator, so that users can look for errors.
//
// Observer records operations in three places. The flight recorder keeps the last 64 operations in memory. The trace is
// a file with times of operations. The log is a text for users. The trace and the log are written only on request.
//
// The begin and the end of every call are recorded. The functions that do so are inline in observer.hpp, because they
// must be fast. The functions in this file record rare events: a new communicator, and an operation that waits long or
// fails.
#include "communicator/observer.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <new>
#include <ranges>

#include "base/log.hpp"
#include "base/text.hpp"
#include "communicator/communicator_init.hpp"

namespace collectives {
namespace {

/// Returns a text such as "4 ranks on 2 hosts (2, 2)".
std::string shape_text(const Topology& topology) {
  const auto sizes = topology.hosts | std::views::transform([](const auto& ranks) { return ranks.size(); });
  const int ranks = topology.ranks();
  std::string text = fmt::format("{} rank{}", ranks, ranks == 1 ? "" : "s");
  if (topology.hosts.size() > 1) text += fmt::format(" on {} hosts ({})", sizes.size(), fmt::join(sizes, ", "));
  return text;
}

std::string timeout_text(std::chrono::nanoseconds timeout) {
  return timeout == std::chrono::nanoseconds::max()
             ? "none"
             : fmt::format("{:g} s", std::chrono::duration<double>(timeout).count());
}

}  // namespace

Observer::Observer(const CommunicatorContext& context, const Settings& settings, std::string_view transport,
                   bool progress_thread, const std::optional<TraceIdentity>& trace)
    : recorder_({.rank = context.rank,
                 .size = context.topology.ranks(),
                 .hosts = static_cast<int>(context.topology.hosts.size()),
                 .known_as = trace ? trace->rank : context.rank,
                 .transport = transport,
                 .backend = settings.backend}),
      rank_(context.rank) {
  if (!trace) return;
  const std::string title = fmt::format("communicator {}", recorder_.number());
  if (trace->file != nullptr) trace_ = std::make_unique<Trace>(*trace, recorder_.number(), title);
  in_detail_ = trace_ != nullptr || log_level() >= LogLevel::debug;
  if (!settings.flight_recorder.empty()) path_ = recorder_path(settings.flight_recorder, trace->rank);
  if (settings.dump_signal) write_out_on_signal(*settings.dump_signal, settings.flight_recorder);
  if (rank_ == 0)
    log_info(rank_, "{}: {}, {}, backend {}, deadline {}, tuning {}, progress thread {}", title,
             shape_text(context.topology), transport, settings.backend, timeout_text(settings.timeout),
             context.tuning.source, progress_thread ? "on" : "off");
}

void Observer::write_entry(const OperationEntry& entry) noexcept {
  if (trace_ != nullptr) trace_->operation(entry);
  if (log_level() < LogLevel::debug) return;
  char line[256];
  log_debug(rank_, "{}", operation_text(entry, TickScale(page_of_this_process()->begun), line, false));
}

void Observer::last(Operation& operation) noexcept {
  if (operation.sample_weight == 1) return;
  if (operation.phase.load(std::memory_order_relaxed) == Operation::Phase::running)
    recorder_.lasts(operation.sequence, operation.sample_weight);
  operation.sample_weight = 1;
}

void Observer::waited(const Operation& operation, std::uint64_t from) noexcept {
  const Collective collective = operation.call->signature.collective;
  recorder_.waited(collective, ticks_now() - from);
  if (trace_ != nullptr) trace_->program("wait for", from, operation.sequence, collective);
}

void Observer::chosen(std::uint64_t from) noexcept {
  if (trace_ != nullptr) trace_->program("choose for", from, recorder_.issued() + 1, Collective::all_reduce);
}

void Observer::write_out(std::string_view why, const FailureDetector& failure_detector) const noexcept {
  if (path_.empty()) return;
  try {
    recorder_.write_out(path_, why, failure_detector.arrivals().progress_text());
  } catch (const std::bad_alloc&) {
    recorder_.write_out(path_, why, {});
  }
}

void Observer::fail_too(const Operation& operation) noexcept {
  const OperationEntry* const entry = recorder_.fail(operation.sequence);
  if (entry != nullptr && in_detail_) write_entry(*entry);
}

void Observer::fail(const Operation& operation, const std::exception_ptr& error,
                    const FailureDetector& failure_detector) noexcept {
  fail_too(operation);
  try {
    std::rethrow_exception(error);
  } catch (const std::exception& why) {
    write_failure(why.what(), failure_detector);
  }
}

void Observer::look(const Operation& operation, const Missing& missing) noexcept {
  recorder_.waits_for(operation.sequence, missing);
  if (trace_ != nullptr) trace_->idle();
}

void Observer::stall(std::string_view line, const FailureDetector& failure_detector) noexcept {
  log_warning(rank_, "{}{}{}", line, path_.empty() ? "" : "; see ", path_);
  write_out(line, failure_detector);
}

}  // namespace collectives
