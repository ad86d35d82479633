// Planner: chooses a plan for each call of a communicator, and stores the plan for later equal calls. A plan is an
// algorithm with its protocol and the lengths of its messages.
//
// Two calls are equal if they have the same signature and the same counts of elements per rank. The signature holds the
// arguments on which ranks must agree. For the first of several equal calls, the planner chooses a plan. The planner
// also computes the offsets of each rank's part of the vector. An algorithm emits Steps, the actions of a rank. Some
// algorithms emit a single Step, which is a collective of the ranks of one host. The planner then stores the
// description of this collective, so that the executor can start it directly.
//
// For a later equal call, the planner finds the stored plan. It first compares the call with the previous call, and
// then looks up the hash of the signature. All ranks have the same plan, because a plan depends only on values that are
// equal on all ranks.
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

/// Planner of one communicator. Its functions must not be called by two threads at once.
class Planner {
 public:
  /// Values that are used if the Options of a call leave them unset.
  struct Defaults {
    std::string_view backend;
    bool deterministic = false;
  };
  /// Requires that all arguments outlive the planner. Requires a call of forget() after a change of `tuning`.
  Planner(const RankView& view, const Topology& topology, const TuningParameters& tuning,
          const HostCollective& host_collective, const Defaults& defaults)
      : view_(view), topology_(topology), tuning_(tuning), host_collective_(host_collective), defaults_(defaults) {}

  /// Returns the plan of a call with checked arguments. The reference is valid until the next call of plan() or
  /// forget().
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
