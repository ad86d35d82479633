// Memory that the other ranks of a host can reach directly, so that a collective moves each byte once.
//
//   SharedArray<float> gradient = comm.allocate<float>(1'000'000);             // zero, prefaulted, move-only
//   comm.all_reduce(gradient, ReduceOp::average);
//   std::vector<float, SharedAllocator<float>> sum(1000, comm.allocator<float>());
//
// What holds for all of it:
//   Pages      huge pages where the system gives them; every page is there when the call returns. Ask pages().
//   Owner      the process, not the communicator: it may outlive the communicator, and works with each of the process.
//   Peers      map it when they first meet it in a call. It may be freed while they still have it mapped; it may not be
//              freed, like any buffer, while an operation of this rank that uses it is under way.
//   Sharing    where the system refuses it (a seccomp filter without memfd_create, say), it is ordinary memory: said
//              once by a warning, and by pages().
//   fork()     a child may read and free what it inherits; the pages stay the parent's, and each sees what the other
//              writes.
//   Threads    any thread may allocate and free.
//   Throws     Error{system} when there is no memory, naming what was refused and the setting to change: RLIMIT_NOFILE,
//              RLIMIT_AS, RLIMIT_FSIZE, the memory limit of a control group. Never SIGBUS.
//
// What is large gets a segment of its own, which goes back to the system when it is freed. What is small is carved from
// a common one, at least 2 MiB and up to an eighth of all there is, so that a vector of 3 floats costs 64 bytes and no
// file descriptor, and the number of segments (one descriptor each) grows with the logarithm of the bytes.
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

/// What the system gave.
enum class Pages : std::uint8_t {
  huge_pages,              ///< reserved by the administrator (vm.nr_hugepages)
  transparent_huge_pages,  ///< at least half of the segment
  small_pages,
  private_pages,  ///< ordinary memory of this process: other ranks cannot reach it
};

COLLECTIVES_EXPORT std::string_view to_string(Pages) noexcept;

/// Bytes that the other ranks of this host can reach, freed at the end. Move-only.
class COLLECTIVES_EXPORT SharedMemory {
 public:
  SharedMemory() noexcept = default;
  /// `bytes` zero bytes at a multiple of `alignment`, a power of two; at least 64 in any case, and 4096 when they have
  /// a segment of their own. Nothing, at no address, when `bytes` is 0. Costs 0.3 to 1 ms per MiB where a new
  /// segment is made, a microsecond otherwise. Throws Error{system}, Error{invalid_argument} for the alignment.
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

  /// What the segment around this memory is made of; private_pages when it is empty. Reads /proc: a millisecond.
  Pages pages() const;
  /// The same in words: "12 B: transparent_huge_pages (2 MiB of 2 MiB huge)", the second part about
  /// the segment.
  std::string describe() const;

 private:
  std::byte* data_ = nullptr;
  std::size_t bytes_ = 0;
};

namespace detail {
/// Of SharedAllocator: memory that is not zeroed, and its way back.
COLLECTIVES_EXPORT void* allocate_shared(std::size_t bytes, std::size_t alignment);
COLLECTIVES_EXPORT void release_shared(void* data, std::size_t bytes) noexcept;
}  // namespace detail

/// An array in SharedMemory: a contiguous range, so it converts to std::span, and to Buffer and ConstBuffer where T is
/// an element type. All bytes zero at first. Move-only.
template <class T>
class SharedArray {
  static_assert(std::is_trivially_copyable_v<T> && !std::is_const_v<T>, "other processes see it as bytes");

 public:
  using value_type = T;
  using iterator = T*;
  using const_iterator = const T*;

  static constexpr std::size_t kAlignment = alignof(T) > 64 ? alignof(T) : 64;
  /// Throws std::bad_array_new_length when `count` elements have more bytes than size_t counts.
  static constexpr std::size_t bytes_of(std::size_t count) {
    if (count > std::numeric_limits<std::size_t>::max() / sizeof(T)) throw std::bad_array_new_length();
    return count * sizeof(T);
  }

  SharedArray() noexcept = default;
  explicit SharedArray(std::size_t count) : memory_(bytes_of(count), kAlignment) {}
  /// As many elements as fit. `memory` begins at a multiple of kAlignment.
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

/// A standard allocator of such memory. Has no state: any two are equal, and it needs no communicator.
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
