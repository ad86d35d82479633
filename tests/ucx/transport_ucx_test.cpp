// Tests of the UCX wire, which carries messages between hosts by UCX: the conformance suites of transports, and tests
// of this wire alone. Ranks are threads, or processes that claim to be on hosts of their own. Any network that UCX
// finds is enough, even TCP over loopback. A frame is memory for one message.
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <cstring>
#include <deque>
#include <filesystem>
#include <fstream>
#include <memory>
#include <numeric>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "collectives/error.hpp"
#include "collectives/version.hpp"
#include "conformance/transport_conformance.hpp"
#include "support/child.hpp"
#include "support/ranks.hpp"
#include "transport/ucx_loader.hpp"
#include "ucx/ucx.hpp"
#include "ucx/ucx_worker.hpp"

// Paths, defined in a file that CMake writes (PATHS of collectives_test).
extern const char kLibraryDirectory[];

namespace collectives::testing {
namespace {

using namespace std::chrono_literals;

/// Returns the addresses of all ranks, each of which is on a host of its own.
PeerAddresses peers(Rank self, std::vector<std::string> addresses, std::size_t frame_bytes) {
  PeerAddresses all;
  all.self = self;
  all.addresses = std::move(addresses);
  all.token = "ours";
  all.frame_bytes = frame_bytes;
  all.hosts.resize(all.addresses.size());
  std::iota(all.hosts.begin(), all.hosts.end(), 0);
  all.deadline = Deadline::in(1min);
  return all;
}

std::unique_ptr<Wire> connect(Bootstrap& bootstrap, std::size_t frame_bytes) {
  UcxNetwork network;
  return network.connect(
      peers(bootstrap.rank(), bootstrap.all_gather(network.address(), Deadline::in(1min)), frame_bytes));
}

/// A barrier of threads that progress their wires while they wait, because a long message needs progress on both sides.
class WireBarrier {
 public:
  explicit WireBarrier(int ranks) : ranks_(ranks) {}
  void wait(Wire& wire) {
    const int goal = (arrived_++ / ranks_ + 1) * ranks_;
    End::until("the others", [&] {
      wire.wait_for_event(100us);
      return arrived_ >= goal;
    });
  }

