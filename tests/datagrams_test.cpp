// Datagrams beside a stream: two ends, and somebody in the middle who loses, doubles and reorders what they send.
#include "transport/datagrams.hpp"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <memory>
#include <mutex>
#include <new>
#include <set>
#include <string>
#include <thread>
#include <vector>

namespace collectives::testing {
namespace {

using namespace std::chrono_literals;

constexpr std::uint64_t kToken = 0x746f6b656e;

/// A socket on loopback with a port of its own.
tcp::Socket local_socket(int type, std::uint16_t& port) {
  tcp::Socket socket(::socket(AF_INET, type | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t bytes = sizeof address;
  EXPECT_EQ(::bind(socket.fd(), reinterpret_cast<sockaddr*>(&address), bytes), 0);
  EXPECT_EQ(::getsockname(socket.fd(), reinterpret_cast<sockaddr*>(&address), &bytes), 0);
  port = ntohs(address.sin_port);
  return socket;
}

void connect_to(const tcp::Socket& socket, std::uint16_t port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(port);
  EXPECT_EQ(::connect(socket.fd(), reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
}

/// A stream from one socket to another.
struct Stream {
  Stream() {
    std::uint16_t port = 0;
    const tcp::Socket listener = local_socket(SOCK_STREAM, port);
    EXPECT_EQ(::listen(listener.fd(), 1), 0);
    left = tcp::Socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    connect_to(left, port);
    right = tcp::Socket(::accept4(listener.fd(), nullptr, nullptr, SOCK_CLOEXEC));
  }
  tcp::Socket left, right;
};

/// What goes from `left` to `right` is caught, and let through or not; what `right` sends goes back when it is asked
/// for.
class Datagrams : public ::testing::Test {
 protected:
  explicit Datagrams(DatagramSettings settings = {})
      : left(stream.left, kToken, settings), right(stream.right, kToken, settings) {
    to_left_ = local_socket(SOCK_DGRAM, to_left_port_);
    to_right_ = local_socket(SOCK_DGRAM, to_right_port_);
    left.connect(stream.left, to_left_port_);
    right.connect(stream.right, to_right_port_);
    connect_to(to_left_, left.port());
    connect_to(to_right_, right.port());
    left.allow();
    right.allow();
  }

  bool send(std::uint32_t number, const std::string& text) {
    return left.send({number * 10UL, static_cast<std::uint32_t>(text.size()), number},
                     reinterpret_cast<const std::byte*>(text.data()), 0);
  }
  /// What `left` has sent last.
  std::string caught() { return receive(to_left_); }
  void let_through(const std::string& datagram) { pass(to_right_, datagram); }
  /// What `right` has to say goes back.
  void answer() {
    for (std::string said = receive(to_right_); !said.empty(); said = receive(to_right_)) pass(to_left_, said);
  }
  /// Number `number` as `right` has it; "nothing".
  std::string taken(std::uint32_t number) {
    const auto arrived = right.take(number);
    if (!arrived) return "nothing";
    EXPECT_EQ(arrived->header.tag, number * 10UL);
    EXPECT_EQ(arrived->header.number, number);
    lost = arrived->lost;
    retransmitted = arrived->retransmitted;
    return {reinterpret_cast<const char*>(arrived->data), arrived->header.bytes};
  }
  /// What `left` says again after so many ticks.
  std::vector<std::string> said_again(int ticks) {
    std::vector<std::string> said;
    for (int tick = 0; tick < ticks; ++tick)
      left.retransmit(false, [&](std::string_view text) {
        said.emplace_back(text);
        return true;
      });
    return said;
  }

  Stream stream;
  DatagramLink left, right;
  bool lost = false, retransmitted = false;

 private:
  static std::string receive(const tcp::Socket& from) {
    std::string text(1 << 16, '\0');
    const ssize_t got = ::recv(from.fd(), text.data(), text.size(), MSG_DONTWAIT);
    text.resize(got < 0 ? 0 : static_cast<std::size_t>(got));
    return text;
  }
  static void pass(const tcp::Socket& to, const std::string& datagram) {
    EXPECT_EQ(::send(to.fd(), datagram.data(), datagram.size(), 0), static_cast<ssize_t>(datagram.size()));
  }

  tcp::Socket to_left_, to_right_;
  std::uint16_t to_left_port_ = 0, to_right_port_ = 0;
};

TEST_F(Datagrams, ProbeOfTheGreatestLengthIsHeard) {
  EXPECT_FALSE(right.heard());
  left.probe();
  EXPECT_FALSE(right.heard());
  let_through(caught());
  EXPECT_TRUE(right.heard());
}

TEST_F(Datagrams, MessageArrivesAsItWasAlignedForVectors) {
  ASSERT_TRUE(send(0, "hello"));
  let_through(caught());
  const auto arrived = right.take(0);
  ASSERT_TRUE(arrived);
  EXPECT_EQ(std::string(reinterpret_cast<const char*>(arrived->data), arrived->header.bytes), "hello");
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(arrived->data) % 64, 0U);
  EXPECT_FALSE(arrived->retransmitted || arrived->lost);
}

TEST_F(Datagrams, OnesThatOvertakeWaitForTheirTurn) {
  std::vector<std::string> sent;
  for (std::uint32_t i = 0; i < 5; ++i) {
    ASSERT_TRUE(send(i, "number " + std::to_string(i)));
    sent.push_back(caught());
  }
  for (const std::size_t i : {3U, 1U, 4U, 2U}) let_through(sent[i]);
  EXPECT_EQ(taken(0), "nothing");
  let_through(sent[0]);
  for (std::uint32_t i = 0; i < 5; ++i) EXPECT_EQ(taken(i), "number " + std::to_string(i));
}

TEST_F(Datagrams, OneThatComesTwiceIsTakenOnce) {
  ASSERT_TRUE(send(0, "once"));
  const std::string zero = caught();
  ASSERT_TRUE(send(1, "early"));
  const std::string one = caught();
  for (const auto& datagram : {one, one, zero, zero, zero}) let_through(datagram);
  EXPECT_EQ(taken(0), "once");
  EXPECT_EQ(taken(1), "early");
  let_through(zero);
  EXPECT_EQ(taken(2), "nothing");
}

TEST_F(Datagrams, OneThatGetsLostIsSaidAgainOnce) {
  ASSERT_TRUE(send(0, "lost"));
  EXPECT_TRUE(said_again(1).empty()) << "before a whole tick had passed";
  const auto said = said_again(5);
  ASSERT_EQ(said.size(), 1U);
  EXPECT_TRUE(right.hear(said[0], 0));
  EXPECT_EQ(taken(0), "lost");
  EXPECT_TRUE(lost && retransmitted);
  let_through(caught());  // it was only late
  EXPECT_EQ(taken(1), "nothing");
}

TEST_F(Datagrams, OneThatNobodyHasLookedForIsNotLost) {
  ASSERT_TRUE(send(0, "on time"));
  let_through(caught());
  const auto said = said_again(3);
  ASSERT_EQ(said.size(), 1U);
  EXPECT_TRUE(right.hear(said[0], 0));
  EXPECT_EQ(taken(0), "on time");
  EXPECT_TRUE(retransmitted);
  EXPECT_FALSE(lost);
  EXPECT_FALSE(right.hear(said[0], 1)) << "it had been taken";
  EXPECT_EQ(taken(1), "nothing");
}

TEST_F(Datagrams, WhatIsAcknowledgedIsNotSaidAgain) {
  ASSERT_TRUE(send(0, "zero") && send(1, "one"));
  left.acknowledged(1, false);
  const auto said = said_again(3);
  ASSERT_EQ(said.size(), 1U);
  EXPECT_TRUE(right.hear(said[0], 0));
  EXPECT_EQ(taken(1), "one");
}

TEST_F(Datagrams, EveryOneAcknowledgesTheOtherDirection) {
  ASSERT_TRUE(send(0, "a question"));
  let_through(caught());
  EXPECT_EQ(taken(0), "a question");
  ASSERT_TRUE(right.send({0, 0, 0}, nullptr, 1));
  answer();
  EXPECT_TRUE(left.take(0));
  EXPECT_TRUE(said_again(5).empty());
}

TEST_F(Datagrams, AWindowThatIsFullOpensWhenHalfOfItIsTaken) {
  std::uint32_t number = 0;
  for (; number < DatagramLink::kWindow; ++number) {
    ASSERT_TRUE(send(number, "some"));
    let_through(caught());
  }
  EXPECT_FALSE(send(number, "too many"));
  for (std::uint32_t i = 0; i < DatagramLink::kWindow / 2; ++i) EXPECT_EQ(taken(i), "some");
  answer();  // by nothing but an acknowledgement
  EXPECT_TRUE(send(number, "room again"));
}

TEST_F(Datagrams, ALinkThatCannotSayThemAgainTriesLater) {
  ASSERT_TRUE(send(0, "again"));
  for (int tick = 0; tick < 4; ++tick) EXPECT_TRUE(left.retransmit(false, [](std::string_view) { return false; }));
  EXPECT_EQ(said_again(1).size(), 1U);
  EXPECT_FALSE(left.retransmit(false, [](std::string_view) { return true; })) << "nothing is left to say";
}

TEST_F(Datagrams, StrangersAndNonsenseAreNotTaken) {
  ASSERT_TRUE(send(0, "the real one"));
  const std::string real = caught();
  std::string other_token = real, longer = real;
  other_token[0] = static_cast<char>(other_token[0] ^ 1);
  longer += "!";
  for (const std::string& datagram : {other_token, longer, real.substr(0, real.size() - 1), real.substr(0, 31),
                                      std::string("x"), std::string(), std::string(20'000, 'y')})
    let_through(datagram);
  EXPECT_EQ(taken(0), "nothing");
  EXPECT_TRUE(right.hear("", 0));
  EXPECT_TRUE(right.hear("short", 0));
  EXPECT_TRUE(right.hear(std::string(16, '\xff'), 0));
  EXPECT_EQ(taken(0), "nothing");
  let_through(real);
  EXPECT_EQ(taken(0), "the real one");
}

TEST_F(Datagrams, ALossLeavesTheLinkToTheStreamForAWhile) {
  ASSERT_TRUE(send(0, "lost"));
  left.acknowledged(1, true);
  EXPECT_FALSE(send(1, "too soon"));
  for (const auto begun = std::chrono::steady_clock::now(); !send(1, "soon enough");) {
    ASSERT_LT(std::chrono::steady_clock::now() - begun, 1min);
    std::this_thread::sleep_for(1ms);
  }
}

TEST_F(Datagrams, NoMoreThanAPacketHolds) {
  EXPECT_TRUE(send(0, std::string(1000, 'a')));
  EXPECT_FALSE(send(1, std::string(9001, 'a')));
}

TEST_F(Datagrams, NumbersGoOnAfterTheLast) {
  const std::uint32_t last = 0xffffffff;
  for (std::uint32_t number = last - 2; number != 3; ++number) {
    ASSERT_TRUE(left.send({number * 10UL, 1, number}, reinterpret_cast<const std::byte*>("x"), 0)) << number;
    let_through(caught());
    EXPECT_EQ(taken(number), "x") << number;
    left.acknowledged(number + 1, false);
  }
  EXPECT_TRUE(said_again(3).empty());
}

TEST_F(Datagrams, ABurstOfLossesIsOneLoss) {
  for (std::uint32_t number = 0; number < DatagramLink::kWindow; ++number) ASSERT_TRUE(send(number, "lost"));
  const auto begun = std::chrono::steady_clock::now();
  for (std::uint32_t number = 0; number < DatagramLink::kWindow; ++number) left.acknowledged(number + 1, true);
  while (!send(DatagramLink::kWindow, "at last")) std::this_thread::sleep_for(1ms);
  EXPECT_LT(std::chrono::steady_clock::now() - begun, 10s) << "twice as long for each of eight is 12.8 s";
}

TEST_F(Datagrams, WhatIsOwedIsSettledOnce) {
  EXPECT_FALSE(right.settle());
  ASSERT_TRUE(send(0, "something"));
  let_through(caught());
  EXPECT_EQ(taken(0), "something");
  EXPECT_TRUE(right.settle());
  EXPECT_FALSE(right.settle());
}

/// Waits for it, a minute at most.
template <class F>
bool comes(F what) {
  for (const auto begun = std::chrono::steady_clock::now(); !what(); std::this_thread::sleep_for(1ms))
    if (std::chrono::steady_clock::now() - begun > 1min) return false;
  return true;
}

TEST(TheRetransmitter, LooksAsLongAsSomethingIsLeftAndThenRests) {
  std::atomic<int> looks{0}, left{3};
  Retransmitter retransmitter([&] {
    ++looks;
    return left.fetch_sub(1) > 1;
  });
  ASSERT_TRUE(comes([&] { return left <= 0; }));
  const int looked = looks;
  EXPECT_GE(looked, 3);
  std::this_thread::sleep_for(5 * DatagramLink::kTick);
  EXPECT_LE(looks, looked + 1) << "it looks although there is nothing";
  left = 3;
  EXPECT_TRUE(comes([&] {
    retransmitter.note();
    return left <= 0;
  }));
}

TEST(TheRetransmitter, IsOneThreadForAllThereAre) {
  std::mutex mutex;
  std::set<std::thread::id> threads;
  std::atomic<int> looks{0}, others{0};
  const auto count = [&](std::atomic<int>& these) {
    const std::lock_guard lock(mutex);
    threads.insert(std::this_thread::get_id());
    return ++these > 0;  // there is always something left
  };
  for (int lap = 1; lap <= 2; ++lap) {  // it ends with the last of them, and begins anew
    const Retransmitter one([&] { return count(looks); }), two([&] { return count(looks); });
    auto third = std::make_unique<Retransmitter>([&] { return count(others); });
    const int here = looks, there = others;
    EXPECT_TRUE(comes([&] { return looks >= here + 4 && others >= there + 2; }));
    third = nullptr;
    const int last = others, then = looks;
    EXPECT_TRUE(comes([&] { return looks >= then + 4; }));
    EXPECT_EQ(others, last) << "it has gone";
    const std::lock_guard lock(mutex);
    EXPECT_EQ(threads.size(), 1u);
    threads.clear();
  }
}

TEST(TheRetransmitter, IsWokenUpForOneWhileAnotherRests) {
  std::atomic<int> looks{0}, others{0};
  const Retransmitter resting([&] { return ++others, false; });
  Retransmitter busy([&] { return ++looks, false; });
  ASSERT_TRUE(comes([&] { return looks == 1 && others == 1; }));
  EXPECT_TRUE(comes([&] {
    busy.note();
    return looks >= 3;
  }));
  EXPECT_EQ(others, 1);
}

TEST(TheRetransmitter, LooksAgainWhenThereWasNoMemory) {
  std::atomic<int> looks{0};
  Retransmitter retransmitter([&]() -> bool {
    if (++looks < 3) throw std::bad_alloc();
    return false;
  });
  EXPECT_TRUE(comes([&] { return looks >= 3; }));
}

}  // namespace
}  // namespace collectives::testing
