// Connection by NCCL: makes an NCCL communicator of some or all ranks, or splits one.
//
// NCCL is NVIDIA's library for collectives between GPUs. The ranks have found out earlier that all of them can use NCCL
// (communicator_init.hpp). NCCL connects them in the background, while each rank waits. If a rank fails during this
// wait, the rank reports its error through the failure detector. All waiting ranks then throw this error.
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
/// of `bootstrap` call the function together, and make two exchanges over the bootstrap. The ranks of each host may
/// pass only the ranks of their host as `members`. Each host then gets an NCCL communicator. If one rank fails, all
/// ranks throw an Error.
std::unique_ptr<NcclComm> nccl_comm_init(Bootstrap& bootstrap, const CommunicatorContext& context,
                                         std::span<const Rank> members, FailureDetector& failure_detector,
                                         std::chrono::nanoseconds timeout);

/// Splits `nccl_comm` by `color` and `key`, like MPI_Comm_split. Returns the new NCCL communicator of this rank. If
/// `color` is negative, this rank is in no new communicator, and the caller must not use the result. `sequence`: number
/// of the next call, for errors about lost ranks. Reports errors of this rank to all ranks. Throws Error.
std::unique_ptr<NcclComm> nccl_comm_split(NcclComm& nccl_comm, int color, int key, std::uint64_t sequence,
                                          const CommunicatorContext& context, FailureDetector& failure_detector,
                                          Deadline deadline);

}  // namespace collectives
