// Messages of the TCP transport: their header, and aligned memory for them. The transport sends a message on a TCP
// connection or as a UDP datagram. The form of the header is the same on the connection and in the datagram.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <new>

namespace collectives {

/// Deleter for std::unique_ptr that frees memory from std::aligned_alloc.
struct FreeMemory {
  void operator()(std::byte* memory) const { std::free(memory); }
};
using AlignedBuffer = std::unique_ptr<std::byte, FreeMemory>;

/// Allocates at least `bytes` bytes, aligned to 64 bytes. Throws std::bad_alloc.
inline AlignedBuffer make_aligned_buffer(std::size_t bytes) {
  constexpr std::size_t kAlignment = 64;
  AlignedBuffer buffer(
      static_cast<std::byte*>(std::aligned_alloc(kAlignment, (bytes + kAlignment - 1) / kAlignment * kAlignment)));
  if (buffer == nullptr) throw std::bad_alloc();
  return buffer;
}

/// Header of a message. The header precedes the payload on the TCP connection. Each datagram contains the header, too.
struct MessageHeader {
  std::uint64_t tag = 0;
  std::uint32_t bytes = 0, number = 0;
};

/// Returns whether message number `a` precedes `b`. Numbers wrap around at 2^32.
inline bool is_before(std::uint32_t a, std::uint32_t b) { return static_cast<std::int32_t>(a - b) < 0; }

}  // namespace collectives
