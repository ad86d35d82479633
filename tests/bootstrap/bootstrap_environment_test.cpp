// Tests of the bootstrap from the environment, by which ranks find one another. Launchers set variables, and the ranks
// then connect to rank 0 (rendezvous).
//
// The first tests pass variables as literals to the pure function that interprets them. Later tests run the rendezvous
// over sockets of the loopback. The ranks are threads, except in the last tests, where they are processes.
#include <arpa/inet.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <functional>
#include <optional>
#include <random>
#include <thread>

#include "base/reported_wait.hpp"
#include "bootstrap/listener.hpp"
#include "bootstrap/rendezvous.hpp"
#include "bootstrap/sockets.hpp"
#include "bootstrap/world.hpp"
#include "conformance/bootstrap_conformance.hpp"
#include "support/system.hpp"

namespace collectives::testing {
namespace {

// ---- What the variables mean ---------------------------------------------------------------------------------------

World world(const Variables& variables, std::optional<int> port = {}) { return world_of(variables, port, 4711); }

/// Returns the text of the Error{bootstrap} that these variables cause. Expects that it has one line.
std::string refusal(const Variables& variables, std::optional<int> port = {}) {
  const auto error = error_of([&] { world(variables, port); });
  if (!error) return {};
  EXPECT_EQ(error->code(), Errc::bootstrap);
  const std::string what = error->what();
  EXPECT_EQ(what.find('\n'), std::string::npos);
  return what;
}

Variables torchrun(const std::string& rank, const std::string& size) {
  return {{"RANK", rank}, {"WORLD_SIZE", size}, {"MASTER_ADDR", "head"}, {"MASTER_PORT", "29500"}};
}

TEST(World, NothingSetIsAWorldOfOne) {
  const World alone = world({{"HOME", "/root"}, {"RANK", ""}});
  EXPECT_EQ(alone.rank, 0);
  EXPECT_EQ(alone.size, 1);
}

TEST(World, TorchrunVariables) {
  const World place = world(torchrun("2", "4"));
  EXPECT_EQ(place.rank, 2);
  EXPECT_EQ(place.size, 4);
  EXPECT_EQ(place.address, "head");
  EXPECT_EQ(place.port, 29500);
}

TEST(World, TheNextPortIsUsedWhenTorchrunsAgentHoldsItsOwn) {
  auto variables = torchrun("0", "2");
  variables["TORCHELASTIC_USE_AGENT_STORE"] = "True";
  EXPECT_EQ(world(variables).port, 29501);
  variables["TORCHELASTIC_USE_AGENT_STORE"] = "False";
  EXPECT_EQ(world(variables).port, 29500);
}

TEST(World, OurPortComesFirst) {
  auto variables = torchrun("0", "2");
  EXPECT_EQ(world(variables, 7000).port, 7000);
  variables.erase("MASTER_PORT");
  EXPECT_EQ(world(variables, 7000).port, 7000);
}

TEST(World, OneOfOneNeedsNoAddress) { EXPECT_EQ(world({{"RANK", "0"}, {"WORLD_SIZE", "1"}}).size, 1); }

TEST(World, BadNumbersAreNamedWithTheirValue) {
  for (const char* bad : {"two", "-1", "1.5", "99999999999999999999", " 1", "1 "}) {
    EXPECT_NE(refusal(torchrun(bad, "4")).find("RANK=" + std::string(bad)), std::string::npos) << bad;
  }
  for (const char* bad : {"four", "0", "-4", "2000000"}) {
    EXPECT_NE(refusal(torchrun("0", bad)).find("WORLD_SIZE=" + std::string(bad)), std::string::npos) << bad;
  }
  EXPECT_EQ(refusal(torchrun("4", "4")), "RANK=4: not less than WORLD_SIZE=4");
  for (const char* bad : {"http", "0", "65536", "-1"}) {
    auto variables = torchrun("0", "2");
    variables["MASTER_PORT"] = bad;
    EXPECT_NE(refusal(variables).find("MASTER_PORT=" + std::string(bad)), std::string::npos) << bad;
  }
}

TEST(World, HalfADescriptionIsAMistake) {
  for (const char* missing : {"RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"}) {
    auto variables = torchrun("1", "2");
    variables.erase(missing);
    EXPECT_TRUE(refusal(variables).starts_with(std::string(missing) + " is not set")) << missing;
  }
}

TEST(World, HalfADescriptionYieldsToACompleteOne) {
  EXPECT_EQ(world({{"RANK", "7"}, {"PMI_RANK", "1"}, {"PMI_SIZE", "2"}}).rank, 1);
}

std::string tf_config(const std::string& cluster, const std::string& task) {
  return R"({"cluster": )" + cluster + R"(, "task": )" + task + "}";
}
constexpr const char* kCluster = R"({"chief": ["c:1000"], "worker": ["w0:2000", "w1:2001"], "evaluator": ["e:3000"]})";

TEST(World, ChiefIsRankZeroAndWorkersFollow) {
  const World chief = world({{"TF_CONFIG", tf_config(kCluster, R"({"type": "chief", "index": 0})")}});
  EXPECT_EQ(chief.rank, 0);
  EXPECT_EQ(chief.size, 3);
  const World worker = world({{"TF_CONFIG", tf_config(kCluster, R"({"type": "worker", "index": 1})")}});
  EXPECT_EQ(worker.rank, 2);
  EXPECT_EQ(worker.size, 3);
  EXPECT_EQ(worker.address, "c");
  EXPECT_EQ(worker.port, 1000);
}

TEST(World, WithoutAChiefWorkerZeroIsRankZero) {
  const World worker = world(
      {{"TF_CONFIG", tf_config(R"({"worker": ["[::1]:2000", "w1:2001"]})", R"({"type": "worker", "index": 1})")}});
  EXPECT_EQ(worker.rank, 1);
  EXPECT_EQ(worker.size, 2);
  EXPECT_EQ(worker.address, "::1");
  EXPECT_EQ(worker.port, 2000);
}

TEST(World, AnEvaluatorIsRefusedAsNoMember) {
  EXPECT_NE(refusal({{"TF_CONFIG", tf_config(kCluster, R"({"type": "evaluator", "index": 0})")}})
                .find("evaluator 0, which stands outside the world"),
            std::string::npos);
}

TEST(World, ParameterServersAreRefused) {
  EXPECT_NE(
      refusal({{"TF_CONFIG", tf_config(R"({"worker": ["a:1"], "ps": ["b:2"]})", R"({"type": "worker", "index": 0})")}})
          .find("\"ps\""),
      std::string::npos);
  EXPECT_NE(
      refusal({{"TF_CONFIG", tf_config(R"({"worker": ["a:1"]})", R"({"type": "ps", "index": 0})")}}).find("\"ps\""),
      std::string::npos);
}

TEST(World, BadTfConfigIsOneLineNamingTheKey) {
  const std::string worker = R"({"type": "worker", "index": 0})";
  const struct {
    std::string config, names;
  } cases[] = {
      {"{not json", "not a JSON object"},
      {"[1]", "not a JSON object"},
      {"{}", "no key \"cluster\""},
      {R"({"cluster": {"worker": ["a:1"]}})", "no key \"task\""},
      {tf_config(kCluster, R"({"index": 0})"), "no key \"task.type\""},
      {tf_config(kCluster, R"({"type": "worker"})"), "no key \"task.index\""},
      {tf_config(kCluster, R"({"type": 3, "index": 0})"), "\"task.type\""},
      {tf_config(kCluster, R"({"type": "worker", "index": "x"})"), "\"task.index\""},
      {tf_config(kCluster, R"({"type": "worker", "index": 2})"), "\"cluster.worker\" has 2 tasks"},
      {tf_config(kCluster, R"({"type": "worker", "index": -1})"), "\"task.index\" is -1"},
      {tf_config(kCluster, R"({"type": "master", "index": 0})"), "\"task.type\" is \"master\""},
      {tf_config(R"({"chief": ["c:1"]})", worker), "\"cluster\" has no \"worker\""},
      {tf_config(R"({"worker": "a:1"})", worker), "\"cluster.worker\" is not a list"},
      {tf_config(R"({"worker": ["a:1", 2]})", worker), "\"cluster.worker\" is not a list"},
      {tf_config(R"(["a:1"])", worker), "\"cluster\" is not an object"},
      {tf_config(R"({"worker": ["a:1"], "helper": []})", worker), "\"cluster.helper\""},
      {tf_config(R"({"chief": ["a:1", "b:1"], "worker": ["c:1"]})", worker), "\"cluster.chief\" has 2 tasks"},
      {tf_config(R"({"worker": ["a", "b:1"]})", worker), "cluster.worker[0]=a"},
      {tf_config(R"({"worker": ["a:99999", "b:1"]})", worker), "cluster.worker[0] port=99999"},
  };
  for (const auto& [config, names] : cases) {
    const std::string what = refusal({{"TF_CONFIG", config}});
    EXPECT_TRUE(what.starts_with("TF_CONFIG: ")) << what;
    EXPECT_NE(what.find(names), std::string::npos) << config << "\ngot: " << what;
  }
}

TEST(World, RanksOfOneMpirunMeetAtAPortOfTheirJob) {
  Variables variables{{"OMPI_COMM_WORLD_RANK", "1"},
                      {"OMPI_COMM_WORLD_SIZE", "2"},
                      {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"},
                      {"PMIX_NAMESPACE", "12345"}};
  const World here = world(variables);
  EXPECT_EQ(here.rank, 1);
  EXPECT_EQ(here.size, 2);
  EXPECT_EQ(here.address, "127.0.0.1");
  EXPECT_GE(here.port, 15000);
  EXPECT_LT(here.port, 30000);
  variables["OMPI_COMM_WORLD_RANK"] = "0";
  EXPECT_EQ(world(variables).port, here.port);
  variables["PMIX_NAMESPACE"] = "12346";
  EXPECT_NE(world(variables).port, here.port);
}

TEST(World, SeveralHostsNeedAnAddress) {
  Variables variables{
      {"OMPI_COMM_WORLD_RANK", "1"}, {"OMPI_COMM_WORLD_SIZE", "4"}, {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"}};
  EXPECT_NE(refusal(variables).find("set MASTER_ADDR"), std::string::npos);
  variables["MASTER_ADDR"] = "head";
  variables["MASTER_PORT"] = "1234";
  EXPECT_EQ(world(variables).address, "head");
  EXPECT_EQ(world(variables).port, 1234);
}

TEST(World, PmiRanksOfOneParentMeet) {
  const Variables variables{{"PMI_RANK", "0"}, {"PMI_SIZE", "3"}};
  EXPECT_EQ(world_of(variables, {}, 1).port, world_of(variables, {}, 1).port);
  EXPECT_NE(world_of(variables, {}, 1).port, world_of(variables, {}, 2).port);
}

TEST(World, SlurmMeetsOnItsFirstHost) {
  const auto address = [](const char* nodes) {
    return world({{"SLURM_PROCID", "3"},
                  {"SLURM_NTASKS", "8"},
                  {"SLURM_NNODES", "4"},
                  {"SLURM_JOB_ID", "99"},
                  {"SLURM_STEP_NODELIST", nodes}})
        .address;
  };
  EXPECT_EQ(address("n1,n2"), "n1");
  EXPECT_EQ(address("node[07-09,12],gpu1"), "node07");
  EXPECT_EQ(address("node[3,5]-ib"), "node3-ib");
  EXPECT_EQ(address("rack[1-2]node[03-04]"), "rack1node03");
  EXPECT_EQ(address("a-b[2-3]"), "a-b2");
  EXPECT_EQ(
      world({{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "2"}, {"SLURM_NNODES", "1"}, {"SLURM_NODELIST", "n9"}}).address,
      "127.0.0.1");
}

// ---- Our own variables ---------------------------------------------------------------------------------------------

/// Sets a variable until it goes out of scope.
class Variable {
 public:
  Variable(const char* name, const char* value) : name_(name) { ::setenv(name, value, 1); }
  ~Variable() { ::unsetenv(name_); }
  Variable(const Variable&) = delete;
  Variable& operator=(const Variable&) = delete;

 private:
  const char* name_;
};

TEST(FromEnvironment, AMistakeThatDecidesNothingHereIsLeftToTheCommunicator) {
  const Variable timeout("COLLECTIVES_TIMEOUT", "soon");
  EXPECT_EQ(bootstrap_from_environment()->size(), 1);
}

TEST(FromEnvironment, ABadPortIsRefusedByARankThatKnowsItself) {
  const Variable bad("COLLECTIVES_PORT", "http"), rank("RANK", "3"), size("WORLD_SIZE", "4"), host("MASTER_ADDR", "h");
  const auto error = error_of([] { bootstrap_from_environment(); });
  ASSERT_TRUE(error);
  EXPECT_EQ(error->code(), Errc::invalid_argument);
  EXPECT_EQ(error->rank(), 3);
  EXPECT_EQ(std::string(error->what()), "COLLECTIVES_PORT=http: valid is a port from 1 to 65535");
}

// ---- The rendezvous ------------------------------------------------------------------------------------------------

struct EnvironmentWorlds {
  static int most_ranks() { return 5; }
  static constexpr bool kNamesTheMissing = true;
  template <class F>
  static void run(int ranks, F f) {
    const Listener listener;
    std::vector<std::unique_ptr<Bootstrap>> bootstraps(static_cast<std::size_t>(ranks));
    in_threads(ranks, [&](Rank rank) {
      auto& bootstrap = bootstraps[static_cast<std::size_t>(rank)];
      bootstrap = rendezvous(listener.place(rank, ranks), listener.fd(), kPatience);
      f(bootstrap);
    });
  }
};

INSTANTIATE_TYPED_TEST_SUITE_P(Environment, BootstrapConformance, EnvironmentWorlds);
INSTANTIATE_TYPED_TEST_SUITE_P(Environment, BootstrapLossConformance, EnvironmentWorlds);

TEST(Rendezvous, RankThatNeverComesIsNamedOnEveryRank) {
  const Listener listener;
  expect_all_refused(listener, {listener.place(0, 4), listener.place(2, 4)}, Errc::timeout,
                     "ranks 1, 3 did not come to the rendezvous", kImpatience);
}

TEST(Rendezvous, WithoutRankZeroTheOthersNameIt) {
  const Listener nobody(Listener::Kind::reserved);
  const auto error = error_of([&] { rendezvous(nobody.place(1, 2), {}, kImpatience); });
  ASSERT_TRUE(error);
  EXPECT_EQ(error->code(), Errc::timeout);
  EXPECT_EQ(error->peer(), 0);
  EXPECT_NE(std::string(error->what()).find("rank 0 did not come"), std::string::npos) << error->what();
  EXPECT_TRUE(std::string(error->what())
                  .ends_with("; last answer: Connection refused: no process listens there; rank 0 has not come, or has "
                             "left again"))
      << error->what();
}

TEST(Rendezvous, AnAttemptThatTheDeadlineCutsShortIsNoAnswer) {
  const Listener nobody_accepts;
  ASSERT_EQ(::listen(nobody_accepts.fd(), 0), 0);
  std::string answer;
  const tcp::Addresses addresses = tcp::resolve(nobody_accepts.place(1, 2), answer);
  ASSERT_NE(addresses, nullptr) << answer;
  std::vector<tcp::Socket> connected;  // connections that fill the queue of the listening socket
  int code = 0;
  while (code == 0 && connected.size() < 64) {
    connected.emplace_back();
    ReportedWait waiting("connect", 1, Deadline::in(std::chrono::milliseconds(200)));
    code = tcp::try_connect(addresses.get(), waiting, connected.back());
  }
  EXPECT_EQ(code, EINPROGRESS) << tcp::error_text(code);
}

/// A false rank 0, which gives every client the same answer while this object exists.
class FalseRankZero {
 public:
  FalseRankZero(const Listener& listener, std::string answer)
      : thread_([this, &listener, answer = std::move(answer)] {
          std::vector<tcp::Socket> callers;
          while (!over_) {
            pollfd entry{listener.fd(), POLLIN, 0};
            if (::poll(&entry, 1, 10) <= 0) continue;
            callers.emplace_back(::accept4(listener.fd(), nullptr, nullptr, SOCK_CLOEXEC));
            ::send(callers.back().fd(), answer.data(), answer.size(), MSG_NOSIGNAL);
          }
        }) {}
  ~FalseRankZero() { over_ = true; }

 private:
  std::atomic<bool> over_ = false;
  std::jthread thread_;  // joined first
};

TEST(Rendezvous, WhatListensInPlaceOfRankZeroIsDescribed) {
  const std::pair<std::string, const char*> cases[] = {
      {"HTTP/1.1 400 Bad Request\r\n\r\n", "what listens there speaks another protocol"},
      {frame_header(6, std::uint64_t{1} << 30), "what listens there sent a frame of 1073741824 bytes"},
      {frame_header(6, UINT64_MAX), "what listens there sent a frame of 18446744073709551615 bytes"},
      {frame_header(2, 0), "what listens there is not rank 0"},
      {"", "a connection, and then silence"}};
  for (const auto& [answer, description] : cases) {
    const Listener listener;
    const FalseRankZero other(listener, answer);
    const auto error = error_of([&] { rendezvous(listener.place(1, 2), {}, kImpatience); });
    ASSERT_TRUE(error);
    EXPECT_EQ(error->code(), Errc::timeout);
    EXPECT_NE(std::string(error->what()).find("; last answer: " + std::string(description)), std::string::npos)
        << error->what();
  }
}

TEST(Rendezvous, StrangersAreDropped) {
  const Listener listener;
  const int strangers[] = {listener.knock("GET / HTTP/1.1\r\nHost: x\r\n\r\n"), listener.knock("short"),
                           listener.knock(""), listener.knock(std::string(100, '\xff'))};
  ::close(listener.knock("gone before it said who it was"));
  in_threads(3, [&](Rank rank) {
    const auto bootstrap = rendezvous(listener.place(rank, 3), listener.fd(), kPatience);
    EXPECT_EQ(bootstrap->all_gather("x", patient()), std::vector<std::string>(3, "x"));
  });
  for (const int stranger : strangers) ::close(stranger);
}

constexpr auto kHello = static_cast<std::uint64_t>(tcp::Kind::hello);

TEST(Rendezvous, NoiseOnThePortDoesNotPreventTheRendezvous) {
  std::minstd_rand random(1);
  for (int repeat = 0; repeat < 5; ++repeat) {
    const Listener listener;
    std::vector<tcp::Socket> strangers;
    for (int i = 0; i < 8; ++i) {
      strangers.emplace_back(listener.knock(noise(random, 300)));
      strangers.emplace_back(listener.knock(frame_header(kHello, UINT64_MAX - random() % 64) + noise(random, 300)));
      strangers.emplace_back(listener.knock(frame_header(kHello, random() % 12) + hello().substr(16)));
      strangers.emplace_back(listener.knock(hello(3 + static_cast<Rank>(random() % 100), 3)));
      strangers.emplace_back(listener.knock(hello(-1, 3)));
    }
    in_threads(3, [&](Rank rank) {
      const auto bootstrap = rendezvous(listener.place(rank, 3), listener.fd(), kPatience);
      EXPECT_EQ(bootstrap->all_gather("x", patient()), std::vector<std::string>(3, "x"));
    });
  }
}

TEST(Rendezvous, StrangersAreDroppedIfTheyTakeEveryDescriptor) {
  if (kSanitized) GTEST_SKIP() << "sanitizers need descriptors";
  const Listener listener;
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    const rlimit few{32, 32};
    bool connected = false;
    try {
      for (int fd = 16; fd < 1024; ++fd) {
        if (fd != listener.fd()) ::close(fd);
      }
      connected = ::setrlimit(RLIMIT_NOFILE, &few) == 0 &&
                  rendezvous(listener.place(0, 2), listener.fd(), kPatience)->all_gather("x", patient()).size() == 2;
    } catch (...) {
    }
    ::_exit(connected ? 0 : 1);
  }
  std::vector<tcp::Socket> strangers;
  for (int i = 0; i < 50; ++i) strangers.emplace_back(listener.knock(""));
  EXPECT_NO_THROW(rendezvous(listener.place(1, 2), {}, kPatience)->all_gather("x", patient()));
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

TEST(Rendezvous, PortInUseIsOneLine) {
  const Listener occupant;
  const auto error = error_of([&] { rendezvous(occupant.place(0, 2), {}, kImpatience); });
  ASSERT_TRUE(error);
  EXPECT_EQ(error->code(), Errc::bootstrap);
  EXPECT_TRUE(
      std::string(error->what())
          .starts_with("port " + std::to_string(occupant.port()) + " on 127.0.0.1 is in use (rank 0 cannot listen): "))
      << error->what();
}

TEST(Rendezvous, RankZeroListensByItselfAndByName) {
  for (const char* address : {"127.0.0.1", "localhost"}) {
    const Listener reserved(Listener::Kind::reserved);
    in_threads(3, [&](Rank rank) {
      const World place = reserved.place(rank, 3, address);
      EXPECT_EQ(rendezvous(place, {}, kPatience)->all_gather("x", patient()), std::vector<std::string>(3, "x"));
    });
  }
}

TEST(Rendezvous, InheritedSocketServesOneRendezvousAfterAnotherAndDiesInExec) {
  const Listener listener;
  for (int repeat = 0; repeat < 3; ++repeat) {
    in_threads(2, [&](Rank rank) {
      EXPECT_EQ(rendezvous(listener.place(rank, 2), listener.fd(), kPatience)->all_gather("x", patient()).size(), 2u);
    });
  }
  EXPECT_NE(::fcntl(listener.fd(), F_GETFD) & FD_CLOEXEC, 0);
}

TEST(Rendezvous, InheritedNumberThatIsNoListenerOfOursIsIgnored) {
  const Listener reserved(Listener::Kind::reserved), other;
  for (const int not_ours : {other.fd(), 0, 987654}) {
    in_threads(2, [&](Rank rank) {
      EXPECT_EQ(rendezvous(reserved.place(rank, 2), not_ours, kPatience)->all_gather("x", patient()).size(), 2u);
    });
  }
}

/// Starts rank 1 of `listener` in a child, which takes part in an exchange and then calls `work`.
pid_t start_rank_1(const Listener& listener, const std::function<void(Bootstrap&)>& work) {
  const pid_t child = ::fork();
  if (child != 0) return child;
  try {
    const auto bootstrap = rendezvous(listener.place(1, 2), {}, kPatience);
    bootstrap->all_gather("alive", patient());
    work(*bootstrap);
  } catch (...) {
  }
  ::_exit(1);
}

void expect_killed(pid_t child) {
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
}

void expect_rank_1_left(const std::optional<Error>& error) {
  ASSERT_TRUE(error);
  EXPECT_EQ(error->code(), Errc::bootstrap);
  EXPECT_EQ(error->peer(), 1);
  EXPECT_NE(std::string(error->what()).find("rank 1 left the rendezvous"), std::string::npos) << error->what();
}

TEST(Rendezvous, KilledProcessIsNamed) {
  const Listener listener;
  const pid_t child = start_rank_1(listener, [](Bootstrap&) { ::raise(SIGKILL); });
  ASSERT_GE(child, 0);
  const auto bootstrap = rendezvous(listener.place(0, 2), listener.fd(), kPatience);
  EXPECT_EQ(bootstrap->all_gather("alive", patient()).size(), 2u);
  expect_rank_1_left(error_of([&] { bootstrap->all_gather("still there?", patient()); }));
  expect_killed(child);
}

TEST(Rendezvous, ProcessKilledAfterItsContributionIsNamedBetweenExchanges) {
  const Listener listener;
  const pid_t child = start_rank_1(listener, [](Bootstrap& bootstrap) {
    std::thread([] {
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
      ::raise(SIGKILL);
    }).detach();
    bootstrap.all_gather("my contribution", patient());
  });
  ASSERT_GE(child, 0);
  const auto bootstrap = rendezvous(listener.place(0, 2), listener.fd(), kPatience);
  bootstrap->all_gather("alive", patient());
  const Deadline deadline = patient();
  expect_rank_1_left(error_of([&] {
    while (!deadline.passed()) bootstrap->check_peers();
  }));
  expect_killed(child);
}

}  // namespace
}  // namespace collectives::testing