 private:
  int ranks_;
  std::atomic<int> arrived_ = 0;
};

struct UcxTransports {
  static int ranks() { return 3; }
  template <class F>
  static void run(std::size_t frame_bytes, F f) {
    run(ranks(), frame_bytes, f);
  }
  template <class F>
  static void run(int ranks, std::size_t frame_bytes, F f) {
    WireBarrier wire_barrier(ranks);
    run_ranks(ranks, [&](Bootstrap& bootstrap) {
      const auto wire = connect(bootstrap, frame_bytes);
      End end{.rank = bootstrap.rank(), .ranks = ranks, .transport = *wire, .wire = wire.get(), .barrier = [&] {
                wire_barrier.wait(*wire);
              }};
      try {
        f(end);
      } catch (const std::exception& error) {
        ADD_FAILURE() << "rank " << end.rank << ": " << error.what();
      }
      wire_barrier.wait(*wire);
    });
  }
};

/// While it exists, new wires announce messages of more than 64 KiB, as on a fast network device. The receiver fetches
/// the payload of an announced message.
class AnnounceLongMessages {
 public:
  AnnounceLongMessages() { ::setenv("COLLECTIVES_UCX_RNDV_THRESH", "64k", 1); }
  ~AnnounceLongMessages() { ::unsetenv("COLLECTIVES_UCX_RNDV_THRESH"); }
};

struct AnnouncingUcxTransports {
  static int ranks() { return UcxTransports::ranks(); }
  template <class F>
  static void run(std::size_t frame_bytes, F f) {
    run(ranks(), frame_bytes, f);
  }
  template <class F>
  static void run(int ranks, std::size_t frame_bytes, F f) {
    const AnnounceLongMessages announce;
    UcxTransports::run(ranks, frame_bytes, f);
  }
};

INSTANTIATE_TYPED_TEST_SUITE_P(Ucx, TransportConformance, UcxTransports);
INSTANTIATE_TYPED_TEST_SUITE_P(Ucx, WireConformance, UcxTransports);
INSTANTIATE_TYPED_TEST_SUITE_P(UcxThatAnnounces, TransportConformance, AnnouncingUcxTransports);
INSTANTIATE_TYPED_TEST_SUITE_P(UcxThatAnnounces, WireConformance, AnnouncingUcxTransports);

template <class Transports>
void exchange_long_and_short_messages() {
  constexpr std::size_t kBytes = 100'000;
  Transports::run(2, kBytes, [](End& end) {
    for (std::uint64_t i = 0; i < 500; ++i) {
      const std::size_t bytes = i % 3 == 0 ? kBytes - i : i % 3 == 1 ? i : 8000 + i;
      if (end.rank == 0) end.send(1, i, payload(0, i, bytes));
      if (end.rank == 1) {
        ASSERT_TRUE(end.take(0, i) == payload(0, i, bytes)) << "message " << i;
      }
    }
    end.wire->flush(Deadline::in(1min));
  });
}

TEST(TransportUcx, LongAndShortMessagesStayInOrder) { exchange_long_and_short_messages<UcxTransports>(); }
TEST(TransportUcx, AnnouncedAndShortMessagesStayInOrder) {
  exchange_long_and_short_messages<AnnouncingUcxTransports>();
}

TEST(TransportUcx, EagerMessagesFromTheCallersMemoryArriveWithoutAReceive) {
  constexpr std::size_t kBytes = 300'000;
  UcxTransports::run(2, kBytes, [](End& end) {
    const std::string text = payload(0, 0, kBytes);
    if (end.rank == 0) {
      end.acquire_frame(1);
      end.transport.send_from(1, 0, reinterpret_cast<const std::byte*>(text.data()), kBytes);
      end.wait("memory to come back", [&] { return !end.transport.sending(); });
      EXPECT_FALSE(end.transport.lent(reinterpret_cast<const std::byte*>(text.data()), kBytes));
    }
    end.barrier();  // rank 1 receives only now
    if (end.rank == 1) {
      EXPECT_TRUE(end.take(0, 0) == text);
    }
  });
}

TEST(TransportUcx, AllFramesMayBeInFlight) {
  UcxTransports::run(2, 64, [](End& end) {
    for (int round = 0; round < 20; ++round) {
      for (int i = 0; i < end.wire->frames() && end.rank == 0; ++i) {
        std::byte* const frame = end.transport.acquire_frame(1);
        ASSERT_NE(frame, nullptr) << "frame " << i << " of round " << round;
        end.transport.send(1, 0, 10);
      }
      end.barrier();
      for (int i = 0; i < end.wire->frames() && end.rank == 1; ++i) {
        end.receive(0);
        end.transport.release(0);
      }
      // Rank 1 reports in batches how many frames it has released. A message carries the rest, which does not fill a
      // batch.
      if (end.rank == 1) end.send(0, 1, "all");
      if (end.rank == 0) end.take(1, 1);
    }
  });
}

TEST(TransportUcx, LongMessagesComeToTheirPlaceFromTheCallersMemory) {
  constexpr std::size_t kBytes = 300'000;
  AnnouncingUcxTransports::run(2, kBytes, [](End& end) {
    for (std::uint64_t i = 0; i < 20; ++i) {
      if (end.rank == 0) {
        const std::string text = payload(0, i, kBytes);
        const auto* data = reinterpret_cast<const std::byte*>(text.data());
        end.acquire_frame(1);
        end.transport.send_from(1, i, data, kBytes);
        EXPECT_EQ(end.transport.lent(data + 10, 1), end.transport.sending());
        EXPECT_FALSE(end.transport.lent(data + kBytes, 10));
        end.wait("memory to come back", [&] { return !end.transport.sending(); });
        EXPECT_FALSE(end.transport.lent(data, kBytes));
      } else {
        std::vector<std::byte> place(kBytes);
        const Message* message =
            end.wait("a message", [&] { return end.transport.receive_into(0, place.data(), kBytes); });
        EXPECT_EQ(message->data, place.data());
        EXPECT_FALSE(end.transport.sending());
        const std::string text(reinterpret_cast<const char*>(place.data()), kBytes);
        EXPECT_TRUE(end.take(0, i) == text);
        EXPECT_TRUE(text == payload(0, i, kBytes));
      }
    }
  });
}

TEST(TransportUcx, WhatIsSentFromTheCallersMemoryIsBoundedToo) {
  constexpr std::size_t kBytes = 200'000;
  const std::string text = payload(0, 0, kBytes);  // memory that outlives the wires, because they send from it
  const auto* data = reinterpret_cast<const std::byte*>(text.data());
  AnnouncingUcxTransports::run(2, kBytes, [&](End& end) {
    for (std::uint64_t i = 0; i < 100; ++i) {
      const std::size_t bytes = i % 2 == 0 ? kBytes : 100;
      if (end.rank == 0) {
        end.acquire_frame(1);
        end.transport.send_from(1, i, data, bytes);
      } else {
        EXPECT_TRUE(end.take(0, i) == text.substr(0, bytes));
      }
    }
    if (end.rank == 0) {
      std::uint64_t more = 0;
      for (; end.transport.acquire_frame(1) != nullptr; ++more) end.transport.send_from(1, 0, data, kBytes);
      EXPECT_LT(more, 100u);
      EXPECT_TRUE(end.transport.lent(data, kBytes));
    }
  });
}

TEST(TransportUcx, TheLongerOfTwoLoansOfOneBufferLastsUntilItIsReceived) {
  constexpr std::size_t kBytes = 300'000;
  const std::string text = payload(0, 0, kBytes);  // outlives the wires
  const auto* data = reinterpret_cast<const std::byte*>(text.data());
  AnnouncingUcxTransports::run(3, kBytes, [&](End& end) {
    if (end.rank == 0) {
      for (const Rank to : {1, 2}) {
        end.acquire_frame(to);
        end.transport.send_from(to, 0, data, to == 1 ? kBytes : kBytes / 2);
      }
      EXPECT_EQ(end.take_control().first, 2);
      for (const auto begin = std::chrono::steady_clock::now(); std::chrono::steady_clock::now() - begin < 50ms;)
        end.transport.progress();  // gives this rank time to process what rank 2 has sent
      EXPECT_TRUE(end.transport.lent(data + kBytes - 1, 1));
      end.wire->post_control(1, "take it");
      end.wait("memory to come back", [&] { return !end.transport.sending(); });
      EXPECT_FALSE(end.transport.lent(data, kBytes));
    } else {
      if (end.rank == 1) end.take_control();
      EXPECT_TRUE(end.take(0, 0) == text.substr(0, end.rank == 1 ? kBytes : kBytes / 2));
      if (end.rank == 2) end.wire->post_control(0, "taken");
    }
  });
}

TEST(TransportUcx, SeveralWiresDoNotMix) {
  run_ranks(2, [](Bootstrap& bootstrap) {
    const Rank self = bootstrap.rank();
    const auto one = connect(bootstrap, 64), two = connect(bootstrap, 64);
    End end_one{self, 2, *one, one.get(), {}}, end_two{self, 2, *two, two.get(), {}};
    if (self == 0) {
      end_one.send(1, 1, "one");
      end_two.send(1, 2, "two");
      one->post_control(1, "control one");
      two->post_control(1, "control two");
    } else {
      EXPECT_EQ(end_two.take_control().second, "control two");
      EXPECT_EQ(end_two.take(0, 2), "two");
      EXPECT_EQ(end_one.take(0, 1), "one");
      EXPECT_EQ(end_one.take_control().second, "control one");
    }
    bootstrap.all_gather("", Deadline::in(1min));
  });
}

TEST(TransportUcx, ANetworkConnectsOnce) {
  run_ranks(2, [](Bootstrap& bootstrap) {
    UcxNetwork network;
    EXPECT_EQ(network.name(), "ucx");
    const auto addresses = bootstrap.all_gather(network.address(), Deadline::in(1min));
    const auto wire = network.connect(peers(bootstrap.rank(), addresses, 64));
    EXPECT_EQ(wire->name(), "ucx");
    EXPECT_THROW(network.connect(peers(bootstrap.rank(), addresses, 64)), Error);
    bootstrap.all_gather("", Deadline::in(1min));
  });
}

TEST(TransportUcx, RanksOfOneHostAreNotConnected) {
  run_ranks(3, [](Bootstrap& bootstrap) {
    UcxNetwork network;
    PeerAddresses all = peers(bootstrap.rank(), bootstrap.all_gather(network.address(), Deadline::in(1min)), 64);
    all.hosts = {0, 1, 1};
    const auto wire = network.connect(all);
    End end{bootstrap.rank(), 3, *wire, wire.get(), {}};
    if (end.rank == 0) {
      end.send(1, 1, "to 1");
      end.send(2, 2, "to 2");
    } else {
      EXPECT_EQ(end.take(0, static_cast<std::uint64_t>(end.rank)), "to " + std::to_string(end.rank));
    }
    bootstrap.all_gather("", Deadline::in(1min));
  });
}

TEST(TransportUcx, FlushNamesThePeerThatDoesNotReceive) {
  constexpr std::size_t kBytes = 1 << 20;
  AnnouncingUcxTransports::run(2, kBytes, [](End& end) {
    if (end.rank == 0) {
      end.send(1, 0, payload(0, 0, kBytes));
      try {
        end.transport.flush(Deadline::in(100ms));
        ADD_FAILURE() << "flushed what nobody has received";
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), Errc::timeout);
        EXPECT_EQ(error.peer(), 1);
        EXPECT_NE(std::string(error.what()).find("rank 1 "), std::string::npos) << error.what();
      }
    }
    end.barrier();
    if (end.rank == 0) end.transport.flush(Deadline::in(1min));
    if (end.rank == 1) {
      EXPECT_TRUE(end.take(0, 0) == payload(0, 0, kBytes));
    }
  });
}

