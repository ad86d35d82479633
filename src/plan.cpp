// Selection: count the Steps of every candidate, put a price on them, take the cheapest.
//
// The Steps of one rank say how long it works in a round: for messages, bytes inside its host, arithmetic; there the
// dearer direction counts, in or out. Those of all ranks of a host say how long its link to the others is busy, which
// they share; those of all ranks together, how long they wait for one another. The busiest rank, the busiest link and
// the longest chain make the cost of a plan. Where rounds overlap, what is on the wire in one is hidden behind the work
// of others, or the reverse. Nothing here knows a rank of its own, a pointer or a clock.
#include "collectives/plan.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>
#include <vector>

#include "algorithm.hpp"
#include "candidates.hpp"
#include "collectives/error.hpp"
#include "compression/coding.hpp"
#include "critical_path.hpp"
#include "device/by_nccl.hpp"
#include "device/choice.hpp"
#include "reduction.hpp"
#include "shared_memory/host_task.hpp"
#include "text.hpp"
#include "tuning.hpp"

namespace collectives {
namespace {

/// The backend that has no Steps: what NCCL does is its own.
constexpr std::string_view kNccl = "nccl";

/// Ranks whose Steps are counted: all of a small job; of a large one the first host, the last and the root's, among
/// which are the busiest: every algorithm treats hosts alike but for the root's, and for what begins anew after the
/// last.
constexpr int kCountAllUpTo = 64;

/// What a vector costs. All but `waits` is for all rounds together.
struct Cost {
  double waits = 0;     ///< us of one round: others are waited for
  double handling = 0;  ///< us of one round: messages between hosts given to the system and taken from it
  double work = 0;      ///< us: bytes inside the host, arithmetic
  double copies = 0;  ///< us: bytes given to the system and taken from it, while links carry others of the same message
  double wire = 0;    ///< us: the link between hosts is busy
  double chain = 0;   ///< us: links are, that have to wait for one another; at least as long
  double machine = 0;  ///< us of one round: the cores of a machine that has more ranks do the handling of all
  double inside = 0;   ///< us of one round: of `waits`, those for ranks of this host
  double at_once = 1;  ///< messages that a link is given before anybody waits for one of them
  /// Broadcast and reduce: a round goes from rank to rank while the next one follows, also where rounds do not overlap
  /// on any one rank; all that a rank waits for is room for `frames` messages.
  bool flows = false;
  double per_frame = 0;  ///< us of latency over the frames that can be on their way

  /// `lanes` rounds are under way at once.
  double microseconds(std::size_t rounds, std::size_t lanes) const {
    const auto r = static_cast<double>(rounds);
    const double messages = r * std::max(handling, machine);
    const double busiest = std::max(wire, work + copies + messages);
    const double carried = std::max(chain, copies);
    // The first round goes all the way, the others follow it.
    if (flows) {
      const double each = std::max({wire / r, (work + copies + messages) / r + inside, per_frame});
      return waits + std::max(handling, machine) + (work + carried) / r + (r - 1) * each;
    }
    // One round after the other. Ranks send at once and then wait for one another, so what their cores have to do for
    // messages comes before and after what links carry. Of several that a link is given at once all but the first are
    // handed over while it carries, if it does so for longer than cores have to do with all of them.
    const double meanwhile = (1 - 1 / at_once) * std::clamp(chain - copies - messages, 0.0, messages);
    const double all = r * waits + messages + work + carried - meanwhile;
    if (lanes <= 1 || rounds <= 1) return all;
    // The first round has nothing to overlap with.
    return std::max(busiest, all / static_cast<double>(lanes)) + (all - busiest) / r;
  }
};

class Counter final : public StepSink {
 public:
  Counter(const Seat& seat, const Coding& coding, const Tuning& tuning)
      : seat_(seat), coding_(coding), tuning_(tuning) {}

