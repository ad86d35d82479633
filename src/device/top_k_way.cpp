#include "device/top_k_way.hpp"

#include <utility>

#include "device/settle.hpp"
#include "execution/job.hpp"
#include "planning/planned_call.hpp"

namespace collectives {

TopKWay::TopKWay(std::shared_ptr<Device> device) : device_(std::move(device)), top_k_(device_) {}

TopKWay::~TopKWay() {
  if (stream_ == nullptr) return;
  if (!settles(*device_, stream_, done_, call_ != nullptr ? kSettleAfterFailure : kSettleAtEnd)) top_k_.keep_for_good();
  device_->end_event(done_);
  device_->end_stream(stream_);
}

void TopKWay::start(const DeviceCall& call, const PlannedCall& planned, Job& job) {
  call_ = &call;
  planned_ = &planned;
  gradient_ = reinterpret_cast<const float*>(job.input);  // the job becomes that of one stage after the other
  sum_ = reinterpret_cast<float*>(job.output);
  phase_ = Phase::beginning;
  if (stream_ != nullptr) return;
  done_ = device_->new_event();
  stream_ = device_->new_stream();
}

DeviceWay::Turn TopKWay::advance() {
  switch (phase_) {
    case Phase::beginning:
      if (!device_->reached(done_)) return Turn::gpu;  // what the call before keeps of its roundings
      if (call_->stream && !device_->reached(call_->ready)) return Turn::gpu;
      top_k_.begin(*call_->tensor, *planned_->sparse, 0, stream_);
      top_k_.choose(gradient_);
      device_->record(done_, stream_);
      ++moves_;
      phase_ = Phase::choosing;
      [[fallthrough]];
    case Phase::choosing:
      if (!device_->reached(done_)) return Turn::gpu;
      top_k_.tell_chosen();
      ++moves_;
      phase_ = Phase::exchanging;
      return Turn::host;
    case Phase::exchanging:
      top_k_.add_up(sum_);
      device_->record(done_, stream_);
      ++moves_;
      phase_ = Phase::adding;
      [[fallthrough]];
    case Phase::adding:
      if (!device_->reached(done_)) return Turn::gpu;
      top_k_.tell_added();
      device_->record(done_, stream_);
      ++moves_;
      break;
  }
  call_ = nullptr;
  return Turn::done;
}

void TopKWay::abandon() noexcept {
  if (stream_ == nullptr) return;
  top_k_.take_back();
  settles(*device_, stream_, done_, kSettleAfterFailure);
}

}  // namespace collectives
