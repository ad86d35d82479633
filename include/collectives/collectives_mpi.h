// Rendezvous over MPI, for C99. It is part of the component mpi (target collectives::mpi).
#pragma once

#include <mpi.h>

#include "collectives/collectives.h"

#ifdef __cplusplus
extern "C" {
#endif

/// Makes a communicator of the ranks of `mpi_comm`, with a transport between hosts over the same MPI. `options` may be
/// NULL.
///
/// Collective over `mpi_comm`, which is duplicated. MPI must be initialized. It must stay initialized until every
/// communicator made from `mpi_comm` is freed. Without MPI_THREAD_MULTIPLE, leave the progress thread off and use one
/// thread.
///
/// Fails with BOOTSTRAP before MPI_Init() and after MPI_Finalize(). Fails with TIMEOUT if a rank does not join the
/// rendezvous; collectives/mpi.hpp describes the state of MPI after that.
COLLECTIVES_EXPORT collectives_error collectives_communicator_from_mpi(MPI_Comm mpi_comm,
                                                                       const collectives_communicator_options* options,
                                                                       collectives_communicator** comm);

#ifdef __cplusplus
}  // extern "C"
#endif
