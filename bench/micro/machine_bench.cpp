// Benchmark of the machine: it measures how fast two cores can exchange data. These times are lower bounds for calls of
// the library between two ranks.
//
//   line_exchange   each core writes a cache line and reads the other core's line: bound of a short call of two ranks
//   dirty_lines     each core writes bytes and reads those that the other core wrote: bound of exchange by staging
//   kernel_copy     process_vm_readv from another process: bound of exchange by a copy of the kernel
//
// In results with two threads, only the CPU column is right: the threads never sleep, so CPU time equals elapsed time.
// Google Benchmark divides the other column by the number of threads.
#include <benchmark/benchmark.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <numeric>
#include <vector>

#include "base/bounded_yield.hpp"

namespace {

using collectives::BoundedYield;

/// Cores on which the program may run at its start. Later, threads have other sets of cores, because pin() changes them
/// and new threads inherit them.
const cpu_set_t kAllowed = [] {
  cpu_set_t cores;
  CPU_ZERO(&cores);
  ::sched_getaffinity(0, sizeof cores, &cores);
  return cores;
}();

/// Lets the calling thread run only on core number `thread` of kAllowed. Does nothing if there are too few cores.
void pin(int thread) {
  for (std::size_t core = 0; core < CPU_SETSIZE; ++core) {
    if (!CPU_ISSET(core, &kAllowed) || thread-- > 0) continue;
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(core, &one);
    ::sched_setaffinity(0, sizeof one, &one);
    return;
  }
}

struct alignas(128) Line {
  std::atomic<std::uint64_t> word{0};
};

/// Barrier of two threads. Google Benchmark runs the loop of both threads equally often, so none waits forever.
struct Barrier {
  static constexpr std::uint64_t kSlots = 64;
  Line lines[2][kSlots];
  struct alignas(128) {
    std::uint64_t number = 0;
  } of[2];

  void wait(int thread) {
    const std::uint64_t now = ++of[thread].number;
    lines[thread][now % kSlots].word.store(now, std::memory_order_release);
    const std::atomic<std::uint64_t>& theirs = lines[1 - thread][now % kSlots].word;
    BoundedYield pause;
    for (unsigned turn = 0; theirs.load(std::memory_order_acquire) != now; ++turn)
      if (turn > 10'000) pause.wait();  // the other thread may have no core
  }
};
Barrier barrier;

void line_exchange(benchmark::State& state) {
  pin(state.thread_index());
  for (auto _ : state) barrier.wait(state.thread_index());
}
BENCHMARK(line_exchange)->Threads(2);

std::vector<std::uint64_t> shown[2];

void dirty_lines(benchmark::State& state) {
  const int self = state.thread_index();
  pin(self);
  const auto words = static_cast<std::size_t>(state.range(0)) / sizeof(std::uint64_t);
  std::vector<std::uint64_t> mine(words, 1), theirs(words);
  shown[self].assign(words, 0);
  for (auto _ : state) {
    std::memcpy(shown[self].data(), mine.data(), words * sizeof(std::uint64_t));
    barrier.wait(self);
    std::memcpy(theirs.data(), shown[1 - self].data(), words * sizeof(std::uint64_t));
    barrier.wait(self);
    benchmark::DoNotOptimize(theirs.data());
  }
  if (std::accumulate(theirs.begin(), theirs.end(), std::uint64_t{0}) != words) state.SkipWithError("wrong bytes");
}
BENCHMARK(dirty_lines)->ArgName("bytes")->RangeMultiplier(8)->Range(4 << 10, 16 << 20)->Threads(2);

void kernel_copy(benchmark::State& state) {
  pin(0);
  const auto bytes = static_cast<std::size_t>(state.range(0));
  auto* const theirs =
      static_cast<char*>(::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  const pid_t owner = ::fork();
  if (owner == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    std::memset(theirs, 1, bytes);  // makes the pages private
    for (;;) ::pause();
  }
  std::vector<char> mine(bytes);
  const iovec here{mine.data(), bytes}, there{theirs, bytes};
  while (mine.back() != 1 && ::process_vm_readv(owner, &here, 1, &there, 1, 0) >= 0) ::usleep(100);
  for (auto _ : state)
    if (::process_vm_readv(owner, &here, 1, &there, 1, 0) != static_cast<ssize_t>(bytes)) {
      state.SkipWithError("process_vm_readv");
      break;
    }
  ::kill(owner, SIGKILL);
  ::waitpid(owner, nullptr, 0);
  ::munmap(theirs, bytes);
  state.SetBytesProcessed(state.iterations() * state.range(0));
}
BENCHMARK(kernel_copy)->ArgName("bytes")->RangeMultiplier(8)->Range(4 << 10, 16 << 20);

}  // namespace
