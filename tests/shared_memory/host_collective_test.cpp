// Tests of intra-host collectives, which the ranks of a host perform through shared memory by one of several protocols.
//
// Each protocol runs a random mixture of collectives, whose results are compared with known values. A protocol is a way
// to exchange data, such as by staging memory or through mapped buffers. The tests force it by the limits in the
// tuning, which are the lengths at which the protocol changes. Ranks are threads or processes, with and without a core
// for each.
//
// Buffers that are not on the heap end at inaccessible pages. Inputs gathered in place lie in read-only pages.
// COLLECTIVES_TEST_OPERATIONS makes the mixture longer.
#include "shared_memory/host_collective.hpp"

#include <gtest/gtest.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <random>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "base/round_up.hpp"
#include "base/wait.hpp"
#include "core/tuning_parameters.hpp"
#include "shared_memory/heap.hpp"

namespace collectives {
namespace {

/// Buffers that are mapped, so that every rank can access them by pointers: none, all, or a random choice (by_turns).
/// With by_turns_or_by_the_kernel, the kernel copies from and to the buffers that are not mapped.
enum class Mapped { none, all, by_turns, by_turns_or_by_the_kernel };

struct Setting {
  const char* name;
  TuningParameters tuning;
  bool processes = false;
  bool oversubscribed = false;
  Mapped mapped = Mapped::none;
  std::size_t ring = 1;  ///< factor by which the staging ring is longer than the tuning's chunk size requires
};

TuningParameters tuning_for(HostProtocol protocol) {
  TuningParameters tuning;
  tuning.inline_bytes = protocol == HostProtocol::inlined ? 64 << 10 : 0;
  tuning.one_shot_bytes = tuning.one_shot_bytes_of_many = tuning.one_shot_bytes_oversubscribed =
      protocol == HostProtocol::one_shot ? Tuning::kNever : 0;
  tuning.single_copy_bytes = tuning.single_copy_reduce_bytes =
      protocol == HostProtocol::single_copy ? 0 : Tuning::kNever;
  tuning.zero_copy_bytes = Tuning::kNever;
  tuning.chunk_bytes = 4096;  // small, so that a vector has many chunks
  return tuning;
}

TuningParameters past_the_caches(TuningParameters tuning) {
  tuning.streamed_staging_bytes = 0;
  tuning.chunk_bytes = 16 << 10;  // long chunks, because shorter vectors do not bypass the caches
  return tuning;
}

TuningParameters results_past_the_caches(TuningParameters tuning) {
  tuning.streaming_bytes = 0;
  tuning.chunk_bytes = 16 << 10;
  return tuning;
}

TuningParameters zero_copy_tuning() {
  TuningParameters tuning = tuning_for(HostProtocol::staged);
  tuning.zero_copy_bytes = tuning.zero_copy_bytes_oversubscribed = 0;
  return tuning;
}

/// Returns a tuning with which short vectors use zero copy or the staged protocol, and longer ones use single copy.
TuningParameters zero_copy_and_single_copy_tuning() {
  TuningParameters tuning = zero_copy_tuning();
  tuning.single_copy_bytes = tuning.single_copy_reduce_bytes = 4096;
  return tuning;
}

TuningParameters signal_tuning(std::size_t bytes) {
  TuningParameters tuning = tuning_for(HostProtocol::staged);
  tuning.signal_bytes = bytes;
  return tuning;
}

std::vector<Setting> settings() {
  std::vector<Setting> all{
      {"lines", tuning_for(HostProtocol::inlined)},
      {"lines_of_processes", tuning_for(HostProtocol::inlined), true},
      {"one_shot", tuning_for(HostProtocol::one_shot)},
      {"one_shot_of_processes", tuning_for(HostProtocol::one_shot), true},
      {"staged", tuning_for(HostProtocol::staged)},
      {"staged_of_processes", tuning_for(HostProtocol::staged), true},
      {"staged_past_the_caches", past_the_caches(tuning_for(HostProtocol::staged))},
      {"staged_past_the_caches_of_processes", past_the_caches(tuning_for(HostProtocol::staged)), true},
      {"one_shot_past_the_caches", past_the_caches(tuning_for(HostProtocol::one_shot))},
      {"staged_results_past_the_caches", results_past_the_caches(tuning_for(HostProtocol::staged))},
      {"staged_results_past_the_caches_of_processes", results_past_the_caches(tuning_for(HostProtocol::staged)), true},
      {"one_shot_results_past_the_caches", results_past_the_caches(tuning_for(HostProtocol::one_shot))},
      {"staged_in_a_long_ring", tuning_for(HostProtocol::staged), false, false, Mapped::none, 3},
      {"staged_oversubscribed_in_a_long_ring", tuning_for(HostProtocol::staged), false, true, Mapped::none, 3},
      {"staged_oversubscribed_at_the_front", tuning_for(HostProtocol::staged), false, true, Mapped::none, 64},
      {"one_shot_oversubscribed_at_the_front_of_processes", tuning_for(HostProtocol::one_shot), true, true,
       Mapped::none, 64},
      {"staged_where_a_signal_is_free", signal_tuning(0)},
      {"staged_where_a_signal_is_dear", signal_tuning(Tuning::kNever)},
      {"staged_oversubscribed", tuning_for(HostProtocol::staged), false, true},
      {"single_copy_of_processes", tuning_for(HostProtocol::single_copy), true},
      {"zero_copy", zero_copy_tuning(), false, false, Mapped::all},
      {"zero_copy_oversubscribed", zero_copy_tuning(), false, true, Mapped::all},
      {"zero_copy_of_processes", zero_copy_tuning(), true, false, Mapped::all},
      {"zero_copy_oversubscribed_of_processes", zero_copy_tuning(), true, true, Mapped::all},
      {"zero_copy_unmapped", zero_copy_tuning(), true},
      {"zero_copy_by_turns", zero_copy_tuning(), false, false, Mapped::by_turns},
      {"zero_copy_by_turns_oversubscribed", zero_copy_tuning(), false, true, Mapped::by_turns},
      {"zero_copy_by_turns_of_processes", zero_copy_tuning(), true, false, Mapped::by_turns},
      {"zero_copy_by_turns_oversubscribed_of_processes", zero_copy_tuning(), true, true, Mapped::by_turns},
      {"zero_copy_and_single_copy_by_turns_of_processes", zero_copy_and_single_copy_tuning(), true, false,
       Mapped::by_turns_or_by_the_kernel},
      {"everything", TuningParameters{}, true},
      {"everything_mapped", TuningParameters{}, true, false, Mapped::all},
      {"everything_oversubscribed", TuningParameters{}, true, true, Mapped::all},
  };
#if defined(__SANITIZE_THREAD__)  // the thread sanitizer does not see accesses of other processes
  all.push_back({"everything_of_threads", TuningParameters{}, false, false, Mapped::all});
  std::erase_if(all, [](const Setting& setting) { return setting.processes; });
#endif
  return all;
}

/// One collective of the mixture, equal on every rank.
struct Operation {
  Step::Kind kind;
  int root;
  std::size_t count;
  bool in_place;
  std::size_t shift;    ///< bytes between a buffer and the beginning or end of its page
  bool at_end = false;  ///< true: the buffer lies at the end of its page
  int times = 1;        ///< number of runs with the same operands
};

constexpr std::size_t kMostTimes = 3;

std::vector<Operation> mixture(std::uint64_t seed, int ranks, int length) {
  std::mt19937_64 random(seed);
  const auto below = [&](std::uint64_t n) { return static_cast<std::size_t>(random() % n); };
  constexpr Step::Kind kKinds[] = {
      Step::Kind::host_all_reduce, Step::Kind::host_reduce_scatter, Step::Kind::host_all_gather,
      Step::Kind::host_barrier,    Step::Kind::host_gather,         Step::Kind::host_scatter,
      Step::Kind::host_scan,       Step::Kind::host_exclusive_scan, Step::Kind::host_all_to_all};
  constexpr std::size_t kMost[] = {3, 40, 300, 1500, 1024, 9000, 20000};
  std::vector<Operation> operations;
  for (int i = 0; i < length; ++i) {
    Operation one{
        kKinds[below(std::size(kKinds))], -1,           1 + below(kMost[below(std::size(kMost))]), below(2) == 0,
        below(2) * 4 * below(16),         below(2) == 0};
    const bool rooted = one.kind == Step::Kind::host_gather || one.kind == Step::Kind::host_scatter;
    if (rooted ||
        ((one.kind == Step::Kind::host_reduce_scatter || one.kind == Step::Kind::host_all_gather) && below(2) == 0))
      one.root = static_cast<int>(below(static_cast<std::uint64_t>(ranks)));
    if (one.kind == Step::Kind::host_all_to_all) one.count = round_up(one.count, static_cast<std::size_t>(ranks));
    one.times = static_cast<int>(1 + below(kMostTimes));
    operations.push_back(one);
  }
  return operations;
}

std::int32_t value(std::size_t operation, int rank, std::size_t index) {
  return static_cast<std::int32_t>(operation * 7919 + static_cast<std::size_t>(rank) * 104729 + index * 31);
}

constexpr std::size_t kPage = 4096;
constexpr std::size_t kBufferBytes = 21 * kPage;  // bytes of a buffer and of its surroundings
constexpr std::byte kGuardByte{0xa5};

/// An operation as one rank sees it.
struct Expected {
  const Operation& op;
  int self, ranks;
  Parts parts;
  bool gathers = op.kind == Step::Kind::host_gather, scatters = op.kind == Step::Kind::host_scatter;
  bool combines =
      op.kind == Step::Kind::host_all_reduce || op.kind == Step::Kind::host_reduce_scatter || scans(op.kind);
  bool all_want_all =
      op.kind == Step::Kind::host_all_reduce || op.kind == Step::Kind::host_all_gather || scans(op.kind);
  bool deals = op.kind == Step::Kind::host_all_to_all;
  /// In some all-to-alls, only every other rank works in place.
  bool in_place = op.in_place || (deals && op.at_end && self % 2 == 0);