  void operator()(const Step& step) override {
    if (step.kind != Step::Kind::exchange) return count_host(step);
    const std::size_t bytes = coding_.bytes(step.range.count), plain = step.range.count * coding_.element;
    const double in = count_messages(step.from, bytes, false), out = count_messages(step.to, bytes, true);
    cost.work += std::max(in, out) + static_cast<double>(plain * terms(step)) * tuning_.reduce_us_per_byte +
                 static_cast<double>(plain * coding_.codings(step)) * tuning_.coding_us_per_byte;
  }

  Cost cost;  ///< without the wire's
  std::size_t messages = 0, bytes_sent = 0, bytes_to_other_hosts = 0, bytes_from_other_hosts = 0;
  std::size_t ends = 0;          ///< messages sent to or taken from other hosts
  bool several_streams = false;  ///< to more than one rank of other hosts

 private:
  /// Of bytes that stay inside the host.
  double count_messages(Peers peers, std::size_t bytes, bool out) {
    double per_byte = 0;
    bool awaited = false;
    for (const Rank peer : peers) {
      if (peer == seat_.world.self) continue;
      if (seat_.host_of(peer) != seat_.grid.host) {
        ++ends;
        if (out && sent_to_.value_or(peer) != peer) several_streams = true;
        if (out) sent_to_ = peer;
        cost.handling += tuning_.wire_message_us;
        cost.copies += static_cast<double>(bytes) * tuning_.wire_work_us_per_byte;
        awaited = awaited || !out;
        (out ? bytes_to_other_hosts : bytes_from_other_hosts) += bytes;
      } else {
        cost.waits += tuning_.message_us / 2;  // half for handing over, half for taking in
        cost.inside += tuning_.message_us / 2;
        per_byte += static_cast<double>(bytes) * tuning_.message_us_per_byte;
      }
      if (!out) continue;
      ++messages;
      bytes_sent += bytes;
    }
    if (awaited) cost.waits += tuning_.wire_us;  // those who send at once arrive together
    return per_byte;
  }

  void count_host(const Step& step) {
    const double times = step.kind == Step::Kind::host_all_reduce ? 2 : 1;
    std::size_t count = 0;  // elements that the step is about
    if (step.only >= 0)
      count = step.parts[0].count;
    else
      for (const Rank part : step.which) count += step.parts[part].count;
    auto bytes = static_cast<double>(count * coding_.element);
    // Sums that one rank keeps for itself it makes alone, of what all have.
    if (step.kind == Step::Kind::host_reduce_scatter && step.only >= 0 && step.keep == Place::work)
      bytes *= static_cast<double>(seat_.grid.here().size());
    cost.waits += times * tuning_.host_latency_us;
    cost.inside += times * tuning_.host_latency_us;
    cost.work += times * bytes * tuning_.host_us_per_byte;
    // Of what goes through all domains alike, one D-th stays in each.
    const int domains = seat_.inner.host_count();
    if (domains < 2 || step.among == Among::domain) return;
    cost.waits += times * tuning_.domain_us;
    cost.inside += times * tuning_.domain_us;
    cost.work += times * bytes * tuning_.domain_us_per_byte * (domains - 1) / domains;
  }

