#include "device/in_host.hpp"

#include <algorithm>
#include <bit>
#include <span>

#include "collectives/error.hpp"
#include "device/settle.hpp"
#include "device/side_by_side.hpp"
#include "shared_memory/host_operands.hpp"

namespace collectives {
namespace {

constexpr std::size_t kLeastBytes = 64 << 10;

}  // namespace

InHostWay::~InHostWay() {
  if (stream_ == nullptr) return;
  const bool idle = settled();
  if (idle) let_go();
  device_.end_event(done_);
  device_.end_stream(stream_);
  if (!idle) {
    peers_->keep_open();
    return;
  }
  for (void* memory : memory_) device_.free(memory);
}

bool InHostWay::settled() noexcept {
  return stream_ == nullptr || settles(device_, stream_, done_, call_ != nullptr ? kSettleAfterFailure : kSettleAtEnd);
}

void InHostWay::begin(const DeviceCall& call, const std::byte* input, std::byte* output, std::uint64_t tag) {
  call_ = &call;
  input_ = input;
  output_ = output;
  tag_ = tag;
  side_by_side_ = left_ = copying_back_ = false;
  if (stream_ != nullptr) return;
  buffers_.resize(static_cast<std::size_t>(arena_.ranks()));
  done_ = device_.new_event();
  stream_ = device_.new_stream();
}

void InHostWay::abandon() noexcept {
  if (stream_ != nullptr && settles(device_, stream_, done_, kSettleAfterFailure)) let_go();
}

// ---- where the buffers are ----

void InHostWay::come() {
  side_by_side_ = !show_buffers();
  if (!side_by_side_) return;
  lay_side_by_side();
  own_ = shown(vector(), false);
  keep_ = shown(vector(), true);
}

void InHostWay::come_to_step(const std::byte* source, std::byte* destination, std::uint64_t tag) {
  own_ = shown(source, false);
  keep_ = shown(destination, true);
  tag_ = tag;
}

RemoteBuffer InHostWay::shown(const std::byte* from_element_0, bool destination) {
  const Range range = task_.held(arena_.self(), destination);
  if (range.count == 0 || from_element_0 == nullptr) return {};
  return peers_->show_for_certain(element_at(from_element_0, range.first, task_.element));
}

void InHostWay::come_unseen() {
  own_ = keep_ = {};
  const auto lies_well = [&](const std::byte* at) { return reinterpret_cast<std::uintptr_t>(at) % task_.element == 0; };
  side_by_side_ = !call_->tensors.empty() || !lies_well(input_) || !lies_well(output_);
  if (side_by_side_) lay_side_by_side();
}

void InHostWay::come_for_steps() {
  const Sides sides = sides_of(call_->call, rank_);
  const auto can_be_read = [&](const void* at) {
    return reinterpret_cast<std::uintptr_t>(at) % task_.element == 0 &&
           peers_->show(static_cast<const std::byte*>(at)).has_value();
  };
  side_by_side_ = !call_->tensors.empty() || (sides.input && !can_be_read(call_->call.input.data)) ||
                  (sides.output && !can_be_read(call_->call.output.data));
  if (side_by_side_) lay_side_by_side();
}

/// False where others cannot reach them.
bool InHostWay::show_buffers() {
  if (!call_->tensors.empty()) return false;
  const Sides sides = sides_of(call_->call, rank_);
  const auto source = sides.input ? show(input_, false) : RemoteBuffer{};
  const auto destination = sides.output ? show(output_, true) : RemoteBuffer{};
  if (!source || !destination) return false;
  own_ = *source;
  keep_ = *destination;
  return true;
}

std::optional<RemoteBuffer> InHostWay::show(const std::byte* from_element_0, bool destination) {
  const Range range = task_.held(arena_.self(), destination);
  if (range.count == 0) return RemoteBuffer{};
  const std::byte* const first = element_at(from_element_0, range.first, task_.element);
  if (task_.combines() && reinterpret_cast<std::uintptr_t>(first) % task_.element != 0) return std::nullopt;
  return peers_->show(first);
}

void InHostWay::lay_side_by_side() {
  Range all{};
  for (const Range& slice : task_.slices) all.count = std::max(all.count, slice.first + slice.count);
  const std::size_t bytes = std::max(kLeastBytes, std::bit_ceil(all.count * task_.element));
  if (bytes > bytes_) {
    memory_.reserve(memory_.size() + 1);
    memory_.push_back(device_.allocate(bytes));
    bytes_ = bytes;
  }
  copy_there(device_, *call_, rank_, vector(), stream_);
  device_.record(done_, stream_);
}

void InHostWay::publish(bool objects) {
  BufferRecord& record = met(arena_.self()).buffers;
  record.objects.store(objects, std::memory_order_relaxed);
  record.source.store(own_.address, std::memory_order_relaxed);
  record.source_name.store(own_.name, std::memory_order_relaxed);
  record.destination.store(keep_.address, std::memory_order_relaxed);
  record.destination_name.store(keep_.name, std::memory_order_relaxed);
  record.tag.store(tag_, std::memory_order_release);
  peer_ = 0;
}

bool InHostWay::all_have_come() {
  for (; peer_ < arena_.ranks(); ++peer_)
    if (!has_come(met(peer_).buffers.tag.load(std::memory_order_acquire), tag_, peer_)) return false;
  peer_ = 0;
  find_buffers();
  return true;
}

bool InHostWay::somebody_objects() const noexcept {
  for (int rank = 0; rank < arena_.ranks(); ++rank)
    if (met(rank).buffers.objects.load(std::memory_order_relaxed)) return true;
  return false;
}

void InHostWay::say_that_it_worked() noexcept {
  met(arena_.self()).worked.value.store(tag_, std::memory_order_release);
}

bool InHostWay::all_have_worked() {
  for (; peer_ < arena_.ranks(); ++peer_)
    if (met(peer_).worked.value.load(std::memory_order_acquire) != tag_) return false;
  peer_ = 0;
  return true;
}

/// Seen before the look at the failure, as in ZeroCopy::perform_unless_failed: whoever raised the failure sees the
/// flag, or this sees the failure.
bool InHostWay::touch() noexcept {
  arena_.block(arena_.self()).remote_access.value.store(1);
  if (!arena_.failed()) return true;
  let_go();
  return false;
}
void InHostWay::let_go() noexcept { arena_.block(arena_.self()).remote_access.value.store(0); }

DeviceWay::Turn InHostWay::leave() {
  if (!left_ && !all_have_worked()) return Turn::peers;
  left_ = true;
  return bring_back();
}

DeviceWay::Turn InHostWay::bring_back() {
  if (side_by_side_ && !copying_back_) {
    copy_back(device_, *call_, rank_, vector(), false, stream_);
    device_.record(done_, stream_);
    ++moves_;
    copying_back_ = !call_->stream || !call_->ends_in_stream;
    if (!copying_back_) device_.wait(*call_->stream, done_);
  }
  if (copying_back_ && !device_.reached(done_)) return Turn::gpu;
  ++moves_;
  call_ = nullptr;
  return Turn::done;
}

void InHostWay::give(std::span<std::byte* const> to, const std::byte* from, std::size_t bytes) {
  for (std::byte* const out : to)
    if (out != from) device_.copy(out, from, bytes, stream_);
}

// ---- the share ----

void InHostWay::do_share(const ReduceOp& op, DataType type, bool unreduced, int finish_ranks) {
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
  for (int turn = 0; turn < ranks; ++turn)  // mine first, and not everyone's at the same destination
    if (const int rank = (self + turn) % ranks; task_.is_destination(rank, self))
      outs_.push_back(element_at(buffers_[static_cast<std::size_t>(rank)].destination, share.first, task_.element));

  // What a kernel cannot write to at once goes there from what it has written.
  std::span<std::byte* const> left(outs_);
  const std::byte* made = sources_[0].data;
  if (task_.combines()) {
    const auto at_once = left.first(std::min(left.size(), Device::kMostOuts));
    device_.fold(op, type, sources_, at_once, share.count, finish_ranks, stream_);
    left = left.subspan(at_once.size());
    made = at_once[0];
  }
  give(left, made, bytes);
}

void InHostWay::find_buffers() {
  for (int rank = 0; rank < arena_.ranks(); ++rank) {
    const BufferRecord& record = met(rank).buffers;
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
