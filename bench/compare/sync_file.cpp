// Implementation of the sync file, memory that all ranks of a comparison map. Through the file, ranks perform barriers
// and exchange words. The distance of two cores is the time of a barrier between them.
#include "sync_file.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sched.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <limits>
#include <optional>
#include <stdexcept>
#include <system_error>
#include <thread>
#include <utility>

#include "base/bounded_yield.hpp"

namespace collectives::compare {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::size_t kPage = 4096;

[[noreturn]] void fail(const std::string& what) { throw std::system_error(errno, std::generic_category(), what); }

/// Returns the time of a barrier in nanoseconds: the shortest of a few runs.
template <class Barrier>
double nanoseconds_of(Barrier barrier) {
  constexpr int kRuns = 5, kBarriers = 20;
  double best = std::numeric_limits<double>::infinity();
  for (int run = 0; run < kRuns; ++run) {
    barrier();
    const Clock::time_point start = Clock::now();
    for (int i = 0; i < kBarriers; ++i) barrier();
    best = std::min(best, std::chrono::duration<double, std::nano>(Clock::now() - start).count() / kBarriers);
  }
  return best;
}

void relax() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#endif
}

}  // namespace

Mapping::Mapping(int descriptor, std::size_t bytes)
    : bytes_((std::max<std::size_t>(bytes, 1) + kPage - 1) / kPage * kPage) {
  const int flags = descriptor < 0 ? MAP_PRIVATE | MAP_ANONYMOUS : MAP_SHARED;
  void* const data = ::mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, flags, descriptor, 0);
  if (data == MAP_FAILED) fail(fmt::format("no memory for {} bytes", bytes_));
  data_ = static_cast<std::byte*>(data);
}

Mapping::Mapping(Mapping&& other) noexcept : data_(std::exchange(other.data_, nullptr)), bytes_(other.bytes_) {}

