// A fake of the selection in CUB, CUDA's library of device-wide primitives.
#pragma once

#include <cstdint>
#include <cstring>
#include <type_traits>

#include "cuda_runtime.h"

namespace cub {

struct DeviceSelect {
  static constexpr std::size_t kScratch = 1000;
  /// Copies the items for which `select` is true, in their order. If `scratch` is null, returns the size that it needs.
  template <class In, class Out, class Selected, class Count, class Select>
  static cudaError_t If(void* scratch, std::size_t& bytes, In in, Out out, Selected* selected, Count items,
                        Select select, cudaStream_t stream = nullptr) {
    if (scratch == nullptr) {
      bytes = kScratch;
      return cudaSuccess;
    }
    if (bytes < kScratch) return cudaErrorInvalidValue;
    return fake_cuda::put(stream, [=]() mutable {
      std::memset(scratch, 0x5a, kScratch);
      std::uint32_t count = 0;
      for (Count i = 0; i < items; ++i) {
        const auto item = in[i];
        if (!select(item)) continue;
        if constexpr (std::is_pointer_v<Out>)
          out[count++] = item;
        else
          out.write(count++, item);
      }
      *selected = count;
    });
  }
};

}  // namespace cub
