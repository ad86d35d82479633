// MPI for the benchmark: a bootstrap and the collectives to compare with. Without MPI, without_mpi.cpp defines these
// functions and they return nothing.
#pragma once

#include <memory>
#include <string>

#include "collectives/bootstrap.hpp"
#include "collectives_bench/measure.hpp"

namespace collectives::bench {

/// MPI from initialization to finalization.
class MpiSession {
 public:
  virtual ~MpiSession() = default;
  virtual std::unique_ptr<Bootstrap> bootstrap() = 0;
  virtual std::unique_ptr<Competitor> competitor() = 0;
  /// Returns for example "Open MPI v4.1.4".
  virtual std::string version() const = 0;
  /// Ends every rank of the job if some ranks can no longer reach finalization.
  [[noreturn]] virtual void abort(int exit_code) = 0;
};

/// Returns whether an MPI launcher started this process.
bool under_mpi_launcher();

/// Starts MPI. Returns null if the program was built without MPI.
std::unique_ptr<MpiSession> start_mpi();

}  // namespace collectives::bench
