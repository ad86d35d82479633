// List of all targets of mutations.
#include <algorithm>
#include <iterator>
#include <vector>

#include "fault/mutations.hpp"

namespace collectives::testing {

std::vector<MutationTarget> mutation_targets() {
  std::vector<MutationTarget> all;
  for (const auto targets : {record_targets, file_targets, rendezvous_targets, wire_targets})
    std::ranges::move(targets(), std::back_inserter(all));
  return all;
}

}  // namespace collectives::testing
