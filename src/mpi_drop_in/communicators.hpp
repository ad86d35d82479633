// Communicators of the library, one for each MPI communicator. The drop-in is a library that an MPI program preloads.
// It performs collectives of the program in place of MPI.
//
// The drop-in keeps a state (CommState) for each MPI communicator, as an attribute of the MPI communicator. MPI deletes
// the attribute when it frees the communicator.
//
// To build a communicator of the library takes much longer than a call. The drop-in therefore builds one only after
// some calls on the MPI communicator. It counts only calls that the library can perform. These calls and their bytes
// are equal on all ranks, so all ranks build the library's communicator in the same call.
#pragma once

#include <atomic>
#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "collectives/communicator.hpp"
#include "mpi_drop_in/decision.hpp"
#include "mpi_drop_in/mpi.hpp"

namespace collectives::drop_in {

/// State of an MPI communicator: the library's communicator for it, or the reason why there is none.
class CommState : public std::enable_shared_from_this<CommState> {
 public:
  explicit CommState(MPI_Comm);
  ~CommState();
  CommState(const CommState&) = delete;
  CommState& operator=(const CommState&) = delete;

  /// Returns the MPI communicator, or MPI_COMM_NULL once it is freed. A program may free it while operations are
  /// pending.
  MPI_Comm comm() const noexcept { return comm_; }
  /// Marks the MPI communicator as freed.
  void freed() noexcept { comm_ = MPI_COMM_NULL; }
  int rank() const noexcept { return rank_; }
  int size() const noexcept { return size_; }
  /// Returns the library's communicator. Requires that reason_to_forward() has returned Reason::none.
  Communicator& communicator() noexcept { return *communicator_; }

  /// Returns the reason why the library never performs calls of this communicator. Returns Reason::none if the library
  /// can perform calls, now or after its communicator is built.
  Reason refused() const noexcept { return reason_ == Reason::young ? Reason::none : reason_; }
  /// Returns the reason why a call of `bytes` bytes is forwarded. Adds a blocking call to `calls_`. If `calls_` was
  /// settings().after or more before, the call builds the library's communicator.
  Reason reason_to_forward(bool blocking, std::size_t bytes);
  /// Publishes that this rank refuses a call, if the library's communicator is built. Returns whether it is.
  bool refuse(Kind kind, std::string_view why) noexcept;
  /// Ends the library's communicator. Peers may still read data that this rank has sent.
  void drop() noexcept;

  /// Lock of the library's communicator, which only one thread may use at a time. A blocking call waits for the lock
  /// only while another thread tests pending operations. The wait ends with that test. A test never waits for the lock.
  bool try_lock() noexcept { return !busy_.test_and_set(std::memory_order_acquire); }
  void lock() noexcept;
  void unlock() noexcept { busy_.clear(std::memory_order_release); }

 private:
  void build();

  MPI_Comm comm_;
  int rank_ = 0, size_ = 1;
  std::size_t calls_ = 0;  ///< Number of blocking calls so far, plus their bytes divided by kBytesPerCall.
  Reason reason_ = Reason::young;
  std::optional<Communicator> communicator_;
  std::atomic_flag busy_;
};

/// Creates the attribute for communicators. Requires that MPI is initialized.
void init_communicators();
/// Returns the state of a communicator that is not MPI_COMM_NULL, and makes it if necessary. Returns null if MPI does
/// not know the communicator.
CommState* find(MPI_Comm);
/// Ends all communicators of the library. Called before MPI is finalized.
void drop_all() noexcept;

}  // namespace collectives::drop_in
