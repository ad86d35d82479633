// Implementation of the choice of a device path, a way to perform calls on GPU memory. The type DevicePath lists the
// paths (plan.hpp).
//
// For most paths, this file has a function that returns why the path cannot perform the call, as a text. The text is
// empty if the path can perform the call. The function choose_device_path() tries the paths in a fixed order, and takes
// the first one with an empty text. The texts of rejected paths become part of the plan's reason, which explain() shows
// to users.
//
// A rail is one rank of each host, all with the same local number. A Step is one action of a rank, such as to receive a
// message and add it.
#include "planning/device_path_choice.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "collectives/codec.hpp"
#include "collectives/error.hpp"
#include "core/collective.hpp"
#include "planning/device_capabilities.hpp"
#include "shared_memory/arena.hpp"
#include "steps/algorithm.hpp"

namespace collectives {
namespace {

/// Returns why NCCL cannot perform a call. Returns an empty text if NCCL can.
std::string why_not_nccl(const DevicePathQuery& query) {
  const auto& [request, topology, compressor, wire_frame_bytes] = query;
  if (!performs_common(request.collective)) return fmt::format("it has no {} here", to_string(request.collective));
  if (!topology.gpus.nccl) return topology.gpus.no_nccl.empty() ? "it connects no GPUs here" : topology.gpus.no_nccl;
  if (compressor != nullptr) return "NCCL carries no indices with values";
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

/// Returns why no kernel (function on a GPU) can combine values in the memory of several GPUs. Returns an empty text if
/// a kernel can.
std::string why_no_peer_kernels(const Request& request, const Topology& topology) {
  if (request.op.user_op() != nullptr) return "the op is a function of the host";
  if (request.codec != nullptr && (request.force || request.deterministic))
    return fmt::format("{} is coded on the host", request.codec->name());
  if (!topology.gpus.peer_access) return topology.gpus.everywhere ? topology.gpus.apart : topology.gpus.missing;
  if (static_cast<std::size_t>(topology.ranks()) > kKernelSources)
    return fmt::format("a kernel reads from {} ranks at most", kKernelSources);
  return {};
}

/// Returns why the path `kernels` cannot perform a call. Returns an empty text if the path can.
std::string why_not_kernels(const Request& request, const Topology& topology) {
  if (!performs_common(request.collective)) return fmt::format("no kernel does {}", to_string(request.collective));
  if (!topology.one_host()) return "there are several hosts";
  if (request.backend != "auto" && request.backend != "hierarchical")
    return fmt::format("{} {}", request.backend,
                       passes_messages(request.backend) ? "passes messages" : "works in memory of the host");
  return why_no_peer_kernels(request, topology);
}

/// Maximum number of bytes of a message between GPUs. If ranks pass the vector on in a chain, longer messages would
/// delay the next rank.
constexpr std::size_t kLongestMessage = 4 << 20;
/// Maximum number of ranks of a host for paths with messages between GPUs. Reason: a rank has kGpuMemoryRecords
/// records, one for each range of GPU memory that other ranks may access. It needs one record for messages to each
/// other rank. 8 records are for its buffers and a partial sum.
constexpr std::size_t kMostByMessages = kGpuMemoryRecords - 8;

/// Returns why the GPUs of a host cannot reduce the values of its ranks; empty if they can. The callers append the text
/// to another reason, after "and".
std::string why_not_reduced_in_hosts(const Topology& topology) {
  const Topology::Gpus& gpus = topology.gpus;
  if (!gpus.peer_access && !gpus.nccl_in_hosts)
    return fmt::format("the GPUs of one do not reach one another's memory: {}; not by NCCL: {}", gpus.apart,
                       gpus.no_nccl_in_hosts);
  if (most_on_a_host(topology) > kKernelSources)
    return fmt::format("a kernel reads from {} ranks at most", kKernelSources);
  return "";
}

/// Returns why NCCL cannot perform a call; empty if it can, or if the request names another backend. Throws
/// Error{unsupported} if the request forces NCCL and NCCL cannot perform the call.
std::string check_nccl(const DevicePathQuery& query) {
  const auto& [request, topology, compressor, wire_frame_bytes] = query;
  const bool forced = request.backend == "nccl";
  if (!forced && request.backend != "auto") return {};
  const std::string why_not = why_not_nccl(query);
  if (forced && !why_not.empty())
    throw Error(Errc::unsupported,
                fmt::format("backend \"nccl\" cannot do {} of {}{} on {}: {}", to_string(request.collective),
                            to_string(request.type),
                            reduces(request.collective) ? fmt::format(" by {}", to_string(request.op.kind())) : "",
                            to_string(topology), why_not));
  return why_not;
}

/// Throws Error{unsupported} if no device path performs the layout of the parts.
void check_on_device(const Request& request) {
  if (!request.displacements.empty())
    throw Error(Errc::unsupported,
                fmt::format("{}: parts in device memory must lie one after another, without displacements that differ",
                            to_string(request.collective)));
}

/// Returns the device path of a call with top-k.
DevicePathChoice choose_for_top_k(const DevicePathQuery& query, const HostSteps& host) {
  const std::string why_not = host.sparse
                                  ? why_not_chosen_on_gpu(host.selects_in_hosts, *query.compressor, query.topology)
                                  : "everything is sent";
  if (!why_not.empty()) return {DevicePath::host_copy, why_not};
  return {host.selects_in_hosts ? DevicePath::multi_host : DevicePath::top_k, "chosen, and added up, on the GPU"};
}

/// Returns whether the GPUs of each host may reduce the values of the host. Rails then exchange the sums between hosts.
bool may_reduce_in_hosts(const Request& request, const Topology& topology, const HostSteps& host) {
  return has_multi_rank_hosts(topology) && request.collective == Collective::all_reduce && host.adds_in_hosts &&
         request.op.user_op() == nullptr;
}

/// Returns why GPUs cannot perform the Steps of the plan. Empty if they can.
std::string why_not_steps(const Request& request, const Topology& topology, const HostSteps& host) {
  std::string why = why_no_peer_kernels(request, topology);
  if (why.empty() && !performs_common(request.collective) && host.in_hosts)
    why = fmt::format("no kernel does the part of {} inside a host", to_string(request.collective));
  if (why.empty() && host.coded) why = fmt::format("{} is coded on the host", request.codec->name());
  if (why.empty() && most_on_a_host(topology) > kMostByMessages)
    why = fmt::format("a GPU shows messages to {} ranks at most", kMostByMessages);
  return why;
}

/// Returns the device path of a call that neither NCCL nor the kernels of one host perform. The `reason` says why. The
/// path is `multi_host` if GPUs can reduce inside hosts before rails exchange the sums. Otherwise it is `steps` if GPUs
/// can perform the Steps of the plan. On one host, that requires a backend that exchanges messages. With several hosts,
/// it requires a host with several ranks. All other calls take the path `host_copy`.
DevicePathChoice choose_by_host_plan(const DevicePathQuery& query, const HostSteps& host, std::string reason) {
  const auto& [request, topology, compressor, wire_frame_bytes] = query;
  const Topology::Gpus& gpus = topology.gpus;
  const bool one_host = topology.one_host();
  if (may_reduce_in_hosts(request, topology, host)) {
    const std::string why = why_not_reduced_in_hosts(topology);
    if (why.empty())
      return {DevicePath::multi_host,
              gpus.peer_access ? "the GPUs of each host reach one another's memory, and add there"
                               : fmt::format("NCCL adds inside hosts, whose GPUs do not reach one another's memory: {}",
                                             gpus.apart)};
    reason += ", and " + why;
  }
  if (one_host ? passes_messages(request.backend) : has_multi_rank_hosts(topology)) {
    const std::string why = why_not_steps(request, topology, host);
    if (why.empty())
      return {.device_path = DevicePath::steps,
              .reason = one_host ? "one host, whose GPUs reach one another's memory"
                                 : "the GPUs of each host reach one another's memory",
              .message_bytes = one_host ? kLongestMessage : std::min(kLongestMessage, wire_frame_bytes)};
    if (reason.find(why) == std::string::npos) reason += ", and " + why;
  }
  return {DevicePath::host_copy, std::move(reason)};
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

bool passes_messages(std::string_view backend) {
  return std::ranges::any_of(algorithms(), [&](const Algorithm& one) {
    return one.backend != "hierarchical" && (one.backend == backend || one.name == backend);
  });
}

std::string why_not_chosen_on_gpu(bool in_hosts, const TopKOptions& options, const Topology& topology) {
  if (const std::string why = in_hosts ? why_not_reduced_in_hosts(topology) : ""; !why.empty())
    return fmt::format("the ranks of a host add first, and {}", why);
  if (options.clip > 0) return "the host clips";
  if (options.non_finite != NonFinite::propagate) return "the host looks for NaN and infinity";
  return "";
}

DevicePathChoice choose_device_path(const DevicePathQuery& query, const std::function<HostSteps()>& host_steps) {
  const auto& [request, topology, compressor, wire_frame_bytes] = query;
  const bool forced = request.backend == "nccl";
  if (request.memory == Memory::host) {
    if (forced && request.collective != Collective::barrier)
      throw Error(Errc::unsupported,
                  fmt::format("{}: backend \"nccl\" needs device memory, and the buffers are the host's",
                              to_string(request.collective)));
    return {};
  }
  check_on_device(request);
  const std::string against_nccl = check_nccl(query);
  if (forced) return {.device_path = DevicePath::nccl, .reason = "backend \"nccl\" was asked for", .drops_codec = true};
  const bool may_use_nccl = request.backend == "auto" && topology.ranks() > 1;
  if (may_use_nccl && against_nccl.empty())
    return {.device_path = DevicePath::nccl, .reason = "NCCL connects the GPUs", .drops_codec = true};
  const HostSteps host = host_steps();
  if (compressor != nullptr) return choose_for_top_k(query, host);
  const std::string not_kernels = why_not_kernels(request, topology);
  const std::string not_nccl = may_use_nccl ? "; not by NCCL: " + against_nccl : "";
  if (not_kernels.empty()) return {DevicePath::kernels, "one host, whose GPUs reach one another's memory" + not_nccl};
  return choose_by_host_plan(query, host, not_kernels + not_nccl);
}

}  // namespace collectives
