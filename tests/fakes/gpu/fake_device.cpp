// Implementation of the fake GPUs as Devices, whose kernels are functions of the CPU.
#include "fakes/gpu/fake_device.hpp"

#include <fmt/format.h>

#include <cstring>
#include <mutex>
#include <utility>

#include "collectives/error.hpp"
#include "compression/select.hpp"
#include "compression/sparse.hpp"
#include "core/alignment.hpp"
#include "device/loader.hpp"
#include "fakes/gpu/fake_gpu.hpp"
#include "support/ranks.hpp"

namespace collectives::testing {
namespace {

thread_local int current_gpu = 0;
thread_local bool current_set = false;

[[noreturn]] void refuse(const std::string& why) { throw Error(Errc::system, "fake GPU: " + why); }

}  // namespace

struct FakeGpus::State {
  explicit State(int gpus) : machine(gpus) {}

  FakeGpuMachine machine;
  std::mutex mutex;  // protects the fields that follow
  bool spread = false;
  const Nccl* nccl = nullptr;
};

namespace {

class FakePeerAccess final : public Device::PeerAccess {
 public:
  FakePeerAccess(FakeGpuMachine& machine, int number) : machine_(machine), number_(number) {}

  std::string enable(const Device::Identity& other) override {
    machine_.check(number_);
    const int gpu = other.back();
    if (gpu >= machine_.gpus()) return fmt::format("GPU {} is not there", gpu);
    return machine_.reaches(number_, gpu) ? "" : fmt::format("GPU {} has no way to GPU {}", number_, gpu);
  }
  Device::Handle share(void* base) override { return machine_.share(number_, base); }
  void* open(const Device::Handle& handle) override { return machine_.open(number_, handle); }
  void close(void* opened) noexcept override { machine_.free(opened); }

 private:
  FakeGpuMachine& machine_;
  const int number_;
};

class FakeKernels final : public Device::Kernels {
 public:
  FakeKernels(FakeGpuMachine& machine, int number) : machine_(machine), number_(number) {}

  void fold(const ReduceOp& op, DataType type, std::span<const Source> sources, std::span<std::byte* const> outs,
            std::size_t count, int finish_ranks, Device::Stream stream) override {
    if (sources.empty() || sources.size() > Device::kMostSources || outs.empty() || outs.size() > Device::kMostOuts)
      refuse(fmt::format("a fold of {} sources to {} outs", sources.size(), outs.size()));
    if (op.user_op() != nullptr) refuse("a fold by a function of the host");
    std::vector<std::pair<const void*, std::size_t>> ranges;
    for (const Source& source : sources) ranges.emplace_back(source.data, count * size_of(type));
    for (const std::byte* out : outs) ranges.emplace_back(out, count * size_of(type));
    for (const auto& [address, bytes] : ranges) aligned(address, alignment_of(type));
    kernel(stream, ranges,
           [=, from = std::vector(sources.begin(), sources.end()), to = std::vector(outs.begin(), outs.end())] {
             collectives::fold(op, type, from, to, count, finish_ranks);
           });
  }
  void cast(ConstBuffer from, Buffer to, Device::Stream stream) override {
    kernel(stream, {{from.data, from.bytes()}, {to.data, to.bytes()}}, [=] {
      for (std::size_t i = 0; i < to.count; ++i) write(to.data, to.type, i, read(from.data, from.type, i));
    });
  }
  void cast_reduce_scale(DataType type, std::span<const std::byte* const> sources, std::size_t count, float divisor,
                         Buffer wire, float* seen, Device::Stream stream) override {
    std::vector<std::pair<const void*, std::size_t>> ranges;
    for (const std::byte* source : sources) ranges.emplace_back(source, count * size_of(type));
    if (wire.data != nullptr) ranges.emplace_back(wire.data, wire.bytes());
    if (seen != nullptr) ranges.emplace_back(seen, count * sizeof(float));
    kernel(stream, ranges, [=, from = std::vector(sources.begin(), sources.end())] {
      for (std::size_t i = 0; i < count; ++i) {
        float sum = read(from[0], type, i);
        for (std::size_t s = 1; s < from.size(); ++s) sum += read(from[s], type, i);
        sum /= divisor;
        std::byte rounded[sizeof(float)];
        write(rounded, wire.type, 0, sum);
        if (wire.data != nullptr) write(wire.data, wire.type, i, sum);
        if (seen != nullptr) seen[i] = read(rounded, wire.type, 0);
      }
    });
  }
  std::size_t select_scratch_bytes(std::size_t, std::size_t) const override { return 256; }
  void select(const Device::SelectInput& input, std::size_t k, std::uint32_t* indices, float* values, void* scratch,
              Device::Stream stream) override {
    const std::size_t bytes = input.n * sizeof(float);
    std::vector<std::pair<const void*, std::size_t>> ranges{
        {input.gradient, bytes}, {indices, k * sizeof *indices}, {values, k * sizeof *values}, {scratch, 256}};
    if (input.accumulated != nullptr) ranges.emplace_back(input.accumulated, bytes);
    if (input.velocity != nullptr) ranges.emplace_back(input.velocity, bytes);
    kernel(stream, ranges, [=] {
      SelectionInput from{.gradient = {input.gradient, input.n},
                          .momentum = input.momentum,
                          .scale = input.scale,
                          .masking = input.masking};
      if (input.accumulated != nullptr) from.accumulated = {input.accumulated, input.n};
      if (input.velocity != nullptr) from.velocity = {input.velocity, input.n};
      Selector().select(from, k, indices, values);
    });
  }
  std::size_t sparse_scratch_bytes(std::size_t n) const override { return (n + 7) / 8; }
  void sparse_add(std::span<const Device::Term> terms, float divisor, float* sum, void* scratch,
                  std::uint32_t* union_size, Device::Stream stream) override {
    std::vector<std::pair<const void*, std::size_t>> ranges{{scratch, 1}};
    if (union_size != nullptr) ranges.emplace_back(union_size, sizeof *union_size);
    for (const Device::Term& term : terms) {
      ranges.emplace_back(term.indices, term.count * sizeof *term.indices);
      ranges.emplace_back(term.values, term.count * sizeof *term.values);
    }
    machine_.check(number_);
    const Device::Allocation whole = machine_.allocation_of(sum);
    const auto n =
        static_cast<std::size_t>(whole.base + whole.bytes - reinterpret_cast<std::byte*>(sum)) / sizeof(float);
    ranges.emplace_back(sum, n * sizeof(float));
    std::vector<Entries> entries;
    for (const Device::Term& term : terms) entries.push_back({term.indices, term.values, term.count});
    kernel(stream, ranges, [=] {
      const std::size_t count = SparseSum().add(entries.data(), entries.size(), divisor, sum, n);
      if (union_size != nullptr) *union_size = static_cast<std::uint32_t>(count);
    });
  }

