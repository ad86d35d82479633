// Protection of the library's resources from children that the program makes by fork().
//
// A child has its parent's memory, but none of its threads. It shares mappings, connections and locks with the parent.
// If the child used them, it would disturb the parent and its peers. Three tools prevent that:
//
//   OwnerProcess      a member of each object that belongs to one process; tells a child from that process
//   OwnDescriptor     a file descriptor that stands for the process, such as one with a lock; a child closes it at once
//   hold_over_forks   keeps a mutex of the process free in a child, so that the child can create communicators
//
// In a child, each call on an inherited communicator is refused. In the child, the destructor of the communicator
// closes no connection, frees no memory and sends no message.
//
// All three tools use handlers that pthread_atfork() registers. The function fork() calls the handlers in the parent
// and in the child. Children of vfork and posix_spawn need no handlers, because they call exec. The bare `clone` system
// call does not run the handlers. A child of `clone` keeps the parent's locks until it calls exec or ends.
//
// Price: each call reads one counter. A child keeps inherited connections and memory until it ends. If a parent is
// killed, its TCP peers see the connections closed only after its children have ended. Until then, the calls of these
// peers end only by their deadline.
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
// Number of forks that led to this process: a child inherits the number and adds 1.
extern std::atomic<std::uint32_t> generation;
}  // namespace detail

/// The process that created an object.
class OwnerProcess {
 public:
  /// Throws Error{system} if the handlers of fork cannot be installed.
  OwnerProcess();
  /// Returns whether the caller runs in that process, not in a child. Costs one relaxed load.
  bool is_current() const noexcept { return generation_ == detail::generation.load(std::memory_order_relaxed); }
  pid_t process() const noexcept { return process_; }

 private:
  std::uint32_t generation_;
  pid_t process_;
};

/// A descriptor that children do not keep. Resources that the kernel ties to it, such as a lock, end with this process.
class OwnDescriptor {
 public:
  OwnDescriptor() noexcept = default;
  ~OwnDescriptor() { close(); }
  OwnDescriptor(const OwnDescriptor&) = delete;
  OwnDescriptor& operator=(const OwnDescriptor&) = delete;

  /// Opens a file. Returns false and sets errno if the system refuses. Throws like OwnerProcess.
  bool open(const std::string& path, int flags);
  void close() noexcept;
  /// Returns the descriptor; -1 if there is none, as in a child.
  int number() const noexcept { return fd_; }

 private:
  int fd_ = -1;
};

/// Makes fork() wait for `kMutex`, of which the process has one. Call this before the mutex is locked.
///
/// The child has none of the other threads of its parent. It finds the mutex free and the guarded data consistent. A
/// thread that holds the mutex must not lock another mutex of this kind. Throws like OwnerProcess.
template <std::mutex& kMutex>
void hold_over_forks() {
  static const int error = ::pthread_atfork([] { kMutex.lock(); }, [] { kMutex.unlock(); }, [] { kMutex.unlock(); });
  if (error != 0) throw Error(Errc::system, "fork: pthread_atfork refused");
}

}  // namespace collectives
