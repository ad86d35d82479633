// Runs the conformance suite for every backend with buffers in the memory of two fake GPUs, which several ranks share.
// Every second call passes a stream.
#include "conformance/backend_conformance.hpp"
#include "fakes/gpu/fake_device.hpp"
#include "support/gpu_buffers.hpp"

namespace collectives::testing {

const bool kOnGpus = [] {
  static FakeGpus both(2, true);
  placement = []() -> std::unique_ptr<BufferPlacement> { return std::make_unique<BuffersOnGpu>(); };
  return true;
}();

const auto kName = [](const auto& parameters) { return "Ranks_" + std::get<1>(parameters.param).name; };

/// Returns a few worlds, layouts of ranks on hosts. Few are enough, because the work on a GPU hardly depends on the
/// number of ranks.
std::vector<World> some_worlds() { return {{"1", {0}}, {"3", {0, 0, 0}}, {"2hosts_interleaved", {0, 1, 0, 1, 1}}}; }

#define COLLECTIVES_BACKEND_CONFORMS(backend)           \
  INSTANTIATE_TEST_SUITE_P(backend, BackendConformance, \
                           ::testing::Combine(::testing::Values(#backend), ::testing::ValuesIn(some_worlds())), kName)

COLLECTIVES_BACKEND_CONFORMS(auto);
COLLECTIVES_BACKEND_CONFORMS(ring);
#if !defined(__SANITIZE_THREAD__) && !defined(__SANITIZE_ADDRESS__)  // sanitizers would take minutes
// Worlds with more ranks than one kernel can write to, and with hosts in which some ranks have no share of the vector.
INSTANTIATE_TEST_SUITE_P(more, BackendConformance,
                         ::testing::Combine(::testing::Values("auto"),
                                            ::testing::Values(World{"10", std::vector<int>(10)},
                                                              World{"3hosts_unequal", {0, 0, 1, 2, 2, 2}})),
                         kName);
COLLECTIVES_BACKEND_CONFORMS(hierarchical);
COLLECTIVES_BACKEND_CONFORMS(reduce_to_one_direct);
COLLECTIVES_BACKEND_CONFORMS(reduce_to_one_tree);
#endif

}  // namespace collectives::testing
