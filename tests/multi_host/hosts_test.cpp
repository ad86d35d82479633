// Tests of programs on several hosts, which are network namespaces on one bridge (multi_host/hosts.sh). Launchers start
// the programs. Hosts die, links stall or stay cut, interfaces have no route, and a firewall drops packets. The tests
// need root, and are skipped without it.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <future>
#include <sstream>
#include <string>
#include <thread>
#include <tuple>

#include "support/programs.hpp"

// Paths, defined in a file that CMake writes (PATHS of collectives_test).
extern const char kCollectivesBench[], kCollectivesRun[], kHostProgram[], kHostsSh[], kTrainer[], kWireProbe[];

namespace collectives::testing {
namespace {

enum class Launcher { mpirun, by_hand, tf_config };

std::ostream& operator<<(std::ostream& out, Launcher launcher) {
  constexpr const char* kNames[] = {"mpirun", "by_hand", "tf_config"};
  return out << kNames[static_cast<int>(launcher)];
}

/// Several hosts and a folder for the reports of their ranks. The destructor removes both.
class Bed {
 public:
  explicit Bed(int hosts, const std::string& options = "") {
    std::string folder = (std::filesystem::temp_directory_path() / "hosts_test.XXXXXX").string();
    if (::mkdtemp(folder.data()) == nullptr) throw std::runtime_error("no folder");
    folder_ = folder;
    const Outcome outcome = run_command(std::string(kHostsSh) + " up " + std::to_string(hosts) + " --owner " +
                                        std::to_string(::getpid()) + " " + options);
    if (outcome.status != 0) throw std::runtime_error(outcome.out);
    id_ = outcome.out.substr(0, outcome.out.find('\n'));
  }
  Bed(const Bed&) = delete;
  Bed& operator=(const Bed&) = delete;
  ~Bed() {
    run("down");
    std::filesystem::remove_all(folder_);
  }
  Outcome run(const std::string& arguments) const {
    return run_command("env HOSTS_BED=" + id_ + " " HOSTS_ENVIRONMENT " timeout 240 " + kHostsSh + " " + arguments);
  }
  std::string file(const std::string& name) const { return folder_ / name; }
  std::string text_of(const std::string& name) const {
    std::ifstream stream(file(name));
    std::stringstream text;
    text << stream.rdbuf();
    return text.str();
  }

 private:
  std::filesystem::path folder_;
  std::string id_;
};

/// A running program on several hosts.
class Job {
 public:
  /// Starts `program`. `places` lists the numbers of ranks on h1, h2, ... as "2,1".
  Job(const Bed& bed, Launcher launcher, const std::string& places, const std::string& program)
      : outcome_(std::async(std::launch::async,
                            [&bed, command = command_of(launcher, places, program)] { return bed.run(command); })) {}
  static std::string command_of(Launcher launcher, const std::string& places, const std::string& program) {
    constexpr const char* kActions[] = {HOSTS_MPIRUN, "each", "tf_config"};
    return kActions[static_cast<int>(launcher)] + (" " + places + " " + program);
  }
  Outcome wait() { return outcome_.get(); }
  bool ended() const { return outcome_.wait_for(std::chrono::seconds(0)) == std::future_status::ready; }

 private:
  std::future<Outcome> outcome_;
};

class Hosts : public ::testing::TestWithParam<Launcher> {
 protected:
  void SetUp() override {
    const Outcome possible = run_command(std::string(kHostsSh) + " possible");
    if (possible.status != 0) GTEST_SKIP() << "hosts cannot be made here: " << possible.out;
    if (GetParam() == Launcher::mpirun && std::string(HOSTS_MPIRUN).empty()) GTEST_SKIP() << "built without MPI";
  }

