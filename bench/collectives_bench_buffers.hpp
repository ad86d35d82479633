// The memory that is measured: where it comes from, where a call's buffers lie in it, and which call uses which.
//
// A rank has two pieces of memory, for input and output; in place, the whole vector lives in the first. With --rotate
// each holds many buffers of equal length, and every timed call takes the next, so that none is in a cache any more
// when its turn comes again.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "collectives/communicator.hpp"
#include "collectives/memory.hpp"
#include "collectives/types.hpp"
#include "collectives_bench_options.hpp"

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
  std::span<std::byte> bytes() noexcept {
    return allocated_.empty() ? std::span<std::byte>(ordinary_) : std::span<std::byte>(allocated_);
  }
  std::span<const std::byte> bytes() const noexcept {
    return allocated_.empty() ? std::span<const std::byte>(ordinary_) : std::span<const std::byte>(allocated_);
  }

 private:
  std::vector<std::byte> ordinary_;
  SharedArray<std::byte> allocated_;
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

 private:
  static constexpr std::size_t kGuardBytes = kLineBytes;
  static constexpr std::size_t spacing(std::size_t bytes) noexcept { return whole_lines(bytes) + kGuardBytes; }
  template <class Visit>
  void for_each_guard(Visit&& visit) const;

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
