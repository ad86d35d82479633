// State of the drop-in in this process. The drop-in is a library that an MPI program preloads. It performs collectives
// of the program in place of MPI.
//
// The drop-in is active from MPI_Init until MPI_Finalize begins. While it is inactive, it forwards all calls to MPI. It
// stays inactive if the process runs another MPI than the one for which it was built, or if a setting is invalid.
#pragma once

#include <atomic>
#include <cstddef>

namespace collectives::drop_in {

/// Settings of the drop-in. All settings except `stats` are equal on all ranks. `after`, `coded` and `coded_from_bytes`
/// come from rank 0's environment.
struct Settings {
  /// Value of CommState::calls_ at which the drop-in builds the library's communicator. CommState::calls_ counts
  /// blocking calls and their bytes.
  std::size_t after = 0;
  bool non_blocking = false;    ///< Whether MPI progresses the drop-in's operations, on every rank.
  bool compares_types = false;  ///< Whether ranks compare basic types: no process may pack data.
  bool coded = false;           ///< Whether sums of f32 are sent as bf16 (COLLECTIVES_MPI_WIRE).
  std::size_t coded_from_bytes = 0;
  bool stats = false;  ///< True: print statistics. The setting comes from this rank's own environment.
};

extern std::atomic<bool> active_in_this_process;

/// Returns true if the drop-in is active. If not, calls are forwarded without a look at their arguments, which may have
/// the types of another MPI.
inline bool active() noexcept { return active_in_this_process.load(std::memory_order_acquire); }

const Settings& settings() noexcept;

/// Makes the symbols of a loaded MPI visible to other libraries. Called before MPI_Init. The symbols may be hidden if a
/// Python module has loaded MPI.
void find_mpi() noexcept;
/// Starts the drop-in on every rank of MPI_COMM_WORLD. Called after MPI_Init or MPI_Init_thread has succeeded.
void start() noexcept;

}  // namespace collectives::drop_in
