// Implementation of the sparse plan, the plan of an all-reduce with a top-k compressor. The compressor selects k
// elements of the vector. A sparse call sends only these elements. A dense call sends the whole vector.
//
// The function plan_sparse() chooses a sparse or a dense call. On one host, it chooses the dense call, because shared
// memory is fast. On several hosts, it estimates the times of the sparse and the dense call, and chooses the faster
// one. Exception: a forced or `deterministic` call of several ranks is always sparse. A sparse call has one of two
// forms, gathered or split (compression/top_k/sparse_exchange.hpp). If the options name no form, plan_sparse() chooses
// the faster one.
//
// The members of a sparse call exchange the selected elements. Each rank is a member on one host, if each host has one
// rank, or if the call is `deterministic`. In all other calls, each host is a member: its ranks first add their values,
// and each rank then selects elements from its own slice of the sum.
#include "planning/sparse_plan.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "core/tuning.hpp"
#include "planning/device_path_choice.hpp"

namespace collectives {
namespace {

/// Number of times that a sparse all-reduce reads or writes a whole vector. The selection reads the gradient, reads the
/// residual (the sum of values not sent yet), and writes the residual. At the end, the result, mostly zeros, is
/// written.
constexpr double kPassesOverAll = 4;
/// Work per selected element, in bytes that a core copies in the same time. Selected elements cost more than their
/// bytes, because each is written, read, checked and added one by one.
constexpr double kBytesOfWorkPerEntry = 48;
/// Maximum ratio of the sparse to the dense time at which the sparse plan is chosen. Because a sparse call is less
/// precise, it must save more time than the estimates may be wrong.
constexpr double kWorthIt = 0.9;

/// Returns a sparse plan with numbers of members and slices. Leaves its form open.
SparsePlan divide(const Request& request, std::size_t k, const TopKOptions& options, const Topology& topology) {
  SparsePlan plan;
  plan.n = request.count;
  plan.k = std::min(k, request.count);
  plan.values = options.values;
  const int ranks = topology.ranks(), hosts = static_cast<int>(topology.hosts.size());
  // In a deterministic call, the ranks of a host do not add their values first, because all sums follow the rank order.
  plan.in_hosts = !topology.one_host() && ranks > hosts && !request.deterministic;
  plan.members = plan.in_hosts ? hosts : ranks;
  // There are at most k slices, because every slice sends at least one element in every call.
  if (plan.in_hosts)
    plan.slices = static_cast<int>(std::min(std::ranges::min(topology.hosts, {}, &std::vector<Rank>::size).size(),
                                            std::max<std::size_t>(1, plan.k)));
  return plan;
}

/// Times of a sparse plan: microseconds per message and byte. They are longer if ranks share links or cores.
struct Prices {
  double per_message, per_byte;
  double ranks_per_core;
};

Prices prices_of(const SparsePlan& plan, const Topology& topology, const TuningParameters& tuning) {
  const auto m = static_cast<double>(plan.members);
  // Number of ranks of a host that send to other hosts. They share the link of the host.
  const double ends = plan.in_hosts || topology.one_host()
                          ? 1
                          : static_cast<double>(std::ranges::max(topology.hosts, {}, &std::vector<Rank>::size).size());
  // If there are more ranks than cores, each rank waits while other ranks use its core. Dense plans are estimated
  // alike.
  const double to_a_core = topology.ranks_to_a_core();
  const double talking = to_a_core * (plan.in_hosts ? m * plan.slices / topology.ranks() : 1);
  const double ranks_per_core = std::max(1.0, talking);
  return {
      .per_message = std::max(tuning.wire_message_us, to_a_core > 1 ? talking * message_inside_machine_us(tuning) : 0),
      .per_byte = std::max(ends * std::max(tuning.wire_us_per_byte, tuning.wire_together_us_per_byte),
                           2 * ranks_per_core / plan.slices * tuning.wire_work_us_per_byte),
      .ranks_per_core = ranks_per_core};
}

/// Returns the bytes of messages that hold `entries` entries together, one message for each slice.
double bytes_of(const SparsePlan& plan, double entries) {
  std::size_t bytes = 0;
  for (int s = 0; s < plan.slices; ++s)
    bytes += SparseFormat{part({0, plan.n}, plan.slices, s).count, static_cast<std::size_t>(entries / plan.slices),
                          plan.values}
                 .bytes();
  return static_cast<double>(bytes);
}

/// Estimated times of the two forms in microseconds, without the additions inside hosts.
struct FormTimes {
  double gathered, split;
};

/// Estimates both forms. `passes`: number of times that the whole vector is read or written.
FormTimes times_of(const SparsePlan& plan, double passes, const Topology& topology, const TuningParameters& tuning) {
  const auto m = static_cast<double>(plan.members), n = static_cast<double>(plan.n),
             chosen = static_cast<double>(plan.k);
  // Expected number of elements that at least one member selects, if selections are independent. Real selections
  // overlap more.
  const double union_size = n * (1 - std::pow(1 - chosen / std::max(n, 1.0), m));
  const Prices prices = prices_of(plan, topology, tuning);
  const auto exchange = [&](double latencies, double bytes) {
    return topology.one_host()
               ? latencies * tuning.message_us * (m - 1) + bytes * tuning.message_us_per_byte
               : latencies * (tuning.wire_us + 2 * (m - 1) * prices.per_message) + bytes * prices.per_byte;
  };
  const auto coding = [&](double entries) {
    return (passes * 4 * n / plan.slices + kBytesOfWorkPerEntry * entries / plan.slices) * prices.ranks_per_core *
           tuning.coding_us_per_byte;
  };
  return {.gathered = coding(m * chosen) + exchange(1, (m - 1) * bytes_of(plan, chosen)),
          .split = coding(3 * chosen + union_size) +
                   exchange(4, (m - 1) / m * (bytes_of(plan, chosen) + std::min(bytes_of(plan, union_size), 4 * n)))};
}

/// Chooses the form and fills in the estimate.
void choose_form(SparsePlan& plan, const Request& request, const TopKOptions& options, const Topology& topology,
                 const TuningParameters& tuning) {
  // A GPU reads and writes its own memory much faster than messages travel between hosts.
  const bool on_gpu =
      request.memory == Memory::device && why_not_chosen_on_gpu(plan.in_hosts, options, topology).empty();
  const auto [gathered, split] = times_of(plan, on_gpu ? 0 : kPassesOverAll, topology, tuning);
  plan.form = options.form != SparseForm::automatic ? options.form
              : split < gathered                    ? SparseForm::split
                                                    : SparseForm::gathered;
  const double all = 4 * static_cast<double>(plan.n);
  const double inside =
      plan.in_hosts ? 2 * (tuning.host_latency_us + topology.ranks_to_a_core() * all * tuning.host_us_per_byte) : 0;
  plan.microseconds = (plan.form == SparseForm::split ? split : gathered) + inside;
}

/// Returns why the whole vector is sent. Empty if a sparse plan pays or is required.
std::string why_not_sparse(const SparsePlan& plan, const Request& request, const Plan& dense,
                           const Topology& topology) {
  if (topology.ranks() == 1) return "everything: there is one rank";
  if (plan.n == 0) return "nothing: the tensor is empty";
  if (request.force || request.deterministic) return "";  // a deterministic result must not depend on an estimate
  if (topology.one_host()) return "everything: ranks that share memory have no wire to save";
  if (plan.microseconds > kWorthIt * dense.estimate.microseconds)
    return fmt::format("everything: top {} would take {:.1f} us, {} {:.1f} us", plan.k, plan.microseconds, dense.name,
                       dense.estimate.microseconds);
  return "";
}

}  // namespace

SparsePlan plan_sparse(const Request& request, std::size_t k, const TopKOptions& options, const Plan& dense,
                       const Topology& topology, const TuningParameters& tuning) {
  SparsePlan plan = divide(request, k, options, topology);
  choose_form(plan, request, options, topology, tuning);
  plan.reason = why_not_sparse(plan, request, dense, topology);
  plan.sparse = plan.reason.empty();
  if (!plan.sparse) {
    // Every rank is a member. Its slice is the whole tensor.
    plan.in_hosts = false;
    plan.members = topology.ranks();
    plan.slices = 1;
    return plan;
  }
  plan.reason = fmt::format("top {} of {}{}, {}: {:.1f} us, everything by {} {:.1f} us", plan.k, plan.n,
                            request.force           ? ", as forced"
                            : request.deterministic ? ", deterministic"
                                                    : "",
                            plan.form == SparseForm::split ? "split" : "gathered", plan.microseconds, dense.name,
                            dense.estimate.microseconds);
  return plan;
}

}  // namespace collectives
