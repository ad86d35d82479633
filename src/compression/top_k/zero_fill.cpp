// Implementation of ZeroFill, which sets a vector to zero in pieces. A rank fills the next piece while it waits for
// messages.
#include "compression/top_k/zero_fill.hpp"

#include <algorithm>

#include "reduction/reduction.hpp"

namespace collectives {

void ZeroFill::fill_some() {
  constexpr std::size_t kAtOnce = 64 << 10;  // Number of elements of one piece.
  fill(std::min(kAtOnce, count_ - filled_));
}

/// Sets the next elements to zero. If the whole vector has at least kPastTheCaches bytes, it exceeds the caches of a
/// core. Streaming stores, which bypass the caches, then set the elements. Plain stores would first read each cache
/// line from memory, and other ranks need the bandwidth of the memory for their selections.
void ZeroFill::fill(std::size_t elements) {
  alignas(64) static constexpr std::byte kZeros[32 << 10] = {};
  constexpr std::size_t kPastTheCaches = 8 << 20;  // Minimum size in bytes for streaming stores.
  const Stores stores = count_ * sizeof(float) >= kPastTheCaches ? Stores::streaming : Stores::cached;
  auto* to = reinterpret_cast<std::byte*>(to_ + filled_);
  filled_ += elements;
  for (std::size_t left = elements * sizeof(float), bytes; left > 0; left -= bytes, to += bytes)
    copy(to, kZeros, bytes = std::min(left, sizeof kZeros), stores);
  if (stores == Stores::streaming) fence_streams();
}

}  // namespace collectives
