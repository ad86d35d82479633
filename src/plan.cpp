// Selection: count the Steps of every candidate, put a price on them, take the cheapest.
//
// The cost of a rank is the sum over its Steps of the dearer direction, in or out (links work both ways at once), plus
// arithmetic; the cost of a plan is that of its busiest rank. Nothing here knows a rank of its own, a pointer or a
// clock.
#include "collectives/plan.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <vector>

#include "algorithm.hpp"
#include "collectives/error.hpp"
#include "reduction.hpp"
#include "shared_memory/host_task.hpp"
#include "text.hpp"

namespace collectives {
namespace {

/// Ranks whose Steps are counted: all of a small job; of a large one the hosts of the first rank and of the root, which
/// are the busiest by the symmetry of every algorithm.
constexpr int kCountAllUpTo = 64;

class Counter final : public StepSink {
 public:
  Counter(const Seat& seat, std::size_t element_bytes, const Tuning& tuning)
      : seat_(seat), element_bytes_(element_bytes), tuning_(tuning) {}

  void operator()(const Step& step) override {
    if (step.kind != Step::Kind::exchange) return count_host(step);
    const std::size_t bytes = step.range.count * element_bytes_;
    const double in = count_messages(step.from, bytes, false), out = count_messages(step.to, bytes, true);
    per_byte_us_ += std::max(in, out) +
                    (step.reduce ? static_cast<double>(bytes * step.from.size()) * tuning_.reduce_us_per_byte : 0);
  }

  std::size_t messages = 0, bytes_sent = 0, bytes_to_other_hosts = 0;
  double microseconds(std::size_t rounds) const { return latency_us_ * static_cast<double>(rounds) + per_byte_us_; }

 private:
  double count_messages(Peers peers, std::size_t bytes, bool out) {
    double per_byte = 0, latency = 0;
    for (const Rank peer : peers) {
      if (peer == seat_.world.self) continue;
      const bool wire = seat_.host_of(peer) != seat_.grid.host;
      per_byte += static_cast<double>(bytes) * (wire ? tuning_.wire_us_per_byte : tuning_.message_us_per_byte);
      latency += wire ? tuning_.wire_us : tuning_.message_us;
      if (!out) continue;
      ++messages;
      bytes_sent += bytes;
      if (wire) bytes_to_other_hosts += bytes;
    }
    latency_us_ += latency / 2;  // half for handing over, half for taking in
    return per_byte;
  }

  void count_host(const Step& step) {
    const double times = step.kind == Step::Kind::host_all_reduce ? 2 : 1;
    const auto bytes = static_cast<double>(step.parts.whole().count * element_bytes_);
    latency_us_ += times * tuning_.host_latency_us;
    per_byte_us_ += times * bytes * tuning_.host_us_per_byte;
    // Of what goes through all domains alike, one D-th stays in each.
    const int domains = seat_.inner.host_count();
    if (domains < 2 || step.among == Among::domain) return;
    latency_us_ += times * tuning_.domain_us;
    per_byte_us_ += times * bytes * tuning_.domain_us_per_byte * (domains - 1) / domains;
  }

  const Seat& seat_;
  std::size_t element_bytes_;
  const Tuning& tuning_;
  double latency_us_ = 0, per_byte_us_ = 0;
};

/// One round of a plan that goes through two levels of a host.
constexpr std::size_t kTwoLevelBytes = 4 << 20;

/// What the Steps of a one-host plan are; of a single one, what it amounts to.
struct HostDescriber final : StepSink {
  HostDescriber(std::size_t element_bytes, const Topology& topology, const Tuning& tuning)
      : element_bytes_(element_bytes), topology_(topology), tuning_(tuning) {}
  void operator()(const Step& step) override {
    if (++steps == 1 && step.among == Among::host)
      describe(step, element_bytes_, topology_.ranks(), topology_.crowded(0), tuning_, task);
    else
      steps = std::max(steps, 2);
  }
  HostTask task;
  int steps = 0;

