// Implementation of Work, the handle with which a program waits for an asynchronous operation.
//
// A Work refers to a state, which describes one collective, one message, or a group. The state of a group has one Work
// per member. When the operation has ended without an error, test() or wait() makes the Work empty: it no longer refers
// to the state. If the operation has failed, each later test() and wait() throws the same error again.
#include <exception>
#include <utility>

#include "base/wait.hpp"
#include "communicator/communicator_impl.hpp"

namespace collectives {

Work::Work() noexcept = default;
Work::Work(std::shared_ptr<State> state) noexcept : state_(std::move(state)) {}
Work::Work(Work&&) noexcept = default;
Work& Work::operator=(Work&& other) noexcept {
  if (this != &other) {
    Work old(std::move(*this));  // the destructor of `old` waits for the operation to which this handle referred
    state_ = std::move(other.state_);
    source_ = std::exchange(other.source_, kNoRank);
  }
  return *this;
}

Work::~Work() {
  for (Backoff backoff; state_ != nullptr; backoff.wait()) {
    try {
      wait();
    } catch (const std::exception&) {  // a destructor must not throw; callers that need the error call wait()
    }
    // The operation is unfinished if another thread is in a call of the communicator. The buffers are still in use.
    if (state_ == nullptr || state_->finished() || state_->owner == nullptr || state_->owner->inherited()) return;
  }
}

bool Work::State::wait_until(Deadline until) {
  if (owner == nullptr) return true;
  return is_message ? owner->messages.wait_until(*this, until) : owner->wait_until(*this, until);
}

bool Work::State::test() {
  if (owner == nullptr) return true;
  return is_message ? owner->messages.test(*this) : owner->test(*this);
}

bool Work::wait_until(Deadline until) {
  if (state_ == nullptr) return true;
  try {
    for (Work& member : state_->members)
      if (!member.wait_until(until)) return false;
    if (!state_->finished() && !state_->wait_until(until)) return false;
  } catch (const std::exception&) {  // test() below throws the failure of a member of a group
  }
  return test();
}

bool Work::wait_for(std::chrono::nanoseconds timeout) { return wait_until(Deadline::in(timeout)); }
void Work::wait() { wait_until(Deadline::never()); }

bool Work::test() {
  if (state_ == nullptr) return true;
  try {
    for (Work& member : state_->members)
      if (!member.test()) return false;
  } catch (...) {
    state_->error = std::current_exception();
    state_->members.clear();
    state_->finish = nullptr;
  }
  if (!state_->test()) return false;
  if (state_->error != nullptr) std::rethrow_exception(state_->error);  // thrown again in every later test()
  // The operation has ended, so this handle becomes empty.
  const std::shared_ptr<State> state = std::move(state_);
  if (state->multi_phase != nullptr) std::exchange(state->multi_phase, nullptr)->released();
  if (state->finish) std::exchange(state->finish, nullptr)();
  for (const Work& member : state->members)
    if (member.source_ != kNoRank) source_ = member.source_;
  if (state->is_message) source_ = state->message.source;
  state->members.clear();
  state->call = nullptr;
  return true;
}

}  // namespace collectives
