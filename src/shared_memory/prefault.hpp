// Prefaulting: allocation of pages before their first touch.
//
// A page that is allocated by a touch costs an exception of its own. That takes 8 to 20 us on a virtual machine whose
// page tables are kept in software. Many pages requested together cost less: 0.5 us each if another process has the
// page already, and 2 us if the system must find and clear it.
//
// Slots of lines and parts of staging are therefore prefaulted together. Touched one by one, their pages made the first
// 64 calls of eight ranks on two cores take up to twenty times as long as later calls.
#pragma once

#include <sys/mman.h>

#include <cstddef>
#include <cstdint>

#include "base/round_up.hpp"

namespace collectives {

/// Allocates the pages of the memory [at, at + bytes) for writing. If the system cannot (Linux before 5.14, no memory),
/// the first touch allocates them as usual.
inline void prefault(std::byte* at, std::size_t bytes) noexcept {
  constexpr std::size_t kPage = 4096;
  const std::size_t before = reinterpret_cast<std::uintptr_t>(at) % kPage;
  ::madvise(at - before, round_up(before + bytes, kPage), MADV_POPULATE_WRITE);
}

}  // namespace collectives
