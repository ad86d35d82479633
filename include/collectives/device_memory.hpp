// GPU memory that a communicator prepares once for many calls, for example by registering it with NCCL. Calls on such
// memory may be faster.
//
//   DeviceArray<float> gradient = comm.allocate_on_device<float>(1'000'000);   // or, for existing memory:
//   DeviceMemory known = comm.register_memory(pointer, bytes);                 // until `known` is destroyed
//   comm.all_reduce(gradient, ReduceOp::average, {.stream = stream});
//
// allocate_on_device() and register_memory() have these properties:
//
// Use. A program may do without these functions, because calls accept any GPU memory. DeviceMemory::access() returns
// how calls access the memory.
//
// NCCL. If NCCL connects the ranks, memory is registered with NCCL (ncclCommRegister). allocate_on_device() then takes
// new memory from NCCL (ncclMemAlloc). A version of NCCL without these functions registers nothing. NCCL's collectives
// can access registered buffers directly, if the links and the network allow it. Calls are faster if every rank's
// buffer is registered, each at the same offset in its registered range.
//
// A rank registers memory without the other ranks, or leaves its memory unregistered. NCCL's windows are not used,
// because all ranks must make them together.
//
// Without NCCL. The memory is like memory from cudaMalloc. If the GPUs of the other ranks can access the memory, they
// map it in the first call that uses it, and keep it mapped. Without such access, each call copies the values.
//
// Waiting. Registering, allocating and destroying first wait until this communicator's unfinished operations end, at
// the latest by their deadlines. Memory is freed as by cudaFree, which may wait for the whole GPU.
//
// Owner. The program owns the DeviceMemory object. The object may outlive the communicator. The memory is then no
// longer registered. Calls of other communicators may use the memory too, like any other GPU memory.
//
// Threads. A communicator accepts one call at a time. allocate_on_device(), register_memory() and the destructor of a
// DeviceMemory count as calls of the communicator.
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

/// Way in which calls of the communicator access GPU memory.
enum class DeviceAccess : std::uint8_t {
  registered,  ///< Registered with NCCL.
  mapped,      ///< Mapped by the GPUs of the other ranks, which are on this host.
  copied,      ///< Copied by each call to memory that the other ranks can access.
};

COLLECTIVES_EXPORT std::string_view to_string(DeviceAccess) noexcept;

/// Range of GPU memory, allocated or registered by a communicator. The destructor frees allocated memory. It ends the
/// registration of registered memory. Move-only.
class COLLECTIVES_EXPORT DeviceMemory {
 public:
  DeviceMemory() noexcept;
  DeviceMemory(DeviceMemory&&) noexcept;
  DeviceMemory& operator=(DeviceMemory&&) noexcept;
  ~DeviceMemory();

  /// Returns the address, or null for 0 bytes. The address of allocated memory is a multiple of 256.
  std::byte* data() const noexcept;
  std::size_t size() const noexcept;

  /// Returns how calls access the memory. For 0 bytes, returns `copied`.
  DeviceAccess access() const noexcept;
  /// Returns a description: "4 MiB on GPU 1: registered (NCCL 2.28.9 (libnccl.so.2))".
  std::string describe() const;

 private:
  friend class Communicator;
  struct State;
  explicit DeviceMemory(std::unique_ptr<State>) noexcept;
  std::unique_ptr<State> state_;
};

/// Array in DeviceMemory. It converts to Buffer and ConstBuffer. The host must not access its elements. Move-only.
template <Element T>
class DeviceArray {
 public:
  using value_type = T;

  DeviceArray() noexcept = default;
  /// Makes an array of as many elements as fit into `memory`.
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
