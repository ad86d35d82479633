// Segment: memory from the system. Other processes of this host can map a segment, unless the system refuses memfds.
//
// A segment is one sealed memfd: an anonymous file in memory that no process can shrink. A peer opens the segment as
// /proc/PID/fd/N, a descriptor of the owner. If the owner has closed that descriptor, the number N may belong to
// another file. The name of the memfd therefore contains a random token. The peer recognises the segment by this token.
//
// Pages are taken from the first source that works:
//
//   huge_pages              reserved huge pages, if the pool has enough
//   transparent_huge_pages  small pages that the kernel joins on request (MADV_COLLAPSE), whatever the setting of the
//                           machine
//   small_pages             small pages
//   private_pages           private memory, if the system refuses memfds
//
// The constructor allocates all pages, except private pages on Linux before 5.14. It allocates at most 32 MiB of small
// pages at a time. Each time, it first checks how much memory is left. Reason: a process that exceeds the limit of its
// control group is killed. The owner's destructor punches a hole into the file. All pages thus return to the system at
// once, even if peers have the segment mapped.
//
// To collapse is to join small pages into huge ones. For a collapse, the kernel needs a worker on every core, and busy
// cores delay the workers. The constructor requests a collapse only while at most eight threads per core want to run.
// After one request of more than 100 ms, the process makes no other. All requests for one segment begin within 100 ms
// plus 1 ms per MiB.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>

#include "base/fork.hpp"
#include "base/sealed_file.hpp"
#include "collectives/memory.hpp"

namespace collectives {

/// Memory mapped by this process. The destructor unmaps it.
class Mapping {
 public:
  Mapping() noexcept = default;
  Mapping(std::byte* data, std::size_t bytes) noexcept : data_(data), bytes_(bytes) {}
  Mapping(Mapping&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}
  Mapping& operator=(Mapping&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }
  ~Mapping();

  std::byte* data() const noexcept { return data_; }
  std::size_t bytes() const noexcept { return bytes_; }

 private:
  std::byte* data_ = nullptr;
  std::size_t bytes_ = 0;
};

/// Everything that another process needs to map a segment.
struct SegmentAddress {
  std::uint64_t pid = 0, fd = 0;
  std::uint64_t token = 0;
  std::uint64_t bytes = 0;
  std::uint64_t data = 0;  ///< address of the segment in the process `pid`
};

class Segment {
 public:
  /// Allocates at least `bytes` bytes in whole pages of zeros. The address is a multiple of the page size. From 2 MiB
  /// up, it is a multiple of 2 MiB. Throws Error{system} with the refused call and the setting to change.
  explicit Segment(std::size_t bytes);
  /// Returns the pages to the system at once, even if peers have them mapped. In a child of fork(), only unmaps the
  /// segment.
  ~Segment();
  Segment(const Segment&) = delete;
  Segment& operator=(const Segment&) = delete;

  std::byte* data() const noexcept { return memory_.data(); }
  std::size_t bytes() const noexcept { return memory_.bytes(); }
  /// Returns true if other processes can map the segment.
  bool shared() const noexcept { return static_cast<bool>(file_); }
  /// Returns whether this process made the segment: false in a child of fork().
  bool ours() const noexcept { return owner_process_.is_current(); }
  SegmentAddress address() const noexcept;

  struct Made {
    Pages pages = Pages::private_pages;
    std::size_t bytes = 0, huge_bytes = 0;  ///< length of the segment, and of its part in huge pages
  };
  /// Returns the kind and bytes of the used pages. Reads /proc/self/smaps.
  Made made_of() const;

 private:
  OwnerProcess owner_process_;
  std::uint64_t token_;
  bool reserved_ = false;  // whether the pages come from the administrator's pool of huge pages
  Descriptor file_;        // none: private memory
  Mapping memory_;
};

/// Maps a segment of another process. Throws Error{system} if the system refuses or the file is not the announced
/// segment.
Mapping map_segment(const SegmentAddress&);

}  // namespace collectives
