#include "support/pretended_device.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <map>
#include <mutex>
#include <optional>
#include <thread>

#include "collectives/error.hpp"
#include "compression/select.hpp"
#include "compression/sparse.hpp"
#include "device/loader.hpp"

namespace collectives::testing {
namespace {

using Kind = Device::Kind;

thread_local int current_gpu = 0;
thread_local bool current_set = false;

constexpr std::size_t kPage = 4096;
constexpr int kUntouched = 0xa5;

[[noreturn]] void refuse(const std::string& why) { throw Error(Errc::system, "pretended GPU: " + why); }

}  // namespace

// One lock for everything: what it guards is short, and tests have few streams.
struct PretendedGpus::State {
  struct Gpu {
    std::chrono::microseconds slowness{};
    bool stopped = false, allocates_when_idle = false;
    std::string failure;  // of every call from now on
    Device::Stream default_stream = nullptr;
  };
  struct Allocation {
    std::size_t bytes = 0, mapped = 0;
    Kind kind = Kind::device;
    int gpu = 0, file = -1, touching = 0;
    std::uint64_t id = 0;
    bool opened = false;  // the memory of another process
    bool pooled = false;
  };
  struct Event {
    std::uint64_t recorded = 0, reached = 0;
    int gpu = 0;
  };
  struct Queue {
    int gpu = 0;
    bool capturing = false, ended = false;
    std::deque<std::function<void(std::unique_lock<std::mutex>&)>> actions;
    bool busy = false;
    std::condition_variable more;
    std::thread thread;
  };

  std::mutex mutex;
  std::condition_variable changed;  // events, the state of GPUs, queues that are empty
  bool over = false, spread = false;
  std::size_t threads = 0;  // that GPUs were spread over
  std::vector<Gpu> gpus;
  std::vector<std::pair<int, int>> apart;
  std::map<std::uintptr_t, Allocation> allocations;
  std::vector<std::unique_ptr<Queue>> queues;  // kept until the end
  std::map<Device::Event, std::shared_ptr<Event>> events;
  std::uint64_t next_id = 1;
  const Nccl* nccl = nullptr;
  std::size_t copies = 0, kernels = 0;

  Gpu& gpu(int number) { return gpus[static_cast<std::size_t>(number)]; }

  void check(int number) {
    if (!gpu(number).failure.empty()) refuse(gpu(number).failure);
  }

  /// The allocation that `address` lies in, or null.
  std::pair<const std::uintptr_t, Allocation>* find(const void* address) {
    const auto at = reinterpret_cast<std::uintptr_t>(address);
    auto found = allocations.upper_bound(at);
    if (found == allocations.begin()) return nullptr;
    --found;
    return at < found->first + std::max<std::size_t>(1, found->second.bytes) ? &*found : nullptr;
  }

  Queue& queue(Device::Stream stream, int of_gpu) {
    return *static_cast<Queue*>(stream != nullptr ? stream : gpu(of_gpu).default_stream);
  }

  Device::Stream new_queue(int number) {
    auto queue = std::make_unique<Queue>();
    queue->gpu = number;
    queue->thread = std::thread([this, q = queue.get()] { serve(*q); });
    queues.push_back(std::move(queue));
    return queues.back().get();
  }

  void push(Queue& queue, std::function<void(std::unique_lock<std::mutex>&)> action) {
    queue.actions.push_back(std::move(action));
    queue.more.notify_one();
  }

  void serve(Queue& queue) {
    std::unique_lock lock(mutex);
    for (;;) {
      queue.more.wait(lock, [&] { return over || queue.ended || !queue.actions.empty(); });
      if (over || queue.actions.empty()) return;
      queue.busy = true;
      auto action = std::move(queue.actions.front());
      queue.actions.pop_front();
      if (const auto slowness = gpu(queue.gpu).slowness; slowness.count() > 0)
        changed.wait_for(lock, slowness, [&] { return over; });
      changed.wait(lock, [&] { return over || !gpu(queue.gpu).stopped || !gpu(queue.gpu).failure.empty(); });
      if (over) return;
      if (gpu(queue.gpu).failure.empty()) action(lock);
      queue.busy = false;
      changed.notify_all();
    }
  }

