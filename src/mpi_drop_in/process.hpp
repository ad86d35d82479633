// The drop-in in this process: from MPI_Init to the moment MPI_Finalize begins, if the MPI is the one it was built for.
#pragma once

#include <atomic>
#include <cstddef>

namespace collectives::drop_in {

/// What rank 0's environment says, on all ranks.
struct Settings {
  std::size_t after = 0;      ///< blocking calls of a communicator, and bytes as decision.hpp says, before it is built
  bool non_blocking = false;  ///< every rank can move operations on inside MPI's calls
  bool coded = false;         ///< COLLECTIVES_MPI_WIRE=bf16
  std::size_t coded_from_bytes = 0;
  bool stats = false;  ///< of this rank's own environment
};

extern std::atomic<bool> active_in_this_process;

/// Whether calls may be taken over. Otherwise they are forwarded without a look at their arguments, whose types may be
/// another MPI's.
inline bool active() noexcept { return active_in_this_process.load(std::memory_order_acquire); }

const Settings& settings() noexcept;

/// Before MPI_Init: an MPI that came with a module (a Python program's), not with the program, is not seen from here
/// until it is made visible.
void find_mpi() noexcept;
/// After MPI_Init or MPI_Init_thread has succeeded, on every rank of MPI_COMM_WORLD.
void start() noexcept;

}  // namespace collectives::drop_in
