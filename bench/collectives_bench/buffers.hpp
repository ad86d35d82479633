// Buffers of the measured calls: where their memory comes from and which call uses which.
//
// A rank has two areas of memory, one for inputs and one for outputs. A call in place uses only the area for inputs.
// With --rotate each area holds many buffers of equal length, and every timed call uses the next one. Before a call
// uses a buffer again, other buffers have replaced it in the caches.
//
// Memory of a GPU has an image, a copy in CPU memory. The CPU fills and checks the image. send() copies it to the GPU,
// and fetch() copies it back. Calls receive addresses in GPU memory, which are away() bytes after those of the image.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "collectives/communicator.hpp"
#include "collectives/memory.hpp"
#include "collectives/types.hpp"
#include "collectives_bench/gpu.hpp"
#include "collectives_bench/options.hpp"

namespace collectives::bench {

inline constexpr std::size_t kLineBytes = 64;  ///< bytes of a cache line; every buffer begins on one

/// Rounds `bytes` up to whole cache lines.
constexpr std::size_t whole_lines(std::size_t bytes) noexcept {
  return (bytes + kLineBytes - 1) / kLineBytes * kLineBytes;
}

/// Memory of the kind that the option --buffers names. All its pages are present, so that measured calls cause no page
/// faults.
class BufferMemory {
 public:
  /// Allocates ordinary memory of this process.
  explicit BufferMemory(std::size_t bytes) : ordinary_(bytes) {}
  /// Allocates memory of the library, which the ranks of this host can access directly.
  BufferMemory(std::size_t bytes, const Communicator& comm) : allocated_(comm.allocate<std::byte>(bytes)) {}
  /// Allocates memory of the GPU, and its image. `gpu` must outlive this object.
  BufferMemory(std::size_t bytes, Communicator& comm, Gpu& gpu)
      : gpu_(&gpu), on_gpu_(comm.allocate_bytes_on_device(bytes)), image_(gpu.allocate_image(bytes)) {}
  BufferMemory(BufferMemory&& other) noexcept
      : ordinary_(std::move(other.ordinary_)),
        allocated_(std::move(other.allocated_)),
        gpu_(other.gpu_),
        on_gpu_(std::move(other.on_gpu_)),
        image_(std::exchange(other.image_, nullptr)) {}
  BufferMemory& operator=(BufferMemory&&) = delete;
  ~BufferMemory() {
    if (image_ != nullptr) gpu_->free_image(image_);
  }

  /// Returns the memory that the CPU fills and checks: the buffers, or the image of those on a GPU.
  std::span<std::byte> bytes() noexcept {
    if (image_ != nullptr) return {image_, on_gpu_.size()};
    return allocated_.empty() ? std::span<std::byte>(ordinary_) : std::span<std::byte>(allocated_);
  }
  /// Returns the distance in bytes from bytes() to the memory that calls use.
  std::ptrdiff_t away() const noexcept {
    if (image_ == nullptr) return 0;
    return static_cast<std::ptrdiff_t>(reinterpret_cast<std::uintptr_t>(on_gpu_.data()) -
                                       reinterpret_cast<std::uintptr_t>(image_));
  }
  /// Copies [offset, offset + bytes) from the image to the GPU; fetch() copies it back. Both do nothing without a GPU.
  void send(std::size_t offset, std::size_t bytes) {
    if (image_ != nullptr) gpu_->copy(on_gpu_.data() + offset, image_ + offset, bytes);
  }
  void fetch(std::size_t offset, std::size_t bytes) {
    if (image_ != nullptr) gpu_->copy(image_ + offset, on_gpu_.data() + offset, bytes);
  }

 private:
  std::vector<std::byte> ordinary_;
  SharedArray<std::byte> allocated_;
  Gpu* gpu_ = nullptr;
  DeviceMemory on_gpu_;
  std::byte* image_ = nullptr;
};

/// Buffers of equal length with guard bytes before and after each one. An overwritten guard shows a write outside a
/// buffer.
class GuardedBuffers {
 public:
  /// Returns the bytes of memory that `count` buffers of `bytes` bytes need. Empty buffers all lie at one address.
  static std::size_t memory_for(std::size_t bytes, std::size_t count) noexcept;