  /// Performs `work` on memory that is reachable meanwhile; false where some of it is not what a GPU may touch.
  bool touch(std::unique_lock<std::mutex>& lock, int by, const std::vector<std::pair<const void*, std::size_t>>& ranges,
             const std::function<void()>& work) {
    std::vector<std::pair<const std::uintptr_t, Allocation>*> touched;
    for (const auto& [address, bytes] : ranges) {
      if (bytes == 0) continue;
      auto* const found = find(address);
      if (found == nullptr || reinterpret_cast<std::uintptr_t>(address) + bytes > found->first + found->second.bytes ||
          (found->second.kind == Kind::device && !reaches(by, found->second.gpu))) {
        gpu(by).failure = "an illegal memory access was encountered";
        return false;
      }
      touched.push_back(found);
    }
    for (auto* one : touched)
      if (one->second.kind == Kind::device && one->second.touching++ == 0) protect(*one, PROT_READ | PROT_WRITE);
    lock.unlock();
    work();
    lock.lock();
    for (auto* one : touched)
      if (one->second.kind == Kind::device && --one->second.touching == 0) protect(*one, PROT_NONE);
    changed.notify_all();
    return true;
  }
  static void protect(const std::pair<const std::uintptr_t, Allocation>& one, int how) {
    ::mprotect(reinterpret_cast<void*>(one.first), one.second.mapped, how);
  }
  bool reaches(int one, int other) const {
    return std::ranges::none_of(
        apart, [&](const auto& pair) { return pair == std::pair(one, other) || pair == std::pair(other, one); });
  }

  void* allocate(int number, std::size_t bytes, Kind kind) {
    Allocation allocation{.bytes = bytes, .kind = kind, .gpu = number, .id = next_id++};
    allocation.mapped = (std::max<std::size_t>(bytes, 1) + kPage - 1) / kPage * kPage;
    if (kind == Kind::device) allocation.file = ::memfd_create("pretended GPU", MFD_CLOEXEC);
    if (kind == Kind::device && ::ftruncate(allocation.file, static_cast<off_t>(allocation.mapped)) != 0)
      refuse("out of memory");
    void* const memory = ::mmap(nullptr, allocation.mapped, PROT_READ | PROT_WRITE,
                                kind == Kind::device ? MAP_SHARED : MAP_PRIVATE | MAP_ANONYMOUS, allocation.file, 0);
    if (memory == MAP_FAILED) refuse("out of memory");
    std::memset(memory, kUntouched, allocation.mapped);
    const auto entry = allocations.emplace(reinterpret_cast<std::uintptr_t>(memory), allocation).first;
    if (kind == Kind::device) protect(*entry, PROT_NONE);
    return memory;
  }
  /// Waits for who touches it.
  void free(std::unique_lock<std::mutex>& lock, void* memory) {
    const auto found = allocations.find(reinterpret_cast<std::uintptr_t>(memory));
    if (found == allocations.end()) return;
    changed.wait(lock, [&] { return over || found->second.touching == 0; });
    ::munmap(memory, found->second.mapped);
    if (found->second.file >= 0) ::close(found->second.file);
    allocations.erase(found);
  }
  bool idle(const Queue& queue) const { return queue.actions.empty() && !queue.busy; }
};

namespace {

using State = PretendedGpus::State;

class PretendedDevice final : public Device {
 public:
  PretendedDevice(std::shared_ptr<State> state, int number) : state_(std::move(state)), number_(number) {}

  int number() const override { return number_; }
  void make_current() noexcept override { PretendedGpus::set_current(number_); }
  std::string name() const override { return "pretended GPU"; }
  Identity identity() const override {
    Identity identity{'p', 'r', 'e', 't', 'e', 'n', 'd', 'e', 'd'};
    identity.back() = static_cast<std::uint8_t>(number_);
    return identity;
  }
  std::string reach(const Identity& other) override {
    const std::lock_guard lock(state_->mutex);
    state_->check(number_);
    const int gpu = other.back();
    if (static_cast<std::size_t>(gpu) >= state_->gpus.size()) return fmt::format("GPU {} is not there", gpu);
    return state_->reaches(number_, gpu) ? "" : fmt::format("GPU {} has no way to GPU {}", number_, gpu);
  }

