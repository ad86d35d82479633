// What the benchmark needs of MPI: to meet the other ranks, and the same collectives to compare with. Built without
// MPI, these functions exist and find nothing (without_mpi.cpp).
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
  virtual std::unique_ptr<Rival> rival() = 0;
  /// "Open MPI v4.1.4"
  virtual std::string version() const = 0;
  /// Ends every rank of the job, when some of them can no longer come to finalization.
  [[noreturn]] virtual void abort(int exit_code) = 0;
};

/// Whether a launcher of MPI programs started this process.
bool under_mpi_launcher();

/// Null when the program was built without MPI.
std::unique_ptr<MpiSession> start_mpi();

}  // namespace collectives::bench
