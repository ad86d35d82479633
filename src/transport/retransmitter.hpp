// Retransmission thread: sends lost UDP datagrams again, over TCP. A process has one thread for all its communicators.
//
// The sender may be computing outside the library when a retransmission is due. The thread therefore retransmits in the
// background. A datagram is settled when it is acknowledged or sent again. The thread sleeps if all are settled.
#pragma once

#include <atomic>
#include <functional>
#include <memory>

namespace collectives {

/// Registration of one communicator's datagrams with the retransmission thread. Each Retransmitter has a function
/// `look`, which the thread calls every 10 ms (one tick). It returns false if all datagrams of its communicator are
/// settled. If all functions have returned false in a tick, the thread sleeps until a datagram is sent.
class Retransmitter {
 public:
  /// Registers `look`. The function `look` retransmits the datagrams that are due, and returns whether other datagrams
  /// may have to be retransmitted later. If `look` throws an exception, it is called again at the next tick. Throws
  /// std::system_error or Error{system} if the thread cannot be started.
  explicit Retransmitter(std::function<bool()> look);
  /// Ends the registration. Blocks until a running look() has returned.
  ~Retransmitter();
  Retransmitter(const Retransmitter&) = delete;
  Retransmitter& operator=(const Retransmitter&) = delete;
  /// Notes that a datagram has been sent, and wakes the thread if it sleeps.
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
