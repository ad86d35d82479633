#include "execution/unfinished.hpp"

namespace collectives {
namespace {

// Both may be read to the very end of a thread, when the keeper is gone: static objects may hold communicators.
thread_local Unfinished* current = nullptr;
thread_local bool ended = false;

struct Keeper {
  std::shared_ptr<Unfinished> list;
  void begin() {
    list = std::make_shared<Unfinished>();
    current = list.get();
  }
  ~Keeper() {
    current = nullptr;
    ended = true;
  }
};

}  // namespace

/// What a child made by fork() inherits is its parent's to move on.
Unfinished* Unfinished::of_this_thread() noexcept {
  return current != nullptr && current->owner_process_.is_current() ? current : nullptr;
}

std::shared_ptr<Unfinished> Unfinished::make_for_this_thread() {
  if (ended) return nullptr;
  thread_local Keeper keeper;
  if (of_this_thread() == nullptr) keeper.begin();
  return keeper.list;
}

void Unfinished::add(Member& member) {
  const std::lock_guard lock(mutex_);
  members_.push_back(&member);
}

void Unfinished::remove(Member& member) noexcept {
  const std::lock_guard lock(mutex_);
  std::erase(members_, &member);
}

bool Unfinished::move_on(const Member& except, bool due) noexcept {
  const std::lock_guard lock(mutex_);
  bool moved = false;
  for (Member* member : members_)
    if (member != &except) moved |= member->move_on(due);
  return moved;
}

}  // namespace collectives
