// Benchmark of a persistent call, which is made once and then started many times. It times an all-reduce of 8 bytes
// between two ranks, call after call. For comparison, it also times a bare exchange of one cache line between the same
// ranks.
//
//   persistent_bench [ROUNDS]
//
// The ranks are two processes, each pinned to a core. A round has three blocks: one of bare exchanges, one of
// persistent calls, and one of plain blocking calls. In a bare exchange, a rank writes a word into its cache line, and
// waits for that word in the other rank's line. Each rank has a ring of 64 lines, as in the library. The program prints
// the median time of each kind of block, and the median of the ratios within a round.
#include <fcntl.h>
#include <fmt/format.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <vector>

#include "base/bounded_yield.hpp"
#include "collectives/communicator.hpp"

namespace {

constexpr int kRounds = 4000;  // default number of rounds
// exchanges or calls of one block, which is far shorter than a time slice of the kernel
constexpr int kExchangesPerBlock = 200;

struct alignas(128) ExchangeLine {
  std::atomic<std::uint64_t> word{0};
};

struct Lines {
  static constexpr std::uint64_t kSlots = 64;
  ExchangeLine of[2][kSlots];
};

void pin_to_core(int index) {
  cpu_set_t allowed, one;
  ::sched_getaffinity(0, sizeof allowed, &allowed);
  CPU_ZERO(&one);
  for (std::size_t core = 0; core < CPU_SETSIZE; ++core)
    if (CPU_ISSET(core, &allowed) && index-- == 0) CPU_SET(core, &one);
  ::sched_setaffinity(0, sizeof one, &one);
}

void exchange_line(Lines& lines, int self, std::uint64_t number) {
  lines.of[self][number % Lines::kSlots].word.store(number, std::memory_order_release);
  const std::atomic<std::uint64_t>& theirs = lines.of[1 - self][number % Lines::kSlots].word;
  collectives::BoundedYield pause;
  for (unsigned turn = 0; theirs.load(std::memory_order_acquire) != number; ++turn)
    if (turn > 10'000) pause.wait();  // the other process may have no core
}

/// Calls `work` as often as a block requires. Returns the mean time of a call in nanoseconds.
template <class Work>
double time_block(Work&& work) {
  const auto begin = std::chrono::steady_clock::now();
  for (int i = 0; i < kExchangesPerBlock; ++i) work();
  return std::chrono::duration<double, std::nano>(std::chrono::steady_clock::now() - begin).count() /
         kExchangesPerBlock;
}

double median_of(std::vector<double> values) {
  std::ranges::sort(values);
  return values[values.size() / 2];
}

void run_rank(collectives::Communicator& comm, Lines& lines, int rounds) {
  const int self = comm.rank();
  pin_to_core(self);
  std::uint64_t number = 0;
  double value = 1, sum = 0, plain_sum = 0;
  const collectives::ConstBuffer input(&value, 1, collectives::DataType::f64);
  const collectives::Buffer output(&sum, 1, collectives::DataType::f64);
  const collectives::Buffer plain_output(&plain_sum, 1, collectives::DataType::f64);
  collectives::PersistentCall call = comm.persistent_all_reduce(input, output);
  std::vector<double> bare, persistent, plain, persistent_ratio, plain_ratio;
  for (int round = 0; round < rounds + 3; ++round) {
    const double bare_time = time_block([&] { exchange_line(lines, self, ++number); });
    const double persistent_time = time_block([&] {
      call.start();
      call.wait();
    });
    const double plain_time = time_block([&] { comm.all_reduce(input, plain_output); });
    if (round < 3) continue;  // the first three rounds are warm-up
    bare.push_back(bare_time);
    persistent.push_back(persistent_time);
    plain.push_back(plain_time);
    persistent_ratio.push_back(persistent_time / bare_time);
    plain_ratio.push_back(plain_time / bare_time);
  }
  if (sum != 2 || plain_sum != 2) std::abort();
  if (self == 0)
    fmt::print("bare line {:.0f} ns, persistent {:.0f} ns ({:.3f} x), plain {:.0f} ns ({:.3f} x); {} rounds of {}\n",
               median_of(bare), median_of(persistent), median_of(persistent_ratio), median_of(plain),
               median_of(plain_ratio), rounds, kExchangesPerBlock);
}

}  // namespace

int main(int argc, char** argv) {
  const int rounds = argc > 1 ? std::atoi(argv[1]) : kRounds;
  collectives::Communicator comm = collectives::Communicator::from_environment();
  if (comm.size() != 2 || comm.topology().hosts.size() != 1) {
    fmt::print(stderr, "usage: collectives_run -n 2 persistent_bench [ROUNDS]\n");
    return 2;
  }
  // Rank 0 sends its process id and the descriptor of its memory to rank 1. Rank 1 opens the memory through /proc.
  std::uint64_t name[2] = {static_cast<std::uint64_t>(::getpid()), 0};
  int descriptor = -1;
  if (comm.rank() == 0) {
    descriptor = ::memfd_create("persistent_bench", MFD_CLOEXEC);
    if (descriptor < 0 || ::ftruncate(descriptor, sizeof(Lines)) != 0) std::abort();
    name[1] = static_cast<std::uint64_t>(descriptor);
  }
  comm.broadcast(std::span(name), 0);
  if (comm.rank() == 1)
    descriptor = ::open(fmt::format("/proc/{}/fd/{}", name[0], name[1]).c_str(), O_RDWR | O_CLOEXEC);
  void* const memory = ::mmap(nullptr, sizeof(Lines), PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
  if (memory == MAP_FAILED) std::abort();
  comm.barrier();
  run_rank(comm, *static_cast<Lines*>(memory), rounds);
  comm.barrier();
  return 0;
}
