// Tests of memory that programs allocate from a communicator with allocate(), and of the errors of refused allocations.
#include "collectives/memory.hpp"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <limits>
#include <list>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "collectives/communicator.hpp"
#include "support/child.hpp"
#include "support/ranks.hpp"
#include "support/system.hpp"

namespace collectives::testing {
namespace {

constexpr std::size_t kMiB = std::size_t{1} << 20;
constexpr std::string_view kSegmentFile = "memfd:collectives ";

template <class T>
using SharedVector = std::vector<T, SharedAllocator<T>>;

std::uintptr_t address(const void* data) { return reinterpret_cast<std::uintptr_t>(data); }

TEST(Memory, CollectivesTakeItLikeAnyOther) {
  run_communicators(3, [](Communicator& comm) {
    auto array = comm.allocate<float>(100'000);
    std::ranges::fill(array, static_cast<float>(comm.rank() + 1));
    SharedVector<float> sum(100'000, comm.allocator<float>());
    std::vector<float> ordinary(100'000);
    comm.all_reduce(array, sum);
    comm.all_reduce(sum, ordinary, ReduceOp::max);
    EXPECT_EQ(ordinary.front(), 6.f);
    EXPECT_EQ(ordinary.back(), 6.f);
    comm.all_reduce(array);
    EXPECT_EQ(array[99'999], 6.f);
  });
}

TEST(Memory, ConvertsToWhatCallsAndAlgorithmsTake) {
  SharedArray<double> array(1000);
  const Buffer buffer = array;
  EXPECT_EQ(buffer.data, array.data());
  EXPECT_EQ(buffer.count, 1000u);
  EXPECT_EQ(buffer.type, DataType::f64);
  const auto& constant = array;
  const ConstBuffer to_read = constant;
  EXPECT_EQ(to_read.data, array.data());
  EXPECT_FALSE((std::is_constructible_v<Buffer, const SharedArray<double>&>));
  const std::span<double> span = array;
  EXPECT_EQ(span.size(), 1000u);
  const std::span<const double> to_see = constant;
  EXPECT_EQ(to_see.data(), array.data());
  struct Particle {
    float position[3];
    int kind;
  };
  SharedArray<Particle> particles(10);  // elements of a type that the library does not know
  particles[9].kind = 3;
  EXPECT_FALSE((std::is_constructible_v<Buffer, SharedArray<Particle>&>));
}

TEST(Memory, IsZeroAndAlignedAndTheCallersAlone) {
  for (const std::size_t alignment : {1u, 8u, 64u, 256u, 4096u, 1u << 22})
    for (const std::size_t bytes : {1u, 63u, 64u, 65u, 5000u, 1u << 20, (2u << 20) + 1}) {
      std::vector<SharedMemory> pieces;
      for (unsigned char i = 0; i < 3; ++i) {
        pieces.emplace_back(bytes, alignment);
        EXPECT_EQ(address(pieces.back().data()) % std::max<std::size_t>(alignment, 64), 0u);
        const std::span all(pieces.back().data(), bytes);
        EXPECT_TRUE(std::ranges::all_of(all, [](std::byte byte) { return byte == std::byte{}; }));
        std::ranges::fill(all, std::byte{static_cast<unsigned char>(i + 1)});
      }
      for (unsigned char i = 0; i < 3; ++i)
        EXPECT_TRUE(std::ranges::all_of(std::span(pieces[i].data(), bytes),
                                        [i](std::byte byte) { return byte == std::byte(i + 1); }))
            << bytes << " bytes at a multiple of " << alignment;
    }
}

TEST(Memory, MovesAndMayBeEmpty) {
  SharedArray<int> nothing, none(0);
  EXPECT_TRUE(nothing.empty() && none.empty());
  EXPECT_EQ(none.data(), nullptr);
  EXPECT_EQ(none.pages(), Pages::private_pages);
  SharedArray<int> first(1000);
  int* const data = first.data();
  data[999] = 5;
  SharedArray<int> second = std::move(first);
  EXPECT_EQ(second.data(), data);
  EXPECT_TRUE(first.empty());  // NOLINT(bugprone-use-after-move): a moved-from buffer is empty
  nothing = std::move(second);
  EXPECT_EQ(nothing[999], 5);
}

TEST(Memory, OutlivesTheCommunicatorAndServesTheNext) {
  run_ranks(2, [](Bootstrap& bootstrap) {
    SharedArray<int> array;
    {
      Communicator comm(bootstrap);
      array = comm.allocate<int>(1'000'000);
      array[999'999] = 1;
      comm.all_reduce(array);
    }
    EXPECT_EQ(array[999'999], 2);
    Communicator next(bootstrap);
    next.all_reduce(array);
    EXPECT_EQ(array[999'999], 4);
  });
}

TEST(Memory, SaysWhatItIsMadeOf) {
  const SharedArray<float> array(3'000'000);
  EXPECT_NE(array.pages(), Pages::private_pages);
  EXPECT_NE(array.describe().find("11.44 MiB: " + std::string(to_string(array.pages()))), std::string::npos)
      << array.describe();
}

TEST(Memory, AVectorOfThreeFloatsCostsNoDescriptor) {
  const SharedVector<float> first(3);
  const auto before = descriptors_of(kSegmentFile).size();
  std::vector<SharedVector<float>> many(1000, SharedVector<float>(3));
  EXPECT_EQ(descriptors_of(kSegmentFile).size(), before);
  for (const auto& vector : many) EXPECT_EQ(address(vector.data()) % 64, 0u);
}

TEST(Memory, TheNumberOfSegmentsGrowsWithTheLogarithmOfTheBytes) {
  std::vector<SharedVector<char>> tensors;
  const auto before = descriptors_of(kSegmentFile).size();
  for (int i = 0; i < 200; ++i) tensors.emplace_back(700'000);
  EXPECT_LE(descriptors_of(kSegmentFile).size(), before + 40);
  tensors.clear();
  EXPECT_LE(descriptors_of(kSegmentFile).size(), before + 1);
}

TEST(Memory, WhatIsFreedIsUsedAgain) {
  const SharedVector<char> keeps_the_segment(1);
  std::uintptr_t first = 0;
  for (int round = 0; round < 10'000; ++round) {
    const SharedVector<char> vector(5000);
    if (round == 0) first = address(vector.data());
    EXPECT_EQ(address(vector.data()), first);
  }
  // Free neighbours are joined in any order of freeing, so their total length fits again.
  for (int order = 0; order < 6; ++order) {
    std::optional<SharedMemory> parts[3];
    for (auto& part : parts) part.emplace(6400);
    const std::uintptr_t begin = address(parts[0]->data());
    const SharedMemory behind(64);
    const int last = order / 2, next = (last + 1 + order % 2) % 3;
    parts[3 - last - next].reset();
    parts[next].reset();
    parts[last].reset();
    const SharedMemory whole(3 * 6400);
    EXPECT_EQ(address(whole.data()), begin) << "order " << order;
  }
}

TEST(Memory, ContainersGrowAndShrinkInIt) {
  const auto before = descriptors_of(kSegmentFile).size();
  {
    SharedVector<int> vector;
    for (int i = 0; i < 2'000'000; ++i) vector.push_back(i);
    for (int i = 0; i < 2'000'000; i += 1000) ASSERT_EQ(vector[static_cast<std::size_t>(i)], i);
    vector.resize(10);
    vector.shrink_to_fit();
    EXPECT_EQ(vector[9], 9);
    std::list<int, SharedAllocator<int>> list(vector.begin(), vector.end());
    std::map<int, int, std::less<>, SharedAllocator<std::pair<const int, int>>> map;
    for (int i = 0; i < 10'000; ++i) map[i * 7919 % 10'007] = i;
    for (int i = 0; i < 10'000; i += 2) map.erase(i * 7919 % 10'007);
    EXPECT_EQ(map.size(), 5000u);
    EXPECT_EQ(map[7919], 1);
    EXPECT_EQ(list.size(), 10u);
    SharedVector<int> copy = vector, moved = std::move(vector);
    EXPECT_EQ(copy, moved);
  }
  EXPECT_LE(descriptors_of(kSegmentFile).size(), before + 1);
}

TEST(Memory, AThousandAllocationsLeakNothing) {
  const auto descriptors = descriptors_of(kSegmentFile).size();
  const int mappings = mappings_of(kSegmentFile);
  const std::size_t pages = status_bytes("RssShmem");
  for (int round = 0; round < 1000; ++round) {
    const SharedArray<float> large(1'000'000), small(1000);
    const_cast<float*>(small.data())[999] = 1.f;
  }
  EXPECT_LE(descriptors_of(kSegmentFile).size(), descriptors + 1);
  EXPECT_LE(mappings_of(kSegmentFile), mappings + 1);
  EXPECT_LE(status_bytes("RssShmem"), pages + 4 * kMiB);
}

TEST(Memory, ThreadsShareTheHeap) {
  std::vector<std::jthread> threads;
  for (int thread = 0; thread < 4; ++thread)
    threads.emplace_back([thread] {
      for (int round = 0; round < 300; ++round) {
        SharedVector<int> small(static_cast<std::size_t>(10 + 37 * round % 1000), thread);
        SharedArray<int> large(round % 50 == 0 ? 600'000 : 100);
        std::ranges::fill(large, round);
        ASSERT_TRUE(std::ranges::all_of(small, [thread](int value) { return value == thread; }));
        ASSERT_TRUE(std::ranges::all_of(large, [round](int value) { return value == round; }));
      }
    });
}

/// Returns the text of the Error{system} that `f` throws, or an empty text.
template <class F>
std::string refusal(F&& f) {
  try {
    f();
  } catch (const Error& error) {
    return error.code() == Errc::system ? error.what() : "not system";
  }
  return {};
}

/// Runs `prepare` in a child process, then expects the allocation of `bytes` to fail with one line that contains
/// `words`.
template <class Prepare>
void expect_refusal(std::size_t bytes, Prepare prepare, std::string_view words) {
  Child child([&](Line&) {
    prepare();
    const std::string text = refusal([&] { const SharedMemory memory(bytes); });
    std::printf("%s\n", text.c_str());
    std::fflush(stdout);
    return text.find(words) != text.npos ? 0 : 1;
  });
  EXPECT_EQ(child.wait(), 0);
}

TEST(NoMemory, IsReportedIfNoDescriptorIsLeft) {
  const auto exhaust = [] {
    // Sanitizers need descriptors themselves while an Error is made, so only memfd_create is refused.
    kSanitized ? refuse_calls({{SYS_memfd_create, EMFILE}}) : set_limit(RLIMIT_NOFILE, 0);
  };
  expect_refusal(8 * kMiB, exhaust, "memory: no 8 MiB for a segment: no file descriptor is left: RLIMIT_NOFILE is ");
}

TEST(NoMemory, IsReportedIfFilesMayNotBeThatLarge) {
  expect_refusal(
      8 * kMiB, [] { set_limit(RLIMIT_FSIZE, 4 * kMiB); }, "RLIMIT_FSIZE is 4 MiB (raise it with ulimit -f)");
}

TEST(NoMemory, IsReportedIfThereIsNoAddressSpace) {
  if (kSanitized) GTEST_SKIP() << "sanitizers need address space";
  expect_refusal(
      64 * kMiB, [] { set_limit(RLIMIT_AS, status_bytes("VmSize") + 16 * kMiB); }, "(raise it with ulimit -v)");
}

TEST(NoMemory, IsReportedIfTheMachineHasLess) {
  const std::string text = refusal([] { const SharedMemory memory(kMiB << 20); });
  EXPECT_NE(text.find("the machine has "), text.npos) << text;
  EXPECT_NE(refusal([] { const SharedMemory memory(std::numeric_limits<std::size_t>::max()); }), "");
  EXPECT_THROW(SharedArray<double>(std::numeric_limits<std::size_t>::max() / 4), std::bad_array_new_length);
  EXPECT_THROW(SharedMemory(100, 48), Error);
  const SharedMemory still_works(kMiB);
}

TEST(NoMemory, IsSaidByTheRank) {
  run_communicators(2, [](Communicator& comm) {
    try {
      const auto memory = comm.allocate_bytes(kMiB << 20);
      ADD_FAILURE();
    } catch (const Error& error) {
      EXPECT_EQ(error.rank(), comm.rank());
      EXPECT_EQ(std::string(error.what()).find("rank " + std::to_string(comm.rank()) + ": memory: no 1 TiB"), 0u);
    }
    comm.barrier();  // the communicator still works
  });
}

// The library's check before the allocation does not detect this limit.
TEST(NoMemory, IsReportedIfTheKernelHasNoPages) {
  expect_refusal(
      8 * kMiB,
      [] {
        refuse_calls({{SYS_madvise, EFAULT, 2, MADV_POPULATE_WRITE}});
      },
      "after 0 B: Bad address");
}

/// A control group (cgroup) with a memory limit. Its path is empty if the test may not make one.
class ControlGroup {
 public:
  explicit ControlGroup(std::size_t limit) {
    for (const auto& [root, file] :
         {std::pair("/sys/fs/cgroup/memory", "memory.limit_in_bytes"), std::pair("/sys/fs/cgroup", "memory.max")}) {
      path_ = std::string(root) + "/collectives_memory_test_" + std::to_string(::getpid());
      if (::mkdir(path_.c_str(), 0755) != 0) continue;
      if (std::ofstream(path_ + "/" + file) << limit << std::flush) return;
      ::rmdir(path_.c_str());
    }
    path_.clear();
  }
  ~ControlGroup() {
    if (exists()) ::rmdir(path_.c_str());
  }
  bool exists() const { return !path_.empty(); }
  void enter() const {
    if (!(std::ofstream(path_ + "/cgroup.procs") << ::getpid() << std::flush)) throw std::runtime_error("cgroup.procs");
  }

 private:
  std::string path_;
};

TEST(NoMemory, IsReportedAtTheLimitOfAControlGroup) {  // a limit at which the kernel ends the process
  const ControlGroup group(64 * kMiB);
  if (!group.exists()) GTEST_SKIP() << "no control group can be made here";
  expect_refusal(
      256 * kMiB, [&] { group.enter(); }, "the memory limit of this control group leaves ");
  // Several ranks together ask for too much. Some get an error, and no process ends.
  std::vector<std::unique_ptr<Child>> children;
  for (int i = 0; i < 3; ++i)
    children.push_back(std::make_unique<Child>([&](Line& line) {
      line.take();
      group.enter();
      std::vector<SharedMemory> pieces;
      const std::string text = refusal([&] {
        for (;;) pieces.emplace_back(kMiB);
      });
      return text.find("leaves") != text.npos ? 0 : 1;
    }));
  for (const auto& child : children) child->line().put(1);
  for (const auto& child : children) EXPECT_EQ(child->wait(), 0);
}

TEST(Memory, IsOrdinaryWhereSharingIsRefused) {
  Child child([](Line&) {
    refuse_calls({{SYS_memfd_create, EPERM}});
    const StderrCapture stderr_capture;
    SharedArray<int> large(1'000'000), larger(2'000'000);
    SharedVector<int> small(10);
    large[999'999] = larger[1'999'999] = small[9] = 1;
    const std::string said = stderr_capture.text();
    std::printf("%s", said.c_str());
    std::fflush(stdout);
    if (std::ranges::count(said, '\n') != 1 || said.find("memfd_create: Operation not permitted") == said.npos)
      return 1;
    return large.pages() == Pages::private_pages ? 0 : 2;
  });
  EXPECT_EQ(child.wait(), 0);
}

TEST(Memory, TakesSmallPagesWhereThereAreNoHugeOnes) {
  Child child([](Line&) {
    constexpr std::uint32_t collapse = 25;
    refuse_calls({{SYS_madvise, EINVAL, 2, collapse}, {SYS_madvise, EINVAL, 2, MADV_HUGEPAGE}});
    SharedArray<int> array(4'000'000);
    array[3'999'999] = 1;
    return array.pages() == Pages::small_pages ? 0 : 1;
  });
  if (SharedArray<int>(4'000'000).pages() == Pages::huge_pages) GTEST_SKIP() << "this machine has reserved huge pages";
  std::string setting;
  std::getline(std::ifstream("/sys/kernel/mm/transparent_hugepage/shmem_enabled"), setting);
  if (setting.find("[never]") == setting.npos && setting.find("[advise]") == setting.npos)
    GTEST_SKIP() << "this machine gives huge pages unasked: " << setting;
  EXPECT_EQ(child.wait(), 0);
}

TEST(Memory, WorksOnAKernelThatCannotPopulate) {
  Child child([](Line&) {
    refuse_calls({{SYS_madvise, EINVAL, 2, MADV_POPULATE_WRITE}});
    SharedArray<int> array(4'000'000);
    array[3'999'999] = 1;
    return array.pages() != Pages::private_pages ? 0 : 1;
  });
  EXPECT_EQ(child.wait(), 0);
}

TEST(Memory, WorksOnAKernelWithoutTheExecutionSeal) {
  Child child([](Line&) {
    refuse_calls({{SYS_memfd_create, EINVAL, 1, MFD_CLOEXEC | MFD_ALLOW_SEALING | 8}});
    const SharedArray<int> array(1'000'000);
    return array.pages() != Pages::private_pages ? 0 : 1;
  });
  EXPECT_EQ(child.wait(), 0);
}

}  // namespace
}  // namespace collectives::testing
