// Implementation of the process page. This page is shared memory, from which the program `collectives_info watch` reads
// about the communicators of this process. Each communicator has one block of the page, which holds counters and its
// last operations. This file allocates the page, gives blocks to communicators, and copies pages.
#include "monitoring/process_page.hpp"

#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstring>
#include <exception>
#include <mutex>
#include <new>
#include <optional>
#include <string>
#include <utility>

#include "base/fork.hpp"
#include "base/log.hpp"
#include "base/sealed_file.hpp"
#include "base/text.hpp"
#include "collectives/error.hpp"

namespace collectives {
namespace {

std::mutex mutex;  // Protects the page and its blocks. fork() waits until the mutex is free (hold_over_forks).
std::atomic<ProcessPage*> page{nullptr};
std::optional<OwnerProcess> page_owner;
Descriptor page_file;
std::uint32_t communicators = 0;  // Number of communicators that this process has made so far.

/// Returns zeroed memory for a page. If the system permits a shared file, other processes can read the memory. Throws
/// std::bad_alloc.
ProcessPage* make_page() {
  const auto map = [](int flags, int file) {
    void* const memory = ::mmap(nullptr, sizeof(ProcessPage), PROT_READ | PROT_WRITE, flags, file, 0);
    return memory == MAP_FAILED ? nullptr : static_cast<ProcessPage*>(memory);
  };
  try {
    SealedFile made =
        make_sealed_file("a page for collectives_info watch", std::string(ProcessPage::kName), sizeof(ProcessPage));
    if (made.file) {
      if (ProcessPage* const shared = map(MAP_SHARED, made.file.fd())) {
        page_file = std::move(made.file);
        return shared;
      }
    }
    log_info(kNoRank, "collectives_info watch will not see this process: {}", made.refused);
  } catch (const Error& error) {
    log_info(kNoRank, "collectives_info watch will not see this process: {}", error.what());
  }
  if (ProcessPage* const own = map(MAP_PRIVATE | MAP_ANONYMOUS, -1)) return own;
  throw std::bad_alloc();
}

/// Returns the page of this process. A forked child makes a page of its own. The page of its parent stays mapped,
/// because communicators from before the fork refer to it.
ProcessPage& usable_page() {
  ProcessPage* now = page.load(std::memory_order_relaxed);
  if (now != nullptr && page_owner->is_current()) return *now;
  page_file = Descriptor();
  now = make_page();
  page_owner.emplace();
  now->layout = ProcessPage::kLayout;
  now->process = page_owner->process();
  now->begun = TickMark::now();
  now->magic = ProcessPage::kMagic;
  page.store(now, std::memory_order_release);
  return *now;
}

/// Reads `bytes` bytes at offset `at` of a file. Returns false if the file is shorter.
bool read_at(int file, std::ptrdiff_t at, void* to, std::size_t bytes) noexcept {
  auto* const begin = static_cast<char*>(to);
  for (std::size_t done = 0; done < bytes;) {
    const ssize_t part = ::pread(file, begin + done, bytes - done, at + static_cast<off_t>(done));
    if (part < 0 && errno == EINTR) continue;
    if (part <= 0) return false;
    done += static_cast<std::size_t>(part);
  }
  return true;
}

/// Writes a zero byte to the end of `text`, and replaces bytes that are not printable. The text may come from another
/// process.
template <std::size_t kSpace>
void make_valid(char (&text)[kSpace]) noexcept {
  text[kSpace - 1] = '\0';
  make_printable(text, std::strlen(text));
}

void make_valid(OperationEntry& entry) noexcept {
  make_valid(entry.name);
  make_valid(entry.shape.plan);
  entry.shape.long_enough = false;  // a byte that is neither 0 nor 1 is no bool
}

/// Makes the fields of a block valid, except its operations.
void make_valid(CommunicatorBlock& block) noexcept {
  make_valid(block.transport);
  make_valid(block.backend);
  block.listed = true;
}

}  // namespace

CommunicatorBlock& claim_block() {
  hold_over_forks<mutex>();
  const std::lock_guard lock(mutex);
  ProcessPage& here = usable_page();
  CommunicatorBlock* free = nullptr;
  for (CommunicatorBlock& block : here.blocks)
    if (block.used.load(std::memory_order_relaxed) == 0) {
      free = &block;
      break;
    }
  const bool listed = free != nullptr;
  if (!listed) free = new CommunicatorBlock;
  std::memset(static_cast<void*>(free), 0, sizeof *free);
  free->listed = listed;
  free->process = here.process;
  free->used.store(++communicators, std::memory_order_release);
  return *free;
}

void give_back(CommunicatorBlock& block) noexcept {
  if (!block.listed) return delete &block;
  const std::lock_guard lock(mutex);
  const ProcessPage* const now = page.load(std::memory_order_relaxed);
  // A forked child does not free a block that it has inherited: the block belongs to its parent.
  if (page_owner->is_current() && &block >= now->blocks && &block < now->blocks + kBlocksPerProcess)
    block.used.store(0, std::memory_order_release);
}

PageState read_page(int file, ProcessPage& copy) noexcept {
  struct stat status {};
  if (::fstat(file, &status) != 0 || !S_ISREG(status.st_mode)) return PageState::no_page;
  if (status.st_size != sizeof(ProcessPage)) return PageState::other_version;
  if (!read_at(file, 0, &copy, sizeof copy)) return PageState::no_page;
  if (copy.magic != ProcessPage::kMagic) return PageState::no_page;
  if (copy.layout != ProcessPage::kLayout) return PageState::other_version;
  for (CommunicatorBlock& block : copy.blocks) {
    if (block.used.load(std::memory_order_relaxed) == 0) continue;
    const auto at = reinterpret_cast<const char*>(block.operations) - reinterpret_cast<const char*>(&copy);
    OperationEntry again[kRecentOperations];
    if (!read_at(file, at, again, sizeof again)) return PageState::no_page;
    make_valid(block);
    for (std::size_t i = 0; i < kRecentOperations; ++i) {
      OperationEntry& entry = block.operations[i];
      const std::uint64_t sequence = entry.sequence.load(std::memory_order_relaxed);
      if (again[i].sequence.load(std::memory_order_relaxed) != sequence) entry.sequence.store(0);
      make_valid(entry);
    }
  }
  return PageState::page;
}

const ProcessPage* page_of_this_process() noexcept { return page.load(std::memory_order_acquire); }

bool copy_entry(const CommunicatorBlock& block, std::uint64_t sequence, OperationEntry& copy) noexcept {
  const OperationEntry& entry = block.operations[sequence % kRecentOperations];
  if (entry.sequence.load(std::memory_order_acquire) != sequence) return false;
  std::memcpy(static_cast<void*>(&copy), static_cast<const void*>(&entry), sizeof copy);
  std::atomic_thread_fence(std::memory_order_acquire);
  return entry.sequence.load(std::memory_order_relaxed) == sequence;
}

bool copy_entry(const CommunicatorBlock& block, std::uint64_t number, MessageEntry& copy) noexcept {
  const MessageEntry& entry = block.messages[number % kRecentOperations];
  if (entry.number.load(std::memory_order_acquire) != number) return false;
  std::memcpy(static_cast<void*>(&copy), static_cast<const void*>(&entry), sizeof copy);
  std::atomic_thread_fence(std::memory_order_acquire);
  return entry.number.load(std::memory_order_relaxed) == number && copy.type < std::size(kDataTypes);
}

}  // namespace collectives
