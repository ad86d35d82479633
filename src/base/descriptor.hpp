// Class for file descriptors, whose destructor closes the descriptor, and a function that writes a whole text to a
// file.
#pragma once

#include <unistd.h>

#include <cstddef>
#include <string_view>
#include <utility>

namespace collectives {

/// Moves a descriptor with the number of a standard stream (0 to 2) to another number. Returns the new number. Also
/// opens /dev/null as each standard stream that the program has closed. Reason: log lines and output of other libraries
/// are written to the numbers 0 to 2, and would otherwise be written to the file of `fd`.
int moved_off_standard_streams(int fd) noexcept;

/// File descriptor that the destructor closes. Its number is never that of a standard stream.
class Descriptor {
 public:
  explicit Descriptor(int fd = -1) noexcept : fd_(fd < 0 || fd > 2 ? fd : moved_off_standard_streams(fd)) {}
  Descriptor(Descriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~Descriptor() {
    if (fd_ >= 0) ::close(fd_);
  }
  int fd() const noexcept { return fd_; }
  /// Returns the descriptor. From then on, the caller must close it.
  int release() noexcept { return std::exchange(fd_, -1); }
  explicit operator bool() const noexcept { return fd_ >= 0; }

 private:
  int fd_;
};

/// Writes `text` and returns the number of bytes written. The number is below text.size() only if the system has
/// refused the rest; errno then holds the reason. Safe in a signal handler.
std::size_t write_all(int file, std::string_view text) noexcept;

}  // namespace collectives
