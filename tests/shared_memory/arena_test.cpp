// Tests of the handles of arenas, and of the search for ended ranks. A handle may come from a process that is no rank
// of the host, so it may be wrong.
#include "shared_memory/arena.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "base/coarse_clock.hpp"
#include "base/descriptor.hpp"
#include "collectives/error.hpp"
#include "support/child.hpp"

namespace collectives {
namespace {

constexpr ArenaShape kShape{.ranks = 2, .frame_bytes = 64};

std::string error_of(const std::string& handle) {
  try {
    Arena::join(handle, kShape, 1);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Errc::system);
    return error.what();
  }
  return "no error";
}

std::string with_last_digit_changed(std::string handle) {
  handle.back() = handle.back() == '0' ? '1' : '0';
  return handle;
}

TEST(ArenaHandle, OfThisProcessIsFoundByItsTokenAlone) {
  const auto arena = Arena::create(kShape);
  const std::string handle = arena->handle();
  EXPECT_EQ(error_of(handle), "no error");
  const std::string token = handle.substr(handle.rfind(' '));
  EXPECT_EQ(token.size(), 33u) << "128 random bits";
  EXPECT_EQ(error_of("1 0" + token), "no error") << "the numbers are not used";
  EXPECT_NE(error_of(with_last_digit_changed(handle)).find("not the arena that was offered"), std::string::npos);
}

TEST(ArenaHandle, ThatNamesAnAddressIsRefused) {
  const std::uint64_t word = 0;
  for (const std::string& text : {fmt::format("{} 3 7 {}", ::getpid(), reinterpret_cast<std::uintptr_t>(&word)),
                                  fmt::format("{} 3 {:032x} {}", ::getpid(), 7, 4096), std::string(), std::string("x"),
                                  std::string("1 2"), std::string("-1 2 00112233445566778899aabbccddeeff"),
                                  std::string("1 99999999999 00112233445566778899aabbccddeeff"),
                                  std::string("1 2 0011223344556677 899aabbccddeeff"), std::string(100'000, '1')})
    EXPECT_EQ(error_of(text), "shared memory: not the handle of an arena") << text.substr(0, 80);
}

TEST(ArenaHandle, OfAnEndedArenaIsRefused) {
  const std::string handle = Arena::create(kShape)->handle();
  EXPECT_NE(error_of(handle), "no error");
}

TEST(ArenaHandle, OfAFileThatCanShrinkIsRefused) {
  // The arena is made in a child, so that this process does not know its token.
  testing::Child owner([&](testing::Line& line) {
    const auto arena = Arena::create(kShape);
    const std::string own = arena->handle();
    const int file = std::stoi(own.substr(own.find(' ') + 1));
    // A file with the same content, which its owner can cut at any time.
    const Descriptor unsealed(::memfd_create("collectives", MFD_CLOEXEC | MFD_ALLOW_SEALING));
    const auto bytes = static_cast<std::size_t>(::lseek(file, 0, SEEK_END));
    std::vector<char> header(64);
    if (::ftruncate(unsealed.fd(), static_cast<off_t>(bytes)) != 0 ||
        ::pread(file, header.data(), header.size(), 0) != 64 ||
        ::pwrite(unsealed.fd(), header.data(), header.size(), 0) != 64)
      return 1;
    for (const int number : {file, unsealed.fd()}) {
      const std::string text = fmt::format("{} {}{}", ::getpid(), number, own.substr(own.rfind(' ')));
      line.put(text.size());
      for (const char c : text) line.put(static_cast<unsigned char>(c));
    }
    return line.take() == 1 ? 0 : 1;
  });
  const auto next = [&] {
    std::string text(owner.line().take(), ' ');
    for (char& c : text) c = static_cast<char>(owner.line().take());
    return text;
  };
  const std::string sealed = next(), unsealed = next();
  EXPECT_EQ(error_of(sealed), "no error");
  EXPECT_NE(error_of(unsealed).find("not the arena that was offered"), std::string::npos) << error_of(unsealed);
  EXPECT_NE(error_of(with_last_digit_changed(sealed)).find("not the arena that was offered"), std::string::npos);
  owner.line().put(1);
  EXPECT_EQ(owner.wait(), 0);
}

TEST(ArenaHandle, OfAFifoOrADeviceOpensNothing) {
  int ends[2];
  ASSERT_EQ(::pipe2(ends, O_CLOEXEC), 0);
  const Descriptor reader(ends[0]), writer(ends[1]), null(::open("/dev/null", O_RDWR | O_CLOEXEC));
  for (const int file : {ends[0], ends[1], null.fd(), STDIN_FILENO})
    EXPECT_NE(error_of(fmt::format("{} {} 00112233445566778899aabbccddeeff", ::getpid(), file))
                  .find("not the arena that was offered"),
              std::string::npos);
}

TEST(ArenaSearch, TellsAProcessThatHasEndedFromARankThatHasLeft) {
  for (const bool leaves : {false, true}) {
    const auto arena = Arena::create(kShape);
    const std::string handle = arena->handle();
    const auto departed = [&] { return arena->block(1).departed.value.load(); };
    testing::Child other([&](testing::Line& line) {
      auto joined = Arena::join(handle, kShape, 1);
      line.put(1);
      line.take();
      if (leaves) joined.reset();
      ::_exit(0);
      return 0;
    });
    other.line().take();
    arena->search_ended(coarse_now(), std::chrono::nanoseconds(0));
    EXPECT_EQ(departed(), 0u);
    other.line().put(1);
    EXPECT_EQ(other.wait(), 0);
    EXPECT_EQ(departed(), leaves ? kHasLeft : 0u);
    arena->search_ended(coarse_now(), std::chrono::nanoseconds(0));
    EXPECT_EQ(departed(), leaves ? kHasLeft : kHasEnded);
    EXPECT_EQ(arena->ended(1), 1u);
  }
}

}  // namespace
}  // namespace collectives
