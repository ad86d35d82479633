// Helpers for tests that fork the ranks of a job themselves: the port at which the ranks meet, and the environment of a
// rank.
#pragma once

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <stdexcept>
#include <string>

#include "collectives/types.hpp"

namespace collectives::testing {

/// Socket that listens on a free port of the loopback interface, from which rank 0 accepts the other ranks.
class RendezvousPort {
 public:
  RendezvousPort() : fd_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = ::htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    if (::bind(fd_, reinterpret_cast<sockaddr*>(&address), size) != 0 || ::listen(fd_, 64) != 0 ||
        ::getsockname(fd_, reinterpret_cast<sockaddr*>(&address), &size) != 0)
      throw std::runtime_error("no port");
    port_ = ::ntohs(address.sin_port);
  }
  RendezvousPort(const RendezvousPort&) = delete;
  RendezvousPort& operator=(const RendezvousPort&) = delete;
  ~RendezvousPort() { ::close(fd_); }
  int fd() const { return fd_; }
  int port() const { return port_; }

  /// Makes this process, a child, rank `rank` of `size` ranks that meet here. `job` names the job.
  void set_environment(Rank rank, int size, const std::string& job) const {
    const auto set = [](const char* name, const std::string& value) { ::setenv(name, value.c_str(), 1); };
    set("RANK", std::to_string(rank));
    set("WORLD_SIZE", std::to_string(size));
    set("MASTER_ADDR", "127.0.0.1");
    set("MASTER_PORT", std::to_string(port_));
    set("TORCHELASTIC_RUN_ID", job);
    if (rank == 0) {
      ::fcntl(fd_, F_SETFD, 0);
      set("COLLECTIVES_LISTEN_FD", std::to_string(fd_));
    } else {
      ::unsetenv("COLLECTIVES_LISTEN_FD");
      ::close(fd_);
    }
  }

 private:
  int fd_, port_ = 0;
};

/// Folder for temporary files, which the destructor removes.
class TemporaryFolder {
 public:
  explicit TemporaryFolder(const std::string& name) {
    std::string pattern = (std::filesystem::temp_directory_path() / (name + ".XXXXXX")).string();
    if (::mkdtemp(pattern.data()) == nullptr) throw std::runtime_error("mkdtemp");
    path_ = pattern;
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  ~TemporaryFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

}  // namespace collectives::testing
