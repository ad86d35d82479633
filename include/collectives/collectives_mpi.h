// Communicators over MPI, for C99: lets ranks that MPI has started make a communicator. This header belongs to the
// component mpi (target collectives::mpi).
#pragma once

#include <mpi.h>

#include "collectives/collectives.h"

#ifdef __cplusplus
extern "C" {
#endif

/// Makes a communicator of the ranks of `mpi_comm`. Between hosts, messages can travel over the same MPI. `options` may
/// be NULL.
///
/// All ranks of `mpi_comm` call it together, because `mpi_comm` is duplicated (MPI_Comm_dup). MPI must be initialized.
/// It must stay initialized until every communicator made from `mpi_comm` is freed. Without MPI_THREAD_MULTIPLE, leave
/// the progress thread off and use one thread.
///
/// Fails with BOOTSTRAP before MPI_Init() and after MPI_Finalize(). Fails with TIMEOUT if a rank does not join in time.
/// collectives/mpi.hpp describes what MPI can still do after a timeout.
COLLECTIVES_EXPORT collectives_error collectives_communicator_from_mpi(MPI_Comm mpi_comm,
                                                                       const collectives_communicator_options* options,
                                                                       collectives_communicator** comm);

#ifdef __cplusplus
}  // extern "C"
#endif
