// What a process lets others of its user see of its communicators: counters and the last operations, in a memfd that is
// found through /proc/PID/fd. `collectives_info watch` reads it while the process runs, hangs or is stopped; it is gone
// with the process, however that ends. The same memory serves the process itself: errors and a signal write it out.
//
// Each communicator has a block, with one writer. Readers hold no lock: they believe an entry of the ring if its
// sequence number is the same before and after they have copied it.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/ticks.hpp"
#include "collectives/records.hpp"

namespace collectives {

/// What a plan makes of a call, worked out once for all calls alike.
struct OperationShape {
  std::uint64_t count = 0;
  std::uint8_t collective = 0, type = 0, op = 0, element_bytes = 0;
  bool long_enough = false;  ///< that two readings of the clock do not count
  char plan[35] = {};

  std::uint64_t bytes() const noexcept { return count * element_bytes; }
};

/// One operation. Times in ticks; 0: not yet, or not taken.
struct alignas(64) OperationEntry {
  std::atomic<std::uint64_t> sequence;  ///< written last; 0: being written
  std::uint64_t issued, started, finished;
  std::int32_t waits_for;  ///< first of the ranks that were last found missing; kNoRank: none
  std::uint16_t missing;   ///< how many
  std::uint8_t state;      ///< OperationRecord::State
  std::uint8_t unused;
  OperationShape shape;
  char name[40];  ///< of the tensor, to its zero
};
static_assert(sizeof(OperationEntry) == 128);

/// Ranks that a call waits for: how many, and the first of them.
struct Missing {
  Rank first = kNoRank;
  int ranks = 0;
};

struct CollectiveTotals {
  std::uint64_t calls, bytes, ticks, waiting_ticks;
};

inline constexpr std::size_t kRecentOperations = 64;

/// Of one communicator.
struct alignas(64) CommunicatorBlock {
  std::atomic<std::uint32_t> used;  ///< the number of the communicator in its process, from 1; 0: nobody's
  std::int32_t process, rank, size, hosts;
  std::int32_t known_as;  ///< the rank in the first communicator of its thread
  bool listed;            ///< lies in the page
  char transport[32], backend[32];
  std::uint64_t issued, started;  ///< operations, ever
  CollectiveTotals totals[std::size(kCollectives)];
  OperationEntry operations[kRecentOperations];
};

/// Blocks of one process. Communicators beyond have theirs where nobody sees it.
inline constexpr std::size_t kBlocksPerProcess = 256;

struct ProcessPage {
  static constexpr std::uint64_t kMagic = 0x636f6c6c77617463;
  static constexpr std::uint32_t kLayout = 1;  ///< changes with anything above
  static constexpr std::string_view kName = "collectives-watch";

  std::uint64_t magic;
  std::uint32_t layout;
  std::int32_t process;  ///< as it knows itself: another one where a forked child has inherited the page
  TickMark begun;
  CommunicatorBlock blocks[kBlocksPerProcess];
};

/// A block of this process's page, cleared.
CommunicatorBlock& claim_block();
void give_back(CommunicatorBlock&) noexcept;
/// The page of this process; null while no block has been claimed. Good for ever: signal handlers read it.
const ProcessPage* page_of_this_process() noexcept;

/// A copy of the entry of operation `sequence`; false when it has been overwritten, or is being.
bool copy_entry(const CommunicatorBlock&, std::uint64_t sequence, OperationEntry& copy) noexcept;

/// Visits copies of the operations that are there, oldest first.
template <class Visit>
void for_each_operation(const CommunicatorBlock& block, Visit&& visit) {
  const std::uint64_t last = block.started;
  for (std::uint64_t sequence = last > kRecentOperations ? last - kRecentOperations + 1 : 1; sequence <= last;
       ++sequence)
    if (OperationEntry entry; copy_entry(block, sequence, entry)) visit(entry);
}

}  // namespace collectives
