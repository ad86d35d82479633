// The library's operations as requests of MPI: generalized requests, which the program waits for, tests and frees like
// all others.
//
// They must move on in whatever call of MPI a rank happens to be, for others wait for it. Open MPI keeps a list of what
// it calls in each of them, on which the drop-in puts itself. MPICH has no such list for others to use; there the
// non-blocking forms are forwarded.
#pragma once

#include "mpi_drop_in/communicators.hpp"
#include "mpi_drop_in/job.hpp"

namespace collectives::drop_in {

/// Whether this MPI lets the drop-in move operations on in its calls.
bool can_progress_in_mpi() noexcept;

/// Begins `job`; the request is complete when it has finished.
MPI_Request begin(CommState&, Job job);

}  // namespace collectives::drop_in
