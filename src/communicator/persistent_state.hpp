// PersistentCall::State: a call that is checked and planned once and started many times. It is an Operation, so the
// queue performs it like every other call.
//
// A start queues the operation again (Operation::queue_again()). The job, the plan and the hash of the signature stay
// from one start to the next. A start repeats only a few comparisons: the process, the failure of the communicator, and
// the number of pieces of the heap that were freed. If that number has changed, the start looks for the buffers in the
// heap.
//
// The communicator has a list of its persistent calls. When it ends, it clears their field `owner`.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "collectives/communicator.hpp"
#include "collectives/export.hpp"
#include "collectives/persistent_call.hpp"
#include "communicator/device_memories.hpp"
#include "communicator/operation.hpp"
#include "core/call.hpp"

namespace collectives {

struct COLLECTIVES_HIDDEN PersistentCall::State : Operation {
  /// Memory of allocate() in which a buffer of the call lies.
  struct AllocatedBuffer {
    const char* side = nullptr;  ///< name of the buffer, for error texts
    const void* data = nullptr;
    std::size_t bytes = 0;  ///< length of the buffer; 0: it is not in such memory
  };

  /// Checks and plans a persistent call, and adds it to the list of those that the communicator has. Throws Error.
  static std::shared_ptr<State> make(Communicator::Impl& comm, Call call, const Options& options);
  /// Starts a persistent call. Throws Error if it is refused. Requires its owner.
  static void start(const std::shared_ptr<State>& call);
  /// Removes the call, which is not started, from the list of its owner.
  void leave_owner() noexcept;
  /// Stores which buffers of the call are in memory of allocate().
  void find_allocated(Rank rank);
  /// Notes that GPU memory is about to be freed, if a buffer of the call lies in it.
  void mark_freed(const DeviceAllocation& memory) noexcept;
  /// Throws Error{invalid_argument} if the program has freed a buffer that the library had allocated.
  void check_still_allocated(Rank rank);

  Communicator::Impl* owner = nullptr;  ///< null after the communicator was destroyed
  bool started = false;                 ///< whether a start has not been waited for
  bool device_memory_freed = false;     ///< whether a buffer lay in GPU memory that was freed
  std::uint64_t frees_seen = 0;         ///< Heap::frees() when the buffers were last found in the heap
  std::array<AllocatedBuffer, 2> allocated{};
  Call arguments;          ///< arguments of the call, without its counts
  Options device_options;  ///< stream of the call
};

}  // namespace collectives
