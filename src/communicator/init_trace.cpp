// Implementation of trace_identity(), which opens a trace while a communicator is constructed. A trace has one file per
// host. On each host except rank 0's, the first rank also measures by how much the host's clock differs from rank 0's.
#include "communicator/init_trace.hpp"

#include <algorithm>
#include <memory>
#include <mutex>
#include <nlohmann/json.hpp>
#include <optional>

#include "base/environment.hpp"
#include "base/fork.hpp"
#include "bootstrap/exchange.hpp"
#include "communicator/wire_speed.hpp"

namespace collectives {
namespace {

// A trace identity is the file and the rank for a thread's events. `of_thread` is the identity of this thread, and
// `of_process` is the first identity of the process.
thread_local std::optional<TraceIdentity> of_thread;
std::optional<TraceIdentity> of_process;
std::mutex mutex;  // protects of_process; fork() waits until it is free

/// Opens the trace file of this rank's host. The first rank of the host creates the file. If rank 0 is on another
/// host, the first rank also compares its clock with that of rank 0.
std::shared_ptr<TraceFile> begin_trace(Bootstrap& bootstrap, const CommunicatorContext& context, Deadline deadline) {
  const auto& hosts = context.topology.hosts;
  const auto here = static_cast<std::size_t>(
      std::ranges::find_if(hosts, [&](const auto& ranks) { return std::ranges::count(ranks, context.rank) > 0; }) -
      hosts.begin());
  const Rank leader = hosts[here].front();
  const auto end_to = [&](Rank other) {
    return WireEnd{*context.wire, context.rank, other, deadline, [&] { bootstrap.check_peers(); }};
  };
  std::shared_ptr<TraceFile> file;
  const auto told = exchange(bootstrap, attempt([&] {
                               nlohmann::json mine = nlohmann::json::object();
                               if (context.rank == 0)
                                 mine["bytes"] = environment().trace_bytes.value_or(TraceFile::kMostBytes);
                               if (context.rank != leader) return mine;
                               if (here > 0) mine["offset"] = ask_for_clock(end_to(hosts[0].front()));
                               for (std::size_t host = 1; here == 0 && host < hosts.size(); ++host)
                                 answer_with_clock(end_to(hosts[host].front()));
                               file = std::make_shared<TraceFile>(context.trace, here, true);
                               return mine;
                             }),
                             deadline);
  exchange(bootstrap, attempt([&] {  // the other ranks open the file after the first one has created it
             if (file == nullptr) file = std::make_shared<TraceFile>(context.trace, here, false);
             return nlohmann::json::object();
           }),
           deadline);
  file->most_bytes = told[0].at("bytes").get<std::size_t>();
  file->clock_offset = told[static_cast<std::size_t>(leader)].value("offset", std::int64_t{0});
  return file;
}

}  // namespace

bool has_trace_identity() {
  hold_over_forks<mutex>();
  const std::lock_guard lock(mutex);
  return of_thread || of_process;
}

TraceIdentity trace_identity(Bootstrap& bootstrap, const CommunicatorContext& context, Deadline deadline) {
  std::shared_ptr<TraceFile> file;
  if (!context.trace.empty()) file = begin_trace(bootstrap, context, deadline);
  hold_over_forks<mutex>();
  const std::lock_guard lock(mutex);
  if (!of_thread) {
    of_thread = of_process && file == nullptr ? *of_process : TraceIdentity{context.rank, file};
    if (context.threads) of_thread->rank = context.rank;
    if (!of_process) of_process = of_thread;
  }
  return *of_thread;
}

}  // namespace collectives