 private:
  std::size_t element_bytes_;
  const Topology& topology_;
  const Tuning& tuning_;
};

Parts parts_of(const Request& request, const Algorithm& algorithm, bool direct, const Topology& topology,
               std::vector<std::size_t>& offsets) {
  if (!algorithm.by_part(request.collective, direct, topology)) return Parts::equal({0, request.count}, 1);
  if (request.counts.empty()) return Parts::equal({0, request.count}, topology.ranks());
  offsets.assign(1, 0);
  for (const std::size_t count : request.counts) offsets.push_back(offsets.back() + count);
  return Parts::listed(offsets.data(), topology.ranks());
}

std::vector<Rank> counted_ranks(const Topology& topology, Rank root) {
  std::vector<Rank> ranks;
  for (const auto& host : topology.hosts)
    if (topology.ranks() <= kCountAllUpTo || &host == &topology.hosts.front() ||
        std::binary_search(host.begin(), host.end(), root))
      ranks.insert(ranks.end(), host.begin(), host.end());
  if (static_cast<int>(ranks.size()) > kCountAllUpTo && topology.ranks() > kCountAllUpTo) ranks.resize(kCountAllUpTo);
  return ranks;
}

Estimate estimate(const Algorithm& algorithm, const Request& request, bool direct, const Parts& parts,
                  std::size_t rounds, const Topology& topology, const Tuning& tuning) {
  Estimate estimate{.algorithm = algorithm.name};
  std::vector<std::size_t> host_bytes(topology.hosts.size(), 0);
  for (const Rank rank : counted_ranks(topology, request.root)) {
    const Seat seat(topology, rank);
    Counter counter(seat, size_of(request.type), tuning);
    algorithm.emit(seat, {request.collective, parts, request.root, direct}, counter);
    estimate.microseconds = std::max(estimate.microseconds, counter.microseconds(rounds));
    estimate.messages = std::max(estimate.messages, counter.messages * rounds);
    estimate.bytes_sent = std::max(estimate.bytes_sent, counter.bytes_sent);
    host_bytes[static_cast<std::size_t>(seat.grid.host)] += counter.bytes_to_other_hosts;
  }
  estimate.bytes_between_hosts = *std::max_element(host_bytes.begin(), host_bytes.end());
  return estimate;
}

/// Whether contributions must meet unsummed.
bool direct_for(const Request& request) {
  return needs_direct(request.op, request.type, request.deterministic) &&
         request.collective != Collective::all_gather && request.collective != Collective::broadcast &&
         request.collective != Collective::barrier;
}

Plan plan_for(const Algorithm& algorithm, const Request& request, const Topology& topology, const Tuning& tuning) {
  Plan plan;
  plan.algorithm = &algorithm;
  plan.tuning_source = tuning.source;
  plan.backend = algorithm.backend;
  plan.name = algorithm.name;
  plan.direct = direct_for(request);

  std::vector<std::size_t> offsets;
  const Parts parts = parts_of(request, algorithm, plan.direct, topology, offsets);
  const Seat seat(topology, 0);
  HostDescriber host{size_of(request.type), topology, tuning};
  if (algorithm.backend == "hierarchical" && topology.one_host())
    algorithm.emit(seat, {request.collective, parts, request.root, plan.direct}, host);
  if (host.steps == 1) {
    // A host stage cuts its own chunks: one round.
    plan.segment = std::max<std::size_t>(1, parts.longest());
    plan.protocol = to_string(host.task.protocol);
    plan.protocol_reason = reason(host.task, topology.crowded(0), tuning);
    plan.zero_copy = host.task.total * host.task.element >= tuning.zero_copy_bytes && host.task.total > 0;
  } else if (host.steps > 1) {
    // What one level leaves should still be in the cache for the next, and its sums must be kept somewhere.
    plan.segment = kTwoLevelBytes / size_of(request.type);
  } else {
    plan.segment = std::max<std::size_t>(1, tuning.frame_bytes / size_of(request.type)) *
                   static_cast<std::size_t>(algorithm.pieces(request.collective, plan.direct, topology));
  }
  const std::size_t longest = parts.longest();
  plan.rounds = request.collective == Collective::barrier ? 1 : (longest + plan.segment - 1) / plan.segment;
  plan.estimate =
      estimate(algorithm, request, plan.direct, parts, std::max<std::size_t>(1, plan.rounds), topology, tuning);
  return plan;
}

}  // namespace

std::vector<std::string_view> backend_names() {
  std::vector<std::string_view> names{"auto"};
  for (const Algorithm& algorithm : algorithms())
    if (std::find(names.begin(), names.end(), algorithm.backend) == names.end()) names.push_back(algorithm.backend);
  for (const Algorithm& algorithm : algorithms())
    if (std::find(names.begin(), names.end(), algorithm.name) == names.end()) names.push_back(algorithm.name);
  return names;
}

Plan choose_plan(const Request& request, const Topology& topology, const Tuning& tuning) {
  const std::vector<std::string_view> known = backend_names();
  if (std::find(known.begin(), known.end(), request.backend) == known.end())
    throw Error(Errc::invalid_argument,
                fmt::format("unknown backend \"{}\"; known: {}", request.backend, fmt::join(known, ", ")));

  std::vector<Plan> candidates;
  const bool direct = direct_for(request);
  for (const Algorithm& algorithm : algorithms())
    if ((request.backend == "auto" || request.backend == algorithm.backend || request.backend == algorithm.name) &&
        (algorithm.possible == nullptr || algorithm.possible(direct, topology)))
      candidates.push_back(plan_for(algorithm, request, topology, tuning));
  if (candidates.empty())
    throw Error(Errc::unsupported,
                fmt::format("backend \"{}\" cannot do {} of {} on {}: {}", request.backend,
                            to_string(request.collective), to_string(request.type), to_string(topology),
                            direct ? "contributions must meet unsummed"
                                   : "it needs several domains with equally many ranks, at least two"));
  std::stable_sort(candidates.begin(), candidates.end(),
                   [](const Plan& a, const Plan& b) { return a.estimate.microseconds < b.estimate.microseconds; });
  Plan plan = std::move(candidates.front());
  for (std::size_t i = 1; i < candidates.size(); ++i) plan.runners_up.push_back(candidates[i].estimate);
  if (request.backend != "auto")
    plan.reason = fmt::format("backend \"{}\" was asked for", request.backend);
  else if (topology.ranks() == 1)
    plan.reason = "there is one rank";
  else
    plan.reason = "the lowest estimate";
  return plan;
}

std::string explain(const Plan& plan, const Request& request, const Topology& topology) {
  const bool reduces = request.collective != Collective::all_gather && request.collective != Collective::broadcast &&
                       request.collective != Collective::barrier;
  std::string text = fmt::format("{} {} {}{}, {}\n", to_string(request.collective),
                                 bytes_text(request.count * size_of(request.type)), to_string(request.type),
                                 reduces ? fmt::format(" {}", to_string(request.op.kind())) : "", to_string(topology));
  text += fmt::format("  {}", plan.name);
  if (plan.rounds > 1)
    text += fmt::format(", {} rounds of segments of {}", plan.rounds, bytes_text(plan.segment * size_of(request.type)));
  text += fmt::format(": {}\n", plan.reason);
  if (plan.direct && topology.ranks() > 1)
    text += fmt::format("  direct exchange: contributions travel unsummed, their owner adds them in rank order{}\n",
                        request.deterministic ? " (deterministic)" : fmt::format(" ({})", to_string(request.type)));
  if (!plan.protocol.empty())
    text += fmt::format("  {}: {}{}\n", plan.protocol, plan.protocol_reason,
                        plan.zero_copy ? "; zero-copy where all ranks' buffers come from allocate()" : "");
  text += fmt::format("  tuning: {}\n", plan.tuning_source);
  const auto line = [](const Estimate& e) {
    return fmt::format("{} {:.1f} us ({} messages, {} sent by the busiest rank, {} by the busiest host)", e.algorithm,
                       e.microseconds, e.messages, bytes_text(e.bytes_sent), bytes_text(e.bytes_between_hosts));
  };
  text += fmt::format("  estimate: {}\n", line(plan.estimate));
  for (const Estimate& other : plan.runners_up) text += fmt::format("  instead of: {}\n", line(other));
  return text;
}

}  // namespace collectives
