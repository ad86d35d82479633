#include "device/staged.hpp"

#include <algorithm>
#include <bit>
#include <chrono>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "operation.hpp"

namespace collectives {
namespace {

constexpr std::size_t kPage = 4096;  // what is pinned is pages, and none twice
constexpr std::chrono::milliseconds kPatience{10'000}, kPatienceWithFailure{200};

/// What a GPU that has stopped may still write to when it goes on.
void keep_for_good(SharedMemory memory) {
  static std::mutex mutex;
  static std::vector<SharedMemory> kept;
  const std::lock_guard lock(mutex);
  kept.push_back(std::move(memory));
}

}  // namespace

bool StagedWay::settle(std::chrono::milliseconds patience) noexcept {
  const auto until = std::chrono::steady_clock::now() + patience;
  try {
    device_.record(back_, stream_);
    for (;; std::this_thread::sleep_for(std::chrono::microseconds(50))) {
      if (device_.reached(back_)) return true;
      if (std::chrono::steady_clock::now() >= until) return false;
    }
  } catch (const std::exception&) {  // a GPU that has failed does nothing any more, but who knows
    return false;
  }
}

StagedWay::~StagedWay() {
  if (stream_ == nullptr) return;
  const bool idle = settle(call_ != nullptr ? kPatienceWithFailure : kPatience);
  device_.end_event(there_);
  device_.end_event(back_);
  device_.end_stream(stream_);
  if (memory_.size() == 0) return;
  if (idle)
    device_.unpin(memory_.data());
  else
    keep_for_good(std::move(memory_));
}

std::byte* StagedWay::staged(std::size_t element) const {
  return memory_.data() + element * size_of(planned_->signature.type);
}

void StagedWay::start(const DeviceCall& call, const PlannedCall& planned, Job& job) {
  call_ = &call;
  planned_ = &planned;
  job_ = &job;
  stage_ = Stage::make_room;
  if (stream_ != nullptr) return;
  there_ = device_.new_event();
  back_ = device_.new_event();
  stream_ = device_.new_stream();
}

void StagedWay::make_room() {
  const std::size_t bytes = planned_->signature.count * size_of(planned_->signature.type);
  if (bytes <= memory_.size()) return;
  if (memory_.size() > 0) device_.unpin(memory_.data());
  memory_ = {};
  memory_ = SharedMemory(std::max(kPage, std::bit_ceil(bytes)), kPage);
  device_.pin(memory_.data(), memory_.size());
}

void StagedWay::copy_in() {
  if (call_->stream) device_.wait(stream_, call_->ready);
  const Call& call = call_->call;
  std::size_t at = call.collective == Collective::all_gather ? call_->mine : 0;
  const auto copy = [&](const ConstBuffer& from) {
    if (from.count > 0) device_.copy(staged(at), from.data, from.bytes(), stream_);
    at += from.count;
  };
  for (const Tensor& tensor : call_->tensors) copy(tensor.input);
  if (call_->tensors.empty() && sides_of(call, rank_).input) copy(call.input);
  device_.record(there_, stream_);

  job_->input = job_->output = memory_.data();
  job_->host.own = job_->host.keep = memory_.data();
}

void StagedWay::copy_out() {
  const Call& call = call_->call;
  std::size_t at = call.collective == Collective::reduce_scatter ? call_->mine : 0;
  const auto copy = [&](const Buffer& to) {
    if (to.count > 0) device_.copy(to.data, staged(at), to.bytes(), stream_);
    at += to.count;
  };
  for (const Tensor& tensor : call_->tensors) copy(tensor.output);
  // What a root has broadcast in place is there.
  const bool there =
      call.collective == Collective::broadcast && rank_ == call.root && call.input.data == call.output.data;
  if (call_->tensors.empty() && sides_of(call, rank_).output && !there) copy(call.output);
  device_.record(back_, stream_);
}

DeviceWay::Turn StagedWay::advance() {
  switch (stage_) {
    case Stage::make_room:
      if (!device_.reached(back_)) return Turn::wait;  // of the operation before: it may still read the stage
      make_room();
      copy_in();
      ++moves_;
      stage_ = Stage::copied_in;
      [[fallthrough]];
    case Stage::copied_in:
      if (!device_.reached(there_)) return Turn::wait;
      ++moves_;
      stage_ = Stage::performed;
      return Turn::host;
    case Stage::performed:
      copy_out();
      ++moves_;
      stage_ = Stage::copied_out;
      if (call_->stream && call_->ends_in_stream) {
        device_.wait(*call_->stream, back_);
        break;
      }
      [[fallthrough]];
    case Stage::copied_out:
      if (!device_.reached(back_)) return Turn::wait;
      ++moves_;
      break;
  }
  call_ = nullptr;
  return Turn::done;
}

/// Copies from and to the caller's buffers are mostly over before the caller is told.
void StagedWay::abandon() noexcept {
  if (stream_ != nullptr) settle(kPatienceWithFailure);
}

}  // namespace collectives
