// Tests of strangers at the TCP wire, in its connect phase. A stranger is a process without the secret of the job. It
// connects to the listener of a rank, or answers at the address of a rank.
#include <netinet/in.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <cstring>
#include <functional>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include "base/error_text.hpp"
#include "collectives/error.hpp"
#include "support/child.hpp"
#include "support/errors.hpp"
#include "support/ranks.hpp"
#include "support/system.hpp"
#include "transport/tcp.hpp"
#include "transport/tcp_addresses.hpp"
#include "transport/tcp_greeting.hpp"
#include "transport/tcp_network.hpp"
#include "transport/tcp_peer_watch.hpp"

namespace collectives::testing {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

const std::string kToken = "00112233445566778899aabbccddeeff";

/// Returns the addresses of all ranks, each of which is on a host of its own.
PeerAddresses on_own_hosts(Rank self, std::vector<std::string> addresses, std::chrono::milliseconds timeout = 1min) {
  std::vector<int> hosts(addresses.size());
  std::iota(hosts.begin(), hosts.end(), 0);
  return {.self = self,
          .addresses = std::move(addresses),
          .hosts = std::move(hosts),
          .token = kToken,
          .frame_bytes = 64,
          .deadline = Deadline::in(timeout)};
}

/// Returns the loopback address of the rank that has published `address`.
sockaddr_in loopback_of(const std::string& address) {
  sockaddr_in to{};
  std::memcpy(&to, &read_published_address(address, {}).at(0).storage, sizeof to);
  return to;
}

tcp::Socket connected_to(const std::string& address) {
  const sockaddr_in to = loopback_of(address);
  tcp::Socket socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  EXPECT_EQ(::connect(socket.fd(), reinterpret_cast<const sockaddr*>(&to), sizeof to), 0);
  return socket;
}

/// A listener on loopback that publishes its address as a rank does.
struct FakeRank {
  tcp::Socket listener{::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)};
  std::string address;

  FakeRank() {
    sockaddr_in at{};
    at.sin_family = AF_INET;
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t bytes = sizeof at;
    EXPECT_EQ(::bind(listener.fd(), reinterpret_cast<sockaddr*>(&at), bytes), 0);
    EXPECT_EQ(::listen(listener.fd(), 100), 0);
    EXPECT_EQ(::getsockname(listener.fd(), reinterpret_cast<sockaddr*>(&at), &bytes), 0);
    address = R"({"network":"elsewhere","at":["127.0.0.1"],"port":)" + std::to_string(ntohs(at.sin_port)) + "}";
  }
};

TEST(TcpStrangers, ThousandsOfSilentConnectionsDoNotDelayTheRanks) {
  constexpr std::size_t kStrangers = 3000;
  make_space_for_descriptors(2 * kStrangers);
  run_ranks(2, [&](Bootstrap& threads) {
    TcpNetwork network({});
    const auto addresses = threads.all_gather(network.address(), Deadline::in(1min));
    std::vector<tcp::Socket> strangers;
    for (std::size_t i = 0; threads.rank() == 0 && i < kStrangers; ++i) strangers.push_back(connected_to(addresses[0]));
    threads.all_gather("", Deadline::in(1min));
    const auto begun = Clock::now();
    network.connect(on_own_hosts(threads.rank(), addresses));
    EXPECT_LT(Clock::now() - begun, 4s);
    threads.all_gather("", Deadline::in(1min));
  });
}

TEST(TcpStrangers, AListenerWithoutTheSecretLearnsNothingThatRanksAccept) {
  const FakeRank fake;
  std::string heard;
  std::jthread thread([&](const std::stop_token& over) {
    std::vector<tcp::Socket> connections;
    while (!over.stop_requested()) {
      std::vector<pollfd> entries{{fake.listener.fd(), POLLIN, 0}};
      for (const tcp::Socket& one : connections) entries.push_back({one.fd(), POLLIN, 0});
      if (::poll(entries.data(), entries.size(), 10) <= 0) continue;
      for (std::size_t i = 1; i < entries.size(); ++i) {
        char bytes[256];
        const ssize_t got = ::recv(entries[i].fd, bytes, sizeof bytes, MSG_DONTWAIT);
        if (got <= 0) continue;
        heard.append(bytes, static_cast<std::size_t>(got));
        ::send(entries[i].fd, bytes, sizeof(tcp_greeting::Challenge), MSG_NOSIGNAL);
      }
      if (entries[0].revents != 0)
        connections.emplace_back(::accept4(fake.listener.fd(), nullptr, nullptr, SOCK_CLOEXEC));
    }
  });
  TcpNetwork network({});
  const Error error = error_of([&] { network.connect(on_own_hosts(1, {fake.address, network.address()}, 700ms)); });
  EXPECT_EQ(error.code(), Errc::timeout);
  EXPECT_SAYS(error.what(), "a process that is no rank of this job answered");
  thread.request_stop();
  thread.join();
  ASSERT_FALSE(heard.empty());
  EXPECT_EQ(heard.size() % sizeof(tcp_greeting::Hello), 0U) << "the connector has sent more than hellos";
  EXPECT_EQ(heard.find(kToken), std::string::npos);
  EXPECT_EQ(heard.find(kToken.substr(0, 8)), std::string::npos);
}