  explicit GuardedBuffers(BufferMemory memory);
  /// Divides the memory into `count` buffers of `bytes` and writes the guards, but not the contents. Returns the first
  /// buffer.
  std::byte* use(std::size_t bytes, std::size_t count);
  /// Returns the bytes from one buffer to the next.
  std::size_t stride() const noexcept { return bytes_ == 0 ? 0 : spacing(bytes_); }
  /// Returns the number of guard bytes overwritten since use().
  std::size_t damaged() const;

  /// Copies everything from the first guard to the last to the GPU; fetch() copies it back. Both do nothing without a
  /// GPU.
  void send() { memory_.send(offset(), length()); }
  void fetch() { memory_.fetch(offset(), length()); }
  /// Returns the distance from addresses in this memory to those that calls receive.
  std::ptrdiff_t away() const noexcept { return memory_.away(); }

 private:
  static constexpr std::size_t kGuardBytes = kLineBytes;
  static constexpr std::size_t spacing(std::size_t bytes) noexcept { return whole_lines(bytes) + kGuardBytes; }
  template <class Visit>
  void for_each_guard(Visit&& visit) const;

  std::size_t offset() noexcept { return static_cast<std::size_t>(begin_ - memory_.bytes().data()) - kGuardBytes; }
  std::size_t length() const noexcept { return kGuardBytes + count_ * spacing(bytes_); }

  BufferMemory memory_;
  std::byte* begin_;
  std::size_t bytes_ = 0, count_ = 0;
};

/// Bytes of one rank's buffers in one call.
struct Footprint {
  std::size_t input = 0;  ///< the whole vector if in place
  std::size_t output = 0;
};
Footprint footprint(const Case&, Rank rank, int ranks, Rank root);

/// Returns the number of footprints whose cache lines have at least `rotate` bytes together. The number is odd, so that
/// two libraries that take turns both use all of them.
std::size_t sets_for(const Footprint&, std::size_t rotate) noexcept;

/// One call of this rank.
struct Call {
  Operation operation;
  DataType type;
  ReduceOp op;
  Rank root, rank;
  bool in_place;
  ConstBuffer input;
  Buffer output;
  void* whole;                                  ///< start of the whole vector; null out of place
  std::span<const std::size_t> counts = {};     ///< elements of each part of the vector that this rank has
  std::size_t count = 0;                        ///< Case::count
  Rank peer_to = kNoRank, peer_from = kNoRank;  ///< ranks at the other ends of messages; kNoRank: none
  std::size_t set = 0;                          ///< number of the set of buffers, from 0
};

/// Returns the first call of a case on the buffers at `input` and `output`. In place, only `input` matters. `counts`
/// holds the part_counts() of a case with parts, must outlive the call, and is empty for other cases.
Call call_on(std::byte* input, std::byte* output, const Case&, std::span<const std::size_t> counts, Rank rank,
             int ranks, Rank root);

/// Repeats a call on one set of buffers after another.
class Rotation {
 public:
  /// `first` uses the first of `sets`. The next set lies `input_stride` and `output_stride` bytes further.
  Rotation(const Call& first, std::size_t sets, std::size_t input_stride, std::size_t output_stride) noexcept
      : first_(first), current_(first), sets_(sets), input_stride_(input_stride), output_stride_(output_stride) {}

  const Call& current() const noexcept { return current_; }
  /// Selects the next set and returns the call on it. The first set follows the last.
  const Call& next() noexcept;
  std::size_t sets() const noexcept { return sets_; }

 private:
  Call first_, current_;
  std::size_t sets_, input_stride_, output_stride_, at_ = 0;
};

}  // namespace collectives::bench