  static Outcome run(const Bed& bed, const std::string& places, const std::string& program) {
    return bed.run(Job::command_of(GetParam(), places, program));
  }
  /// Starts host_program, which all-reduces in a loop.
  static Job loop(const Bed& bed, const std::string& places, int milliseconds, int timeout_ms) {
    return {bed, GetParam(), places,
            std::string(kHostProgram) + " report=" + bed.file("report") +
                " milliseconds=" + std::to_string(milliseconds) + " timeout_ms=" + std::to_string(timeout_ms)};
  }
  /// Waits until `pattern` occurs `times` times in the report, until the job has ended, or for 45 s. Returns the count.
  static int await(const Bed& bed, const Job& job, int times, const std::string& pattern) {
    const auto start = std::chrono::steady_clock::now();
    while (true) {
      const bool last = job.ended() || std::chrono::steady_clock::now() - start > std::chrono::seconds(45);
      const int found = occurrences(bed.text_of("report"), pattern);
      if (found >= times || last) return found;
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
  }
  static void expect_nothing_left() {
    for (int tries = 0; tries < 100 && processes_of(kHostProgram) != 0; ++tries)
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    EXPECT_EQ(processes_of(kHostProgram), 0);
  }
};

// Runs every collective between hosts, with every type, operation and algorithm. Other tests check the arithmetic.
TEST_P(Hosts, EveryCollectiveIsRight) {
  const Bed bed(4);
  const std::string bench = std::string(kCollectivesBench) + " all --odd --iterations 1 --warmup 1 ";
  const auto expect_right = [&](const std::string& places, const std::string& arguments) {
    const Outcome outcome = run(bed, places, bench + arguments);
    EXPECT_EQ(outcome.status, 0) << places << outcome.out;
    EXPECT_EQ(occurrences(outcome.out, "wrong elements: 0 in"), 1) << places << outcome.out;
  };
  expect_right("2,2", "--type all --op all --min-bytes 4K --max-bytes 4K --in-place no");
  for (const char* places : {"1,1", "1,3"}) expect_right(places, "--type bf16,i64 --op sum --factor 64 --max-bytes 2M");
  for (const char* places : {"2,2", "1,1,1", "1,3"})
    expect_right(places,
                 "--backend ring,hierarchical,reduce_to_one_direct,reduce_to_one_tree --factor 1024 --max-bytes 128K");
}

TEST_P(Hosts, ADeadHostIsNoticedByAllOthers) {
  const Bed bed(3);
  Job job = loop(bed, "1,2,1", 60'000, 10'000);
  ASSERT_EQ(await(bed, job, 4, "rank [0-3]: here"), 4) << bed.text_of("report") << job.wait().out;
  EXPECT_EQ(bed.run("kill h2").status, 0);
  const Outcome outcome = job.wait();
  EXPECT_NE(outcome.status, 0);
  EXPECT_NE(WEXITSTATUS(outcome.status), 124) << "timed out: " << outcome.out;
  const std::string report = bed.text_of("report");
  const int named = occurrences(report, "rank [03]: (peer_lost|timeout) of rank [12] within twice the deadline");
  // mpirun may end other ranks before they report the error.
  EXPECT_GE(named, GetParam() == Launcher::mpirun ? 0 : 2) << report << outcome.out;
  EXPECT_EQ(occurrences(report, "ok|wrong|rank [03]: [a-z_]+ of rank [03-]"), 0) << report << outcome.out;
  expect_nothing_left();
}

TEST_P(Hosts, ALinkThatStallsForThreeSecondsGoesOn) {
  const Bed bed(2);
  Job job = loop(bed, "1,2", 5'000, 30'000);
  ASSERT_EQ(await(bed, job, 3, "rank [0-2]: here"), 3) << bed.text_of("report") << job.wait().out;
  EXPECT_EQ(bed.run("stall h2 3").status, 0);
  const Outcome outcome = job.wait();
  EXPECT_EQ(outcome.status, 0) << outcome.out;
  EXPECT_EQ(occurrences(bed.text_of("report"), "rank [0-2]: ok"), 3) << bed.text_of("report") << outcome.out;
}

TEST_P(Hosts, DatagramsThatAllGetLostAreNotNeeded) {
  const Bed bed(2);
  ASSERT_EQ(bed.run("drop_datagrams h1").status, 0);  // from the beginning
  Job job = loop(bed, "1,2", 2'000, 30'000);
  ASSERT_EQ(await(bed, job, 3, "rank [0-2]: here"), 3) << bed.text_of("report") << job.wait().out;
  EXPECT_EQ(bed.run("drop_datagrams h2").status, 0);  // from now on
  const Outcome outcome = job.wait();
  EXPECT_EQ(outcome.status, 0) << outcome.out;
  EXPECT_EQ(occurrences(bed.text_of("report"), "rank [0-2]: ok"), 3) << bed.text_of("report") << outcome.out;
}

class CutHosts : public Hosts {
 protected:
  static void expect_an_error_on_every_rank(const std::string& cut) {
    const Bed bed(2);
    Job job = loop(bed, "1,2", 60'000, 2'000);
    ASSERT_EQ(await(bed, job, 3, "rank [0-2]: here"), 3) << bed.text_of("report") << job.wait().out;
    EXPECT_EQ(bed.run(cut).status, 0);
    EXPECT_EQ(await(bed, job, 3, "rank [0-2]: [a-z_]+ of rank"), 3);
    const std::string report = bed.text_of("report");
    EXPECT_EQ(occurrences(report, "rank 0: (peer_lost|timeout) of rank [12] within twice the deadline"), 1) << report;
    EXPECT_EQ(occurrences(report, "rank [12]: (peer_lost|timeout) of rank 0 within twice the deadline"), 2) << report;
    EXPECT_EQ(bed.run("mend h2").status, 0);  // else the launcher could not end the processes of h2
    const Outcome outcome = job.wait();
    EXPECT_NE(outcome.status, 0);
    EXPECT_NE(WEXITSTATUS(outcome.status), 124) << "timed out: " << outcome.out;
    expect_nothing_left();
  }
};

TEST_P(CutHosts, ALinkThatStaysDownIsAnErrorOnEveryRank) { expect_an_error_on_every_rank("cut h2"); }

TEST_P(CutHosts, ALinkThatDropsEverythingIsAnErrorOnEveryRank) { expect_an_error_on_every_rank("cut h2 silently"); }

/// Tests of the construction of communicators, with each way in which ranks find one another.
class HostsMeet : public Hosts {};

TEST_P(HostsMeet, InterfacesThatLeadNowhereAreGotAround) {
  const Bed bed(3);
  ASSERT_EQ(bed.run("decoys").status, 0);
  Job job = loop(bed, "1,1,2", 0, 20'000);
  const Outcome outcome = job.wait();
  EXPECT_EQ(outcome.status, 0) << outcome.out;
  EXPECT_EQ(occurrences(bed.text_of("report"), "rank [0-3]: ok"), 4) << bed.text_of("report") << outcome.out;
}

TEST_P(Hosts, AFirewallThatDropsSilentlyEndsInTheDeadline) {
  const Bed bed(3);
  ASSERT_EQ(bed.run("block h2 h3").status, 0);  // both reach rank 0
  Job job = loop(bed, "1,1,1", 0, 3'000);
  const int found = await(bed, job, 3, "rank -?[0-2]: [a-z_]+ of rank");
  const Outcome outcome = job.wait();
  const std::string report = bed.text_of("report");
  EXPECT_EQ(found, 3) << report << outcome.out;
  // MPI does not name the missing rank.
  const std::string named = GetParam() == Launcher::mpirun ? "(-1|[12])" : "[12]";
  EXPECT_EQ(occurrences(report, "rank [12]: (peer_lost|timeout|bootstrap|system) of rank " + named), 2)
      << report << outcome.out;
  EXPECT_NE(outcome.status, 0);
  EXPECT_NE(WEXITSTATUS(outcome.status), 124) << "timed out: " << outcome.out;
  expect_nothing_left();
}

TEST_P(Hosts, TheTrainerLearnsTheSameHoweverItsRanksAreSpread) {
  if (std::string(kTrainer).empty()) GTEST_SKIP() << "built without the trainer";
  const Bed bed(4);
  // Digits of its own, wherever the real ones may be.
  const std::string trainer = std::string("env -u MNIST_DIR ") + kTrainer +
                              " --model softmax --epochs 1 --max-steps 30 --batch 64 --synthetic-train 4000"
                              " --synthetic-test 100 --deterministic --quiet --loss-trace " +
                              bed.file("");
  const Outcome alone = run_command(std::string(kCollectivesRun) + " -n 4 " + trainer + "one_host");
  ASSERT_EQ(alone.status, 0) << alone.out;
  const std::string losses = bed.text_of("one_host");
  EXPECT_GE(occurrences(losses, "\n"), 30) << losses;
  for (const std::string places : {"1,1,1,1", "2,2"}) {
    const Outcome spread = run(bed, places, trainer + places);
    ASSERT_EQ(spread.status, 0) << places << spread.out;
    EXPECT_EQ(bed.text_of(places), losses) << places;
  }
}

const auto kLaunchers = ::testing::Values(Launcher::mpirun, Launcher::by_hand);
std::string name_of(const ::testing::TestParamInfo<Launcher>& parameter) {
  return ::testing::PrintToString(parameter.param);
}
INSTANTIATE_TEST_SUITE_P(, Hosts, kLaunchers, name_of);
INSTANTIATE_TEST_SUITE_P(, CutHosts, kLaunchers, name_of);
INSTANTIATE_TEST_SUITE_P(, HostsMeet, ::testing::Values(Launcher::mpirun, Launcher::by_hand, Launcher::tf_config),
                         name_of);

// ---- hosts.sh itself ----

class NetworkBed : public ::testing::Test {
 protected:
  void SetUp() override {
    const Outcome possible = run_command(std::string(kHostsSh) + " possible");
    if (possible.status != 0) GTEST_SKIP() << "hosts cannot be made here: " << possible.out;
  }
};

TEST_F(NetworkBed, TwoExistAtOnceAndLeaveNothing) {
  std::string left;
  {
    const Bed one(2), other(2);
    const std::string name = one.run("name h1").out;
    EXPECT_NE(name, other.run("name h1").out);
    EXPECT_EQ(one.run("run h1 hostname").out, name);
    EXPECT_EQ(one.run("run h1 sh -c 'ls /sys/class/net; getent hosts h2 | cut -c 1-9'").out, "eth0\nlo\n10.77.0.2\n");
    EXPECT_EQ(other.run("address h2").out, "10.77.0.2\n");
    EXPECT_NE(one.run("run h9 true").status, 0);
    left = one.run("run sw sh -c 'readlink /proc/self/ns/net'").out;
  }
  EXPECT_EQ(run_command("readlink /proc/[0-9]*/ns/net | grep -cxF '" + left.substr(0, left.find('\n')) + "'").out,
            "0\n");
}

TEST_F(NetworkBed, ItGoesWithItsOwner) {
  const Outcome outcome = run_command(std::string("sh -c '") + kHostsSh + " up 1 --owner $$'");
  ASSERT_EQ(outcome.status, 0) << outcome.out;
  const std::string id = outcome.out.substr(0, outcome.out.find('\n'));
  Outcome there;
  for (int tries = 0; tries < 500; ++tries) {
    there = run_command("env HOSTS_BED=" + id + " " + kHostsSh + " name h1");
    if (occurrences(there.out, "no bed " + id) == 1) break;
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  EXPECT_EQ(occurrences(there.out, "no bed " + id), 1) << there.out;
}

TEST_F(NetworkBed, LinksTakePacketsOfTheLengthThatWasAsked) {
  const Outcome possible = run_command(std::string(kHostsSh) + " possible 1gbit");
  if (possible.status != 0) GTEST_SKIP() << "no links of a rate here: " << possible.out;
  for (const auto& [options, frame, frames, packet] :
       {std::tuple{"--rate 1gbit", "7000", "2", "14000"},
        std::tuple{"--rate 1gbit --packet 64kb --burst 16kb", "8192", "8", "65536"},
        std::tuple{"--rate 1gbit --packet 9001", "4500", "2", "9001"}}) {
    const Bed bed(1, options);
    for (const std::string end : {"h1 ip -d link show dev eth0", "sw ip -d link show dev p1"}) {
      const std::string link = bed.run("run " + end).out;
      for (const std::string& said : {std::string("mtu ") + frame, std::string("gso_max_segs ") + frames,
                                      std::string("gro_max_size ") + packet, std::string("qdisc htb")})
        EXPECT_EQ(occurrences(link, said + " "), 1) << options << ": " << link;
    }
  }
}

TEST_F(NetworkBed, PacketsOfNoUseAreRefused) {
  for (const std::string wrong : {"100", "70000", "x"}) {
    const Outcome refused = run_command(std::string(kHostsSh) + " up 1 --rate 1gbit --packet " + wrong);
    EXPECT_NE(refused.status, 0) << refused.out;
    EXPECT_EQ(occurrences(refused.out, "--packet"), 1) << refused.out;
  }
}

TEST_F(NetworkBed, TheProbeMeasuresItsLinks) {
  const Outcome possible = run_command(std::string(kHostsSh) + " possible 100mbit");
  if (possible.status != 0) GTEST_SKIP() << "no links of a rate here: " << possible.out;
  const Bed bed(2, "--rate 100mbit");
  std::future<Outcome> server =
      std::async(std::launch::async, [&] { return bed.run(std::string("run h2 ") + kWireProbe + " serve"); });
  const Outcome outcome = bed.run(std::string("run h1 ") + kWireProbe + " measure h2");
  EXPECT_EQ(outcome.status, 0) << outcome.out;
  EXPECT_EQ(server.get().status, 0);
  EXPECT_EQ(occurrences(outcome.out, "^rate_mbyte_s [0-9.]+ [0-9.]+ one_way_28k_ms [0-9.]+ one_way_8_us [0-9.]+\n"), 1)
      << outcome.out;
}

}  // namespace
}  // namespace collectives::testing
