// Implementation of TopKPath, which performs an all-reduce with top-k on a gradient in GPU memory. Top-k sends only the
// k elements of greatest magnitude.
//
// A call has three phases. First, the GPU selects elements, after it has done the earlier work in the caller's stream,
// a queue of GPU work. Then the CPUs of all ranks exchange the selected elements. Finally, the GPU adds the elements of
// all ranks.
#include "device/top_k_path.hpp"

#include <utility>

#include "device/drain_stream.hpp"
#include "execution/job.hpp"
#include "planning/planned_call.hpp"

namespace collectives {

TopKPath::TopKPath(std::shared_ptr<Device> device) : device_(std::move(device)), top_k_(device_) {}

TopKPath::~TopKPath() {
  if (stream_ == nullptr) return;
  if (!drain_stream(*device_, stream_, done_, call_ != nullptr ? kDrainTimeoutAfterFailure : kDrainTimeout))
    top_k_.leak();
  device_->end_event(done_);
  device_->end_stream(stream_);
}

void TopKPath::start(const DeviceCall& call, const PlannedCall& planned, Job& job) {
  call_ = &call;
  planned_ = &planned;
  // The addresses are stored now, because the phases of the exchange overwrite the job.
  gradient_ = reinterpret_cast<const float*>(job.input);
  sum_ = reinterpret_cast<float*>(job.output);
  phase_ = Phase::beginning;
  if (stream_ != nullptr) return;
  done_ = device_->new_event();
  stream_ = device_->new_stream();
}

PathExecutor::PathState TopKPath::progress() {
  switch (phase_) {
    case Phase::beginning:
      // The previous call may still write its rounding errors to the residual.
      if (!device_->reached(done_)) return PathState::gpu;
      if (call_->stream && !device_->reached(call_->ready)) return PathState::gpu;
      top_k_.begin(*call_->tensor, *planned_->sparse, 0, stream_);
      top_k_.choose(gradient_);
      device_->record(done_, stream_);
      ++moves_;
      phase_ = Phase::choosing;
      [[fallthrough]];
    case Phase::choosing:
      if (!device_->reached(done_)) return PathState::gpu;
      top_k_.publish_selection();
      ++moves_;
      phase_ = Phase::exchanging;
      return PathState::host;
    case Phase::exchanging:
      top_k_.add_up(sum_);
      device_->record(done_, stream_);
      ++moves_;
      phase_ = Phase::adding;
      [[fallthrough]];
    case Phase::adding:
      if (!device_->reached(done_)) return PathState::gpu;
      top_k_.publish_sum();
      device_->record(done_, stream_);
      ++moves_;
      break;
  }
  call_ = nullptr;
  return PathState::done;
}

void TopKPath::abandon() noexcept {
  if (stream_ == nullptr) return;
  top_k_.take_back();
  drain_stream(*device_, stream_, done_, kDrainTimeoutAfterFailure);
}

}  // namespace collectives
