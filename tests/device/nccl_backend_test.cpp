// Runs the conformance suite for the backend "nccl", and for "hierarchical" with NCCL inside hosts. Each rank has a
// fake GPU that has no access to the memory of the other GPUs. A fake of NCCL (fakes/nccl) connects them.
#include "conformance/backend_conformance.hpp"
#include "cuda/nccl_communicator.hpp"
#include "support/gpu_buffers.hpp"
#include "support/nccl.hpp"

namespace collectives::testing {

const bool kOnGpus = [] {
  static FakeGpus all(8, true);
  static const FakeNccl streams(all);
  static const nccl::Loaded library(fake_nccl());
  all.set_nccl(&library);
  for (int one = 0; one < 8; ++one)
    for (int other = 0; other < one; ++other) all.keep_apart(one, other);
  placement = []() -> std::unique_ptr<BufferPlacement> { return std::make_unique<BuffersOnGpu>(); };
  return true;
}();

const auto kName = [](const auto& parameters) { return "Ranks_" + std::get<1>(parameters.param).name; };

std::vector<World> some_worlds() { return {{"1", {0}}, {"3", {0, 0, 0}}, {"2hosts_interleaved", {0, 1, 0, 1}}}; }

#define COLLECTIVES_BACKEND_CONFORMS(backend)           \
  INSTANTIATE_TEST_SUITE_P(backend, BackendConformance, \
                           ::testing::Combine(::testing::Values(#backend), ::testing::ValuesIn(some_worlds())), kName)

COLLECTIVES_BACKEND_CONFORMS(nccl);

INSTANTIATE_TEST_SUITE_P(hierarchical, BackendConformance,
                         ::testing::Combine(::testing::Values("hierarchical"),
                                            ::testing::Values(World{"3hosts_unequal", {0, 0, 1, 2, 2, 2}})),
                         kName);

}  // namespace collectives::testing
