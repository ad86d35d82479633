// Meeting through MPI: the component `mpi` (target collectives::mpi), the only header that includes mpi.h.
//
//   collectives::Communicator comm(collectives::MpiBootstrap(MPI_COMM_WORLD));
#pragma once

#include <mpi.h>

#include <chrono>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "collectives/bootstrap.hpp"
#include "collectives/export.hpp"

namespace collectives {

/// The ranks of an MPI communicator. Brings a transport between hosts over the same MPI.
///
/// Collective over `comm`: every rank of it constructs one. The communicator is duplicated; MPI must be initialized and
/// stay so until every Communicator made from it is gone. The transport calls MPI from whatever thread calls the
/// Communicator, so without MPI_THREAD_MULTIPLE leave the progress thread off and use one thread.
class COLLECTIVES_EXPORT MpiBootstrap final : public Bootstrap {
 public:
  /// Waits until every rank has come. Throws Error: timeout when they have not within `timeout`; which of them did not,
  /// MPI does not say. It cannot take back the duplication either: what that holds is lost, and until the late ranks
  /// have come it may hold up whoever makes communicators or finalizes MPI, so end with MPI_Abort when they never will.
  explicit MpiBootstrap(MPI_Comm comm, std::chrono::nanoseconds timeout = std::chrono::minutes(10));
  ~MpiBootstrap() override;
  std::string_view name() const noexcept override;
  Rank rank() const noexcept override;
  int size() const noexcept override;
  std::vector<std::string> all_gather(std::string_view mine, Deadline) override;
  WireFactory wire_factory() override;

 private:
  struct Shared;
  std::shared_ptr<Shared> shared_;
};

}  // namespace collectives
