// Runs the conformance suite for every backend (ring, hierarchical ...), and for each algorithm of a backend that has
// several.
#include "conformance/backend_conformance.hpp"

namespace collectives::testing {

const auto kName = [](const auto& parameters) { return "Ranks_" + std::get<1>(parameters.param).name; };

#define COLLECTIVES_BACKEND_CONFORMS(backend)           \
  INSTANTIATE_TEST_SUITE_P(backend, BackendConformance, \
                           ::testing::Combine(::testing::Values(#backend), ::testing::ValuesIn(worlds())), kName)

COLLECTIVES_BACKEND_CONFORMS(auto);
COLLECTIVES_BACKEND_CONFORMS(hierarchical);
INSTANTIATE_TEST_SUITE_P(hierarchical_two_level, BackendConformance,
                         ::testing::Combine(::testing::Values("hierarchical"),
                                            ::testing::ValuesIn(worlds_of_domains())),
                         kName);
COLLECTIVES_BACKEND_CONFORMS(ring);
COLLECTIVES_BACKEND_CONFORMS(reduce_to_one);
COLLECTIVES_BACKEND_CONFORMS(reduce_to_one_direct);
COLLECTIVES_BACKEND_CONFORMS(reduce_to_one_tree);

}  // namespace collectives::testing
