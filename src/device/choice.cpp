#include "device/choice.hpp"

#include <fmt/format.h>

#include "device/device.hpp"

namespace collectives {

std::string_view to_string(Way way) noexcept {
  switch (way) {
    case Way::host: return "host";
    case Way::staged: return "staged";
    case Way::kernels: return "kernels";
  }
  return "unknown way";
}

WayChoice choose_way(const Request& request, const Topology& topology) {
  if (request.memory == Memory::host) return {};
  if (!topology.one_host()) return {Way::staged, "there are several hosts"};
  if (request.backend != "auto" && request.backend != "hierarchical")
    return {Way::staged, fmt::format("{} works in memory of the host", request.backend)};
  if (request.op.user_op() != nullptr) return {Way::staged, "the op is a function of the host"};
  if (!topology.gpus.within_reach)
    return {Way::staged, topology.gpus.everywhere ? topology.gpus.apart : topology.gpus.missing};
  if (static_cast<std::size_t>(topology.ranks()) > Device::kMostSources)
    return {Way::staged, fmt::format("a kernel reads from {} ranks at most", Device::kMostSources)};
  return {Way::kernels, "one host, whose GPUs reach one another's memory"};
}

}  // namespace collectives
