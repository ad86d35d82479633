// PlannedCall: the plan of a call, and data that follow from the plan. A plan names the algorithm that performs the
// call. The signature of a call holds the arguments on which ranks must agree. Calls with equal signatures and equal
// counts share one PlannedCall.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "collectives/plan.hpp"
#include "core/call_record.hpp"
#include "monitoring/process_page.hpp"
#include "planning/sparse_plan.hpp"
#include "shared_memory/host_task.hpp"
#include "steps/algorithm.hpp"

namespace collectives {

/// Plan of a call and the data derived from it. The planner stores the object for later calls.
struct PlannedCall {
  Request request;
  Signature signature;
  /// Ends of the parts, as listed_parts() stores them. Empty unless the call lists the length of each part. Also empty
  /// if the algorithm does not divide the vector into parts.
  std::vector<std::size_t> offsets;
  Plan plan;
  Parts parts;
  /// Collective that is performed: that of the call, or a barrier if the call has no elements. In the barrier, ranks
  /// compare the arguments of the call. The barrier also keeps a rank from being more than 64 calls ahead of its peers.
  /// Reason: each rank publishes the calls that it has entered (arrival records), and has space for 64 records only.
  Collective performed = Collective::barrier;
  std::uint64_t hash = 0;  ///< hash of the signature, the arguments that all ranks compare
  SignatureWords words{};
  std::string details = {};        ///< details of the call for error texts (call_record.hpp); empty: none
  OperationShape shape;            ///< description of the call in the flight recorder
  bool waits_for_no_peer = false;  ///< whether this rank gets no result from peers, as the root of a broadcast
  /// Sparse plan of a call with a compressor. It states whether only selected elements are sent. `plan` is then the
  /// plan for sending the whole vector.
  std::optional<SparsePlan> sparse;
  /// Description of the only Step of the plan, set only if this Step is a collective of the ranks of one host. The
  /// executor then starts that collective directly. Otherwise the algorithm emits Steps, the actions of this rank.
  std::optional<HostCall> single_step;
};

/// Returns the arguments with which the algorithm of `planned` emits its Steps.
RoundArgs args_of(const PlannedCall& planned);

}  // namespace collectives
