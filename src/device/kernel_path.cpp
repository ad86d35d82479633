// Implementation of KernelPath, one of the ways to perform calls on GPU memory. A kernel is a function that a GPU runs.
//
// All ranks are on one host, and their GPUs can access each other's memory. The vector is divided into one share per
// rank. The kernel of a rank reads its share from the buffers of all ranks, combines the values, and writes the result
// to the buffers of all ranks.
#include "device/kernel_path.hpp"

#include <algorithm>
#include <span>

#include "execution/job.hpp"
#include "planning/planned_call.hpp"

namespace collectives {
/// Fills in `task_`, the description of the call: the collective, the root, and the share of each rank.
void KernelPath::describe(const PlannedCall& planned) {
  const int ranks = arena_.ranks();
  const Signature& call = planned.signature;
  const Range whole{0, call.count};
  const bool of_one = call.collective == Collective::broadcast || call.collective == Collective::reduce;
  const bool by_part = call.collective == Collective::reduce_scatter || call.collective == Collective::all_gather;
  switch (call.collective) {
    case Collective::all_reduce: task_.kind = Step::Kind::host_all_reduce; break;
    case Collective::reduce_scatter:
    case Collective::reduce: task_.kind = Step::Kind::host_reduce_scatter; break;
    case Collective::all_gather:
    case Collective::broadcast: task_.kind = Step::Kind::host_all_gather; break;
    default: task_.kind = Step::Kind::host_barrier; break;
  }
  task_.root = of_one ? call.root : -1;
  task_.element = size_of(call.type);
  task_.slices.assign(static_cast<std::size_t>(ranks), Range{});
  for (int rank = 0; rank < ranks; ++rank)
    if (!of_one || rank == call.root)
      task_.slices[static_cast<std::size_t>(rank)] = of_one    ? whole
                                                     : by_part ? planned.parts.full(rank)
                                                               : part(whole, ranks, rank);
}

void KernelPath::start(const DeviceCall& call, const PlannedCall& planned, Job& job) {
  job_ = &job;
  describe(planned);
  host_.begin(call, job.input, job.output, job.tag);
  phase_ = Phase::preparing;
}

PathExecutor::PathState KernelPath::wait_for(PathState state, Phase phase) {
  if (phase_ != phase) ++moves_;
  phase_ = phase;
  return state;
}

PathExecutor::PathState KernelPath::progress() {
  BufferExchange& exchange = host_.exchange();
  switch (phase_) {
    case Phase::preparing:
      if (!host_.input_ready()) return PathState::gpu;
      host_.prepare_shared(task_);
      [[fallthrough]];
    case Phase::packing:
      if (!host_.prepared()) return wait_for(PathState::gpu, Phase::packing);
      exchange.publish();
      [[fallthrough]];
    case Phase::gathering:
      if (!exchange.all_published(task_) || !exchange.begin_remote_access())
        return wait_for(PathState::peers, Phase::gathering);
      share_.perform(task_, arena_.self(), exchange.buffers(),
                     {.op = job_->op, .type = job_->type, .unreduced = true, .finish_ranks = arena_.ranks()},
                     host_.stream().stream());
      host_.stream().record();
      [[fallthrough]];
    case Phase::working:
      if (!host_.stream().reached()) return wait_for(PathState::gpu, Phase::working);
      exchange.end_remote_access();
      exchange.publish_done();
      phase_ = Phase::leaving;
      ++moves_;
      [[fallthrough]];
    case Phase::leaving: break;
  }
  return host_.leave();
}

}  // namespace collectives
