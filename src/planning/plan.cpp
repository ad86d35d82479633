// Choice of a plan for a call. A plan states how a call is performed. It names an algorithm, the length of the messages
// and the codec, for example.
//
// The function plan_call() estimates how long each algorithm would take for the call (cost.hpp). It chooses the
// algorithm with the shortest estimated time.
//
// All ranks must choose the same plan. The choice therefore depends only on values that are equal on all ranks. These
// are the topology, the tuning (the numbers from which times are estimated), and the collective, the count, the type
// and other arguments of the call. A Request holds these arguments. Price: a plan cannot depend on values that differ
// between ranks, such as addresses of buffers.
//
// Rounds. An algorithm works on the whole vector as one part, or divides it into one part per rank. A plan cuts each
// part into segments, so that no message is too long. A Step is one action of a rank, such as to receive a message and
// add it (steps/step.hpp). An algorithm gives each rank a list of Steps. A round is one pass through this list, on one
// segment of each part. The first round is on the first segments, the second round on the second segments, and so on.
//
// Length of messages. On host (CPU) memory, messages have a maximum length. Two fields of the tuning hold maximum
// lengths, and the kind of the plan decides which of them applies:
//
//   wire_frame_bytes   512 KiB by default. Maximum if each host has one rank, if a hierarchical all-reduce adds inside
//                      each host before it sends, or if a hierarchical all-to-all sends only between hosts
//   frame_bytes        64 KiB by default. Maximum of all other plans
//
// Reason for longer messages between hosts: a long message keeps the link busy while its sender waits for a core. It
// also wakes the receiver less often than several short messages. Price: the 8 send buffers of a TCP connection may
// need 4 MiB.
//
// A plan may also cut messages shorter than the maximum. Shorter messages save time in two cases. In the first case,
// ranks add or encode values while the link carries the next message. In the second case, each rank passes messages on
// to the next rank. However, each message costs CPU time. The plan therefore uses the longest messages with which the
// call is at most about 5 % slower than with the best length. If the cores are idle, this limit is 1 % for messages
// above 32 KiB. The shortest length is 32 KiB, and 4 KiB in a broadcast or reduce between hosts.
//
// Codec. A codec encodes f32 values in fewer bytes. For a call with a codec, plan_call() compares plans with the codec
// and plans without it, and chooses the faster one. If the program forces the codec, the plan uses the codec without a
// comparison. A `deterministic` call also always uses the codec, because the bits of its result must not depend on an
// estimate. If no algorithm can use the codec, a deterministic call of several ranks throws an error.
//
// GPU memory. A call on GPU memory first gets the plan that it would have on host memory. It also gets a device path, a
// way to perform calls on GPU memory. The function choose_device_path() decides whether, for example, NCCL or a kernel
// performs the call. The function fill_for_path() then adapts the plan, for example the length of messages between
// GPUs.
#include "collectives/plan.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>
#include <vector>

#include "collectives/error.hpp"
#include "core/collective.hpp"
#include "core/tuning_parameters.hpp"
#include "planning/candidates.hpp"
#include "planning/coding.hpp"
#include "planning/cost.hpp"
#include "planning/device_path_choice.hpp"
#include "planning/device_path_plan.hpp"
#include "planning/listed_parts.hpp"
#include "planning/plan_call.hpp"
#include "reduction/reduction.hpp"
#include "shared_memory/host_task.hpp"
#include "steps/algorithm.hpp"

namespace collectives {
namespace {

/// Name of the backend without Steps, because the NCCL library uses its own algorithms.
constexpr std::string_view kNccl = "nccl";

/// Length in bytes of a segment of a two-level plan, which works inside one host.
constexpr std::size_t kTwoLevelBytes = 4 << 20;

/// Counts the Steps of a plan on one host, and describes the Step if there is only one. Afterwards `steps` is 0, 1, or
/// at least 2. If only some ranks of the host perform the first Step, it counts as 2, because more Steps follow.
struct HostDescriber final : StepSink {
  HostDescriber(std::size_t element_bytes, const Topology& topology, const TuningParameters& tuning)
      : element_bytes_(element_bytes), topology_(topology), tuning_(tuning) {}
  void operator()(const Step& step) override {
    if (++steps == 1 && step.subgroup == Subgroup::host)
      describe(step, element_bytes_, topology_.ranks(), topology_.oversubscribed(0), tuning_, task);
    else
      steps = std::max(steps, 2);
  }
  HostTask task;
  int steps = 0;