  const Seat& seat_;
  const Coding coding_;
  const Tuning& tuning_;
  std::optional<Rank> sent_to_;  // last, on another host
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

Parts parts_of(const Request& request, const Algorithm& algorithm, const Aim& aim, const Topology& topology,
               std::vector<std::size_t>& offsets) {
  if (!algorithm.by_part(aim, topology)) return Parts::equal({0, request.count}, 1);
  if (request.counts.empty()) return Parts::equal({0, request.count}, topology.ranks());
  offsets.assign(1, 0);
  for (const std::size_t count : request.counts) offsets.push_back(offsets.back() + count);
  return Parts::listed(offsets.data(), topology.ranks());
}

std::vector<Rank> counted_ranks(const Topology& topology, Rank root) {
  std::vector<Rank> ranks;
  for (const auto& host : topology.hosts)
    if (topology.ranks() <= kCountAllUpTo || &host == &topology.hosts.front() || &host == &topology.hosts.back() ||
        std::binary_search(host.begin(), host.end(), root))
      ranks.insert(ranks.end(), host.begin(), host.end());
  if (static_cast<int>(ranks.size()) > kCountAllUpTo && topology.ranks() > kCountAllUpTo) ranks.resize(kCountAllUpTo);
  return ranks;
}

/// What all ranks do together: counted, or as many times what some of them do.
struct Together {
  double ends = 0;    ///< messages sent to or taken from other hosts
  double bytes = 0;   ///< sent to other hosts
  double work = 0;    ///< us: bytes inside hosts, arithmetic
  double copies = 0;  ///< us: of bytes between hosts
};

/// Where a machine has fewer cores than ranks, on all the hosts that are its namespaces or containers, no round is over
/// before they have done what all its ranks do, although some can do it while others wait for the links.
void share_cores(Cost& cost, const Together& all, const Topology& topology, const Tuning& tuning) {
  const double to_a_core = topology.ranks_to_a_core();
  if (to_a_core <= 1) return;
  const double share = to_a_core / topology.ranks();
  cost.machine = share * all.ends * message_inside_machine_us(tuning);
  cost.work = std::max(cost.work, share * all.work);
  cost.copies = std::max(cost.copies, share * all.copies);
}

/// Links whose ranks send now to one, now to another peer are never as full as those of a ring: streams that have
/// paused begin slowly, and hinder one another where they meet. Measured: 2 MiB on 4 hosts reach 0.85 of the bound by
/// halving and 0.92 by the ring, of as many bytes (bench/results/hosts.txt).
constexpr double kSeveralStreams = 1.1;

/// What all rounds cost together; `estimate` gets what is sent in one.
Cost count(const Algorithm& algorithm, const Task& task, const Coding& coding, const Topology& topology,
           const Tuning& tuning, Estimate& estimate) {
  Cost cost;
  estimate.algorithm = algorithm.name;
  std::vector<std::size_t> out(topology.hosts.size(), 0), in(topology.hosts.size(), 0);
  Together all;
  bool several_streams = false;
  const std::vector<Rank> ranks = counted_ranks(topology, task.root);
  for (const Rank rank : ranks) {
    const Seat seat(topology, rank);
    Counter counter(seat, coding, tuning);
    algorithm.emit(seat, task, counter);
    const auto total = [](const Cost& c) { return c.waits + c.handling + c.work + c.copies; };
    if (total(counter.cost) > total(cost)) cost = counter.cost;
    all.ends += static_cast<double>(counter.ends);
    all.bytes += static_cast<double>(counter.bytes_to_other_hosts);
    all.work += counter.cost.work;
    all.copies += counter.cost.copies;
    several_streams = several_streams || counter.several_streams;
    estimate.messages = std::max(estimate.messages, counter.messages);
    estimate.bytes_sent = std::max(estimate.bytes_sent, counter.bytes_sent);
    out[static_cast<std::size_t>(seat.grid.host)] += counter.bytes_to_other_hosts;
    in[static_cast<std::size_t>(seat.grid.host)] += counter.bytes_from_other_hosts;
  }
  std::optional<CriticalPath> path;
  if (!topology.one_host()) path = critical_path(algorithm, task, coding, topology, tuning);
  const double more = static_cast<double>(topology.ranks()) / static_cast<double>(ranks.size());
  all = {more * all.ends, more * all.bytes, more * all.work, more * all.copies};
  if (path) {
    cost.waits = std::max(0.0, path->latency - cost.handling);
    all.ends = 2 * static_cast<double>(path->messages);
    all.bytes = path->bytes;
    const double to_a_link = static_cast<double>(path->messages) / static_cast<double>(topology.hosts.size());
    cost.at_once = std::max(1.0, to_a_link / std::max(1.0, path->hops));
  }
  share_cores(cost, all, topology, tuning);
  cost.flows =
      !topology.one_host() && (task.collective == Collective::broadcast || task.collective == Collective::reduce);
  cost.per_frame = tuning.wire_us / static_cast<double>(tuning.wire_frames);
  estimate.bytes_between_hosts = std::ranges::max(out);
  cost.wire =
      static_cast<double>(std::max(estimate.bytes_between_hosts, std::ranges::max(in))) * tuning.wire_us_per_byte;
  // What all links together carry.
  cost.wire =
      std::max(cost.wire, all.bytes * tuning.wire_together_us_per_byte / static_cast<double>(topology.hosts.size()));
  if (several_streams) cost.wire *= kSeveralStreams;
  cost.chain = std::max(cost.wire, path ? path->wire : 0);
  return cost;
}

/// Messages of less than twice this are not cut up to make rounds overlap.
constexpr std::size_t kSmallestMessage = 32 << 10;
/// Nor of less than twice this where rounds follow one another from rank to rank, and nobody waits for the last of one.
constexpr std::size_t kSmallestOnItsWay = 4 << 10;
/// Cutting up messages must save a twentieth of the time: each costs cores something, also where the wire hides it.
constexpr double kWorthCutting = 0.95;

bool one_rank_to_a_host(const Topology& topology) {
  return static_cast<std::size_t>(topology.ranks()) == topology.hosts.size();
}

/// How many rounds at once find frames for their messages: one less than there are.
std::size_t lanes_of(const Algorithm& algorithm, const Topology& topology, const Tuning& tuning) {
  const bool all_on_the_wire =
      algorithm.backend == "hierarchical" ? !topology.one_host() : one_rank_to_a_host(topology);
  return all_on_the_wire && tuning.wire_frames > 2 ? tuning.wire_frames - 1 : 1;
}

/// Bytes of a message that fits whatever its Steps may take it through. Where hosts have several ranks, only all-reduce
/// sends nothing inside them, and it does where nobody sums on the way.
std::size_t longest_message(const Algorithm& algorithm, const Aim& aim, const Topology& topology,
                            const Tuning& tuning) {
  const bool summed_in_hosts = algorithm.backend == "hierarchical" && !topology.one_host() &&
                               aim.collective == Collective::all_reduce && aim.sums != Sums::at_owner;
  return one_rank_to_a_host(topology) || summed_in_hosts ? tuning.wire_frame_bytes : tuning.frame_bytes;
}

bool reduces(const Request& request) {
  return request.collective == Collective::all_reduce || request.collective == Collective::reduce_scatter ||
         request.collective == Collective::reduce;
}

Aim aim_of(const Request& request, bool coded) {
  Aim aim{.collective = request.collective, .coded = coded};
  if (!reduces(request)) return aim;
  if (needs_direct(request.op, request.type, request.deterministic))
    aim.sums = Sums::at_owner;
  else if (coded)
    aim.sums = Sums::in_hosts;
  return aim;
}

/// Elements of which a message of at most `frame` bytes can hold as many: whole blocks.
std::size_t elements_of(std::size_t frame, const Coding& coding) {
  if (coding.codec == nullptr) return std::max<std::size_t>(1, frame / coding.element);
  const std::size_t block = std::max<std::size_t>(1, coding.codec->block());
  const std::size_t bytes = std::max<std::size_t>(1, coding.codec->encoded_bytes(block));
  return std::max<std::size_t>(1, frame / bytes) * block;
}

Plan plan_for(const Algorithm& algorithm, const Request& request, bool coded, const Topology& topology,
              const Tuning& tuning) {
  const Aim aim = aim_of(request, coded);
  const Coding coding{size_of(request.type), coded ? request.codec : nullptr};
  Plan plan;
  plan.algorithm = &algorithm;
  plan.tuning_source = tuning.source;
  plan.backend = algorithm.backend;
  plan.name = algorithm.name;
  plan.sums = aim.sums;

  std::vector<std::size_t> offsets;
  const Task task{aim, parts_of(request, algorithm, aim, topology, offsets), request.root};
  const Parts& parts = task.parts;
  const Seat seat(topology, 0);
  HostDescriber host{size_of(request.type), topology, tuning};
  if (algorithm.backend == "hierarchical" && topology.one_host()) algorithm.emit(seat, task, host);
  if (host.steps == 1) {
    // A host stage cuts its own chunks: one round.
    plan.segment = std::max<std::size_t>(1, parts.longest());
    plan.protocol = to_string(host.task.protocol);
    plan.protocol_reason = reason(host.task, topology.crowded(0), tuning);
    plan.zero_copy = host.task.zero_copy;
  } else if (host.steps > 1) {
    // What one level leaves should still be in the cache for the next, and its sums must be kept somewhere.
    plan.segment = kTwoLevelBytes / size_of(request.type);
  }
  const std::size_t longest = parts.longest();
  const Cost cost = count(algorithm, task, coding, topology, tuning, plan.estimate);
  const auto depths = static_cast<std::size_t>(algorithm.depths(aim, topology));
  const std::size_t most_lanes = std::min(depths, lanes_of(algorithm, topology, tuning));
  plan.stride = (depths + most_lanes - 1) / most_lanes;
  plan.lanes = (depths + plan.stride - 1) / plan.stride;
  const auto rounds_of = [&](std::size_t segment) {
    return request.collective == Collective::barrier ? 1 : (longest + segment - 1) / segment;
  };
  const auto time_of = [&](std::size_t rounds) {
    return cost.microseconds(std::max<std::size_t>(1, rounds), std::min(plan.lanes, rounds));
  };
  if (host.steps == 0) {
    // Where rounds overlap, shorter messages may pay: the first one is sooner on its way.
    const auto pieces = static_cast<std::size_t>(algorithm.pieces(aim, topology));
    const auto segment_of = [&](std::size_t frame) { return elements_of(frame, coding) * pieces; };
    const std::size_t most = std::max<std::size_t>(1, longest_message(algorithm, aim, topology, tuning));
    const auto time_with = [&](std::size_t frame) { return time_of(rounds_of(segment_of(frame))); };
    const std::size_t least = std::min(most, cost.flows ? kSmallestOnItsWay : plan.lanes > 1 ? kSmallestMessage : most);
    double shortest = time_with(most);
    for (std::size_t frame = most / 2; frame >= least; frame /= 2) shortest = std::min(shortest, time_with(frame));
    std::size_t frame = most;
    while (kWorthCutting * time_with(frame) > shortest) frame /= 2;
    plan.segment = segment_of(frame);
  }
  plan.rounds = rounds_of(plan.segment);
  plan.lanes = std::max<std::size_t>(1, std::min(plan.lanes, plan.rounds));
  plan.estimate.microseconds = time_of(plan.rounds);
  plan.coded = coded && plan.estimate.messages > 0;
  plan.estimate.messages *= std::max<std::size_t>(1, plan.rounds);
  return plan;
}

}  // namespace

std::vector<std::string_view> backend_names() {
  std::vector<std::string_view> names{"auto"};
  for (const Algorithm& algorithm : algorithms())
    if (std::find(names.begin(), names.end(), algorithm.backend) == names.end()) names.push_back(algorithm.backend);
  names.push_back(kNccl);
  for (const Algorithm& algorithm : algorithms())
    if (std::find(names.begin(), names.end(), algorithm.name) == names.end()) names.push_back(algorithm.name);
  return names;
}

namespace {

/// Whether it takes one message for what should be in one.
bool fits(const Algorithm& algorithm, const Aim& aim, const Coding& coding, const Request& request,
          const Topology& topology, const Tuning& tuning) {
  return algorithm.in_one_message == nullptr || !algorithm.in_one_message(aim) ||
         request.count <= elements_of(longest_message(algorithm, aim, topology, tuning), coding);
}

/// All that can be done with messages coded, or all that can be done with them as they are.
std::vector<Plan> candidates_coded(bool coded, const Request& request, const Topology& topology, const Tuning& tuning) {
  std::vector<Plan> candidates;
  const Aim aim = aim_of(request, coded);
  const Coding coding{size_of(request.type), coded ? request.codec : nullptr};
  for (const Algorithm& algorithm : algorithms())
    if ((request.backend == "auto" || request.backend == algorithm.backend || request.backend == algorithm.name) &&
        (algorithm.possible == nullptr || algorithm.possible(aim, topology)) &&
        fits(algorithm, aim, coding, request, topology, tuning))
      candidates.push_back(plan_for(algorithm, request, coded, topology, tuning));
  std::stable_sort(candidates.begin(), candidates.end(),
                   [](const Plan& a, const Plan& b) { return a.estimate.microseconds < b.estimate.microseconds; });
  return candidates;
}

/// Coded where that is cheaper, or must be. `deterministic` promises bits that depend on no estimate.
std::vector<Plan> candidates_with_codec(const Request& request, const Topology& topology, const Tuning& tuning) {
  const std::string_view codec = request.codec->name();
  const std::size_t block = request.codec->block(), bytes = request.codec->encoded_bytes(block);
  if (block == 0 || bytes == 0 || request.codec->encoded_bytes(0) != 0 ||
      request.codec->encoded_bytes(2 * block) != 2 * bytes)
    throw Error(Errc::invalid_argument,
                fmt::format("codec {} does not make equally many bytes of every block of {}", codec, block));
  if (request.deterministic && block > 1)
    throw Error(Errc::unsupported,
                fmt::format("codec {} codes blocks of {}, which begin where messages do: its bits depend on how a call "
                            "is cut, which deterministic ones may not",
                            codec, block));
  if (bytes > tuning.frame_bytes)
    throw Error(Errc::invalid_argument, fmt::format("a block of codec {} makes {} bytes, a message holds {}", codec,
                                                    bytes, tuning.frame_bytes));
  std::vector<Plan> coded = candidates_coded(true, request, topology, tuning);
  std::erase_if(coded, [](const Plan& plan) { return !plan.coded; });
  const auto say = [](std::vector<Plan>& plans, const std::string& why) {
    for (Plan& plan : plans) plan.codec_reason = why;
    return std::move(plans);
  };
  if (!coded.empty() && (request.force || request.deterministic))
    return say(coded, fmt::format("{}, {}", codec, request.force ? "as forced" : "as what is deterministic must be"));
  if (coded.empty() && request.deterministic && topology.ranks() > 1) return {};
  std::vector<Plan> plain = candidates_coded(false, request, topology, tuning);
  if (coded.empty())
    return say(plain, topology.ranks() == 1
                          ? fmt::format("not {}: there is one rank", codec)
                          : fmt::format("not {}: {}", codec,
                                        topology.one_host() ? "ranks that share memory send no messages"
                                        : !reduces(request) ? "this backend puts parts of several ranks into a message"
                                                            : "no way of this backend keeps sums from being rounded "
                                                              "more than twice"));
  if (plain.empty()) return say(coded, std::string(codec));
  const double with = coded.front().estimate.microseconds, without = plain.front().estimate.microseconds;
  if (with < without) return say(coded, fmt::format("{}: {:.1f} us, as it is {:.1f} us", codec, with, without));
  return say(plain, fmt::format("not {}: that would take {:.1f} us, as it is {:.1f} us", codec, with, without));
}

}  // namespace

std::vector<Plan> candidate_plans(const Request& asked_for, const Topology& topology, const Tuning& tuning) {
  Request request = asked_for;
  // A barrier, which a call without elements is too, moves nothing that one algorithm of a backend might move
  // otherwise.
  if (request.collective == Collective::barrier)
    for (const Algorithm& algorithm : algorithms())
      if (algorithm.name == request.backend) request.backend = algorithm.backend;
  const std::vector<std::string_view> known = backend_names();
  if (std::find(known.begin(), known.end(), request.backend) == known.end())
    throw Error(Errc::invalid_argument,
                fmt::format("unknown backend \"{}\"; known: {}", request.backend, fmt::join(known, ", ")));
  if (request.backend == kNccl)
    throw Error(Errc::unsupported, "backend \"nccl\" is for device memory, and has no Steps to compare");

  std::vector<Plan> candidates = request.codec == nullptr || request.collective == Collective::barrier
                                     ? candidates_coded(false, request, topology, tuning)
                                     : candidates_with_codec(request, topology, tuning);
  if (candidates.empty()) {
    const auto& asked = *std::ranges::find(algorithms(), request.backend, &Algorithm::name);
    throw Error(Errc::unsupported,
                fmt::format("backend \"{}\" cannot do {} of {} on {}: {}", request.backend,
                            to_string(request.collective), to_string(request.type), to_string(topology),
                            request.codec != nullptr && request.deterministic
                                ? "sums of ranks that share memory are not rounded, and must not depend on the backend"
                            : aim_of(request, false).direct() ? "contributions must meet unsummed"
                                                              : fmt::format("it needs {}", asked.needs)));
  }
  return candidates;
}

Plan choose_plan(const Request& asked, const Topology& topology, const Tuning& tuning) {
  const WayChoice choice = choose_way(asked, topology);
  Request request = asked;
  if (asked.backend == kNccl) request.backend = "auto";  // which performs what needs no GPU, such as a barrier
  if (choice.way == Way::nccl) request.codec = nullptr;
  std::vector<Plan> candidates = candidate_plans(request, topology, tuning);
  Plan plan = std::move(candidates.front());
  for (std::size_t i = 1; i < candidates.size(); ++i) plan.runners_up.push_back(candidates[i].estimate);
  if (request.backend != "auto")
    plan.reason = fmt::format("backend \"{}\" was asked for", request.backend);
  else if (topology.ranks() == 1)
    plan.reason = "there is one rank";
  else
    plan.reason = "the lowest estimate";
  plan.way = choice.way;
  plan.way_reason = choice.reason;
  if (plan.way == Way::nccl) plan_by_nccl(plan, asked, topology);
  return plan;
}

std::string explain(const Plan& plan, const Request& request, const Topology& topology) {
  std::string text =
      fmt::format("{} {} {}{}, {}\n", to_string(request.collective), bytes_text(request.count * size_of(request.type)),
                  to_string(request.type), reduces(request) ? fmt::format(" {}", to_string(request.op.kind())) : "",
                  to_string(topology));
  if (plan.way == Way::nccl) {
    text += fmt::format("  nccl: {}\n", plan.way_reason);
    if (plan.sums == Sums::at_owner)
      text +=
          fmt::format("  direct exchange: contributions travel unsummed, their owner folds them in rank order: {}\n",
                      plan.coded ? "coded sums would be rounded at every hop"
                                 : why_not_summed_by_nccl(request.op, request.type, request.deterministic));
    if (!plan.codec_reason.empty()) text += fmt::format("  wire: {}\n", plan.codec_reason);
    return text;
  }
  text += fmt::format("  {}", plan.name);
  if (plan.rounds > 1)
    text +=
        fmt::format(", {} rounds of segments of {}{}", plan.rounds, bytes_text(plan.segment * size_of(request.type)),
                    plan.lanes > 1 ? fmt::format(", {} under way at once", plan.lanes) : "");
  text += fmt::format(": {}\n", plan.reason);
  if (plan.sums == Sums::at_owner && topology.ranks() > 1)
    text += fmt::format("  direct exchange: contributions travel unsummed, their owner adds them in rank order{}\n",
                        request.deterministic ? " (deterministic)" : fmt::format(" ({})", to_string(request.type)));
  if (plan.sums == Sums::in_hosts)
    text += fmt::format("  direct exchange: {} travel unsummed, their owner adds them in order ({})\n",
                        plan.backend == "hierarchical" ? "the sums of hosts" : "contributions", request.codec->name());
  if (!plan.codec_reason.empty()) text += fmt::format("  wire: {}\n", plan.codec_reason);
  if (plan.way != Way::host) text += fmt::format("  device memory: {}: {}\n", to_string(plan.way), plan.way_reason);
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
