// Progress engine of a thread: the list of communicators whose operations the thread progresses while it waits.
//
// A thread that waits for an operation of one communicator also progresses all other communicators on its list. Ranks
// may therefore wait for operations of several communicators in different orders, without a deadlock.
//
// A communicator is on the list of the thread that used it last, and only this thread progresses it. If another thread
// uses the communicator, the communicator moves to the list of that thread. The library thus calls MPI only in the
// program's threads. Exception: a communicator with a progress thread is on no list, and its progress thread calls MPI.
// If MPI carries the messages between hosts, a progress thread exists in two cases: the program asks for it, or NCCL is
// used and MPI accepts calls from all threads.
//
// Price: without a progress thread, an operation does not progress while its thread is outside the library.
#pragma once

#include <memory>
#include <mutex>
#include <vector>

#include "base/fork.hpp"

namespace collectives {

class ProgressEngine {
 public:
  /// Interface through which an engine progresses a communicator.
  class Member {
   public:
    /// Progresses the operations of the communicator without waiting. Returns whether any of them progressed.
    /// `check_failures`: also looks for failures.
    virtual bool progress_as_member(bool check_failures) noexcept = 0;

   protected:
    ~Member() = default;
  };

  /// Returns the engine of this thread. Returns null if there is none, or if the thread is about to end.
  static ProgressEngine* of_this_thread() noexcept;
  /// Returns the engine of this thread. Makes one if needed. Returns null only if the thread is about to end.
  static std::shared_ptr<ProgressEngine> make_for_this_thread();

  void add(Member&);
  void remove(Member&) noexcept;
  /// Progresses all members except `except`, which the caller progresses itself. Returns whether any of them
  /// progressed.
  bool progress(const Member& except, bool check_failures) noexcept;

 private:
  const OwnerProcess owner_process_;
  std::mutex mutex_;  // taken also by a thread that moves a member to its own list
  std::vector<Member*> members_;
};

/// Place of one member on the progress list of at most one thread. Its functions must not run concurrently.
class ProgressPlace {
 public:
  explicit ProgressPlace(ProgressEngine::Member& member) noexcept : member_(member) {}
  ProgressPlace(const ProgressPlace&) = delete;
  ProgressPlace& operator=(const ProgressPlace&) = delete;

  /// Returns whether the member is on a list.
  bool taken() const noexcept { return engine_ != nullptr; }
  /// Moves the member to the list of the calling thread.
  void move_to_this_thread();
  /// Removes the member from its list. Blocks while the thread of the list progresses its members.
  void leave();

 private:
  ProgressEngine::Member& member_;
  std::shared_ptr<ProgressEngine> engine_;
};

}  // namespace collectives
