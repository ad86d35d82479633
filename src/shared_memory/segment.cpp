// Implementation of segments. A segment is memory from the system that other processes of the host can map: an
// anonymous file (memfd). A segment of 2 MiB or more gets huge pages if the administrator has reserved enough of them.
// Any other segment gets small pages. This file then asks the kernel to collapse the small pages, that is, to join them
// into huge ones.
#include "shared_memory/segment.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <string_view>
#include <utility>

#include "base/environment.hpp"
#include "base/error_text.hpp"
#include "base/log.hpp"
#include "base/random_word.hpp"
#include "base/round_up.hpp"
#include "base/text.hpp"
#include "collectives/error.hpp"
#include "shared_memory/huge_page_collapse.hpp"
#include "shared_memory/prefault.hpp"

namespace collectives {
namespace {

constexpr std::size_t kHugePage = HugePageCollapse::kHugePage;

// Maximum number of bytes that a rank allocates between two checks of the available memory. Below this maximum, it
// allocates at most a sixteenth of the available memory, but at least 2 MiB. Reason: several ranks may check at the
// same time and count the same memory as available.
constexpr std::size_t kMostAtOnce = std::size_t{32} << 20;
// Number of available bytes that ranks leave unused, so that all ranks together do not exceed the memory limit.
constexpr std::size_t kLeft = std::size_t{8} << 20;

constexpr unsigned kHugePages = MFD_HUGETLB | 21u << 26;  // flags of a memfd with pages of 2^21 bytes

constexpr std::string_view kSegmentName = "a segment";  // name of the memory in error texts

std::string file_name(std::uint64_t token) { return fmt::format("collectives {:016x}", token); }

/// Makes a memfd with `flags`. Returns an empty descriptor if the system refuses. Without `flags`, also logs a warning,
/// once per process.
Descriptor make_file(std::uint64_t token, std::size_t bytes, unsigned flags) {
  SealedFile made = make_sealed_file(kSegmentName, file_name(token), bytes, flags);
  static std::atomic_flag said;
  if (!made.file && flags == 0 && !said.test_and_set())
    log_warning(kNoRank,
                "memory: {}: what is allocated is ordinary memory, which other ranks cannot reach; let the container "
                "or seccomp filter permit memfd_create",
                made.refused);
  return std::move(made.file);
}

/// Maps `file`, or private memory if `file` is empty. Memory of 2 MiB or more gets an address that is a multiple of 2
/// MiB, because huge pages need such an address.
Mapping map(const Descriptor& file, std::size_t bytes) {
  const std::size_t alignment = bytes >= kHugePage ? kHugePage : kPage;
  const std::size_t space = bytes + alignment - kPage;
  void* const found = ::mmap(nullptr, space, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (found == MAP_FAILED) refuse_mapping(bytes, kSegmentName);
  auto* const begin = static_cast<std::byte*>(found);
  const std::size_t before =
      round_up(reinterpret_cast<std::uintptr_t>(begin), alignment) - reinterpret_cast<std::uintptr_t>(begin);
  const std::size_t after = space - before - bytes;
  Mapping head(begin, before), tail(begin + before + bytes, after), middle(begin + before, bytes);
  const int kind = file ? MAP_SHARED : MAP_PRIVATE | MAP_ANONYMOUS;
  if (::mmap(middle.data(), bytes, PROT_READ | PROT_WRITE, kind | MAP_FIXED, file.fd(), 0) == MAP_FAILED)
    refuse_mapping(bytes, kSegmentName);
  return middle;
}

/// Allocates the pages of [at, at + bytes) of a mapping. Throws if too little memory is left. Without this check, the
/// kernel would kill the process at its first access to a missing page.
void fill(const Mapping& memory, const Descriptor& file, std::size_t at, std::size_t bytes) {
  if (::madvise(memory.data() + at, bytes, MADV_POPULATE_WRITE) == 0) return;
  if (errno == EINVAL) {  // Linux before 5.14, where private pages are only allocated by the first access
    if (!file || ::fallocate(file.fd(), 0, static_cast<off_t>(at), static_cast<off_t>(bytes)) == 0) return;
  }
  const int error = errno;
  refuse_memory(memory.bytes(), kSegmentName,
                fmt::format("after {}: {}; {}", bytes_text(at), std::strerror(error), available_memory().bound));
}

/// Returns the available memory. Throws if this memory does not suffice for `rest` bytes and their page tables.
/// `bytes`: length of the whole segment, for the error text.
AvailableMemory check_memory_for(std::size_t rest, std::size_t bytes) {
  AvailableMemory available = available_memory();
  if (available.bytes < rest + rest / 256 + kLeft) refuse_memory(bytes, kSegmentName, available.bound);
  return available;
}

void prefault(const Mapping& memory, const Descriptor& file) {
  static HugePageCollapse& collapse = *new HugePageCollapse;  // never destroyed: threads may allocate during exit
  const auto deadline = collapse.deadline_for(memory.bytes());
  ::madvise(memory.data(), memory.bytes(), MADV_HUGEPAGE);  // for kernels without MADV_COLLAPSE
  for (std::size_t at = 0, piece = 0; at < memory.bytes(); at += piece) {
    const std::size_t rest = memory.bytes() - at;
    const AvailableMemory available = check_memory_for(rest, memory.bytes());
    piece = std::min(rest, std::clamp(available.bytes / 16 / kHugePage * kHugePage, kHugePage, kMostAtOnce));
    if (piece >= kHugePage) {
      // Collapsing copies the small pages that exist. One small page per huge page suffices, and takes the least time
      // in total.
      for (std::size_t huge = at; huge + kHugePage <= at + piece; huge += kHugePage) fill(memory, file, huge, kPage);
      collapse.run(memory.data() + at, memory.data() + at + piece / kHugePage * kHugePage, deadline);
    }
    fill(memory, file, at, piece);
  }
}

std::size_t reserved_huge_pages_left() {
  std::size_t pages = 0;
  std::ifstream("/sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages") >> pages;
  return pages;
}

}  // namespace

Mapping::~Mapping() {
  if (bytes_ != 0) ::munmap(data_, bytes_);
}

Segment::Segment(std::size_t bytes) : token_(random_word()) {
  if (bytes > std::size_t{1} << 46) refuse_memory(bytes, kSegmentName, "more than a process can address");
  const std::size_t in_huge_pages = round_up(bytes, kHugePage);
  if (bytes >= kHugePage && reserved_huge_pages_left() >= in_huge_pages / kHugePage) try {
      file_ = make_file(token_, in_huge_pages, kHugePages);
      if (file_) {
        memory_ = map(file_, in_huge_pages);
        fill(memory_, file_, 0, in_huge_pages);
        reserved_ = true;
        return;
      }
    } catch (const Error&) {  // another process took the huge pages, or a control group forbids them: use small pages
    }
  check_memory_for(bytes, bytes);  // checked first, so that a too small address space is not reported as the cause
  file_ = make_file(token_, round_up(bytes, kPage), 0);
  memory_ = map(file_, round_up(bytes, kPage));
  prefault(memory_, file_);
}

Segment::~Segment() {
  if (file_ && ours())
    ::fallocate(file_.fd(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, static_cast<off_t>(bytes()));
}

SegmentAddress Segment::address() const noexcept {
  return {static_cast<std::uint64_t>(::getpid()), static_cast<std::uint64_t>(file_.fd()), token_, bytes(),
          reinterpret_cast<std::uintptr_t>(data())};
}

Segment::Made Segment::made_of() const {
  if (reserved_) return {Pages::huge_pages, bytes(), bytes()};
  const auto begin = reinterpret_cast<std::uintptr_t>(data()), end = begin + bytes();
  std::ifstream smaps("/proc/self/smaps");
  std::size_t huge = 0;
  bool mine = false;  // the lines describe a part of this segment
  for (std::string line; std::getline(smaps, line);) {
    std::uintptr_t from = 0, to = 0;
    const char* const line_end = line.data() + line.size();
    const auto [dash, error] = std::from_chars(line.data(), line_end, from, 16);
    if (error == std::errc() && dash != line_end && *dash == '-') {  // "7f903d400000-7f9041400000 rw-s ..."
      std::from_chars(dash + 1, line_end, to, 16);
      mine = from < end && to > begin;
    } else if (mine && (line.starts_with("ShmemPmdMapped:") || line.starts_with("AnonHugePages:"))) {
      huge += std::strtoull(line.c_str() + line.find(':') + 1, nullptr, 10) << 10;
    }
  }
  huge = std::min(huge, bytes());
  if (!shared()) return {Pages::private_pages, bytes(), huge};
  return {2 * huge >= bytes() ? Pages::transparent_huge_pages : Pages::small_pages, bytes(), huge};
}

Mapping map_segment(const SegmentAddress& address) {
  const std::string path = fmt::format("/proc/{}/fd/{}", address.pid, address.fd);
  OpenedSealedFile opened;
  errno = EINVAL;
  if (std::in_range<int>(address.pid) && std::in_range<int>(address.fd))
    opened = open_sealed_file(static_cast<int>(address.pid), static_cast<int>(address.fd), O_RDWR);
  if (!opened.file && errno != EINVAL) {
    const int error = errno;
    throw Error(Errc::system, fmt::format("memory: opening {}: {}", path, error_text(error)));
  }
  // A closed descriptor may name another file by now.
  char target[128];
  const ssize_t length =
      !opened.file ? -1 : ::readlink(fmt::format("/proc/self/fd/{}", opened.file.fd()).c_str(), target, sizeof target);
  if (length < 0 ||
      std::string_view(target, static_cast<std::size_t>(length)).find(file_name(address.token)) ==
          std::string_view::npos ||
      opened.bytes != address.bytes)
    throw Error(Errc::system, fmt::format("memory: {} is not the segment that was announced", path));
  Mapping memory = map(opened.file, address.bytes);
  collectives::prefault(memory.data(), memory.bytes());
  return memory;
}

}  // namespace collectives
