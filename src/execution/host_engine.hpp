// HostEngine: copies and reduces values in host (CPU) memory for the executor.
//
// The executor performs the Steps of an algorithm. A Step is one action of a rank. The executor leaves the values to an
// engine (ValueEngine), because values in CPU memory and in GPU memory need different code. In a host Step, ranks of
// one host perform a collective together through shared memory.
//
// The class is final, and its short functions are inline. A call through a HostEngine is therefore not virtual.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <vector>

#include "execution/value_engine.hpp"
#include "shared_memory/host_collective.hpp"
#include "steps/algorithm.hpp"

namespace collectives {

class HostEngine final : public ValueEngine {
 public:
  /// Objects for intra-host collectives, one for each Subgroup of this rank. The subgroups are all ranks of the host,
  /// the ranks of one NUMA domain, and a rail, which is one rank of each domain. On a host without domains, the
  /// pointers for the domain and the rail are null.
  using HostCollectives = std::array<std::unique_ptr<HostCollective>, 3>;
  HostEngine(const RankView& view, HostCollectives host_collectives);

  bool is_immediate() const noexcept override { return true; }
  bool begin() override { return true; }
  void copy(std::byte* to, const std::byte* from, std::size_t bytes) override { std::memcpy(to, from, bytes); }
  void fold(const ReduceOp& op, DataType type, std::span<const Source> sources, std::byte* out, std::size_t count,
            int finish_ranks) override {
    collectives::fold(op, type, sources, out, count, finish_ranks);
  }
  void end() override {}
  bool done() override { return true; }
  void begin_host_step(const Step& step, const HostOperands& with) override;
  bool progress_host_step() override { return progress(subgroup_); }
  std::byte* work(std::size_t bytes) override {
    if (work_.size() < bytes) work_.resize(bytes);
    return work_.data();
  }

  /// Starts an operation that is a single intra-host collective of all ranks of the host.
  void start(const HostTask& task, const HostOperands& with) { host_collective(Subgroup::host).start(task, with); }
  /// Progresses the collective of a subgroup. Returns whether it has ended. Throws TagMismatch, whose `peer` is the
  /// peer's rank in the communicator.
  bool progress(Subgroup subgroup) try {
    return host_collective(subgroup).progress();
  } catch (const TagMismatch& mismatch) {  // an intra-host collective names a rank by its number on the host
    throw TagMismatch{view_.grid.here()[static_cast<std::size_t>(mismatch.peer)]};
  }
  /// Returns whether the collective of a subgroup waits for a root on another core (HostCollective).
  bool waits_for_other_core(Subgroup subgroup) const noexcept {
    return host_collective(subgroup).waits_for_other_core();
  }
  /// Returns a counter that changes whenever an intra-host collective progresses.
  std::uint64_t moves() const noexcept;
  /// Returns the bytes handed to intra-host collectives since construction.
  std::uint64_t bytes_shown() const noexcept;

 private:
  HostCollective& host_collective(Subgroup subgroup) const {
    return *host_collectives_[static_cast<std::size_t>(subgroup)];
  }

  const RankView& view_;
  HostCollectives host_collectives_;
  Subgroup subgroup_ = Subgroup::host;  // subgroup of the current host Step
  HostTask task_;                       // description of the current host Step
  std::vector<std::byte> work_;         // partial results (Place::work)
};

}  // namespace collectives
