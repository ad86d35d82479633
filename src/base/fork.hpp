// Protection of the library's resources from children that the program makes by fork().
//
// A child of fork() has a copy of its parent's private memory. It has only one thread, the one that called fork(). It
// also has access to the parent's shared memory, connections and file locks. If a child used them, it would disturb the
// parent and the parent's peers. Three tools prevent that:
//
//   OwnerProcess      member of an object that belongs to one process; tells whether the caller runs in a child
//   OwnDescriptor     file descriptor that a child closes at once, such as the one that holds a rank's lock
//   hold_over_forks   makes fork() wait until a mutex is free, so that the child can lock the mutex
//
// In a child, collectives and waits on an inherited communicator throw Error{invalid_argument}. Counters, properties
// and plans can still be read. The destructor of the communicator closes no connection in the child, frees no memory
// and sends no message.
//
// All three tools use handlers that pthread_atfork() registers. The function fork() calls the handlers in the parent
// and in the child. Children of vfork and posix_spawn need no handlers, because they call exec. The bare `clone` system
// call does not run the handlers. A child of `clone` keeps its parent's file locks until the child calls exec or ends.
//
// Price: each call reads one counter. A child keeps inherited connections and memory until it calls exec or ends. If a
// parent is killed, its TCP connections therefore stay open. Calls of its peers may then last until their deadline.
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
// Number of forks that led to this process, counted since the handlers were registered. A child inherits the number and
// adds 1.
extern std::atomic<std::uint32_t> generation;
}  // namespace detail

/// The process that created an object.
class OwnerProcess {
 public:
  /// Records the calling process. Throws Error{system} if the handlers cannot be registered.
  OwnerProcess();
  /// Returns whether the caller runs in the recorded process, not in a child. Costs one relaxed load.
  bool is_current() const noexcept { return generation_ == detail::generation.load(std::memory_order_relaxed); }
  pid_t process() const noexcept { return process_; }

 private:
  std::uint32_t generation_;
  pid_t process_;
};

/// A descriptor that children do not keep. Resources that the kernel ties to the descriptor, such as a lock, end with
/// this process.
class OwnDescriptor {
 public:
  OwnDescriptor() noexcept = default;
  ~OwnDescriptor() { close(); }
  OwnDescriptor(const OwnDescriptor&) = delete;
  OwnDescriptor& operator=(const OwnDescriptor&) = delete;

  /// Opens a file. Returns false and sets errno if the system refuses. Throws Error{system} if the handlers cannot be
  /// registered.
  bool open(const std::string& path, int flags);
  void close() noexcept;
  /// Returns the descriptor; -1 if there is none, as in a child.
  int fd() const noexcept { return fd_; }

 private:
  int fd_ = -1;
};

/// Makes fork() wait until `kMutex`, a global mutex, is free. Must be called before the mutex is first locked.
///
/// In the child, the mutex is free and the guarded data are consistent. A thread that holds the mutex must not lock
/// another mutex that was passed to this function. Throws Error{system} if the handlers cannot be registered.
template <std::mutex& kMutex>
void hold_over_forks() {
  static const int error = ::pthread_atfork([] { kMutex.lock(); }, [] { kMutex.unlock(); }, [] { kMutex.unlock(); });
  if (error != 0) throw Error(Errc::system, "fork: pthread_atfork refused");
}

}  // namespace collectives
