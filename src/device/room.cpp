#include "device/room.hpp"

#include <algorithm>
#include <bit>
#include <utility>

namespace collectives {

bool DeviceRoom::grow(std::size_t bytes) {
  if (bytes <= bytes_) return false;
  free();
  const std::size_t enough = std::bit_ceil(std::max<std::size_t>(bytes, 4096));
  memory_ = static_cast<std::byte*>(pinned_ ? device_.allocate_pinned(enough) : device_.allocate(enough));
  bytes_ = enough;
  return true;
}
void DeviceRoom::free() noexcept {
  bytes_ = 0;
  if (void* const memory = std::exchange(memory_, nullptr); memory != nullptr)
    pinned_ ? device_.free_pinned(memory) : device_.free(memory);
}

}  // namespace collectives