Mapping& Mapping::operator=(Mapping&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

Mapping::~Mapping() {
  if (data_ != nullptr) ::munmap(data_, bytes_);
}

SyncFile::SyncFile(const std::string& path, int rank, int ranks, bool oversubscribed)
    : path_(path), rank_(rank), ranks_(ranks), oversubscribed_(oversubscribed) {
  const std::size_t bytes = sizeof(Slot) * kMostRanks + sizeof(double) * kMostTimes * static_cast<std::size_t>(ranks);
  const int file = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
  if (file < 0) fail(path);
  if (::ftruncate(file, static_cast<off_t>(bytes)) != 0) fail(path);  // all bytes are zero, so no rank has arrived
  file_ = Mapping(file, bytes);
  ::close(file);
}

void SyncFile::barrier() {
  slots()[rank_].arrived.store(++round_, std::memory_order_release);
  for (int rank = 0; rank < ranks_; ++rank) wait_for(rank, slots()[rank].arrived, round_);
}

void SyncFile::wait_for(int rank, const std::atomic<std::uint64_t>& word, std::uint64_t goal) {
  // polls before a yield; they take a few microseconds, after which threads of a library may need the core
  constexpr int kSpins = 200;
  wait_for(rank, word, goal, oversubscribed_ ? 0 : kSpins);
}

/// Blocks until `word`, which `rank` increments, has reached `goal`. After `spins` polls, yields the core between
/// polls.
void SyncFile::wait_for(int rank, const std::atomic<std::uint64_t>& word, std::uint64_t goal, int spins) {
  constexpr int kPollsPerLook = 1000;
  constexpr auto kOwing = std::chrono::milliseconds(1);
  constexpr auto kMissing = std::chrono::minutes(2);
  std::optional<Clock::time_point> start;
  BoundedYield pause(kOwing);
  for (int polls = 0; word.load(std::memory_order_acquire) < goal; ++polls) {
    polls >= spins ? pause.wait() : relax();
    if (!pause.sleeps() && polls % kPollsPerLook != 0) continue;
    const Clock::time_point now = Clock::now();
    if (!start) start = now;
    if (pause.sleeps() && progress_) progress_();
    if (now - *start > kMissing)
      throw std::runtime_error(fmt::format("rank {} waits in vain for rank {}", rank_, rank));
  }
}

Clock::time_point SyncFile::start_together() {
  // time from rank 0's store to the start, in which the word reaches every core
  constexpr auto kHeadStart = std::chrono::microseconds(1);
  barrier();
  if (oversubscribed_) return Clock::now();
  // The lowest bit of the word distinguishes this start from the previous one. All ranks have read the word of the
  // previous start before they enter this barrier, so rank 0 may overwrite it.
  const std::uint64_t parity = ++starts_ & 1;
  std::atomic<std::uint64_t>& word = slots()[0].start;
  if (rank_ == 0) {
    const auto when = static_cast<std::uint64_t>((Clock::now() + kHeadStart).time_since_epoch().count());
    word.store(when << 1 | parity, std::memory_order_release);
  }
  std::uint64_t said = word.load(std::memory_order_acquire);
  constexpr auto kMissing = std::chrono::minutes(2);
  const Clock::time_point since = Clock::now();
  for (; (said & 1) != parity; said = word.load(std::memory_order_acquire)) {
    relax();
    if (Clock::now() - since > kMissing)
      throw std::runtime_error(fmt::format("rank {} waits in vain for rank 0", rank_));
  }
  const Clock::time_point start{Clock::duration(static_cast<Clock::rep>(said >> 1))};
  while (Clock::now() < start) {
  }
  return start;
}

double SyncFile::distance() {
  barrier();
  const double mine = oversubscribed_ ? distance_of_cores() : nanoseconds_of([this] { barrier(); });
  // the order of the bits is that of the values, because no value is negative
  return std::bit_cast<double>(std::ranges::max(exchange(std::bit_cast<std::uint64_t>(mine))));
}

/// Performs a barrier of this rank and rank `other`. Both must have a core of their own.
void SyncFile::pair_barrier(int other) {
  constexpr int kSpins = 200;
  slots()[rank_].pair_arrived.store(++pair_rounds_, std::memory_order_release);
  wait_for(other, slots()[other].pair_arrived, pair_rounds_, kSpins);
}

double SyncFile::distance_of_cores() {
  constexpr auto kLongerThanThat = std::chrono::milliseconds(2);
  cpu_set_t mine;
  if (ranks_ < 2 || ::sched_getaffinity(0, sizeof mine, &mine) != 0 || CPU_COUNT(&mine) < 2) return 0;
  if (rank_ >= 2) {
    std::this_thread::sleep_for(kLongerThanThat);
    return 0;
  }
  std::size_t core = 0;
  for (int left = rank_; !CPU_ISSET(core, &mine) || left-- > 0;) ++core;
  cpu_set_t one;
  CPU_ZERO(&one);
  CPU_SET(core, &one);
  ::sched_setaffinity(0, sizeof one, &one);
  pair_barrier(1 - rank_);
  const double best = nanoseconds_of([this] { pair_barrier(1 - rank_); });
  ::sched_setaffinity(0, sizeof mine, &mine);
  return best;
}

std::vector<std::uint64_t> SyncFile::exchange(std::uint64_t word) {
  slots()[rank_].word = word;
  barrier();
  std::vector<std::uint64_t> words;
  for (int rank = 0; rank < ranks_; ++rank) words.push_back(slots()[rank].word);
  barrier();  // every rank has read before the next word is written
  return words;
}

std::span<double> SyncFile::times(int rank) const noexcept {
  auto* const all = reinterpret_cast<double*>(file_.data() + sizeof(Slot) * kMostRanks);
  return {all + static_cast<std::size_t>(rank) * kMostTimes, kMostTimes};
}

}  // namespace collectives::compare