 private:
  static float read(const void* data, DataType type, std::size_t i) {
    if (type == DataType::f16) return static_cast<float>(static_cast<const float16*>(data)[i]);
    if (type == DataType::bf16) return static_cast<float>(static_cast<const bfloat16*>(data)[i]);
    return static_cast<const float*>(data)[i];
  }
  static void write(void* data, DataType type, std::size_t i, float value) {
    if (type == DataType::f16)
      static_cast<float16*>(data)[i] = static_cast<float16>(value);
    else if (type == DataType::bf16)
      static_cast<bfloat16*>(data)[i] = static_cast<bfloat16>(value);
    else
      static_cast<float*>(data)[i] = value;
  }
  static void aligned(const void* address, std::size_t to) {
    if (reinterpret_cast<std::uintptr_t>(address) % to != 0) refuse("misaligned address");
  }

  void kernel(Device::Stream stream, FakeGpuMachine::Ranges ranges, std::function<void()> action) {
    machine_.count_kernel();
    machine_.put(number_, stream, std::move(ranges), std::move(action));
  }

  FakeGpuMachine& machine_;
  const int number_;
};

class FakeDevice final : public Device {
 public:
  FakeDevice(std::shared_ptr<FakeGpus::State> state, int number)
      : state_(std::move(state)), machine_(state_->machine), number_(number) {}

  PeerAccess& peer_access() noexcept override { return peer_access_; }
  Kernels& kernels() noexcept override { return kernels_; }

  int number() const override { return number_; }
  void make_current() noexcept override { FakeGpus::set_current(number_); }
  std::string name() const override { return "fake GPU"; }
  Identity identity() const override {
    Identity identity{'p', 'r', 'e', 't', 'e', 'n', 'd', 'e', 'd'};
    identity.back() = static_cast<std::uint8_t>(number_);
    return identity;
  }

  Memory memory_of(const void* address) const override {
    machine_.check(number_);
    return machine_.memory_of(address);
  }
  Allocation allocation_of(const void* address) const override {
    machine_.check(number_);
    return machine_.allocation_of(address);
  }
  void* allocate(std::size_t bytes) override { return machine_.allocate(number_, bytes, Kind::device); }
  void* allocate_pinned(std::size_t bytes) override { return machine_.allocate(number_, bytes, Kind::pinned); }
  void free(void* memory) noexcept override { machine_.free(memory); }
  void free_pinned(void* memory) noexcept override { machine_.free(memory); }
  void pin(void* memory, std::size_t bytes) override { machine_.pin(number_, memory, bytes); }
  void unpin(void* memory) noexcept override { machine_.unpin(memory); }

  Stream new_stream() override { return machine_.new_stream(number_); }
  void end_stream(Stream stream) noexcept override { machine_.end_stream(number_, stream); }
  int device_of(Stream stream) const override {
    return stream == nullptr ? current_gpu : machine_.gpu_of(number_, stream);
  }
  bool capturing(Stream stream) const override { return machine_.capturing(number_, stream); }

  Event new_event() override { return machine_.new_event(number_); }
  void end_event(Event event) noexcept override { machine_.end_event(event); }
  void record(Event event, Stream stream) override { machine_.record(number_, event, stream); }
  bool reached(Event event) override { return machine_.reached(number_, event); }
  void wait(Stream stream, Event event) override { machine_.wait(number_, stream, event); }

