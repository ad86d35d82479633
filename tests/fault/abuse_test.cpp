// Tests of intra-host collectives under abuse. The ranks are processes of one host, which exchange data through shared
// memory by one of several protocols. For every protocol the tests cover:
//
//   - random collectives on buffers between inaccessible pages
//   - ranks that are killed, exit or stop during a call
//   - calls that do not agree
//   - a system that refuses resources which the library asks for
//
// COLLECTIVES_TEST_OPERATIONS sets the number of random collectives. COLLECTIVES_TEST_REPEATS sets the number of
// repetitions of a test in which a rank ends.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <random>
#include <string>

#include "support/programs.hpp"
#include "support/system.hpp"

// Paths, defined in a file that CMake writes (PATHS of collectives_test).
extern const char kCollectivesRun[], kStressProgram[];

namespace collectives::testing {
namespace {

long from_environment(const char* name, long otherwise) {
  const char* const value = std::getenv(name);
  return value == nullptr ? otherwise : std::strtol(value, nullptr, 10);
}

Outcome run(int ranks, const std::string& arguments, const std::string& environment = "") {
  return run_command(environment + " " + kCollectivesRun + " -n " + std::to_string(ranks) + " --grace 5s " +
                     kStressProgram + " " + arguments);
}

struct Protocol {
  const char* name;
  const char* forced;
  const char* cores;  ///< number of cores that the ranks believe to have: one for each rank, or one for all
  int ranks = 3;
};

std::ostream& operator<<(std::ostream& out, const Protocol& protocol) { return out << protocol.name; }

constexpr Protocol kProtocols[] = {{"lines", "lines", "8"},
                                   {"one_shot", "one_shot", "8"},
                                   {"staged", "staged", "8"},
                                   {"staged_oversubscribed", "staged", "1"},
                                   {"single_copy", "single_copy", "8"},
                                   {"zero_copy", "zero_copy", "8"},
                                   {"zero_copy_oversubscribed", "zero_copy", "1"},
                                   {"mixed", "mixed", "8"},
                                   {"mixed_oversubscribed", "mixed", "1"},
                                   {"two_levels", "two_levels", "8", 4}};

class Abuse : public ::testing::TestWithParam<Protocol> {
 protected:
  std::string arguments(const std::string& more) const {
    return std::string("protocol=") + GetParam().forced + " seed=" + std::to_string(random_()) + " " + more;
  }
  std::string environment() const { return std::string("COLLECTIVES_CORES=") + GetParam().cores; }
  int ranks() const { return GetParam().ranks; }
  std::string any_rank() const { return std::to_string(below(static_cast<unsigned>(ranks()))); }
  unsigned below(unsigned n) const { return static_cast<unsigned>(random_()) % n; }

