// Buffers in GPU memory for conformance suites. They lie on the GPU of the calling thread, a fake or a real one. Every
// second call passes a stream.
#pragma once

#include <bit>
#include <chrono>
#include <cstddef>
#include <cstring>
#include <map>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "device/loader.hpp"
#include "support/subject.hpp"

namespace collectives::testing {

class BuffersOnGpu final : public BufferPlacement {
 public:
  BuffersOnGpu() {
    std::string why_not;
    device_ = find_device(why_not);
    if (!device_) throw std::runtime_error(why_not);
    stream_ = device_->new_stream();
    own_ = device_->new_stream();
    event_ = device_->new_event();
  }
  ~BuffersOnGpu() override {
    wait(stream_);
    for (const auto& [bytes, memory] : free_) device_->free(memory);
    for (const Pinned& pinned : in_stream_) device_->free_pinned(pinned.memory);
    if (between_.memory != nullptr) device_->free_pinned(between_.memory);
    device_->end_event(event_);
    device_->end_stream(own_);
    device_->end_stream(stream_);
  }

  /// Returns GPU memory. Reuses memory that was given back, because a real GPU waits in every allocation.
  std::byte* take(std::size_t bytes) override {
    const auto found = free_.find(bytes);
    auto* const memory =
        found != free_.end() ? free_.extract(found).mapped() : static_cast<std::byte*>(device_->allocate(bytes));
    taken_.emplace(memory, bytes);
    return memory;
  }
  void give_back(std::byte* memory) override {
    const auto found = taken_.find(memory);
    free_.emplace(found->second, memory);
    taken_.erase(found);
  }
  void upload(std::byte* to, const void* from, std::size_t bytes, std::optional<void*> stream) override {
    if (stream && used_in_stream_ == in_stream_.size()) in_stream_.emplace_back();
    Pinned& pinned = stream ? in_stream_[used_in_stream_++] : between_;
    std::memcpy(grow(pinned, bytes), from, bytes);
    device_->copy(to, pinned.memory, bytes, stream ? *stream : own_);
    if (!stream) wait(own_);
  }
  void download(void* to, const std::byte* from, std::size_t bytes, std::optional<void*> stream) override {
    Device::Stream const in = stream ? *stream : own_;
    if (bytes > 0) device_->copy(grow(between_, bytes), from, bytes, in);
    wait(in);
    if (bytes > 0) std::memcpy(to, between_.memory, bytes);
    if (stream) used_in_stream_ = 0;
  }
  std::optional<void*> next_stream() override {
    return ++calls_ % 2 == 0 ? std::optional<void*>(stream_) : std::nullopt;
  }

 private:
  struct Pinned {
    std::byte* memory = nullptr;
    std::size_t bytes = 0;
  };
  /// Returns `bytes` of pinned memory. The previous content must no longer be in use.
  std::byte* grow(Pinned& pinned, std::size_t bytes) {
    if (pinned.bytes >= bytes) return pinned.memory;
    if (pinned.memory != nullptr) device_->free_pinned(pinned.memory);
    pinned = {};
    pinned = {static_cast<std::byte*>(device_->allocate_pinned(std::bit_ceil(bytes))), std::bit_ceil(bytes)};
    return pinned.memory;
  }
  void wait(Device::Stream stream) {
    device_->record(event_, stream);
    while (!device_->reached(event_)) std::this_thread::sleep_for(std::chrono::microseconds(20));
  }

  std::unique_ptr<Device> device_;
  Device::Stream stream_ = nullptr, own_ = nullptr;
  Device::Event event_ = nullptr;
  std::multimap<std::size_t, std::byte*> free_;
  std::map<std::byte*, std::size_t> taken_;
  Pinned between_;                 // pinned memory for copies that are complete when the function returns
  std::vector<Pinned> in_stream_;  // pinned memory for other copies, in use until download() has waited
  std::size_t used_in_stream_ = 0;
  unsigned calls_ = 0;
};

}  // namespace collectives::testing
