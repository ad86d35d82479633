// Implementation of trace_identity(), which opens the trace while a communicator is constructed. A trace is a file with
// the times of operations. Ranks of one host may share a file. Ranks of different hosts never do.
//
// Each rank reads the path of its file from its own environment. Ranks exchange hashes of these paths, never the paths.
// The steady clocks of two hosts differ. The first rank of each host therefore measures how far its clock differs from
// the clock of rank 0. Readers of the files can then compare times of different hosts.
#include "communicator/init_trace.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <mutex>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <system_error>

#include "base/environment.hpp"
#include "base/fork.hpp"
#include "bootstrap/exchange.hpp"
#include "communicator/wire_speed.hpp"

namespace collectives {
namespace {

// Trace identities of this thread and of this process. A trace identity is the file for events, and the rank that the
// events state. `of_process` is the identity of the first thread that constructed a communicator in this process.
thread_local std::optional<TraceIdentity> of_thread;
std::optional<TraceIdentity> of_process;
std::mutex mutex;  // protects of_process; fork() waits until it is free

/// Maximum difference of two hosts' steady clocks in nanoseconds: 100 years.
constexpr std::int64_t kMostOffset = std::int64_t{100} * 366 * 24 * 3600 * 1'000'000'000;

/// Opens and returns this rank's trace file. Returns null if this rank has no trace. If several ranks of a host have
/// the same path, the first of them creates or empties the file. On every host but that of rank 0, the first rank
/// measures how far its clock differs from the clock of rank 0. It does so even if it has no trace. All ranks take part
/// in the same two exchanges.
std::shared_ptr<TraceFile> begin_trace(Bootstrap& bootstrap, const CommunicatorContext& context, Deadline deadline) {
  const auto& hosts = context.topology.hosts;
  const auto here = static_cast<std::size_t>(
      std::ranges::find_if(hosts, [&](const auto& ranks) { return std::ranges::count(ranks, context.rank) > 0; }) -
      hosts.begin());
  const Rank leader = hosts[here].front();
  const auto end_to = [&](Rank other) {
    return WireEnd{*context.wire, context.rank, other, deadline, [&] { bootstrap.check_peers(); }};
  };
  const auto number_of = [&](Rank rank) { return context.trace_numbers[static_cast<std::size_t>(rank)]; };
  const std::string mine = number_of(context.rank);
  const bool begins = context.rank == *std::ranges::find(hosts[here], mine, number_of);
  std::shared_ptr<TraceFile> file;
  const auto told =
      exchange_result(bootstrap, attempt([&] {
                        nlohmann::json record = nlohmann::json::object();
                        if (context.rank == leader && here > 0)
                          record["offset"] = ask_for_clock(end_to(hosts[0].front()));
                        for (std::size_t host = 1; context.rank == hosts[0].front() && host < hosts.size(); ++host)
                          answer_with_clock(end_to(hosts[host].front()));
                        if (!mine.empty() && begins) file = std::make_shared<TraceFile>(context.trace, here, true);
                        return record;
                      }),
                      deadline);
  exchange(bootstrap, attempt([&] {  // the other ranks open the file after the first one has created it
             if (!mine.empty() && !begins) file = std::make_shared<TraceFile>(context.trace, here, false);
             return nlohmann::json::object();
           }),
           deadline);
  if (file == nullptr) return nullptr;
  file->most_bytes = environment().trace_bytes.value_or(TraceFile::kMostBytes);
  const JsonRecord& of_leader = told[static_cast<std::size_t>(leader)];
  if (of_leader.has("offset"))
    file->clock_offset = of_leader.integer<std::int64_t>("offset", -kMostOffset, kMostOffset);
  return file;
}

}  // namespace

std::string trace_number(const std::string& path) {
  hold_over_forks<mutex>();
  const std::lock_guard lock(mutex);
  if (path.empty() || of_thread || of_process) return "";
  std::error_code unknown;  // a folder that was removed
  const std::string absolute = std::filesystem::absolute(path, unknown).string();
  return fmt::format("{:016x}", std::hash<std::string>()(absolute));
}

TraceIdentity trace_identity(Bootstrap& bootstrap, const CommunicatorContext& context, Deadline deadline) {
  std::shared_ptr<TraceFile> file;
  if (std::ranges::any_of(context.trace_numbers, [](const std::string& number) { return !number.empty(); }))
    file = begin_trace(bootstrap, context, deadline);
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
