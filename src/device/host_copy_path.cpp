// Implementation of HostCopyPath, which performs calls on GPU memory through CPU memory.
//
// The path copies the input from the GPU to a buffer in pinned memory, which is CPU memory that the GPU can access. The
// executor then performs the call on this buffer, like any call on CPU memory. Finally, the path copies the result back
// to the GPU. In a long all-reduce, the copies overlap with the work of the executor (pipelined_copy.hpp).
//
// The copies run in two GPU streams, queues of work for the GPU. The path never waits for the streams. Instead, each
// call of progress() asks the GPU whether a copy is done.
#include "device/host_copy_path.hpp"

#include <algorithm>
#include <bit>
#include <mutex>
#include <utility>
#include <vector>

#include "device/drain_stream.hpp"
#include "device/pack.hpp"
#include "execution/job.hpp"
#include "planning/planned_call.hpp"

namespace collectives {
namespace {

constexpr std::size_t kPage = 4096;  // Page size in bytes. Only whole pages are pinned.

/// Keeps memory mapped until the process ends. Reason: a GPU that did not finish its copy in time may still write to
/// the memory.
void leak(SharedMemory memory) {
  static std::mutex mutex;
  static std::vector<SharedMemory> kept;
  const std::lock_guard lock(mutex);
  kept.push_back(std::move(memory));
}

}  // namespace

HostCopyPath::~HostCopyPath() {
  if (stream_ == nullptr) return;
  const auto patience = call_ != nullptr ? kDrainTimeoutAfterFailure : kDrainTimeout;
  const bool idle = drain_stream(device_, stream_, input_copied_, patience) &&
                    drain_stream(device_, stream_back_, output_copied_, patience);
  device_.end_event(input_copied_);
  device_.end_event(output_copied_);
  device_.end_stream(stream_);
  device_.end_stream(stream_back_);
  if (memory_.size() == 0) return;
  if (idle)
    device_.unpin(memory_.data());
  else
    leak(std::move(memory_));
}

void HostCopyPath::start(const DeviceCall& call, const PlannedCall& planned, Job& job) {
  call_ = &call;
  planned_ = &planned;
  job_ = &job;
  phase_ = Phase::grow_buffer;
  if (stream_ != nullptr) return;
  input_copied_ = device_.new_event();
  output_copied_ = device_.new_event();
  stream_ = device_.new_stream();
  stream_back_ = device_.new_stream();
}

void HostCopyPath::grow_buffer() {
  const std::size_t bytes = planned_->signature.count * size_of(planned_->signature.type);
  if (bytes <= memory_.size()) return;
  if (memory_.size() > 0) device_.unpin(memory_.data());
  memory_ = {};
  memory_ = SharedMemory(std::max(kPage, std::bit_ceil(bytes)), kPage);
  device_.pin(memory_.data(), memory_.size());
}

/// Returns true if the copies of this call overlap with its rounds. A round is the work of the executor on one segment
/// of the vector.
bool HostCopyPath::copies_pipelined() const noexcept {
  return call_->call.collective == Collective::all_reduce && planned_->plan.rounds > 1 &&
         job_->single_step == nullptr && call_->tensors.empty() && call_->tensor == nullptr;
}

void HostCopyPath::copy_in() {
  if (call_->stream) device_.wait(stream_, call_->ready);
  if (copies_pipelined()) {
    pipelined_copy_.start(*job_, {.from = job_->input,
                                  .to = job_->output,
                                  .pinned = memory_.data(),
                                  .to_host = stream_,
                                  .to_device = stream_back_});
    job_->input_stream = &pipelined_copy_;
  } else {
    pack_input(device_, *call_, rank_, memory_.data(), stream_);
    device_.record(input_copied_, stream_);
  }
  job_->input = job_->output = memory_.data();
  job_->host.source = job_->host.destination = memory_.data();
}

void HostCopyPath::copy_out() {
  if (job_->input_stream != nullptr)
    pipelined_copy_.done(planned_->plan.rounds);
  else
    unpack_output(device_, *call_, rank_, memory_.data(), planned_->plan.coded, stream_back_);
  device_.record(output_copied_, stream_back_);
}

PathExecutor::PathState HostCopyPath::progress() {
  switch (phase_) {
    case Phase::grow_buffer:
      // The previous operation may still copy from the buffer.
      if (!device_.reached(output_copied_)) return PathState::gpu;
      grow_buffer();
      copy_in();
      ++moves_;
      phase_ = Phase::copied_in;
      [[fallthrough]];
    case Phase::copied_in:
      if (job_->input_stream == nullptr && !device_.reached(input_copied_)) return PathState::gpu;
      ++moves_;
      phase_ = Phase::performed;
      return PathState::host;
    case Phase::performed:
      copy_out();
      ++moves_;
      phase_ = Phase::copied_out;
      if (call_->stream && call_->ends_in_stream) {
        device_.wait(*call_->stream, output_copied_);
        break;
      }
      [[fallthrough]];
    case Phase::copied_out:
      if (!device_.reached(output_copied_)) return PathState::gpu;
      ++moves_;
      break;
  }
  call_ = nullptr;
  return PathState::done;
}

/// Waits at most 200 ms for each stream, so that the GPU has usually ended its copies from and to the program's
/// buffers. After this wait, the program receives the error, and may free its buffers.
void HostCopyPath::abandon() noexcept {
  if (stream_ == nullptr) return;
  drain_stream(device_, stream_, input_copied_, kDrainTimeoutAfterFailure);
  drain_stream(device_, stream_back_, output_copied_, kDrainTimeoutAfterFailure);
}

}  // namespace collectives
