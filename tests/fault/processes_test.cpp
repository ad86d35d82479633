// Tests of failures of ranks that are processes, started by collectives_run. If a rank is killed, is stopped or leaves,
// every other rank must name it in its error, and no process or file may remain.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <system_error>

#include "support/programs.hpp"
#include "tuning/measured_tuning.hpp"
#include "tuning/tuning_cache.hpp"

// Paths, defined in a file that CMake writes (PATHS of collectives_test).
extern const char kCollectivesRun[], kRankProgram[];

namespace collectives::testing {
namespace {

/// Kills a rank that is stopped once two ranks have reported a timeout, because the launcher would wait for its end.
void end_the_stopped(const std::string& out) {
  if (occurrences(out, "rank [0-9]: timeout ") == 2) kill_stopped(kRankProgram);
}

/// Runs rank_program on `ranks` ranks. Returns its output.
Outcome run(int ranks, const std::string& arguments, const std::string& environment = "") {
  return run_command(environment + " " + kCollectivesRun + " -n " + std::to_string(ranks) + " --grace 4s " +
                         kRankProgram + " " + arguments,
                     end_the_stopped);
}

int leftovers() { return processes_of(kRankProgram); }

TEST(Processes, ReduceThroughSharedMemory) {
  for (const int ranks : {1, 2, 3, 4, 7}) {
    const Outcome outcome = run(ranks, "reduce 0 8 4000 1000000");
    EXPECT_EQ(outcome.status, 0) << outcome.out;
    EXPECT_EQ(occurrences(outcome.out, "rank [0-9]: ok"), ranks) << outcome.out;
  }
}

TEST(Processes, EverySurvivorNamesTheRankThatWasKilled) {
  for (const int victim : {0, 2}) {
    const Outcome outcome = run(4, "endless", "COLLECTIVES_INJECT='kill rank=" + std::to_string(victim) + " call=22'");
    EXPECT_NE(outcome.status, 0);
    EXPECT_EQ(occurrences(outcome.out, "rank [0-9]: peer_lost after at most 1.5 s: all_reduce #[0-9]+: rank " +
                                           std::to_string(victim) + " was lost: its process ended"),
              3)
        << outcome.out;
    EXPECT_EQ(leftovers(), 0);
  }
}

TEST(Processes, EverySurvivorNamesTheRankThatCrashed) {
  const Outcome outcome = run(3, "die 1 11");
  EXPECT_EQ(occurrences(outcome.out, "rank [02]: peer_lost after at most 1.5 s: .*rank 1 was lost"), 2) << outcome.out;
  EXPECT_EQ(leftovers(), 0);
}

TEST(Processes, ARankThatLeavesIsNotCalledDead) {
  const Outcome outcome = run(3, "leave 2");
  EXPECT_EQ(occurrences(outcome.out, "rank [01]: peer_lost after at most 1.5 s: .*rank 2 was lost: it left"), 2)
      << outcome.out;
}

TEST(Processes, AStoppedRankIsNamedWhenTheDeadlinePasses) {
  const Outcome outcome = run(3, "endless", "COLLECTIVES_TIMEOUT=1 COLLECTIVES_INJECT='stop rank=1 call=22'");
  EXPECT_EQ(occurrences(outcome.out, "rank [02]: timeout .*rank 1 has not arrived"), 2) << outcome.out;
  EXPECT_EQ(leftovers(), 0);
}

#ifdef COLLECTIVES_TEST_UCX
constexpr const char* kWires[] = {"tcp", "ucx"};
#else
constexpr const char* kWires[] = {"tcp"};
#endif

/// Runs ranks that claim to be on different hosts. `options` are those of collectives_run. `host` is an expression of
/// the shell, by default a host for each rank.
Outcome run_on_hosts(int ranks, const std::string& arguments, const std::string& variables = "",
                     const std::string& options = "", const std::string& host = "RANK") {
  return run_command("env " + variables + " " + kCollectivesRun + " -n " + std::to_string(ranks) + " " + options +
                         " sh -c 'COLLECTIVES_HOST_ID=$((" + host + ")) exec \"$0\" \"$@\"' " + kRankProgram + " " +
                         arguments,
                     end_the_stopped);
}

TEST(Processes, OnFakeHostsMeetOverTcp) {
  const Outcome outcome = run_on_hosts(3, "reduce 1000000");
  EXPECT_EQ(outcome.status, 0) << outcome.out;
  EXPECT_EQ(occurrences(outcome.out, "rank [012]: ok"), 3) << outcome.out;
}

TEST(Processes, AStoppedRankOfAnotherHostIsNamedWhenTheDeadlinePasses) {
  // The stopped rank has not fetched the messages sent from the callers' memory.
  for (const std::string wire : kWires) {
    const Outcome outcome = run_on_hosts(
        3, "endless", "COLLECTIVES_TIMEOUT=1 COLLECTIVES_INJECT='stop rank=1 call=22' COLLECTIVES_WIRE=" + wire,
        "--grace 4s");
    EXPECT_EQ(occurrences(outcome.out, "rank [02]: timeout .*rank 1 has not arrived"), 2)
        << wire << ": " << outcome.out;
    EXPECT_EQ(leftovers(), 0);
  }
}

TEST(Processes, AStoppedRankOfAnotherHostIsNamedIfItHasEnteredTheCall) {
  for (const std::string wire : kWires) {
    const Outcome outcome =
        run_on_hosts(3, "stop_in_call 1", "COLLECTIVES_TIMEOUT=1 COLLECTIVES_WIRE=" + wire, "--grace 4s");
    EXPECT_EQ(occurrences(outcome.out, "rank [02]: timeout .*all ranks have arrived; no sign of life from rank 1"), 2)
        << wire << ": " << outcome.out;
    EXPECT_EQ(leftovers(), 0);
  }
}

TEST(Processes, NameTheRankThatWasKilledAndNotOneThatHasLeftBecauseOfIt) {
  for (const std::string wire : kWires)
    for (const std::string host : {"0", "RANK / 2", "RANK == 2"}) {  // the killed rank and the leaver are ranks 3 and 2
      const Outcome outcome = run_on_hosts(4, "die_in_pair", "COLLECTIVES_WIRE=" + wire, "--grace 4s", host);
      EXPECT_EQ(occurrences(outcome.out, "rank [01]: peer_lost .*rank 3 was lost"), 2)
          << wire << ", hosts " << host << ": " << outcome.out;
    }
}

TEST(Processes, ThatMakeAGroupNameTheRankThatWasKilledAndNotOneThatHasLeftBefore) {
  for (const std::string host : {"0", "RANK / 2", "RANK == 2"}) {  // the killed rank and the leaver are ranks 3 and 2
    const Outcome outcome = run_on_hosts(4, "die_after_leave", "COLLECTIVES_WIRE=tcp", "--grace 4s", host);
    EXPECT_EQ(occurrences(outcome.out, "rank [01]: peer_lost .*create_group: rank 3 was lost: its process"), 2)
        << "hosts " << host << ": " << outcome.out;
    EXPECT_EQ(leftovers(), 0);
  }
}

TEST(Processes, OnHostsWithoutMpiAreToldThatItIsMissing) {
  const Outcome outcome = run_on_hosts(2, "reduce 8", "COLLECTIVES_WIRE=mpi");
  EXPECT_NE(outcome.status, 0);
  EXPECT_EQ(occurrences(outcome.out, "unsupported .*no wire between them: the ranks were not started with MPI"), 2)
      << outcome.out;
}

TEST(Processes, WarnOfAnUnknownVariableOnce) {
  const Outcome outcome = run(3, "reduce 8", "COLLECTIVES_BAKEND=ring");
  EXPECT_EQ(outcome.status, 0) << outcome.out;
  EXPECT_EQ(occurrences(outcome.out, "COLLECTIVES_BAKEND"), 1) << outcome.out;
}

TEST(Processes, RefuseAnUnknownBackendByName) {
  const Outcome outcome = run(2, "reduce 8", "COLLECTIVES_BACKEND=rnig");
  EXPECT_NE(outcome.status, 0);
  EXPECT_EQ(occurrences(outcome.out, "unknown backend \"rnig\"; known: auto, hierarchical, ring, reduce_to_one"), 2)
      << outcome.out;
}

// ---- tuning ----

/// A directory for the cache of the ranks, and the environment in which they use it.
class Cache {
 public:
  Cache() {
    std::string name = (std::filesystem::temp_directory_path() / "processes_test.XXXXXX").string();
    directory_ = ::mkdtemp(name.data());
  }
  ~Cache() {
    std::error_code ignored;
    std::filesystem::remove_all(directory_, ignored);
  }
  Cache(const Cache&) = delete;
  Cache& operator=(const Cache&) = delete;
  std::string environment() const {
    return "COLLECTIVES_TUNING= COLLECTIVES_CORES=2 XDG_CACHE_HOME=" + directory_.string();
  }
  std::filesystem::path directory() const { return directory_; }
  std::filesystem::path file() const { return directory_ / "collectives" / "tuning.json"; }

