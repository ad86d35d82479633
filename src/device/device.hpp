// Device: the interface to the GPU on which a rank works.
//
// The interface needs no CUDA header. libcollectives_cuda, a library that is loaded at run time, implements it
// (src/cuda/device.cpp). GPU support is built and tested with fake GPUs, as described below. It has not yet run on a
// GPU.
//
// Rules for all functions:
//
// - No function waits for the GPU, with two exceptions: functions that allocate, free, pin or unpin memory, and copies
//   from or to host memory that is not pinned.
// - Work goes into a stream, which performs it in order. To learn how far a stream has come, record an event and poll
//   this event. A rank that waits for a GPU therefore still detects a passed deadline, a lost peer, or a peer in
//   another call.
// - Any thread may call any function at any time. The GPU that is current to the calling thread stays current, except
//   in make_current().
// - A failure of the GPU or its driver throws Error{system}, except in functions that are noexcept. The error text
//   begins with the source ("CUDA: ..."). The caller adds rank and operation to the error.
//
// Price: polling takes CPU time. Work in a stream cannot be cancelled, so it may still be performed after its call has
// failed.
//
// Tests need no GPU. A fake machine (tests/fakes/gpu) runs each stream as a thread. A test can make this machine slow,
// stop it, or let it fail. The fake machine allows access to device memory only from work in a stream. Two fakes use
// the machine:
//
// - A Device whose kernels run on the CPU. Each kernel declares the memory that it touches.
// - A replacement of CUDA's runtime library (tests/fakes/cuda). The code in src/cuda then runs on the CPU, each kernel
//   thread by thread.
//
// With LD_LIBRARY_PATH, any program can use the second fake. The fakes do not reproduce the speed, the memory model and
// the driver of a real GPU. Price: the second fake cannot launch kernels by `<<<>>>`, so src/cuda launches them by a
// function.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>

#include "collectives/types.hpp"
#include "device/nccl_comm.hpp"
#include "planning/device_capabilities.hpp"
#include "reduction/reduction.hpp"

namespace collectives {

class Device {
 public:
  /// CUDA stream and CUDA event. A null stream is CUDA's default stream.
  using Stream = void*;
  using Event = void*;
  /// Identity of a GPU. All processes of a machine see the same value.
  using Identity = std::array<std::uint8_t, 16>;
  /// Handle by which another process opens an allocation.
  using Handle = std::array<std::uint8_t, 64>;

  enum class Kind : std::uint8_t {
    host,     ///< CPU memory that is unknown to the GPU.
    pinned,   ///< CPU memory that the GPU can access.
    managed,  ///< Memory that migrates to the CPU or GPU that touches it.
    device    ///< Memory of a GPU, which the CPU must not touch.
  };
  /// Kind of memory at an address, and the GPU that owns it.
  struct Memory {
    Kind kind = Kind::host;
    int device = -1;  ///< number of the GPU that owns the memory; -1: none
  };
  /// Allocation that contains an address of Kind::device. All fields are 0 if the driver does not know the allocation.
  struct Allocation {
    std::byte* base = nullptr;
    std::size_t bytes = 0;
    /// Number of the allocation. It differs between allocations even if they have the same address.
    std::uint64_t buffer_id = 0;
  };

  /// Maximum numbers of sources and of destinations of one call of Kernels::fold().
  static constexpr std::size_t kMostSources = kKernelSources, kMostOuts = 8;
  struct SelectInput {
    const float* gradient = nullptr;
    /// Residual to which the gradient is added. Null: selects from the gradient.
    float* accumulated = nullptr;
    float* velocity = nullptr;  ///< Velocity for momentum. Null: none. Requires `accumulated`.
    std::size_t n = 0;
    float momentum = 0;
    float scale = 1;
    bool masking = true;
  };
  /// Selected elements of one rank: indices in ascending order, and their values.
  struct Term {
    const std::uint32_t* indices;
    const float* values;
    std::size_t count;
  };

  /// Access of this GPU to memory of other GPUs and other processes of this machine.
  class PeerAccess {
   public:
    virtual ~PeerAccess() = default;
    /// Enables kernels and copies of this GPU to access the memory of `other`, a GPU of this machine. Returns an empty
    /// string on success, or the reason for the failure.
    virtual std::string enable(const Identity& other) = 0;
    /// Returns a handle by which other processes of this machine can open the allocation at `base`.
    virtual Handle share(void* base) = 0;
    /// Maps an allocation of another process until close(). Must not be used for memory of this process, which already
    /// has an address here.
    virtual void* open(const Handle& handle) = 0;
    virtual void close(void* opened) noexcept = 0;
  };

