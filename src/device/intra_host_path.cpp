// Implementation of the base of device paths that access the memory of other GPUs: preparing and publishing buffers,
// the two synchronizations, and a rank's share.
//
// A share is the range of the vector that one rank processes. A rank shows a buffer by the name under which peers can
// open it. The flag remote_access says that this rank works in buffers of its peers.
#include "device/intra_host_path.hpp"

#include <algorithm>
#include <bit>
#include <span>

#include "collectives/error.hpp"
#include "device/drain_stream.hpp"
#include "device/pack.hpp"
#include "shared_memory/host_operands.hpp"

namespace collectives {
namespace {

constexpr std::size_t kLeastBytes = 64 << 10;

}  // namespace

IntraHostPath::~IntraHostPath() {
  if (stream_ == nullptr) return;
  const bool idle = drained();
  if (idle) end_remote_access();
  device_.end_event(done_);
  device_.end_stream(stream_);
  if (!idle) {
    peers_->leak_mappings();
    return;
  }
  for (void* memory : memory_) device_.free(memory);
}

bool IntraHostPath::drained() noexcept {
  return stream_ == nullptr ||
         drain_stream(device_, stream_, done_, call_ != nullptr ? kDrainTimeoutAfterFailure : kDrainTimeout);
}

void IntraHostPath::begin(const DeviceCall& call, const std::byte* input, std::byte* output, std::uint64_t tag) {
  call_ = &call;
  input_ = input;
  output_ = output;
  tag_ = tag;
  packed_ = left_ = unpacking_ = false;
  if (stream_ != nullptr) return;
  buffers_.resize(static_cast<std::size_t>(arena_.ranks()));
  done_ = device_.new_event();
  stream_ = device_.new_stream();
}

void IntraHostPath::abandon() noexcept {
  if (stream_ != nullptr && drain_stream(device_, stream_, done_, kDrainTimeoutAfterFailure)) end_remote_access();
}

// ---- preparing the buffers ----

void IntraHostPath::prepare_shared() {
  packed_ = !show_buffers();
  if (!packed_) return;
  pack_vectors();
  own_ = shown(vector(), false);
  keep_ = shown(vector(), true);
}

void IntraHostPath::bind_step_buffers(const std::byte* source, std::byte* destination, std::uint64_t tag) {
  own_ = shown(source, false);
  keep_ = shown(destination, true);
  tag_ = tag;
}

RemoteBuffer IntraHostPath::shown(const std::byte* from_element_0, bool destination) {
  const Range range = task_.held(arena_.self(), destination);
  if (range.count == 0 || from_element_0 == nullptr) return {};
  return peers_->show_for_certain(element_at(from_element_0, range.first, task_.element));
}

void IntraHostPath::prepare_local() {
  own_ = keep_ = {};
  const auto lies_well = [&](const std::byte* at) { return reinterpret_cast<std::uintptr_t>(at) % task_.element == 0; };
  packed_ = !call_->tensors.empty() || !lies_well(input_) || !lies_well(output_);
  if (packed_) pack_vectors();
}

void IntraHostPath::prepare_for_steps() {
  const Sides sides = sides_of(call_->call, rank_);
  const auto can_be_read = [&](const void* at) {
    return reinterpret_cast<std::uintptr_t>(at) % task_.element == 0 &&
           peers_->show(static_cast<const std::byte*>(at)).has_value();
  };
  packed_ = !call_->tensors.empty() || (sides.input && !can_be_read(call_->call.input.data)) ||
            (sides.output && !can_be_read(call_->call.output.data));
  if (packed_) pack_vectors();
}

/// Returns false if the peers cannot access the caller's buffers.
bool IntraHostPath::show_buffers() {
  if (!call_->tensors.empty()) return false;
  const Sides sides = sides_of(call_->call, rank_);
  const auto source = sides.input ? show(input_, false) : RemoteBuffer{};
  const auto destination = sides.output ? show(output_, true) : RemoteBuffer{};
  if (!source || !destination) return false;
  own_ = *source;
  keep_ = *destination;
  return true;
}

std::optional<RemoteBuffer> IntraHostPath::show(const std::byte* from_element_0, bool destination) {
  const Range range = task_.held(arena_.self(), destination);
  if (range.count == 0) return RemoteBuffer{};
  const std::byte* const first = element_at(from_element_0, range.first, task_.element);
  if (task_.combines() && reinterpret_cast<std::uintptr_t>(first) % task_.element != 0) return std::nullopt;
  return peers_->show(first);
}

void IntraHostPath::pack_vectors() {
  Range all{};
  for (const Range& slice : task_.slices) all.count = std::max(all.count, slice.first + slice.count);
  const std::size_t bytes = std::max(kLeastBytes, std::bit_ceil(all.count * task_.element));
  if (bytes > bytes_) {
    memory_.reserve(memory_.size() + 1);
    memory_.push_back(device_.allocate(bytes));
    bytes_ = bytes;
  }
  pack_input(device_, *call_, rank_, vector(), stream_);
  device_.record(done_, stream_);
}

void IntraHostPath::publish(bool objects) {
  BufferRecord& record = sync_block(arena_.self()).buffers;
  record.objects.store(objects, std::memory_order_relaxed);
  record.source.store(own_.address, std::memory_order_relaxed);
  record.source_name.store(own_.name, std::memory_order_relaxed);
  record.destination.store(keep_.address, std::memory_order_relaxed);
  record.destination_name.store(keep_.name, std::memory_order_relaxed);
  record.tag.store(tag_, std::memory_order_release);
  peer_ = 0;
}

bool IntraHostPath::all_published() {
  for (; peer_ < arena_.ranks(); ++peer_)
    if (!tag_matches(sync_block(peer_).buffers.tag.load(std::memory_order_acquire), tag_, peer_)) return false;
  peer_ = 0;
  find_buffers();
  return true;
}

bool IntraHostPath::any_objection() const noexcept {
  for (int rank = 0; rank < arena_.ranks(); ++rank)
    if (sync_block(rank).buffers.objects.load(std::memory_order_relaxed)) return true;
  return false;
}

void IntraHostPath::publish_done() noexcept {
  sync_block(arena_.self()).worked.value.store(tag_, std::memory_order_release);
}

bool IntraHostPath::all_done() {
  for (; peer_ < arena_.ranks(); ++peer_)
    if (sync_block(peer_).worked.value.load(std::memory_order_acquire) != tag_) return false;
  peer_ = 0;
  return true;
}

/// Sets the flag before it reads the failure, as ZeroCopy::perform_unless_failed does. Either the rank that reports a
/// failure sees the flag, or this rank sees the failure.
bool IntraHostPath::begin_remote_access() noexcept {
  arena_.block(arena_.self()).remote_access.value.store(1);
  if (!arena_.failed()) return true;
  end_remote_access();
  return false;
}
void IntraHostPath::end_remote_access() noexcept { arena_.block(arena_.self()).remote_access.value.store(0); }

PathExecutor::PathState IntraHostPath::leave() {
  if (!left_ && !all_done()) return PathState::peers;
  left_ = true;
  return return_result();
}

PathExecutor::PathState IntraHostPath::return_result() {
  if (packed_ && !unpacking_) {
    unpack_output(device_, *call_, rank_, vector(), false, stream_);
    device_.record(done_, stream_);
    ++moves_;
    unpacking_ = !call_->stream || !call_->ends_in_stream;
    if (!unpacking_) device_.wait(*call_->stream, done_);
  }
  if (unpacking_ && !device_.reached(done_)) return PathState::gpu;
  ++moves_;
  call_ = nullptr;
  return PathState::done;
}

void IntraHostPath::copy_to_all(std::span<std::byte* const> to, const std::byte* from, std::size_t bytes) {
  for (std::byte* const out : to)
    if (out != from) device_.copy(out, from, bytes, stream_);
}

// ---- the share ----

void IntraHostPath::do_share(const ReduceOp& op, DataType type, bool unreduced, int finish_ranks) {
  const int self = arena_.self(), ranks = arena_.ranks();
  const Range share = task_.share(self);
  if (share.count == 0) return;
  const std::size_t bytes = share.count * task_.element;
  sources_.clear();
  outs_.clear();
  for (int rank = 0; rank < ranks; ++rank)
    if (task_.is_source(rank, self))
      sources_.push_back(
          {element_at(buffers_[static_cast<std::size_t>(rank)].source, share.first, task_.element), unreduced});
  // Each rank begins with its own destination, so that the ranks write to different destinations at a time.
  for (int turn = 0; turn < ranks; ++turn)
    if (const int rank = (self + turn) % ranks; task_.is_destination(rank, self))
      outs_.push_back(element_at(buffers_[static_cast<std::size_t>(rank)].destination, share.first, task_.element));

  // A kernel writes at most kMostOuts destinations. The rest are copies of the first one.
  std::span<std::byte* const> left(outs_);
  const std::byte* made = sources_[0].data;
  if (task_.combines()) {
    const auto at_once = left.first(std::min(left.size(), Device::kMostOuts));
    device_.fold(op, type, sources_, at_once, share.count, finish_ranks, stream_);
    left = left.subspan(at_once.size());
    made = at_once[0];
  }
  copy_to_all(left, made, bytes);
}

void IntraHostPath::find_buffers() {
  for (int rank = 0; rank < arena_.ranks(); ++rank) {
    const BufferRecord& record = sync_block(rank).buffers;
    const auto at = [&](std::uint64_t address, std::uint64_t name, bool destination) -> std::byte* {
      if (address == 0) return nullptr;
      const std::size_t before = task_.held(rank, destination).first * task_.element;
      return reinterpret_cast<std::byte*>(reinterpret_cast<std::uintptr_t>(peers_->pointer(rank, {address, name})) -
                                          before);
    };
    buffers_[static_cast<std::size_t>(rank)] = {
        at(record.source.load(std::memory_order_relaxed), record.source_name.load(std::memory_order_relaxed), false),
        at(record.destination.load(std::memory_order_relaxed), record.destination_name.load(std::memory_order_relaxed),
           true)};
  }
}

}  // namespace collectives
