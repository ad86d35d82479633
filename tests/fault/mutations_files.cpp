// Targets of mutations: files of the user, and pages of other processes.
#include "fault/mutations.hpp"

namespace collectives::testing {

std::vector<MutationTarget> file_targets() { return {}; }

}  // namespace collectives::testing
