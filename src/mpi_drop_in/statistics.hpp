// Statistics of the drop-in, a library that users preload into an MPI program. The drop-in performs (takes over) some
// collectives of the program in place of MPI, and forwards all others to MPI.
//
// Users request the statistics by COLLECTIVES_MPI_STATS. The statistics count the calls that were taken over, and for
// each reason the calls that were forwarded. In MPI_Finalize, rank 0 of MPI_COMM_WORLD prints the counts of its own
// calls to stderr:
//
//   collectives: MPI_Allreduce: 1200 taken over (4.6 MiB, 1.2 ms); forwarded: 223 young communicator (892 KiB, 0.3 ms)
#pragma once

#include <chrono>
#include <cstddef>
#include <string>

#include "mpi_drop_in/decision.hpp"

namespace collectives::drop_in {

enum class Form : std::uint8_t { blocking, non_blocking };

/// Adds a call to the statistics. Any thread may call count().
void count(Form, Kind, Reason, std::size_t bytes, std::chrono::nanoseconds) noexcept;
/// Returns one line for each kind of call.
std::string statistics();

}  // namespace collectives::drop_in
