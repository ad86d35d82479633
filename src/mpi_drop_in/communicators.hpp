// The library's communicator for each MPI communicator, as an attribute of it, which dies with it. It is built
// when it has seen enough calls that it could perform, so that the communicators that programs make by the thousand
// cost next to nothing. The calls of a communicator, and their bytes, are the same on all ranks, so all build at the
// same one.
#pragma once

#include <atomic>
#include <cstddef>
#include <memory>
#include <optional>

#include "collectives/communicator.hpp"
#include "mpi_drop_in/decision.hpp"
#include "mpi_drop_in/mpi.hpp"

namespace collectives::drop_in {

class CommState : public std::enable_shared_from_this<CommState> {
 public:
  explicit CommState(MPI_Comm);
  ~CommState();
  CommState(const CommState&) = delete;
  CommState& operator=(const CommState&) = delete;

  /// MPI_COMM_NULL once it is freed; operations may be pending then.
  MPI_Comm comm() const noexcept { return comm_; }
  void freed() noexcept { comm_ = MPI_COMM_NULL; }
  int rank() const noexcept { return rank_; }
  int size() const noexcept { return size_; }
  /// Once admitted.
  Communicator& communicator() noexcept { return *communicator_; }

  /// Why no call will ever be taken over, whatever its arguments; none: one may.
  Reason refused() const noexcept { return reason_ == Reason::young ? Reason::none : reason_; }
  /// Why a call of `bytes` is not taken over. Blocking ones count, and the first one after enough of them builds.
  Reason reason_to_forward(bool blocking, std::size_t bytes);
  /// No more calls; the peers may still be reading what this rank gave them.
  void drop() noexcept;

  /// Held by the thread that moves its operations on. Nobody waits long: a blocking call waits only for a look at
  /// pending operations, and such a look does not wait at all.
  bool try_lock() noexcept { return !busy_.test_and_set(std::memory_order_acquire); }
  void lock() noexcept;
  void unlock() noexcept { busy_.clear(std::memory_order_release); }

 private:
  void build();

  MPI_Comm comm_;
  int rank_ = 0, size_ = 1;
  std::size_t calls_ = 0;  ///< and bytes, in units of kBytesPerCall
  Reason reason_ = Reason::young;
  std::optional<Communicator> communicator_;
  std::atomic_flag busy_;
};

void init_communicators();
/// Of a communicator that is not MPI_COMM_NULL; null when MPI does not know it.
CommState* find(MPI_Comm);
/// Before MPI goes.
void drop_all() noexcept;

}  // namespace collectives::drop_in
