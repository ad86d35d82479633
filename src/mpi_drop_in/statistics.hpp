// COLLECTIVES_MPI_STATS: what was taken over, what was forwarded and why. Rank 0 of MPI_COMM_WORLD prints its own at
// MPI_Finalize, to stderr:
//
//   collectives: MPI_Allreduce: 1200 taken over (4.6 MiB, 1.2 ms); forwarded: 223 young communicator (892 KiB, 0.3 ms)
#pragma once

#include <chrono>
#include <cstddef>
#include <string>

#include "mpi_drop_in/decision.hpp"

namespace collectives::drop_in {

enum class Form : std::uint8_t { blocking, non_blocking };

/// Counts a call; from any thread.
void count(Form, Kind, Reason, std::size_t bytes, std::chrono::nanoseconds) noexcept;
/// A line for each kind of call that there was.
std::string statistics();

}  // namespace collectives::drop_in