  Memory memory_of(const void* address) const override {
    const std::lock_guard lock(state_->mutex);
    state_->check(number_);
    const auto* const found = state_->find(address);
    if (found == nullptr) return {};
    return {found->second.kind, found->second.kind == Kind::device ? found->second.gpu : -1};
  }
  Allocation allocation_of(const void* address) const override {
    const std::lock_guard lock(state_->mutex);
    state_->check(number_);
    const auto* const found = state_->find(address);
    if (found == nullptr || found->second.kind != Kind::device) return {};
    return {reinterpret_cast<std::byte*>(found->first), found->second.bytes, found->second.id};
  }
  void* allocate(std::size_t bytes) override { return take(bytes, Kind::device); }
  void* allocate_pinned(std::size_t bytes) override { return take(bytes, Kind::pinned); }
  void free(void* memory) noexcept override {
    std::unique_lock lock(state_->mutex);
    state_->free(lock, memory);
  }
  void free_pinned(void* memory) noexcept override { free(memory); }
  void pin(void* memory, std::size_t bytes) override {
    const std::lock_guard lock(state_->mutex);
    state_->check(number_);
    if (state_->find(memory) != nullptr) refuse("the memory is pinned already");
    state_->allocations[reinterpret_cast<std::uintptr_t>(memory)] = {.bytes = bytes, .kind = Kind::pinned};
  }
  void unpin(void* memory) noexcept override {
    const std::lock_guard lock(state_->mutex);
    state_->allocations.erase(reinterpret_cast<std::uintptr_t>(memory));
  }

  Handle share(void* base) override {
    const std::lock_guard lock(state_->mutex);
    state_->check(number_);
    const auto found = state_->allocations.find(reinterpret_cast<std::uintptr_t>(base));
    if (found == state_->allocations.end() || found->second.kind != Kind::device) refuse("that is no allocation");
    if (found->second.pooled) refuse("memory of a pool cannot be shared");
    const Shared shared{::getpid(), found->second.file, found->second.gpu, found->second.bytes};
    Handle handle{};
    std::memcpy(handle.data(), &shared, sizeof shared);
    return handle;
  }
  void* open(const Handle& handle) override {
    Shared shared;
    std::memcpy(&shared, handle.data(), sizeof shared);
    const std::lock_guard lock(state_->mutex);
    state_->check(number_);
    if (shared.process == ::getpid()) refuse("the memory is that of this process");
    if (!state_->reaches(number_, shared.gpu)) refuse(fmt::format("GPU {} has no way to GPU {}", number_, shared.gpu));
    const int file = ::open(fmt::format("/proc/{}/fd/{}", shared.process, shared.file).c_str(), O_RDWR | O_CLOEXEC);
    if (file < 0) refuse("there is no such memory");
    State::Allocation allocation{.bytes = shared.bytes, .gpu = shared.gpu, .file = file, .id = state_->next_id++};
    allocation.opened = true;
    allocation.mapped = (std::max<std::size_t>(shared.bytes, 1) + kPage - 1) / kPage * kPage;
    void* const memory = ::mmap(nullptr, allocation.mapped, PROT_NONE, MAP_SHARED, file, 0);
    if (memory == MAP_FAILED) refuse("the memory cannot be opened");
    state_->allocations[reinterpret_cast<std::uintptr_t>(memory)] = allocation;
    return memory;
  }
  void close(void* opened) noexcept override { free(opened); }

  Stream new_stream() override {
    const std::lock_guard lock(state_->mutex);
    state_->check(number_);
    return state_->new_queue(number_);
  }
  void end_stream(Stream stream) noexcept override {
    const std::lock_guard lock(state_->mutex);
    State::Queue& queue = state_->queue(stream, number_);
    queue.ended = true;
    queue.more.notify_one();
  }
  int device_of(Stream stream) const override {
    const std::lock_guard lock(state_->mutex);
    return stream == nullptr ? current_gpu : static_cast<State::Queue*>(stream)->gpu;
  }
  bool capturing(Stream stream) const override {
    const std::lock_guard lock(state_->mutex);
    return state_->queue(stream, number_).capturing;
  }

