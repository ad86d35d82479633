// Implementation of the CPU as a device of the trainer. Its memory is ordinary memory of the process. All computations
// end before their function returns, so the functions that wait for a device do nothing.
#include "processor.hpp"

#include <sys/mman.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <new>

namespace mnist {
namespace {

class Processor : public Device {
 public:
  std::string_view name() const override { return "cpu"; }
  std::string description() const override { return "cpu"; }
  std::optional<void*> stream() const override { return {}; }

  /// Returns aligned memory. Large vectors get large pages, because a training step accesses more small pages than the
  /// processor's cache of page addresses (TLB) holds.
  Vector make(std::size_t count) override {
    constexpr std::size_t kLine = 64, kLargePage = 2 << 20;
    const std::size_t bytes = count * sizeof(float);
    const std::size_t alignment = bytes < kLargePage / 4 ? kLine : kLargePage;
    const std::size_t rounded = (bytes + alignment - 1) / alignment * alignment;
    const std::shared_ptr<float> data(static_cast<float*>(std::aligned_alloc(alignment, std::max(rounded, kLine))),
                                      std::free);
    if (!data) throw std::bad_alloc();
    if (alignment == kLargePage) ::madvise(data.get(), rounded, MADV_HUGEPAGE);  // a request that the kernel may ignore
    std::memset(data.get(), 0, bytes);
    return {data, count};
  }
  void clear(std::span<float> values) override { std::ranges::fill(values, 0.0f); }
  void copy(std::span<const float> from, std::span<float> to) override { std::ranges::copy(from, to.begin()); }
  void read(std::span<const float> from, std::span<float> to) override { copy(from, to); }
  void write(std::span<const float> from, std::span<float> to) override { copy(from, to); }
  void add(std::span<const float> more, std::span<float> sum) override { add_in_loop(more, sum); }
  void update(OptimizerKind kind, std::span<float> weights, std::span<const float> gradients, std::span<float> state,
              float rate) override {
    update_in_loop(kind, weights, gradients, state, rate);
  }
  std::unique_ptr<PassBuilder> build(std::size_t images, bool training) override {
    return build_with_onednn(images, training);
  }
  bool idle() override { return true; }
};

}  // namespace

Device& processor() {
  static Processor one;
  return one;
}

}  // namespace mnist
