// Implementation of the retransmission thread, which sends lost UDP datagrams again. It wakes up once per tick,
// a period of 10 ms, while any datagram may have to be sent again.
#include "transport/retransmitter.hpp"

#include <algorithm>
#include <condition_variable>
#include <csignal>
#include <exception>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "base/fork.hpp"
#include "transport/datagrams.hpp"

namespace collectives {

static constinit std::mutex of_the_process;  // Guards the pointer to the one Thread of the process.

/// Retransmission thread. It ends when the last Retransmitter is destroyed.
class Retransmitter::Thread {
 public:
  static std::shared_ptr<Thread> of_this_process() {
    hold_over_forks<of_the_process>();
    const std::lock_guard lock(of_the_process);
    static std::weak_ptr<Thread>& known = *new std::weak_ptr<Thread>;
    std::shared_ptr<Thread> thread = known.lock();
    // A forked child has the object of its parent, but not the thread.
    if (thread == nullptr || !thread->owner_process_.is_current()) known = thread = std::make_shared<Thread>();
    return thread;
  }

  Thread() {
    sigset_t all, before;
    sigfillset(&all);  // The program's own threads handle its signals.
    ::pthread_sigmask(SIG_SETMASK, &all, &before);
    try {
      thread_ = std::thread([this] { run(); });
    } catch (...) {
      ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
      throw;
    }
    ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  }
  ~Thread() {
    {
      const std::lock_guard lock(mutex_);
      over_ = true;
    }
    woken_.notify_one();
    thread_.join();
  }

  void add(Retransmitter& one) {
    {
      const std::lock_guard lock(mutex_);
      retransmitters_.push_back(&one);
    }
    woken_.notify_one();
  }
  void remove(Retransmitter& one) {
    const std::lock_guard lock(mutex_);
    std::erase(retransmitters_, &one);
  }
  void wake(Retransmitter& one) {
    {
      const std::lock_guard lock(mutex_);
      one.rests_ = false;
    }
    woken_.notify_one();
  }

 private:
  void run() {
    std::unique_lock lock(mutex_);
    while (!over_) {
      bool left = false;
      for (Retransmitter* one : retransmitters_) left = one->look() || left;
      const auto all_rest = [this] {
        return std::ranges::all_of(retransmitters_, [](const Retransmitter* one) { return one->rests_.load(); });
      };
      if (!left) woken_.wait(lock, [&] { return over_ || !all_rest(); });
      woken_.wait_for(lock, DatagramLink::kTick, [this] { return over_; });
    }
  }

  const OwnerProcess owner_process_;
  // Guards retransmitters_. The function run() holds the mutex during look(). Therefore, remove() waits for look().
  std::mutex mutex_;
  std::condition_variable woken_;
  std::vector<Retransmitter*> retransmitters_;
  bool over_ = false;
  std::thread thread_;
};

Retransmitter::Retransmitter(std::function<bool()> look) : look_(std::move(look)), thread_(Thread::of_this_process()) {
  thread_->add(*this);
}

Retransmitter::~Retransmitter() { thread_->remove(*this); }

void Retransmitter::wake() { thread_->wake(*this); }

/// Calls the registered function, unless it has returned false and no datagram was sent since. Returns whether the
/// thread has to call it again at the next tick.
bool Retransmitter::look() {
  // Sets the flag before the call. A datagram that is sent after this line clears the flag. The call sees all datagrams
  // that were sent before.
  if (rests_.exchange(true)) return false;
  bool left = true;
  try {
    left = look_();
  } catch (const std::exception&) {
  }
  if (left) rests_ = false;
  return left;
}

}  // namespace collectives
