// Memory of a GPU, or pinned memory of the host, that a way works in.
#pragma once

#include <cstddef>

#include "device/device.hpp"

namespace collectives {

/// Memory that grows, for one use after another.
class DeviceBuffer {
 public:
  DeviceBuffer(Device& device, bool pinned) : device_(device), pinned_(pinned) {}
  ~DeviceBuffer() { free(); }
  DeviceBuffer(const DeviceBuffer&) = delete;
  DeviceBuffer& operator=(const DeviceBuffer&) = delete;
  /// At least `bytes`; true where it is other memory than before. Nothing of the old is in use.
  bool grow(std::size_t bytes);
  std::size_t bytes() const noexcept { return bytes_; }
  /// A GPU that does not come to an end may still write to it.
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
