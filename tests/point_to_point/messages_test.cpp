// Tests of point-to-point calls that succeed: their data, order, sources, and independence of collectives.
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <numeric>
#include <thread>
#include <vector>

#include "collectives/communicator.hpp"
#include "support/errors.hpp"
#include "support/hosts.hpp"
#include "support/ranks.hpp"

namespace collectives::testing {
namespace {

// Counts of bytes around the limits of the protocols: one line, eight lines, the ring, copies by one rank and by two.
const std::vector<std::size_t> kLengths{0,         1,       8,      39,     40,     41,     96,      431,
                                        432,       433,     1000,   16'383, 16'384, 16'385, 100'000, (128 << 10) - 1,
                                        128 << 10, 300'001, 3 << 20};

/// Returns the bytes of message `number` between two ranks.
std::vector<std::byte> bytes_of(Rank from, Rank to, std::size_t number, std::size_t length) {
  std::vector<std::byte> bytes(length);
  std::uint32_t state =
      static_cast<std::uint32_t>(from * 7919 + to * 104729) + static_cast<std::uint32_t>(number) * 31u;
  for (std::byte& one : bytes) {
    state = state * 1664525u + 1013904223u;
    one = static_cast<std::byte>(state >> 24);
  }
  return bytes;
}

std::vector<std::byte> empty(std::size_t length) { return std::vector<std::byte>(length, std::byte{0xee}); }

/// Runs `f` on one host, and on hosts with one and with two ranks each.
template <class F>
void run_everywhere(F&& f) {
  run_communicators(3, f);
  run_hosts({0, 1}, f);
  run_hosts({0, 0, 1, 1}, f);
}

TEST(Messages, ArriveWithEveryLength) {
  run_everywhere([](Communicator& comm) {
    for (std::size_t i = 0; i < kLengths.size(); ++i) {
      const std::size_t length = kLengths[i];
      if (comm.rank() == 0) {
        for (Rank to = 1; to < comm.size(); ++to) comm.send(bytes_of(0, to, i, length), to);
        for (Rank from = 1; from < comm.size(); ++from) {
          auto data = empty(length);
          EXPECT_EQ(comm.recv(data, from), from);
          EXPECT_TRUE(data == bytes_of(from, 0, i, length)) << length;
        }
      } else {
        auto data = empty(length);
        EXPECT_EQ(comm.recv(data, 0), 0);
        EXPECT_TRUE(data == bytes_of(0, comm.rank(), i, length)) << length;
        comm.send(bytes_of(comm.rank(), 0, i, length), 0);
      }
    }
  });
}

TEST(Messages, ArriveInAllocatedMemory) {
  run_communicators(2, [](Communicator& comm) {
    for (const std::size_t length : kLengths) {
      auto data = comm.allocate<std::byte>(std::max<std::size_t>(1, length));
      const Buffer buffer(data.data(), length, DataType::u8);
      const auto expected = bytes_of(0, 1, 0, length);
      if (comm.rank() == 0) {
        std::copy(expected.begin(), expected.end(), data.data());
        comm.send(buffer, 1, 5);
      } else {
        comm.recv(buffer, 0, 5);
        EXPECT_TRUE(std::equal(expected.begin(), expected.end(), data.data())) << length;
      }
    }
  });
}

TEST(Messages, HaveEveryType) {
  run_communicators(2, [](Communicator& comm) {
    for (const DataType type : kDataTypes) {
      const auto expected = bytes_of(0, 1, 0, 24 * size_of(type));
      if (comm.rank() == 0) {
        comm.send({expected.data(), 24, type}, 1);
      } else {
        auto data = empty(expected.size());
        comm.recv({data.data(), 24, type}, 0);
        EXPECT_TRUE(data == expected);
      }
    }
  });
}

TEST(Messages, KeepTheirOrderWithinOneTag) {
  run_everywhere([](Communicator& comm) {
    constexpr int kMessages = 300;  // more than a channel has lines
    if (comm.rank() == 0) {
      std::vector<Work> sends;
      std::vector<int> values(2 * kMessages);
      std::iota(values.begin(), values.end(), 0);
      for (int& value : values) sends.push_back(comm.send_async(std::span(&value, 1), 1, value % 2));
      for (Work& send : sends) send.wait();
    } else if (comm.rank() == 1) {
      for (const int tag : {1, 0})  // messages of the other tag are stored
        for (int i = 0; i < kMessages; ++i) {
          int value = -1;
          comm.recv(std::span(&value, 1), 0, tag);
          ASSERT_EQ(value, 2 * i + tag);
        }
    }
  });
}

TEST(Messages, AreTakenByReceivesInTheOrderOfTheirStart) {
  run_everywhere([](Communicator& comm) {
    if (comm.rank() == 0) {
      comm.barrier();
      for (int value = 0; value < 4; ++value) comm.send(std::span(&value, 1), 1, 3);
    } else {
      std::array<int, 4> values{-1, -1, -1, -1};
      std::vector<Work> receives;
      if (comm.rank() == 1)
        for (int i = 0; i < 4; ++i)
          receives.push_back(
              comm.recv_async(std::span(&values[static_cast<std::size_t>(i)], 1), i % 2 == 0 ? 0 : any_source, 3));
      comm.barrier();
      for (Work& receive : receives) {
        EXPECT_EQ(receive.source(), kNoRank);
        receive.wait();
        EXPECT_EQ(receive.source(), 0);
      }
      if (comm.rank() == 1) {
        EXPECT_EQ(values, (std::array<int, 4>{0, 1, 2, 3}));
      }
    }
  });
}

TEST(Messages, OfAnySourceNameTheirSender) {
  run_hosts({0, 0, 0, 1, 1}, [](Communicator& comm) {
    if (comm.rank() == 2) {
      std::vector<int> seen(5);
      for (int i = 0; i < 8; ++i) {
        int value = -1;
        const Rank from = comm.recv(std::span(&value, 1), any_source, 9);
        EXPECT_EQ(value, 10 * from + seen[static_cast<std::size_t>(from)]);
        ++seen[static_cast<std::size_t>(from)];
      }
      EXPECT_EQ(seen, (std::vector<int>{2, 2, 0, 2, 2}));
    } else {
      for (int i = 0; i < 2; ++i) {
        const int value = 10 * comm.rank() + i;
        comm.send(std::span(&value, 1), 2, 9);
      }
    }
  });
}

TEST(Messages, ToTheOwnRankAreTakenByItsReceives) {
  run_communicators(1, [](Communicator& comm) {
    for (const std::size_t length : kLengths) {
      const auto expected = bytes_of(0, 0, 1, length);
      auto data = empty(length);
      Work receive = comm.recv_async(data, any_source, 1);
      comm.send(expected, 0, 1);
      receive.wait();
      EXPECT_EQ(receive.source(), 0);
      EXPECT_TRUE(data == expected);

      auto again = empty(length);
      Work send = comm.send_async(expected, 0, 2);
      EXPECT_EQ(comm.recv(again, 0, 2), 0);
      send.wait();
      EXPECT_TRUE(again == expected);
    }
  });
}

TEST(Messages, ToTheOwnRankMayBeManyBeforeTheirReceives) {
  run_communicators(1, [](Communicator& comm) {
    constexpr int kMessages = 500;  // more than a channel has lines
    for (int i = 0; i < kMessages; ++i) comm.send(std::span(&i, 1), 0, i);
    std::vector<Work> sends;
    const auto expected = bytes_of(0, 0, 2, 100'000);
    for (int i = 0; i < 3; ++i) sends.push_back(comm.send_async(expected, 0, kMessages));
    for (int i = kMessages; i-- > 0;) {
      int value = -1;
      EXPECT_EQ(comm.recv(std::span(&value, 1), 0, i), 0);
      ASSERT_EQ(value, i);
    }
    for (Work& send : sends) {
      auto data = empty(expected.size());
      comm.recv(data, any_source, kMessages);
      EXPECT_TRUE(data == expected);
      send.wait();
    }
  });
}

TEST(Messages, AreExchangedAroundARing) {
  run_everywhere([](Communicator& comm) {
    const Rank ahead = (comm.rank() + 1) % comm.size(), behind = (comm.rank() + comm.size() - 1) % comm.size();
    for (std::size_t i = 0; i < kLengths.size(); ++i) {
      const auto input = bytes_of(comm.rank(), ahead, i, kLengths[i]),
                 expected = bytes_of(behind, comm.rank(), i, kLengths[i]);
      auto output = empty(kLengths[i]);
      EXPECT_EQ(comm.sendrecv(input, ahead, output, behind, 4), behind);
      EXPECT_TRUE(output == expected) << kLengths[i];
      auto again = empty(kLengths[i]);
      Work both = comm.sendrecv_async(input, ahead, again, any_source, 5);
      both.wait();
      EXPECT_EQ(both.source(), behind);
      EXPECT_TRUE(again == expected) << kLengths[i];
    }
  });
}

TEST(Messages, DoNotWaitBehindCollectives) {
  // The receive is started before the collective, and its message is sent after it.
  run_everywhere([](Communicator& comm) {
    std::vector<float> sum(1000, 1.f);
    int value = -1;
    if (comm.rank() == 1) {
      Work receive = comm.recv_async(std::span(&value, 1), 0, 1);
      comm.all_reduce(sum);
      receive.wait();
      EXPECT_EQ(value, 17);
    } else {
      comm.all_reduce(sum);
      value = 17;
      if (comm.rank() == 0) comm.send(std::span(&value, 1), 1, 1);
    }
    EXPECT_EQ(sum[999], static_cast<float>(comm.size()));
  });
}

TEST(Messages, MoveWhileTheirThreadWaitsInACollective) {
  // Rank 0 ends its send only if rank 1, which waits in a barrier, receives meanwhile. The barrier waits for rank 0.
  run_everywhere([](Communicator& comm) {
    constexpr std::size_t kLong = 1 << 20;
    if (comm.rank() == 1) {
      auto data = empty(kLong);
      Work receive = comm.recv_async(data, 0);
      comm.barrier();
      receive.wait();
      EXPECT_TRUE(data == bytes_of(0, 1, 0, kLong));
    } else {
      if (comm.rank() == 0) comm.send(bytes_of(0, 1, 0, kLong), 1);
      comm.barrier();
    }
  });
}

TEST(Messages, LetCollectivesMoveWhileTheirThreadWaits) {
  run_everywhere([](Communicator& comm) {
    std::vector<float> sum(100'000, 1.f), result(sum.size());
    Work reduce = comm.all_reduce_async(sum, result);
    int value = 5;
    if (comm.rank() == 0) {
      comm.recv(std::span(&value, 1), 1);
      reduce.wait();
    } else {
      reduce.wait();  // needs rank 0, which waits for the message
      if (comm.rank() == 1) comm.send(std::span(&value, 1), 0);
    }
    EXPECT_EQ(result[0], static_cast<float>(comm.size()));
  });
}

TEST(Messages, MayBeExchangedByOneThreadWhileAnotherIsInCollectives) {
  run_everywhere([](Communicator& comm) {
    constexpr int kTurns = 200;
    std::jthread collectives([&comm] {
      for (int i = 0; i < kTurns; ++i) {
        std::vector<int> sum(1 + static_cast<std::size_t>(i) * 37, i);
        comm.all_reduce(sum);
        ASSERT_EQ(sum.back(), i * comm.size());
      }
    });
    const Rank ahead = (comm.rank() + 1) % comm.size(), behind = (comm.rank() + comm.size() - 1) % comm.size();
    for (std::size_t i = 0; i < kTurns; ++i) {
      const std::size_t length = i % 20 == 0 ? 200'000 : i * 11;
      auto output = empty(length);
      comm.sendrecv(bytes_of(comm.rank(), ahead, i, length), ahead, output, behind);
      ASSERT_TRUE(output == bytes_of(behind, comm.rank(), i, length));
    }
  });
}

TEST(Messages, BeyondTheCreditArriveToo) {
  // The receiver stores at most 256 KiB of unmatched messages. Further sends wait at the sender.
  run_everywhere([](Communicator& comm) {
    constexpr std::size_t kMessages = 200, kLength = 10'000;
    if (comm.rank() == 0) {
      std::vector<std::vector<std::byte>> data;
      std::vector<Work> sends;
      for (std::size_t i = 0; i < kMessages; ++i) data.push_back(bytes_of(0, 1, i, kLength));
      for (const auto& one : data) sends.push_back(comm.send_async(one, 1, 1));
      const int last = 1;
      comm.send(std::span(&last, 1), 1, 2);
      for (Work& send : sends) send.wait();
    } else if (comm.rank() == 1) {
      int last = 0;
      comm.recv(std::span(&last, 1), 0, 2);  // sent after all others
      EXPECT_EQ(last, 1);
      for (std::size_t i = 0; i < kMessages; ++i) {
        auto output = empty(kLength);
        comm.recv(output, 0, 1);
        ASSERT_TRUE(output == bytes_of(0, 1, i, kLength)) << i;
      }
    }
  });
}

TEST(Messages, SentBeforeTheSenderLeavesStillArrive) {
  for (const std::vector<int>& hosts : {std::vector<int>{0, 0}, std::vector<int>{0, 1}})
    run_ranks(2, [&](Bootstrap& threads) {
      static std::shared_ptr<WireMailbox> mailbox;
      static std::atomic<bool> left;
      if (threads.rank() == 0) {
        mailbox = std::make_shared<WireMailbox>();
        left = false;
      }
      threads.all_gather("", Deadline::never());
      HostBootstrap bootstrap(threads, "host " + std::to_string(hosts[static_cast<std::size_t>(threads.rank())]), "",
                              mailbox, std::make_shared<std::atomic<std::size_t>>(0));
      {
        Communicator comm(bootstrap, {.timeout = std::chrono::seconds(30)});
        if (comm.rank() == 0) {
          comm.send(bytes_of(0, 1, 0, 1000), 1);
        } else {
          while (!left) std::this_thread::yield();
          auto data = empty(1000);
          comm.recv(data, 0);
          EXPECT_TRUE(data == bytes_of(0, 1, 0, 1000));
        }
      }
      if (threads.rank() == 0) left = true;
    });
}

TEST(Messages, AreCountedAsBytesSent) {
  run_hosts({0, 0, 1}, [](Communicator& comm) {
    const std::uint64_t before = comm.bytes_sent(), before_hosts = comm.bytes_sent_to_other_hosts();
    std::vector<float> data(1000);
    if (comm.rank() == 0) {
      comm.send(data, 1);
      comm.send(data, 2);
      EXPECT_EQ(comm.bytes_sent() - before, 8000u);
      EXPECT_EQ(comm.bytes_sent_to_other_hosts() - before_hosts, 4000u);
    } else {
      comm.recv(data, 0);
    }
  });
}

}  // namespace
}  // namespace collectives::testing
