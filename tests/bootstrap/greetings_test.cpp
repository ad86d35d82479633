// Tests of greetings at the rendezvous: any process may connect to the port of rank 0 and send any bytes. The start
// goes on, and only the process that sent the bytes gets an error. Ranks are threads; other processes are connections
// that the test makes.
#include "bootstrap/greetings.hpp"

#include <fmt/format.h>
#include <sys/resource.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <limits>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "base/random_word.hpp"
#include "bootstrap/launcher.hpp"
#include "bootstrap/listener.hpp"
#include "support/child.hpp"
#include "support/system.hpp"

namespace collectives::testing {

GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(BootstrapConformance);

namespace {

using tcp::Kind;
using tcp::Socket;

/// Runs rank `rank` of the rendezvous in a thread of its own. result() waits for it.
class RankThread {
 public:
  RankThread(const Listener& listener, Rank rank, int size, const Job& job = {})
      : thread_([this, &listener, rank, size, job] {
          World place = listener.place(rank, size);
          place.job = job;
          try {
            bootstrap_ = rendezvous(place, listener.fd(), kPatience);
          } catch (const Error& error) {
            error_ = error.what();
          }
        }) {}
  /// Returns the bootstrap. Fails the test if the rank got an error.
  Bootstrap* bootstrap() {
    join();
    EXPECT_EQ(error_, "");
    return bootstrap_.get();
  }
  std::string error() {
    join();
    return error_;
  }

