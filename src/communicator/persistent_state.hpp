// PersistentCall::State: a call that is checked and planned once, and started many times.
//
// The state of a persistent collective is an Operation. Each start queues this operation again, and the queue performs
// it like every other call. The plan and the checked arguments stay from one start to the next. The state of a
// persistent send or receive has PersistentMessages instead, which PointToPointCalls performs.
//
// A start checks only three things: this process has made the communicator, the communicator has not failed, and the
// buffers still exist. For the last check, the heap of allocate() counts the buffers that were freed. A start looks for
// its buffers in the heap only if this number has changed since the previous start.
//
// The communicator has a list of its persistent calls. When the communicator ends, it sets the field `owner` of each
// state to null.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>
#include <utility>
#include <vector>

#include "collectives/communicator.hpp"
#include "collectives/export.hpp"
#include "collectives/persistent_call.hpp"
#include "communicator/device_memories.hpp"
#include "communicator/operation.hpp"
#include "communicator/point_to_point_calls.hpp"
#include "core/call.hpp"

namespace collectives {

/// Messages that a persistent call starts together: a send, a receive, or a send and a receive.
struct PersistentMessages {
  /// `called`: name of the call, for errors. `checked`: messages of the call. A receive comes before a send.
  PersistentMessages(std::string_view called, std::vector<CheckedMessage> checked)
      : name(called), calls(std::move(checked)) {}
  PointToPointCalls::Operations operations() const noexcept { return {pointers.data(), calls.size()}; }

  const std::string_view name;
  const std::vector<CheckedMessage> calls;
  std::array<MessageOperation, 2> states;  ///< states[i] performs calls[i]
  const std::array<MessageOperation*, 2> pointers{&states[0], &states[1]};
};

struct COLLECTIVES_HIDDEN PersistentCall::State : Operation {
  /// Memory of allocate() in which a buffer of the call lies.
  struct AllocatedBuffer {
    const char* side = nullptr;  ///< name of the buffer, for error texts
    const void* data = nullptr;
    std::size_t bytes = 0;  ///< length of the buffer; 0: it is not in such memory
  };

  /// Checks and plans a persistent call, and adds it to the list of those that the communicator has. Throws Error.
  static PersistentCall make(Communicator::Impl& comm, Call call, const Options& options);
  /// Checks a persistent send or receive, or both, and adds it to that list. `name`: name of the call. Throws Error.
  static PersistentCall make(Communicator::Impl& comm, std::string_view name, std::vector<CheckedMessage> calls);
  /// Starts a persistent call. Throws Error if it is refused. Requires its owner.
  static void start(const std::shared_ptr<State>& call);
  /// Removes the call, which is not started, from the list of its owner.
  void leave_owner() noexcept;
  /// Blocks until the started operation has ended or `until` has passed. Returns whether it has ended. Returns true
  /// without an owner.
  bool wait_until(Deadline until);
  /// Progresses operations without waiting. Returns whether the started one has ended. Returns true without an owner.
  bool test();
  /// Returns the error of the ended operation, or null, and forgets it.
  std::exception_ptr take_error() noexcept;
  /// Returns the name of the call, for errors.
  std::string_view call_name() const noexcept;
  /// Stores which of the buffers are in memory of allocate().
  void find_allocated(const std::array<AllocatedBuffer, 2>& buffers);
  /// Notes that GPU memory is about to be freed, if a buffer of the call lies in it.
  void mark_freed(const DeviceAllocation& memory) noexcept;
  /// Throws Error{invalid_argument} if the program has freed a buffer that the library had allocated.
  void check_still_allocated(Rank rank);

  Communicator::Impl* owner = nullptr;  ///< null after the communicator was destroyed
  bool started = false;                 ///< whether a start has not been waited for
  bool device_memory_freed = false;     ///< whether a buffer lay in GPU memory that was freed
  std::uint64_t frees_seen = 0;         ///< Heap::frees() when the buffers were last found in the heap
  std::array<AllocatedBuffer, 2> allocated{};
  Call arguments;                                ///< arguments of the call, without its counts
  Options device_options;                        ///< stream of the call
  std::unique_ptr<PersistentMessages> messages;  ///< null: the call is a collective
};

}  // namespace collectives
