// Buffers of conformance suites in the memory of pretended GPUs. Every second call is put into a stream.
#pragma once

#include <algorithm>
#include <memory>
#include <optional>
#include <vector>

#include "support/pretended_device.hpp"
#include "support/subject.hpp"

namespace collectives::testing {

/// Those of this program, which has it.
PretendedGpus& gpus();

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
    if (bytes > 0) gpus().download(to, from, bytes);
  }
  std::optional<void*> next_stream() override {
    return ++calls_ % 2 == 0 ? std::optional<void*>(stream_) : std::nullopt;
  }

 private:
  Device::Stream stream_ = gpus().new_stream();
  unsigned calls_ = 0;
};

}  // namespace collectives::testing
