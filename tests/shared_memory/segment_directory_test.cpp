// Tests of segment directories, by which a rank uses memory of another rank. A segment is memory of allocate(). Its
// owner gives peers a 64-bit name for a place in it. Ranks are processes or threads. Further tests free and allocate
// segments between two uses.
#include "shared_memory/segment_directory.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <barrier>
#include <csignal>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "collectives/memory.hpp"
#include "support/child.hpp"
#include "support/system.hpp"

namespace collectives::testing {
namespace {

constexpr std::size_t kMiB = std::size_t{1} << 20;
// Text in the name of each segment's file, before a token. It also matches the files of arenas, whose names have no
// token.
constexpr std::string_view kSegmentFile = "memfd:collectives ";

const ArenaShape kTwoRanks{.ranks = 2, .inline_bytes = 64, .chunk_bytes = 64, .frame_bytes = 64};

/// The arena, the shared memory of a host, of two ranks. This process is local rank 0; join() makes local rank 1.
struct Host {
  std::unique_ptr<Arena> arena = Arena::create(kTwoRanks);
  std::string handle = arena->handle();
  std::unique_ptr<Arena> join() const { return Arena::join(handle, kTwoRanks, 1); }
};

TEST(SegmentDirectory, OrdinaryMemoryHasNoName) {
  const Host host;
  SegmentDirectory segments(*host.arena);
  const std::vector<char> ordinary(1000);
  EXPECT_EQ(segments.name_of(ordinary.data(), ordinary.size()), 0u);
  EXPECT_EQ(segments.name_of(nullptr, 0), 0u);
  const SharedMemory memory(4 * kMiB);
  EXPECT_NE(segments.name_of(memory.data(), memory.size()), 0u);
  EXPECT_EQ(segments.name_of(ordinary.data(), ordinary.size()), 0u);
  EXPECT_EQ(segments.resolve(1, 0, 1), nullptr);
}

TEST(SegmentDirectory, ANameCoversExactlyTheBytesOfItsSegment) {
  const Host host;
  SegmentDirectory segments(*host.arena);
  const SharedMemory memory(4 * kMiB);
  std::byte* const end = memory.data() + memory.size();
  const std::uint64_t name = segments.name_of(memory.data(), memory.size());
  EXPECT_EQ(segments.name_of(memory.data() + 12345, 7), name + 12345);
  EXPECT_EQ(segments.name_of(end - 1, 1), name + memory.size() - 1);
  EXPECT_EQ(segments.name_of(end - 1, 2), 0u);
  EXPECT_EQ(segments.name_of(memory.data(), memory.size() + 1), 0u);
  EXPECT_EQ(segments.name_of(end, 1), 0u);
  EXPECT_EQ(segments.name_of(memory.data() - 1, 1), 0u);
  EXPECT_EQ(segments.resolve(0, name + 5, 10), memory.data() + 5);
  EXPECT_EQ(segments.resolve(0, name, memory.size() + 1), nullptr);
  EXPECT_EQ(segments.resolve(0, name + memory.size(), 1), nullptr);
  EXPECT_EQ(segments.resolve(0, name + memory.size() + 1, 0), nullptr);
  EXPECT_EQ(segments.resolve(1, name, 1), nullptr);  // the name belongs to rank 0, not to rank 1
}

TEST(SegmentDirectory, ProcessesReadAndWriteEachOthersMemory) {
  const Host host;
  const SharedArray<int> mine(3'000'000);
  Child child([&](Line& line) {
    const auto arena = host.join();
    SegmentDirectory segments(*arena);
    std::vector<int, SharedAllocator<int>> theirs(1000);  // short vectors lie in one common segment
    for (int i = 0; i < 1000; ++i) theirs[static_cast<std::size_t>(i)] = i;
    line.put(segments.name_of(theirs.data(), 1000 * sizeof(int)));
    auto* remote = reinterpret_cast<int*>(segments.resolve(0, line.take(), mine.size() * sizeof(int)));
    if (remote == nullptr || remote[0] != 17 || remote[2'999'999] != 18) return 1;
    remote[1'500'000] = 19;
    line.put(1);
    line.take();  // waits until the other rank has written to memory of this rank
    return theirs[999] == -1 ? 0 : 2;
  });
  SegmentDirectory segments(*host.arena);
  int* const here = const_cast<int*>(mine.data());
  here[0] = 17;
  here[2'999'999] = 18;
  child.line().put(segments.name_of(mine.data(), mine.size() * sizeof(int)));
  auto* remote = reinterpret_cast<int*>(segments.resolve(1, child.line().take(), 1000 * sizeof(int)));
  ASSERT_NE(remote, nullptr);
  EXPECT_EQ(remote[500], 500);
  EXPECT_EQ(child.line().take(), 1u);
  EXPECT_EQ(mine[1'500'000], 19);
  remote[999] = -1;
  child.line().put(1);
  EXPECT_EQ(child.wait(), 0);
}

// A child inherits the mapping of its parent's memory, but resolve() must return another address, that of its own
// mapping.
TEST(SegmentDirectory, AChildSeesMemoryOfItsParentAtAnotherAddress) {
  const Host host;
  SegmentDirectory segments(*host.arena);
  const SharedMemory memory(4 * kMiB);
  std::memset(memory.data(), 5, memory.size());
  const std::uint64_t name = segments.name_of(memory.data(), memory.size());
  Child child([&](Line&) {
    const auto arena = host.join();
    SegmentDirectory theirs(*arena);
    std::byte* const at = theirs.resolve(0, name, memory.size());
    return at != nullptr && at != memory.data() && at[4 * kMiB - 1] == std::byte{5} ? 0 : 1;
  });
  EXPECT_EQ(child.wait(), 0);
}

TEST(SegmentDirectory, RanksOfOneProcessUseItWhereItIs) {
  const Host host;
  const auto other = host.join();
  SegmentDirectory mine(*host.arena), theirs(*other);
  const SharedMemory memory(4 * kMiB), more(4 * kMiB);
  const int before = mappings_of(kSegmentFile);
  EXPECT_EQ(mine.resolve(1, theirs.name_of(memory.data(), 100), 100), memory.data());
  EXPECT_EQ(theirs.resolve(0, mine.name_of(more.data() + 8, 100), 100), more.data() + 8);
  // Two ranks of a process may both use what one of them allocated.
  EXPECT_EQ(theirs.resolve(0, mine.name_of(memory.data(), 100), 100), memory.data());
  EXPECT_EQ(mappings_of(kSegmentFile), before);
}

TEST(SegmentDirectory, ThreadsAllocateAndFreeWhileOthersLookThingsUp) {
  const Host host;
  const auto other = host.join();
  std::barrier turn(2);
  std::atomic<std::uint64_t> names[2]{};
  std::atomic<bool> stop{false};
  std::jthread noise([&] {  // a thread that is no rank and allocates meanwhile
    while (!stop) {
      const SharedMemory large(2 * kMiB);
      const std::vector<char, SharedAllocator<char>> small(100);
    }
  });
  const auto rank = [&](const Arena& arena) {
    SegmentDirectory segments(arena);
    const auto self = static_cast<std::size_t>(arena.self());
    for (int round = 0; round < 100; ++round) {
      const SharedArray<int> memory(round % 2 == 0 ? 1'000'000 : 100);
      const_cast<int*>(memory.data())[0] = round;
      names[self] = segments.name_of(memory.data(), memory.size() * sizeof(int));
      turn.arrive_and_wait();
      const auto* there =
          reinterpret_cast<int*>(segments.resolve(1 - arena.self(), names[1 - self], memory.size() * sizeof(int)));
      EXPECT_TRUE(there != nullptr && *there == round) << "round " << round;
      turn.arrive_and_wait();
    }
  };
  {
    std::jthread first([&] { rank(*host.arena); }), second([&] { rank(*other); });
  }
  stop = true;
}

TEST(SegmentDirectory, AnOldNameFailsAndANewNameFindsTheNewMemory) {
  const Host host;
  SegmentDirectory segments(*host.arena);
  Child child([&](Line& line) {
    const auto arena = host.join();
    SegmentDirectory theirs(*arena);
    for (std::uint64_t round = 0; round < 5; ++round) {
      SharedArray<std::uint64_t> memory(kMiB);
      memory[7] = round;
      line.put(theirs.name_of(memory.data(), memory.size() * sizeof(std::uint64_t)));
      line.take();
    }
    line.put(0);
    line.take();
    return 0;
  });
  std::uint64_t old = 0;
  for (std::uint64_t round = 0; round < 5; ++round) {
    const std::uint64_t name = child.line().take();
    EXPECT_NE(name, old);
    EXPECT_EQ(segments.resolve(1, old, 1), nullptr) << round;
    const std::byte* at = segments.resolve(1, name, 8 * kMiB);
    ASSERT_NE(at, nullptr);
    EXPECT_EQ(reinterpret_cast<const std::uint64_t*>(at)[7], round);
    EXPECT_EQ(segments.resolve(1, name, 8 * kMiB), at);
    old = name;
    child.line().put(1);
  }
  child.line().take();
  EXPECT_EQ(segments.resolve(1, old, 1), nullptr);
  child.line().put(1);
  EXPECT_EQ(child.wait(), 0);
}

TEST(SegmentDirectory, PagesGoBackThoughAPeerHasThemMapped) {
  const Host host;
  SegmentDirectory segments(*host.arena);
  Child child([&](Line& line) {
    const auto arena = host.join();
    SegmentDirectory theirs(*arena);
    std::optional<SharedMemory> memory(64 * kMiB);
    line.put(theirs.name_of(memory->data(), memory->size()));
    line.take();
    memory.reset();
    line.put(0);
    line.take();
    return 0;
  });
  const std::size_t before = status_bytes("RssShmem");
  std::byte* const at = segments.resolve(1, child.line().take(), 64 * kMiB);
  ASSERT_NE(at, nullptr);
  std::memset(at, 1, 64 * kMiB);
  EXPECT_GE(status_bytes("RssShmem"), before + 64 * kMiB);
  child.line().put(1);
  child.line().take();
  EXPECT_LT(status_bytes("RssShmem"), before + 4 * kMiB);
  child.line().put(1);
  EXPECT_EQ(child.wait(), 0);
}

TEST(SegmentDirectory, MappingsOfWhatIsFreedGoBeforeTheNextIsMade) {
  const Host host;
  SegmentDirectory segments(*host.arena);
  const int before = mappings_of(kSegmentFile);
  constexpr int kCount = 10;
  Child child([&](Line& line) {
    const auto arena = host.join();
    SegmentDirectory theirs(*arena);
    {
      std::vector<SharedMemory> all;
      for (int i = 0; i < kCount; ++i) {
        all.emplace_back(4 * kMiB);
        line.put(theirs.name_of(all.back().data(), 1));
      }
      line.take();
    }
    const SharedMemory next(4 * kMiB);
    line.put(theirs.name_of(next.data(), 1));
    line.take();
    return 0;
  });
  for (int i = 0; i < kCount; ++i) EXPECT_NE(segments.resolve(1, child.line().take(), 1), nullptr);
  EXPECT_EQ(mappings_of(kSegmentFile), before + kCount);
  child.line().put(1);
  EXPECT_NE(segments.resolve(1, child.line().take(), 1), nullptr);
  EXPECT_EQ(mappings_of(kSegmentFile), before + 1);
  child.line().put(1);
  EXPECT_EQ(child.wait(), 0);
}

TEST(SegmentDirectory, AThousandSegmentsLeakNothingOnEitherSide) {
  const Host host;
  SegmentDirectory segments(*host.arena);
  const auto burden = [] {
    return std::array{static_cast<std::size_t>(mappings_of(kSegmentFile)), descriptors_of(kSegmentFile).size(),
                      status_bytes("RssShmem") / (8 * kMiB)};
  };
  constexpr int kRounds = kSanitized ? 200 : 1000;
  Child child([&](Line& line) {
    const auto arena = host.join();
    SegmentDirectory theirs(*arena);
    const auto before = burden();
    for (int round = 0; round < kRounds; ++round) {
      const SharedMemory one(2 * kMiB), two(kMiB + 4096);  // two segments, announced in changing order
      line.put(theirs.name_of(round % 3 == 0 ? one.data() : two.data(), kMiB));
      line.put(theirs.name_of(one.data(), 2 * kMiB));
      line.take();
    }
    const auto after = burden();
    for (std::size_t i = 0; i < after.size(); ++i)
      if (after[i] > before[i] + 1) return static_cast<int>(i) + 1;
    return 0;
  });
  const auto before = burden();
  for (int round = 0; round < kRounds; ++round) {
    const std::uint64_t first = child.line().take(), second = child.line().take();
    std::byte* const one = segments.resolve(1, first, kMiB);
    std::byte* const two = segments.resolve(1, second, 2 * kMiB);
    ASSERT_TRUE(one != nullptr && two != nullptr) << round;
    one[kMiB - 1] = two[2 * kMiB - 1] = std::byte{1};
    child.line().put(1);
  }
  EXPECT_EQ(child.wait(), 0);
  const auto after = burden();
  for (std::size_t i = 0; i < after.size(); ++i) EXPECT_LE(after[i], before[i] + 2) << i;
}

TEST(SegmentDirectory, UnmapsSegmentsWithTheCommunicator) {
  const Host host;
  const int before = mappings_of(kSegmentFile);
  Child child([&](Line& line) {
    const auto arena = host.join();
    const SharedMemory memory(4 * kMiB);
    std::optional<SegmentDirectory> theirs(*arena);
    const std::uint64_t name = theirs->name_of(memory.data(), memory.size());
    line.put(name);
    line.take();
    theirs.reset();
    line.put(0);
    line.take();
    theirs.emplace(*arena);  // the directory of the next communicator names the same memory
    line.put(theirs->name_of(memory.data(), memory.size()));
    line.take();
    return 0;
  });
  {
    SegmentDirectory segments(*host.arena);
    const std::uint64_t name = child.line().take();
    EXPECT_NE(segments.resolve(1, name, 1), nullptr);
    EXPECT_EQ(mappings_of(kSegmentFile), before + 1);
    child.line().put(1);
    child.line().take();
    EXPECT_EQ(segments.resolve(1, name, 1), nullptr);
    child.line().put(1);
    const std::uint64_t again = child.line().take();
    EXPECT_NE(again, name);
    EXPECT_NE(segments.resolve(1, again, 1), nullptr);
  }
  EXPECT_EQ(mappings_of(kSegmentFile), before);
  child.line().put(1);
  EXPECT_EQ(child.wait(), 0);
}

TEST(SegmentDirectory, ADescriptorThatNamesSomethingElseByNowIsRefused) {
  const Host host;
  SegmentDirectory segments(*host.arena);
  Child child([&](Line& line) {
    const auto arena = host.join();
    SegmentDirectory theirs(*arena);
    const std::vector<int> before = descriptors_of(kSegmentFile);
    const SharedMemory memory(4 * kMiB);
    line.put(theirs.name_of(memory.data(), memory.size()));
    for (const int fd : descriptors_of(kSegmentFile)) {  // some programs close descriptors that they have not opened
      if (std::ranges::count(before, fd) != 0) continue;
      ::close(fd);
      const int other = ::memfd_create("collectives 0000000000000000", MFD_CLOEXEC | MFD_ALLOW_SEALING);
      if (other != fd || ::ftruncate(other, 4 * kMiB) != 0 || ::fcntl(other, F_ADD_SEALS, F_SEAL_SHRINK) != 0) return 1;
    }
    line.put(0);
    line.take();
    return 0;
  });
  const std::uint64_t name = child.line().take();
  child.line().take();
  ::testing::internal::CaptureStderr();
  EXPECT_EQ(segments.resolve(1, name, 1), nullptr);
  EXPECT_EQ(segments.resolve(1, name, 1), nullptr);
  const std::string said = ::testing::internal::GetCapturedStderr();
  EXPECT_NE(said.find("is not the segment that was announced\n"), said.npos) << said;
  EXPECT_EQ(std::ranges::count(said, '\n'), 1) << said;
  child.line().put(1);
  EXPECT_EQ(child.wait(), 0);
}

TEST(SegmentDirectory, ARankThatIsKilledTakesItsMemoryAlong) {
  const Host host;
  const SharedMemory mine(4 * kMiB);
  const int before = mappings_of(kSegmentFile);
  {
    SegmentDirectory segments(*host.arena);
    const std::uint64_t name = segments.name_of(mine.data(), mine.size());
    Child child([&](Line& line) {
      const auto arena = host.join();
      SegmentDirectory theirs(*arena);
      const SharedMemory memory(4 * kMiB);
      std::memset(memory.data(), 3, memory.size());
      if (theirs.resolve(0, name, 4 * kMiB) == nullptr) return 1;
      line.put(theirs.name_of(memory.data(), memory.size()));
      for (;;) line.take();
    });
    const std::uint64_t theirs = child.line().take();
    const std::byte* at = segments.resolve(1, theirs, 4 * kMiB);
    ASSERT_NE(at, nullptr);
    child.kill(SIGKILL);
    EXPECT_EQ(child.wait(), -SIGKILL);
    EXPECT_EQ(at[4 * kMiB - 1], std::byte{3});  // mapped memory stays while it is mapped
    EXPECT_EQ(mappings_of(kSegmentFile), before + 1);
  }
  EXPECT_EQ(mappings_of(kSegmentFile), before);
}

TEST(SegmentDirectory, AChildThatFreesWhatItInheritedTakesNothingFromItsParent) {
  const Host host;
  SegmentDirectory segments(*host.arena);
  auto large = std::make_unique<SharedArray<int>>(3'000'000);
  auto small = std::make_unique<SharedArray<int>>(10);
  (*large)[1'000'000] = (*small)[9] = 42;
  const std::uint64_t name = segments.name_of(large->data(), 12'000'000);
  Child child([&](Line& line) {
    if ((*large)[1'000'000] != 42) return 1;
    large.reset();
    small.reset();
    SharedArray<int> own(10);  // must not lie in the common segment of its parent
    own[9] = 7;
    line.put(1);
    line.take();
    return own[9] == 7 ? 0 : 2;
  });
  child.line().take();
  const SharedArray<int> next(10);
  child.line().put(1);
  EXPECT_EQ(child.wait(), 0);
  EXPECT_EQ((*large)[1'000'000], 42);
  EXPECT_EQ((*small)[9], 42);
  Child reader([&](Line&) {
    const auto arena = host.join();
    SegmentDirectory theirs(*arena);
    return theirs.resolve(0, name, 12'000'000) != nullptr ? 0 : 1;
  });
  EXPECT_EQ(reader.wait(), 0);
}

/// A peer that may not map the memory of rank 0 sees no memory. It prints one warning with `words` and throws nothing.
template <class Limit>
void expect_unmapped(Limit limit, std::string_view words) {
  const Host host;
  SegmentDirectory segments(*host.arena);
  const SharedMemory memory(64 * kMiB);
  const std::uint64_t name = segments.name_of(memory.data(), memory.size());
  Child child([&](Line&) {
    const auto arena = host.join();
    SegmentDirectory theirs(*arena);
    const StderrCapture stderr_capture;
    limit();
    if (theirs.resolve(0, name, 1) != nullptr || theirs.resolve(0, name, 1) != nullptr) return 1;
    const std::string said = stderr_capture.text();
    std::printf("%s", said.c_str());
    std::fflush(stdout);
    return said.find(words) != said.npos && std::ranges::count(said, '\n') == 1 ? 0 : 2;
  });
  EXPECT_EQ(child.wait(), 0);
}

TEST(SegmentDirectory, WarnsOnceIfAPeerHasNoDescriptors) {
  if (kSanitized) GTEST_SKIP() << "sanitizers need descriptors";
  expect_unmapped([] { set_limit(RLIMIT_NOFILE, 0); }, "RLIMIT_NOFILE is 0 (raise it with ulimit -n)");
}

TEST(SegmentDirectory, WarnsOnceIfAPeerHasNoAddressSpace) {
  if (kSanitized) GTEST_SKIP() << "sanitizers need address space";
  expect_unmapped([] { set_limit(RLIMIT_AS, status_bytes("VmSize") + 16 * kMiB); }, "RLIMIT_AS is ");
}

}  // namespace
}  // namespace collectives::testing
