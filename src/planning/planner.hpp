// The plans of a communicator, each made once for all calls alike.
//
// Calls are alike when they have the same signature, which is also what ranks compare, and the same counts of parts.
// The first of them is planned: a plan is chosen, the parts of its vector are laid out, and where all is one host
// stage, that is described as well, so that the executor may enter it without emitting Steps. The others find what was
// made: the last call by comparison, any other by the hash of its signature. What a plan is kept under holds nothing
// that differs between ranks, so all ranks plan alike.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>
#include <unordered_map>

#include "collectives/communicator.hpp"
#include "collectives/topology.hpp"
#include "core/call.hpp"
#include "planning/planned_call.hpp"
#include "shared_memory/host_collective.hpp"

namespace collectives {

/// Of one communicator, whose calls come one at a time.
class Planner {
 public:
  /// Defaults for calls whose Options leave these fields unset.
  struct Defaults {
    std::string_view backend;
    bool deterministic = false;
  };
  /// All arguments outlive the planner; `tuning` may change, then followed by forget().
  Planner(const RankView& view, const Topology& topology, const Tuning& tuning, const HostCollective& host_collective,
          const Defaults& defaults)
      : view_(view), topology_(topology), tuning_(tuning), host_collective_(host_collective), defaults_(defaults) {}

  /// The plan of a call, whose arguments have been checked; good until the next one is asked for. A new one is made in
  /// microseconds, or milliseconds between many hosts. Throws Error: invalid_argument for a backend, codec or
  /// compressor that cannot be, unsupported for one that cannot do this. `k`: number of elements that top-k sends, as
  /// next_k() of the compressor returns; ignored without a compressor.
  const std::shared_ptr<const PlannedCall>& plan(const Call& call, const Options& options, std::size_t k);
  /// Has no plans any more: the tuning has changed.
  void forget() noexcept;

 private:
  std::shared_ptr<const PlannedCall> make(const Call& call, const Options& options, const Codec* codec, std::size_t k,
                                          const Signature& signature) const;

  Rank rank() const noexcept { return view_.world.self; }

  const RankView& view_;
  const Topology& topology_;
  const Tuning& tuning_;
  const HostCollective& host_collective_;
  const Defaults defaults_;
  std::unordered_map<std::uint64_t, std::shared_ptr<const PlannedCall>> plans_;  // by the hash of the signature
  std::shared_ptr<const PlannedCall> last_;
};

}  // namespace collectives