 private:
  std::filesystem::path directory_;
};

int of_cache(const Outcome& outcome, const Cache& cache, const std::string& what) {
  return occurrences(outcome.out, what + ", tuning measured on this machine at .*, kept in " + cache.file().string());
}
constexpr const char* kTooBusy = "tuning built-in .the machine was too busy to measure";

TEST(Processes, FindTheNumbersOfTheirSituationInTheCache) {
  const Cache cache;
  for (const bool kernel_copy : {false, true})                         // whether the kernel may copy between processes
    for (double barrier_ns = 16; barrier_ns < 1e9; barrier_ns *= 1.5)  // so that an entry matches any measured barrier
      TuningCache(cache.file()).keep(situation_of(2, 2, kernel_copy, barrier_ns), {{"inline_bytes", 333}}, {});
  const Outcome outcome = run(2, "tuning", cache.environment());
  EXPECT_EQ(of_cache(outcome, cache, "inline 333 in communicator [12]"), 4) << outcome.out;
  // No tuning is measured for a single rank, or for more ranks than cores.
  EXPECT_EQ(occurrences(run(3, "tuning", cache.environment()).out, "tuning built-in .nothing to measure with more"), 6);
  EXPECT_EQ(occurrences(run(1, "tuning", cache.environment()).out, "tuning built-in .nothing to measure with one"), 2);
}

TEST(Processes, AreMeasuredOnce) {
  const Cache cache;
  // No tuning is measured on a busy machine, and a line of the log reports that. If the cores of a virtual machine
  // move, every distance between them is measured once.
  bool measured = false;
  for (int attempt = 0; attempt < 20 && !measured; ++attempt) {
    const Outcome outcome = run(2, "tuning", cache.environment());
    ASSERT_EQ(outcome.status, 0) << outcome.out;
    const int first = occurrences(outcome.out, "communicator 1, tuning measured on this machine just now");
    const int second = occurrences(outcome.out, "communicator 2, tuning measured on this machine just now");
    measured = first + second > 0;
    EXPECT_EQ(first + second + occurrences(outcome.out, kTooBusy) + of_cache(outcome, cache, "communicator 2"), 4)
        << outcome.out;
    EXPECT_EQ(std::filesystem::exists(cache.file()), measured);
  }
  if (!measured) GTEST_SKIP() << "this machine is too busy";
  int kept = 0;
  for (int attempt = 0; attempt < 20 && kept < 4; ++attempt)
    kept = of_cache(run(2, "tuning", cache.environment()), cache, "communicator [12]");
  EXPECT_EQ(kept, 4);
}

TEST(Processes, WithNumbersThatAreGivenAreNotMeasured) {
  const Cache cache;
  const std::string file = cache.directory() / "mine.json";
  std::ofstream(file) << R"({"inline_bytes": 777})";
  const Outcome from_file = run(2, "tuning", cache.environment() + " COLLECTIVES_TUNING=" + file);
  EXPECT_EQ(occurrences(from_file.out, "inline 777 in communicator [12], tuning " + file), 4) << from_file.out;
  const Outcome built_in = run(2, "tuning", cache.environment() + " COLLECTIVES_TUNING=default");
  EXPECT_EQ(occurrences(built_in.out, "tuning built-in .COLLECTIVES_TUNING"), 4) << built_in.out;
  EXPECT_FALSE(std::filesystem::exists(cache.file()));
}

TEST(Processes, FailOnEveryRankIfTheTuningFileIsBad) {
  const Cache cache;
  const std::string file = cache.directory() / "mine.json";
  std::ofstream(file) << R"({"inline_bytes": "many"})";
  const Outcome outcome = run(3, "reduce 8", "COLLECTIVES_TUNING=" + file);
  EXPECT_NE(outcome.status, 0);
  EXPECT_EQ(occurrences(outcome.out, "invalid_argument .*rank 0: tuning in " + file + ": inline_bytes is"), 3)
      << outcome.out;
}

TEST(Processes, ACacheThatCannotBeUsedIsNoError) {
  const Cache cache;
  std::ofstream(cache.directory() / "collectives") << "a file where the directory should be";
  const Outcome outcome = run(2, "tuning", cache.environment());
  EXPECT_EQ(outcome.status, 0) << outcome.out;
  EXPECT_EQ(occurrences(outcome.out, std::string("tuning measured on this machine just now|") + kTooBusy), 4)
      << outcome.out;
}

TEST(Processes, ARankThatDiesWhileTheyMeasureIsNamed) {
  for (const int victim : {0, 1})
    for (const int microseconds : {300, 1000, 3000, 6000, 10000, 15000, 20000, 30000}) {
      const Cache cache;
      const Outcome outcome =
          run(2, "die_early " + std::to_string(victim) + " " + std::to_string(microseconds), cache.environment());
      EXPECT_NE(outcome.status, 0);
      EXPECT_EQ(
          occurrences(outcome.out, "rank " + std::to_string(1 - victim) +
                                       ": (peer_lost|bootstrap) after at most 1.5 s: .*rank " + std::to_string(victim)),
          1)
          << microseconds << " us: " << outcome.out;
      EXPECT_EQ(leftovers(), 0);
    }
}

}  // namespace
}  // namespace collectives::testing
