// Process page: shared memory with which other processes of the same user can watch a process. The page holds counters
// and the last operations of up to 256 communicators of the process.
//
// The page is a memfd, an unnamed file in memory. Readers open it through /proc/PID/fd. The program `collectives_info
// watch` reads it while the process runs, hangs or is stopped. The kernel frees the page with the process, however the
// process ends. No file has to be deleted. The process itself also reads the page. If the user requests it, the process
// writes the last operations to a file after an error or on a signal.
//
// Each of these communicators has a block of the page. Only the process itself writes to the block. The block has one
// entry for each of the last 64 operations of its communicator. Readers take no lock. They copy an entry, and use the
// copy only if the entry's sequence number is unchanged afterwards.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/ticks.hpp"
#include "collectives/records.hpp"

namespace collectives {

/// Properties of an operation that depend only on its arguments and its plan (the chosen algorithm). The function
/// shape_of() computes them once per plan.
struct OperationShape {
  std::uint64_t count = 0;
  std::uint8_t collective = 0, type = 0, op = 0, element_bytes = 0;
  /// Whether every call with these properties is timed. For a long call, the two clock readings take little of the
  /// time.
  bool long_enough = false;
  char plan[35] = {};

  std::uint64_t bytes() const noexcept { return count * element_bytes; }
};

/// Record of one operation. Times are in ticks of the processor's clock; 0: not reached or not timed.
struct alignas(64) OperationEntry {
  std::atomic<std::uint64_t> sequence;  ///< Number of the operation; written last; 0 while the entry is being written.
  std::uint64_t issued, started, finished;
  std::int32_t waits_for;  ///< First rank that had not entered the operation at the last check; kNoRank: none.
  std::uint16_t missing;   ///< Number of ranks that had not entered the operation at the last check.
  std::uint8_t state;      ///< OperationRecord::State
  std::uint8_t unused;
  OperationShape shape;
  char name[40];  ///< Name of the tensor, terminated by a zero byte.
};
static_assert(sizeof(OperationEntry) == 128);

/// Record of one point-to-point call.
struct MessageEntry {
  std::atomic<std::uint64_t> number;  ///< Number of the call; written last; 0 while the entry is being written.
  std::uint64_t count;
  std::int32_t peer, source, tag;
  std::uint8_t type, sends;
  std::uint8_t state;  ///< OperationRecord::State
  std::uint8_t unused;
};
static_assert(sizeof(MessageEntry) == 32);

/// Ranks that a call waits for: their number, and the first of them.
struct Missing {
  Rank first = kNoRank;
  int ranks = 0;
};

struct CollectiveTotals {
  std::uint64_t calls, bytes, ticks, waiting_ticks;
};

inline constexpr std::size_t kRecentOperations = 64;

/// Counters and recorded operations of one communicator.
struct alignas(64) CommunicatorBlock {
  std::atomic<std::uint32_t> used;  ///< Number of the communicator in its process, from 1. 0 if the block is free.
  std::int32_t process, rank, size, hosts;
  std::int32_t known_as;  ///< Rank in the first communicator of its thread.
  bool listed;            ///< True: the block lies in the page.
  char transport[32], backend[32];
  std::uint64_t issued, started;  ///< Numbers of operations issued and started since the construction.
  CollectiveTotals totals[std::size(kCollectives)];
  OperationEntry operations[kRecentOperations];
  std::uint64_t messages_begun;  ///< Number of point-to-point calls since the construction.
  MessageEntry messages[kRecentOperations];
};

/// Maximum number of communicators with a block in the page. Further ones get private memory, which other processes
/// cannot read.
inline constexpr std::size_t kBlocksPerProcess = 256;

struct ProcessPage {
  static constexpr std::uint64_t kMagic = 0x636f6c6c77617463;
  static constexpr std::uint32_t kLayout = 3;  ///< Version of the layout of the page and of all types in it.
  static constexpr std::string_view kName = "collectives-stats";

  std::uint64_t magic;
  std::uint32_t layout;
  std::int32_t process;  ///< Process id of the owner. A forked child has another id.
  TickMark begun;
  CommunicatorBlock blocks[kBlocksPerProcess];
};

/// Result of read_page().
enum class PageState : std::uint8_t {
  page,           ///< The copy is valid.
  other_version,  ///< The file has another size or layout.
  no_page,        ///< The file is no page, or was cut.
};
/// Copies the page in `file`, which may be that of another process and of another user. The copy is safe to print:
/// texts are terminated and printable, numbers of types are valid, and entries that were written meanwhile are empty.
/// The file is read by read(), so a page that is cut raises no signal.
PageState read_page(int file, ProcessPage& copy) noexcept;

/// Returns a cleared block of this process's page.
CommunicatorBlock& claim_block();
void give_back(CommunicatorBlock&) noexcept;
/// Returns the page of this process. Null while no block has been claimed. The page stays mapped until the process
/// ends, because signal handlers read it.
const ProcessPage* page_of_this_process() noexcept;

/// Copies the entry of operation `sequence`. Returns false if the entry was overwritten before or during the copy.
bool copy_entry(const CommunicatorBlock&, std::uint64_t sequence, OperationEntry& copy) noexcept;

/// Copies the entry of point-to-point call `number`. Returns false if the entry was overwritten before or during the
/// copy, or holds no valid call.
bool copy_entry(const CommunicatorBlock&, std::uint64_t number, MessageEntry& copy) noexcept;

/// Calls visit() with a copy of each recorded point-to-point call, oldest first.
template <class Visit>
void for_each_message(const CommunicatorBlock& block, Visit&& visit) {
  const std::uint64_t last = block.messages_begun;
  for (std::uint64_t number = last > kRecentOperations ? last - kRecentOperations + 1 : 1; number <= last; ++number)
    if (MessageEntry entry; copy_entry(block, number, entry)) visit(entry);
}

/// Calls visit() with copies of all recorded operations, oldest first.
template <class Visit>
void for_each_operation(const CommunicatorBlock& block, Visit&& visit) {
  const std::uint64_t last = block.started;
  for (std::uint64_t sequence = last > kRecentOperations ? last - kRecentOperations + 1 : 1; sequence <= last;
       ++sequence)
    if (OperationEntry entry; copy_entry(block, sequence, entry)) visit(entry);
}

}  // namespace collectives
