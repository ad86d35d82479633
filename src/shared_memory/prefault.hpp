// Prefaulting: allocation of pages before their first touch.
//
// A touch of a page that is not allocated raises an exception, in which the kernel allocates the page. The exception
// takes 8 to 20 us on a virtual machine whose page tables are kept in software. Pages that are requested together take
// less time. A page takes 2 us if the kernel must find and clear it. A page that another process has allocated already
// takes 0.5 us.
//
// Slots of cache lines (inline_protocol.hpp) and parts of staging memory (staging_rings.hpp) are therefore prefaulted
// many pages at a time. Without prefaulting, the first 64 calls of eight ranks on two cores took up to twenty times as
// long as later calls.
#pragma once

#include <sys/mman.h>

#include <cstddef>
#include <cstdint>

#include "base/round_up.hpp"

namespace collectives {

inline constexpr std::size_t kPage = 4096;  // bytes of a small page

/// Allocates the pages of the memory [at, at + bytes) for writing. If the system cannot do so (Linux before 5.14, no
/// memory), the first touch of each page allocates it.
inline void prefault(std::byte* at, std::size_t bytes) noexcept {
  const std::size_t before = reinterpret_cast<std::uintptr_t>(at) % kPage;
  ::madvise(at - before, round_up(before + bytes, kPage), MADV_POPULATE_WRITE);
}

}  // namespace collectives
