// Memory of a GPU that a communicator has been told of, so that what works on it is prepared once and not in each call.
//
//   DeviceArray<float> gradient = comm.allocate_on_device<float>(1'000'000);   // or, for memory that exists already:
//   DeviceMemory known = comm.register_memory(pointer, bytes);                 // until `known` is destroyed
//   comm.all_reduce(gradient, ReduceOp::average, {.stream = stream});
//
// What holds for both:
//   Need       none: calls take any device memory. Ask access() what has become of it.
//   NCCL       where it connects the ranks, memory is registered with it (ncclCommRegister), and taken from it
//              (ncclMemAlloc) where it is allocated: its collectives then work in place where links and network can.
//              That pays if every rank's buffer is registered, each at the same offset in what was. Registration is
//              this rank's own affair: nobody waits for the others, and who registers nothing harms nobody. (NCCL's
//              windows would be a collective call.)
//   Elsewhere  it is memory as of cudaMalloc, which peers open at the first call that uses it, and keep open.
//   Wait       for the operations of this communicator that are under way, under their deadlines: to register, to
//              allocate, and to destroy what was given. Given back, memory goes as by cudaFree, which may wait for the
//              whole GPU.
//   Owner      the program. It may outlive the communicator, and is registered no longer then; calls of other
//              communicators may use it, too, as memory that they have not been told of.
//   Threads    each of these, destructors included, is a call of the communicator: one at a time, as long as that
//              exists.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "collectives/export.hpp"
#include "collectives/memory.hpp"
#include "collectives/types.hpp"

namespace collectives {

/// How the communicator's calls reach memory of a GPU.
enum class DeviceAccess : std::uint8_t {
  registered,  ///< with NCCL
  mapped,      ///< the GPUs of the other ranks, which are on this host, reach it
  copied,      ///< calls copy it to where others reach it
};

COLLECTIVES_EXPORT std::string_view to_string(DeviceAccess) noexcept;

/// Bytes on a GPU: allocated, and freed at the end, or the program's, and only known until then. Move-only.
class COLLECTIVES_EXPORT DeviceMemory {
 public:
  DeviceMemory() noexcept;
  DeviceMemory(DeviceMemory&&) noexcept;
  DeviceMemory& operator=(DeviceMemory&&) noexcept;
  ~DeviceMemory();

  /// At a multiple of 256 where it was allocated; null for no bytes.
  std::byte* data() const noexcept;
  std::size_t size() const noexcept;

  /// What the communicator has made of it; `copied` when it is empty.
  DeviceAccess access() const noexcept;
  /// The same in words: "4 MiB on GPU 1: registered (NCCL 2.28.9 (libnccl.so.2))".
  std::string describe() const;

 private:
  friend class Communicator;
  struct State;
  explicit DeviceMemory(std::unique_ptr<State>) noexcept;
  std::unique_ptr<State> state_;
};

/// An array in DeviceMemory; converts to Buffer and ConstBuffer. The host may not touch its elements. Move-only.
template <Element T>
class DeviceArray {
 public:
  using value_type = T;

  DeviceArray() noexcept = default;
  /// As many elements as fit.
  explicit DeviceArray(DeviceMemory memory) noexcept : memory_(std::move(memory)) {}

  T* data() const noexcept { return reinterpret_cast<T*>(memory_.data()); }
  std::size_t size() const noexcept { return memory_.size() / sizeof(T); }
  bool empty() const noexcept { return size() == 0; }
  Buffer buffer() const noexcept { return {data(), size(), data_type_v<T>}; }
  operator Buffer() const noexcept { return buffer(); }
  operator ConstBuffer() const noexcept { return buffer(); }

  DeviceAccess access() const noexcept { return memory_.access(); }
  std::string describe() const { return memory_.describe(); }

 private:
  DeviceMemory memory_;
};

}  // namespace collectives