  /// Ends a rank at a random moment. All other ranks must report it.
  void end_one(const std::string& how) {
    for (long i = 0, end = from_environment("COLLECTIVES_TEST_REPEATS", 1); i < end; ++i) {
      const std::string victim = any_rank();
      const std::string all =
          arguments("victim=" + victim + " how=" + how + " after_us=" + std::to_string(below(20'000)));
      const Outcome outcome = run(ranks(), all, environment());
      EXPECT_EQ(occurrences(outcome.out, "rank [0-9]: peer_lost of rank " + victim +
                                             " after at most 2 s: [a-z_]+ #[0-9]+: rank " + victim +
                                             " was lost: its process ended"),
                ranks() - 1)
          << all << '\n'
          << outcome.out;
      EXPECT_EQ(occurrences(outcome.out, "written afterwards"), 0) << all << '\n' << outcome.out;
      EXPECT_EQ(processes_of(kStressProgram), 0);
    }
  }

 private:
  mutable std::mt19937 random_{std::random_device{}()};
};

TEST_P(Abuse, RandomCallsOnBuffersBetweenForbiddenPages) {
  const long operations = from_environment("COLLECTIVES_TEST_OPERATIONS", 60);
  for (const int ranks : {2, 3, 4, 7}) {
    const std::string all = arguments("operations=" + std::to_string(operations));
    const Outcome outcome = run(ranks, all, environment());
    EXPECT_EQ(outcome.status, 0) << all << '\n' << outcome.out;
    EXPECT_EQ(occurrences(outcome.out, "rank [0-9]: ok"), ranks) << all << '\n' << outcome.out;
  }
}

TEST_P(Abuse, EverySurvivorNamesTheRankThatWasKilled) { end_one("kill"); }

TEST_P(Abuse, EverySurvivorNamesTheRankThatExited) { end_one("exit"); }

TEST_P(Abuse, AStoppedRankIsNamedAndDoesNotTouchBuffersAfterItResumes) {
  const std::string victim = any_rank();
  const std::string all =
      arguments("timeout_ms=700 victim=" + victim + " how=stop after_us=" + std::to_string(below(20'000)));
  const Outcome outcome = run(ranks(), all, environment());
  const std::string error = ": timeout of rank " + victim + " after ";
  const std::string named = " s: .*rank " + victim + "( has (not arrived|stopped there)|\n)";
  EXPECT_EQ(occurrences(outcome.out, "rank [^" + victim + "]" + error + "at most 2" + named), ranks() - 1)
      << all << '\n'
      << outcome.out;
  EXPECT_EQ(occurrences(outcome.out, "rank " + victim + error + ".*" + named), 1) << all << '\n' << outcome.out;
  // A rank that was stopped while it wrote a piece of a peer's buffer finishes the piece later. The other ranks then
  // must have printed a warning.
  if (occurrences(outcome.out, "written afterwards") != 0) {
    EXPECT_GE(occurrences(outcome.out, "rank " + victim + " has stopped while it read or wrote buffers of this host"),
              1)
        << all << '\n'
        << outcome.out;
  }
  EXPECT_EQ(processes_of(kStressProgram), 0);
}

TEST(AbuseOfZeroCopy, ARankThatStopsDuringARemoteAccessIsReported) {
  const Outcome outcome = run(3, "protocol=zero_copy timeout_ms=700 victim=1 how=stop_inside", "COLLECTIVES_CORES=8");
  EXPECT_EQ(occurrences(outcome.out, "rank [02]: timeout of rank 1 after at most 2 s: .*rank 1 has stopped there"), 2)
      << outcome.out;
  EXPECT_EQ(
      occurrences(outcome.out, "warning: rank [02]: rank 1 has stopped while it read or wrote buffers of this host"), 2)
      << outcome.out;
  // When the stopped rank continues, it still finishes the piece that it was writing.
  EXPECT_EQ(occurrences(outcome.out, "rank [02]: [0-9]{1,5} bytes were written afterwards"), 2) << outcome.out;
}

TEST(AbuseOfZeroCopy, ABufferIsReturnedAfterTheLastRemoteAccessEnds) {
  // Rank 0 detects the death while rank 2 works on a piece of rank 0's buffer. Rank 2 detects the death after it has
  // finished that piece.
  const Outcome outcome = run(3, "protocol=zero_copy victim=1 how=kill_inside", "COLLECTIVES_CORES=8");
  EXPECT_EQ(occurrences(outcome.out, "rank [02]: peer_lost of rank 1 after at most 2 s"), 2) << outcome.out;
  EXPECT_EQ(occurrences(outcome.out, "written afterwards"), 0) << outcome.out;
}

TEST_P(Abuse, CallsThatDoNotAgreeAreAnErrorOnEveryRank) {
  const std::string all = arguments("mismatches=1 operations=12 victim=" + any_rank());
  const Outcome outcome = run(ranks(), all, environment());
  EXPECT_EQ(occurrences(outcome.out, "rank [0-9]: 12 mismatches"), ranks()) << all << '\n' << outcome.out;
}

INSTANTIATE_TEST_SUITE_P(Protocols, Abuse, ::testing::ValuesIn(kProtocols),
                         [](const auto& parameter) { return std::string(parameter.param.name); });

// ---- refused system calls and limits ----

void expect_work(const std::string& refused, int warnings, const std::string& warning,
                 const std::string& environment = "") {
  const Outcome outcome = run(3, "operations=60 victim=1 refuse=" + refused, environment);
  EXPECT_EQ(occurrences(outcome.out, "rank [0-9]: ok"), 3) << outcome.out;
  EXPECT_EQ(occurrences(outcome.out, warning), warnings) << outcome.out;
}

void expect_error(const std::string& refused, int rank, const std::string& error, const std::string& environment = "") {
  const Outcome outcome = run(3, "victim=" + std::to_string(rank) + " refuse=" + refused, environment);
  if (outcome.out.find("can be made here") != std::string::npos) GTEST_SKIP() << outcome.out;
  EXPECT_EQ(occurrences(outcome.out, "rank [0-9]: " + error), 3) << outcome.out;
}

TEST(Refused, ProcessVmReadFallsBackToACopyAndWarns) {
  expect_work("process_vm_readv", 1, "warning: rank 1: process_vm_readv: Operation not permitted: long vectors .*yama");
}

TEST(Refused, ProcessVmWriteFallsBackToACopyAndWarns) {
  expect_work("process_vm_writev", 1,
              "warning: rank 1: process_vm_writev: Operation not permitted: long vectors .*yama");
}

TEST(Refused, ThreadCreationLeavesProgressToTheCalls) {
  if (kSanitized) GTEST_SKIP() << "sanitizers need threads";
  expect_work("thread", 1, "warning: rank 1: no progress thread: .*RLIMIT_NPROC", "COLLECTIVES_PROGRESS_THREAD=on");
}

TEST(Refused, ExecutableMemfdsAreNotNeeded) { expect_work("memfd_without_seal", 0, "warning"); }

TEST(Refused, MemfdsOnARankWithoutTheArenaOnlyWarn) {
  expect_work("memfd_create", 1, "warning: memory: memfd_create: Operation not permitted: .* ordinary memory");
}

TEST(Refused, MemfdsOnTheRankThatCreatesTheArenaFail) {
  expect_error("memfd_create", 0,
               "system: rank 0: memory: no .* for an arena: memfd_create: Operation not permitted; let");
}

TEST(Refused, AFileSizeLimitFailsTheArena) {
  expect_error("files", 0,
               "system: rank 0: memory: no .* for an arena: RLIMIT_FSIZE is 4 KiB .raise it with ulimit -f");
}

TEST(Refused, ADescriptorLimitIsNamed) {
  if (kSanitized) GTEST_SKIP() << "sanitizers need descriptors";
  for (const int rank : {0, 1})
    for (const char* spare : {"0", "1"})
      expect_error(
          std::string("descriptors spare=") + spare, rank,
          "system: rank " + std::to_string(rank) + ": .*no file descriptor is left: RLIMIT_NOFILE is [0-9]+ .raise it");
}

TEST(Refused, OpeningAnArenaOfAnotherUserNamespaceFails) {
  expect_error("user_namespace", 1, "unsupported: .*the ranks are on 2 hosts", "COLLECTIVES_TRANSPORT=shared_memory");
  expect_error("user_namespace", 1, "system: rank 1: shared memory: opening the arena .* in one user namespace",
               "COLLECTIVES_HOST_ID=here");
}

}  // namespace
}  // namespace collectives::testing