  static bool has_one_owner(const Operation& op) {
    return op.root >= 0 && op.kind != Step::Kind::host_gather && op.kind != Step::Kind::host_scatter;
  }
  Range whole() const { return {0, op.count}; }
  Range slice(int r) const { return !has_one_owner(op) ? parts[r] : r == op.root ? whole() : Range{}; }
  Range mine() const {
    if (scatters) return self == op.root ? whole() : Range{};
    return combines || deals ? whole() : slice(self);
  }
  Range wanted() const {
    if (gathers) return self == op.root ? whole() : Range{};
    if (op.kind == Step::Kind::host_exclusive_scan && self == 0) return {};
    return all_want_all || deals ? whole() : slice(self);
  }
  /// Returns the number of ranks whose values are in the result of a combination.
  int terms() const {
    return op.kind == Step::Kind::host_scan ? self + 1 : op.kind == Step::Kind::host_exclusive_scan ? self : ranks;
  }

  /// Returns the expected element `i`. `owner` is the rank whose slice contains an earlier element, or 0, and advances
  /// to the rank of element `i`.
  std::int32_t result(std::size_t number, std::size_t i, int& owner) const {
    if (deals) {
      const std::size_t each = op.count / static_cast<std::size_t>(ranks);
      return value(number, static_cast<int>(i / each), static_cast<std::size_t>(self) * each + i % each);
    }
    if (scatters) return value(number, op.root, i);
    if (!combines) {
      while (i >= slice(owner).first + slice(owner).count) ++owner;
      return value(number, owner, i);
    }
    std::uint32_t sum = 0;
    for (int r = 0; r < terms(); ++r) sum += static_cast<std::uint32_t>(value(number, r, i));
    return static_cast<std::int32_t>(sum);
  }
};

/// The whole pages of a range, which are read-only to this process while this object exists.
class OnlyRead {
 public:
  OnlyRead(std::byte* begin, std::byte* end)
      : first_(reinterpret_cast<std::byte*>((reinterpret_cast<std::uintptr_t>(begin) + kPage - 1) / kPage * kPage)),
        bytes_(end < first_ ? 0 : static_cast<std::size_t>(end - first_) / kPage * kPage) {
    if (protect(PROT_READ) != 0) throw std::runtime_error("mprotect");
  }
  ~OnlyRead() { protect(PROT_READ | PROT_WRITE); }
  OnlyRead(const OnlyRead&) = delete;
  OnlyRead& operator=(const OnlyRead&) = delete;

