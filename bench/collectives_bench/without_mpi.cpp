// The functions of mpi.hpp in a build without MPI: there is no launcher of MPI, and no MPI to start.
#include "collectives_bench/mpi.hpp"

namespace collectives::bench {

bool under_mpi_launcher() { return false; }

std::unique_ptr<MpiSession> start_mpi() { return nullptr; }

}  // namespace collectives::bench