TEST(TransportUcx, DyingWithMessagesInFlightDoesNotHang) {
  constexpr std::size_t kBytes = 1 << 20;
  AnnouncingUcxTransports::run(kBytes, [](End& end) {
    const Rank next = (end.rank + 1) % end.ranks;
    std::vector<std::byte> place(kBytes);
    while (end.transport.acquire_frame(next)) end.transport.send(next, 0, kBytes);
    end.wire->post_control(next, "farewell");
    const auto begin = std::chrono::steady_clock::now();
    while (std::chrono::steady_clock::now() - begin < 20ms) end.transport.receive_into((end.rank + 2) % 3, nullptr, 0);
  });
}

TEST(TransportUcx, WaitForEventEndsWhenAMessageArrives) {
  UcxTransports::run(2, 64, [](End& end) {
    if (end.rank == 0) {
      std::this_thread::sleep_for(50ms);
      end.send(1, 3, "awake");
    } else {
      const auto begin = std::chrono::steady_clock::now();
      while (end.transport.receive(0) == nullptr && std::chrono::steady_clock::now() - begin < 20s)
        end.wire->wait_for_event(20s);
      EXPECT_LT(std::chrono::steady_clock::now() - begin, 10s);
      EXPECT_EQ(end.take(0, 3), "awake");
      end.wire->wait_for_event(1ms);
    }
  });
}

