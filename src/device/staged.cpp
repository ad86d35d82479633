#include "device/staged.hpp"

#include <algorithm>
#include <bit>
#include <mutex>
#include <utility>
#include <vector>

#include "device/settle.hpp"
#include "device/side_by_side.hpp"
#include "execution/job.hpp"
#include "planning/planned_call.hpp"

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
  const auto patience = call_ != nullptr ? kSettleAfterFailure : kSettleAtEnd;
  const bool idle = settles(device_, stream_, there_, patience) && settles(device_, stream_back_, back_, patience);
  device_.end_event(there_);
  device_.end_event(back_);
  device_.end_stream(stream_);
  device_.end_stream(stream_back_);
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
  stream_back_ = device_.new_stream();
}

void StagedWay::make_room() {
  const std::size_t bytes = planned_->signature.count * size_of(planned_->signature.type);
  if (bytes <= memory_.size()) return;
  if (memory_.size() > 0) device_.unpin(memory_.data());
  memory_ = {};
  memory_ = SharedMemory(std::max(kPage, std::bit_ceil(bytes)), kPage);
  device_.pin(memory_.data(), memory_.size());
}

/// Where the executor performs rounds, and all of them need all of the caller's buffers.
bool StagedWay::copies_by_round() const noexcept {
  return call_->call.collective == Collective::all_reduce && planned_->plan.rounds > 1 && job_->at_once == nullptr &&
         call_->tensors.empty() && call_->tensor == nullptr;
}

void StagedWay::copy_in() {
  if (call_->stream) device_.wait(stream_, call_->ready);
  if (copies_by_round()) {
    by_round_.start(
        *job_,
        {.from = job_->input, .to = job_->output, .here = memory_.data(), .there = stream_, .back = stream_back_});
    job_->feed = &by_round_;
  } else {
    copy_there(device_, *call_, rank_, memory_.data(), stream_);
    device_.record(there_, stream_);
  }
  job_->input = job_->output = memory_.data();
  job_->host.source = job_->host.destination = memory_.data();
}

void StagedWay::copy_out() {
  if (job_->feed != nullptr)
    by_round_.done(planned_->plan.rounds);
  else
    copy_back(device_, *call_, rank_, memory_.data(), planned_->plan.coded, stream_back_);
  device_.record(back_, stream_back_);
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
      if (job_->feed == nullptr && !device_.reached(there_)) return Turn::gpu;
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
  if (stream_ == nullptr) return;
  settles(device_, stream_, there_, kSettleAfterFailure);
  settles(device_, stream_back_, back_, kSettleAfterFailure);
}

}  // namespace collectives
