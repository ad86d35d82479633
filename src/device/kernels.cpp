#include "device/kernels.hpp"

#include <algorithm>
#include <span>

#include "executor.hpp"

namespace collectives {
void KernelsWay::start(const DeviceCall& call, const PlannedCall& planned, Job& job) {
  job_ = &job;
  describe(planned);
  begin(call, job.input, job.output, job.tag);
  phase_ = Phase::coming;
}

DeviceWay::Turn KernelsWay::wait_for(Turn whom, Phase phase) {
  if (phase_ != phase) ++moves_;
  phase_ = phase;
  return whom;
}

DeviceWay::Turn KernelsWay::advance() {
  switch (phase_) {
    case Phase::coming:
      if (call_->stream && !device_.reached(call_->ready)) return Turn::gpu;
      come();
      [[fallthrough]];
    case Phase::copying_there:
      if (!there()) return wait_for(Turn::gpu, Phase::copying_there);
      publish();
      [[fallthrough]];
    case Phase::meeting:
      if (!all_have_come() || !touch()) return wait_for(Turn::peers, Phase::meeting);
      work();
      device_.record(done_, stream_);
      [[fallthrough]];
    case Phase::working:
      if (!device_.reached(done_)) return wait_for(Turn::gpu, Phase::working);
      let_go();
      say_that_it_worked();
      phase_ = Phase::leaving;
      ++moves_;
      [[fallthrough]];
    case Phase::leaving: break;
  }
  return leave();
}

// ---- the share ----

void KernelsWay::work() {
  const int self = arena_.self(), ranks = arena_.ranks();
  const Range share = task_.share(self);
  if (share.count == 0) return;
  const std::size_t bytes = share.count * task_.element;
  sources_.clear();
  outs_.clear();
  for (int rank = 0; rank < ranks; ++rank)
    if (task_.is_source(rank, self))
      sources_.push_back({element_at(buffers_[static_cast<std::size_t>(rank)].own, share.first, task_.element)});
  for (int turn = 0; turn < ranks; ++turn)  // mine first, and not everyone's at the same destination
    if (const int rank = (self + turn) % ranks; task_.is_destination(rank, self))
      outs_.push_back(element_at(buffers_[static_cast<std::size_t>(rank)].keep, share.first, task_.element));

  // What a kernel cannot write to at once goes there from what it has written.
  std::span<std::byte* const> left(outs_);
  const std::byte* made = sources_[0].data;
  if (task_.combines()) {
    const auto at_once = left.first(std::min(left.size(), Device::kMostOuts));
    device_.fold(job_->op, job_->type, sources_, at_once, share.count, ranks, stream_);
    left = left.subspan(at_once.size());
    made = at_once[0];
  }
  give(left, made, bytes);
}

}  // namespace collectives
