// Planner of a communicator: makes one plan for all equal calls.
//
// Calls are equal if they have the same signature and the same counts of parts. The signature holds the arguments of a
// call. Ranks compare it to find mismatches. The planner plans the first call of a kind. It chooses a plan and lays out
// the vector's parts. If the plan is a single host Step, the planner describes that Step, too. The executor can then
// enter it without emitting Steps.
//
// Later calls find the plan. The planner first compares with the last call, then looks up the hash of the signature.
// The key of a plan is the same on all ranks. All ranks therefore plan alike.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>
#include <unordered_map>

#include "collectives/communicator.hpp"
#include "collectives/topology.hpp"
#include "core/call.hpp"
#include "core/tuning_parameters.hpp"
#include "planning/planned_call.hpp"
#include "shared_memory/host_collective.hpp"

namespace collectives {

/// Planner of one communicator. Calls must not overlap.
class Planner {
 public:
  /// Values for calls whose Options leave these fields unset.
  struct Defaults {
    std::string_view backend;
    bool deterministic = false;
  };
  /// Requires that all arguments outlive the planner. After a change of `tuning`, call forget().
  Planner(const RankView& view, const Topology& topology, const TuningParameters& tuning,
          const HostCollective& host_collective, const Defaults& defaults)
      : view_(view), topology_(topology), tuning_(tuning), host_collective_(host_collective), defaults_(defaults) {}

  /// Returns the plan of a call whose arguments have been checked. The reference is valid until the next call of
  /// plan().
  ///
  /// `k` is the number of elements that top-k sends, as next_k() of the compressor returns. It is ignored without a
  /// compressor. A new plan takes microseconds, or milliseconds between many hosts.
  ///
  /// Throws Error{invalid_argument} for an unknown backend and for an invalid codec or compressor. Throws
  /// Error{unsupported} if the backend, codec or compressor cannot perform the call.
  const std::shared_ptr<const PlannedCall>& plan(const Call& call, const Options& options, std::size_t k);
  /// Deletes all plans, because the tuning has changed.
  void forget() noexcept;

 private:
  std::shared_ptr<const PlannedCall> make(const Call& call, const Options& options, const Codec* codec, std::size_t k,
                                          const Signature& signature) const;

  Rank rank() const noexcept { return view_.world.self; }

  const RankView& view_;
  const Topology& topology_;
  const TuningParameters& tuning_;
  const HostCollective& host_collective_;
  const Defaults defaults_;
  std::unordered_map<std::uint64_t, std::shared_ptr<const PlannedCall>> plans_;  // plans by the hash of their signature
  std::shared_ptr<const PlannedCall> last_;
};

}  // namespace collectives
