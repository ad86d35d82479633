// Meeting through MPI: the component `mpi` (target collectives::mpi), the only header that includes mpi.h.
//
//   collectives::Communicator comm(collectives::MpiBootstrap(MPI_COMM_WORLD));
#pragma once

#include <mpi.h>

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
  explicit MpiBootstrap(MPI_Comm comm);
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
