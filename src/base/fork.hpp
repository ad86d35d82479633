// Children made by fork(), and what is not theirs.
//
// A child has its parent's memory, but none of its threads. Shared mappings, connections and locks it has together with
// the parent, so whatever it did there would be done in the parent's name. Therefore what belongs to one process holds
// a Maker, which tells the process that made it from every child; and a descriptor that stands for the process itself
// is an OwnDescriptor, which children give up before they do anything else.
//
// Both hang on the handlers of pthread_atfork. The bare `clone` system call does not run them, and vfork and
// posix_spawn need none: what they start calls exec.
#pragma once

#include <pthread.h>
#include <sys/types.h>

#include <atomic>
#include <cstdint>
#include <mutex>
#include <string>

#include "collectives/error.hpp"

namespace collectives {
namespace detail {
extern std::atomic<std::uint32_t> generation;  // grows by one in each child
}

/// The process that made an object.
class OwnerProcess {
 public:
  /// Throws Error{system} where the system does not tell of forks.
  OwnerProcess();
  /// Whether this is that process, and no child of it. One relaxed load.
  bool is_current() const noexcept { return generation_ == detail::generation.load(std::memory_order_relaxed); }
  pid_t process() const noexcept { return process_; }

 private:
  std::uint32_t generation_;
  pid_t process_;
};

/// A descriptor that no child keeps: what the kernel ties to it, such as a lock, ends with this process.
class OwnDescriptor {
 public:
  OwnDescriptor() noexcept = default;
  ~OwnDescriptor() { close(); }
  OwnDescriptor(const OwnDescriptor&) = delete;
  OwnDescriptor& operator=(const OwnDescriptor&) = delete;

  /// Of a file; false with errno when the system refuses. Throws as Maker does.
  bool open(const std::string& path, int flags);
  void close() noexcept;
  /// -1 when there is none, as in a child.
  int number() const noexcept { return fd_; }

 private:
  int fd_ = -1;
};

/// To be called before `kMutex`, of which the process has one, is taken: a fork waits for it, so that the child, which
/// has none of the other threads, finds it free and what it guards whole. Who holds it may take no other such mutex.
/// Throws as Maker does.
template <std::mutex& kMutex>
void hold_over_forks() {
  static const int error = ::pthread_atfork([] { kMutex.lock(); }, [] { kMutex.unlock(); }, [] { kMutex.unlock(); });
  if (error != 0) throw Error(Errc::system, "fork: pthread_atfork refused");
}

}  // namespace collectives
