// Connection by NCCL: makes an NCCL communicator of some or all ranks, or splits one.
//
// NCCL is NVIDIA's library for collectives between GPUs. The ranks have agreed earlier that all of them can use NCCL
// (communicator_init.hpp). NCCL connects them in the background, while each rank waits. A rank that fails meanwhile
// reports its error through the failure detector, so that waiting ranks end with this error.
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

/// Returns an NCCL communicator of the ranks `members`, which are in ascending order and include this rank. All ranks
/// of `bootstrap` call the function together, with two exchanges over the bootstrap. Each host may pass its own ranks
/// as `members`. If one rank fails, all ranks throw an Error.
std::unique_ptr<NcclComm> nccl_comm_init(Bootstrap& bootstrap, const CommunicatorContext& context,
                                         std::span<const Rank> members, FailureDetector& failure_detector,
                                         std::chrono::nanoseconds timeout);

/// Splits `nccl_comm` by `color` and `key`, like MPI_Comm_split. Returns the new NCCL communicator of this rank. If
/// `color` is negative, this rank is in no new communicator, and the result must not be used. `sequence`: number of the
/// next call, for errors about lost ranks. Reports errors of this rank to all ranks. Throws Error.
std::unique_ptr<NcclComm> nccl_comm_split(NcclComm& nccl_comm, int color, int key, std::uint64_t sequence,
                                          const CommunicatorContext& context, FailureDetector& failure_detector,
                                          Deadline deadline);

}  // namespace collectives
