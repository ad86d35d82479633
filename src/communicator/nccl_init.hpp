// How ranks come to be connected by NCCL: they have agreed that they can be (communicator_init.hpp), and know a place
// to tell one another of failures (failure_detector.hpp). Nobody waits for a rank that has failed.
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

/// This rank's place among `members`, ascending, of whom it is one; all ranks meet at once, in one set of members or
/// several. Two exchanges. What fails on one rank fails on all, with the same words.
std::unique_ptr<NcclComm> nccl_comm_init(Bootstrap& bootstrap, const CommunicatorContext& context,
                                         std::span<const Rank> members, FailureDetector& failure_detector,
                                         std::chrono::nanoseconds timeout);

/// This rank's part of `nccl_comm`, settled; of no use where `color` is negative. What fails here is made known to all.
/// `sequence`: of the call that would be next. Throws Error.
std::unique_ptr<NcclComm> nccl_comm_split(NcclComm& nccl_comm, int color, int key, std::uint64_t sequence,
                                          const CommunicatorContext& context, FailureDetector& failure_detector,
                                          Deadline deadline);

}  // namespace collectives
