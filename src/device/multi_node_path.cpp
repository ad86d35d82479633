// Implementation of MultiNodePath, which performs an all-reduce of GPU memory on several hosts.
//
// The GPUs of each host first add the vectors of its ranks. The CPUs then all-reduce the sums of the hosts, and the
// GPUs distribute the result. A rail is one rank of each host, all with the same local number. The vector is cut into
// slices, and the ranks of one rail all-reduce one slice.
//
// A call with a top-k compressor sends only the k elements of greatest magnitude of a gradient. The residual
// holds, for each element, the sum of the values that earlier calls have not sent. Each rank that has a slice keeps the
// residual of the slice.
#include "device/multi_node_path.hpp"

#include <algorithm>
#include <span>
#include <utility>

#include "compression/top_k/top_k_impl.hpp"
#include "device/host_share.hpp"
#include "execution/job.hpp"
#include "planning/planned_call.hpp"
#include "steps/algorithm.hpp"

namespace collectives {
namespace {

constexpr std::size_t kVectorBytes = 16;  // Number of bytes that one thread of a GPU kernel accesses at a time.

}  // namespace

MultiNodePath::MultiNodePath(const std::shared_ptr<Device>& device, const Arena& arena, std::shared_ptr<GpuPeers> peers,
                             const RankView& view, const Topology& topology, PathExecutor& host_copy,
                             std::unique_ptr<NcclComm> nccl_comm)
    : device_(*device),
      arena_(arena),
      view_(view),
      topology_(topology),
      host_copy_(host_copy),
      host_(*device, arena, std::move(peers), view.world.self),
      sum_(*device, false),
      sum_here_(*device, true),
      pipelined_copy_(*device),
      stream_back_(*device),
      top_k_(device) {
  if (nccl_comm != nullptr)
    nccl_collective_ = std::make_unique<NcclCollective>(*device, std::move(nccl_comm), arena.ranks(), arena.self());
}

MultiNodePath::~MultiNodePath() {
  if (host_.drained() && stream_back_.drain(kDrainTimeoutAfterFailure)) return;
  sum_.leak();
  sum_here_.leak();
  top_k_.leak();
}

void MultiNodePath::start(const DeviceCall& call, const PlannedCall& planned, Job& job) {
  tensor_ = call.tensor;
  delegate_ = nullptr;
  planned_ = &planned;
  job_ = &job;
  plan_ = &planned.plan;
  sparse_ = tensor_ != nullptr ? &*planned.sparse : nullptr;
  op_ = job.op;
  type_ = job.type;
  divide(planned);
  host_.begin(call, job.input, job.output, job.tag);
  phase_ = Phase::preparing;
  stream_back_.open();
}

/// Cuts the vector into slices, whose boundaries are equal on all hosts. With NCCL and without a compressor, all slices
/// but the last have equal lengths and begin at multiples of kVectorBytes. The last slice also holds the remaining
/// elements.
void MultiNodePath::divide(const PlannedCall& planned) {
  const std::size_t count = planned.signature.count;
  const int slices = sparse_ != nullptr ? sparse_->slices : plan_->algorithm->slices(topology_);
  task_ = {};
  task_.kind = Step::Kind::host_all_reduce;
  task_.element = size_of(type_);
  task_.slices.assign(static_cast<std::size_t>(arena_.ranks()), Range{});
  const std::size_t unit = kVectorBytes / task_.element;
  const std::size_t each = count / unit / static_cast<std::size_t>(slices) * unit;
  offsets_.assign(1, 0);
  for (int s = 0; s < arena_.ranks(); ++s) {
    Range& slice = task_.slices[static_cast<std::size_t>(s)];
    if (s < slices && nccl_collective_ != nullptr && sparse_ == nullptr)
      slice = {offsets_.back(), s + 1 < slices ? each : count - offsets_.back()};
    else if (s < slices)
      slice = part({0, count}, slices, s);  // The plan for CPU memory, by which the CPUs all-reduce, has these slices.
    offsets_.push_back(offsets_.back() + slice.count);
  }
  slice_ = task_.slice(arena_.self());
}

void MultiNodePath::abandon() noexcept {
  if (delegate_ != nullptr) return delegate_->abandon();
  if (tensor_ != nullptr) top_k_.take_back();
  if (nccl_collective_ != nullptr) nccl_collective_->nccl_comm().stop();
  stream_back_.drain(kDrainTimeoutAfterFailure);
  host_.abandon();
}

PathExecutor::PathState MultiNodePath::wait_for(PathState state, Phase phase) {
  if (phase_ != phase) ++moves_;
  phase_ = phase;
  return state;
}

PathExecutor::PathState MultiNodePath::progress() {
  if (delegate_ != nullptr) return delegate_->progress();
  try {
    return next_phase();
  } catch (const TagMismatch& mismatch) {  // a peer of this host, named by its local rank, performs another call
    throw TagMismatch{view_.grid.here()[static_cast<std::size_t>(mismatch.peer)]};
  }
}

PathExecutor::PathState MultiNodePath::next_phase() {
  BufferExchange& exchange = host_.exchange();
  switch (phase_) {
    case Phase::preparing:
      // The previous call may still use `sum_` and write its rounding errors to the residual.
      if (!host_.stream().reached() || !host_.input_ready()) return PathState::gpu;
      sum_.grow(bytes() + kVectorBytes);
      if (sparse_ == nullptr)
        sum_here_.grow(bytes());
      else if (!has_to_move())
        top_k_.begin(*tensor_, *sparse_, arena_.self(), host_.stream().stream());
      nccl_collective_ == nullptr ? host_.prepare_shared(task_) : host_.prepare_local(task_);
      [[fallthrough]];
    case Phase::packing:
      if (!host_.prepared()) return wait_for(PathState::gpu, Phase::packing);
      exchange.publish(has_to_move());
      [[fallthrough]];
    case Phase::gathering:
      if (!exchange.all_published(task_)) return wait_for(PathState::peers, Phase::gathering);
      if (exchange.any_objection()) return delegate_to_host_copy();
      if (!exchange.begin_remote_access()) return wait_for(PathState::peers, Phase::gathering);
      add();
      [[fallthrough]];
    case Phase::adding:
      if (!in_stream()) return wait_for(PathState::gpu, Phase::adding);
      fetch_sum();
      [[fallthrough]];
    case Phase::fetching:
      if (!reached()) return wait_for(PathState::gpu, Phase::fetching);
      exchange.end_remote_access();
      if (sparse_ != nullptr) top_k_.publish_selection();
      if (sparse_ != nullptr || slice_.count > 0) return wait_for(PathState::host, Phase::inter_node);
      [[fallthrough]];
    case Phase::inter_node:
      if (!exchange.begin_remote_access()) return wait_for(PathState::peers, Phase::inter_node);
      bring_sum();
      distribute_slice();
      [[fallthrough]];
    case Phase::distributing:
      if (!in_stream()) return wait_for(PathState::gpu, Phase::distributing);
      host_.stream().record();
      [[fallthrough]];
    case Phase::draining:
      if (!reached()) return wait_for(PathState::gpu, Phase::draining);
      exchange.end_remote_access();
      exchange.publish_done();
      phase_ = Phase::leaving;
      ++moves_;
      [[fallthrough]];
    case Phase::leaving: break;
  }
  const PathState state = host_.leave();
  if (state == PathState::done && sparse_ != nullptr) {
    top_k_.publish_sum();
    host_.stream().record();
  }
  return state;
}

/// Returns true if this rank does not have the residual of its slice. If so, HostCopyPath performs the call. The ranks
/// of this host first move their residuals on the CPU.
bool MultiNodePath::has_to_move() const {
  return sparse_ != nullptr && !tensor_->residual().keeps(sparse_->slices, sparse_->slice(arena_.self()));
}

PathExecutor::PathState MultiNodePath::delegate_to_host_copy() {
  delegate_ = &host_copy_;
  delegate_->start(*host_.call(), *planned_, *job_);
  return delegate_->progress();
}

void MultiNodePath::start_nccl(Collective collective, const std::byte* input, std::byte* output) {
  // The all-reduce between hosts divides by the number of ranks.
  const bool average = op_.kind() == ReduceOp::Kind::average;
  const NcclCollective::Call call{.collective = collective,
                                  .input = input,
                                  .output = output,
                                  .parts = Parts::listed(offsets_.data(), arena_.ranks()),
                                  .type = type_,
                                  .op = average ? ReduceOp(ReduceOp::sum) : op_,
                                  .unsummed = !why_no_native_nccl_reduction(op_, type_, false).empty(),
                                  .wire = type_,
                                  .stream = host_.stream().stream()};
  nccl_collective_->start(std::span(&call, 1));
}

/// Adds this rank's slice of the vectors of all ranks of the host. The sum is not yet divided or scaled.
void MultiNodePath::add() {
  if (nccl_collective_ != nullptr) {
    sum_at_ = 0;
    return start_nccl(Collective::reduce_scatter, host_.own_input(), sum_as_vector());
  }
  if (slice_.count == 0) return;
  sources_.clear();
  const std::vector<BufferExchange::Buffers>& all = host_.exchange().buffers();
  const std::byte* const own = all[static_cast<std::size_t>(arena_.self())].source;
  sum_at_ = reinterpret_cast<std::uintptr_t>(element_at(own, slice_.first, task_.element)) % kVectorBytes;
  for (const BufferExchange::Buffers& buffers : all)
    sources_.push_back({element_at(buffers.source, slice_.first, task_.element)});
  std::byte* const out[] = {sum()};
  device_.kernels().fold(op_, type_, sources_, out, slice_.count, 0, host_.stream().stream());
}

/// Starts the copy of this rank's sum to pinned memory, in groups of rounds. With a compressor, the GPU instead selects
/// elements of the sum, and copies them in one piece.
void MultiNodePath::fetch_sum() {
  if (sparse_ != nullptr) top_k_.choose(reinterpret_cast<const float*>(sum()));
  host_.stream().record();
  if (sparse_ != nullptr || slice_.count == 0) return;
  describe_rail();
  pipelined_copy_.start(*job_, {.from = sum(),
                                .to = sum(),
                                .pinned = sum_here_.as<std::byte>(),
                                .to_host = host_.stream().stream(),
                                .to_device = stream_back_.stream()});
  job_->input_stream = &pipelined_copy_;
}

/// Copies the rounds whose results are only in pinned memory back to the GPU. With a compressor, the GPU instead adds
/// the received selections.
void MultiNodePath::bring_sum() {
  if (sparse_ != nullptr) return top_k_.add_up(reinterpret_cast<float*>(sum()));
  if (slice_.count == 0) return;
  pipelined_copy_.done(rail_plan_.rounds);
  stream_back_.record();
  device_.wait(host_.stream().stream(), stream_back_.done());
}

/// Describes the part of the plan between hosts. Its messages have the size that they have in the whole plan.
void MultiNodePath::describe_rail() {
  const int slices = plan_->algorithm->slices(topology_);
  rail_plan_ = {};
  rail_plan_.algorithm = plan_->algorithm;
  rail_plan_.segment = std::max<std::size_t>(1, plan_->segment / static_cast<std::size_t>(slices));
  rail_plan_.rounds = (slice_.count + rail_plan_.segment - 1) / rail_plan_.segment;
  rail_plan_.issue_interval = plan_->issue_interval;
  rail_plan_.rounds_in_flight = std::max<std::size_t>(1, std::min(plan_->rounds_in_flight, rail_plan_.rounds));
  rail_plan_.partial_sums = plan_->partial_sums;
  rail_plan_.coded = plan_->coded;
  CollectiveSpec spec{.collective = Collective::all_reduce,
                      .partial_sums = plan_->partial_sums,
                      .coded = plan_->coded,
                      .inter_host_only = true};
  const std::uint64_t tag = job_->tag;
  const Codec* const codec = job_->codec;
  *job_ = {};
  job_->plan = &rail_plan_;
  job_->args = {spec, Parts::equal({0, slice_.count}, 1)};
  job_->op = op_;
  job_->type = type_;
  job_->codec = codec;
  job_->input = job_->output = sum_here_.as<std::byte>();
  job_->tag = tag;
}

void MultiNodePath::distribute_slice() {
  if (nccl_collective_ != nullptr) return start_nccl(Collective::all_gather, sum_as_vector(), host_.own_output());
  if (slice_.count == 0) return;
  outs_.clear();
  const int self = arena_.self(), ranks = arena_.ranks();
  const std::vector<BufferExchange::Buffers>& all = host_.exchange().buffers();
  // The list of destinations begins with this rank's own, so that the ranks write to different destinations at a time.
  for (int turn = 0; turn < ranks; ++turn)
    outs_.push_back(
        element_at(all[static_cast<std::size_t>((self + turn) % ranks)].destination, slice_.first, task_.element));
  copy_to_all(device_, outs_, sum(), bytes(), host_.stream().stream());
}

}  // namespace collectives
