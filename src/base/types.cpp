// Names of collectives, kinds of memory, element types and ops, as text. Texts about plans and errors contain these
// names, and users write them on command lines.
#include "collectives/types.hpp"

#include <cstddef>
#include <iterator>

namespace collectives {

std::string_view to_string(Collective collective) noexcept {
  switch (collective) {
    case Collective::all_reduce: return "all_reduce";
    case Collective::reduce_scatter: return "reduce_scatter";
    case Collective::all_gather: return "all_gather";
    case Collective::broadcast: return "broadcast";
    case Collective::reduce: return "reduce";
    case Collective::barrier: return "barrier";
    case Collective::all_to_all: return "all_to_all";
    case Collective::gather: return "gather";
    case Collective::scatter: return "scatter";
    case Collective::scan: return "scan";
    case Collective::exclusive_scan: return "exclusive_scan";
  }
  return "unknown collective";
}

std::string_view to_string(Memory memory) noexcept { return memory == Memory::host ? "host" : "device"; }

std::string_view to_string(DataType type) noexcept {
  const auto index = static_cast<std::size_t>(type);
  return index < std::size(detail::kTypeFacts) ? detail::kTypeFacts[index].name : "unknown type";
}

std::string_view to_string(ReduceOp::Kind kind) noexcept {
  const auto index = static_cast<std::size_t>(kind);
  return index < std::size(detail::kOpFacts) ? detail::kOpFacts[index].name : "unknown op";
}

}  // namespace collectives
