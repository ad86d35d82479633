// The machine behind fake GPUs: their memory, streams and events, and failures that tests cause. It has two callers:
//
//   FakeGpus (fake_device.hpp)      kernels are functions of the CPU and list the memory that they touch
//   the fake of CUDA (fakes/cuda/)  kernels are the code for GPUs and touch any memory
//
// A stream is a thread with a queue. The memory of a GPU is a file in memory. It is inaccessible most of the time while
// no stream has work. An allocation ends at most 255 bytes before the end of its pages, and the memory after them is
// unmapped. Calls throw Error{system} for requests that a GPU refuses. An illegal access fails the GPU, as a real one.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "device/device.hpp"

namespace collectives::testing {

class FakeGpuMachine {
 public:
  using Stream = Device::Stream;
  using Event = Device::Event;
  using Kind = Device::Kind;
  using Ranges = std::vector<std::pair<const void*, std::size_t>>;

  /// The state of a GPU, which change() writes.
  struct Gpu {
    std::chrono::microseconds slowness{};  ///< delay of each operation of a stream
    bool stopped = false;                  ///< streams perform nothing; calls succeed
    bool allocates_when_idle = false;      ///< allocations wait until the streams are empty, as CUDA may do
    std::string failure;                   ///< error of every later call
    Stream default_stream = nullptr;
  };

  explicit FakeGpuMachine(int gpus);
  /// Ends all streams without performing the rest.
  ~FakeGpuMachine();
  FakeGpuMachine(const FakeGpuMachine&) = delete;
  FakeGpuMachine& operator=(const FakeGpuMachine&) = delete;

  // ---- GPUs ----

  int gpus() const { return static_cast<int>(gpus_.size()); }
  /// Throws if the GPU has failed.
  void check(int gpu);
  void change(int gpu, const std::function<void(Gpu&)>& how);
  void let_the_host_in();
  void keep_apart(int one, int other);
  bool reaches(int one, int other);

  // ---- memory; `gpu` is the number of the GPU that owns it ----

  /// Allocates memory and fills it with a pattern that no result has.
  void* allocate(int gpu, std::size_t bytes, Kind kind);
  /// Blocks until no work touches the memory, then frees it. Returns false unless the pointer is an allocation.
  bool free(void* memory);
  void pin(int gpu, void* memory, std::size_t bytes);
  bool unpin(void* memory);  ///< like free()
  Device::Memory memory_of(const void* address);
  /// Returns zeros if the address is no memory of a GPU.
  Device::Allocation allocation_of(const void* address);
  /// Returns whether [address, address + bytes) is memory of a GPU, of any kind.
  bool known(const void* address, std::size_t bytes);
  Device::Handle share(int gpu, void* base);
  /// Opens memory of another process. Memory that is open has the same address again, until it is closed as often.
  void* open(int gpu, const Device::Handle& handle);
  void take_from_pool(void* memory);
  /// Runs `work` of the calling thread, which touches the memory.
  void touch(int gpu, const Ranges& ranges, const std::function<void()>& work);

  // ---- streams; null is the default one of `gpu` ----

  Stream new_stream(int gpu);
  void end_stream(int gpu, Stream stream);
  bool is_stream(Stream stream);
  int gpu_of(int gpu, Stream stream);
  bool capturing(int gpu, Stream stream);
  void capture(int gpu, Stream stream, bool on);
  bool idle(int gpu, Stream stream);
  void synchronize(int gpu, Stream stream);
  /// Waits for all streams of the GPU.
  void synchronize(int gpu);
  void copy(int gpu, void* to, const void* from, std::size_t bytes, Stream stream);
  /// Puts work into a stream that touches `ranges` only.
  void put(int gpu, Stream stream, Ranges ranges, std::function<void()> work);
  /// Puts work into a stream that may touch all memory that the GPU reaches.
  void put_untold(int gpu, Stream stream, std::function<void()> work);
  void count_kernel();

  Event new_event(int gpu);
  void end_event(Event event);
  void record(int gpu, Event event, Stream stream);
  /// Returns true if the event was reached or never recorded.
  bool reached(int gpu, Event event);
  void wait(int gpu, Stream stream, Event event);

  // ---- counts of objects ----

  std::size_t allocations();
  std::size_t streams();
  std::size_t copies();
  std::size_t kernels();

 private:
  struct Allocation {
    std::size_t bytes = 0;
    std::byte* mapping = nullptr;
    std::size_t mapped = 0;
    Kind kind = Kind::device;
    int gpu = 0, file = -1, users = 0;
    bool open = false;  ///< accessible at present
    std::uint64_t id = 0;
    int opened = 0;      ///< number of times that memory of another process is open
    std::string name{};  ///< process and id of that memory
    bool pooled = false;
  };
  using Entry = std::pair<const std::uintptr_t, Allocation>;
  struct EventState {
    std::uint64_t recorded = 0, reached = 0;
    int gpu = 0;
  };
  using Lock = std::unique_lock<std::mutex>;
  struct Queue {
    int gpu = 0;
    bool capturing = false, ended = false, busy = false;
    std::deque<std::function<void(Lock&)>> actions;
    std::condition_variable more;
    std::thread thread;
    bool idle() const { return actions.empty() && !busy; }
  };

  // Requires the lock.
  Gpu& gpu(int number) { return gpus_[static_cast<std::size_t>(number)]; }
  void check_held(int number);
  Entry* find(const void* address, std::size_t bytes = 1);
  Queue& queue(int number, Stream stream);
  Stream new_queue(int number);
  void push(Queue& queue, std::function<void(Lock&)> action);
  void serve(Queue& queue);
  std::vector<Entry*> reached_by(int number);
  /// Returns false, and fails the GPU, if it must not touch some of `ranges`.
  bool touch_held(Lock& lock, int by, const Ranges& ranges, const std::function<void()>& work);
  void touch_entries(Lock& lock, const std::vector<Entry*>& touched, const std::function<void()>& work);
  void close_if_idle();
  bool reaches_held(int one, int other) const;
  void unmap(Lock& lock, std::map<std::uintptr_t, Allocation>::iterator found);

  // One lock guards everything, because critical sections are short and tests have few streams.
  std::mutex mutex_;
  std::condition_variable changed_;  // signals events, states of GPUs and empty queues
  bool over_ = false, lets_the_host_in_ = false;
  std::vector<Gpu> gpus_;
  std::vector<std::pair<int, int>> apart_;
  std::map<std::uintptr_t, Allocation> allocations_;
  std::vector<std::unique_ptr<Queue>> queues_;  // kept until the machine is destroyed
  std::map<Event, std::shared_ptr<EventState>> events_;
  std::uint64_t next_id_ = 1;
  std::size_t in_progress_ = 0;  // number of actions that are queued or running
  std::size_t idle_times_ = 0;   // how often no action was queued or running
  std::size_t copies_ = 0, kernels_ = 0;
};

}  // namespace collectives::testing
