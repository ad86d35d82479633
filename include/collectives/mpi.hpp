// Bootstrap over MPI: lets ranks that MPI has started find one another and make a communicator. This header belongs to
// the component `mpi` (target collectives::mpi). No other C++ header of this library includes mpi.h.
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

/// Bootstrap for the ranks of an MPI communicator. Between hosts, messages can also travel over the same MPI.
///
/// All ranks of `comm` construct a bootstrap together, because `comm` is duplicated (MPI_Comm_dup). MPI must be
/// initialized. It must stay initialized until every Communicator made from the bootstrap is destroyed. MPI is called
/// from each thread that calls the Communicator, and from its progress thread, if there is one. Without
/// MPI_THREAD_MULTIPLE, leave the progress thread off and use one thread.
class COLLECTIVES_EXPORT MpiBootstrap final : public Bootstrap {
 public:
  /// Blocks until every rank has joined. Throws Error{timeout} if not all ranks have joined within `timeout`. MPI does
  /// not say which ranks are missing.
  ///
  /// After a timeout, MPI cannot cancel the duplication of `comm`. The resources of the duplication are therefore lost.
  /// Until the late ranks join, MPI may also block in MPI_Finalize() and in calls that make communicators. If they
  /// never join, end the program with MPI_Abort().
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
