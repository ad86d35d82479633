// Rendezvous over MPI. This header belongs to the component `mpi` (target collectives::mpi). No other header in C++
// includes mpi.h.
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

/// Bootstrap of the ranks of an MPI communicator. It provides a transport between hosts over the same MPI.
///
/// Collective over `comm`: every rank of it constructs one. The communicator is duplicated. MPI must be initialized,
/// and must stay so until every Communicator made from it is destroyed. The transport calls MPI from the thread that
/// calls the Communicator. So without MPI_THREAD_MULTIPLE leave the progress thread off and use one thread.
class COLLECTIVES_EXPORT MpiBootstrap final : public Bootstrap {
 public:
  /// Blocks until every rank has joined. Throws Error{timeout} if not all ranks have joined within `timeout`. MPI does
  /// not say which ranks are missing.
  ///
  /// After a timeout MPI cannot cancel the duplication, so its resources are lost. Until the late ranks join, it may
  /// also block calls that make communicators, and MPI_Finalize(). If they never join, end the program with
  /// MPI_Abort().
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