 private:
  std::size_t element_bytes_;
  const Topology& topology_;
  const TuningParameters& tuning_;
};

/// Returns the bytes of an element, between which vectors are cut.
std::size_t element_of(const Request& request) { return element_bytes_of(request.type, request.op); }

/// Returns how many elements of the op `count` elements of the type are.
std::size_t in_elements(const Request& request, std::size_t count) {
  return count / (element_of(request) / size_of(request.type));
}

Parts parts_of(const Request& request, const Algorithm& algorithm, const CollectiveSpec& spec, const Topology& topology,
               std::vector<std::size_t>& offsets) {
  const Range whole{0, in_elements(request, request.count)};
  if (!algorithm.by_part(spec, topology)) return Parts::equal(whole, 1);
  if (request.counts.empty()) return Parts::equal(whole, topology.ranks());
  return listed_parts({request.counts, request.displacements}, element_of(request) / size_of(request.type), offsets);
}

/// Minimum length in bytes of messages that are cut shorter than the limit. Shorter messages cost the CPU more than
/// their overlap saves.
constexpr std::size_t kShortMessage = 32 << 10;
/// Minimum length in bytes of messages of broadcast and reduce. Their rounds follow one another from rank to rank. No
/// rank waits for the end of a round, so short messages cost less.
constexpr std::size_t kShortestMessage = 4 << 10;
/// Maximum ratio of the time with shorter messages to the time with longer ones. Shorter messages are taken up to this
/// ratio. They must save 5 %, because each message costs CPU time. If the cores are idle, 1 % suffices above
/// kShortMessage.
constexpr double kWorthCutting = 0.95, kWorthCuttingIfIdle = 0.99;

bool one_rank_to_a_host(const Topology& topology) {
  return static_cast<std::size_t>(topology.ranks()) == topology.hosts.size();
}

/// Returns the maximum number of rounds that overlap: one less than the number of frames between two ranks. Returns 1
/// for a hierarchical algorithm on one host. Other algorithms get 1 if a host has several ranks. Reason: rounds with
/// messages inside a host do not overlap.
std::size_t rounds_in_flight_of(const Algorithm& algorithm, const Topology& topology, const TuningParameters& tuning) {
  const bool all_on_the_wire =
      algorithm.backend == "hierarchical" ? !topology.one_host() : one_rank_to_a_host(topology);
  return all_on_the_wire && tuning.wire_frames > 2 ? tuning.wire_frames - 1 : 1;
}

/// Returns the maximum length of messages in bytes. The maximum is wire_frame_bytes for the three kinds of plans that
/// the head of this file lists, and frame_bytes for all other plans.
std::size_t longest_message(const Algorithm& algorithm, const CollectiveSpec& spec, const Topology& topology,
                            const TuningParameters& tuning) {
  const bool summed_in_hosts = algorithm.backend == "hierarchical" && !topology.one_host() &&
                               spec.collective == Collective::all_reduce && spec.partial_sums != PartialSums::forbidden;
  const bool dealt_in_hosts = algorithm.backend == "hierarchical" && spec.collective == Collective::all_to_all &&
                              !topology.one_host() && algorithm.in_one_message == nullptr;
  return one_rank_to_a_host(topology) || summed_in_hosts || dealt_in_hosts ? tuning.wire_frame_bytes
                                                                           : tuning.frame_bytes;
}

CollectiveSpec spec_of(const Request& request, bool coded) {
  CollectiveSpec spec{.collective = request.collective, .coded = coded, .displaced = !request.displacements.empty()};
  if (!reduces(request.collective)) return spec;
  // A scan divides an average by another number on each rank, so no rank may pass on its result.
  const bool divides = is_scan(request.collective) && request.op.kind() == ReduceOp::Kind::average;
  if (divides || needs_direct(request.op, request.type, request.deterministic))
    spec.partial_sums = PartialSums::forbidden;
  else if (coded)
    spec.partial_sums = PartialSums::intra_host;
  return spec;
}

/// Returns the number of elements that a message of at most `frame` bytes holds, in whole blocks of the codec.
std::size_t elements_of(std::size_t frame, const Coding& coding) {
  if (coding.codec == nullptr) return std::max<std::size_t>(1, frame / coding.element);
  const std::size_t block = std::max<std::size_t>(1, coding.codec->block());
  const std::size_t bytes = std::max<std::size_t>(1, coding.codec->encoded_bytes(block));
  return std::max<std::size_t>(1, frame / bytes) * block;
}

/// Fills in a plan of one collective inside a host. It has one round, because the collective itself cuts the vector
/// into chunks.
void plan_host_step(Plan& plan, const HostTask& task, std::size_t longest_part, const Topology& topology,
                    const TuningParameters& tuning) {
  plan.segment = std::max<std::size_t>(1, longest_part);
  plan.protocol = to_string(task.protocol);
  plan.protocol_reason = reason(task, topology.oversubscribed(0), tuning);
  plan.zero_copy = task.zero_copy;
}

/// Fills in how many rounds overlap. A round has `depths` depths, which are the positions of its Steps. At most `max`
/// rounds are in flight.
void plan_overlap(Plan& plan, std::size_t depths, std::size_t max) {
  const std::size_t in_flight = std::min(depths, max);
  plan.issue_interval = (depths + in_flight - 1) / in_flight;
  plan.rounds_in_flight = (depths + plan.issue_interval - 1) / plan.issue_interval;
}

/// Returns the length of messages in bytes, at most `max`. It is the longest length whose time is close to the lowest.
/// The function `time_with` returns the estimated time in microseconds for a length. If rounds neither overlap
/// (`overlap`) nor follow one another from rank to rank, shorter messages gain nothing. `overlap` is false for an
/// all-to-all, because no rank passes on what it receives.
template <class TimeWith>
std::size_t choose_frame(std::size_t max, const Cost& cost, bool overlap, const TimeWith& time_with) {
  const std::size_t min = std::min(max, cost.flows ? kShortestMessage : overlap ? kShortMessage : max);
  double shortest = time_with(max);
  for (std::size_t frame = max / 2; frame >= min; frame /= 2) shortest = std::min(shortest, time_with(frame));
  const auto worth = [&](std::size_t frame) {
    return frame > kShortMessage ? std::lerp(kWorthCutting, kWorthCuttingIfIdle, cost.idleness()) : kWorthCutting;
  };
  std::size_t frame = max;
  while (worth(frame) * time_with(frame) > shortest) frame /= 2;
  return frame;
}

Plan plan_for(const Algorithm& algorithm, const Request& request, bool coded, const Topology& topology,
              const TuningParameters& tuning) {
  const CollectiveSpec spec = spec_of(request, coded);
  const Coding coding{element_of(request), coded ? request.codec : nullptr};
  Plan plan;
  plan.algorithm = &algorithm;
  plan.tuning_source = tuning.source;
  plan.backend = algorithm.backend;
  plan.name = algorithm.name;
  plan.partial_sums = spec.partial_sums;

  std::vector<std::size_t> offsets;
  const RoundArgs args{spec, parts_of(request, algorithm, spec, topology, offsets), request.root};
  const std::size_t longest = args.parts.longest();
  const RankView view(topology, 0);
  HostDescriber host{element_of(request), topology, tuning};
  if (algorithm.backend == "hierarchical" && topology.one_host()) algorithm.emit(view, args, host);
  const Cost cost = cost_of(algorithm, args, coding, topology, tuning, plan.estimate);
  plan_overlap(plan, static_cast<std::size_t>(algorithm.depths(spec, topology)),
               rounds_in_flight_of(algorithm, topology, tuning));

  const auto rounds_of = [&](std::size_t segment) {
    return request.collective == Collective::barrier ? 1 : (longest + segment - 1) / segment;
  };
  const auto time_of = [&](std::size_t rounds) {
    return cost.microseconds(std::max<std::size_t>(1, rounds), std::min(plan.rounds_in_flight, rounds));
  };
  if (host.steps == 0) {
    const auto pieces = static_cast<std::size_t>(algorithm.pieces(spec, topology));
    const auto segment_of = [&](std::size_t frame) { return elements_of(frame, coding) * pieces; };
    const std::size_t most = std::max<std::size_t>(1, longest_message(algorithm, spec, topology, tuning));
    const bool overlap = plan.rounds_in_flight > 1 && request.collective != Collective::all_to_all;
    plan.segment = segment_of(
        choose_frame(most, cost, overlap, [&](std::size_t frame) { return time_of(rounds_of(segment_of(frame))); }));
  } else if (host.steps == 1) {
    plan_host_step(plan, host.task, longest, topology, tuning);
  } else {
    // The results of one level should still be in the cache for the next level. Its sums also need memory.
    plan.segment = kTwoLevelBytes / element_of(request);
  }
  plan.rounds = rounds_of(plan.segment);
  plan.rounds_in_flight = std::max<std::size_t>(1, std::min(plan.rounds_in_flight, plan.rounds));
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

/// Returns whether the vector fits in one message, if necessary.
bool fits(const Algorithm& algorithm, const CollectiveSpec& spec, const Coding& coding, const Request& request,
          const Topology& topology, const TuningParameters& tuning) {
  if (algorithm.in_one_message == nullptr || !algorithm.in_one_message(spec)) return true;
  std::size_t elements = in_elements(request, request.count);
  if (algorithm.longest_message != nullptr)
    elements = algorithm.longest_message(topology, part({0, elements}, topology.ranks(), 0).count);
  return elements <= elements_of(longest_message(algorithm, spec, topology, tuning), coding);
}

/// Returns the plans of all algorithms that support the request, cheapest first. Their messages are coded if `coded` is
/// set.
std::vector<Plan> candidates_coded(bool coded, const Request& request, const Topology& topology,
                                   const TuningParameters& tuning) {
  std::vector<Plan> candidates;
  const CollectiveSpec spec = spec_of(request, coded);
  const Coding coding{element_of(request), coded ? request.codec : nullptr};
  for (const Algorithm& algorithm : algorithms())
    if ((request.backend == "auto" || request.backend == algorithm.backend || request.backend == algorithm.name) &&
        performs(algorithm, request.collective) &&
        (algorithm.possible == nullptr || algorithm.possible(spec, topology)) &&
        fits(algorithm, spec, coding, request, topology, tuning))
      candidates.push_back(plan_for(algorithm, request, coded, topology, tuning));
  std::stable_sort(candidates.begin(), candidates.end(),
                   [](const Plan& a, const Plan& b) { return a.estimate.microseconds < b.estimate.microseconds; });
  return candidates;
}

/// Returns the plans with the codec if they are cheaper or required, otherwise those without it.
std::vector<Plan> candidates_with_codec(const Request& request, const Topology& topology,
                                        const TuningParameters& tuning) {
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
  if (!performs_common(request.collective)) {
    std::vector<Plan> plain = candidates_coded(false, request, topology, tuning);
    for (Plan& plan : plain)
      plan.codec_reason = fmt::format("not {}: {} sends values unchanged", codec, to_string(request.collective));
    return plain;
  }
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
                                        : !reduces(request.collective)
                                            ? "this backend puts parts of several ranks into a message"
                                            : "no way of this backend keeps sums from being rounded "
                                              "more than twice"));
  if (plain.empty()) return say(coded, std::string(codec));
  const double with = coded.front().estimate.microseconds, without = plain.front().estimate.microseconds;
  if (with < without) return say(coded, fmt::format("{}: {:.1f} us, as it is {:.1f} us", codec, with, without));
  return say(plain, fmt::format("not {}: that would take {:.1f} us, as it is {:.1f} us", codec, with, without));
}

/// Throws Error{unsupported} if no algorithm of the request's backend has a form of the collective. The text names the
/// backends that have one.
void check_performed(const Request& request) {
  std::vector<std::string_view> backends;
  for (const Algorithm& algorithm : algorithms()) {
    if (!performs(algorithm, request.collective)) continue;
    if (request.backend == "auto" || request.backend == algorithm.backend || request.backend == algorithm.name) return;
    if (backends.empty() || backends.back() != algorithm.backend) backends.push_back(algorithm.backend);
  }
  const std::string others = backends.empty() ? "no backend has one" : fmt::format("{}", fmt::join(backends, ", "));
  throw Error(Errc::unsupported,
              fmt::format("backend \"{}\" has no {}{}{}", request.backend, to_string(request.collective),
                          backends.empty() ? ": " : "; backends that have one: ", others));
}

}  // namespace

