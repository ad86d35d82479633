// Non-blocking operations of the drop-in. The drop-in is a library that an MPI program preloads. It performs
// collectives of the program in place of MPI. An operation of the drop-in is a generalized request of MPI. The program
// waits for this request, tests it and frees it like any other request.
//
// Operations must progress inside calls of MPI, because other ranks wait for them. Open MPI has a list of functions
// that it calls whenever it progresses its own operations. The drop-in adds a function to this list. MPICH has no list
// that other libraries can extend. With MPICH, the drop-in therefore forwards non-blocking calls to MPI. The drop-in
// needs no thread of its own, so every thread level of MPI works.
//
// While a call waits inside this library, the wait hook progresses MPI (base/wait.hpp).
#pragma once

#include "mpi_drop_in/communicators.hpp"
#include "mpi_drop_in/job.hpp"

namespace collectives::drop_in {

/// Returns true if this MPI progresses the drop-in's operations in its own calls.
bool can_progress_in_mpi() noexcept;

/// Starts `job`. Returns a request that completes when the job is finished.
MPI_Request begin(CommState&, Job job);

}  // namespace collectives::drop_in
