// A plan with all data that calls with the same signature share.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "collectives/plan.hpp"
#include "core/signature.hpp"
#include "monitoring/process_page.hpp"
#include "planning/sparse_plan.hpp"
#include "shared_memory/host_task.hpp"
#include "steps/algorithm.hpp"

namespace collectives {

/// Plan and its derived data: stored by the communicator, shared by the calls that use it.
struct PlannedCall {
  Request request;
  Signature signature;
  std::vector<std::size_t> offsets;  ///< first element of each part of a v-variant, then the end of the last part
  Plan plan;
  Parts parts;
  /// Collective that the Steps perform. A call without elements is performed as a barrier that carries its signature.
  /// Ranks thus detect mismatches, and no rank gets ahead by more calls than there are arrival records.
  Collective performed = Collective::barrier;
  std::uint64_t hash = 0;  ///< hash of the signature
  SignatureWords words{};
  OperationShape shape;            ///< description of the call in the flight recorder
  bool waits_for_no_peer = false;  ///< this rank needs nothing from its peers: it is the root of a broadcast, or no
                                   ///< root of a reduce
  /// Sparse plan of a call with a compressor. `plan` is then the plan for sending the whole vector.
  std::optional<SparsePlan> sparse;
  /// Description of the host Step, if the plan is a single host Step. The executor then enters it without emitting
  /// Steps.
  std::optional<HostCall> single_step;
};

/// Returns the arguments from which the Steps of `planned` are emitted.
RoundArgs args_of(const PlannedCall& planned);

}  // namespace collectives
