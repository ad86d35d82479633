// The GPU of a rank, for --buffers device. Contents are made and judged on the host, in an image of the memory that
// calls use, and travel in between. No header or library of CUDA is needed: the component that the library loads has
// it.
#pragma once

#include <cstddef>
#include <memory>

#include "collectives/bootstrap.hpp"
#include "collectives/communicator.hpp"

namespace collectives {
class Device;
}

namespace collectives::bench {

class Gpu {
 public:
  /// Collective, before there is a communicator: the ranks of a host take its GPUs in turn, and each makes its own
  /// current. Throws BadArguments where this rank finds none.
  explicit Gpu(Bootstrap& bootstrap);
  ~Gpu();
  Gpu(const Gpu&) = delete;
  Gpu& operator=(const Gpu&) = delete;

  /// What calls may be put into, a cudaStream_t.
  void* stream() const noexcept { return stream_; }
  /// Until everything in the stream has happened. Throws Error{timeout} after two minutes.
  void wait();
  /// Between the host and the GPU, in the stream; waits.
  void copy(void* to, const void* from, std::size_t bytes);

  /// Pinned memory of the host; all zero.
  std::byte* allocate_image(std::size_t bytes);
  void free_image(std::byte* image) noexcept;

 private:
  std::unique_ptr<Device> device_;
  void *stream_ = nullptr, *event_ = nullptr;
};

}  // namespace collectives::bench
