// TrackedStream: a stream and an event. A stream is a queue of work for a GPU. The event tells whether work in the
// stream is done.
#pragma once

#include "device/device.hpp"
#include "device/drain_stream.hpp"

namespace collectives {

class TrackedStream {
 public:
  explicit TrackedStream(Device& device) : device_(device) {}
  /// Destroys stream and event. Work that is in the stream is still performed.
  ~TrackedStream() {
    if (stream_ == nullptr) return;
    device_.end_event(done_);
    device_.end_stream(stream_);
  }
  TrackedStream(const TrackedStream&) = delete;
  TrackedStream& operator=(const TrackedStream&) = delete;

  /// Creates stream and event, if they do not exist yet.
  void open() {
    if (stream_ != nullptr) return;
    done_ = device_.new_event();
    stream_ = device_.new_stream();
  }
  bool is_open() const noexcept { return stream_ != nullptr; }
  Device::Stream stream() const noexcept { return stream_; }
  Device::Event done() const noexcept { return done_; }
  /// Records the event after all work in the stream.
  void record() { device_.record(done_, stream_); }
  /// Returns true if the stream has reached the last recording of the event. Throws the error with which the GPU has
  /// failed.
  bool reached() { return device_.reached(done_); }
  /// Waits up to `patience` until all work in the stream is done. Returns true if it is, or if there is no stream.
  bool drain(std::chrono::milliseconds patience) noexcept {
    return stream_ == nullptr || drain_stream(device_, stream_, done_, patience);
  }

 private:
  Device& device_;
  Device::Stream stream_ = nullptr;
  Device::Event done_ = nullptr;
};

}  // namespace collectives
