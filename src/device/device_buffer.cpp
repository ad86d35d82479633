// Implementation of DeviceBuffer, a buffer that one call after another uses. The buffer grows if a call needs more
// memory. It consists of GPU memory or pinned memory. Pinned memory is CPU memory that the GPU can access.
#include "device/device_buffer.hpp"

#include <algorithm>
#include <bit>
#include <utility>

namespace collectives {

bool DeviceBuffer::grow(std::size_t bytes) {
  if (bytes <= bytes_) return false;
  free();
  // Rounds the size up, so that a slightly longer vector needs no new memory. The new size is a multiple of `step`,
  // which is at least 4 KiB. For large sizes, `step` is an eighth of the greatest power of two up to the size. At most
  // 1/8 of a large buffer is therefore unused.
  const std::size_t step = std::max<std::size_t>(4096, std::bit_floor(bytes) / 8);
  const std::size_t enough = (bytes + step - 1) / step * step;
  memory_ = static_cast<std::byte*>(pinned_ ? device_.allocate_pinned(enough) : device_.allocate(enough));
  bytes_ = enough;
  return true;
}
void DeviceBuffer::free() noexcept {
  bytes_ = 0;
  if (void* const memory = std::exchange(memory_, nullptr); memory != nullptr)
    pinned_ ? device_.free_pinned(memory) : device_.free(memory);
}

}  // namespace collectives
