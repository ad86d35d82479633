// MPI in the benchmark. It connects the ranks. Its collectives are compared with those of this library. In a build
// without MPI, without_mpi.cpp defines the functions, and there is no MPI to start.
#pragma once

#include <memory>
#include <string>

#include "collectives/bootstrap.hpp"
#include "collectives_bench/measure.hpp"

namespace collectives::bench {

/// MPI in this process, from initialization to finalization.
class MpiSession {
 public:
  virtual ~MpiSession() = default;
  virtual std::unique_ptr<Bootstrap> bootstrap() = 0;
  virtual std::unique_ptr<Competitor> competitor() = 0;
  /// Returns for example "Open MPI v4.1.4".
  virtual std::string version() const = 0;
  /// Ends every rank of the job. Called if a rank has failed and would not reach MPI_Finalize.
  [[noreturn]] virtual void abort(int exit_code) = 0;
};

/// Returns whether an MPI launcher started this process.
bool under_mpi_launcher();

/// Starts MPI. Returns null if the program was built without MPI.
std::unique_ptr<MpiSession> start_mpi();

}  // namespace collectives::bench
