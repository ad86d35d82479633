// PersistentCall: a call that is checked and planned once, and then started any number of times.
//
//   PersistentCall sum = comm.persistent_all_reduce(gradient, gradient, ReduceOp::average);
//   for (int step = 0; step < steps; ++step) {
//     compute(gradient);
//     sum.start();
//     ...
//     sum.wait();
//   }
//
// Communicator::persistent_all_reduce() and its kin make the object. They check the arguments, choose the plan, and
// send nothing. They are not collective: a rank may make the object at any time. A start is a call of the communicator.
// Its place in the order of calls is that of the start, and its arguments are compared as those of any call. It
// allocates nothing. A rank may start a persistent call that another rank performs as an ordinary call.
//
// Several persistent calls may be started before the first of them is waited for. Their operations begin in the order
// of the starts.
//
// A send or a receive may be persistent, too. A start of it is a point-to-point call, which is matched by peer and tag
// as every other one.
//
// Arguments. The object keeps the addresses of the buffers, which must exist until it is destroyed. The codec and the
// user op must exist until then, too. Lists of counts and texts are copied. The program may change the contents of the
// buffers while the call is not started. A start throws Error{invalid_argument} if the program has freed a buffer that
// came from Communicator::allocate() or Communicator::allocate_on_device(). If a later allocate() has returned the same
// addresses, the start uses the new memory. If other memory was freed, the library does not notice it, and the
// behaviour is undefined.
//
// Errors. A persistent call that has failed is not started any more. If its communicator has failed, the next start
// throws the same error.
#pragma once

#include <chrono>
#include <memory>

#include "collectives/deadline.hpp"
#include "collectives/export.hpp"
#include "collectives/types.hpp"

namespace collectives {

/// Call that can be started again and again. Move-only. Destroying a started object waits for its operation and
/// drops its error. It may outlive its communicator. It is then no longer possible to start it.
class COLLECTIVES_EXPORT PersistentCall {
 public:
  PersistentCall() noexcept;
  PersistentCall(PersistentCall&&) noexcept;
  PersistentCall& operator=(PersistentCall&&) noexcept;
  ~PersistentCall();

  /// Starts the operation, and returns without waiting. The buffers belong to the library until wait() ends, or until
  /// test() returns true.
  ///
  /// Throws Error{invalid_argument} if the operation of the last start has not been waited for. That operation
  /// continues, and no other rank is affected. Throws Error{invalid_argument} in a child of fork(), and if the
  /// communicator was destroyed. Throws the errors of any call, such as those of a failed communicator.
  void start();
  /// Progresses the operation. Returns true if it is finished, or if it was not started. Throws its error if it has
  /// failed. Sleeps as Work::test() does.
  bool test();
  /// Blocks until the operation is finished. Returns at once if it was not started. Throws its error if it has failed,
  /// such as Error{timeout} after its deadline.
  void wait();
  /// Blocks for at most `timeout`. Returns true if the operation is finished. If not, the operation continues.
  bool wait_for(std::chrono::nanoseconds timeout);
  /// Returns the rank that sent the message which the last start has received. Returns kNoRank if it was no receive.
  Rank source() const noexcept;

 private:
  friend class Communicator;
  struct State;
  explicit PersistentCall(std::shared_ptr<State>) noexcept;
  /// Ends the started operation, which has finished. Throws its error.
  void end();
  std::shared_ptr<State> state_;
};

}  // namespace collectives
