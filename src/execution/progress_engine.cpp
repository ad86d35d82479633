// Implementation of the progress engine. A progress engine is the list of communicators whose operations a thread
// advances while it waits in the library.
//
// Each thread has at most one engine, and makes it when it first needs one. The communicators on the list hold shared
// pointers to the engine, so the engine may exist longer than its thread.
#include "execution/progress_engine.hpp"

namespace collectives {
namespace {

// Engine of this thread, and whether the thread is ending. The Keeper below owns the engine, and is destroyed when the
// thread ends. These two variables have no destructor, so static objects may still use them after the Keeper is
// destroyed.
thread_local ProgressEngine* current = nullptr;
thread_local bool ended = false;

struct Keeper {
  std::shared_ptr<ProgressEngine> list;
  void begin() {
    list = std::make_shared<ProgressEngine>();
    current = list.get();
  }
  ~Keeper() {
    current = nullptr;
    ended = true;
  }
};

}  // namespace

/// Returns the engine of this thread. Returns null in a forked child if the engine is the parent's, because the
/// communicators on its list belong to the parent.
ProgressEngine* ProgressEngine::of_this_thread() noexcept {
  return current != nullptr && current->owner_process_.is_current() ? current : nullptr;
}

std::shared_ptr<ProgressEngine> ProgressEngine::make_for_this_thread() {
  if (ended) return nullptr;
  thread_local Keeper keeper;
  if (of_this_thread() == nullptr) keeper.begin();
  return keeper.list;
}

void ProgressEngine::add(Member& member) {
  const std::lock_guard lock(mutex_);
  members_.push_back(&member);
}

void ProgressEngine::remove(Member& member) noexcept {
  const std::lock_guard lock(mutex_);
  std::erase(members_, &member);
}

bool ProgressEngine::progress(const Member& except, bool check_failures) noexcept {
  const std::lock_guard lock(mutex_);
  bool moved = false;
  for (Member* member : members_)
    if (member != &except) moved |= member->progress_as_member(check_failures);
  return moved;
}

void ProgressPlace::move_to_this_thread() {
  if (engine_ != nullptr && engine_.get() == ProgressEngine::of_this_thread()) return;
  if (engine_ != nullptr) engine_->remove(member_);
  engine_ = ProgressEngine::make_for_this_thread();
  if (engine_ != nullptr) engine_->add(member_);
}

void ProgressPlace::leave() {
  if (engine_ != nullptr) engine_->remove(member_);
  engine_ = nullptr;
}

}  // namespace collectives
