// Tests of point-to-point calls between processes: copies of the kernel, allocated memory, processes that end, and
// children of fork().
#include <gtest/gtest.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <functional>
#include <iostream>
#include <string>
#include <vector>

#include "collectives/communicator.hpp"
#include "support/errors.hpp"
#include "support/rank_processes.hpp"
#include "support/system.hpp"

namespace collectives::testing {
namespace {

using namespace std::chrono_literals;

/// Runs f(comm) in `ranks` processes, each of which calls `before` first. Returns the statuses of waitpid(), by rank.
std::vector<int> run_processes(
    int ranks, const std::string& job, const std::function<void(Communicator&)>& f,
    const CommunicatorOptions& options = {.timeout = 20s}, const std::function<void()>& before = [] {}) {
  const RendezvousPort port;
  std::vector<pid_t> children;
  for (Rank rank = 0; rank < ranks; ++rank) {
    const pid_t child = ::fork();
    if (child != 0) {
      children.push_back(child);
      continue;
    }
    int status = 0;
    try {
      port.set_environment(rank, ranks, job);
      before();
      Communicator comm = Communicator::from_environment(options);
      f(comm);
      status = ::testing::Test::HasFailure() ? 1 : 0;
    } catch (const std::exception& error) {
      std::cerr << "rank " << rank << ": " << error.what() << "\n";
      status = 2;
    }
    std::cerr.flush();
    std::cout.flush();
    ::_exit(status);
  }
  std::vector<int> statuses;
  for (const pid_t child : children) {
    int status = -1;
    ::waitpid(child, &status, 0);
    statuses.push_back(status);
  }
  return statuses;
}

void expect_success(const std::vector<int>& statuses) {
  for (std::size_t rank = 0; rank < statuses.size(); ++rank) EXPECT_EQ(statuses[rank], 0) << "rank " << rank;
}

void exchange(Communicator& comm, Buffer data, Buffer received) {
  const Rank other = 1 - comm.rank();
  auto* const mine = static_cast<std::uint32_t*>(data.data);
  auto* const theirs = static_cast<std::uint32_t*>(received.data);
  for (std::size_t i = 0; i < data.count; ++i)
    mine[i] = static_cast<std::uint32_t>(i * 2 + static_cast<std::size_t>(comm.rank()));
  std::fill_n(theirs, received.count, 0u);
  EXPECT_EQ(comm.sendrecv(data, other, received, other), other);
  for (std::size_t i = 0; i < data.count; ++i)
    ASSERT_EQ(theirs[i], i * 2 + static_cast<std::size_t>(other)) << "element " << i << " of " << data.count;
}

TEST(MessageProcesses, ExchangeOrdinaryMemory) {
  expect_success(run_processes(2, "ordinary", [](Communicator& comm) {
    for (const std::size_t count : {1u, 14u, 1'000u, 8'000u, 33'000u, 1'000'001u}) {
      std::vector<std::uint32_t> data(count), received(count);
      exchange(comm, data, received);
    }
  }));
}

TEST(MessageProcesses, ExchangeAllocatedMemory) {
  expect_success(run_processes(2, "allocated", [](Communicator& comm) {
    for (const std::size_t count : {14u, 8'000u, 33'000u, 1'000'001u}) {
      auto data = comm.allocate<std::uint32_t>(count), received = comm.allocate<std::uint32_t>(count);
      exchange(comm, data, received);
      std::vector<std::uint32_t> ordinary(count);
      exchange(comm, ordinary, received);
      exchange(comm, data, ordinary);
    }
  }));
}

TEST(MessageProcesses, ExchangeByTheirRingsIfTheKernelDoesNotCopy) {
  const auto f = [](Communicator& comm) {
    for (const std::size_t count : {1u, 14u, 1'000u, 8'000u, 33'000u, 1'000'001u}) {
      std::vector<std::uint32_t> data(count), received(count);
      exchange(comm, data, received);
    }
  };
  const auto before = [] { refuse_calls({{SYS_process_vm_readv, EPERM}}); };
  expect_success(run_processes(2, "rings", f, {.timeout = 20s}, before));
}

#ifdef COLLECTIVES_TEST_UCX
constexpr const char* kMessageWires[] = {"tcp", "ucx"};
#else
constexpr const char* kMessageWires[] = {"tcp"};
#endif

TEST(MessageProcesses, ExchangeOverEachWire) {
  for (const char* const wire : kMessageWires)
    expect_success(run_processes(2, wire,
                                 [&](Communicator& comm) {
                                   EXPECT_EQ(comm.transport(), wire);
                                   for (const std::size_t count : {1u, 14u, 1'000u, 8'000u, 33'000u, 1'000'001u}) {
                                     std::vector<std::uint32_t> data(count), received(count);
                                     exchange(comm, data, received);
                                   }
                                 },
                                 {.timeout = 20s, .transport = wire}));
}

TEST(MessageProcesses, StoreMessagesOfEachWireUntilTheirReceives) {
  constexpr std::size_t kMessages = 100;
  const auto count_of = [](std::size_t tag) -> std::size_t { return tag % 10 == 9 ? 9'000 : 5; };
  const auto f = [&](Communicator& comm) {
    std::vector<std::vector<std::uint32_t>> data;
    for (std::size_t tag = 0; tag < kMessages; ++tag)
      data.emplace_back(count_of(tag), static_cast<std::uint32_t>(1000 * static_cast<std::size_t>(comm.rank()) + tag));
    if (comm.rank() > 0) {
      std::vector<Work> sends;
      for (std::size_t tag = 0; tag < kMessages; ++tag)
        sends.push_back(comm.send_async(data[tag], 0, static_cast<int>(tag)));
      for (Work& send : sends) send.wait();
      return;
    }
    for (std::size_t tag = kMessages; tag-- > 0;)
      for (int i = 0; i < 2; ++i) {
        const Rank source = comm.recv(data[tag], any_source, static_cast<int>(tag));
        const auto expected = static_cast<std::uint32_t>(1000 * static_cast<std::size_t>(source) + tag);
        EXPECT_EQ(data[tag], std::vector<std::uint32_t>(count_of(tag), expected));
      }
  };
  for (const char* const wire : kMessageWires)
    expect_success(run_processes(3, wire, f, {.timeout = 20s, .transport = wire}));
}

void expect_loss_of_killed(const CommunicatorOptions& options) {
  for (const bool waits_to_send : {false, true})
    for (const Rank from : {0, any_source}) {
      const std::vector<int> statuses = run_processes(
          3, "killed",
          [&](Communicator& comm) {
            std::vector<float> data(1 << 20);
            // Rank 0 does not end before its peers are ready. After a barrier, a peer might still wait for its
            // messages.
            const std::span<float> ready = std::span(data).first(1);
            if (comm.rank() == 0) {
              for (const Rank peer : {1, 2}) comm.recv(ready, peer);
              ::raise(SIGKILL);
            }
            comm.send(ready, 0);
            const Error error = error_of([&] {
              if (comm.rank() == 1 && waits_to_send)
                comm.send(data, 0);
              else if (comm.rank() == 1)
                comm.recv(data, from);
              else
                comm.recv(data, 1);
            });
            EXPECT_EQ(error.code(), Errc::peer_lost) << error.what();
            EXPECT_EQ(error.peer(), 0) << error.what();
            EXPECT_SAYS(error.what(), "rank 0 was lost");
          },
          options);
      EXPECT_TRUE(WIFSIGNALED(statuses[0]));
      EXPECT_EQ(statuses[1], 0);
      EXPECT_EQ(statuses[2], 0);
    }
}

TEST(MessageProcesses, ReportAPeerThatWasKilled) { expect_loss_of_killed({.timeout = 20s}); }
TEST(MessageProcesses, ReportAPeerOfAnotherHostThatWasKilled) {
  for (const char* const wire : kMessageWires) expect_loss_of_killed({.timeout = 20s, .transport = wire});
}

TEST(MessageProcesses, ReportAKilledPeerOfAnotherHostWithinASecond) {
  const auto f = [](Communicator& comm) {
    int value = 0;
    if (comm.rank() == 0) {
      comm.recv(std::span(&value, 1), 1);
      ::raise(SIGKILL);
    }
    comm.send(std::span(&value, 1), 0);
    const auto begun = std::chrono::steady_clock::now();
    const Error error = error_of([&] { comm.recv(std::span(&value, 1), 0); });
    EXPECT_EQ(error.code(), Errc::peer_lost) << error.what();
    if (std::chrono::steady_clock::now() - begun > 900ms) ::_exit(1);
  };
  for (const char* const wire : kMessageWires) {
    bool soon = false;  // in one of five attempts, because other programs may delay the ranks
    for (int attempt = 0; attempt < 5 && !soon; ++attempt)
      soon = run_processes(2, "soon", f, {.timeout = 20s, .transport = wire})[1] == 0;
    EXPECT_TRUE(soon) << wire;
  }
}

/// Stops rank 0, and expects that rank 1 names it when the deadline of a receive has passed.
void expect_no_sign_of_life(const CommunicatorOptions& options) {
  const std::vector<int> statuses = run_processes(
      2, "stopped",
      [](Communicator& comm) {
        int process = ::getpid();
        if (comm.rank() == 0) {
          comm.send(std::span(&process, 1), 1);
          comm.recv(std::span(&process, 1), 1);  // rank 1 has the message
          ::raise(SIGSTOP);
          return;
        }
        comm.recv(std::span(&process, 1), 0);
        comm.send(std::span(&process, 1), 0);
        int value = 0;
        const Error error = error_of([&] { comm.recv(std::span(&value, 1), 0, 5, {.timeout = 500ms}); });
        ::kill(process, SIGKILL);
        EXPECT_EQ(error.code(), Errc::timeout) << error.what();
        EXPECT_EQ(error.peer(), 0);
        EXPECT_SAYS(error.what(), "rank 1 waits to receive from 0; no sign of life from rank 0");
      },
      options);
  EXPECT_TRUE(WIFSIGNALED(statuses[0]));
  EXPECT_EQ(statuses[1], 0);
}

TEST(MessageProcesses, NameAPeerThatWasStopped) { expect_no_sign_of_life({.timeout = 20s}); }
TEST(MessageProcesses, NameAPeerOfAnotherHostThatWasStopped) {
  for (const char* const wire : kMessageWires) expect_no_sign_of_life({.timeout = 20s, .transport = wire});
}

/// Lets rank 0 take one message and then end, and rank 1 send short messages until one fails. The link has space for
/// all of them.
void expect_failed_short_send(bool killed, const CommunicatorOptions& options) {
  const std::vector<int> statuses = run_processes(
      2, "failed_send",
      [&](Communicator& comm) {
        int value = 1;
        if (comm.rank() == 0) {
          comm.recv(std::span(&value, 1), 1);
          if (killed) ::raise(SIGKILL);
          return;
        }
        const Error error = error_of([&] {
          for (int i = 0; i < 40; ++i) {
            comm.send(std::span(&value, 1), 0);
            ::usleep(20'000);
          }
        });
        EXPECT_EQ(error.code(), Errc::peer_lost) << error.what();
        EXPECT_EQ(error.peer(), 0) << error.what();
        EXPECT_SAYS(error.what(), "to rank 0 (tag 0): rank 0 was lost: it");
        EXPECT_SAYS(error.what(), killed ? "process" : "left the communicator");
      },
      options);
  EXPECT_EQ(WIFSIGNALED(statuses[0]), killed);
  EXPECT_EQ(statuses[1], 0);
}

TEST(MessageProcesses, FailShortSendsToAPeerThatHasLeftOrWasKilled) {
  for (const bool killed : {false, true}) expect_failed_short_send(killed, {.timeout = 20s});
}
TEST(MessageProcesses, FailShortSendsToAPeerOfAnotherHostThatHasLeftOrWasKilled) {
  for (const char* const wire : kMessageWires)
    for (const bool killed : {false, true}) expect_failed_short_send(killed, {.timeout = 20s, .transport = wire});
}

TEST(MessageProcesses, RefuseCallsOfAForkedChild) {
  expect_success(run_processes(1, "forked", [](Communicator& comm) {
    const pid_t child = ::fork();
    if (child == 0) {
      int value = 0;
      const Error error = error_of([&] { comm.send(std::span(&value, 1), 0); });
      const bool refused =
          error.code() == Errc::invalid_argument && std::string(error.what()).find("forked") != std::string::npos;
      ::_exit(refused ? 0 : 1);
    }
    int status = -1;
    ::waitpid(child, &status, 0);
    EXPECT_EQ(status, 0);
  }));
}

}  // namespace
}  // namespace collectives::testing
