// Shared memory for buffers. Other ranks of the same host can access this memory directly. Collectives on it need no
// copies through other memory.
//
//   SharedArray<float> gradient = comm.allocate<float>(1'000'000);             // zero, prefaulted, move-only
//   comm.all_reduce(gradient, ReduceOp::average);
//   std::vector<float, SharedAllocator<float>> sum(1000, comm.allocator<float>());
//
// Memory from allocate(), SharedMemory and SharedAllocator has these properties:
//
// Pages. The memory consists of huge pages if the system can provide them. All pages are present when the allocation
// returns. pages() returns their kind.
//
// Owner. The memory belongs to the process, not to the communicator. It may outlive the communicator. It works with
// every communicator of the process.
//
// Peers. The other ranks of the host (peers) map the memory in the first call that uses it. The program may free the
// memory while peers still have it mapped. Like any buffer, it must not be freed while an operation of this rank uses
// it.
//
// No sharing. The system may refuse to share memory, for example because a seccomp filter forbids memfd_create. The
// library then allocates ordinary memory. It logs one warning, and pages() returns private_pages.
//
// Fork. A child of fork() may read and free memory that it inherits. Parent and child share the pages of shared memory.
// Therefore, each process sees what the other writes.
//
// Threads. Any thread may allocate and free.
//
// Errors. An allocation throws Error{system} if there is no memory. The text names the refused request and the setting
// to change: RLIMIT_NOFILE, RLIMIT_AS, RLIMIT_FSIZE, or the memory limit of a control group. Later accesses never cause
// SIGBUS, because all pages are present.
//
// Segments. The memory comes from segments, shared files in memory with one file descriptor each. A large allocation
// has its own segment, which returns to the system when the allocation is freed. Small allocations are pieces of common
// segments. A common segment has at least 2 MiB, and up to an eighth of all memory allocated here. A vector of 3 floats
// thus takes 64 bytes, and usually no further file descriptor. The number of common segments grows with the logarithm
// of the allocated bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <new>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

#include "collectives/export.hpp"

namespace collectives {

/// Kind of the pages that the system has provided.
enum class Pages : std::uint8_t {
  huge_pages,              ///< Huge pages that the administrator reserved (vm.nr_hugepages).
  transparent_huge_pages,  ///< Transparent huge pages in at least half of the memory's segment.
  small_pages,
  private_pages,  ///< Ordinary memory of this process, which other ranks cannot access.
};

COLLECTIVES_EXPORT std::string_view to_string(Pages) noexcept;

/// Memory that the other ranks of this host can access. The destructor frees it. Move-only.
class COLLECTIVES_EXPORT SharedMemory {
 public:
  SharedMemory() noexcept = default;
  /// Allocates `bytes` zero bytes at a multiple of `alignment`, which is a power of two. The address is a multiple of
  /// at least 64, and of at least 4096 if the memory has a segment of its own. Allocates nothing if `bytes` is 0;
  /// data() is then null.
  ///
  /// A new segment costs 0.3 to 1 ms per MiB. Without one, the call takes a microsecond. Throws Error{system} if there
  /// is no memory, and Error{invalid_argument} for a wrong alignment.
  explicit SharedMemory(std::size_t bytes, std::size_t alignment = 64);
  SharedMemory(SharedMemory&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}
  SharedMemory& operator=(SharedMemory&& other) noexcept {
    SharedMemory(std::move(other)).swap(*this);
    return *this;
  }
  ~SharedMemory();

  std::byte* data() const noexcept { return data_; }
  std::size_t size() const noexcept { return bytes_; }
  void swap(SharedMemory& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
  }

  /// Returns the kind of pages in the segment that contains this memory, or private_pages if it is empty. Reads /proc,
  /// which takes a millisecond.
  Pages pages() const;
  /// Returns a description: "12 B: transparent_huge_pages (2 MiB of 2 MiB huge)". The second part describes the
  /// segment.
  std::string describe() const;

 private:
  std::byte* data_ = nullptr;
  std::size_t bytes_ = 0;
};

namespace detail {
/// Allocates memory that is not zeroed, for SharedAllocator.
COLLECTIVES_EXPORT void* allocate_shared(std::size_t bytes, std::size_t alignment);
/// Frees memory from allocate_shared().
COLLECTIVES_EXPORT void release_shared(void* data, std::size_t bytes) noexcept;
}  // namespace detail

/// Array in SharedMemory. It is a contiguous range, so it converts to std::span. If T is an element type, it also
/// converts to Buffer and ConstBuffer. All bytes are initially zero. Move-only.
template <class T>
class SharedArray {
  static_assert(std::is_trivially_copyable_v<T> && !std::is_const_v<T>, "other processes see it as bytes");

 public:
  using value_type = T;
  using iterator = T*;
  using const_iterator = const T*;

  static constexpr std::size_t kAlignment = alignof(T) > 64 ? alignof(T) : 64;
  /// Returns the bytes of `count` elements. Throws std::bad_array_new_length if size_t cannot count them.
  static constexpr std::size_t bytes_of(std::size_t count) {
    if (count > std::numeric_limits<std::size_t>::max() / sizeof(T)) throw std::bad_array_new_length();
    return count * sizeof(T);
  }

  SharedArray() noexcept = default;
  explicit SharedArray(std::size_t count) : memory_(bytes_of(count), kAlignment) {}
  /// Makes an array of as many elements as fit into `memory`, which begins at a multiple of kAlignment.
  explicit SharedArray(SharedMemory memory) noexcept : memory_(std::move(memory)) {}

  T* data() noexcept { return reinterpret_cast<T*>(memory_.data()); }
  const T* data() const noexcept { return reinterpret_cast<const T*>(memory_.data()); }
  std::size_t size() const noexcept { return memory_.size() / sizeof(T); }
  bool empty() const noexcept { return size() == 0; }
  T* begin() noexcept { return data(); }
  T* end() noexcept { return data() + size(); }
  const T* begin() const noexcept { return data(); }
  const T* end() const noexcept { return data() + size(); }
  T& operator[](std::size_t index) noexcept { return data()[index]; }
  const T& operator[](std::size_t index) const noexcept { return data()[index]; }

  Pages pages() const { return memory_.pages(); }
  std::string describe() const { return memory_.describe(); }

 private:
  SharedMemory memory_;
};

/// Standard allocator of shared memory. It has no state. Therefore, all objects are equal and none needs a
/// communicator.
template <class T>
class SharedAllocator {
 public:
  using value_type = T;
  using is_always_equal = std::true_type;

  SharedAllocator() noexcept = default;
  template <class U>
  SharedAllocator(const SharedAllocator<U>&) noexcept {}  // NOLINT(google-explicit-constructor): containers rebind

  [[nodiscard]] T* allocate(std::size_t count) {
    return static_cast<T*>(detail::allocate_shared(SharedArray<T>::bytes_of(count), alignof(T)));
  }
  void deallocate(T* data, std::size_t count) noexcept { detail::release_shared(data, count * sizeof(T)); }

  template <class U>
  bool operator==(const SharedAllocator<U>&) const noexcept {
    return true;
  }
};

}  // namespace collectives
