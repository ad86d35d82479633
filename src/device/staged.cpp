#include "device/staged.hpp"

#include <algorithm>
#include <bit>
#include <mutex>
#include <utility>
#include <vector>

#include "device/settle.hpp"
#include "device/side_by_side.hpp"
#include "operation.hpp"

namespace collectives {
namespace {

constexpr std::size_t kPage = 4096;  // what is pinned is pages, and none twice

/// What a GPU that has stopped may still write to when it goes on.
void keep_for_good(SharedMemory memory) {
  static std::mutex mutex;
  static std::vector<SharedMemory> kept;
  const std::lock_guard lock(mutex);
  kept.push_back(std::move(memory));
}

}  // namespace

StagedWay::~StagedWay() {
  if (stream_ == nullptr) return;
  const bool idle = settles(device_, stream_, back_, call_ != nullptr ? kSettleAfterFailure : kSettleAtEnd);
  device_.end_event(there_);
  device_.end_event(back_);
  device_.end_stream(stream_);
  if (memory_.size() == 0) return;
  if (idle)
    device_.unpin(memory_.data());
  else
    keep_for_good(std::move(memory_));
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
  copy_there(device_, *call_, rank_, memory_.data(), stream_);
  device_.record(there_, stream_);

  job_->input = job_->output = memory_.data();
  job_->host.own = job_->host.keep = memory_.data();
}

void StagedWay::copy_out() {
  copy_back(device_, *call_, rank_, memory_.data(), planned_->plan.coded, stream_);
  device_.record(back_, stream_);
}

DeviceWay::Turn StagedWay::advance() {
  switch (stage_) {
    case Stage::make_room:
      if (!device_.reached(back_)) return Turn::gpu;  // of the operation before: it may still read the stage
      make_room();
      copy_in();
      ++moves_;
      stage_ = Stage::copied_in;
      [[fallthrough]];
    case Stage::copied_in:
      if (!device_.reached(there_)) return Turn::gpu;
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
      if (!device_.reached(back_)) return Turn::gpu;
      ++moves_;
      break;
  }
  call_ = nullptr;
  return Turn::done;
}

/// Copies from and to the caller's buffers are mostly over before the caller is told.
void StagedWay::abandon() noexcept {
  if (stream_ != nullptr) settles(device_, stream_, back_, kSettleAfterFailure);
}

}  // namespace collectives
