// Every backend against the one suite, with buffers in the memory of GPUs that only pretend: two of them, so that some
// ranks share one. Every second call is put into a stream.
#include "backend_conformance.hpp"
#include "support/pretended_device.hpp"

namespace collectives::testing {

PretendedGpus& gpus() {
  static PretendedGpus both(2, true);
  return both;
}

class OnPretendedGpu final : public Elsewhere {
 public:
  ~OnPretendedGpu() override { gpus().end_stream(stream_); }
  std::byte* take(std::size_t bytes) override { return static_cast<std::byte*>(gpus().allocate(bytes)); }
  void give_back(std::byte* memory) override { gpus().free(memory); }
  void upload(std::byte* to, const void* from, std::size_t bytes, std::optional<void*> stream) override {
    if (!stream) return gpus().upload(to, from, bytes);
    const auto* first = static_cast<const std::byte*>(from);
    gpus().put(*stream, {{to, bytes}}, [to, values = std::vector<std::byte>(first, first + bytes)] {
      std::copy(values.begin(), values.end(), to);
    });
  }
  void download(void* to, const std::byte* from, std::size_t bytes, std::optional<void*> stream) override {
    if (stream) gpus().synchronize(*stream);
    gpus().download(to, from, bytes);
  }
  std::optional<void*> next_stream() override {
    return ++calls_ % 2 == 0 ? std::optional<void*>(stream_) : std::nullopt;
  }

 private:
  Device::Stream stream_ = gpus().new_stream();
  unsigned calls_ = 0;
};

const bool kOnGpus = [] {
  gpus();
  elsewhere = []() -> std::unique_ptr<Elsewhere> { return std::make_unique<OnPretendedGpu>(); };
  return true;
}();

const auto kName = [](const auto& parameters) { return "Ranks_" + std::get<1>(parameters.param).name; };

/// What differs on the way through a GPU is not the number of ranks.
std::vector<World> some_worlds() { return {{"1", {0}}, {"3", {0, 0, 0}}, {"2hosts_interleaved", {0, 1, 0, 1, 1}}}; }

#define COLLECTIVES_BACKEND_CONFORMS(backend)           \
  INSTANTIATE_TEST_SUITE_P(backend, BackendConformance, \
                           ::testing::Combine(::testing::Values(#backend), ::testing::ValuesIn(some_worlds())), kName)

COLLECTIVES_BACKEND_CONFORMS(auto);
INSTANTIATE_TEST_SUITE_P(more_than_a_kernel_writes_to, BackendConformance,
                         ::testing::Combine(::testing::Values("auto"),
                                            ::testing::Values(World{"10", std::vector<int>(10)})),
                         kName);
COLLECTIVES_BACKEND_CONFORMS(hierarchical);
COLLECTIVES_BACKEND_CONFORMS(ring);
COLLECTIVES_BACKEND_CONFORMS(reduce_to_one);

}  // namespace collectives::testing
