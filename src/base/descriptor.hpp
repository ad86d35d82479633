// File descriptors with an owner, and writes of whole texts.
#pragma once

#include <unistd.h>

#include <cstddef>
#include <string_view>
#include <utility>

namespace collectives {

/// File descriptor that the destructor closes.
class Descriptor {
 public:
  explicit Descriptor(int fd = -1) noexcept : fd_(fd) {}
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
