// GPU of a rank, for measurements of buffers in GPU memory (--buffers device).
//
// The CPU fills and checks an image, a copy of the GPU's memory in CPU memory. This file copies the image to the GPU
// and back. The program needs no header or library of CUDA, because it calls the library's component for CUDA.
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
  /// Collective. Assigns the GPUs of a host to its ranks in turn and makes this rank's GPU current. Throws BadArguments
  /// if this rank finds no GPU.
  explicit Gpu(Bootstrap& bootstrap);
  ~Gpu();
  Gpu(const Gpu&) = delete;
  Gpu& operator=(const Gpu&) = delete;

  /// Returns a cudaStream_t for calls.
  void* stream() const noexcept { return stream_; }
  /// Blocks until the stream has completed. Throws Error{timeout} after two minutes.
  void wait();
  /// Copies between CPU and GPU memory in the stream, then waits.
  void copy(void* to, const void* from, std::size_t bytes);

  /// Allocates pinned CPU memory, filled with zeros.
  std::byte* allocate_image(std::size_t bytes);
  void free_image(std::byte* image) noexcept;

 private:
  std::unique_ptr<Device> device_;
  void *stream_ = nullptr, *event_ = nullptr;
};

}  // namespace collectives::bench
