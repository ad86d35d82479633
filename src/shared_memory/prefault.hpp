// Prefaulting: allocation of pages before a process first reads or writes them.
//
// The first access to a page raises a page fault, in which the kernel allocates the page. A page fault takes 8 to 20 us
// on a virtual machine whose hypervisor keeps the page tables in software. If a process requests many pages by one
// system call, a page takes only 2 us. It takes 0.5 us if another process has already allocated the page.
//
// The library therefore prefaults many pages of shared memory by one system call. Without prefaulting, each of the
// first 64 collective calls took up to twenty times as long as later calls (8 ranks, 2 cores).
#pragma once

#include <sys/mman.h>

#include <cstddef>
#include <cstdint>

#include "base/round_up.hpp"

namespace collectives {

inline constexpr std::size_t kPage = 4096;  // bytes of a small page

/// Allocates the pages of the memory [at, at + bytes) for writing. If the system refuses (Linux before 5.14, or too
/// little memory), does nothing. The first access to each page then allocates it.
inline void prefault(std::byte* at, std::size_t bytes) noexcept {
  const std::size_t before = reinterpret_cast<std::uintptr_t>(at) % kPage;
  ::madvise(at - before, round_up(before + bytes, kPage), MADV_POPULATE_WRITE);
}

}  // namespace collectives
