#include "device/steps_way.hpp"

#include <algorithm>
#include <utility>

#include "execution/job.hpp"
#include "planning/planned_call.hpp"

namespace collectives {
namespace {

std::vector<Executor::Route> routes_by(Transport& transport, int ranks) {
  std::vector<Executor::Route> routes;
  for (Rank rank = 0; rank < ranks; ++rank) routes.push_back({&transport, rank});
  return routes;
}

/// Elements of it.
std::size_t longest_message(const PlannedCall& planned, const Topology& topology) {
  const Plan& plan = planned.plan;
  const CollectiveSpec spec{.collective = planned.performed, .partial_sums = plan.partial_sums};
  if (plan.algorithm->in_one_message != nullptr && plan.algorithm->in_one_message(spec)) return planned.signature.count;
  const auto pieces = static_cast<std::size_t>(plan.algorithm->pieces(spec, topology));
  return (std::min(plan.segment, planned.parts.longest()) + pieces - 1) / pieces;
}

}  // namespace

StepsWay::StepsWay(Device& device, const Arena& arena, std::shared_ptr<GpuPeers> peers, const RankView& view,
                   const Topology& topology, SharedMemoryTransport& notices, Wire* wire)
    : InHostWay(device, arena, std::move(peers), view.world.self, &GpuBlock::step),
      view_(view),
      topology_(topology),
      messages_(device, this->peers(), view, notices, wire),
      executor_(view, routes_by(messages_, view.world.size()), {}, &messages_, this),
      work_(device, false) {}

StepsWay::~StepsWay() {
  if (settled()) return;
  messages_.keep_for_good();
  work_.keep_for_good();
}

void StepsWay::start(const DeviceCall& call, const PlannedCall& planned, Job& job) {
  job_ = &job;
  task_ = {};
  task_.element = size_of(job.type);
  task_.slices.assign(1, {0, planned.signature.count});
  InHostWay::begin(call, job.input, job.output, job.tag);
  messages_.begin(longest_message(planned, topology_) * task_.element);
  phase_ = Phase::coming;
  working_ = false;
}

DeviceWay::Turn StepsWay::advance() {
  switch (phase_) {
    case Phase::coming:
      if (call_->stream && !device_.reached(call_->ready)) return Turn::gpu;
      come_for_steps();
      ++moves_;
      phase_ = Phase::copying_there;
      [[fallthrough]];
    case Phase::copying_there:
      if (!there()) return Turn::gpu;
      job_->input = own_input();
      job_->output = own_output();
      executor_.start(*job_);
      ++moves_;
      phase_ = Phase::performing;
      [[fallthrough]];
    case Phase::performing:
      if (!executor_.advance()) return working_ ? Turn::gpu : Turn::peers;
      ++moves_;
      phase_ = Phase::copying_back;
      [[fallthrough]];
    case Phase::copying_back: break;
  }
  return bring_back();
}

// ---- a Step ----

bool StepsWay::begin() {
  working_ = touch();
  return working_;
}
void StepsWay::copy(std::byte* to, const std::byte* from, std::size_t bytes) { device_.copy(to, from, bytes, stream_); }
void StepsWay::fold(const ReduceOp& op, DataType type, std::span<const Source> sources, std::byte* out,
                    std::size_t count, int finish_ranks) {
  device_.fold(op, type, sources, std::span(&out, 1), count, finish_ranks, stream_);
}
void StepsWay::end() { device_.record(done_, stream_); }
bool StepsWay::done() {
  if (!device_.reached(done_)) return false;
  let_go();
  working_ = false;
  return true;
}
std::byte* StepsWay::work(std::size_t bytes) {
  work_.grow(bytes);
  return work_.as<std::byte>();
}

// ---- a host Step: as a call by kernels, device/kernels.hpp ----

void StepsWay::begin_host_step(const HostTask& task, const HostOperands& with) {
  task_ = task;
  with_ = &with;
  come_to_step(with.source, with.destination, renumbered(with.tag, ++stages_));
  publish();
  stage_ = Stage::gathering;
}

bool StepsWay::advance_host_step() {
  try {
    return meet_in_stage();
  } catch (const TagMismatch& mismatch) {  // of a local rank
    throw TagMismatch{view_.grid.here()[static_cast<std::size_t>(mismatch.peer)]};
  }
}

bool StepsWay::meet_in_stage() {
  switch (stage_) {
    case Stage::gathering:
      if (!all_have_come() || !begin()) return false;
      do_share(with_->op, with_->type, with_->unreduced, with_->finish_ranks);
      end();
      ++moves_;
      stage_ = Stage::working;
      [[fallthrough]];
    case Stage::working:
      if (!done()) return false;
      say_that_it_worked();
      ++moves_;
      stage_ = Stage::leaving;
      [[fallthrough]];
    case Stage::leaving: break;
  }
  return all_have_worked();
}

}  // namespace collectives