 private:
  int protect(int how) const { return bytes_ > 0 ? ::mprotect(first_, bytes_, how) : 0; }
  std::byte* first_;
  std::size_t bytes_;
};

/// Returns the first byte in [begin, end) that is not kGuardByte, or null if there is none.
const std::byte* other_than_guard(const std::byte* begin, const std::byte* end) {
  static const std::vector<std::byte> guard(kBufferBytes, kGuardByte);
  // A comparison of all bytes at once takes a fraction of the time of a loop, mostly under sanitizers.
  if (std::memcmp(begin, guard.data(), static_cast<std::size_t>(end - begin)) == 0) return nullptr;
  return std::find_if(begin, end, [](std::byte byte) { return byte != kGuardByte; });
}

/// Operations on one rank, which differ in values only. Fills its buffers, performs each operation, and compares every
/// byte of both.
void perform(HostCollective& collective, const Operation& op, std::size_t index, int self, int ranks, std::byte* input,
             std::byte* output, const std::function<void()>& wait) {
  const Expected expected{op, self, ranks, Parts::equal({0, op.count}, Expected::has_one_owner(op) ? 1 : ranks)};
  std::vector<Rank> owners(static_cast<std::size_t>(ranks));
  for (int r = 0; r < ranks; ++r) owners[static_cast<std::size_t>(r)] = r;
  const std::size_t place = op.at_end ? kBufferBytes - op.count * 4 - op.shift : op.shift;
  std::byte* const in = input + place;
  std::byte* const out = expected.in_place ? in : output + place;
  const auto fail = [&](const std::string& words) {
    throw std::runtime_error("operation " + std::to_string(index) + words);
  };

  HostTask task;
  collective.describe({.kind = op.kind,
                       .finish = true,
                       .destination = Place::output,
                       .parts = expected.parts,
                       .owners = owners,
                       .root = op.root},
                      size_of(DataType::i32), task);
  HostOperands operands{.source = in,
                        .destination = out,
                        .type = DataType::i32,
                        .op = ReduceOp::sum,
                        .finish_ranks = ranks,
                        .known_as = op.times > 1 ? index + 1 : 0};
  for (int time = 0; time < op.times; ++time) {
    const std::size_t number = index * kMostTimes + static_cast<std::size_t>(time);
    std::memset(input, static_cast<int>(kGuardByte), kBufferBytes);
    std::memset(output, static_cast<int>(kGuardByte), kBufferBytes);
    const Range mine = expected.mine();
    for (std::size_t i = mine.first; i < mine.first + mine.count; ++i) {
      const std::int32_t x = value(number, self, i);
      std::memcpy(in + i * 4, &x, 4);
    }
    operands.tag = 0x1234567800000000ULL + number + 1;
    {
      // An input that is gathered in place may be on its way to other hosts, so the operation must not write to it.
      std::byte* const shown = in + mine.first * 4;
      const bool stays = op.kind == Step::Kind::host_all_gather && op.in_place;
      const OnlyRead guard(shown, stays ? shown + mine.count * 4 : shown);
      collective.start(task, operands);
      while (!collective.progress()) wait();
    }
    if (op.kind == Step::Kind::host_barrier) continue;

    const Range wanted = expected.wanted();
    int owner = 0;
    for (std::size_t i = wanted.first; i < wanted.first + wanted.count; ++i) {
      std::int32_t seen;
      std::memcpy(&seen, out + i * 4, 4);
      if (const std::int32_t right = expected.result(number, i, owner); seen != right)
        fail(", time " + std::to_string(time) + ", element " + std::to_string(i) + " of " + std::to_string(op.count) +
             ": " + std::to_string(seen) + " in place of " + std::to_string(right));
    }
    if (expected.in_place) continue;
    const std::byte *const begin = output + place + wanted.first * 4, *const end = begin + wanted.count * 4;
    for (const std::byte* const written :
         {other_than_guard(output, begin), other_than_guard(end, output + kBufferBytes)})
      if (written != nullptr)
        fail(" wrote at " + std::to_string(written - begin) + " of " + std::to_string(end - begin) + " bytes");
  }
}

/// Buffers between inaccessible pages.
class Buffers {
 public:
  /// `kind` is MAP_SHARED or MAP_PRIVATE.
  Buffers(int count, int kind) : bytes_(static_cast<std::size_t>(count) * (kBufferBytes + kPage) + kPage) {
    all_ = static_cast<std::byte*>(::mmap(nullptr, bytes_, PROT_NONE, kind | MAP_ANONYMOUS, -1, 0));
    for (int i = 0; i < count; ++i) ::mprotect((*this)[i], kBufferBytes, PROT_READ | PROT_WRITE);
  }
  ~Buffers() { ::munmap(all_, bytes_); }
  Buffers(const Buffers&) = delete;
  Buffers& operator=(const Buffers&) = delete;
  std::byte* operator[](int i) const { return all_ + kPage + static_cast<std::size_t>(i) * (kBufferBytes + kPage); }

