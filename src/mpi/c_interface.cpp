// The C function with which a C program makes a communicator of this library from an MPI communicator. The ranks of
// both communicators are the same processes in the same order.
#include "collectives/collectives_mpi.h"
#include "collectives/mpi.hpp"
#include "communicator/c_bridge.hpp"

using namespace collectives;

collectives_error collectives_communicator_from_mpi(MPI_Comm mpi_comm, const collectives_communicator_options* options,
                                                    collectives_communicator** comm) {
  return make_c_communicator(__func__, options, comm, [&](const CommunicatorOptions& how) {
    MpiBootstrap bootstrap(mpi_comm, how.timeout.count() != 0 ? how.timeout : std::chrono::minutes(10));
    return Communicator(bootstrap, how);
  });
}
