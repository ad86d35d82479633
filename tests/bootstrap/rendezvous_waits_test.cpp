// Tests of waits at the start: a waiting rank reports the awaited ranks and the last answer, names that do not resolve
// are asked again, and an error that cannot get better is thrown at once. This file replaces getaddrinfo() by a
// function that fails for some names. Children make the waits, because their stderr is read.
#include <arpa/inet.h>
#include <dlfcn.h>
#include <netdb.h>
#include <sys/wait.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "base/reported_wait.hpp"
#include "bootstrap/listener.hpp"
#include "support/system.hpp"

namespace {

std::atomic<int> failures_left = 0;  // number of calls of getaddrinfo() for "later.test" that fail
std::atomic<bool> is_loopback_down = false;

}  // namespace

extern "C" {
int getaddrinfo(const char* node, const char* service, const addrinfo* hints, addrinfo** result) {
  static const auto system = reinterpret_cast<decltype(&::getaddrinfo)>(::dlsym(RTLD_NEXT, "getaddrinfo"));
  const std::string_view name = node;
  if (name == "never.test") return EAI_NONAME;
  if (name != "later.test") return system(node, service, hints, result);
  if (failures_left.fetch_sub(1) > 0) return EAI_AGAIN;
  return system("127.0.0.1", service, hints, result);
}
int connect(int fd, const sockaddr* address, socklen_t bytes) {
  static const auto system = reinterpret_cast<decltype(&::connect)>(::dlsym(RTLD_NEXT, "connect"));
  if (!is_loopback_down) return system(fd, address, bytes);
  errno = ENETUNREACH;
  return -1;
}
}

namespace collectives::testing {
namespace {

using namespace std::chrono_literals;

/// Runs `work` in a child, and returns what the child writes to stderr.
std::string stderr_of(const std::function<void()>& work) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return "no pipe";
  const pid_t child = ::fork();
  if (child == 0) {
    ::dup2(ends[1], STDERR_FILENO);
    try {
      work();
    } catch (const std::exception& error) {
      const std::string line = "threw " + std::string(error.what()) + "\n";
      [[maybe_unused]] const ssize_t written = ::write(STDERR_FILENO, line.data(), line.size());
    }
    ::_exit(0);
  }
  ::close(ends[1]);
  std::string text;
  char part[4096];
  for (ssize_t bytes = 0; (bytes = ::read(ends[0], part, sizeof part)) > 0;)
    text.append(part, static_cast<std::size_t>(bytes));
  ::close(ends[0]);
  ::waitpid(child, nullptr, 0);
  return text;
}

void expect_part(const std::string& text, const std::string& part) {
  EXPECT_NE(text.find(part), std::string::npos) << "wanted: " << part << "\ngot: " << text;
}

TEST(Waits, RankReportsThatRankZeroIsMissing) {
  const Listener nobody(Listener::Kind::reserved);
  const std::string text = stderr_of([&] {
    ReportedWait::set_report_times(100ms, 100ms);
    rendezvous(nobody.place(1, 2), {}, kImpatience);
  });
  expect_part(text, "warning: rank 1: still waiting: rank 0 did not come to the rendezvous at 127.0.0.1:" +
                        std::to_string(nobody.port()) + " (rank 1 waited 0.");
  expect_part(text, "; last answer: Connection refused");
  expect_part(text, "threw rank 0 did not come to the rendezvous");
}

TEST(Waits, RankZeroAndMembersReportTheMissingRanks) {
  const Listener listener;
  const std::string text = stderr_of([&] {
    ReportedWait::set_report_times(100ms, 100ms);
    in_threads(2, [&](int i) {
      World place = listener.place(2 * i, 4);
      place.hint = "started without srun?";
      try {
        rendezvous(place, listener.fd(), kImpatience);
      } catch (const Error&) {
      }
    });
  });
  expect_part(text, "warning: rank 0: still waiting: ranks 1, 3 did not come to the rendezvous");
  expect_part(text, "warning: rank 2: still waiting: ranks 1, 3 did not come to the rendezvous");
  expect_part(text, "; started without srun?");
}

TEST(Waits, ThreadReportsTheMissingThreads) {
  const std::string text = stderr_of([] {
    ReportedWait::set_report_times(100ms, 100ms);
    bootstrap_threads(3)[1]->all_gather("x", impatient());
  });
  expect_part(text, "warning: rank 1: still waiting: ranks 0, 2 did not come to the rendezvous of threads");
}

TEST(Waits, ReportsComeAtTheirTimesOnly) {
  const std::string text = stderr_of([] {
    ReportedWait::set_report_times(200ms, 1h);
    bootstrap_threads(2)[1]->all_gather("x", impatient());
  });
  EXPECT_EQ(text.find("still waiting"), text.rfind("still waiting")) << text;
}

TEST(Waits, BatchShellIsNamed) {
  const Variables batch{{"SLURM_JOB_ID", "7"}, {"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "2"}, {"SLURM_NNODES", "1"}};
  expect_part(world_of(batch, {}, 1).hint, "started without srun?");
  Variables step = batch;
  step["SLURM_STEP_ID"] = "0";
  EXPECT_EQ(world_of(step, {}, 1).hint, "");
}

TEST(Waits, NameThatResolvesLaterIsAskedAgain) {
  const Listener listener;
  failures_left = 2;
  in_threads(2, [&](Rank rank) {
    const World place = listener.place(rank, 2, rank == 0 ? "127.0.0.1" : "later.test");
    EXPECT_EQ(rendezvous(place, listener.fd(), kPatience)->all_gather("x", patient()).size(), 2u);
  });
  EXPECT_LE(failures_left, 0);
}

TEST(Waits, NameThatNeverResolvesIsNamedAtTheDeadline) {
  const Listener nobody(Listener::Kind::reserved);
  const auto error = error_of([&] { rendezvous(nobody.place(1, 2, "never.test"), {}, kImpatience); });
  ASSERT_TRUE(error);
  EXPECT_EQ(error->code(), Errc::timeout);
  expect_part(error->what(), "; last answer: host 'never.test' of rank 0 does not resolve: ");
}

TEST(Waits, RankZeroNeedsNoNameOfItsOwn) {
  const Listener reserved(Listener::Kind::reserved);
  in_threads(2, [&](Rank rank) {
    const World place = reserved.place(rank, 2, rank == 0 ? "never.test" : "127.0.0.1");
    EXPECT_EQ(rendezvous(place, {}, kPatience)->all_gather("x", patient()).size(), 2u);
  });
}

TEST(Waits, LoopbackThatIsDownIsAnErrorAtOnce) {
  const Listener listener;
  is_loopback_down = true;
  const auto error = error_of([&] { rendezvous(listener.place(1, 2), {}, std::chrono::hours(1)); });
  is_loopback_down = false;
  ASSERT_TRUE(error);
  EXPECT_EQ(error->code(), Errc::bootstrap);
  expect_part(error->what(), "rank 1 cannot connect to rank 0 at 127.0.0.1:");
  expect_part(error->what(), "Network is unreachable");
}

}  // namespace
}  // namespace collectives::testing