/// Sends a hello as rank 1 and what `answer` makes of it and of the challenge. Returns whether the listener then keeps
/// the connection.
bool is_accepted(
    const std::string& address,
    const std::function<std::uint64_t(const tcp_greeting::Hello&, const tcp_greeting::Challenge&)>& answer) {
  const tcp::Socket socket = connected_to(address);
  const tcp_greeting::Hello hello{.nonce = {1, 2}, .from = 1};
  tcp_greeting::Challenge challenge;
  EXPECT_EQ(::send(socket.fd(), &hello, sizeof hello, MSG_NOSIGNAL), static_cast<ssize_t>(sizeof hello));
  EXPECT_EQ(::recv(socket.fd(), &challenge, sizeof challenge, MSG_WAITALL), static_cast<ssize_t>(sizeof challenge));
  const std::uint64_t proof = answer(hello, challenge);
  EXPECT_EQ(::send(socket.fd(), &proof, sizeof proof, MSG_NOSIGNAL), static_cast<ssize_t>(sizeof proof));
  pollfd closed{socket.fd(), POLLIN, 0};
  return ::poll(&closed, 1, 300) == 0;
}

TEST(TcpStrangers, AConnectorMustProveTheSecretOnItsOwnConnection) {
  using tcp_greeting::proof_of;
  using tcp_greeting::Side;
  TcpNetwork network({});
  const std::string address = network.address();
  std::thread rank([&] { error_of([&] { network.connect(on_own_hosts(0, {address, address}, 2s)); }); });
  const WireSecret secret(kToken), other("another token");
  std::uint64_t recorded = 0;
  EXPECT_FALSE(is_accepted(address, [](auto&, auto& challenge) { return challenge.proof; })) << "the listener's proof";
  EXPECT_FALSE(is_accepted(address, [&](auto& hello, auto& challenge) {
    recorded = proof_of(Side::connector, secret, hello, challenge.nonce);
    return proof_of(Side::connector, other, hello, challenge.nonce);
  })) << "another job";
  EXPECT_FALSE(is_accepted(address, [&](auto&, auto&) { return recorded; })) << "the proof of another connection";
  EXPECT_TRUE(is_accepted(address, [&](auto& hello, auto& challenge) {
    EXPECT_EQ(challenge.proof, proof_of(Side::listener, secret, hello, challenge.nonce));
    return proof_of(Side::connector, secret, hello, challenge.nonce);
  }));
  rank.join();
}

TEST(TcpStrangers, MissingDescriptorsAreAnErrorAtOnce) {
  if (kSanitized) GTEST_SKIP() << "sanitizers need descriptors";
  Child child([](Line&) {
    TcpNetwork network({});
    const std::string address = network.address();
    const tcp::Socket peer = connected_to(address);  // It waits in the queue of the listener.
    PeerAddresses peers = on_own_hosts(0, {address, address}, 20s);
    peers.turn = [](const ReportedWait::Describe&) {
      const int next = ::dup(STDERR_FILENO);
      ::close(next);
      const rlimit none{static_cast<rlim_t>(next), static_cast<rlim_t>(next)};
      ::setrlimit(RLIMIT_NOFILE, &none);
      return false;
    };
    const auto begun = Clock::now();
    const Error error = error_of([&] { network.connect(peers); });
    EXPECT_EQ(error.code(), Errc::system);
    EXPECT_SAYS(error.what(), "no file descriptor is left: RLIMIT_NOFILE is ");
    EXPECT_LT(Clock::now() - begun, 5s);
    return ::testing::Test::HasFailure() ? 1 : 0;
  });
  EXPECT_EQ(child.wait(), 0);
}

TEST(TcpStrangers, ADeathThatTheBootstrapKnowsEndsTheConnectPhase) {
  TcpNetwork network({});
  for (const Rank self : {0, 1}) {
    PeerAddresses peers = on_own_hosts(self, {network.address(), network.address(), network.address()});
    int turns = 0;
    peers.turn = [&](const ReportedWait::Describe& awaited) {
      EXPECT_FALSE(awaited().ranks.empty());
      if (++turns == 3) throw Error(Errc::peer_lost, "rank 2 is gone", self, 2);
      return false;
    };
    const Error error = error_of([&] { network.connect(peers); });
    EXPECT_EQ(error.code(), Errc::peer_lost);
    EXPECT_EQ(error.peer(), 2);
  }
}

