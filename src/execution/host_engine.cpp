// Implementation of the engine for host memory, which starts host Steps. In a host Step, ranks of one host perform an
// intra-host collective together, through shared memory. This file adds up the counters of all intra-host
// collectives.
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