std::vector<Plan> candidate_plans(const Request& asked_for, const Topology& topology, const TuningParameters& tuning) {
  Request request = asked_for;
  // A barrier moves no data, so all algorithms of a backend do the same. A call without elements is a barrier, too.
  if (request.collective == Collective::barrier)
    for (const Algorithm& algorithm : algorithms())
      if (algorithm.name == request.backend) request.backend = algorithm.backend;
  const std::vector<std::string_view> known = backend_names();
  if (std::find(known.begin(), known.end(), request.backend) == known.end())
    throw Error(Errc::invalid_argument,
                fmt::format("unknown backend \"{}\"; known: {}", request.backend, fmt::join(known, ", ")));
  if (request.backend == kNccl)
    throw Error(Errc::unsupported, "backend \"nccl\" is for device memory, and has no Steps to compare");

  check_performed(request);
  std::vector<Plan> candidates = request.codec == nullptr || request.collective == Collective::barrier
                                     ? candidates_coded(false, request, topology, tuning)
                                     : candidates_with_codec(request, topology, tuning);
  if (candidates.empty()) {
    const auto& asked = *std::ranges::find_if(algorithms(), [&](const Algorithm& algorithm) {
      return algorithm.name == request.backend || algorithm.backend == request.backend;
    });
    throw Error(
        Errc::unsupported,
        fmt::format("backend \"{}\" cannot do {} of {} on {}: {}", request.backend, to_string(request.collective),
                    to_string(request.type), to_string(topology),
                    request.codec != nullptr && request.deterministic
                        ? "sums of ranks that share memory are not rounded, and must not depend on the backend"
                    : spec_of(request, false).needs_unreduced_exchange() ? "contributions must meet unsummed"
                                                                         : fmt::format("it needs {}", asked.needs)));
  }
  return candidates;
}

