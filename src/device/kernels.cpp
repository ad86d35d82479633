#include "device/kernels.hpp"

#include <algorithm>
#include <bit>
#include <span>

#include "device/settle.hpp"
#include "device/side_by_side.hpp"
#include "operation.hpp"

namespace collectives {
namespace {

constexpr std::size_t kLeastBytes = 64 << 10;

/// Who has what of the vector.
void describe(const PlannedCall& planned, int ranks, HostTask& task) {
  const Signature& call = planned.signature;
  const Range whole{0, call.count};
  const bool of_one = call.collective == Collective::broadcast || call.collective == Collective::reduce;
  const bool by_part = call.collective == Collective::reduce_scatter || call.collective == Collective::all_gather;
  switch (call.collective) {
    case Collective::all_reduce: task.kind = Step::Kind::host_all_reduce; break;
    case Collective::reduce_scatter:
    case Collective::reduce: task.kind = Step::Kind::host_reduce_scatter; break;
    case Collective::all_gather:
    case Collective::broadcast: task.kind = Step::Kind::host_all_gather; break;
    case Collective::barrier: task.kind = Step::Kind::host_barrier; break;
  }
  task.only = of_one ? call.root : -1;
  task.element = size_of(call.type);
  task.slices.assign(static_cast<std::size_t>(ranks), Range{});
  for (int rank = 0; rank < ranks; ++rank)
    if (!of_one || rank == call.root)
      task.slices[static_cast<std::size_t>(rank)] = of_one    ? whole
                                                    : by_part ? planned.parts.full(rank)
                                                              : part(whole, ranks, rank);
}

}  // namespace

KernelsWay::~KernelsWay() {
  if (stream_ == nullptr) return;
  const bool idle = settles(device_, stream_, done_, call_ != nullptr ? kSettleAfterFailure : kSettleAtEnd);
  if (idle) touch(false);
  device_.end_event(done_);
  device_.end_stream(stream_);
  if (!idle) {
    peers_.keep_open();
    return;
  }
  for (void* memory : memory_) device_.free(memory);
}

// ---- a call ----

void KernelsWay::start(const DeviceCall& call, const PlannedCall& planned, Job& job) {
  call_ = &call;
  job_ = &job;
  describe(planned, arena_.ranks(), task_);
  phase_ = Phase::coming;
  if (stream_ != nullptr) return;
  buffers_.resize(static_cast<std::size_t>(arena_.ranks()));
  done_ = device_.new_event();
  stream_ = device_.new_stream();
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
      side_by_side_ = !show_buffers();
      if (side_by_side_) lay_side_by_side();
      [[fallthrough]];
    case Phase::copying_there:
      if (side_by_side_ && !device_.reached(done_)) return wait_for(Turn::gpu, Phase::copying_there);
      publish();
      [[fallthrough]];
    case Phase::meeting:
      if (!all_have_come()) return wait_for(Turn::peers, Phase::meeting);
      find_buffers();
      touch(true);
      if (arena_.failed()) {  // the flag was up before this look: whoever raised the failure sees it, or this sees that
        touch(false);
        return wait_for(Turn::peers, Phase::meeting);
      }
      work();
      device_.record(done_, stream_);
      [[fallthrough]];
    case Phase::working:
      if (!device_.reached(done_)) return wait_for(Turn::gpu, Phase::working);
      touch(false);
      arena_.gpu_block(arena_.self()).worked.value.store(job_->tag, std::memory_order_release);
      peer_ = 0;
      [[fallthrough]];
    case Phase::leaving:
      if (!all_have_worked()) return wait_for(Turn::peers, Phase::leaving);
      if (!side_by_side_) break;
      copy_back(device_, *call_, arena_.self(), static_cast<const std::byte*>(memory_.back()), false, stream_);
      device_.record(done_, stream_);
      if (call_->stream && call_->ends_in_stream) {
        device_.wait(*call_->stream, done_);
        break;
      }
      [[fallthrough]];
    case Phase::copying_back:
      if (!device_.reached(done_)) return wait_for(Turn::gpu, Phase::copying_back);
      break;
  }
  ++moves_;
  call_ = nullptr;
  return Turn::done;
}

void KernelsWay::abandon() noexcept {
  if (stream_ != nullptr && settles(device_, stream_, done_, kSettleAfterFailure)) touch(false);
}

