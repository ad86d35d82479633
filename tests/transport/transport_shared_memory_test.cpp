// Tests of the transport between ranks of one host. It writes each message into a frame. Frames lie in the arena, the
// shared memory of the host. Ranks are threads of one process, or processes.
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "collectives/error.hpp"
#include "conformance/transport_conformance.hpp"
#include "shared_memory/arena.hpp"
#include "support/arenas.hpp"
#include "support/child.hpp"
#include "transport/shared_memory.hpp"

namespace collectives::testing {
namespace {

struct LocalTransports {
  static int ranks() { return 3; }
  template <class F>
  static void run(std::size_t frame_bytes, F f) {
    const ArenaShape shape{.ranks = ranks(), .inline_bytes = 64, .chunk_bytes = 64, .frame_bytes = frame_bytes};
    run_on_arenas(shape, [&](const Arena& arena, const std::function<void()>& barrier) {
      SharedMemoryTransport transport(arena, "local");
      End end{.rank = arena.self(), .ranks = ranks(), .transport = transport, .wire = nullptr, .barrier = barrier};
      f(end);
    });
  }
};

INSTANTIATE_TYPED_TEST_SUITE_P(Local, TransportConformance, LocalTransports);

const ArenaShape kTwoRanks{.ranks = 2, .inline_bytes = 64, .chunk_bytes = 4096, .frame_bytes = 4096};

/// Runs `child` in a child process. Returns the exit status, which is the result of `child`.
template <class F>
int in_child(F&& child) {
  const pid_t pid = ::fork();
  if (pid == 0) ::_exit(child());
  int status = 0;
  ::waitpid(pid, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

TEST(Arena, CarriesMessagesBetweenProcesses) {
  const auto arena = Arena::create(kTwoRanks);
  const std::string handle = arena->handle();
  SharedMemoryTransport transport(*arena, "shared_memory");
  std::memcpy(transport.acquire_frame(1), "question", 8);
  transport.send(1, 7, 8);
  EXPECT_EQ(in_child([&] {
              const auto joined = Arena::join(handle, kTwoRanks, 1);
              SharedMemoryTransport mine(*joined, "shared_memory");
              const Message* message = mine.receive(0);
              if (message == nullptr || message->tag != 7 || std::memcmp(message->data, "question", 8) != 0) return 1;
              mine.release(0);
              std::memcpy(mine.acquire_frame(0), "answer", 6);
              mine.send(0, 8, 6);
              return 0;
            }),
            0);
  const Message* answer = transport.receive(1);
  ASSERT_NE(answer, nullptr);
  EXPECT_EQ(answer->tag, 8u);
  EXPECT_EQ(std::string(reinterpret_cast<const char*>(answer->data), answer->bytes), "answer");
}

TEST(Arena, ReportsWhichProcessesAreAlive) {
  const auto arena = Arena::create(kTwoRanks);
  EXPECT_TRUE(arena->alive(0));
  EXPECT_FALSE(arena->alive(1));
  {
    const auto other = Arena::join(arena->handle(), kTwoRanks, 1);
    EXPECT_TRUE(arena->alive(1));
    EXPECT_TRUE(other->alive(0));
  }
  EXPECT_FALSE(arena->alive(1));
}

TEST(Arena, DetectsAProcessThatEndsSilently) {
  const auto arena = Arena::create(kTwoRanks);
  const std::string handle = arena->handle();
  int said[2], go[2];
  ASSERT_EQ(::pipe(said), 0);
  ASSERT_EQ(::pipe(go), 0);
  const pid_t pid = ::fork();
  if (pid == 0) {
    const auto joined = Arena::join(handle, kTwoRanks, 1);
    char word = 'x';
    if (::write(said[1], &word, 1) != 1 || ::read(go[0], &word, 1) != 1) ::_exit(1);
    ::kill(::getpid(), SIGKILL);
  }
  char word;
  ASSERT_EQ(::read(said[0], &word, 1), 1);
  EXPECT_TRUE(arena->alive(1));
  ASSERT_EQ(::write(go[1], &word, 1), 1);
  int status = 0;
  ASSERT_EQ(::waitpid(pid, &status, 0), pid);
  EXPECT_TRUE(WIFSIGNALED(status));
  EXPECT_FALSE(arena->alive(1));
  for (const int fd : {said[0], said[1], go[0], go[1]}) ::close(fd);
}

TEST(Arena, MarksEndedRanksForAllRanksOfTheHost) {
  constexpr ArenaShape kThreeRanks{.ranks = 3, .inline_bytes = 64, .chunk_bytes = 4096, .frame_bytes = 64};
  constexpr auto kEvery = std::chrono::milliseconds(10);
  const auto first = Arena::create(kThreeRanks);
  auto second = Arena::join(first->handle(), kThreeRanks, 1), third = Arena::join(first->handle(), kThreeRanks, 2);
  const std::chrono::nanoseconds begun = std::chrono::hours(1);
  first->search_ended(begun, kEvery);
  EXPECT_FALSE(first->ended(0) || first->ended(1) || first->ended(2));

  second.reset();
  third->search_ended(begun + kEvery / 2, kEvery);
  EXPECT_FALSE(third->ended(1)) << "a search began 5 ms ago";
  third->search_ended(begun + kEvery, kEvery);
  EXPECT_TRUE(third->ended(1));
  EXPECT_TRUE(first->ended(1)) << "rank 2 has found it";

  // A rank whose clock is an hour behind searches too.
  third.reset();
  first->search_ended(begun - std::chrono::minutes(59), kEvery);
  EXPECT_TRUE(first->ended(2));
  EXPECT_FALSE(first->ended(0));
}

TEST(Arena, NumbersEndedRanksInTheOrderOfTheirEnds) {
  constexpr ArenaShape kThreeRanks{.ranks = 3, .inline_bytes = 64, .chunk_bytes = 4096, .frame_bytes = 64};
  const auto first = Arena::create(kThreeRanks);
  auto second = Arena::join(first->handle(), kThreeRanks, 1), third = Arena::join(first->handle(), kThreeRanks, 2);
  third.reset();
  search_ended_in_all_arenas();
  second.reset();
  search_ended_in_all_arenas();
  EXPECT_EQ(first->ended(0), 0u);
  EXPECT_EQ(first->ended(1), 2u);
  EXPECT_EQ(first->ended(2), 1u);
}

TEST(Arena, NoticesAProcessThatEndsWhileItsChildLivesOn) {
  const auto arena = Arena::create(kTwoRanks);
  const std::string handle = arena->handle();
  int said[2], go[2];
  ASSERT_EQ(::pipe(said), 0);
  ASSERT_EQ(::pipe(go), 0);
  EXPECT_EQ(in_child([&] {
              const auto joined = Arena::join(handle, kTwoRanks, 1);
              const auto another = Arena::create(kTwoRanks);  // a process may hold the locks of several arenas
              char word = 'x';
              if (::fork() == 0) {
                ::close(go[1]);
                if (::write(said[1], &word, 1) != 1) ::_exit(1);
                ::_exit(static_cast<int>(::read(go[0], &word, 1)));  // keeps this process alive until the test ends
              }
              ::_exit(::read(said[0], &word, 1) == 1 ? 0 : 1);
              return 0;
            }),
            0);
  EXPECT_FALSE(arena->alive(1));
  for (const int fd : {said[0], said[1], go[0], go[1]}) ::close(fd);
}

TEST(Arena, KeepsThePlaceOfAProcessWhoseChildEnds) {
  const auto arena = Arena::create(kTwoRanks);
  auto other = Arena::join(arena->handle(), kTwoRanks, 1);
  EXPECT_EQ(in_child([&] {
              other.reset();  // destroys an inherited arena, as a child does that returns from main()
              return 0;
            }),
            0);
  EXPECT_TRUE(arena->alive(1));
  EXPECT_EQ(arena->block(1).departed.value.load(), 0u);
}

TEST(Arena, RefusesWhatIsNotTheArenaThatWasOffered) {
  const auto arena = Arena::create(kTwoRanks);
  EXPECT_THROW(Arena::join("nonsense", kTwoRanks, 1), Error);
  const std::string handle = arena->handle();
  // The token of the handle is wrong, as if the descriptor named another file now. A child process tries it.
  EXPECT_EQ(in_child([&] {
              std::string wrong = handle;
              wrong[wrong.find(' ', wrong.find(' ') + 1) + 1] ^= 1;  // a digit of the token
              try {
                Arena::join(wrong, kTwoRanks, 1);
                return 1;
              } catch (const Error& error) {
                return error.code() == Errc::system ? 0 : 2;
              }
            }),
            0);
  ArenaShape other = kTwoRanks;
  other.chunk_bytes *= 2;
  EXPECT_THROW(Arena::join(handle, other, 1), Error);
}

TEST(Arena, OfAnotherVersionIsRefusedInOneSentence) {
  const auto arena = Arena::create(kTwoRanks);
  const std::string handle = arena->handle();
  int pid = 0, fd = -1;
  std::sscanf(handle.c_str(), "%d %d", &pid, &fd);
  const std::uint64_t older = kProtocol - 1;
  ASSERT_EQ(::pwrite(fd, &older, sizeof older, 8), ssize_t{sizeof older});  // the version follows the magic number
  Child child([&](Line& line) {
    try {
      Arena::join(handle, kTwoRanks, 1);
    } catch (const Error& error) {
      line.put(std::string(error.what())
                   .ends_with("is of version " + std::to_string(older) + ", this library's of version " +
                              std::to_string(kProtocol) + ": let all ranks use the same library"));
    }
    return 0;
  });
  EXPECT_EQ(child.line().take(), 1u);
}

TEST(Arena, CreateNamesTheLimitThatIsTooSmall) {
  try {
    Arena::create({.ranks = 1000, .inline_bytes = 1024, .chunk_bytes = 1 << 30, .frame_bytes = 64});
    ADD_FAILURE() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Errc::system);
    EXPECT_NE(std::string(error.what()).find("for an arena: the"), std::string::npos) << error.what();
  }
}

}  // namespace
}  // namespace collectives::testing
