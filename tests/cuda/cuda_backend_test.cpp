// Runs the conformance suite for every backend with buffers in GPU memory from CUDA. All ranks share one GPU: a real
// one, or the fake of CUDA in tests/fakes.
#include "conformance/backend_conformance.hpp"
#include "support/gpu_buffers.hpp"

namespace collectives::testing {

/// Skips all tests of this program if there is no GPU.
class NeedsGpu : public ::testing::Environment {
 public:
  void SetUp() override {
    std::string why_not;
    if (find_device(why_not) == nullptr) GTEST_SKIP() << "skipped: no CUDA device: " << why_not;
  }
};

const bool kOnGpu = [] {
  ::testing::AddGlobalTestEnvironment(new NeedsGpu);
  placement = []() -> std::unique_ptr<BufferPlacement> { return std::make_unique<BuffersOnGpu>(); };
  return true;
}();

const auto kName = [](const auto& parameters) { return "Ranks_" + std::get<1>(parameters.param).name; };

std::vector<World> some_worlds() {
  return {{"1", {0}}, {"2", {0, 0}}, {"4", std::vector<int>(4)}, {"8", std::vector<int>(8)}, {"2hosts", {0, 1, 0, 1}}};
}

#define COLLECTIVES_BACKEND_CONFORMS(backend)           \
  INSTANTIATE_TEST_SUITE_P(backend, BackendConformance, \
                           ::testing::Combine(::testing::Values(#backend), ::testing::ValuesIn(some_worlds())), kName)

COLLECTIVES_BACKEND_CONFORMS(auto);
COLLECTIVES_BACKEND_CONFORMS(ring);
COLLECTIVES_BACKEND_CONFORMS(hierarchical);
COLLECTIVES_BACKEND_CONFORMS(reduce_to_one);

}  // namespace collectives::testing
