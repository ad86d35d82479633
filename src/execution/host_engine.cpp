// Implementation of HostEngine, by which the executor copies and reduces values in host (CPU) memory.
//
// The executor performs the Steps of an algorithm. A Step is one action of a rank. In a host Step, a subgroup performs
// a collective through shared memory. A subgroup consists of all ranks of a host, or of some of them. The engine has
// one HostCollective object for each subgroup to which this rank belongs. This file starts host Steps, and adds up the
// counters of the HostCollective objects.
#include "execution/host_engine.hpp"

#include <utility>

namespace collectives {

HostEngine::HostEngine(const RankView& view, HostCollectives host_collectives)
    : view_(view), host_collectives_(std::move(host_collectives)) {}

void HostEngine::begin_host_step(const Step& step, const HostOperands& with) {
  subgroup_ = step.subgroup;
  host_collective(subgroup_).describe(step, element_bytes_of(with.type, with.op), task_);
  host_collective(subgroup_).start(task_, with);
}

std::uint64_t HostEngine::moves() const noexcept {
  std::uint64_t moves = 0;
  for (const auto& collective : host_collectives_)
    if (collective != nullptr) moves += collective->moves();
  return moves;
}

std::uint64_t HostEngine::bytes_shown() const noexcept {
  std::uint64_t bytes = 0;
  for (const auto& collective : host_collectives_)
    if (collective != nullptr) bytes += collective->bytes_shown();
  return bytes;
}

}  // namespace collectives
