// A plan together with everything that calls with the same signature share.
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

/// A plan with what belongs to it: kept by the communicator, shared by the calls that use it.
struct PlannedCall {
  Request request;
  Signature signature;
  std::vector<std::size_t> offsets;  ///< where the parts of a v-variant begin, and the end
  Plan plan;
  Parts parts;
  /// What the Steps do. A call of no elements is a barrier that carries its signature: ranks that disagree are noticed,
  /// and nobody runs ahead by more calls than the records hold.
  Collective performed = Collective::barrier;
  std::uint64_t hash = 0;  ///< of the signature
  SignatureWords words{};
  OperationShape shape;            ///< what is written down of it
  bool waits_for_no_peer = false;  ///< this rank
  /// Of a call with a compressor; `plan` is then what is done where everything is sent.
  std::optional<SparsePlan> sparse;
  /// Set where the plan is a single host Step: it is then entered without emitting it first.
  std::optional<HostCall> single_step;
};

/// Returns the task that the Steps of `planned` perform.
RoundArgs args_of(const PlannedCall& planned);

}  // namespace collectives
