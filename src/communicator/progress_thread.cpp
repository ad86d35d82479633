// Implementation of ProgressThread, an optional thread that progresses a communicator's operations while the program
// computes.
//
// The thread sleeps while there are no unfinished operations. It wakes when a call issues one. It then takes the lock
// of the communicator, advances the operations without waiting, and releases the lock again. The thread repeats these
// actions until all operations have ended. The longer no operation progresses, the longer the thread pauses before the
// next repetition.
#include "communicator/progress_thread.hpp"

#include <system_error>
#include <utility>

#include "base/log.hpp"
#include "base/wait.hpp"

namespace collectives {

ProgressThread::ProgressThread(const CommunicatorResources& resources, OperationQueue& queue, PointToPoint& messages)
    : resources_(resources), queue_(queue), messages_(messages), threaded_(resources.progress_thread) {
  if (threaded_) try {
      thread_ = std::thread([this] { run(); });
    } catch (const std::system_error& error) {
      threaded_ = false;
      log_warning(resources.rank(),
                  "no progress thread: {}: operations move on in calls only; see RLIMIT_NPROC (ulimit -u) and pids.max "
                  "of the control group",
                  error.what());
    }
}

void ProgressThread::stop() {
  place_.leave();
  if (!thread_.joinable()) return;
  {
    const std::lock_guard lock(resources_.mutex);
    stop_ = true;
  }
  work_to_do_.notify_all();
  thread_.join();
}

void ProgressThread::run() {
  if (resources_.context.device != nullptr) resources_.context.device->make_current();
  const auto progress = [this] {
    queue_.progress();
    if (!messages_.is_idle()) messages_.progress_as_member(false);
    return queue_.is_idle() && messages_.is_idle();
  };
  std::unique_lock lock(resources_.mutex);
  while (!stop_) {
    work_to_do_.wait(lock, [this] { return stop_ || !queue_.is_idle() || !messages_.is_idle(); });
    CollectiveBackoff backoff(resources_.context.oversubscribed);
    std::uint64_t moved = resources_.moves() + messages_.moves();
    while (!stop_ && !progress()) {
      const std::uint64_t moves = resources_.moves() + messages_.moves();
      if (moves != std::exchange(moved, moves)) backoff.reset();
      lock.unlock();
      const bool check_failures = backoff.wait();
      lock.lock();
      if (!check_failures) continue;
      queue_.detect_failures();
      messages_.progress_as_member(true);
    }
  }
}

}  // namespace collectives
