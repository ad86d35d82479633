#include "device/messages_way.hpp"

#include <algorithm>
#include <utility>

#include "operation.hpp"

namespace collectives {
namespace {

std::vector<Executor::Route> routes_by(Transport& transport, int ranks) {
  std::vector<Executor::Route> routes;
  for (Rank rank = 0; rank < ranks; ++rank) routes.push_back({&transport, rank});
  return routes;
}

}  // namespace

MessagesWay::MessagesWay(Device& device, const Arena& arena, std::shared_ptr<GpuPeers> peers, const Seat& seat,
                         SharedMemoryTransport& notices, Wire* wire)
    : InHostWay(device, arena, std::move(peers), seat.world.self),
      messages_(device, this->peers(), seat, notices, wire),
      executor_(seat, routes_by(messages_, seat.world.size()), {}, &messages_, this),
      work_(device, false) {}

MessagesWay::~MessagesWay() {
  if (settled()) return;
  messages_.keep_for_good();
  work_.keep_for_good();
}

void MessagesWay::start(const DeviceCall& call, const PlannedCall& planned, Job& job) {
  job_ = &job;
  task_ = {};
  task_.element = size_of(job.type);
  task_.slices.assign(1, {0, planned.signature.count});
  InHostWay::begin(call, job.input, job.output, job.tag);
  messages_.begin(planned.plan.segment * task_.element);
  phase_ = Phase::coming;
  working_ = false;
}

DeviceWay::Turn MessagesWay::advance() {
  switch (phase_) {
    case Phase::coming:
      if (call_->stream && !device_.reached(call_->ready)) return Turn::gpu;
      come_for_messages();
      ++moves_;
      phase_ = Phase::copying_there;
      [[fallthrough]];
    case Phase::copying_there:
      if (!there()) return Turn::gpu;
      job_->input = const_cast<std::byte*>(own_input());
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

bool MessagesWay::begin() {
  working_ = touch();
  return working_;
}
void MessagesWay::copy(std::byte* to, const std::byte* from, std::size_t bytes) {
  device_.copy(to, from, bytes, stream_);
}
void MessagesWay::fold(const ReduceOp& op, DataType type, std::span<const Source> sources, std::byte* out,
                       std::size_t count, int finish_ranks) {
  device_.fold(op, type, sources, std::span(&out, 1), count, finish_ranks, stream_);
}
void MessagesWay::end() { device_.record(done_, stream_); }
bool MessagesWay::done() {
  if (!device_.reached(done_)) return false;
  let_go();
  working_ = false;
  return true;
}
std::byte* MessagesWay::work(std::size_t bytes) {
  work_.grow(bytes);
  return work_.as<std::byte>();
}

}  // namespace collectives
