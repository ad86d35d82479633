// A segment: memory from the system that the other processes of this host can map. One sealed memfd, so nothing of it
// has a name in the file system and nobody can shrink it; its random token is part of the memfd's name, by which a peer
// recognises it behind /proc/PID/fd/N, whatever that descriptor may have become.
//
// Pages, best first: reserved huge pages while the pool has enough; small pages that the kernel is asked to put
// together (MADV_COLLAPSE, which does not depend on the setting of the machine); small pages. The kernel collapses
// pages with the help of a worker on every core, so it is asked only while cores are free, never again after one call
// took over 10 ms, and for at most 100 ms and 1 ms per MiB of a segment.
//
// All pages are there when the segment is: filled in piece by piece, each after a look at how much memory is left,
// since a control group at its limit does not refuse a page, it ends a process. Where memfds are refused, private
// memory takes their place.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>

#include "collectives/memory.hpp"
#include "fork.hpp"
#include "shared_memory/sealed_file.hpp"

namespace collectives {

/// Memory mapped by this process, unmapped at the end.
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

/// All that another process needs to map a segment.
struct SegmentAddress {
  std::uint64_t pid = 0, fd = 0;
  std::uint64_t token = 0;
  std::uint64_t bytes = 0;
  std::uint64_t data = 0;  ///< where it is in the process `pid`
};

class Segment {
 public:
  /// At least `bytes`, whole pages, zero, all of them there. Begins at a page, from 2 MiB up at a huge page.
  /// Throws Error{system} naming what was refused and the setting to change.
  explicit Segment(std::size_t bytes);
  /// Gives the pages back at once, though peers may still have them mapped.
  ~Segment();
  Segment(const Segment&) = delete;
  Segment& operator=(const Segment&) = delete;

  std::byte* data() const noexcept { return memory_.data(); }
  std::size_t bytes() const noexcept { return memory_.bytes(); }
  /// Whether others can map it.
  bool shared() const noexcept { return static_cast<bool>(file_); }
  /// False in a child that was forked after it was made.
  bool ours() const noexcept { return maker_.here(); }
  SegmentAddress address() const noexcept;

  struct Made {
    Pages pages = Pages::private_pages;
    std::size_t bytes = 0, huge_bytes = 0;  ///< of the segment, and of it in huge pages
  };
  /// Reads /proc/self/smaps.
  Made made_of() const;

 private:
  Maker maker_;
  std::uint64_t token_;
  bool reserved_ = false;  // huge pages of the administrator's pool
  Descriptor file_;        // none: private
  Mapping memory_;
};

/// A segment of another process. Throws Error{system} when it cannot be mapped, or is not what was announced.
Mapping map_segment(const SegmentAddress&);

}  // namespace collectives
