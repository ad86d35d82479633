// Prefetching for a write: a core requests a cache line before it writes to the line.
//
// A store to a cache line waits until no other core has a copy of the line. All later stores of the same core wait,
// too. During a call, a rank already knows which lines it will probably write in the next call. It therefore prefetches
// these lines. If the cores have no common cache, the prefetch about halves the time of a short call.
#pragma once

namespace collectives {

/// Prefetches a line for writing. Uses assembler, because __builtin_prefetch emits this instruction only if the
/// compiler may assume a newer processor. A processor that lacks the instruction ignores it.
inline void prefetch_for_write(const void* line) noexcept {
#if defined(__x86_64__)
  asm volatile("prefetchw %0" : : "m"(*static_cast<const char*>(line)));
#else
  __builtin_prefetch(line, 1);
#endif
}

}  // namespace collectives
