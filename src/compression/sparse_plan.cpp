#include "compression/sparse_plan.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace collectives {
namespace {

/// Choosing reads the gradient, reads and writes the residual; the result is written once, and mostly zero.
constexpr double kPassesOverAll = 4;
/// What has been chosen is written, read, checked and added one by one: as if each entry were so many bytes.
constexpr double kBytesOfWorkPerEntry = 48;

}  // namespace

SparsePlan plan_sparse(const Request& request, std::size_t k, DataType values, const Plan& dense,
                       const Topology& topology, const Tuning& tuning) {
  SparsePlan plan;
  plan.n = request.count;
  plan.k = std::min(k, request.count);
  plan.values = values;
  const int ranks = topology.ranks(), hosts = static_cast<int>(topology.hosts.size());
  // What is deterministic is added in rank order, past the hosts.
  plan.in_hosts = !topology.one_host() && ranks > hosts && !request.deterministic;
  plan.members = plan.in_hosts ? hosts : ranks;
  const auto slices =
      plan.in_hosts ? static_cast<int>(std::ranges::min(topology.hosts, {}, &std::vector<Rank>::size).size()) : 1;
  std::size_t bytes = 0;  // out of a rail's ends, all rails together
  for (int s = 0; s < slices; ++s) bytes += plan.format(slices, s).bytes();

  const auto others = static_cast<double>(plan.members - 1), all = static_cast<double>(4 * plan.n);
  const double entries = static_cast<double>(plan.k) * plan.members / slices;
  const double work = (kPassesOverAll * all / slices + kBytesOfWorkPerEntry * entries) * tuning.coding_us_per_byte;
  const double sent = others * static_cast<double>(bytes);
  // A host with several ranks that exchange past it sends what all of them have chosen.
  const double on_link =
      plan.in_hosts || topology.one_host()
          ? sent
          : sent * static_cast<double>(std::ranges::max(topology.hosts, {}, &std::vector<Rank>::size).size());
  const double wire = topology.one_host() ? tuning.message_us * others + sent * tuning.message_us_per_byte
                                          : tuning.wire_us + others * tuning.wire_message_us +
                                                on_link * (tuning.wire_us_per_byte + tuning.wire_work_us_per_byte);
  const double inside = plan.in_hosts ? 2 * (tuning.host_latency_us + all * tuning.host_us_per_byte) : 0;
  plan.microseconds = work + wire + inside;

  const auto refuse = [&](std::string why) {
    plan.reason = std::move(why);
    return plan;
  };
  if (ranks == 1) return refuse("everything: there is one rank");
  if (plan.n == 0) return refuse("nothing: the tensor is empty");
  if (!request.force) {
    if (topology.one_host()) return refuse("everything: ranks that share memory have no wire to save");
    if (plan.microseconds >= dense.estimate.microseconds)
      return refuse(fmt::format("everything: top {} would take {:.1f} us, {} {:.1f} us", plan.k, plan.microseconds,
                                dense.name, dense.estimate.microseconds));
  }
  plan.sparse = true;
  return refuse(fmt::format("top {} of {}{}: {:.1f} us, everything by {} {:.1f} us", plan.k, plan.n,
                            request.force ? ", as forced" : "", plan.microseconds, dense.name,
                            dense.estimate.microseconds));
}

}  // namespace collectives