  void clear(void* memory, std::size_t bytes, Stream stream) override {
    machine_.put(number_, stream, {{memory, bytes}}, [=] { std::memset(memory, 0, bytes); });
  }
  void copy(void* to, const void* from, std::size_t bytes, Stream stream) override {
    for (const void* side : {static_cast<const void*>(to), from})
      if (bytes > 0 && memory_of(side).kind == Kind::host)
        refuse("a copy from or to memory of the host that is not pinned would wait");
    machine_.copy(number_, to, from, bytes, stream);
  }

  const Nccl* nccl(std::string& why_not) override {
    const std::lock_guard lock(state_->mutex);
    if (state_->nccl == nullptr) why_not = "NCCL cannot be loaded: a fake GPU has none";
    return state_->nccl;
  }
  void while_current(const std::function<void()>& work) override {
    machine_.check(number_);
    struct Before {
      int gpu;
      ~Before() { current_gpu = gpu; }
    };
    const Before before{std::exchange(current_gpu, number_)};
    work();
  }

 private:
  const std::shared_ptr<FakeGpus::State> state_;
  FakeGpuMachine& machine_;
  const int number_;
  FakePeerAccess peer_access_{machine_, number_};
  FakeKernels kernels_{machine_, number_};
};

}  // namespace

FakeGpus::FakeGpus(int count, bool spread) : state_(std::make_shared<State>(count)) {
  state_->spread = spread;
  replace_devices([this](std::string&) { return device(); });
}
FakeGpus::~FakeGpus() { replace_devices(nullptr); }

void FakeGpus::set_current(int gpu) {
  current_gpu = gpu;
  current_set = true;
}
std::unique_ptr<Device> FakeGpus::device() {
  const std::lock_guard lock(state_->mutex);
  if (state_->spread && !current_set) set_current(rank_of_thread % state_->machine.gpus());
  return std::make_unique<FakeDevice>(state_, current_gpu);
}
int FakeGpus::current() { return current_gpu; }

void* FakeGpus::allocate(std::size_t bytes, Device::Kind kind) {
  return state_->machine.allocate(current_gpu, bytes, kind);
}
void FakeGpus::free(void* memory) { state_->machine.free(memory); }
void FakeGpus::upload(void* to, const void* from, std::size_t bytes) {
  state_->machine.touch(current_gpu, {{to, bytes}}, [=] { std::memcpy(to, from, bytes); });
}
void FakeGpus::download(void* to, const void* from, std::size_t bytes) {
  state_->machine.touch(current_gpu, {{from, bytes}}, [=] { std::memcpy(to, from, bytes); });
}

Device::Stream FakeGpus::new_stream() { return state_->machine.new_stream(current_gpu); }
void FakeGpus::end_stream(Device::Stream stream) { state_->machine.end_stream(current_gpu, stream); }
void FakeGpus::put(Device::Stream stream, std::vector<std::pair<void*, std::size_t>> touched,
                   std::function<void()> kernel) {
  state_->machine.put(current_gpu, stream, {touched.begin(), touched.end()}, std::move(kernel));
}
bool FakeGpus::idle(Device::Stream stream) { return state_->machine.idle(current_gpu, stream); }
void FakeGpus::synchronize(Device::Stream stream) { state_->machine.synchronize(current_gpu, stream); }
void FakeGpus::capture(Device::Stream stream, bool on) { state_->machine.capture(current_gpu, stream, on); }

void FakeGpus::slow_down(int gpu, std::chrono::microseconds by) {
  state_->machine.change(gpu, [=](auto& one) { one.slowness = by; });
}
void FakeGpus::allocate_when_idle(int gpu) {
  state_->machine.change(gpu, [](auto& one) { one.allocates_when_idle = true; });
}
void FakeGpus::let_the_host_in() { state_->machine.let_the_host_in(); }
void FakeGpus::stop(int gpu) {
  state_->machine.change(gpu, [](auto& one) { one.stopped = true; });
}
void FakeGpus::resume(int gpu) {
  state_->machine.change(gpu, [](auto& one) { one.stopped = false; });
}
void FakeGpus::disappear(int gpu) {
  state_->machine.change(gpu, [](auto& one) { one.failure = "the GPU has fallen off the bus"; });
}
void FakeGpus::take_from_pool(void* memory) { state_->machine.take_from_pool(memory); }
void FakeGpus::set_nccl(const Nccl* nccl) {
  const std::lock_guard lock(state_->mutex);
  state_->nccl = nccl;
}
void FakeGpus::keep_apart(int one, int other) { state_->machine.keep_apart(one, other); }

std::size_t FakeGpus::allocations() const { return state_->machine.allocations(); }
std::size_t FakeGpus::streams() const { return state_->machine.streams(); }
std::size_t FakeGpus::copies() const { return state_->machine.copies(); }
std::size_t FakeGpus::kernels() const { return state_->machine.kernels(); }

}  // namespace collectives::testing