TEST(TransportUcx, AWrongTokenIsRefused) {
  run_ranks(2, [](Bootstrap& bootstrap) {
    UcxNetwork network;
    PeerAddresses all = peers(bootstrap.rank(), bootstrap.all_gather(network.address(), Deadline::in(1min)), 64);
    if (bootstrap.rank() == 1) all.token = "theirs";
    all.deadline = Deadline::in(10s);
    try {
      network.connect(all);
      ADD_FAILURE() << "connected";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Errc::bootstrap) << error.what();
      EXPECT_EQ(error.rank(), bootstrap.rank());
      EXPECT_EQ(error.peer(), 1 - bootstrap.rank());
    }
  });
}

TEST(TransportUcx, AStrangerDoesNotDisturb) {
  run_ranks(3, [](Bootstrap& bootstrap) {
    UcxNetwork network;
    auto addresses = bootstrap.all_gather(network.address(), Deadline::in(1min));
    if (bootstrap.rank() == 2) {  // rank 2 claims to be rank 1
      std::swap(addresses[1], addresses[2]);
      addresses.pop_back();
      PeerAddresses all = peers(1, addresses, 64);
      all.token = "theirs";
      EXPECT_THROW(network.connect(all), Error);
      bootstrap.all_gather("", Deadline::in(1min));
      return;
    }
    addresses.pop_back();
    const auto wire = network.connect(peers(bootstrap.rank(), addresses, 64));
    End end{bootstrap.rank(), 2, *wire, wire.get(), {}};
    const auto begin = std::chrono::steady_clock::now();
    while (std::chrono::steady_clock::now() - begin < 100ms) EXPECT_FALSE(wire->poll_control());
    EXPECT_FALSE(wire->poll_failed_peer());
    end.send(1 - end.rank, 4, "undisturbed");
    EXPECT_EQ(end.take(1 - end.rank, 4), "undisturbed");
    bootstrap.all_gather("", Deadline::in(1min));
  });
}

