// Implementation of nccl_comm_init() and nccl_comm_split(), which connect ranks by NCCL.
//
// In nccl_comm_init(), the first rank makes an id with NCCL, and sends the id to the other ranks over the bootstrap.
// All ranks pass this id to NCCL, which connects them in the background. Meanwhile, each rank checks in a loop whether
// NCCL is ready, and whether another rank has failed. In a second exchange, each rank reports whether it is connected,
// so that all ranks succeed or all throw an error.
#include "communicator/nccl_init.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/hex.hpp"
#include "base/reported_wait.hpp"
#include "base/wait.hpp"
#include "bootstrap/exchange.hpp"

namespace collectives {
namespace {

using nlohmann::json;

/// Calls `work`. If `work` throws an Error, reports it to all ranks. Then throws the first failure that any rank has
/// reported, so that all ranks throw the same error.
template <class Work>
void for_all(std::string_view operation, const CommunicatorContext& context, FailureDetector& failure_detector,
             Work&& work) {
  try {
    work();
  } catch (const Error& error) {
    failure_detector.report_failure(error.code(), context.rank, operation,
                                    fmt::format("{}: rank {}: {}", operation, context.rank, error.what()));
    failure_detector.throw_failure();
  }
}

/// Blocks until `nccl_comm` is ready. Throws Error if another rank has failed, or if the deadline has passed. Also
/// throws Error if the process of a rank has ended before the rank completed call number `sequence`. Reports errors of
/// this rank to all ranks.
void wait_until_ready(NcclComm& nccl_comm, std::string_view operation, std::uint64_t sequence,
                      const CommunicatorContext& context, FailureDetector& failure_detector, Deadline deadline) {
  for_all(operation, context, failure_detector, [&] {
    CollectiveBackoff backoff(context.oversubscribed);
    ReportedWait waiting("connect by NCCL", context.rank, deadline, {}, [&] {
      failure_detector.check_control();
      failure_detector.check_lost_peers({.sequence = sequence, .signature = {}, .operation = operation});
    });
    while (!nccl_comm.ready())
      if (backoff.wait() && waiting.is_over()) throw Error(Errc::timeout, "NCCL has not connected all ranks in time");
  });
}

}  // namespace

std::unique_ptr<NcclComm> nccl_comm_init(Bootstrap& bootstrap, const CommunicatorContext& context,
                                         std::span<const Rank> members, FailureDetector& failure_detector,
                                         std::chrono::nanoseconds timeout) {
  const Deadline deadline = Deadline::in(timeout);
  const Rank first = members.front();
  const auto self = static_cast<Rank>(std::ranges::find(members, context.rank) - members.begin());
  const JsonRecord told = exchange(bootstrap, attempt([&] {
                                     json peer_info = json::object();
                                     if (context.rank == first) peer_info["id"] = to_hex(context.nccl->new_id());
                                     return peer_info;
                                   }),
                                   deadline)[static_cast<std::size_t>(first)];
  const auto id = from_hex(told.text("id"));
  if (!id) told.refuse("\"id\" is no hexadecimal text");
  std::unique_ptr<NcclComm> nccl_comm;
  const json mine = attempt([&] {
    for_all("construction", context, failure_detector, [&] {
      context.device->while_current(
          [&] { nccl_comm = context.nccl->join(static_cast<int>(members.size()), *id, self); });
    });
    wait_until_ready(*nccl_comm, "construction", 1, context, failure_detector, deadline);
    return json::object();
  });
  // If the process of a rank has ended, the exchange below would wait for this rank in vain. This rank therefore throws
  // without the exchange.
  if (mine.contains("error") && mine.at("code").get<int>() == static_cast<int>(Errc::peer_lost))
    failure_detector.throw_failure();
  // After this exchange every rank knows whether all are connected.
  const std::vector<JsonRecord> all = exchange(bootstrap, mine, Deadline::in(timeout), OnError::collect);
  const auto failed = std::ranges::find_if(all, [](const JsonRecord& one) { return one.has("error"); });
  if (failed == all.end()) return nccl_comm;
  throw Error(code_in(*failed), error_in(*failed), context.rank, static_cast<Rank>(failed - all.begin()),
              "construction");
}

std::unique_ptr<NcclComm> nccl_comm_split(NcclComm& nccl_comm, int color, int key, std::uint64_t sequence,
                                          const CommunicatorContext& context, FailureDetector& failure_detector,
                                          Deadline deadline) {
  std::unique_ptr<NcclComm> part;
  for_all("split", context, failure_detector, [&] { part = nccl_comm.split(color, key); });
  wait_until_ready(*part, "split", sequence, context, failure_detector, deadline);
  return part;
}

}  // namespace collectives
