// Implementation of the machine behind fake GPUs: memory that only work in streams may touch, streams as threads, and
// failures.
#include "fakes/gpu/fake_gpu.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "collectives/error.hpp"

namespace collectives::testing {
namespace {

constexpr std::size_t kPage = 4096, kAlignment = 256;
constexpr int kGuardByte = 0xa5;

[[noreturn]] void refuse(const std::string& why) { throw Error(Errc::system, "fake GPU: " + why); }

/// Content of a Device::Handle, by which another process opens an allocation.
struct Shared {
  pid_t process;
  int file, gpu;
  std::size_t bytes;
  std::uint64_t id;
};

std::size_t up_to(std::size_t bytes, std::size_t multiple) { return (bytes + multiple - 1) / multiple * multiple; }

/// Maps `mapped` bytes, and an inaccessible page after them. Maps `file`, or private memory if `file` is -1.
std::byte* map(std::size_t mapped, int file) {
  void* const all = ::mmap(nullptr, mapped + kPage, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (all == MAP_FAILED) refuse("out of memory");
  const int how = file < 0 ? MAP_PRIVATE | MAP_ANONYMOUS : MAP_SHARED;
  if (::mmap(all, mapped, PROT_READ | PROT_WRITE, how | MAP_FIXED, file, 0) == MAP_FAILED) {
    ::munmap(all, mapped + kPage);
    refuse("out of memory");
  }
  return static_cast<std::byte*>(all);
}

}  // namespace

FakeGpuMachine::FakeGpuMachine(int gpus) {
  gpus_.resize(static_cast<std::size_t>(gpus));
  const Lock lock(mutex_);
  for (int number = 0; number < gpus; ++number) gpu(number).default_stream = new_queue(number);
}

FakeGpuMachine::~FakeGpuMachine() {
  {
    const Lock lock(mutex_);
    over_ = true;
    for (const auto& queue : queues_) queue->more.notify_all();
    changed_.notify_all();
  }
  for (const auto& queue : queues_) queue->thread.join();
  Lock lock(mutex_);
  while (!allocations_.empty()) unmap(lock, allocations_.begin());
}

// ---- GPUs ----

void FakeGpuMachine::check_held(int number) {
  if (!gpu(number).failure.empty()) refuse(gpu(number).failure);
}
void FakeGpuMachine::check(int number) {
  const Lock lock(mutex_);
  check_held(number);
}
void FakeGpuMachine::change(int number, const std::function<void(Gpu&)>& how) {
  const Lock lock(mutex_);
  how(gpu(number));
  changed_.notify_all();
}
void FakeGpuMachine::let_the_host_in() {
  const Lock lock(mutex_);
  lets_the_host_in_ = true;
}
void FakeGpuMachine::keep_apart(int one, int other) {
  const Lock lock(mutex_);
  apart_.emplace_back(one, other);
}
bool FakeGpuMachine::reaches_held(int one, int other) const {
  return std::ranges::none_of(
      apart_, [&](const auto& pair) { return pair == std::pair(one, other) || pair == std::pair(other, one); });
}
bool FakeGpuMachine::reaches(int one, int other) {
  const Lock lock(mutex_);
  return reaches_held(one, other);
}

// ---- memory ----

/// Returns the allocation that contains the whole range, or null.
FakeGpuMachine::Entry* FakeGpuMachine::find(const void* address, std::size_t bytes) {
  const auto at = reinterpret_cast<std::uintptr_t>(address);
  auto found = allocations_.upper_bound(at);
  if (found == allocations_.begin()) return nullptr;
  --found;
  return at + bytes <= found->first + std::max<std::size_t>(1, found->second.bytes) ? &*found : nullptr;
}

void* FakeGpuMachine::allocate(int number, std::size_t bytes, Kind kind) {
  Lock lock(mutex_);
  check_held(number);
  if (gpu(number).allocates_when_idle)
    changed_.wait(lock, [&] {
      return over_ || std::ranges::all_of(queues_, [&](const auto& q) { return q->gpu != number || q->idle(); });
    });
  Allocation allocation{.bytes = bytes, .kind = kind, .gpu = number, .id = next_id_++};
  const std::size_t rounded = up_to(std::max<std::size_t>(bytes, 1), kAlignment);
  allocation.mapped = up_to(rounded, kPage);
  if (kind == Kind::device) {
    allocation.file = ::memfd_create("fake GPU", MFD_CLOEXEC);
    if (::ftruncate(allocation.file, static_cast<off_t>(allocation.mapped)) != 0) refuse("out of memory");
  }
  allocation.mapping = map(allocation.mapped, allocation.file);
  std::memset(allocation.mapping, kGuardByte, allocation.mapped);
  std::byte* const base = allocation.mapping + (allocation.mapped - rounded);
  allocation.open = lets_the_host_in_;
  if (kind == Kind::device && !allocation.open) ::mprotect(allocation.mapping, allocation.mapped, PROT_NONE);
  allocations_.emplace(reinterpret_cast<std::uintptr_t>(base), allocation);
  return base;
}

void FakeGpuMachine::unmap(Lock& lock, std::map<std::uintptr_t, Allocation>::iterator found) {
  changed_.wait(lock, [&] { return over_ || found->second.users == 0; });
  const auto& [base, allocation] = *found;
  if (allocation.mapping != nullptr) {
    // Checks that no kernel has written before the allocation or after it, up to the ends of its pages.
    if (allocation.opened == 0) {
      ::mprotect(allocation.mapping, allocation.mapped, PROT_READ);
      const auto* const end = reinterpret_cast<const std::byte*>(base) + allocation.bytes;
      const auto is_guard = [](std::byte byte) { return byte == static_cast<std::byte>(kGuardByte); };
      if (!std::all_of(end, static_cast<const std::byte*>(allocation.mapping + allocation.mapped), is_guard)) {
        std::fprintf(stderr, "fake GPU: something was written behind an allocation of %zu bytes\n", allocation.bytes);
        std::abort();
      }
    }
    ::munmap(allocation.mapping, allocation.mapped + kPage);
  }
  if (allocation.file >= 0) ::close(allocation.file);
  allocations_.erase(found);
}

bool FakeGpuMachine::free(void* memory) {
  Lock lock(mutex_);
  const auto found = allocations_.find(reinterpret_cast<std::uintptr_t>(memory));
  if (found == allocations_.end()) return false;
  if (found->second.opened > 1)
    --found->second.opened;
  else
    unmap(lock, found);
  return true;
}

void FakeGpuMachine::pin(int number, void* memory, std::size_t bytes) {
  const Lock lock(mutex_);
  check_held(number);
  if (find(memory) != nullptr) refuse("the memory is pinned already");
  allocations_[reinterpret_cast<std::uintptr_t>(memory)] = {.bytes = bytes, .kind = Kind::pinned};
}
bool FakeGpuMachine::unpin(void* memory) { return free(memory); }

Device::Memory FakeGpuMachine::memory_of(const void* address) {
  const Lock lock(mutex_);
  const Entry* const found = find(address);
  if (found == nullptr) return {};
  return {found->second.kind, found->second.kind == Kind::device ? found->second.gpu : -1};
}
Device::Allocation FakeGpuMachine::allocation_of(const void* address) {
  const Lock lock(mutex_);
  const Entry* const found = find(address);
  if (found == nullptr || found->second.kind != Kind::device) return {};
  return {reinterpret_cast<std::byte*>(found->first), found->second.bytes, found->second.id};
}
bool FakeGpuMachine::known(const void* address, std::size_t bytes) {
  const Lock lock(mutex_);
  return find(address, bytes) != nullptr;
}

Device::Handle FakeGpuMachine::share(int number, void* base) {
  const Lock lock(mutex_);
  check_held(number);
  const auto found = allocations_.find(reinterpret_cast<std::uintptr_t>(base));
  if (found == allocations_.end() || found->second.kind != Kind::device) refuse("that is no allocation");
  if (found->second.pooled) refuse("memory of a pool cannot be shared");
  const Shared shared{::getpid(), found->second.file, found->second.gpu, found->second.bytes, found->second.id};
  Device::Handle handle{};
  static_assert(sizeof shared <= sizeof handle);
  std::memcpy(handle.data(), &shared, sizeof shared);
  return handle;
}

void* FakeGpuMachine::open(int number, const Device::Handle& handle) {
  Shared shared;
  std::memcpy(&shared, handle.data(), sizeof shared);
  const Lock lock(mutex_);
  check_held(number);
  if (shared.process == ::getpid()) refuse("the memory is that of this process");
  if (!reaches_held(number, shared.gpu)) refuse(fmt::format("GPU {} has no way to GPU {}", number, shared.gpu));
  const std::string name = fmt::format("{}/{}", shared.process, shared.id);
  for (auto& [base, allocation] : allocations_)
    if (allocation.opened > 0 && allocation.name == name) {
      ++allocation.opened;
      return reinterpret_cast<void*>(base);
    }
  const int file = ::open(fmt::format("/proc/{}/fd/{}", shared.process, shared.file).c_str(), O_RDWR | O_CLOEXEC);
  if (file < 0) refuse("there is no such memory");
  const std::size_t rounded = up_to(std::max<std::size_t>(shared.bytes, 1), kAlignment);
  Allocation allocation{.bytes = shared.bytes, .gpu = shared.gpu, .file = file, .id = next_id_++};
  allocation.opened = 1;
  allocation.name = name;
  allocation.mapped = up_to(rounded, kPage);
  allocation.mapping = map(allocation.mapped, file);
  ::mprotect(allocation.mapping, allocation.mapped, PROT_NONE);
  std::byte* const base = allocation.mapping + (allocation.mapped - rounded);
  allocations_[reinterpret_cast<std::uintptr_t>(base)] = allocation;
  return base;
}

void FakeGpuMachine::take_from_pool(void* memory) {
  const Lock lock(mutex_);
  find(memory)->second.pooled = true;
}

/// Performs `work` while the memory is accessible.
void FakeGpuMachine::touch_entries(Lock& lock, const std::vector<Entry*>& touched, const std::function<void()>& work) {
  for (Entry* const one : touched) {
    ++one->second.users;
    if (one->second.kind == Kind::device && !std::exchange(one->second.open, true))
      ::mprotect(one->second.mapping, one->second.mapped, PROT_READ | PROT_WRITE);
  }
  lock.unlock();
  work();
  lock.lock();
  for (Entry* const one : touched) --one->second.users;
  changed_.notify_all();
}

/// Makes memory inaccessible that no work touches, if no work at all is in progress. After the first 64 such times, it
/// does so only every 16th time, because to open and close memory takes longer than most kernels.
void FakeGpuMachine::close_if_idle() {
  if (in_progress_ > 0 || lets_the_host_in_) return;
  if (++idle_times_ > 64 && idle_times_ % 16 != 0) return;
  for (auto& [base, allocation] : allocations_)
    if (allocation.users == 0 && std::exchange(allocation.open, false))
      ::mprotect(allocation.mapping, allocation.mapped, PROT_NONE);
}

bool FakeGpuMachine::touch_held(Lock& lock, int by, const Ranges& ranges, const std::function<void()>& work) {
  std::vector<Entry*> touched;
  for (const auto& [address, bytes] : ranges) {
    if (bytes == 0) continue;
    Entry* const found = find(address, bytes);
    if (found == nullptr || (found->second.kind == Kind::device && !reaches_held(by, found->second.gpu))) {
      gpu(by).failure = "an illegal memory access was encountered";
      changed_.notify_all();
      return false;
    }
    touched.push_back(found);
  }
  touch_entries(lock, touched, work);
  return true;
}
void FakeGpuMachine::touch(int number, const Ranges& ranges, const std::function<void()>& work) {
  Lock lock(mutex_);
  if (!touch_held(lock, number, ranges, work)) refuse(gpu(number).failure);
  close_if_idle();
}

std::vector<FakeGpuMachine::Entry*> FakeGpuMachine::reached_by(int number) {
  std::vector<Entry*> all;
  for (Entry& one : allocations_)
    if (one.second.kind == Kind::device && reaches_held(number, one.second.gpu)) all.push_back(&one);
  return all;
}

// ---- streams ----

FakeGpuMachine::Queue& FakeGpuMachine::queue(int number, Stream stream) {
  return *static_cast<Queue*>(stream != nullptr ? stream : gpu(number).default_stream);
}

FakeGpuMachine::Stream FakeGpuMachine::new_queue(int number) {
  auto queue = std::make_unique<Queue>();
  queue->gpu = number;
  queue->thread = std::thread([this, q = queue.get()] { serve(*q); });
  queues_.push_back(std::move(queue));
  return queues_.back().get();
}

void FakeGpuMachine::push(Queue& queue, std::function<void(Lock&)> action) {
  queue.actions.push_back(std::move(action));
  ++in_progress_;
  queue.more.notify_one();
}

void FakeGpuMachine::serve(Queue& queue) {
  Lock lock(mutex_);
  for (;;) {
    queue.more.wait(lock, [&] { return over_ || queue.ended || !queue.actions.empty(); });
    if (over_ || queue.actions.empty()) return;
    queue.busy = true;
    auto action = std::move(queue.actions.front());
    queue.actions.pop_front();
    if (const auto slowness = gpu(queue.gpu).slowness; slowness.count() > 0)
      changed_.wait_for(lock, slowness, [&] { return over_; });
    changed_.wait(lock, [&] { return over_ || !gpu(queue.gpu).stopped || !gpu(queue.gpu).failure.empty(); });
    if (over_) return;
    if (gpu(queue.gpu).failure.empty()) action(lock);
    queue.busy = false;
    --in_progress_;
    close_if_idle();
    changed_.notify_all();
  }
}

FakeGpuMachine::Stream FakeGpuMachine::new_stream(int number) {
  const Lock lock(mutex_);
  check_held(number);
  return new_queue(number);
}
void FakeGpuMachine::end_stream(int number, Stream stream) {
  const Lock lock(mutex_);
  Queue& ended = queue(number, stream);
  ended.ended = true;
  ended.more.notify_one();
}
bool FakeGpuMachine::is_stream(Stream stream) {
  const Lock lock(mutex_);
  return stream == nullptr ||
         std::ranges::any_of(queues_, [&](const auto& queue) { return queue.get() == stream && !queue->ended; });
}
int FakeGpuMachine::gpu_of(int number, Stream stream) {
  const Lock lock(mutex_);
  return queue(number, stream).gpu;
}
bool FakeGpuMachine::capturing(int number, Stream stream) {
  const Lock lock(mutex_);
  return queue(number, stream).capturing;
}
void FakeGpuMachine::capture(int number, Stream stream, bool on) {
  const Lock lock(mutex_);
  queue(number, stream).capturing = on;
}
bool FakeGpuMachine::idle(int number, Stream stream) {
  const Lock lock(mutex_);
  return queue(number, stream).idle();
}
void FakeGpuMachine::synchronize(int number, Stream stream) {
  Lock lock(mutex_);
  const Queue& awaited = queue(number, stream);
  changed_.wait(lock, [&] { return awaited.idle(); });
}
void FakeGpuMachine::synchronize(int number) {
  Lock lock(mutex_);
  changed_.wait(
      lock, [&] { return std::ranges::all_of(queues_, [&](const auto& q) { return q->gpu != number || q->idle(); }); });
}

void FakeGpuMachine::copy(int number, void* to, const void* from, std::size_t bytes, Stream stream) {
  {
    const Lock lock(mutex_);
    ++copies_;
  }
  put(number, stream, {{to, bytes}, {from, bytes}}, [=] { std::memmove(to, from, bytes); });
}
void FakeGpuMachine::put(int number, Stream stream, Ranges ranges, std::function<void()> work) {
  const Lock lock(mutex_);
  check_held(number);
  Queue& into = queue(number, stream);
  push(into, [this, by = into.gpu, touched = std::move(ranges), performed = std::move(work)](Lock& held) {
    touch_held(held, by, touched, performed);
  });
}
void FakeGpuMachine::put_untold(int number, Stream stream, std::function<void()> work) {
  const Lock lock(mutex_);
  check_held(number);
  Queue& into = queue(number, stream);
  push(into, [this, by = into.gpu, performed = std::move(work)](Lock& held) {
    touch_entries(held, reached_by(by), performed);
  });
}
void FakeGpuMachine::count_kernel() {
  const Lock lock(mutex_);
  ++kernels_;
}

FakeGpuMachine::Event FakeGpuMachine::new_event(int number) {
  const Lock lock(mutex_);
  check_held(number);
  auto event = std::make_shared<EventState>();
  event->gpu = number;
  return events_.emplace(event.get(), event).first->first;
}
void FakeGpuMachine::end_event(Event event) {
  const Lock lock(mutex_);
  events_.erase(event);
}
void FakeGpuMachine::record(int number, Event event, Stream stream) {
  const Lock lock(mutex_);
  check_held(number);
  const auto recorded = events_.at(event);
  const std::uint64_t target = ++recorded->recorded;
  push(queue(number, stream), [recorded, target](Lock&) { recorded->reached = std::max(recorded->reached, target); });
}
bool FakeGpuMachine::reached(int number, Event event) {
  const Lock lock(mutex_);
  check_held(number);
  const EventState& asked = *events_.at(event);
  return asked.reached >= asked.recorded;
}
void FakeGpuMachine::wait(int number, Stream stream, Event event) {
  const Lock lock(mutex_);
  check_held(number);
  const auto awaited = events_.at(event);
  Queue& waits = queue(number, stream);
  push(waits, [this, awaited, target = awaited->recorded, by = waits.gpu](Lock& held) {
    changed_.wait(held, [&] { return over_ || awaited->reached >= target || !gpu(by).failure.empty(); });
  });
}

// ---- counts of objects ----

std::size_t FakeGpuMachine::allocations() {
  const Lock lock(mutex_);
  return allocations_.size();
}
std::size_t FakeGpuMachine::streams() {
  const Lock lock(mutex_);
  return static_cast<std::size_t>(std::ranges::count_if(queues_, [](const auto& queue) { return !queue->ended; })) -
         gpus_.size();
}
std::size_t FakeGpuMachine::copies() {
  const Lock lock(mutex_);
  return copies_;
}
std::size_t FakeGpuMachine::kernels() {
  const Lock lock(mutex_);
  return kernels_;
}

}  // namespace collectives::testing
