// The thread that retransmits lost datagrams.
//
// The sender may be computing outside the library when a retransmission is due. One thread per process therefore
// retransmits for all links. It sleeps while no datagram may have to be retransmitted.
#pragma once

#include <atomic>
#include <functional>
#include <memory>

namespace collectives {

/// Registration with the retransmission thread of the process. The thread calls look() of each registered object every
/// tick. It sleeps while no object has datagrams that may have to be retransmitted.
class Retransmitter {
 public:
  /// Registers `look`, which returns whether datagrams may still have to be retransmitted. It is called again if it
  /// throws, for example std::bad_alloc. Throws std::system_error or Error{system} if the thread cannot be started.
  explicit Retransmitter(std::function<bool()> look);
  /// Blocks until a running look() has returned.
  ~Retransmitter();
  Retransmitter(const Retransmitter&) = delete;
  Retransmitter& operator=(const Retransmitter&) = delete;
  /// Wakes the thread if it sleeps, because a datagram has been sent.
  void note() {
    if (rests_.load(std::memory_order_relaxed)) wake();
  }

 private:
  class Thread;
  void wake();
  bool look();

  std::function<bool()> look_;
  std::atomic<bool> rests_{false};
  std::shared_ptr<Thread> thread_;
};

}  // namespace collectives
