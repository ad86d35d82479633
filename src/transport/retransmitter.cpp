// Implementation of the retransmission thread, which resends lost UDP datagrams over TCP. One thread serves all
// communicators of the process. Each communicator has one Retransmitter, with a function that finds and resends its
// lost datagrams. The thread calls the functions of all Retransmitters every 10 ms, a period called tick. TCP loses
// nothing, so the thread sleeps if each datagram is acknowledged or has been sent again.
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

static constinit std::mutex of_the_process;  // Guards `known`, the pointer to the Thread of this process.

/// The retransmission thread and its list of Retransmitters. The thread ends when the last Retransmitter is destroyed.
class Retransmitter::Thread {
 public:
  static std::shared_ptr<Thread> of_this_process() {
    hold_over_forks<of_the_process>();
    const std::lock_guard lock(of_the_process);
    static std::weak_ptr<Thread>& known = *new std::weak_ptr<Thread>;
    std::shared_ptr<Thread> thread = known.lock();
    // A forked child inherits this object from its parent, but fork() does not copy the thread.
    if (thread == nullptr || !thread->owner_process_.is_current()) known = thread = std::make_shared<Thread>();
    return thread;
  }

  Thread() {
    sigset_t all, before;
    sigfillset(&all);  // The new thread inherits the blocked signals, so that only threads of the program handle any.
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
  // Guards retransmitters_. The function run() holds this mutex while it calls look(). Therefore, remove() blocks until
  // look() has returned.
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

/// Calls the registered function, unless its last call returned false and no datagram has been sent since then. Returns
/// whether the thread must call look() again at the next tick.
bool Retransmitter::look() {
  // Sets the flag before it calls the function. The function thus finds every datagram that was sent before the flag
  // was set. A datagram that is sent later clears the flag, so the thread calls the function again at the next tick.
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
