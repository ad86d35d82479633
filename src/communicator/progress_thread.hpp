// ProgressThread: the optional thread that progresses a communicator's operations, and the lock that protects them.
//
// Without a progress thread, operations progress only while the program calls the library. Each thread has a progress
// list: the communicators that the thread progresses while it waits (progress_engine.hpp). The object owns the progress
// thread, the lock, and the communicator's place on a progress list.
//
// Communicator::Impl is the only caller. Its functions first take the lock by guard(). They hold the lock while they
// use OperationQueue and the other parts of the communicator. Callers of attach() and notify() must hold the lock.
// Callers of stop() must not hold it.
#pragma once

#include <condition_variable>
#include <memory>
#include <mutex>
#include <thread>

#include "communicator/communicator_resources.hpp"
#include "communicator/operation_queue.hpp"
#include "execution/progress_engine.hpp"
#include "point_to_point/point_to_point.hpp"

namespace collectives {

class ProgressThread {
 public:
  /// Starts the progress thread if the settings ask for one. If the system cannot start the thread, logs a warning and
  /// continues without a progress thread.
  ProgressThread(const CommunicatorResources& resources, OperationQueue& queue, PointToPoint& messages);
  ProgressThread(const ProgressThread&) = delete;
  ProgressThread& operator=(const ProgressThread&) = delete;

  /// Returns the lock of the communicator's operations, already taken. Returns an empty lock if there is neither a
  /// progress thread nor a wire (CommunicatorResources::locked). A communicator on a progress list moves to the list of
  /// the calling thread.
  std::unique_lock<std::mutex> guard() {
    if (place_.taken()) place_.move_to_this_thread();
    return resources_.locked ? std::unique_lock(resources_.mutex) : std::unique_lock<std::mutex>();
  }
  /// Puts the communicator on the progress list of the calling thread, unless there is a progress thread.
  void attach() {
    if (!threaded_) place_.move_to_this_thread();
  }
  /// Wakes the progress thread, if there is one.
  void notify() noexcept {
    if (threaded_) work_to_do_.notify_one();
  }
  /// Wakes the progress thread, if there is one, for a point-to-point message. Requires that the caller does not hold
  /// the lock.
  void notify_of_message() {
    if (!threaded_) return;
    { const std::lock_guard lock(resources_.mutex); }
    work_to_do_.notify_one();
  }
  bool threaded() const noexcept { return threaded_; }
  /// Removes the communicator from its progress list. Ends the progress thread.
  void stop();

 private:
  /// Progresses operations until stop(). The progress thread runs this function.
  void run();

  const CommunicatorResources& resources_;
  OperationQueue& queue_;
  PointToPoint& messages_;
  ProgressPlace place_{queue_};  // progress list on which this communicator is
  bool threaded_ = false;
  std::condition_variable work_to_do_;
  bool stop_ = false;
  std::thread thread_;
};

}  // namespace collectives