/// A process that is no rank of the job. It knows the address of a rank, and sends active messages to it.
class Forger {
 public:
  explicit Forger(const std::string& address) : address_(address) {
    ucp_ep_params_t params{};
    params.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS | UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE;
    params.address = reinterpret_cast<const ucp_address_t*>(address_.data());
    params.err_mode = UCP_ERR_HANDLING_MODE_PEER;
    ucx::check(ucp_ep_create(worker_.get(), &params, &endpoint_), "ucp_ep_create");
  }
  Forger(const Forger&) = delete;
  Forger& operator=(const Forger&) = delete;
  ~Forger() {
    ucp_request_param_t param{};
    param.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS;
    param.flags = UCP_EP_CLOSE_FLAG_FORCE;
    requests_.push_back(ucp_ep_close_nbx(endpoint_, &param));
    progress();
    for (void* const request : requests_)
      if (UCS_PTR_IS_PTR(request)) ucp_request_free(request);
  }
  void send(unsigned id, std::string header, std::size_t payload) {
    headers_.push_back(std::move(header));
    const ucp_request_param_t param{};
    requests_.push_back(ucp_am_send_nbx(endpoint_, id, headers_.back().data(), headers_.back().size(), payload_.data(),
                                        payload, &param));
    progress();
  }
  /// Blocks until all messages have left this process, and the receiver has refused those that UCX has announced.
  void wait() {
    const ucp_request_param_t param{};
    void* const flush = ucp_ep_flush_nbx(endpoint_, &param);
    requests_.push_back(flush);
    for (const Deadline until = Deadline::in(1min);
         UCS_PTR_IS_PTR(flush) && ucp_request_check_status(flush) == UCS_INPROGRESS && !until.passed();)
      progress();
  }
  static constexpr std::size_t kMostBytes = 100'000;  // with AnnounceLongMessages, UCX announces this length

 private:
  void progress() {
    for (int turn = 0; turn < 20; ++turn) ucp_worker_progress(worker_.get());
  }
  std::string address_, payload_ = std::string(kMostBytes, 'f');
  UcxWorker worker_;
  ucp_ep_h endpoint_ = nullptr;
  std::deque<std::string> headers_;  // UCX may read them until the end.
  std::vector<void*> requests_;
};

/// Returns the bytes of a header whose fields a process without the secret of the job has guessed. Some have another
/// length than a header.
std::string forged_header(std::mt19937_64& random) {
  constexpr std::uint64_t kKeys[] = {0, 1, ~0ULL, 0x6f757273};
  constexpr std::uint32_t kRanks[] = {0, 1, 1, 1, 2, 0xffffffff};
  ucx::Header header;
  header.tag = random() % 8;
  header.key = random() % 2 == 0 ? kKeys[random() % std::size(kKeys)] : random();
  header.from = kRanks[random() % std::size(kRanks)];
  header.number = static_cast<std::uint16_t>(random() % 20);
  header.released = static_cast<std::uint16_t>(random() % 20);
  std::string bytes(reinterpret_cast<const char*>(&header), sizeof header);
  if (random() % 4 == 0) bytes.resize(random() % 40);
  return bytes;
}

/// Sends forged messages to rank 0 of a wire.
void expect_no_effect_of_forged_messages() {
  constexpr std::size_t kPayloads[] = {0, 8, 8, 64, 5000, Forger::kMostBytes};
  run_ranks(2, [&](Bootstrap& bootstrap) {
    UcxNetwork network;
    const auto addresses = bootstrap.all_gather(network.address(), Deadline::in(1min));
    const auto wire = network.connect(peers(bootstrap.rank(), addresses, Forger::kMostBytes));
    End end{bootstrap.rank(), 2, *wire, wire.get(), {}};
    const auto exchange = [&](std::uint64_t tag) {
      const std::string text = "undisturbed " + std::to_string(tag);
      end.send(1 - end.rank, tag, text);
      EXPECT_EQ(end.take(1 - end.rank, tag), text);
    };
    exchange(4);
    if (end.rank == 1) {
      std::mt19937_64 random(1);
      Forger forger(addresses[0]);
      for (int message = 0; message < 1000; ++message)
        forger.send(static_cast<unsigned>(random() % (ucx::kControl + 1)), forged_header(random),
                    kPayloads[random() % std::size(kPayloads)]);
      // The last one shows the secret of the job, so that the rank accepts it.
      const ucx::Header proven{.key = WireSecret("ours").job_secret(), .from = 1};
      forger.send(ucx::kControl, {reinterpret_cast<const char*>(&proven), sizeof proven}, 4);
      forger.wait();
    } else {
      const auto text = End::until("the last forged message", [&] {
        wire->wait_for_event(100us);
        EXPECT_FALSE(wire->poll_failed_peer());
        EXPECT_EQ(wire->receive(1), nullptr);
        return wire->poll_control();
      });
      EXPECT_EQ(*text, std::pair(Rank{1}, std::string("ffff")));
    }
    for (std::uint64_t tag = 5; tag < 50; ++tag) exchange(tag);
    bootstrap.all_gather("", Deadline::in(1min));
  });
}

