// Implementation of the choice of a device path: the reasons against each path, and the order in which paths are tried.
//
// A device path says how a call on GPU memory is done (DevicePath, in plan.hpp). A rail is one rank of each host, all
// with the same local number.
#include "planning/device_path_choice.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "collectives/codec.hpp"
#include "collectives/error.hpp"
#include "core/collective.hpp"
#include "planning/device_capabilities.hpp"
#include "shared_memory/arena.hpp"
#include "steps/algorithm.hpp"

namespace collectives {
namespace {

/// Returns why NCCL cannot perform a call; empty if it can.
std::string why_not_nccl(const Request& request, const Topology& topology) {
  if (!topology.gpus.nccl) return topology.gpus.no_nccl.empty() ? "it connects no GPUs here" : topology.gpus.no_nccl;
  if (request.codec != nullptr && request.deterministic)
    return fmt::format("what is deterministic is coded by {} on the host", request.codec->name());
  if (request.codec != nullptr && request.force && nccl_wire_type(request) == request.type)
    return fmt::format("NCCL carries {} coded by {} nowhere", to_string(request.collective), request.codec->name());
  if (!reduces(request.collective)) return {};
  return why_no_nccl_reduction(request.op, request.type, request.deterministic, topology.ranks());
}

std::size_t most_on_a_host(const Topology& topology) {
  return std::ranges::max(topology.hosts, {}, &std::vector<Rank>::size).size();
}

/// Returns why GPUs of one host cannot access one another's values; empty if they can.
std::string why_no_peer_kernels(const Request& request, const Topology& topology) {
  if (request.op.user_op() != nullptr) return "the op is a function of the host";
  if (request.codec != nullptr && (request.force || request.deterministic))
    return fmt::format("{} is coded on the host", request.codec->name());
  if (!topology.gpus.peer_access) return topology.gpus.everywhere ? topology.gpus.apart : topology.gpus.missing;
  if (static_cast<std::size_t>(topology.ranks()) > kKernelSources)
    return fmt::format("a kernel reads from {} ranks at most", kKernelSources);
  return {};
}

/// Returns why the kernels of the ranks cannot perform a call; empty if they can.
std::string why_not_kernels(const Request& request, const Topology& topology) {
  if (!topology.one_host()) return "there are several hosts";
  if (request.backend != "auto" && request.backend != "hierarchical")
    return fmt::format("{} {}", request.backend,
                       passes_messages(request.backend) ? "passes messages" : "works in memory of the host");
  return why_no_peer_kernels(request, topology);
}

/// Bytes of a message between GPUs. A GPU should work on it for longer than a query for its completion takes. In a
/// chain of ranks, short messages let the next rank start soon.
constexpr std::size_t kLongestMessage = 4 << 20, kShortestMessage = 256 << 10;
constexpr std::size_t kRoundsOnAChain = 8;
/// Largest number of ranks of a host for paths with messages. A rank exports frames to each rank of its host to which
/// it sends, and also its buffers and a partial sum. Each of these takes one record.
constexpr std::size_t kMostByMessages = kGpuMemoryRecords - 8;

void cut_for_gpus(Plan& plan, const Request& request, const Topology& topology, std::size_t longest,
                  std::size_t frame_bytes) {
  const CollectiveSpec spec{.collective = request.collective, .partial_sums = plan.partial_sums};
  const Algorithm& algorithm = *plan.algorithm;
  if (algorithm.in_one_message != nullptr && algorithm.in_one_message(spec)) return;
  const std::size_t element = size_of(request.type);
  const auto pieces = static_cast<std::size_t>(algorithm.pieces(spec, topology));
  const std::size_t most = std::max<std::size_t>(1, std::min(kLongestMessage, frame_bytes) / element) * pieces;
  const std::size_t unit = std::clamp<std::size_t>(kShortestMessage / element, 1, most);
  const std::size_t wanted = algorithm.by_part(spec, topology) ? longest : longest / kRoundsOnAChain;
  plan.segment = std::clamp((wanted + unit - 1) / unit * unit, unit, most);
  plan.rounds = std::max<std::size_t>(1, (longest + plan.segment - 1) / plan.segment);
  const auto depths = static_cast<std::size_t>(algorithm.depths(spec, topology));
  plan.rounds_in_flight = std::min((depths + plan.issue_interval - 1) / plan.issue_interval, plan.rounds);
}

}  // namespace

bool has_multi_rank_hosts(const Topology& topology) {
  return !topology.one_host() && static_cast<std::size_t>(topology.ranks()) > topology.hosts.size();
}

std::string_view to_string(DevicePath path) noexcept {
  switch (path) {
    case DevicePath::host: return "host";
    case DevicePath::host_copy: return "host_copy";
    case DevicePath::kernels: return "kernels";
    case DevicePath::nccl: return "nccl";
    case DevicePath::top_k: return "top_k";
    case DevicePath::multi_host: return "multi_host";
    case DevicePath::steps: return "steps";
  }
  return "unknown device path";
}

DataType nccl_wire_type(const Request& request) {
  if (request.codec == nullptr || !reduces(request.collective)) return request.type;
  for (const DataType half : {DataType::bf16, DataType::f16})
    if (request.codec->name() == to_string(half)) return half;
  return request.type;
}

PathChoice choose_path(const Request& request, const Topology& topology) {
  const bool forced = request.backend == "nccl";
  if (request.memory == Memory::host) {
    if (forced && request.collective != Collective::barrier)
      throw Error(Errc::unsupported,
                  fmt::format("{}: backend \"nccl\" needs device memory, and the buffers are the host's",
                              to_string(request.collective)));
    return {};
  }
  const bool possible = request.backend == "auto" || forced;
  const std::string why_not = possible ? why_not_nccl(request, topology) : std::string();
  if (forced && !why_not.empty())
    throw Error(Errc::unsupported,
                fmt::format("backend \"nccl\" cannot do {} of {}{} on {}: {}", to_string(request.collective),
                            to_string(request.type),
                            reduces(request.collective) ? fmt::format(" by {}", to_string(request.op.kind())) : "",
                            to_string(topology), why_not));
  if (forced) return {DevicePath::nccl, "backend \"nccl\" was asked for"};
  const bool alone = topology.ranks() == 1;
  if (possible && !alone && why_not.empty()) return {DevicePath::nccl, "NCCL connects the GPUs"};
  const std::string not_kernels = why_not_kernels(request, topology);
  const std::string not_nccl = possible && !alone ? "; not by NCCL: " + why_not : "";
  if (not_kernels.empty()) return {DevicePath::kernels, "one host, whose GPUs reach one another's memory" + not_nccl};
  return {DevicePath::host_copy, not_kernels + not_nccl};
}

std::string why_not_reduced_in_hosts(const Topology& topology) {
  const Topology::Gpus& gpus = topology.gpus;
  if (!gpus.peer_access && !gpus.nccl_in_hosts)
    return fmt::format("the GPUs of one do not reach one another's memory: {}; not by NCCL: {}", gpus.apart,
                       gpus.no_nccl_in_hosts);
  if (most_on_a_host(topology) > kKernelSources)
    return fmt::format("a kernel reads from {} ranks at most", kKernelSources);
  return "";
}

void plan_multi_node(Plan& plan, const Request& request, const Topology& topology) {
  if (plan.device_path != DevicePath::host_copy || !has_multi_rank_hosts(topology) ||
      request.collective != Collective::all_reduce || plan.backend != "hierarchical" ||
      plan.partial_sums == PartialSums::forbidden || request.op.user_op() != nullptr)
    return;
  if (const std::string why = why_not_reduced_in_hosts(topology); !why.empty()) {
    plan.device_path_reason += ", and " + why;
    return;
  }
  const Topology::Gpus& gpus = topology.gpus;
  plan.device_path = DevicePath::multi_host;
  plan.device_path_reason =
      gpus.peer_access
          ? "the GPUs of each host reach one another's memory, and add there"
          : fmt::format("NCCL adds inside hosts, whose GPUs do not reach one another's memory: {}", gpus.apart);
}

bool passes_messages(std::string_view backend) {
  return std::ranges::any_of(algorithms(), [&](const Algorithm& one) {
    return one.backend != "hierarchical" && (one.backend == backend || one.name == backend);
  });
}

void plan_steps(Plan& plan, const Request& request, const Topology& topology, std::size_t longest,
                std::size_t wire_frame_bytes) {
  const bool one_host = topology.one_host();
  if (plan.device_path != DevicePath::host_copy ||
      !(one_host ? passes_messages(request.backend) : has_multi_rank_hosts(topology)))
    return;
  std::string why = why_no_peer_kernels(request, topology);
  if (why.empty() && plan.coded) why = fmt::format("{} is coded on the host", request.codec->name());
  if (why.empty() && most_on_a_host(topology) > kMostByMessages)
    why = fmt::format("a GPU shows messages to {} ranks at most", kMostByMessages);
  if (!why.empty()) {
    if (plan.device_path_reason.find(why) == std::string::npos) plan.device_path_reason += ", and " + why;
    return;
  }
  plan.device_path = DevicePath::steps;
  plan.device_path_reason =
      one_host ? "one host, whose GPUs reach one another's memory" : "the GPUs of each host reach one another's memory";
  cut_for_gpus(plan, request, topology, longest, one_host ? kLongestMessage : wire_frame_bytes);
}

void plan_nccl(Plan& plan, const Request& request, const Topology& topology) {
  plan.backend = plan.name = "nccl";
  plan.estimate = {.algorithm = "nccl"};
  plan.runners_up.clear();
  plan.protocol = {};
  plan.zero_copy = false;
  plan.partial_sums = PartialSums::allowed;
  plan.coded = nccl_wire_type(request) != request.type && (request.force || !topology.one_host());
  if (request.codec != nullptr)
    plan.codec_reason = plan.coded ? fmt::format("{}{}", request.codec->name(), request.force ? ", as forced" : "")
                                   : fmt::format("not {}: {}", request.codec->name(),
                                                 topology.one_host() ? "inside a host, values as they are are as fast"
                                                                     : "NCCL carries sums of f32 as bf16 or f16 only");
  if (!reduces(request.collective)) return;
  if (plan.coded || !why_no_native_nccl_reduction(request.op, request.type, request.deterministic).empty())
    plan.partial_sums = PartialSums::forbidden;
}

}  // namespace collectives
