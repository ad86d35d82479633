// Connection by NCCL: makes an NCCL communicator of ranks, or splits one.
//
// Before, the ranks have agreed that all of them can use NCCL (communicator_init.hpp). They report failures to one
// another through the failure detector (failure_detector.hpp), so no rank waits for one that has failed.
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

/// Returns an NCCL communicator of `members`, which are in ascending order and include this rank. All ranks call it
/// together, with one set of members or several. Takes two exchanges. An error on one rank is thrown on all, with the
/// same text.
std::unique_ptr<NcclComm> nccl_comm_init(Bootstrap& bootstrap, const CommunicatorContext& context,
                                         std::span<const Rank> members, FailureDetector& failure_detector,
                                         std::chrono::nanoseconds timeout);

/// Splits `nccl_comm` by `color` and `key` and returns this rank's part. The part is ready, but unusable if `color` is
/// negative. `sequence`: number of the next call. Reports errors of this rank to all ranks. Throws Error.
std::unique_ptr<NcclComm> nccl_comm_split(NcclComm& nccl_comm, int color, int key, std::uint64_t sequence,
                                          const CommunicatorContext& context, FailureDetector& failure_detector,
                                          Deadline deadline);

}  // namespace collectives
