// Implementation of ProgressThread, an optional thread that progresses a communicator's operations. A communicator
// without this thread may be on the progress list of the program's thread that used it last.
#include "communicator/progress_thread.hpp"

#include <system_error>
#include <utility>

#include "base/log.hpp"
#include "base/wait.hpp"

namespace collectives {

ProgressThread::ProgressThread(const CommunicatorResources& resources, OperationQueue& queue)
    : resources_(resources), queue_(queue), threaded_(resources.progress_thread) {
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
  if (engine_ != nullptr) engine_->remove(queue_);
  if (!thread_.joinable()) return;
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  work_to_do_.notify_all();
  thread_.join();
}

void ProgressThread::move_to_this_thread() {
  if (engine_ != nullptr && engine_.get() == ProgressEngine::of_this_thread()) return;
  if (engine_ != nullptr) engine_->remove(queue_);
  engine_ = ProgressEngine::make_for_this_thread();
  if (engine_ != nullptr) engine_->add(queue_);
}

void ProgressThread::run() {
  if (resources_.context.device != nullptr) resources_.context.device->make_current();
  const auto progress = [this] {
    queue_.progress();
    return queue_.is_idle();
  };
  std::unique_lock lock(mutex_);
  while (!stop_) {
    work_to_do_.wait(lock, [this] { return stop_ || !queue_.is_idle(); });
    CollectiveBackoff backoff(resources_.context.oversubscribed);
    std::uint64_t moved = resources_.moves();
    while (!stop_ && !progress()) {
      const std::uint64_t moves = resources_.moves();
      if (moves != std::exchange(moved, moves)) backoff.reset();
      lock.unlock();
      const bool check_failures = backoff.wait();
      lock.lock();
      if (check_failures) queue_.detect_failures();
    }
  }
}

}  // namespace collectives
