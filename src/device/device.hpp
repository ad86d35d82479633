// What a communicator asks of a GPU: one object stands for the GPU that its rank works on. Nothing here is CUDA's; the
// component cuda implements it (src/cuda/device.cpp), and tests have one that only pretends.
//
// Nothing waits for the GPU, except where memory is given back. What is put into a stream is performed in the stream's
// order; whoever wants to know how far it is records an event and asks. From any thread, at any time;
// the GPU that is current to the caller's thread stays so. What the GPU or its driver refuses is Error{system}, in a
// line that begins with whose words they are ("CUDA: ..."), without rank and operation, which the caller knows.
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
  /// CUDA's stream and event; a null stream is its default one.
  using Stream = void*;
  using Event = void*;
  /// A GPU, the same to every process of the machine.
  using Identity = std::array<std::uint8_t, 16>;
  /// What another process opens memory by.
  using Handle = std::array<std::uint8_t, 64>;

  enum class Kind : std::uint8_t {
    host,     ///< the GPU knows nothing of it
    pinned,   ///< the host's, which the GPU reaches
    managed,  ///< wherever it was touched last
    device    ///< a GPU's, which the host must not touch
  };
  /// Whose memory is this?
  struct Memory {
    Kind kind = Kind::host;
    int device = -1;  ///< the GPU whose it is; -1 for that of the host
  };
  /// What memory of Kind::device lies in. Zeros where the driver does not tell.
  struct Allocation {
    std::byte* base = nullptr;
    std::size_t bytes = 0;
    std::uint64_t buffer_id = 0;  ///< another one for every allocation, whatever its address
  };

  virtual ~Device() = default;

  // ---- who it is ----

  /// As this process counts GPUs.
  virtual int number() const = 0;
  /// "NVIDIA H100 80GB HBM3"
  virtual std::string name() const = 0;
  virtual Identity identity() const = 0;
  /// Makes it current to the calling thread, which was made for this GPU.
  virtual void make_current() noexcept = 0;
  /// Makes the memory of `other`, a GPU of this machine, reachable for kernels and copies of this one. Empty, or why
  /// not, in words.
  virtual std::string reach(const Identity& other) = 0;

  // ---- memory ----

  /// Asked of every buffer in every call: one question to the driver.
  virtual Memory memory_of(const void* address) const = 0;
  /// Likewise. All zeros for what is no memory of a GPU, or of one no longer.
  virtual Allocation allocation_of(const void* address) const = 0;
  /// Device memory, and pinned memory of the host, at multiples of 256.
  virtual void* allocate(std::size_t bytes) = 0;
  virtual void* allocate_pinned(std::size_t bytes) = 0;
  /// Either may wait for the whole GPU: nothing of it may be under way, or a GPU that has stopped stops the caller.
  virtual void free(void* memory) noexcept = 0;
  virtual void free_pinned(void* memory) noexcept = 0;
  /// Pins memory that exists; likewise.
  virtual void pin(void* memory, std::size_t bytes) = 0;
  virtual void unpin(void* memory) noexcept = 0;

  /// Shows an allocation, given by its base, to other processes of this machine.
  virtual Handle share(void* base) = 0;
  /// The memory of another process, until close(). Not that of this process, which has an address here.
  virtual void* open(const Handle& handle) = 0;
  virtual void close(void* opened) noexcept = 0;

  // ---- streams and events ----

  /// One that waits for no other stream, nor they for it.
  virtual Stream new_stream() = 0;
  /// What is in it is still performed.
  virtual void end_stream(Stream stream) noexcept = 0;
  /// The number of the GPU it belongs to; of the default stream, that of the thread's current GPU.
  virtual int device_of(Stream stream) const = 0;
  /// Whether what is put into it now is written down for later (a graph) in place of being performed.
  virtual bool capturing(Stream stream) const = 0;

  virtual Event new_event() = 0;
  virtual void end_event(Event event) noexcept = 0;
  /// `event` is reached when everything is done that `stream` holds by now.
  virtual void record(Event event, Stream stream) = 0;
  /// One never recorded is. Throws what the GPU has failed with.
  virtual bool reached(Event event) = 0;
  /// What is put into `stream` from now on begins when `event` is reached, as it was recorded last.
  virtual void wait(Stream stream, Event event) = 0;

  // ---- copies and kernels; into a stream ----

  /// All zero.
  virtual void clear(void* memory, std::size_t bytes, Stream stream) = 0;
  /// Between any two kinds of memory; does not wait where the host's side is pinned.
  virtual void copy(void* to, const void* from, std::size_t bytes, Stream stream) = 0;

  // As the functions of cuda/kernels.hpp, which say what each does. Elements lie at multiples of their size.

  /// Sources and outs of one fold.
  static constexpr std::size_t kMostSources = kKernelSources, kMostOuts = 8;
  struct SelectInput {
    const float* gradient = nullptr;
    float* accumulated = nullptr;  ///< or null: chosen from the gradient
    float* velocity = nullptr;     ///< or null; needs accumulated
    std::size_t n = 0;
    float momentum = 0;
    float scale = 1;
    bool masking = true;
  };
  /// What a rank has chosen: indices, ascending, and values.
  struct Term {
    const std::uint32_t* indices;
    const float* values;
    std::size_t count;
  };

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

  // ---- NCCL ----

  /// As this process finds it; null, and why not in a line, where it cannot be used.
  virtual const Nccl* nccl(std::string& why_not) = 0;
  /// Calls `work` with this GPU current to the thread, as what is asked of NCCL needs it.
  virtual void while_current(const std::function<void()>& work) = 0;
};

}  // namespace collectives
