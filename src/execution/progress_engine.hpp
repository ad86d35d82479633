// What one thread has left unfinished: communicators with operations under way that no progress thread moves on.
// Whatever the thread waits for later, it moves these on as well. So ranks may wait for operations of several
// communicators in any order, each in its own: nobody holds up what another waits for.
//
// A communicator is on the list of the thread that used it last, and only that thread moves it on from there; another
// thread that uses it takes it over. So no thread calls MPI that the program has not called from itself.
#pragma once

#include <memory>
#include <mutex>
#include <vector>

#include "base/fork.hpp"

namespace collectives {

class ProgressEngine {
 public:
  /// A communicator, as the list sees it.
  class Member {
   public:
    /// Goes as far as it can without waiting; true when something moved. `check_failures`: time to look for failures as
    /// well.
    virtual bool progress(bool check_failures) noexcept = 0;

   protected:
    ~Member() = default;
  };

  /// Null while this thread has left nothing, and when it is about to end.
  static ProgressEngine* of_this_thread() noexcept;
  /// The same, made at need; null only when the thread is about to end.
  static std::shared_ptr<ProgressEngine> make_for_this_thread();

  void add(Member&);
  void remove(Member&) noexcept;
  /// Moves all on but `except`, which its caller moves; true when something moved.
  bool progress(const Member& except, bool check_failures) noexcept;

 private:
  const OwnerProcess owner_process_;
  std::mutex mutex_;  // for the thread that takes a member over
  std::vector<Member*> members_;
};

}  // namespace collectives