/// Seen before the look at the failure, as in ZeroCopy::perform_unless_failed.
void KernelsWay::touch(bool touching) noexcept { arena_.block(arena_.self()).touching.value.store(touching ? 1 : 0); }

// ---- where the buffers are ----

/// False where others cannot reach them.
bool KernelsWay::show_buffers() {
  if (!call_->tensors.empty()) return false;
  const Sides sides = sides_of(call_->call, arena_.self());
  const auto own = sides.input ? show(job_->input, false) : RemoteBuffer{};
  const auto keep = sides.output ? show(job_->output, true) : RemoteBuffer{};
  if (!own || !keep) return false;
  own_ = *own;
  keep_ = *keep;
  return true;
}

std::optional<RemoteBuffer> KernelsWay::show(const std::byte* from_element_0, bool keep) {
  const Range range = task_.held(arena_.self(), keep);
  if (range.count == 0) return RemoteBuffer{};
  const std::byte* const first = element_at(from_element_0, range.first, task_.element);
  if (task_.combines() && reinterpret_cast<std::uintptr_t>(first) % task_.element != 0) return std::nullopt;
  return peers_.show(first);
}

void KernelsWay::lay_side_by_side() {
  Range all{};
  for (const Range& slice : task_.slices) all.count = std::max(all.count, slice.first + slice.count);
  const std::size_t bytes = std::max(kLeastBytes, std::bit_ceil(all.count * task_.element));
  if (bytes > bytes_) {
    memory_.reserve(memory_.size() + 1);
    memory_.push_back(device_.allocate(bytes));
    bytes_ = bytes;
  }
  std::byte* const vector = static_cast<std::byte*>(memory_.back());
  copy_there(device_, *call_, arena_.self(), vector, stream_);
  device_.record(done_, stream_);
  const auto shown = [&](bool keep) {
    const Range range = task_.held(arena_.self(), keep);
    if (range.count == 0) return RemoteBuffer{};
    const auto found = peers_.show(element_at(vector, range.first, task_.element));
    if (!found) throw Error(Errc::system, "memory of this rank's GPU cannot be shared with other processes any more");
    return *found;
  };
  own_ = shown(false);
  keep_ = shown(true);
}

void KernelsWay::publish() {
  BufferRecord& record = arena_.gpu_block(arena_.self()).buffers;
  record.own.store(own_.address, std::memory_order_relaxed);
  record.own_name.store(own_.name, std::memory_order_relaxed);
  record.keep.store(keep_.address, std::memory_order_relaxed);
  record.keep_name.store(keep_.name, std::memory_order_relaxed);
  record.tag.store(job_->tag, std::memory_order_release);
  peer_ = 0;
}

bool KernelsWay::all_have_come() {
  for (; peer_ < arena_.ranks(); ++peer_)
    if (!has_come(arena_.gpu_block(peer_).buffers.tag.load(std::memory_order_acquire), job_->tag, peer_)) return false;
  return true;
}

bool KernelsWay::all_have_worked() {
  for (; peer_ < arena_.ranks(); ++peer_)
    if (arena_.gpu_block(peer_).worked.value.load(std::memory_order_acquire) != job_->tag) return false;
  return true;
}

void KernelsWay::find_buffers() {
  for (int rank = 0; rank < arena_.ranks(); ++rank) {
    const BufferRecord& record = arena_.gpu_block(rank).buffers;
    const auto at = [&](std::uint64_t address, std::uint64_t name, bool keep) -> std::byte* {
      if (address == 0) return nullptr;
      const std::size_t before = task_.held(rank, keep).first * task_.element;
      return reinterpret_cast<std::byte*>(reinterpret_cast<std::uintptr_t>(peers_.pointer(rank, {address, name})) -
                                          before);
    };
    buffers_[static_cast<std::size_t>(rank)] = {
        at(record.own.load(std::memory_order_relaxed), record.own_name.load(std::memory_order_relaxed), false),
        at(record.keep.load(std::memory_order_relaxed), record.keep_name.load(std::memory_order_relaxed), true)};
  }
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
  for (std::byte* const out : left)
    if (out != made) device_.copy(out, made, bytes, stream_);
}

}  // namespace collectives
