// Implementation of SharedMemory and SharedAllocator, with which a program allocates its buffers.
//
// Both classes allocate from the heap of this library. Each process has one heap, which consists of shared memory
// (Segment). Other ranks of the host can map this memory, and then read a buffer in it without a copy. If the operating
// system refuses shared memory, the heap uses private memory instead.
#include "collectives/memory.hpp"

#include <fmt/format.h>

#include <bit>
#include <cstring>

#include "base/text.hpp"
#include "collectives/error.hpp"
#include "shared_memory/heap.hpp"

namespace collectives {
namespace {

Segment::Made made_of(const void* data) {
  Heap& heap = Heap::of_process();
  const auto guard = heap.lock();
  const Segment* segment = heap.find(data);
  return segment == nullptr ? Segment::Made{} : segment->made_of();
}

}  // namespace

std::string_view to_string(Pages pages) noexcept {
  switch (pages) {
    case Pages::huge_pages: return "huge_pages";
    case Pages::transparent_huge_pages: return "transparent_huge_pages";
    case Pages::small_pages: return "small_pages";
    case Pages::private_pages: return "private_pages";
  }
  return "unknown pages";
}

SharedMemory::SharedMemory(std::size_t bytes, std::size_t alignment) {
  if (!std::has_single_bit(alignment))
    throw Error(Errc::invalid_argument, fmt::format("memory: alignment {} is no power of two", alignment));
  if (bytes == 0) return;
  const Heap::Piece piece = Heap::of_process().allocate(bytes, alignment);
  if (!piece.zero) std::memset(piece.data, 0, bytes);
  data_ = piece.data;
  bytes_ = bytes;
}

SharedMemory::~SharedMemory() {
  if (data_ != nullptr) Heap::of_process().release(data_, bytes_);
}

Pages SharedMemory::pages() const { return made_of(data_).pages; }

std::string SharedMemory::describe() const {
  const Segment::Made made = made_of(data_);
  return fmt::format("{}: {} ({} of {} huge)", bytes_text(bytes_), to_string(made.pages), bytes_text(made.huge_bytes),
                     bytes_text(made.bytes));
}

namespace detail {

void* allocate_shared(std::size_t bytes, std::size_t alignment) {
  return Heap::of_process().allocate(bytes, alignment).data;
}

void release_shared(void* data, std::size_t bytes) noexcept { Heap::of_process().release(data, bytes); }

}  // namespace detail
}  // namespace collectives
