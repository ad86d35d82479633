#include "device/choice.hpp"

namespace collectives {

std::string_view to_string(Way way) noexcept {
  switch (way) {
    case Way::host: return "host";
    case Way::staged: return "staged";
  }
  return "unknown way";
}

WayChoice choose_way(const Request& request, const Topology& topology) {
  if (request.memory == Memory::host) return {};
  if (topology.ranks() == 1) return {Way::staged, "there is one rank"};
  return {Way::staged, "through pinned memory of the host, where the plan is performed"};
}

}  // namespace collectives