TEST(TransportUcx, ForgedMessagesChangeNothing) { expect_no_effect_of_forged_messages(); }

TEST(TransportUcx, ForgedMessagesThatAreAnnouncedChangeNothing) {
  const AnnounceLongMessages announce;
  expect_no_effect_of_forged_messages();
}

TEST(TransportUcx, AnUnresponsiveRankIsNamedAtTheTimeout) {
  run_ranks(3, [](Bootstrap& bootstrap) {
    UcxNetwork network;
    PeerAddresses all = peers(bootstrap.rank(), bootstrap.all_gather(network.address(), Deadline::in(1min)), 64);
    all.deadline = Deadline::in(300ms);
    const auto begin = std::chrono::steady_clock::now();
    if (bootstrap.rank() != 1) {
      try {
        network.connect(all);
        ADD_FAILURE() << "connected";
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), Errc::timeout) << error.what();
        EXPECT_EQ(error.peer(), 1);
        EXPECT_NE(std::string(error.what()).find("from rank 1 "), std::string::npos) << error.what();
      }
      EXPECT_LT(std::chrono::steady_clock::now() - begin, 10s);
    }
    bootstrap.all_gather("", Deadline::in(1min));
  });
}

TEST(TransportUcx, ARankThatExitsBeforeConnectingIsNamed) {
  UcxNetwork network;
  const std::string gone = UcxNetwork().address();
  PeerAddresses all = peers(0, {network.address(), gone}, 64);
  all.deadline = Deadline::in(5s);
  try {
    network.connect(all);
    ADD_FAILURE() << "connected";
  } catch (const Error& error) {
    EXPECT_TRUE(error.code() == Errc::peer_lost || error.code() == Errc::timeout) << error.what();
    EXPECT_EQ(error.peer(), 1);
    EXPECT_NE(std::string(error.what()).find("rank 1 "), std::string::npos) << error.what();
  }
}

/// Sends or receives `text` byte by byte.
void put(Line& line, const std::string& text) {
  line.put(text.size());
  for (const char letter : text) line.put(static_cast<unsigned char>(letter));
}
std::string take(Line& line) {
  std::string text(line.take(), '\0');
  for (char& letter : text) letter = static_cast<char>(line.take());
  return text;
}

/// Two connected ranks: rank 0 in this process, and rank 1 in a child process.
struct Pair {
  template <class Work>
  Pair(std::size_t frame_bytes, Work work)
      : child([=](Line& line) {
          UcxNetwork network;
          put(line, network.address());
          const auto mine = network.connect(peers(1, {take(line), network.address()}, frame_bytes));
          End end{1, 2, *mine, mine.get(), {}};
          return work(end, line);
        }) {
    UcxNetwork network;
    const std::string theirs = take(child.line());
    put(child.line(), network.address());
    wire = network.connect(peers(0, {network.address(), theirs}, frame_bytes));
  }
  End end() { return {0, 2, *wire, wire.get(), {}}; }

  Child child;
  std::unique_ptr<Wire> wire;
};

