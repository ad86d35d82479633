// Implementation of explain(), which describes a plan in a few lines of text for users. The text names the algorithm,
// the reason for its choice, its estimated time, and the estimates of the algorithms that were not chosen.
#include <fmt/format.h>

#include <string>

#include "base/text.hpp"
#include "collectives/codec.hpp"
#include "collectives/plan.hpp"
#include "core/collective.hpp"
#include "planning/device_capabilities.hpp"

namespace collectives {

std::string explain(const Plan& plan, const Request& request, const Topology& topology) {
  std::string text = fmt::format("{} {} {}{}, {}\n", to_string(request.collective),
                                 bytes_text(request.count * size_of(request.type)), to_string(request.type),
                                 reduces(request.collective) ? fmt::format(" {}", to_string(request.op.kind())) : "",
                                 to_string(topology));
  if (plan.device_path == DevicePath::nccl) {
    text += fmt::format("  nccl: {}\n", plan.device_path_reason);
    if (plan.partial_sums == PartialSums::forbidden)
      text +=
          fmt::format("  direct exchange: contributions travel unsummed, their owner folds them in rank order: {}\n",
                      plan.coded ? "coded sums would be rounded at every hop"
                                 : why_no_native_nccl_reduction(request.op, request.type, request.deterministic));
    if (!plan.codec_reason.empty()) text += fmt::format("  wire: {}\n", plan.codec_reason);
    return text;
  }
  text += fmt::format("  {}", plan.name);
  if (plan.rounds > 1)
    text += fmt::format(", {} rounds of segments of {}{}", plan.rounds,
                        bytes_text(plan.segment * element_bytes_of(request.type, request.op)),
                        plan.rounds_in_flight > 1 ? fmt::format(", {} under way at once", plan.rounds_in_flight) : "");
  text += fmt::format(": {}\n", plan.reason);
  if (plan.partial_sums == PartialSums::forbidden && topology.ranks() > 1)
    text += fmt::format("  direct exchange: contributions travel unsummed, their owner adds them in rank order{}\n",
                        request.deterministic ? " (deterministic)" : fmt::format(" ({})", to_string(request.type)));
  if (plan.partial_sums == PartialSums::intra_host)
    text += fmt::format("  direct exchange: {} travel unsummed, their owner adds them in order ({})\n",
                        plan.backend == "hierarchical" ? "the sums of hosts" : "contributions", request.codec->name());
  if (!plan.codec_reason.empty()) text += fmt::format("  wire: {}\n", plan.codec_reason);
  if (plan.device_path != DevicePath::host)
    text += fmt::format("  device memory: {}: {}\n", to_string(plan.device_path), plan.device_path_reason);
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