  /// Kernels, each of which goes into a stream. cuda/kernels.hpp describes the functions of the same names. Elements
  /// must be aligned to their size.
  class Kernels {
   public:
    virtual ~Kernels() = default;
    virtual void fold(const ReduceOp& op, DataType type, std::span<const Source> sources,
                      std::span<std::byte* const> outs, std::size_t count, int finish_ranks, Stream stream) = 0;
    virtual void cast(ConstBuffer from, Buffer to, Stream stream) = 0;
    virtual void cast_reduce_scale(DataType type, std::span<const std::byte* const> sources, std::size_t count,
                                   float divisor, Buffer wire, float* seen, Stream stream) = 0;
    virtual std::size_t select_scratch_bytes(std::size_t n, std::size_t k) const = 0;
    virtual void select(const SelectInput& input, std::size_t k, std::uint32_t* indices, float* values, void* scratch,
                        Stream stream) = 0;
    virtual std::size_t sparse_scratch_bytes(std::size_t n) const = 0;
    virtual void sparse_add(std::span<const Term> terms, float divisor, float* sum, void* scratch,
                            std::uint32_t* union_size, Stream stream) = 0;
  };

  virtual ~Device() = default;
  /// Return the other interfaces to this GPU. They live as long as the Device.
  virtual PeerAccess& peer_access() noexcept = 0;
  virtual Kernels& kernels() noexcept = 0;

  // ---- identity ----

  /// Returns the number by which CUDA knows the GPU in this process.
  virtual int number() const = 0;
  /// Returns the name, for example "NVIDIA H100 80GB HBM3".
  virtual std::string name() const = 0;
  virtual Identity identity() const = 0;
  /// Makes this GPU current to the calling thread. Requires a thread that uses no other GPU.
  virtual void make_current() noexcept = 0;

  // ---- memory ----

  /// Returns the kind of memory at `address`. Costs one query to the driver. Each collective makes this query for each
  /// buffer, because an address may be reused for other memory.
  virtual Memory memory_of(const void* address) const = 0;
  /// Returns the allocation that contains `address`. Returns zeros if the address is no GPU memory, or if the memory
  /// has been freed. Costs one query to the driver.
  virtual Allocation allocation_of(const void* address) const = 0;
  /// Allocates device memory, or pinned host memory. May wait like free(). The result is aligned to 256 bytes.
  virtual void* allocate(std::size_t bytes) = 0;
  virtual void* allocate_pinned(std::size_t bytes) = 0;
  /// Frees memory. May wait for all work of the GPU. No work may be in progress, because a GPU that has stopped would
  /// block the caller.
  virtual void free(void* memory) noexcept = 0;
  virtual void free_pinned(void* memory) noexcept = 0;
  /// Pins or unpins existing host memory. May wait like free().
  virtual void pin(void* memory, std::size_t bytes) = 0;
  virtual void unpin(void* memory) noexcept = 0;

  // ---- streams and events ----

  /// Creates a stream. It waits for no other stream. No other stream waits for it.
  virtual Stream new_stream() = 0;
  /// Destroys a stream. Work that is already in it is still performed.
  virtual void end_stream(Stream stream) noexcept = 0;
  /// Returns the number of the stream's GPU. For the default stream that is the GPU current to the thread.
  virtual int device_of(Stream stream) const = 0;
  /// Returns true if the stream records its work into a graph instead of performing it.
  virtual bool capturing(Stream stream) const = 0;

  virtual Event new_event() = 0;
  virtual void end_event(Event event) noexcept = 0;
  /// Records `event` in `stream`. The event is reached once all earlier work of the stream is done.
  virtual void record(Event event, Stream stream) = 0;
  /// Returns true if the event is reached, or if it was never recorded. Throws the error with which the GPU has failed.
  virtual bool reached(Event event) = 0;
  /// Delays all later work of `stream` until the last recording of `event` is reached.
  virtual void wait(Stream stream, Event event) = 0;

  // ---- copies, which go into a stream ----

  /// Sets the memory to zero.
  virtual void clear(void* memory, std::size_t bytes, Stream stream) = 0;
  /// Copies between any two kinds of memory. Does not wait if the host side is pinned.
  virtual void copy(void* to, const void* from, std::size_t bytes, Stream stream) = 0;

  // ---- NCCL ----

  /// Returns the NCCL library that this process finds. Returns null and sets `why_not` to one line if NCCL cannot be
  /// used.
  virtual const Nccl* nccl(std::string& why_not) = 0;
  /// Calls `work` while this GPU is current to the thread, as NCCL requires.
  virtual void while_current(const std::function<void()>& work) = 0;
};

}  // namespace collectives