  Event new_event() override {
    const std::lock_guard lock(state_->mutex);
    state_->check(number_);
    auto event = std::make_shared<State::Event>();
    event->gpu = number_;
    return state_->events.emplace(event.get(), event).first->first;
  }
  void end_event(Event event) noexcept override {
    const std::lock_guard lock(state_->mutex);
    state_->events.erase(event);
  }
  void record(Event event, Stream stream) override {
    const auto recorded = event_of(event);
    const std::lock_guard lock(state_->mutex);
    state_->check(number_);
    const std::uint64_t target = ++recorded->recorded;
    state_->push(state_->queue(stream, number_),
                 [recorded, target](auto&) { recorded->reached = std::max(recorded->reached, target); });
  }
  bool reached(Event event) override {
    const std::lock_guard lock(state_->mutex);
    state_->check(number_);
    const State::Event& asked = *state_->events.at(event);
    return asked.reached >= asked.recorded;
  }
  void wait(Stream stream, Event event) override {
    const auto awaited = event_of(event);
    std::unique_lock lock(state_->mutex);
    state_->check(number_);
    State::Queue& queue = state_->queue(stream, number_);
    state_->push(queue, [state = state_.get(), awaited, target = awaited->recorded, gpu = queue.gpu](auto& held) {
      state->changed.wait(
          held, [&] { return state->over || awaited->reached >= target || !state->gpu(gpu).failure.empty(); });
    });
  }

  void copy(void* to, const void* from, std::size_t bytes, Stream stream) override {
    for (const void* side : {static_cast<const void*>(to), from})
      if (bytes > 0 && memory_of(side).kind == Kind::host)
        refuse("a copy from or to memory of the host that is not pinned would wait");
    {
      const std::lock_guard lock(state_->mutex);
      ++state_->copies;
    }
    work(stream, {{to, bytes}, {from, bytes}}, [=] { std::memmove(to, from, bytes); });
  }