// ---- ranks that have ended ----

TEST(TcpPeerWatch, ReportsTheEarliestSignAfterAWhile) {
  TcpPeerWatch watch(3);
  const auto begun = Clock::now();
  EXPECT_FALSE(watch.lost(begun + 1h));
  watch.note_refused(2, true, begun);
  watch.note_refused(2, true, begun + 1s);
  watch.note_closed(1, begun + 100ms);
  EXPECT_FALSE(watch.lost(begun + 499ms));
  ASSERT_TRUE(watch.lost(begun + 500ms));
  for (const auto later : {500ms, 5000ms}) {
    EXPECT_EQ(watch.lost(begun + later)->rank, 2);
    EXPECT_TRUE(watch.lost(begun + later)->is_refused);
  }
  watch.note_refused(2, false, begun + 2s);
  EXPECT_EQ(watch.lost(begun + 2s)->rank, 1);
  EXPECT_FALSE(watch.lost(begun + 2s)->is_refused);
}

/// Returns the error of rank `self` of three, whose rank 1 has ended before it connects. The other rank listens only.
Error error_without_rank_1(Rank self) {
  TcpNetwork network({}), listens({});
  std::vector<std::string> addresses(3, listens.address());
  addresses[static_cast<std::size_t>(self)] = network.address();
  addresses[1] = TcpNetwork({}).address();  // its listener is closed
  const auto begun = Clock::now();
  const Error error = error_of([&] { network.connect(on_own_hosts(self, addresses)); });
  EXPECT_LT(Clock::now() - begun, 10s);
  return error;
}

TEST(TcpEndedRank, ThatListensNoMoreIsNamedByHigherAndLowerRanks) {
  for (const Rank self : {0, 2}) {
    const Error error = error_without_rank_1(self);
    EXPECT_EQ(error.code(), Errc::peer_lost);
    EXPECT_EQ(error.peer(), 1);
    EXPECT_SAYS(error.what(),
                "transport tcp: rank 1 was lost while ranks connect: no process listens at its addresses");
    EXPECT_SAYS(error.what(), "Connection refused");
  }
}

TEST(TcpEndedRank, ThatClosesAConnectionIsNamed) {
  TcpNetwork network({}), listens({});
  const std::vector<std::string> addresses{network.address(), listens.address(), listens.address()};
  // Rank 1 connects and leaves. Rank 2 only listens.
  std::jthread rank_1([&] {
    std::vector<tcp::Socket> connections;
    for (const int channel : {0, 1}) {
      using namespace tcp_greeting;
      connections.push_back(connected_to(addresses[0]));
      const int fd = connections.back().fd();
      const Hello hello{.nonce = make_nonce(), .from = 1, .to = 0, .channel = channel};
      Challenge challenge;
      EXPECT_EQ(::send(fd, &hello, sizeof hello, MSG_NOSIGNAL), static_cast<ssize_t>(sizeof hello));
      EXPECT_EQ(::recv(fd, &challenge, sizeof challenge, MSG_WAITALL), static_cast<ssize_t>(sizeof challenge));
      const std::uint64_t proof = proof_of(Side::connector, WireSecret(kToken), hello, challenge.nonce);
      EXPECT_EQ(::send(fd, &proof, sizeof proof, MSG_NOSIGNAL), static_cast<ssize_t>(sizeof proof));
    }
    std::this_thread::sleep_for(100ms);  // The rank keeps both connections for a while.
  });
  const Error error = error_of([&] { network.connect(on_own_hosts(0, addresses)); });
  EXPECT_EQ(error.code(), Errc::peer_lost);
  EXPECT_EQ(error.peer(), 1);
  EXPECT_SAYS(error.what(), "rank 1 was lost while ranks connect: it closed a connection");
}

TEST(TcpStrangers, MalformedAddressesAreRefused) {
  for (const char* text :
       {"", "1", "[]", "{}", R"({"network":"a","port":"9","at":[]})", R"({"network":1,"port":9,"at":[]})",
        R"({"network":"a","port":0,"at":[]})", R"({"network":"a","port":65536,"at":[]})",
        R"({"network":"a","port":18446744073709551615,"at":[]})", R"({"network":"a","port":1.5,"at":[]})",
        R"({"network":"a","port":9,"at":{}})", R"({"network":"a","port":9,"at":[1]})",
        R"({"network":"a","port":9,"at":["127.0.0.1 and a text that is longer than an address"]})"})
    EXPECT_EQ(error_of([&] { read_published_address(text, {}); }).code(), Errc::bootstrap) << text;
  EXPECT_TRUE(read_published_address(R"({"network":"a","port":9,"at":["nowhere"]})", {}).empty());
}

}  // namespace
}  // namespace collectives::testing