TEST(TransportUcx, AKilledPeerIsNoticedAfterItsLastWords) {
  Pair pair(64, [](End& end, Line& line) {
    end.wire->post_control(0, "last words");
    end.wire->flush(Deadline::in(1min));
    line.put(1);
    line.take();
    return 0;
  });
  pair.child.line().take();
  EXPECT_TRUE(pair.wire->detects_peer_failure());
  EXPECT_FALSE(pair.wire->poll_failed_peer());
  pair.child.kill(SIGKILL);
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_EQ(pair.end().take_control(), std::make_pair(Rank{1}, std::string("last words")));
  const auto [rank, how] = End::until("the loss", [&] { return pair.wire->poll_failed_peer(); }).value();
  EXPECT_LT(std::chrono::steady_clock::now() - begin, 10s);
  EXPECT_EQ(rank, 1);
  EXPECT_NE(how, "");
  EXPECT_FALSE(pair.wire->poll_failed_peer()) << "told twice";
  // Messages sent now are dropped without an error.
  for (int i = 0; i < 100 && pair.wire->acquire_frame(1) != nullptr; ++i) pair.wire->send(1, 0, 64);
  pair.wire->post_control(1, "nobody hears this");
  EXPECT_EQ(pair.wire->receive(1), nullptr);
  pair.wire->flush(Deadline::in(10s));
}

TEST(TransportUcx, APeerKilledAmidLongMessagesGivesTheMemoryBack) {
  constexpr std::size_t kBytes = 4 << 20;
  const AnnounceLongMessages announce;
  Pair pair(kBytes, [](End& end, Line& line) {
    end.acquire_frame(0);
    end.transport.send(0, 0, kBytes);
    line.put(1);
    line.take();
    return 0;
  });
  pair.child.line().take();
  std::vector<std::byte> mine(kBytes), place(kBytes);
  ASSERT_NE(pair.wire->acquire_frame(1), nullptr);
  pair.wire->send_from(1, 0, mine.data(), kBytes);
  EXPECT_TRUE(pair.wire->lent(mine.data(), 1));
  End::until("the announcement", [&] {
    pair.wire->receive_into(1, place.data(), kBytes);
    return pair.wire->lent(place.data(), 1);
  });
  pair.child.kill(SIGKILL);
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_EQ(End::until("the loss", [&] { return pair.wire->poll_failed_peer(); })->first, 1);
  End::until("memory to come back", [&] {
    pair.wire->progress();
    return !pair.wire->sending();
  });
  EXPECT_LT(std::chrono::steady_clock::now() - begin, 10s);
}

TEST(TransportUcx, APeerThatEndsInOrderHasDeliveredEverything) {
  constexpr std::size_t kBytes = 150'000;
  Pair pair(kBytes, [](End& end, Line&) {
    for (std::uint64_t i = 0; i < 5; ++i) end.send(0, i, payload(1, i, i % 2 == 0 ? 100 : kBytes));
    end.wire->post_control(0, "done");
    end.wire->flush(Deadline::in(1min));
    return 0;
  });
  End end = pair.end();
  for (std::uint64_t i = 0; i < 5; ++i) EXPECT_TRUE(end.take(1, i) == payload(1, i, i % 2 == 0 ? 100 : kBytes));
  EXPECT_EQ(end.take_control().second, "done");
  EXPECT_EQ(pair.child.wait(), 0);
  EXPECT_EQ(End::until("the end", [&] { return pair.wire->poll_failed_peer(); })->first, 1);
}

TEST(UcxLoader, FindsTheComponentWhereTheLibraryIs) {
  std::string why_not;
  const auto network = load_ucx_network(why_not, kLibraryDirectory);
  ASSERT_NE(network, nullptr) << why_not;
  EXPECT_EQ(network->name(), "ucx");
  EXPECT_NE(network->address(), "");
  const bool fast = ucx_has_fast_device(why_not, kLibraryDirectory);
  EXPECT_EQ(fast, UcxWorker::has_fast_device());
  EXPECT_NE(fast, !why_not.empty());
}

TEST(UcxLoader, SaysWhyThereIsNone) {
  const std::string directory = ::testing::TempDir() + "ucx_loader_" + std::to_string(::getpid());
  std::filesystem::create_directory(directory);
  std::ofstream(directory + "/libcollectives_ucx.so." + std::string(version().substr(0, version().rfind('.'))))
      << "no library";
  std::string why_not;
  EXPECT_EQ(load_ucx_network(why_not, directory), nullptr);
  EXPECT_NE(why_not.find("libcollectives_ucx.so"), std::string::npos) << why_not;
  EXPECT_FALSE(ucx_has_fast_device(why_not, directory));
  std::filesystem::remove_all(directory);
}

}  // namespace
}  // namespace collectives::testing