namespace {

/// Returns the cheapest plan for host memory, with its reason and the runners-up.
Plan plan_for_host(const Request& request, const Topology& topology, const TuningParameters& tuning) {
  std::vector<Plan> candidates = candidate_plans(request, topology, tuning);
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

HostSteps host_steps_of(const CallPlan& made) {
  const auto& [plan, sparse] = made;
  return {.in_hosts = plan.backend == "hierarchical",
          .adds_in_hosts = plan.backend == "hierarchical" && plan.partial_sums != PartialSums::forbidden,
          .coded = plan.coded,
          .sparse = sparse && sparse->sparse,
          .selects_in_hosts = sparse && sparse->in_hosts};
}

}  // namespace

CallPlan plan_call(const Request& asked, const Topology& topology, const TuningParameters& tuning,
                   const TopKCall* top_k) {
  Request request = asked;
  if (asked.backend == kNccl) request.backend = "auto";  // performs calls that need no GPU, such as a barrier
  std::optional<CallPlan> made;
  const auto make = [&] {
    made.emplace(plan_for_host(request, topology, tuning));
    if (top_k != nullptr) made->sparse = plan_sparse(request, top_k->k, top_k->options, made->plan, topology, tuning);
    return host_steps_of(*made);
  };
  const DevicePathChoice choice = choose_device_path({.request = asked,
                                                      .topology = topology,
                                                      .compressor = top_k != nullptr ? &top_k->options : nullptr,
                                                      .wire_frame_bytes = tuning.wire_frame_bytes},
                                                     make);
  if (choice.drops_codec) request.codec = nullptr;
  if (!made) make();
  Plan& plan = made->plan;
  std::vector<std::size_t> offsets;
  const Parts parts = parts_of(request, *plan.algorithm, spec_of(request, plan.coded), topology, offsets);
  fill_for_path(plan, choice, asked, topology, parts.longest());
  return std::move(*made);
}

Plan choose_plan(const Request& request, const Topology& topology, const Tuning& tuning) {
  return plan_call(request, topology, TuningParameters(tuning)).plan;
}

}  // namespace collectives
