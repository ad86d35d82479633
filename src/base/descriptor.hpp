// File descriptors with an owner, and writes of whole texts.
#pragma once

#include <unistd.h>

#include <cstddef>
#include <string_view>
#include <utility>

namespace collectives {

/// Moves a descriptor that has taken the number of a standard stream, 0 to 2, and returns its new number. Opens
/// /dev/null as each standard stream that the program has closed. Reason: log lines and output of other libraries go to
/// these numbers, and would be written to the file behind `fd`.
int moved_off_standard_streams(int fd) noexcept;

/// File descriptor that the destructor closes. It is never that of a standard stream.
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
  /// Returns the descriptor, which the caller closes from now on.
  int release() noexcept { return std::exchange(fd_, -1); }
  explicit operator bool() const noexcept { return fd_ >= 0; }

 private:
  int fd_;
};

/// Writes `text` and returns the number of bytes written. The number is below text.size() only if the system has
/// refused the rest; errno then holds the reason. Safe in a signal handler.
std::size_t write_all(int file, std::string_view text) noexcept;

}  // namespace collectives
