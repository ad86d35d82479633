// The memory that is measured: where it comes from, where a call's buffers lie in it, and which call uses which.
//
// A rank has two pieces of memory, for input and output; in place, the whole vector lives in the first. With --rotate
// each holds many buffers of equal length, and every timed call takes the next, so that none is in a cache any more
// when its turn comes again.
//
// Memory of a GPU has an image on the host, which is what is filled and looked at here: send() and fetch() carry a use
// over, and calls are told addresses that are `away` from those of the image.
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

inline constexpr std::size_t kLineBytes = 64;  ///< a cache line; every buffer begins on one

/// `bytes` up to the end of their last cache line.
constexpr std::size_t whole_lines(std::size_t bytes) noexcept {
  return (bytes + kLineBytes - 1) / kLineBytes * kLineBytes;
}

/// Memory of --buffers, present in full: the measured calls fault no page in.
class BufferMemory {
 public:
  /// Ordinary memory of this process.
  explicit BufferMemory(std::size_t bytes) : ordinary_(bytes) {}
  /// Memory that the communicator's peers reach directly.
  BufferMemory(std::size_t bytes, const Communicator& comm) : allocated_(comm.allocate<std::byte>(bytes)) {}
  /// Memory of the GPU, which outlives it.
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

  /// What the host fills and looks at.
  std::span<std::byte> bytes() noexcept {
    if (image_ != nullptr) return {image_, on_gpu_.size()};
    return allocated_.empty() ? std::span<std::byte>(ordinary_) : std::span<std::byte>(allocated_);
  }
  /// Bytes from that to what calls use.
  std::ptrdiff_t away() const noexcept {
    if (image_ == nullptr) return 0;
    return static_cast<std::ptrdiff_t>(reinterpret_cast<std::uintptr_t>(on_gpu_.data()) -
                                       reinterpret_cast<std::uintptr_t>(image_));
  }
  /// [offset, offset + bytes) of the host to the GPU, or back. Nothing where they are the same.
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

/// Buffers of equal length, with guard bytes right before and right after each, which show writes that miss it.
class GuardedBuffers {
 public:
  /// Bytes of memory for `count` buffers of `bytes`. Empty ones all stand in one place.
  static std::size_t memory_for(std::size_t bytes, std::size_t count) noexcept;

  explicit GuardedBuffers(BufferMemory memory);
  /// Begins a use as `count` buffers of `bytes`; the guards are fresh, the contents are not. The first buffer.
  std::byte* use(std::size_t bytes, std::size_t count);
  /// Bytes from one buffer to the next.
  std::size_t stride() const noexcept { return bytes_ == 0 ? 0 : spacing(bytes_); }
  /// Guard bytes overwritten since use().
  std::size_t damaged() const;

  /// Of a GPU's memory: everything from the first guard to the last, to the GPU and back.
  void send() { memory_.send(offset(), length()); }
  void fetch() { memory_.fetch(offset(), length()); }
  /// From addresses in here to those that calls are told.
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

/// What one rank's buffers of one call hold, in bytes.
struct Footprint {
  std::size_t input = 0;  ///< in place: the whole vector
  std::size_t output = 0;
};
Footprint footprint(const Case&, Rank rank, int ranks, Rank root) noexcept;

/// The number of footprints whose cache lines are together at least `rotate` bytes. Odd, so that two libraries that
/// take turns each come to all of them.
std::size_t sets_for(const Footprint&, std::size_t rotate) noexcept;

/// One collective call of this rank.
struct Call {
  Collective collective;
  DataType type;
  ReduceOp op;
  Rank root, rank;
  bool in_place;
  ConstBuffer input;
  Buffer output;
  void* whole;  ///< in place: the start of the whole vector
};

/// The same call on one set of buffers after another.
class Rotation {
 public:
  /// `first` on the first of `sets`; the input and output of the next lie `input_stride` and `output_stride` on.
  Rotation(const Call& first, std::size_t sets, std::size_t input_stride, std::size_t output_stride) noexcept
      : first_(first), current_(first), sets_(sets), input_stride_(input_stride), output_stride_(output_stride) {}

  const Call& current() const noexcept { return current_; }
  /// Moves on to the next set; after the last comes the first.
  const Call& next() noexcept;
  std::size_t sets() const noexcept { return sets_; }

 private:
  Call first_, current_;
  std::size_t sets_, input_stride_, output_stride_, at_ = 0;
};

}  // namespace collectives::bench
