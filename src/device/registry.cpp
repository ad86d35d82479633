// Implementation of the registry, the list of GPU memory that is registered with NCCL, NVIDIA's library for collectives
// between GPUs. NCCL can access registered memory without a copy.
#include "device/registry.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "collectives/error.hpp"

namespace collectives {

void Registry::add(std::byte* data, std::size_t bytes) {
  std::byte* const end = data + bytes;
  for (Range& range : ranges_) {
    if (data >= range.last || end <= range.first) continue;
    if (data < range.first || end > range.last)
      throw Error(Errc::invalid_argument,
                  fmt::format("{} B at {} overlap {} B at {} that are registered: register all of it, or pieces apart",
                              bytes, fmt::ptr(data), range.last - range.first, fmt::ptr(range.first)));
    ++range.uses;
    return;
  }
  ranges_.reserve(ranges_.size() + 1);
  void* handle = nullptr;
  device_.while_current([&] { handle = nccl_comm_.register_memory(data, bytes); });
  ranges_.push_back({data, end, handle, 1});
}

void Registry::remove(const std::byte* data) {
  const auto found =
      std::ranges::find_if(ranges_, [&](const Range& range) { return data >= range.first && data < range.last; });
  if (found == ranges_.end() || --found->uses > 0) return;
  void* const handle = found->handle;
  ranges_.erase(found);
  deregister(handle);
}

void Registry::clear() {
  while (!ranges_.empty()) {
    void* const handle = ranges_.back().handle;
    ranges_.pop_back();
    deregister(handle);
  }
}

void Registry::deregister(void* handle) {
  device_.while_current([&] { nccl_comm_.deregister_memory(handle); });
}

}  // namespace collectives
