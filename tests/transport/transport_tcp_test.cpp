// Tests of the TCP wire, which carries messages between hosts by sockets, and short ones as UDP datagrams. It runs the
// conformance suites of transports between threads over the loopback, and tests of its own.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstring>
#include <fstream>
#include <numeric>
#include <string>
#include <thread>

#include "collectives/error.hpp"
#include "conformance/transport_conformance.hpp"
#include "support/ranks.hpp"
#include "transport/tcp.hpp"
#include "transport/tcp_addresses.hpp"
#include "transport/tcp_network.hpp"

namespace collectives::testing {
namespace {

using namespace std::chrono_literals;

/// Returns the addresses of all ranks, each of which is on a host of its own.
PeerAddresses peers(Rank self, std::vector<std::string> addresses, std::size_t frame_bytes,
                    std::string token = "the token of this test") {
  std::vector<int> hosts(addresses.size());
  std::iota(hosts.begin(), hosts.end(), 0);
  return {.self = self,
          .addresses = std::move(addresses),
          .hosts = std::move(hosts),
          .token = std::move(token),
          .frame_bytes = frame_bytes,
          .deadline = Deadline::in(1min)};
}

/// Makes TCP wires for the conformance suites. `settings` says whether short messages are sent as datagrams.
template <const DatagramSettings& settings>
struct TcpTransports {
  static int ranks() { return 3; }
  template <class F>
  static void run(std::size_t frame_bytes, F f) {
    run_ranks(ranks(), [&](Bootstrap& threads) {
      TcpNetwork network({.datagrams = settings});
      const auto addresses = threads.all_gather(network.address(), Deadline::in(1min));
      const auto wire = network.connect(peers(threads.rank(), addresses, frame_bytes));
      End end{threads.rank(), ranks(), *wire, wire.get(), [&] { threads.all_gather("", Deadline::in(1min)); }};
      f(end);
      wire->flush(Deadline::in(1min));
      threads.all_gather("", Deadline::in(1min));
    });
  }
};
constexpr DatagramSettings kAsTheyCome{}, kNone{.on = false}, kManyLost{.pause = 0ms, .lose_every = 3};
INSTANTIATE_TYPED_TEST_SUITE_P(Tcp, TransportConformance, TcpTransports<kAsTheyCome>);
INSTANTIATE_TYPED_TEST_SUITE_P(Tcp, WireConformance, TcpTransports<kAsTheyCome>);
INSTANTIATE_TYPED_TEST_SUITE_P(TcpAlone, TransportConformance, TcpTransports<kNone>);
INSTANTIATE_TYPED_TEST_SUITE_P(TcpAlone, WireConformance, TcpTransports<kNone>);
INSTANTIATE_TYPED_TEST_SUITE_P(TcpAndLosses, TransportConformance, TcpTransports<kManyLost>);
INSTANTIATE_TYPED_TEST_SUITE_P(TcpAndLosses, WireConformance, TcpTransports<kManyLost>);

/// Runs a function on two ranks that are connected by the wire. Frames, memory for one message each, have
/// `frame_bytes`.
template <class F>
void run_two(std::size_t frame_bytes, F f, DatagramSettings datagrams = {}) {
  run_ranks(2, [&](Bootstrap& threads) {
    TcpNetwork network({.datagrams = datagrams});
    auto wire =
        network.connect(peers(threads.rank(), threads.all_gather(network.address(), Deadline::in(1min)), frame_bytes));
    End end{threads.rank(), 2, *wire, wire.get(), [&] { threads.all_gather("", Deadline::in(1min)); }};
    f(end, wire);
    threads.all_gather("", Deadline::in(1min));
  });
}

TEST(TransportTcp, PayloadComesStraightToItsPlace) {
  constexpr std::size_t kBytes = 1 << 20;
  run_two(kBytes, [](End& end, auto&) {
    const std::string text = payload(0, 1, kBytes);
    if (end.rank == 0) {
      for (int i = 0; i < 3; ++i) end.send(1, 1, text);
    } else {
      std::vector<std::byte> place(kBytes);
      const auto take_into = [&](std::size_t bytes) {
        return *end.wait("a message", [&] { return end.transport.receive_into(0, place.data(), bytes); });
      };
      const Message message = take_into(kBytes);
      EXPECT_EQ(message.data, place.data());
      EXPECT_EQ(std::memcmp(place.data(), text.data(), kBytes), 0);
      end.transport.release(0);
      EXPECT_NE(take_into(kBytes - 1).data, place.data()) << "a place that is too short was written to";
      end.transport.release(0);
      end.take(0, 1);
    }
  });
}

constexpr DatagramSettings kAllLost{.pause = 0ms, .lose_every = 1};

std::uint64_t datagrams_sent(const Transport& transport) {
  return dynamic_cast<const TcpTransport&>(transport).datagrams().sent();
}

TEST(TransportTcp, ShortMessagesGoAsDatagrams) {
  for (const bool on : {true, false})
    run_two(100'000,
            [on](End& end, auto&) {
              if (end.rank == 0) {
                for (std::uint64_t i = 0; i < 3; ++i) {
                  end.send(1, i, payload(0, i, i == 1 ? 100'000 : 100 + 10'000 * i));
                  end.wait("the kernel", [&] { return !end.transport.sending(); });
                }
                EXPECT_EQ(datagrams_sent(end.transport), on ? 2U : 0U);
              } else {
                for (std::uint64_t i = 0; i < 3; ++i)
                  EXPECT_TRUE(end.take(0, i) == payload(0, i, i == 1 ? 100'000 : 100 + 10'000 * i));
              }
            },
            {.on = on});
}

TEST(TransportTcp, ADatagramThatGetsLostComesWhileItsSenderIsAway) {
  run_two(
      64,
      [](End& end, auto&) {
        if (end.rank == 0) {
          end.send(1, 7, "lost on its way");
          EXPECT_EQ(datagrams_sent(end.transport), 1U);
        } else {
          EXPECT_EQ(end.take(0, 7), "lost on its way");
        }
        end.barrier();  // rank 0 makes no further call
      },
      kAllLost);
}

/// Sends a long message by the stream and `words` short messages from rank 0, which then leaves. Expects that rank 1
/// still receives all of them.
void expect_last_words(const DatagramSettings& datagrams, std::uint64_t words) {
  run_two(
      100'000,
      [=](End& end, auto& wire) {
        if (end.rank == 0) {
          end.send(1, 9, payload(0, 9, 100'000));
          end.wait("the kernel", [&] { return !end.transport.sending(); });
          for (std::uint64_t i = 0; i < words; ++i) end.send(1, i, "last words");
          EXPECT_EQ(datagrams_sent(end.transport), words);
          wire.reset();
        } else {
          EXPECT_TRUE(end.take(0, 9) == payload(0, 9, 100'000));
        }
        end.barrier();
        if (end.rank == 1) {
          for (int i = 0; i < 10; ++i) end.wire->poll_control();
          for (std::uint64_t i = 0; i < words; ++i) EXPECT_EQ(end.take(0, i), "last words");
          End::until("the end", [&] {
            end.wire->poll_control();
            return end.transport.receive(0) == nullptr && end.wire->is_blocked_on_failed_peer(0);
          });
        }
      },
      datagrams);
}

TEST(TransportTcp, FinalMessagesArriveAfterTheirSenderLeft) {
  for (int lap = 0; lap < 5; ++lap) expect_last_words({}, 3);
}

TEST(TransportTcp, LostFinalMessagesArriveAfterTheirSenderLeft) {
  for (int lap = 0; lap < 5; ++lap) expect_last_words(kAllLost, 3);
}

TEST(TransportTcp, AMessageOfACallThatIsOverComesWhateverFailsNext) {
  run_two(
      64,
      [](End& end, auto&) {
        if (end.rank == 0) {
          end.send(1, 7, "of the call before");
          end.wire->abandon();
          EXPECT_EQ(datagrams_sent(end.transport), 1U);
        } else {
          EXPECT_EQ(end.take(0, 7), "of the call before");
        }
        end.barrier();
      },
      kAllLost);
}

TEST(TransportTcp, OneReceiveSeesMessagesOfBothChannels) {
  run_two(100'000, [](End& end, auto&) {
    int seen[2] = {0, 0};
    for (std::uint64_t i = 0; i < 20; ++i) {
      const std::size_t bytes = i % 2 == 0 ? 10 : 50'000;
      if (end.rank == 0) {
        end.send(1, i, payload(0, i, bytes));
        end.wait("the kernel", [&] { return !end.transport.sending(); });
      }
      end.barrier();
      std::this_thread::sleep_for(10ms);  // the loopback delivers at once, unless the machine is busy
      if (end.rank == 1) {
        if (end.transport.receive(0) != nullptr) ++seen[i % 2];
        end.take(0, i);
      }
    }
    if (end.rank == 1) {
      EXPECT_GT(seen[0], 0) << "short messages";
      EXPECT_GT(seen[1], 0) << "long ones";
    }
  });
}

TEST(TransportTcp, LongAndShortMessagesStayInOrderWhateverGetsLost) {
  constexpr std::size_t kBytes = 100'000;
  run_two(kBytes,
          [](End& end, auto&) {
            // Sends in both directions at the same time. Of four messages, two fit into one packet of the loopback, one
            // needs several packets, and one goes by the stream.
            const auto bytes_of = [](std::uint64_t i) {
              return i % 4 == 3 ? kBytes - i : (i * 53) % (i % 4 == 2 ? 30'000 : 3000);
            };
            const Rank other = 1 - end.rank;
            std::uint64_t sent = 0;
            for (std::uint64_t i = 0; i < 400; ++i) {
              for (; sent < i + 6 && sent < 400; ++sent) {
                if (end.transport.acquire_frame(other) == nullptr) break;
                end.send(other, sent, payload(end.rank, sent, bytes_of(sent)));
              }
              ASSERT_TRUE(end.take(other, i) == payload(other, i, bytes_of(i))) << "message " << i;
            }
          },
          {.pause = 0ms, .lose_every = 5});
}

TEST(TransportTcp, MemoryIsLentUntilTheKernelHasIt) {
  constexpr std::size_t kBytes = 16 << 20;  // more than the buffers of a connection hold
  run_two(kBytes, [](End& end, auto&) {
    std::string text = payload(0, 1, kBytes);
    const auto* data = reinterpret_cast<const std::byte*>(text.data());
    if (end.rank == 0) {
      end.acquire_frame(1);
      end.transport.send_from(1, 1, data, kBytes);
      EXPECT_TRUE(end.transport.sending());
      EXPECT_TRUE(end.transport.lent(data + kBytes - 1, 1));
      EXPECT_FALSE(end.transport.lent(data + kBytes, 1));
    }
    end.barrier();
    if (end.rank == 0) {
      end.wait("the end of the loan", [&] { return !end.transport.sending(); });
      EXPECT_FALSE(end.transport.lent(data, kBytes));
      std::fill(text.begin(), text.end(), 'x');
    } else {
      EXPECT_TRUE(end.take(0, 1) == payload(0, 1, kBytes));
    }
  });
}

TEST(TransportTcp, PeerThatGoesIsTold) {
  run_two(64, [](End& end, auto& wire) {
    if (end.rank == 0) {
      end.send(1, 1, "last");
      end.wire->post_control(1, "goodbye");
      wire.reset();
    }
    end.barrier();
    if (end.rank == 1) {
      EXPECT_EQ(end.take(0, 1), "last");
      EXPECT_EQ(end.take_control(), std::make_pair(Rank{0}, std::string("goodbye")));
      const auto lost = *End::until("the loss", [&] {
        end.wire->poll_control();
        return end.wire->poll_failed_peer();
      });
      EXPECT_EQ(lost.first, 0);
      EXPECT_FALSE(lost.second.empty());
      EXPECT_FALSE(end.wire->poll_failed_peer()) << "told twice";
      // Messages to the lost rank are dropped and block no other rank.
      for (int i = 0; i < 100; ++i) end.send(0, 1, "to nobody");
    }
  });
}

TEST(TransportTcp, LossIsToldAfterTheControlsThatCameBefore) {
  run_two(64, [](End& end, auto& wire) {
    if (end.rank == 0) {
      for (int i = 0; i < 50; ++i) end.wire->post_control(1, std::to_string(i));
      end.wire->flush(Deadline::in(1min));
      wire.reset();
    }
    end.barrier();
    if (end.rank == 1) {
      int heard = 0;
      End::until("the loss", [&] {
        while (end.wire->poll_control()) ++heard;
        return end.wire->poll_failed_peer();
      });
      EXPECT_EQ(heard, 50);
    }
  });
}

/// A message by stream or datagram must end the wait, and sooner than a lost datagram would be retransmitted.
TEST(TransportTcp, WaitForEventReturnsWhenAMessageArrives) {
  using Clock = std::chrono::steady_clock;
  std::atomic<Clock::time_point> sent;
  run_two(100'000, [&](End& end, auto&) {
    for (const std::size_t bytes : {4UL, 100'000UL}) {
      Clock::duration fastest = 10s;
      for (int i = 0; i < 10; ++i) {
        end.barrier();
        if (end.rank == 1) {
          std::this_thread::sleep_for(10ms);
          sent = Clock::now();
          end.send(0, 1, payload(1, 1, bytes));
          end.wait("the kernel", [&] { return !end.transport.sending(); });
        } else {
          while (end.transport.receive(1) == nullptr) end.wire->wait_for_event(10s);
          fastest = std::min(fastest, Clock::now() - sent.load());
          EXPECT_TRUE(end.take(1, 1) == payload(1, 1, bytes));
        }
      }
      if (end.rank == 0) {
        EXPECT_LT(fastest, 5ms) << bytes << " bytes";
      }
    }
    end.barrier();
  });
}

TEST(TransportTcp, UnreadMessagesDoNotEndEveryWaitForEvent) {
  run_two(64, [](End& end, auto&) {
    if (end.rank == 1) {
      for (std::uint64_t i = 0; i < 3; ++i) end.send(0, i, "early");
      end.wait("the kernel", [&] { return !end.transport.sending(); });
      EXPECT_EQ(datagrams_sent(end.transport), 3U);
    }
    end.barrier();
    if (end.rank == 0) {
      int waits_for_event = 0;
      for (const auto begun = std::chrono::steady_clock::now(); std::chrono::steady_clock::now() - begun < 200ms;
           ++waits_for_event)
        end.wire->wait_for_event(1ms);
      EXPECT_LT(waits_for_event, 1000);
      for (std::uint64_t i = 0; i < 3; ++i) EXPECT_EQ(end.take(1, i), "early");
    }
    end.barrier();
  });
}

// ---- connecting ----

/// Returns the text of the error that connect() throws.
std::string failure_of(TcpNetwork& network, const PeerAddresses& with) {
  try {
    network.connect(with);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Errc::timeout);
    return error.what();
  }
  return "nothing";
}

TEST(TransportTcp, AddressesThatLeadNowhereAreGotAround) {
  run_ranks(2, [&](Bootstrap& threads) {
    TcpNetwork network({});
    std::string address = network.address();
    if (threads.rank() == 0) {  // an address of a documentation network before the right one
      address.replace(address.find("\"at\":["), 6, "\"at\":[\"192.0.2.1\",");
      address.replace(address.find("\"network\":\""), 11, "\"network\":\"not here ");
      if (const auto empty = address.find("\"192.0.2.1\",]"); empty != std::string::npos)
        address.replace(empty, 13, "\"192.0.2.1\",\"127.0.0.1\"]");
      else
        address.replace(address.find("\"192.0.2.1\","), 12, "\"192.0.2.1\",\"127.0.0.1\",");
    }
    const auto wire = network.connect(peers(threads.rank(), threads.all_gather(address, Deadline::in(1min)), 64));
    EXPECT_EQ(wire->name(), "tcp");
    threads.all_gather("", Deadline::in(1min));
  });
}

TEST(TransportTcp, EveryAddressTriedIsNamed) {
  TcpNetwork network({});
  PeerAddresses with =
      peers(1, {R"({"network":"elsewhere","port":9,"at":["127.0.0.1","127.0.0.2"]})", network.address()}, 64);
  with.deadline = Deadline::in(400ms);  // Refused connections show the loss of the rank only later.
  const std::string text = failure_of(network, with);
  EXPECT_NE(text.find("rank 0 cannot be reached"), std::string::npos) << text;
  EXPECT_NE(text.find("127.0.0.1:9: Connection refused"), std::string::npos) << text;
  EXPECT_NE(text.find("127.0.0.2:9: Connection refused"), std::string::npos) << text;
}

TEST(TransportTcp, AMissingRankIsNamedAtTheTimeout) {
  TcpNetwork network({});
  PeerAddresses with = peers(0, {network.address(), network.address(), network.address()}, 64);
  with.deadline = Deadline::in(300ms);
  const std::string text = failure_of(network, with);
  EXPECT_NE(text.find("ranks 1-2 did not connect"), std::string::npos) << text;
}

TEST(TransportTcp, AnotherJobIsRefused) {
  TcpNetwork mine({}), other({});
  std::thread stranger([&] {
    PeerAddresses with = peers(1, {mine.address(), other.address()}, 64, "another token");
    with.deadline = Deadline::in(1s);
    EXPECT_NE(failure_of(other, with).find("a process that is no rank of this job answered"), std::string::npos);
  });
  PeerAddresses with = peers(0, {mine.address(), other.address()}, 64);
  with.deadline = Deadline::in(1s);
  EXPECT_NE(failure_of(mine, with).find("rank 1 did not connect"), std::string::npos);
  stranger.join();
}

/// Returns the port in a published address.
int port_of(const std::string& address) { return std::stoi(address.substr(address.find("\"port\":") + 7)); }

TEST(TransportTcp, ForeignConnectionsDoNotDisturbTheConnectPhase) {
  run_ranks(2, [&](Bootstrap& threads) {
    TcpNetwork network({});
    const auto addresses = threads.all_gather(network.address(), Deadline::in(1min));
    std::vector<int> strangers;
    if (threads.rank() == 0)
      for (const std::string& said : {std::string(), std::string("GET / HTTP/1.1\r\n\r\n"), std::string(200, 'c')}) {
        sockaddr_in to{};
        to.sin_family = AF_INET;
        to.sin_port = htons(static_cast<std::uint16_t>(port_of(network.address())));
        to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        strangers.push_back(::socket(AF_INET, SOCK_STREAM, 0));
        ASSERT_EQ(::connect(strangers.back(), reinterpret_cast<const sockaddr*>(&to), sizeof to), 0);
        if (!said.empty()) {
          ASSERT_GT(::send(strangers.back(), said.data(), said.size(), MSG_NOSIGNAL), 0);
        }
      }
    threads.all_gather("", Deadline::in(1min));
    EXPECT_NO_THROW(network.connect(peers(threads.rank(), addresses, 64)));
    for (const int fd : strangers) ::close(fd);
    threads.all_gather("", Deadline::in(1min));
  });
}

TEST(TransportTcp, AnUnavailableInterfaceIsNamed) {
  EXPECT_TRUE(own_addresses({"no such interface"}).empty());
  EXPECT_NE(what_matches_nothing({.interfaces = {"pigeon0"}, .congestion_control = "system"})
                .find("no interface is \"pigeon0\""),
            std::string::npos);
  const std::string refused = what_matches_nothing({.interfaces = {}, .congestion_control = "pigeon"});
  EXPECT_NE(refused.find("\"pigeon\" cannot be used"), std::string::npos);
  std::string allowed;
  std::getline(std::ifstream("/proc/sys/net/ipv4/tcp_allowed_congestion_control"), allowed);
  EXPECT_NE(refused.find("allows every user: " + allowed), std::string::npos) << refused;
  EXPECT_EQ(what_matches_nothing({.interfaces = {}, .congestion_control = "reno"}), "");
}

}  // namespace
}  // namespace collectives::testing
