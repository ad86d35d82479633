// Implementation of fill_for_path(), which adapts a plan for CPU memory to a device path, a way to perform calls on GPU
// memory.
//
// On the path `nccl`, the NCCL library performs the call, so the function replaces backend, protocol and estimate. A
// plan cuts the vector, or each rank's part of it, into segments. Each round processes one segment of each part. On the
// path `steps`, GPUs perform the algorithm of the plan, and the function makes the segments longer.
#include "planning/device_path_plan.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "collectives/codec.hpp"
#include "core/collective.hpp"
#include "planning/device_capabilities.hpp"
#include "steps/algorithm.hpp"

namespace collectives {
namespace {

/// Minimum length of a segment: 256 KiB, unless the maximum length of a message is shorter. Reason: the CPU polls the
/// GPU to find out whether the work on a segment has ended. The work on a shorter segment would take less time than a
/// poll.
constexpr std::size_t kShortestGpuMessage = 256 << 10;
/// Number of rounds if the vector passes along a chain of ranks, as in a broadcast. With more rounds, segments are
/// shorter, and the next rank of the chain starts sooner. A plan has fewer rounds if its segments would be shorter than
/// kShortestGpuMessage. It has more rounds if its segments would be longer than the maximum length of a message.
constexpr std::size_t kRoundsOnAChain = 8;
/// Sets the number of rounds of the plan, so that messages between GPUs have at most `message_bytes` bytes.
void cut_for_gpus(Plan& plan, const Request& request, const Topology& topology, std::size_t longest,
                  std::size_t message_bytes) {
  const CollectiveSpec spec{.collective = request.collective, .partial_sums = plan.partial_sums};
  const Algorithm& algorithm = *plan.algorithm;
  if (algorithm.in_one_message != nullptr && algorithm.in_one_message(spec)) return;
  const std::size_t element = element_bytes_of(request.type, request.op);
  const auto pieces = static_cast<std::size_t>(algorithm.pieces(spec, topology));
  const std::size_t most = std::max<std::size_t>(1, message_bytes / element) * pieces;
  const std::size_t unit = std::clamp<std::size_t>(kShortestGpuMessage / element, 1, most);
  const std::size_t wanted = algorithm.by_part(spec, topology) ? longest : longest / kRoundsOnAChain;
  plan.segment = std::clamp((wanted + unit - 1) / unit * unit, unit, most);
  plan.rounds = std::max<std::size_t>(1, (longest + plan.segment - 1) / plan.segment);
  const auto depths = static_cast<std::size_t>(algorithm.depths(spec, topology));
  plan.rounds_in_flight = std::min((depths + plan.issue_interval - 1) / plan.issue_interval, plan.rounds);
}

/// Replaces the plan for host memory by the properties of a call that NCCL performs.
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

}  // namespace

void fill_for_path(Plan& plan, const DevicePathChoice& choice, const Request& request, const Topology& topology,
                   std::size_t longest) {
  plan.device_path = choice.device_path;
  plan.device_path_reason = choice.reason;
  if (choice.device_path == DevicePath::nccl) plan_nccl(plan, request, topology);
  if (choice.device_path == DevicePath::steps) cut_for_gpus(plan, request, topology, longest, choice.message_bytes);
}

}  // namespace collectives
