// DeviceBuffer: a growing buffer of GPU memory or pinned memory. Pinned memory is CPU memory that the GPU can access.
#pragma once

#include <cstddef>

#include "device/device.hpp"

namespace collectives {

/// Buffer that one call after another uses. It grows as needed and never shrinks.
class DeviceBuffer {
 public:
  DeviceBuffer(Device& device, bool pinned) : device_(device), pinned_(pinned) {}
  ~DeviceBuffer() { free(); }
  DeviceBuffer(const DeviceBuffer&) = delete;
  DeviceBuffer& operator=(const DeviceBuffer&) = delete;
  /// Grows the buffer to at least `bytes`. Returns true if it has allocated new memory. The content of new memory is
  /// undefined. Requires that the old memory is not in use.
  bool grow(std::size_t bytes);
  std::size_t bytes() const noexcept { return bytes_; }
  /// Gives the memory up without freeing it. Reason: a GPU that did not finish its work in time may write to the memory
  /// later.
  void leak() noexcept { memory_ = nullptr; }
  template <class T>
  T* as(std::size_t byte = 0) const noexcept {
    return reinterpret_cast<T*>(memory_ + byte);
  }

 private:
  void free() noexcept;

  Device& device_;
  const bool pinned_;
  std::byte* memory_ = nullptr;
  std::size_t bytes_ = 0;
};

}  // namespace collectives
