// Prefetching for a write: requests exclusive ownership of a cache line before it is written.
//
// A store to a cache line waits while another core holds a copy of the line. All later stores of the rank wait, too.
// During a call, a rank knows which lines it will probably write in the next call. It requests these lines early.
// Between cores without a common cache, early requests about halve the time of a short call.
#pragma once

namespace collectives {

/// Prefetches a line for writing. The assembler instruction is needed, because the compiler's builtin fetches a copy
/// for reading only, unless it compiles for newer processors. A processor that lacks the instruction ignores it.
inline void prefetch_for_write(const void* line) noexcept {
#if defined(__x86_64__)
  asm volatile("prefetchw %0" : : "m"(*static_cast<const char*>(line)));
#else
  __builtin_prefetch(line, 1);
#endif
}

}  // namespace collectives
