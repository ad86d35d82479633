// The functions of mpi.hpp in a build without MPI. They report that no MPI launcher has started the process, and start
// no MPI.
#include "collectives_bench/mpi.hpp"

namespace collectives::bench {

bool under_mpi_launcher() { return false; }

std::unique_ptr<MpiSession> start_mpi() { return nullptr; }

}  // namespace collectives::bench
