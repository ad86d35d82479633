// Implementation of fork.hpp. If the program calls fork(), the child inherits descriptors that only the parent must
// have. An example is the descriptor with the file lock that shows that a rank runs. This file registers handlers that
// run around each fork(). In the child, a handler closes these descriptors.
#include "base/fork.hpp"

#include <fcntl.h>
#include <pthread.h>
#include <unistd.h>

#include <mutex>
#include <utility>
#include <vector>

#include "base/descriptor.hpp"
#include "collectives/error.hpp"

namespace collectives {
namespace {

/// List of descriptors that a child closes, and the mutex that protects the list.
struct Forks {
  std::mutex mutex;  ///< locked during each fork(), so that no thread changes the list while it is copied to the child
  std::vector<int*> descriptors;

  static Forks& of_this_process() {
    // This object is never destroyed, because descriptors may be closed after the destruction of static objects.
    static Forks& forks = *new Forks;
    return forks;
  }

 private:
  Forks() {
    const int error = ::pthread_atfork([] { of_this_process().mutex.lock(); }, [] { of_this_process().mutex.unlock(); },
                                       [] { of_this_process().become_a_child(); });
    if (error != 0) throw Error(Errc::system, "fork: pthread_atfork refused");
  }
  void become_a_child() noexcept {
    detail::generation.fetch_add(1, std::memory_order_relaxed);
    for (int* descriptor : descriptors) ::close(std::exchange(*descriptor, -1));
    descriptors.clear();
    mutex.unlock();
  }
};

}  // namespace

constinit std::atomic<std::uint32_t> detail::generation{0};

OwnerProcess::OwnerProcess() {
  Forks::of_this_process();
  generation_ = detail::generation.load(std::memory_order_relaxed);
  process_ = ::getpid();
}

bool OwnDescriptor::open(const std::string& path, int flags) {
  Forks& forks = Forks::of_this_process();
  const std::lock_guard no_fork(forks.mutex);
  forks.descriptors.reserve(forks.descriptors.size() + 1);
  fd_ = Descriptor(::open(path.c_str(), flags | O_CLOEXEC)).release();
  if (fd_ < 0) return false;
  forks.descriptors.push_back(&fd_);
  return true;
}

void OwnDescriptor::close() noexcept {
  if (fd_ < 0) return;
  Forks& forks = Forks::of_this_process();
  const std::lock_guard no_fork(forks.mutex);
  std::erase(forks.descriptors, &fd_);
  ::close(std::exchange(fd_, -1));
}

}  // namespace collectives
