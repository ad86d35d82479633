// Meeting through MPI, from C: the component mpi (target collectives::mpi), for C99.
#pragma once

#include <mpi.h>

#include "collectives/collectives.h"

#ifdef __cplusplus
extern "C" {
#endif

/// Meets the ranks of `mpi_comm`; brings a transport between hosts over the same MPI. `options` may be NULL.
///
/// Collective over `mpi_comm`, which is duplicated. MPI must be initialized, and stay so until every communicator made
/// from it is freed. Without MPI_THREAD_MULTIPLE leave the progress thread off and use one thread. Fails with BOOTSTRAP
/// before MPI_Init() and after MPI_Finalize(), with TIMEOUT when not all ranks come (collectives/mpi.hpp says what is
/// left of MPI then).
COLLECTIVES_EXPORT collectives_error collectives_communicator_from_mpi(MPI_Comm mpi_comm,
                                                                       const collectives_communicator_options* options,
                                                                       collectives_communicator** comm);

#ifdef __cplusplus
}  // extern "C"
#endif
