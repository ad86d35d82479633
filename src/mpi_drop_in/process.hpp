// State of the drop-in in this process. It is active from MPI_Init until MPI_Finalize begins, if the process runs the
// MPI for which the drop-in was built.
#pragma once

#include <atomic>
#include <cstddef>

namespace collectives::drop_in {

/// Settings from rank 0's environment, equal on all ranks.
struct Settings {
  std::size_t after = 0;  ///< Blocking calls of a communicator before it is built; bytes count as decision.hpp says.
  bool non_blocking = false;  ///< Every rank can progress operations inside MPI's calls.
  bool coded = false;         ///< True: COLLECTIVES_MPI_WIRE=bf16.
  std::size_t coded_from_bytes = 0;
  bool stats = false;  ///< True: print statistics. It is a setting of this rank's own environment.
};

extern std::atomic<bool> active_in_this_process;

/// Returns true if calls may be taken over. If not, calls are forwarded without a look at their arguments, which may
/// have the types of another MPI.
inline bool active() noexcept { return active_in_this_process.load(std::memory_order_acquire); }

const Settings& settings() noexcept;

/// Makes the symbols of MPI visible. Called before MPI_Init. A module, such as one of Python, may have loaded MPI
/// without making its symbols visible to other libraries.
void find_mpi() noexcept;
/// Starts the drop-in on every rank of MPI_COMM_WORLD. Called after MPI_Init or MPI_Init_thread has succeeded.
void start() noexcept;

}  // namespace collectives::drop_in
