// Tests of point-to-point calls that fail: bad arguments, differences, deadlines, cycles of waits, lost peers.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include "collectives/communicator.hpp"
#include "support/errors.hpp"
#include "support/hosts.hpp"
#include "support/ranks.hpp"

namespace collectives::testing {
namespace {

using namespace std::chrono_literals;

const std::vector<std::vector<int>> kTwoRanks{{0, 0}, {0, 1}};

template <class Call>
void expect_refused(Errc code, const std::string& part, Call&& call) {
  const Error error = error_of(call);
  EXPECT_EQ(error.code(), code) << error.what();
  EXPECT_SAYS(error.what(), part);
}

TEST(MessageArguments, AreRefusedAndTheCommunicatorStaysUsable) {
  run_communicators(2, [](Communicator& comm) {
    std::vector<float> data(8);
    const auto refused = [](const std::string& part, auto&& call) {
      expect_refused(Errc::invalid_argument, part, call);
    };
    refused("tag -1 is not in 0 to 1073741824", [&] { comm.send(data, 1, -1); });
    refused("tag 1073741825 is not", [&] { comm.recv(data, 1, kLargestTag + 1); });
    refused("rank 2 is not a rank of 0 to 1", [&] { comm.send(data, 2); });
    refused("send: rank -1 is not", [&] { comm.send(data, -1); });
    refused("send: any_source is a source of receives", [&] { comm.send(data, any_source); });
    refused("recv: rank -1 is not", [&] { comm.recv(data, kNoRank); });
    refused("the buffer is null with 3 elements", [&] { comm.send({nullptr, 3, DataType::f32}, 1); });
    refused("overflow the address space", [&] { comm.recv({data.data(), SIZE_MAX / 2, DataType::f32}, 1); });
    refused("no such type: 200", [&] { comm.send({data.data(), 1, static_cast<DataType>(200)}, 1); });
    refused("input and output overlap", [&] { comm.sendrecv(data, 1, data, 1); });
    refused("sendrecv: tag -1 is not in", [&] { comm.sendrecv(data, 1, std::span(data).first(0), 1, -1); });
    EXPECT_EQ(error_of([&] { comm.sendrecv(data, 2, data, 1); }).operation(), "sendrecv");
    refused("the name has 257 bytes", [&] { comm.send(data, 1, 0, {.name = std::string(257, 'a')}); });
    refused("tag -5", [&] { static_cast<void>(comm.send_async(data, 1, -5)); });
    const auto unsupported = [](const std::string& part, auto&& call) {
      expect_refused(Errc::unsupported, part, call);
    };
    unsupported("no backend", [&] { comm.send(data, 1, 0, {.backend = "ring"}); });
    unsupported("no wire format", [&] { comm.send(data, 1, 0, {.wire = DataType::bf16}); });
    unsupported("no stream", [&] { comm.recv(data, 1, 0, {.stream = nullptr}); });
    const Rank other = 1 - comm.rank();
    std::vector<float> received(8);
    EXPECT_EQ(comm.sendrecv(data, other, received, other, kLargestTag), other);
    comm.barrier();
  });
}

TEST(MessageThreads, ASecondPointToPointCallIsRefusedAndACollectiveIsNot) {
  run_communicators(2,
                    [](Communicator& comm) {
                      int value = comm.rank();
                      if (comm.rank() == 1) {
                        comm.barrier();
                        return comm.send(std::span(&value, 1), 0, 2);
                      }
                      int received = -1;
                      std::jthread receiver([&] { comm.recv(std::span(&received, 1), 1, 2); });
                      while (comm.recent_messages().empty()) std::this_thread::yield();  // the call has begun
                      for (int i = 0; i < 2; ++i)
                        expect_refused(Errc::invalid_argument, "send: another thread is in a point-to-point call of",
                                       [&] { comm.send(std::span(&value, 1), 1, 3); });
                      comm.barrier();
                      receiver.join();
                      EXPECT_EQ(received, 1);
                    },
                    {.timeout = 20s});
}

TEST(MessageMismatch, NamesBothRanksAndWhatEachPassed) {
  for (const auto& hosts : kTwoRanks)
    for (const std::size_t count : {std::size_t{4}, std::size_t{100'000}})
      run_hosts(hosts,
                [&](Communicator& comm) {
                  std::vector<float> data(count);
                  const Error error = error_of([&] {
                    if (comm.rank() == 0) {
                      comm.send(data, 1, 7);
                      for (int i = 0; i < 1000; ++i) {  // a sender that has ended gets the error in a later call
                        comm.send(std::span(data.data(), 1), 1, 8);
                        std::this_thread::sleep_for(1ms);
                      }
                    } else {
                      std::vector<double> other(count / 2);
                      comm.recv(other, 0, 7);
                    }
                  });
                  EXPECT_EQ(error.code(), Errc::mismatch);
                  EXPECT_EQ(error.peer(), 0);
                  EXPECT_SAYS(error.what(),
                              "recv #1 from rank 0 (tag 7): rank 0 sent " + std::to_string(count) + " x f32");
                  EXPECT_SAYS(error.what(), "rank 1 receives " + std::to_string(count / 2) + " x f64");
                  EXPECT_EQ(error_of([&] { comm.barrier(); }).code(), Errc::mismatch);
                  EXPECT_EQ(error_of([&] { comm.send(data, 1 - comm.rank()); }).code(), Errc::mismatch);
                },
                {.timeout = 20s});
}

TEST(MessageDeadline, NamesPeerAndTagAndOtherMessagesOfThePeer) {
  for (const auto& hosts : kTwoRanks)
    run_hosts(hosts,
              [](Communicator& comm) {
                std::vector<float> data(6);
                if (comm.rank() == 0) {
                  comm.send(data, 1, 8);
                  std::vector<double> others(3);
                  comm.send(others, 1, 9);
                }
                comm.barrier();
                const Error error = error_of([&] {
                  if (comm.rank() == 1) comm.recv(data, 0, 7, {.timeout = 300ms});
                  for (int i = 0; i < 2000; ++i) {
                    comm.send(std::span(data.data(), 1), comm.rank(), 5);
                    comm.recv(std::span(data.data(), 1), comm.rank(), 5);
                    std::this_thread::sleep_for(1ms);
                  }
                });
                EXPECT_EQ(error.code(), Errc::timeout);
                EXPECT_EQ(error.peer(), 0);
                EXPECT_EQ(error.operation(), "recv #1 from rank 0 (tag 7)");
                EXPECT_SAYS(error.what(), "recv #1 from rank 0 (tag 7): timed out after 0.3 s on rank 1");
                EXPECT_SAYS(error.what(), "rank 0 has not sent such a message");
                EXPECT_SAYS(error.what(), "tag 8 (6 x f32), tag 9 (3 x f64)");
              },
              {.timeout = 20s});
}

TEST(MessageDeadline, FromAnySourceNamesOtherMessagesOfAllRanks) {
  run_communicators(2,
                    [](Communicator& comm) {
                      int value = 0;
                      if (comm.rank() == 0) comm.send(std::span(&value, 1), 1, 8);
                      comm.barrier();
                      const Error error = error_of([&] {
                        if (comm.rank() == 1) comm.recv(std::span(&value, 1), any_source, 7, {.timeout = 300ms});
                        comm.recv(std::span(&value, 1), 1, 9);
                      });
                      EXPECT_EQ(error.code(), Errc::timeout);
                      EXPECT_SAYS(error.what(),
                                  "on rank 1: no rank has sent such a message; ranks have sent messages that no "
                                  "receive has taken: tag 8 (1 x i32) from rank 0");
                    },
                    {.timeout = 20s});
}

TEST(MessageDeadline, NamesTheRanksThatWaitInACycle) {
  for (const auto& hosts : {std::vector<int>{0, 0}, std::vector<int>{0, 1}, std::vector<int>{0, 0, 1}})
    run_hosts(hosts,
              [](Communicator& comm) {
                std::vector<float> data(100'000);
                comm.barrier();
                const Rank ahead = (comm.rank() + 1) % comm.size();
                const Error error = error_of([&] { comm.recv(data, ahead, 3); });
                EXPECT_EQ(error.code(), Errc::timeout);
                const bool of_rank_0 = std::string(error.what()).find("on rank 0") != std::string::npos;
                const std::string cycle = "rank 0 waits to receive from 1, rank 1 waits to receive from 0";
                EXPECT_SAYS(error.what(), comm.size() == 2 && of_rank_0 ? cycle : "");
                for (Rank rank = 0; rank < comm.size(); ++rank)
                  EXPECT_SAYS(error.what(), "rank " + std::to_string(rank) + " waits to receive from " +
                                                std::to_string((rank + 1) % comm.size()));
              },
              {.timeout = 1s});
}

TEST(MessageDeadline, OfASendrecvNamesTheSendrecv) {
  for (const bool asynchronous : {false, true})
    run_communicators(2,
                      [&](Communicator& comm) {
                        const std::vector<float> data(4);
                        std::vector<float> received(4);
                        const Error error = error_of([&] {
                          if (comm.rank() == 1)
                            comm.recv(received, 0, 9);
                          else if (asynchronous)
                            comm.sendrecv_async(data, 1, received, 1, 7, {.timeout = 300ms}).wait();
                          else
                            comm.sendrecv(data, 1, received, 1, 7, {.timeout = 300ms});
                        });
                        EXPECT_EQ(error.code(), Errc::timeout);
                        const std::string operation =
                            std::string("sendrecv #") + (asynchronous ? "1" : "2") + " from rank 1 (tag 7)";
                        EXPECT_EQ(error.operation(), operation);
                        EXPECT_SAYS(error.what(), operation + ": timed out after 0.3 s on rank 0");
                      },
                      {.timeout = 20s});
}

TEST(MessageDeadline, OfACollectiveNamesTheMessageForWhichAMissingRankWaits) {
  run_communicators(3,
                    [](Communicator& comm) {
                      int value = 0;
                      const Error error = error_of([&] {
                        if (comm.rank() == 1)
                          comm.recv(std::span(&value, 1), 0, 3);
                        else
                          comm.barrier({.timeout = 300ms});
                      });
                      EXPECT_EQ(error.code(), Errc::timeout);
                      EXPECT_EQ(error.peer(), 1);
                      EXPECT_SAYS(error.what(), "rank 1 has not arrived; rank 1 waits to receive from rank 0, tag 3");
                    },
                    {.timeout = 20s});
}

TEST(MessageDeadline, OfASendNamesTheReceiver) {
  for (const auto& hosts : kTwoRanks)
    run_hosts(hosts,
              [](Communicator& comm) {
                std::vector<float> data(1 << 20);
                const Error error = error_of([&] { comm.send(data, 1 - comm.rank(), 3); });
                EXPECT_EQ(error.code(), Errc::timeout);
                EXPECT_SAYS(error.what(), "rank 0 waits to send to 1");
                EXPECT_SAYS(error.what(), "rank 1 waits to send to 0");
                EXPECT_SAYS(error.what(), "has not received the message");
              },
              {.timeout = 1s});
}

TEST(MessageDeadline, EndsASendToTheOwnRank) {
  run_communicators(1,
                    [](Communicator& comm) {
                      const std::vector<float> data(1 << 20);
                      const Error error = error_of([&] { comm.send(data, 0); });
                      EXPECT_EQ(error.code(), Errc::timeout);
                      EXPECT_SAYS(error.what(), "rank 0 waits to send to 0");
                    },
                    {.timeout = 200ms});
}

TEST(MessageAbort, EndsAReceive) {
  for (const auto& hosts : kTwoRanks)
    run_hosts(hosts,
              [](Communicator& comm) {
                std::vector<float> data(4);
                comm.barrier();
                if (comm.rank() == 0) return comm.abort("enough");
                for (const Rank from : {0, any_source}) {
                  const Error error = error_of([&] { comm.recv(data, from); });
                  EXPECT_EQ(error.code(), Errc::aborted);
                  EXPECT_SAYS(error.what(), "enough");
                }
              },
              {.timeout = 20s});
}

TEST(LostPeer, EndsAReceiveThatWaitsForIt) {
  for (const Rank from : {0, any_source})
    run_communicators(2,
                      [&](Communicator& comm) {
                        if (comm.rank() == 0) return;  // leaves
                        std::vector<float> data(4);
                        const Error error = error_of([&] { comm.recv(data, from, 2); });
                        EXPECT_EQ(error.code(), Errc::peer_lost);
                        EXPECT_EQ(error.peer(), 0);
                        EXPECT_SAYS(error.what(), "(tag 2): rank 0 was lost: it left the communicator");
                      },
                      {.timeout = 20s});
}

TEST(LostPeer, EndsALongSendThatWaitsForIt) {
  run_communicators(2,
                    [&](Communicator& comm) {
                      if (comm.rank() == 0) return;
                      const std::vector<float> data(1 << 20);
                      const Error error = error_of([&] { comm.send(data, 0, 2); });
                      EXPECT_EQ(error.code(), Errc::peer_lost);
                    },
                    {.timeout = 20s});
}

/// Calls f(comm) on rank 1 of two ranks of a host, after rank 0 has called `before(comm)` and has left.
template <class Before, class F>
void run_after_leave(Before&& before, F&& f) {
  std::atomic<bool> left{false};
  run_ranks(2, [&](Bootstrap& bootstrap) {
    {
      Communicator comm(bootstrap, {.timeout = 20s});
      if (comm.rank() == 0)
        before(comm);
      else
        f(comm, [&] {
          while (!left) std::this_thread::sleep_for(1ms);
        });
    }
    if (bootstrap.rank() == 0) left = true;
  });
}

TEST(LostPeer, FailsAShortSendThatBeginsAfterItHasLeft) {
  for (const bool asynchronous : {false, true})
    run_after_leave([](Communicator&) {},
                    [&](Communicator& comm, auto&& wait_for_leave) {
                      const int value = 7;
                      wait_for_leave();
                      const Error error = error_of([&] {
                        if (asynchronous)
                          comm.send_async(std::span(&value, 1), 0, 2).wait();
                        else
                          comm.send(std::span(&value, 1), 0, 2);
                      });
                      EXPECT_EQ(error.code(), Errc::peer_lost);
                      EXPECT_EQ(error.peer(), 0);
                      EXPECT_EQ(error.operation(), "send #1 to rank 0 (tag 2)");
                      EXPECT_SAYS(error.what(), "send #1 to rank 0 (tag 2): rank 0 was lost: it left the communicator");
                    });
}

TEST(LostPeer, FailsNoSendThatEndedBeforeItHasLeft) {
  std::atomic<bool> sent{false};
  run_after_leave(
      [&](Communicator&) {
        while (!sent) std::this_thread::sleep_for(1ms);
      },
      [&](Communicator& comm, auto&& wait_for_leave) {
        const int value = 7;
        Work accepted = comm.send_async(std::span(&value, 1), 0, 2);
        sent = true;
        wait_for_leave();
        accepted.wait();
        comm.send(std::span(&value, 1), 1, 3);  // the communicator has not failed
      });
}

TEST(LostPeer, DoesNotDisturbReceivesFromOthers) {
  run_communicators(3,
                    [&](Communicator& comm) {
                      if (comm.rank() == 0) return;
                      int value = 4;
                      if (comm.rank() == 1) {
                        std::this_thread::sleep_for(200ms);
                        comm.send(std::span(&value, 1), 2);
                      } else {
                        EXPECT_EQ(comm.recv(std::span(&value, 1), any_source), 1);
                      }
                    },
                    {.timeout = 20s});
}

TEST(Destruction, ReportsMessagesThatNoReceiveHasTaken) {
  for (const auto& hosts : kTwoRanks) {
    ::testing::internal::CaptureStderr();
    run_hosts(hosts,
              [](Communicator& comm) {
                const std::vector<float> data(3);
                if (comm.rank() == 0) comm.send(data, 1, 6);
                comm.barrier();
              },
              {.timeout = 20s});
    const std::string log = ::testing::internal::GetCapturedStderr();
    EXPECT_SAYS(log, "rank 0 has sent messages that no receive has taken: tag 6 (3 x f32)");
  }
}

TEST(Destruction, FailsWorksThatAreUnfinished) {
  ::testing::internal::CaptureStderr();
  const std::vector<float> data(1 << 20);
  std::vector<float> received(4);
  Work send, receive;
  {
    Communicator comm(*bootstrap_threads(1)[0]);
    send = comm.send_async(data, 0, 1);
    receive = comm.recv_async(received, 0, 2);
  }
  for (Work* const work : {&send, &receive}) EXPECT_EQ(error_of([&] { work->wait(); }).code(), Errc::peer_lost);
  EXPECT_SAYS(::testing::internal::GetCapturedStderr(), "send #1 to rank 0 (tag 1) has not ended");
}

}  // namespace
}  // namespace collectives::testing
