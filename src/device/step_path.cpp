// Implementation of StepPath, which performs the Steps of an algorithm on GPU memory.
//
// A Step is one action of a rank: it takes values, may reduce them, and may store or send the result. The executor that
// performs Steps on CPU memory also performs Steps on GPU memory. When values must be copied or reduced, the executor
// calls StepPath. StepPath puts this work into a stream, a queue of work for the GPU. When the GPU has done the work,
// the executor continues.
//
// A host Step is a collective among the ranks of one host. Each rank's GPU kernel processes one share of the vector for
// all ranks of the host (device/host_share.hpp).
#include "device/step_path.hpp"

#include <algorithm>
#include <cassert>
#include <utility>

#include "execution/job.hpp"
#include "planning/planned_call.hpp"

namespace collectives {
namespace {

/// Returns one route per rank. A route states how the executor sends messages to a rank. For a rank of this host, the
/// values stay in the sender's memory, and the receiver reads them there. For a rank of another host, the message holds
/// the values.
std::vector<Executor::Route> routes_by(GpuMessages& messages, int ranks) {
  std::vector<Executor::Route> routes;
  for (Rank rank = 0; rank < ranks; ++rank)
    routes.push_back({&messages, rank, !messages.inside(rank), messages.inside(rank)});
  return routes;
}

/// Returns the number of elements of the longest message.
std::size_t longest_message(const PlannedCall& planned, const Topology& topology) {
  const Plan& plan = planned.plan;
  const CollectiveSpec spec{.collective = planned.performed, .partial_sums = plan.partial_sums};
  if (plan.algorithm->in_one_message != nullptr && plan.algorithm->in_one_message(spec)) return planned.signature.count;
  const auto pieces = static_cast<std::size_t>(plan.algorithm->pieces(spec, topology));
  return (std::min(plan.segment, planned.parts.longest()) + pieces - 1) / pieces;
}

}  // namespace

StepPath::StepPath(Device& device, const Arena& arena, std::shared_ptr<GpuPeers> peers, const RankView& view,
                   const Topology& topology, SharedMemoryTransport& notices, Wire* wire)
    : device_(device),
      arena_(arena),
      view_(view),
      topology_(topology),
      host_(device, arena, std::move(peers), view.world.self, &GpuBlock::step),
      share_(device),
      messages_(device, host_.exchange().peers(), view, notices, wire),
      executor_(view, routes_by(messages_, view.world.size()), {}, &messages_, this),
      work_(device, false) {}

StepPath::~StepPath() {
  if (host_.drained()) return;
  messages_.leak();
  work_.leak();
}

void StepPath::start(const DeviceCall& call, const PlannedCall& planned, Job& job) {
  job_ = &job;
  task_ = {};
  task_.element = size_of(job.type);
  task_.slices.assign(1, {0, planned.signature.count});
  host_.begin(call, job.input, job.output, job.tag);
  messages_.begin(longest_message(planned, topology_) * task_.element);
  phase_ = Phase::preparing;
  working_ = false;
}

PathExecutor::PathState StepPath::progress() {
  switch (phase_) {
    case Phase::preparing:
      if (!host_.input_ready()) return PathState::gpu;
      host_.prepare_for_steps(task_);
      ++moves_;
      phase_ = Phase::packing;
      [[fallthrough]];
    case Phase::packing:
      if (!host_.prepared()) return PathState::gpu;
      job_->input = host_.own_input();
      job_->output = host_.own_output();
      executor_.start(*job_);
      ++moves_;
      phase_ = Phase::performing;
      [[fallthrough]];
    case Phase::performing:
      if (!executor_.progress()) return working_ ? PathState::gpu : PathState::peers;
      ++moves_;
      phase_ = Phase::unpacking;
      [[fallthrough]];
    case Phase::unpacking: break;
  }
  return host_.return_result();
}

// ---- a Step ----

bool StepPath::begin() {
  working_ = host_.exchange().begin_remote_access();
  return working_;
}
void StepPath::copy(std::byte* to, const std::byte* from, std::size_t bytes) {
  device_.copy(to, from, bytes, host_.stream().stream());
}
void StepPath::fold(const ReduceOp& op, DataType type, std::span<const Source> sources, std::byte* out,
                    std::size_t count, int finish_ranks) {
  device_.kernels().fold(op, type, sources, std::span(&out, 1), count, finish_ranks, host_.stream().stream());
}
void StepPath::end() { host_.stream().record(); }
bool StepPath::done() {
  if (!host_.stream().reached()) return false;
  host_.exchange().end_remote_access();
  working_ = false;
  return true;
}
std::byte* StepPath::work(std::size_t bytes) {
  work_.grow(bytes);
  return work_.as<std::byte>();
}

// ---- a host Step, performed like a call of device/kernel_path.hpp ----

void StepPath::begin_host_step(const Step& step, const HostOperands& with) {
  assert(step.subgroup == Subgroup::host);
  describe(step, size_of(with.type), static_cast<int>(view_.grid.here().size()), false, TuningParameters{}, task_);
  with_ = &with;
  host_.exchange().begin(renumbered(with.tag, ++host_steps_));
  host_.exchange().set_own_shared(task_, with.source, with.destination);
  host_.exchange().publish();
  host_phase_ = HostPhase::gathering;
}

bool StepPath::progress_host_step() {
  try {
    return progress_host_phase();
    // A peer is in another call. TagMismatch names its rank on this host, which is converted to its communicator rank.
  } catch (const TagMismatch& mismatch) {
    throw TagMismatch{view_.grid.here()[static_cast<std::size_t>(mismatch.peer)]};
  }
}

bool StepPath::progress_host_phase() {
  BufferExchange& exchange = host_.exchange();
  switch (host_phase_) {
    case HostPhase::gathering:
      if (!exchange.all_published(task_) || !begin()) return false;
      share_.perform(
          task_, arena_.self(), exchange.buffers(),
          {.op = with_->op, .type = with_->type, .unreduced = with_->unreduced, .finish_ranks = with_->finish_ranks},
          host_.stream().stream());
      end();
      ++moves_;
      host_phase_ = HostPhase::working;
      [[fallthrough]];
    case HostPhase::working:
      if (!done()) return false;
      exchange.publish_done();
      ++moves_;
      host_phase_ = HostPhase::leaving;
      [[fallthrough]];
    case HostPhase::leaving: break;
  }
  return exchange.all_done();
}

}  // namespace collectives
