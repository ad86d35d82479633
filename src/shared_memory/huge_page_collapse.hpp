// Collapse of small pages into huge pages of 2 MiB, which the kernel performs on request (MADV_COLLAPSE, Linux 6.1).
//
// MADV_COLLAPSE waits until kernel workers have run on all cores. On busy cores, this wait may be long, and nothing can
// interrupt it. A collapse therefore has four limits:
//
//   bytes      one call takes at most 8 MiB, about 1 ms while cores are free
//   cores      no call begins while more than eight threads per core want to run
//   deadline   no call begins after the deadline of the memory
//   slowness   after one call of more than 100 ms, this process makes no other
//
// If a limit prevents the collapse, the memory keeps its small pages and is slower to access. The first access of a
// process to each page takes about 3 us on a virtual machine whose hypervisor keeps page tables of its own. Example: 8
// ranks on 2 cores allocate 16 MiB each. The collapse takes 20 to 100 ms. Without the collapse, the first 60
// all-reduces together take 0.8 s longer.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <functional>
#include <utility>

namespace collectives {

class HugePageCollapse {
 public:
  using Clock = std::chrono::steady_clock;
  static constexpr std::size_t kHugePage = std::size_t{2} << 20;
  static constexpr std::size_t kBytesPerCall = std::size_t{8} << 20;
  /// Duration from which a call of MADV_COLLAPSE counts as slow. With four runnable threads per core, a call usually
  /// takes less than this time.
  static constexpr std::chrono::milliseconds kSlow{100};
  static constexpr std::chrono::milliseconds kDeadline{100};  ///< Time in which all calls for one memory must begin.
  static constexpr std::chrono::milliseconds kDeadlinePerMiB{1};  ///< Addition to kDeadline per MiB of the memory.

  /// Functions of the system that a collapse needs. Tests replace them.
  struct System {
    std::function<Clock::time_point()> now;
    std::function<bool()> cores_suffice;
    std::function<void(std::byte* begin, std::size_t bytes)> collapse;
  };
  /// Returns the functions that call Linux.
  static System linux_system();

  explicit HugePageCollapse(System system = linux_system()) : system_(std::move(system)) {}

  /// Returns the deadline for memory of `bytes` whose collapse begins now.
  Clock::time_point deadline_for(std::size_t bytes) const {
    return system_.now() + kDeadline + kDeadlinePerMiB * (bytes >> 20);
  }
  /// Collapses [begin, end), which are multiples of kHugePage, as far as the limits allow.
  void run(std::byte* begin, std::byte* end, Clock::time_point deadline);

 private:
  System system_;
  std::atomic<bool> was_slow_ = false;
};

}  // namespace collectives