  void fold(const ReduceOp& op, DataType type, std::span<const Source> sources, std::span<std::byte* const> outs,
            std::size_t count, int finish_ranks, Stream stream) override {
    if (sources.empty() || sources.size() > kMostSources || outs.empty() || outs.size() > kMostOuts)
      refuse(fmt::format("a fold of {} sources to {} outs", sources.size(), outs.size()));
    if (op.user_op() != nullptr) refuse("a fold by a function of the host");
    std::vector<std::pair<const void*, std::size_t>> ranges;
    for (const Source& source : sources) ranges.emplace_back(source.data, count * size_of(type));
    for (const std::byte* out : outs) ranges.emplace_back(out, count * size_of(type));
    for (const auto& [address, bytes] : ranges) aligned(address, size_of(type));
    kernel(stream, ranges,
           [=, from = std::vector(sources.begin(), sources.end()), to = std::vector(outs.begin(), outs.end())] {
             collectives::fold(op, type, from, to, count, finish_ranks);
           });
  }
  void cast(ConstBuffer from, Buffer to, Stream stream) override {
    kernel(stream, {{from.data, from.bytes()}, {to.data, to.bytes()}}, [=] {
      for (std::size_t i = 0; i < to.count; ++i) write(to.data, to.type, i, read(from.data, from.type, i));
    });
  }
  void cast_reduce_scale(DataType type, std::span<const std::byte* const> sources, std::size_t count, float divisor,
                         Buffer wire, float* seen, Stream stream) override {
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
  void select(const SelectInput& input, std::size_t k, std::uint32_t* indices, float* values, void* scratch,
              Stream stream) override {
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
  void sparse_add(std::span<const Term> terms, float divisor, float* sum, void* scratch, Stream stream) override {
    std::vector<std::pair<const void*, std::size_t>> ranges{{scratch, 1}};
    for (const Term& term : terms) {
      ranges.emplace_back(term.indices, term.count * sizeof *term.indices);
      ranges.emplace_back(term.values, term.count * sizeof *term.values);
    }
    const Allocation whole = allocation_of(sum);
    const auto n =
        static_cast<std::size_t>(whole.base + whole.bytes - reinterpret_cast<std::byte*>(sum)) / sizeof(float);
    ranges.emplace_back(sum, n * sizeof(float));
    std::vector<Entries> entries;
    for (const Term& term : terms) entries.push_back({term.indices, term.values, term.count});
    kernel(stream, ranges, [=] { SparseSum().add(entries.data(), entries.size(), divisor, sum, n); });
  }

  const Nccl* nccl(std::string& why_not) override {
    const std::lock_guard lock(state_->mutex);
    if (state_->nccl == nullptr) why_not = "NCCL cannot be loaded: a pretended GPU has none";
    return state_->nccl;
  }
  void while_current(const std::function<void()>& work) override {
    {
      const std::lock_guard lock(state_->mutex);
      state_->check(number_);
    }
    struct Before {
      int gpu;
      ~Before() { current_gpu = gpu; }
    };
    const Before before{std::exchange(current_gpu, number_)};
    work();
  }

 private:
  struct Shared {
    pid_t process;
    int file, gpu;
    std::size_t bytes;
  };

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

  void* take(std::size_t bytes, Kind kind) {
    std::unique_lock lock(state_->mutex);
    state_->check(number_);
    const auto idle = [&](const auto& queue) { return queue->gpu != number_ || state_->idle(*queue); };
    if (state_->gpu(number_).allocates_when_idle)
      state_->changed.wait(lock, [&] { return state_->over || std::ranges::all_of(state_->queues, idle); });
    return state_->allocate(number_, bytes, kind);
  }
  std::shared_ptr<State::Event> event_of(Event event) const {
    const std::lock_guard lock(state_->mutex);
    return state_->events.at(event);
  }
  void kernel(Stream stream, std::vector<std::pair<const void*, std::size_t>> ranges, std::function<void()> action) {
    {
      const std::lock_guard lock(state_->mutex);
      ++state_->kernels;
    }
    work(stream, std::move(ranges), std::move(action));
  }
  void work(Stream stream, std::vector<std::pair<const void*, std::size_t>> ranges, std::function<void()> action) {
    const std::lock_guard lock(state_->mutex);
    state_->check(number_);
    State::Queue& queue = state_->queue(stream, number_);
    state_->push(queue, [state = state_.get(), by = queue.gpu, touched = std::move(ranges),
                         performed = std::move(action)](auto& held) { state->touch(held, by, touched, performed); });
  }

  const std::shared_ptr<State> state_;
  const int number_;
};

}  // namespace

PretendedGpus::PretendedGpus(int count, bool spread) : state_(std::make_shared<State>()) {
  state_->spread = spread;
  state_->gpus.resize(static_cast<std::size_t>(count));
  for (int gpu = 0; gpu < count; ++gpu) state_->gpu(gpu).default_stream = state_->new_queue(gpu);
  replace_devices([this](std::string&) { return device(); });
}

PretendedGpus::~PretendedGpus() {
  replace_devices(nullptr);
  {
    const std::lock_guard lock(state_->mutex);
    state_->over = true;
    for (const auto& queue : state_->queues) queue->more.notify_all();
    state_->changed.notify_all();
  }
  for (const auto& queue : state_->queues) queue->thread.join();
  std::unique_lock lock(state_->mutex);
  while (!state_->allocations.empty())
    if (const auto& [base, allocation] = *state_->allocations.begin(); allocation.mapped > 0)
      state_->free(lock, reinterpret_cast<void*>(base));
    else
      state_->allocations.erase(state_->allocations.begin());
}

void PretendedGpus::set_current(int gpu) {
  current_gpu = gpu;
  current_set = true;
}
std::unique_ptr<Device> PretendedGpus::device() {
  const std::lock_guard lock(state_->mutex);
  if (state_->spread && !current_set) set_current(static_cast<int>(state_->threads++ % state_->gpus.size()));
  return std::make_unique<PretendedDevice>(state_, current_gpu);
}
int PretendedGpus::current() { return current_gpu; }

void* PretendedGpus::allocate(std::size_t bytes, Device::Kind kind) {
  const std::lock_guard lock(state_->mutex);
  return state_->allocate(current_gpu, bytes, kind);
}
void PretendedGpus::free(void* memory) {
  std::unique_lock lock(state_->mutex);
  state_->free(lock, memory);
}
void PretendedGpus::upload(void* to, const void* from, std::size_t bytes) {
  std::unique_lock lock(state_->mutex);
  if (!state_->touch(lock, current_gpu, {{to, bytes}}, [=] { std::memcpy(to, from, bytes); })) refuse("upload");
}
void PretendedGpus::download(void* to, const void* from, std::size_t bytes) {
  std::unique_lock lock(state_->mutex);
  if (!state_->touch(lock, current_gpu, {{from, bytes}}, [=] { std::memcpy(to, from, bytes); })) refuse("download");
}

Device::Stream PretendedGpus::new_stream() {
  const std::lock_guard lock(state_->mutex);
  return state_->new_queue(current_gpu);
}
void PretendedGpus::end_stream(Device::Stream stream) {
  const std::lock_guard lock(state_->mutex);
  State::Queue& queue = state_->queue(stream, current_gpu);
  queue.ended = true;
  queue.more.notify_one();
}
void PretendedGpus::put(Device::Stream stream, std::vector<std::pair<void*, std::size_t>> touched,
                        std::function<void()> kernel) {
  const std::lock_guard lock(state_->mutex);
  State::Queue& queue = state_->queue(stream, current_gpu);
  std::vector<std::pair<const void*, std::size_t>> ranges(touched.begin(), touched.end());
  state_->push(queue, [state = state_.get(), by = queue.gpu, ranges = std::move(ranges),
                       kernel = std::move(kernel)](auto& held) { state->touch(held, by, ranges, kernel); });
}
bool PretendedGpus::idle(Device::Stream stream) {
  const std::lock_guard lock(state_->mutex);
  return state_->idle(state_->queue(stream, current_gpu));
}
void PretendedGpus::synchronize(Device::Stream stream) {
  std::unique_lock lock(state_->mutex);
  State::Queue& queue = state_->queue(stream, current_gpu);
  state_->changed.wait(lock, [&] { return state_->idle(queue); });
}
void PretendedGpus::capture(Device::Stream stream, bool on) {
  const std::lock_guard lock(state_->mutex);
  state_->queue(stream, current_gpu).capturing = on;
}

void PretendedGpus::slow_down(int gpu, std::chrono::microseconds by) {
  const std::lock_guard lock(state_->mutex);
  state_->gpu(gpu).slowness = by;
}
void PretendedGpus::allocate_when_idle(int gpu) {
  const std::lock_guard lock(state_->mutex);
  state_->gpu(gpu).allocates_when_idle = true;
}
void PretendedGpus::stop(int gpu) {
  const std::lock_guard lock(state_->mutex);
  state_->gpu(gpu).stopped = true;
}
void PretendedGpus::go_on(int gpu) {
  const std::lock_guard lock(state_->mutex);
  state_->gpu(gpu).stopped = false;
  state_->changed.notify_all();
}
void PretendedGpus::disappear(int gpu) {
  const std::lock_guard lock(state_->mutex);
  state_->gpu(gpu).failure = "the GPU has fallen off the bus";
  state_->changed.notify_all();
}
void PretendedGpus::take_from_pool(void* memory) {
  const std::lock_guard lock(state_->mutex);
  state_->find(memory)->second.pooled = true;
}
void PretendedGpus::set_nccl(const Nccl* nccl) {
  const std::lock_guard lock(state_->mutex);
  state_->nccl = nccl;
}
void PretendedGpus::keep_apart(int one, int other) {
  const std::lock_guard lock(state_->mutex);
  state_->apart.emplace_back(one, other);
}

std::size_t PretendedGpus::allocations() const {
  const std::lock_guard lock(state_->mutex);
  return state_->allocations.size();
}
std::size_t PretendedGpus::streams() const {
  const std::lock_guard lock(state_->mutex);
  return static_cast<std::size_t>(std::ranges::count_if(state_->queues, [](const auto& q) { return !q->ended; })) -
         state_->gpus.size();
}
std::size_t PretendedGpus::copies() const {
  const std::lock_guard lock(state_->mutex);
  return state_->copies;
}
std::size_t PretendedGpus::kernels() const {
  const std::lock_guard lock(state_->mutex);
  return state_->kernels;
}

}  // namespace collectives::testing