 private:
  void join() {
    if (thread_.joinable()) thread_.join();
  }
  std::unique_ptr<Bootstrap> bootstrap_;
  std::string error_;
  std::jthread thread_;
};

/// Expects that ranks 0 and 1 of 2 meet although `disturb` connects before rank 1 does.
void expect_start(const char* what, const std::function<std::vector<int>(const Listener&)>& disturb) {
  SCOPED_TRACE(what);
  const Listener listener;
  RankThread zero(listener, 0, 2);
  std::vector<Socket> strangers;
  for (const int fd : disturb(listener)) strangers.emplace_back(fd);
  RankThread one(listener, 1, 2);
  Bootstrap *const first = zero.bootstrap(), *const second = one.bootstrap();
  ASSERT_TRUE(first != nullptr && second != nullptr);
  in_threads(2, [&](Rank rank) {
    EXPECT_EQ((rank == 0 ? first : second)->all_gather("x", patient()), std::vector<std::string>(2, "x"));
  });
}

/// Blocks until the peer of `fd` has closed the connection.
void wait_for_close(int fd) {
  char byte = 0;
  while (::recv(fd, &byte, 1, 0) > 0) {
  }
}

std::string give_up(double seconds) { return frame(Kind::give_up, tcp::bytes_of(seconds)); }

TEST(Greetings, StartGoesOnIfAGreetingDoesNotFit) {
  const std::pair<const char*, std::string> greetings[] = {{"version 1", old_hello(1)},
                                                           {"version 7", old_hello(7)},
                                                           {"other size", hello(1, 5)},
                                                           {"rank 0", hello(0)},
                                                           {"rank out of range", hello(2)},
                                                           {"negative rank", hello(-7)},
                                                           {"short", frame(Kind::hello, "ab")},
                                                           {"long", frame_header(tcp::kMaxHello, 1 << 30)},
                                                           {"other record", frame(Kind::welcome, "")}};
  for (const auto& [what, bytes] : greetings)
    expect_start(what, [&bytes = bytes](const Listener& listener) {
      const int fd = listener.knock(bytes);
      wait_for_close(fd);
      return std::vector{fd};
    });
}

TEST(Greetings, StartGoesOnIfAClaimOfARankHasNoProof) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const std::pair<const char*, std::string> thens[] = {{"give_up(NaN)", give_up(nan)},
                                                       {"a wrong proof", frame(Kind::proof, "12345678")},
                                                       {"noise", std::string(100, '\xff')}};
  for (const auto& [what, then] : thens)
    expect_start(what, [&then = then](const Listener& listener) {
      const int fd = listener.knock(hello() + then);
      wait_for_close(fd);
      return std::vector{fd};
    });
  expect_start("silence", [](const Listener& listener) {
    const int fd = listener.knock(hello());
    EXPECT_EQ(read_record(fd).kind, Kind::seen);
    return std::vector{fd};
  });
  expect_start("its end", [](const Listener& listener) {
    const int fd = listener.knock(hello());
    EXPECT_EQ(read_record(fd).kind, Kind::seen);
    ::close(fd);
    return std::vector<int>{};
  });
}

TEST(Greetings, MemberThatBreaksTheProtocolFreesItsRankDuringTheStart) {
  const double infinite = std::numeric_limits<double>::infinity(), nan = std::numeric_limits<double>::quiet_NaN();
  for (const std::string& then : {give_up(nan), give_up(infinite), give_up(-1), give_up(1e300),
                                  frame(Kind::contributions, "x"), frame_header(3, UINT64_MAX), std::string(32, 'x')}) {
    const Listener listener;
    RankThread zero(listener, 0, 3);
    const Socket impostor(become_member(listener, 1, 3, then));
    wait_for_close(impostor.fd());
    RankThread one(listener, 1, 3), two(listener, 2, 3);
    EXPECT_NE(zero.bootstrap(), nullptr);
    EXPECT_NE(one.bootstrap(), nullptr);
    EXPECT_NE(two.bootstrap(), nullptr);
  }
}

TEST(Greetings, SecondClaimOfARankEndsOnlyTheSecond) {
  const Listener listener;
  RankThread zero(listener, 0, 3);
  const Socket first(become_member(listener, 1, 3));
  ASSERT_EQ(read_record(first.fd()).kind, Kind::missing);
  RankThread second(listener, 1, 3);
  EXPECT_NE(
      second.error().find("rank 1 came to the rendezvous at 127.0.0.1:" + std::to_string(listener.port()) + " twice"),
      std::string::npos)
      << second.error();
  RankThread two(listener, 2, 3);
  EXPECT_NE(zero.bootstrap(), nullptr);
  EXPECT_NE(two.bootstrap(), nullptr);
  EXPECT_EQ(read_record(first.fd()).kind, Kind::welcome);
}

TEST(Greetings, OtherSizeEndsOnlyTheOther) {
  const Listener listener;
  RankThread zero(listener, 0, 2);
  RankThread other(listener, 1, 5);
  EXPECT_NE(other.error().find("as one of 5 ranks, rank 0 as one of 2"), std::string::npos) << other.error();
  RankThread one(listener, 1, 2);
  EXPECT_NE(zero.bootstrap(), nullptr);
  EXPECT_NE(one.bootstrap(), nullptr);
}

TEST(Greetings, TimeoutNamesTheLastRefusal) {
  const Listener listener;
  const int other = listener.knock(hello(1, 5));
  const auto error = error_of([&] { rendezvous(listener.place(0, 2), listener.fd(), kImpatience); });
  ASSERT_TRUE(error);
  EXPECT_EQ(error->code(), Errc::timeout);
  EXPECT_NE(std::string(error->what()).find("; last answer: refused: rank 1 came to the rendezvous"), std::string::npos)
      << error->what();
  ::close(other);
}

TEST(Greetings, OtherVersionOfTheProtocolIsNamedAtBothEnds) {
  const Listener listener;
  const Socket other(listener.knock(old_hello(7)));
  const auto error = error_of([&] { rendezvous(listener.place(0, 2), listener.fd(), kImpatience); });
  const auto answer = tcp::read_failure(read_record(other.fd()).payload);
  ASSERT_TRUE(error && answer);
  EXPECT_EQ(answer->code, Errc::bootstrap);
  const std::string expected =
      "a process of protocol version 7 came to the rendezvous at 127.0.0.1:" + std::to_string(listener.port()) +
      ", which has version " + std::to_string(tcp::kVersion);
  EXPECT_EQ(answer->text, expected);
  EXPECT_NE(std::string(error->what()).find(expected), std::string::npos) << error->what();
}

TEST(Greetings, RankOfAnotherJobIsRefusedAndBothJobsAreNamed) {
  const Job ours = job_of({{"SLURM_JOB_ID", "17"}}, ""), theirs = job_of({{"COLLECTIVES_JOB", "my\xff\n job"}}, "");
  const Listener listener;
  RankThread zero(listener, 0, 2, ours);
  RankThread stranger(listener, 1, 2, theirs);
  for (const char* const part : {"rank 1 of job \"COLLECTIVES_JOB=my\\xff\\x0a job\"", "SLURM_JOB_ID=17"})
    EXPECT_NE(stranger.error().find(part), std::string::npos) << stranger.error();
  RankThread one(listener, 1, 2, ours);
  EXPECT_NE(zero.bootstrap(), nullptr);
  EXPECT_NE(one.bootstrap(), nullptr);
}

TEST(Greetings, QueuedBetweenTwoRendezvousDoNotDisturbTheSecond) {
  const Listener listener;
  std::vector<Socket> strangers;
  for (int repeat = 0; repeat < 3; ++repeat) {
    in_threads(2, [&](Rank rank) {
      EXPECT_EQ(rendezvous(listener.place(rank, 2), listener.fd(), kPatience)->all_gather("x", patient()).size(), 2u);
    });
    for (const std::string& bytes : {old_hello(1), hello(1, 7), hello(), hello() + give_up(1), std::string("GET /")})
      strangers.emplace_back(listener.knock(bytes));
  }
}

TEST(Rendezvous, LateRankGetsTheCauseOfTheFailure) {
  const Listener listener;
  RankThread zero(listener, 0, 3);
  {
    const Socket dying(become_member(listener, 1, 3));
    ASSERT_EQ(read_record(dying.fd()).kind, Kind::missing);
  }
  const auto begun = std::chrono::steady_clock::now();
  RankThread two(listener, 2, 3);
  for (RankThread* const rank : {&zero, &two})
    EXPECT_NE(rank->error().find("rank 1 left the rendezvous"), std::string::npos) << rank->error();
  EXPECT_LT(std::chrono::steady_clock::now() - begun, kPatience / 2);
}

TEST(Rendezvous, NoiseFromAMemberIsAnErrorThatNamesARank) {
  std::minstd_rand random(2);
  for (std::uint64_t repeat = 0; repeat < 30; ++repeat) {
    const Listener listener;
    const std::uint64_t kind = random() % 10, bytes = random() % 100;
    const auto due = static_cast<std::uint64_t>(Kind::contribution);  // this frame is too long
    const std::string header = frame_header(kind, kind == due ? UINT64_MAX - bytes : bytes);
    RankThread zero(listener, 0, 2);
    const Socket member(become_member(listener, 1, 2));
    Bootstrap* const bootstrap = zero.bootstrap();
    ASSERT_NE(bootstrap, nullptr);
    const std::string sent = (repeat % 2 == 0 ? header : "") + noise(random, 200);
    ::send(member.fd(), sent.data(), sent.size(), MSG_NOSIGNAL);
    ::shutdown(member.fd(), SHUT_WR);
    const auto error = error_of([&] { bootstrap->all_gather("x", patient()); });
    ASSERT_TRUE(error);
    EXPECT_NE(std::string(error->what()).find("rank"), std::string::npos) << error->what();
  }
}

TEST(Rendezvous, MemberThatClaimsTooLongAFrameIsRefused) {
  const Listener listener;
  RankThread zero(listener, 0, 2);
  const Socket member(become_member(listener, 1, 2));
  Bootstrap* const bootstrap = zero.bootstrap();
  ASSERT_NE(bootstrap, nullptr);
  const std::string claim = frame_header(static_cast<std::uint64_t>(Kind::contribution), tcp::max_contribution(2) + 1);
  ASSERT_EQ(::send(member.fd(), claim.data(), claim.size(), MSG_NOSIGNAL), static_cast<ssize_t>(claim.size()));
  const auto error = error_of([&] { bootstrap->all_gather("x", patient()); });
  ASSERT_TRUE(error);
  EXPECT_EQ(error->code(), Errc::bootstrap);
  EXPECT_EQ(error->peer(), 1);
  EXPECT_NE(std::string(error->what()).find("sent a frame of"), std::string::npos) << error->what();
}

TEST(Rendezvous, ContributionsOfAllRanksTogetherAreBounded) {
  for (const std::size_t ranks : {2u, 3u, 100u, 2000u}) EXPECT_LE(tcp::max_contribution(ranks) * ranks, 32u << 20);
  const Listener listener;
  in_threads(2, [&](Rank rank) {
    const auto bootstrap = rendezvous(listener.place(rank, 2), listener.fd(), kPatience);
    if (rank == 1) return;
    const auto error = error_of([&] { bootstrap->all_gather(std::string((16 << 20) + 1, 'x'), patient()); });
    ASSERT_TRUE(error);
    EXPECT_EQ(error->code(), Errc::invalid_argument);
  });
}

// ---- Names of jobs -------------------------------------------------------------------------------------------------

Job job(const Variables& variables) { return job_of(variables, ""); }

TEST(Job, AttemptsOfOneTorchrunJobDiffer) {
  const auto attempt = [](const char* count, const char* local) {
    return job({{"TORCHELASTIC_RUN_ID", "none"},
                {"TORCHELASTIC_RESTART_COUNT", count},
                {"LOCAL_WORLD_SIZE", local},
                {"WORLD_SIZE", "4"}});
  };
  EXPECT_TRUE(is_same_job(attempt("1", "4"), attempt("1", "4")));
  EXPECT_FALSE(is_same_job(attempt("0", "4"), attempt("1", "4")));
  EXPECT_TRUE(is_same_job(attempt("0", "2"), attempt("1", "2")));  // Agents of two hosts count for themselves.
  EXPECT_FALSE(is_same_job(job({{"TORCHELASTIC_RUN_ID", "a"}}), job({{"TORCHELASTIC_RUN_ID", "b"}})));
  EXPECT_FALSE(is_same_job(job({{"TORCHELASTIC_RUN_ID", "a"}}), job({})));
}

TEST(Job, SlurmJobsAndTheirRestartsDiffer) {
  const Job first = job({{"SLURM_JOB_ID", "5"}});
  EXPECT_FALSE(is_same_job(first, job({{"SLURM_JOB_ID", "6"}})));
  EXPECT_FALSE(is_same_job(first, job({{"SLURM_JOB_ID", "5"}, {"SLURM_RESTART_COUNT", "1"}})));
  EXPECT_TRUE(is_same_job(first, job({{"SLURM_JOB_ID", "5"}, {"SLURM_RESTART_COUNT", "0"}})));
  EXPECT_TRUE(is_same_job(first, job({})));  // ssh has started the rank
}

TEST(Job, OwnNameReplacesAllOthers) {
  const Job a = job({{"COLLECTIVES_JOB", "x"}, {"SLURM_JOB_ID", "5"}}),
            b = job({{"COLLECTIVES_JOB", "x"}, {"TORCHELASTIC_RUN_ID", "y"}});
  EXPECT_TRUE(is_same_job(a, b));
  EXPECT_FALSE(is_same_job(a, job({{"COLLECTIVES_JOB", "z"}})));
  EXPECT_FALSE(is_same_job(a, job({{"SLURM_JOB_ID", "5"}})));
}

TEST(Job, WithoutANameUsersDiffer) {
  Job mine = job({}), theirs = job({});
  EXPECT_TRUE(is_same_job(mine, theirs));
  theirs.user = 1000;
  EXPECT_FALSE(is_same_job(mine, theirs));
}

TEST(Job, HelloCarriesItEvenIfItsNameIsNoText) {
  Job sent = job({{"COLLECTIVES_JOB", std::string(500, '\x1b')}});
  sent.user = 7;
  const World place{.rank = 1, .size = 2, .job = sent};
  const auto read = tcp::read_hello(tcp::hello_of(place));
  ASSERT_TRUE(read);
  EXPECT_TRUE(is_same_job(read->job, sent));
  EXPECT_EQ(read->job.text, sent.text);
  EXPECT_LE(tcp::hello_of(place).size(), tcp::kMaxHello);
}

TEST(Launcher, OfSeveralProcessesIsFoundUnlessAnotherStartedThisOneAlone) {
  const char* const variables[] = {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_STEP_NUM_TASKS"};
  for (const char* const variable : variables) ::unsetenv(variable);
  EXPECT_FALSE(launcher_of_several());
  ::setenv("PMI_SIZE", "2", 1);
  const auto several = launcher_of_several();
  ASSERT_TRUE(several);
  EXPECT_STREQ(several->variable, "PMI_SIZE");
  EXPECT_EQ(several->processes, 2);
  ::setenv("SLURM_STEP_NUM_TASKS", "1", 1);
  EXPECT_FALSE(launcher_of_several());
  for (const char* const variable : variables) ::unsetenv(variable);
}

// ---- Limits of descriptors -----------------------------------------------------------------------------------------

TEST(Rendezvous, RankWithoutDescriptorsGetsTheLimitAtOnce) {
  if (kSanitized) GTEST_SKIP() << "sanitizers need descriptors";
  const Listener listener;
  Child child([&](Line&) {
    set_limit(RLIMIT_NOFILE, 0);
    try {
      rendezvous(listener.place(1, 2), {}, kPatience);
    } catch (const Error& error) {
      const std::string what = error.what();
      return error.code() == Errc::system &&
                     what.find("no file descriptor is left: RLIMIT_NOFILE is 0 (raise it") != what.npos
                 ? 0
                 : 1;
    }
    return 2;
  });
  EXPECT_EQ(child.wait(), 0);
}

TEST(Rendezvous, RankZeroWithTooFewDescriptorsEndsAllRanksAtOnce) {
  if (kSanitized) GTEST_SKIP() << "sanitizers need descriptors";
  constexpr int kRanks = 7;
  const Listener listener;
  Child child([&](Line&) {
    for (int fd = 3; fd < 64; ++fd)
      if (fd != listener.fd()) ::close(fd);
    set_limit(RLIMIT_NOFILE, static_cast<std::size_t>(std::max(listener.fd() + 1, 8)));
    try {
      rendezvous(listener.place(0, kRanks), listener.fd(), kPatience);
    } catch (const Error& error) {
      return error.code() == Errc::system ? 0 : 1;
    }
    return 2;
  });
  std::atomic<int> informed = 0;
  in_threads(kRanks - 1, [&](int i) {
    const auto error = error_of([&] { rendezvous(listener.place(i + 1, kRanks), {}, std::chrono::seconds(20)); });
    if (error && std::string(error->what()).find("no file descriptor is left: RLIMIT_NOFILE") != std::string::npos)
      ++informed;
  });
  EXPECT_EQ(child.wait(), 0);
  EXPECT_GE(informed, 1);
}

}  // namespace
}  // namespace collectives::testing
