// A sealed memfd: shared memory without a name in the file system, which nobody can shrink under its users. And the
// words for what the system refuses on the way: what there was no memory for, the limit, and the setting to change.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <utility>

namespace collectives {

/// A file descriptor, closed at the end.
class Descriptor {
 public:
  explicit Descriptor(int fd = -1) noexcept : fd_(fd) {}
  Descriptor(Descriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~Descriptor();
  int number() const noexcept { return fd_; }
  explicit operator bool() const noexcept { return fd_ >= 0; }

 private:
  int fd_;
};

/// Bytes of `text` that went into the file: fewer than all only where the system refuses the rest, as errno says then.
/// A signal handler may call it.
std::size_t write_all(int file, std::string_view text) noexcept;

struct SealedFile {
  Descriptor file;
  std::string refused;  ///< which call this process may not make, where there is no file
};

/// `bytes` zeros. `what` is it for: "a segment". `flags` for memfd_create, beside those for closing, sealing and
/// against execution. Throws as refuse_memory() at a limit; no file where this process may not have memfds at all.
SealedFile make_sealed_file(std::string_view what, const std::string& name, std::size_t bytes, unsigned flags = 0);

/// Throws Error{system} "memory: no 2 MiB for a segment: WHY".
[[noreturn]] void refuse_memory(std::size_t bytes, std::string_view what, std::string_view why);
/// The same for an mmap that has just failed: with errno, and the limit that is the likely reason.
[[noreturn]] void refuse_mapping(std::size_t bytes, std::string_view what);
/// What `error` of a call that opens a file means, with the limit on descriptors if it was that.
std::string open_error_text(int error);

}  // namespace collectives
