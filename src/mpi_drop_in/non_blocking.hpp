// Non-blocking operations of the library as generalized requests of MPI. The program waits for them, tests them and
// frees them like all other requests.
//
// They must progress in every call of MPI, because other ranks wait for them. Open MPI keeps a list of functions that
// it calls in each of its calls, and the drop-in adds one. MPICH has no such list for other libraries, so its
// non-blocking forms are forwarded. No thread is needed, so every thread level of MPI works.
//
// The other direction is the wait hook (base/wait.hpp): waits of the library progress MPI.
#pragma once

#include "mpi_drop_in/communicators.hpp"
#include "mpi_drop_in/job.hpp"

namespace collectives::drop_in {

/// Returns true if this MPI progresses the drop-in's operations in its own calls.
bool can_progress_in_mpi() noexcept;

/// Starts `job`. Returns a request that completes when the job is finished.
MPI_Request begin(CommState&, Job job);

}  // namespace collectives::drop_in
