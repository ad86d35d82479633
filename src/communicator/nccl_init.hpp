// Connection by NCCL: makes an NCCL communicator of ranks, or splits one.
//
// The ranks have agreed earlier that all of them can use NCCL (communicator_init.hpp). The ranks report failures to one
// another through the failure detector (failure_detector.hpp). A rank that waits therefore notices the failure of
// another rank.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>

#include "collectives/bootstrap.hpp"
#include "collectives/deadline.hpp"
#include "communicator/communicator_init.hpp"
#include "device/nccl_comm.hpp"
#include "monitoring/failure_detector.hpp"

namespace collectives {

/// Returns an NCCL communicator of `members`, which are in ascending order and include this rank. All ranks of
/// `bootstrap` call it together. Ranks of different hosts may pass different `members`. Makes two exchanges over the
/// bootstrap. If one rank fails, all ranks throw an Error.
std::unique_ptr<NcclComm> nccl_comm_init(Bootstrap& bootstrap, const CommunicatorContext& context,
                                         std::span<const Rank> members, FailureDetector& failure_detector,
                                         std::chrono::nanoseconds timeout);

/// Splits `nccl_comm` by `color` and `key`, like MPI_Comm_split. Returns this rank's new NCCL communicator, ready for
/// use. If `color` is negative, the result is unusable. The number of the next call is `sequence`. Reports errors of
/// this rank to all ranks. Throws Error.
std::unique_ptr<NcclComm> nccl_comm_split(NcclComm& nccl_comm, int color, int key, std::uint64_t sequence,
                                          const CommunicatorContext& context, FailureDetector& failure_detector,
                                          Deadline deadline);

}  // namespace collectives
