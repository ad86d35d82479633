// Implementation of IntraHostCall, the common part of the device paths in which the GPUs of a host access each other's
// memory. Device paths are ways to perform calls on GPU memory.
//
// A call begins when the earlier work in the caller's stream, a queue of GPU work, is done. If other GPUs can access
// the caller's buffers, the call works on them in place. Otherwise this rank first copies its vector to memory of its
// own, which is called packing. At the end of the call, this rank waits until the GPUs of the other ranks no longer
// access the memory. It then copies the result back.
#include "device/intra_host_call.hpp"

#include <algorithm>
#include <bit>

#include "device/pack.hpp"

namespace collectives {
namespace {

/// Minimum size in bytes of the memory for packed vectors. With it, short vectors of growing length need only one
/// allocation.
constexpr std::size_t kLeastBytes = 64 << 10;

bool is_aligned(const void* address, std::size_t element) {
  return reinterpret_cast<std::uintptr_t>(address) % element == 0;
}

}  // namespace

IntraHostCall::~IntraHostCall() {
  if (!stream_.is_open()) return;
  if (!drained()) {
    exchange_.peers().leak_mappings();
    return;
  }
  exchange_.end_remote_access();
  for (void* memory : memory_) device_.free(memory);
}

bool IntraHostCall::drained() noexcept {
  return stream_.drain(call_ != nullptr ? kDrainTimeoutAfterFailure : kDrainTimeout);
}

void IntraHostCall::begin(const DeviceCall& call, const std::byte* input, std::byte* output, std::uint64_t tag) {
  call_ = &call;
  input_ = input;
  output_ = output;
  exchange_.begin(tag);
  packed_ = left_ = unpacking_ = false;
  stream_.open();
}

void IntraHostCall::abandon() noexcept {
  if (stream_.is_open() && stream_.drain(kDrainTimeoutAfterFailure)) exchange_.end_remote_access();
}

// ---- preparing the buffers ----

void IntraHostCall::prepare_shared(const HostTask& task) {
  const Sides sides = sides_of(call_->call, rank_);
  packed_ = !call_->tensors.empty() ||
            !exchange_.set_own(task, sides.input ? input_ : nullptr, sides.output ? output_ : nullptr);
  if (!packed_) return;
  pack_vectors(task);
  exchange_.set_own_shared(task, vector(), vector());
}

void IntraHostCall::prepare_local(const HostTask& task) {
  exchange_.clear_own();
  packed_ = !call_->tensors.empty() || !is_aligned(input_, task.element) || !is_aligned(output_, task.element);
  if (packed_) pack_vectors(task);
}

void IntraHostCall::prepare_for_steps(const HostTask& task) {
  const Sides sides = sides_of(call_->call, rank_);
  const auto can_be_read = [&](const void* at) {
    return is_aligned(at, task.element) && exchange_.peers().show(static_cast<const std::byte*>(at)).has_value();
  };
  packed_ = !call_->tensors.empty() || (sides.input && !can_be_read(call_->call.input.data)) ||
            (sides.output && !can_be_read(call_->call.output.data));
  if (packed_) pack_vectors(task);
}

void IntraHostCall::pack_vectors(const HostTask& task) {
  Range all{};
  for (const Range& slice : task.slices) all.count = std::max(all.count, slice.first + slice.count);
  const std::size_t bytes = std::max(kLeastBytes, std::bit_ceil(all.count * task.element));
  if (bytes > bytes_) {
    memory_.reserve(memory_.size() + 1);
    memory_.push_back(device_.allocate(bytes));
    bytes_ = bytes;
  }
  pack_input(device_, *call_, rank_, vector(), stream_.stream());
  stream_.record();
}

// ---- the end of a call ----

PathExecutor::PathState IntraHostCall::leave() {
  if (!left_ && !exchange_.all_done()) return PathState::peers;
  left_ = true;
  return return_result();
}

PathExecutor::PathState IntraHostCall::return_result() {
  if (packed_ && !unpacking_) {
    unpack_output(device_, *call_, rank_, vector(), false, stream_.stream());
    stream_.record();
    ++moves_;
    unpacking_ = !call_->stream || !call_->ends_in_stream;
    if (!unpacking_) device_.wait(*call_->stream, stream_.done());
  }
  if (unpacking_ && !stream_.reached()) return PathState::gpu;
  ++moves_;
  call_ = nullptr;
  return PathState::done;
}

}  // namespace collectives