 private:
  std::size_t bytes_;
  std::byte* all_;
};

/// A buffer of the heap that every rank of the host can map.
class OfTheHeap {
 public:
  OfTheHeap() : data(Heap::of_process().allocate(kBufferBytes, kPage).data) {}
  ~OfTheHeap() { Heap::of_process().release(data, kBufferBytes); }
  OfTheHeap(const OfTheHeap&) = delete;
  OfTheHeap& operator=(const OfTheHeap&) = delete;
  std::byte* const data;
};

struct AnotherHasFailed {};

class HostCollectiveConformance : public ::testing::TestWithParam<std::tuple<Setting, int>> {
 protected:
  void run(const std::vector<Operation>& operations) {
    const auto& [setting, ranks] = GetParam();
    const Buffers shared(2 * ranks + 1, MAP_SHARED);  // two for each rank, and the words of a failure
    struct Failure {
      std::atomic<bool> failed;
      char words[1000];
    };
    Failure& failure = *reinterpret_cast<Failure*>(shared[2 * ranks]);
    const auto fail = [&failure](const std::string& words) {  // the first one counts
      if (!failure.failed.exchange(true)) std::snprintf(failure.words, sizeof failure.words, "%s", words.c_str());
    };
    const ArenaShape shape{.ranks = ranks,
                           .inline_bytes = setting.tuning.inline_bytes,
                           .chunk_bytes = setting.ring * setting.tuning.chunk_bytes,
                           .frame_bytes = 64};
    const std::unique_ptr<Arena> first = Arena::create(shape);
    const std::string handle = first->handle();

    const auto rank = [&, &setting = setting, ranks = ranks](int self) {
      try {
        std::unique_ptr<Arena> joined;
        if (self > 0) joined = Arena::join(handle, shape, self);
        const Arena& arena = self > 0 ? *joined : *first;
        const bool all_mapped = setting.mapped == Mapped::all;
        const bool by_turns = setting.mapped == Mapped::by_turns || setting.mapped == Mapped::by_turns_or_by_the_kernel;
        // If the kernel cannot copy, a buffer that is wrongly taken for mapped is an error.
        const bool kernel = setting.mapped == Mapped::none || setting.mapped == Mapped::by_turns_or_by_the_kernel;
        PeerMemory peer_memory(arena, all_mapped, kernel && setting.processes);
        HostCollective collective(SubgroupMemory(arena), setting.tuning, peer_memory, setting.oversubscribed);
        const Buffers own(2, MAP_PRIVATE);
        std::byte* const in = all_mapped ? shared[2 * self] : own[0];
        std::byte* const out = all_mapped ? shared[2 * self + 1] : own[1];
        const OfTheHeap mapped_in, mapped_out;
        std::mt19937 turns(static_cast<unsigned>(self));
        const auto in_turn = [&](const OfTheHeap& mapped, std::byte* otherwise) {
          return by_turns && turns() % 4 > 0 ? mapped.data : otherwise;
        };
        const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(100 + operations.size() / 100);
        for (std::size_t i = 0; i < operations.size(); ++i)
          perform(collective, operations[i], i, self, ranks, in_turn(mapped_in, in), in_turn(mapped_out, out),
                  [&, backoff = Backoff()]() mutable {
                    backoff.wait();
                    if (failure.failed) throw AnotherHasFailed{};
                    if (std::chrono::steady_clock::now() > until)
                      throw std::runtime_error("operation " + std::to_string(i) + " does not end");
                  });
      } catch (const AnotherHasFailed&) {
      } catch (const std::exception& error) {
        fail("rank " + std::to_string(self) + ": " + error.what());
      } catch (const TagMismatch& mismatch) {
        fail("rank " + std::to_string(self) + " sees another call's tag of rank " + std::to_string(mismatch.peer));
      }
    };
    if (setting.processes) {
      std::vector<pid_t> children;
      for (int self = 1; self < ranks; ++self) {
        const pid_t child = ::fork();
        if (child == 0) {
          rank(self);
          ::_exit(0);
        }
        children.push_back(child);
      }
      rank(0);
      for (const pid_t child : children) {
        int status = 0;
        ::waitpid(child, &status, 0);
        EXPECT_EQ(status, 0);
      }
    } else {
      std::vector<std::jthread> threads;
      for (int self = 1; self < ranks; ++self) threads.emplace_back(rank, self);
      rank(0);
    }
    EXPECT_STREQ(failure.words, "");
  }
};

// Sanitizers make everything many times slower, and one operation of each kind shows a race or an access out of bounds.
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
constexpr int kOperations = 100, kLongOperations = 32;
#else
constexpr int kOperations = 300, kLongOperations = 100;
#endif

// Numbers of ranks. Seven ranks run the same code as four, and take 80 s of CPU time with the thread sanitizer.
constexpr int kRankCounts[] = {1, 2, 3, 4,
#if !defined(__SANITIZE_THREAD__)
                               7
#endif
};

int operations() {
  const char* const wanted = std::getenv("COLLECTIVES_TEST_OPERATIONS");
  return wanted == nullptr ? kOperations : std::atoi(wanted);
}

TEST_P(HostCollectiveConformance, RandomMixtureIsRight) {
  const std::uint64_t seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  run(mixture(seed, std::get<1>(GetParam()), operations()));
}

TEST_P(HostCollectiveConformance, RootRunsAheadOfItsReaders) {
  // Many more one-sided operations than slots, of lengths that select several protocols.
  std::vector<Operation> operations;
  for (std::size_t i = 0; i < 3 * kCollectivesAhead; ++i)
    operations.push_back({Step::Kind::host_all_gather, 0, 1 + i * 37 % 2000, true, 0});
  run(operations);
}

TEST_P(HostCollectiveConformance, ManyRanksContributeToALateRoot) {
  std::vector<Operation> operations;
  for (std::size_t i = 0; i < 3 * kCollectivesAhead; ++i)
    operations.push_back({Step::Kind::host_reduce_scatter, 0, 1 + i * 37 % 2000, false, 4});
  run(operations);
}

TEST_P(HostCollectiveConformance, LongGathersAndReduceScattersAreRight) {
  // In more chunks than staging has, to and from each rank in turn.
  std::vector<Operation> operations;
  for (int i = 0; i < kLongOperations; ++i)
    operations.push_back({i % 2 == 0 ? Step::Kind::host_all_gather : Step::Kind::host_reduce_scatter,
                          i / 4 % std::get<1>(GetParam()), i % 8 < 4 ? std::size_t{4000} : 20000, i % 3 == 0, 0});
  run(operations);
}

TEST_P(HostCollectiveConformance, LongAllToAllsAreRight) {
  // In place on all ranks, on no rank, and on every other rank.
  const std::size_t count = round_up(19'000, static_cast<std::size_t>(std::get<1>(GetParam())));
  std::vector<Operation> operations;
  for (int i = 0; i < kLongOperations; ++i)
    operations.push_back({Step::Kind::host_all_to_all, -1, count, i % 3 == 0, 0, i % 3 == 1});
  run(operations);
}

TEST_P(HostCollectiveConformance, LongVectorsInPlaceAreRight) {
  // Many more chunks than staging has. A result must not overwrite values that are still to be staged.
  run(std::vector<Operation>(kLongOperations, {Step::Kind::host_all_reduce, -1, 20000, true, 0}));
}

TEST(HostCollective, StagesInTheCacheThatItsRanksHaveInCommon) {
  const std::unique_ptr<Arena> arena =
      Arena::create({.ranks = 1, .subgroups = 3, .inline_bytes = 64, .chunk_bytes = 4096, .frame_bytes = 64});
  PeerMemory peer_memory(*arena, false, false);
  const TuningParameters tuning = past_the_caches(TuningParameters{});
  const auto stores = [&](SubgroupMemory subgroup) {
    HostCollective collective(std::move(subgroup), tuning, peer_memory, false);
    const Parts parts = Parts::equal({0, 1 << 20}, 1);
    const Rank owners[] = {0};
    HostTask task;
    collective.describe({.kind = Step::Kind::host_all_reduce, .parts = parts, .owners = owners}, size_of(DataType::f32),
                        task);
    return task.stores_to_staging;
  };
  EXPECT_EQ(stores(SubgroupMemory(*arena)), Stores::streaming);
  EXPECT_EQ(stores(SubgroupMemory(*arena, SubgroupMemory::kRail, {0})), Stores::streaming);
  EXPECT_EQ(stores(SubgroupMemory(*arena, SubgroupMemory::kDomain, {0})), Stores::cached);
}

TEST(HostCollective, ShortStagesOfOversubscribedRanksTakeNoMoreThanTheFrontOfTheirRing) {
  constexpr int kRanks = 2, kCollectives = 300;
  constexpr std::size_t kFront = 256 << 10;
  const auto touched_after_it = [&](bool oversubscribed) {
    const TuningParameters tuning = tuning_for(HostProtocol::staged);
    const ArenaShape shape{.ranks = kRanks, .inline_bytes = 0, .chunk_bytes = 512 << 10, .frame_bytes = 64};
    const std::unique_ptr<Arena> arena = Arena::create(shape);
    const auto until = std::chrono::steady_clock::now() + std::chrono::minutes(1);
    const auto rank = [&](const Arena& mine, int self) {
      PeerMemory peer_memory(mine, false, false);
      HostCollective collective(SubgroupMemory(mine), tuning, peer_memory, oversubscribed);
      const Buffers own(2, MAP_PRIVATE);
      for (std::size_t i = 0; i < kCollectives; ++i)
        perform(collective, {Step::Kind::host_all_reduce, -1, 5000, false, 0}, i, self, kRanks, own[0], own[1],
                [&, backoff = Backoff()]() mutable {
                  backoff.wait();
                  if (std::chrono::steady_clock::now() > until) throw std::runtime_error("a stage does not end");
                });
    };
    std::jthread other([&] { rank(*Arena::join(arena->handle(), shape, 1), 1); });
    rank(*arena, 0);
    other.join();
    // A chunk of the front may take pages for a little more than itself.
    std::byte* const behind = arena->staging(0, 0) + 2 * kFront;
    std::vector<unsigned char> present((arena->staging_bytes() - 2 * kFront) / kPage);
    EXPECT_EQ(::mincore(behind, present.size() * kPage, present.data()), 0);
    return std::ranges::any_of(present, [](unsigned char each) { return (each & 1) != 0; });
  };
  EXPECT_FALSE(touched_after_it(true));
  EXPECT_TRUE(touched_after_it(false));
}

/// Binds the calling thread to a core, for as long as this object exists.
class OnCore {
 public:
  explicit OnCore(std::size_t core) {
    ::sched_getaffinity(0, sizeof all_, &all_);
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(core, &one);
    if (::sched_setaffinity(0, sizeof one, &one) != 0) throw std::runtime_error("sched_setaffinity");
  }
  ~OnCore() { ::sched_setaffinity(0, sizeof all_, &all_); }
  OnCore(const OnCore&) = delete;
  OnCore& operator=(const OnCore&) = delete;

 private:
  cpu_set_t all_;
};

TEST(HostCollective, OfOversubscribedRanksWaitsForOtherCoreIfItsOnlySourceLastRanThere) {
  cpu_set_t allowed;
  ASSERT_EQ(::sched_getaffinity(0, sizeof allowed, &allowed), 0);
  std::vector<std::size_t> cores;
  for (std::size_t core = 0; core < CPU_SETSIZE; ++core)
    if (CPU_ISSET(core, &allowed)) cores.push_back(core);
  if (cores.size() < 2) GTEST_SKIP() << "this process has one core";
  constexpr int kRanks = 2;
  const TuningParameters tuning = tuning_for(HostProtocol::inlined);
  const ArenaShape shape{.ranks = kRanks, .inline_bytes = 64, .chunk_bytes = 4096, .frame_bytes = 64};
  const auto waits = [&](Step::Kind kind, int root, bool oversubscribed, std::size_t core_of_reader) {
    const std::unique_ptr<Arena> arena = Arena::create(shape), joined = Arena::join(arena->handle(), shape, 1);
    PeerMemory of_root(*arena, false, false), of_reader(*joined, false, false);
    HostCollective at_root(SubgroupMemory(*arena), tuning, of_root, oversubscribed),
        at_reader(SubgroupMemory(*joined), tuning, of_reader, oversubscribed);
    const Rank owners[] = {0, 1};
    const bool has_one_owner = root >= 0 && kind != Step::Kind::host_gather && kind != Step::Kind::host_scatter;
    const Parts parts = Parts::equal({0, 2}, has_one_owner ? 1 : kRanks);
    std::byte in[64]{}, out[64]{};
    HostOperands operands{
        .source = in, .destination = out, .type = DataType::i32, .op = ReduceOp::sum, .finish_ranks = kRanks};
    operands.tag = 1;
    HostTask task;
    at_root.describe({.kind = kind, .destination = Place::output, .parts = parts, .owners = owners, .root = root},
                     size_of(DataType::i32), task);
    {
      const OnCore bound(cores[0]);
      at_root.start(task, operands);
    }
    const OnCore bound(core_of_reader);
    at_reader.start(task, operands);
    EXPECT_FALSE(at_root.waits_for_other_core());
    return at_reader.waits_for_other_core();
  };
  for (const Step::Kind kind : {Step::Kind::host_all_gather, Step::Kind::host_scatter}) {
    EXPECT_TRUE(waits(kind, 0, true, cores[1])) << static_cast<int>(kind);
    EXPECT_FALSE(waits(kind, 0, true, cores[0])) << "on one core, " << static_cast<int>(kind);
    EXPECT_FALSE(waits(kind, 0, false, cores[1])) << "a core for each rank, " << static_cast<int>(kind);
  }
  EXPECT_FALSE(waits(Step::Kind::host_all_gather, -1, true, cores[1])) << "every rank is a source";
  EXPECT_FALSE(waits(Step::Kind::host_all_reduce, -1, true, cores[1])) << "every rank is a source";
  EXPECT_FALSE(waits(Step::Kind::host_gather, 0, true, cores[1])) << "the root is no source";
  EXPECT_FALSE(waits(Step::Kind::host_reduce_scatter, 0, true, cores[1])) << "every rank is a source";
}

INSTANTIATE_TEST_SUITE_P(Protocols, HostCollectiveConformance,
                         ::testing::Combine(::testing::ValuesIn(settings()), ::testing::ValuesIn(kRankCounts)),
                         [](const auto& parameters) {
                           return std::string(std::get<0>(parameters.param).name) + "_" +
                                  std::to_string(std::get<1>(parameters.param));
                         });

}  // namespace
}  // namespace collectives
