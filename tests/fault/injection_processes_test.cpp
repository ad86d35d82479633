// Tests of injected faults in programs whose ranks are processes, started by collectives_run. The variable
// COLLECTIVES_INJECT stops, ends and disconnects ranks at exact calls. Every other rank must name the right one.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "support/programs.hpp"

// Paths, defined in a file that CMake writes (PATHS of collectives_test). The trainer's is empty without a trainer.
extern const char kCollectivesRun[], kRankProgram[], kTrainer[];

namespace collectives::testing {
namespace {

/// Wire between the ranks of a test: its name, and the environment of the ranks. Without a wire they share memory.
struct TestedWire {
  std::string name, environment;
  bool own_hosts = true;
};
const TestedWire kSharedMemory{"shared memory", "", false};
const TestedWire kTcp{"tcp", "COLLECTIVES_WIRE=tcp"};
const TestedWire kTcpWithoutDatagrams{"tcp without datagrams", "COLLECTIVES_WIRE=tcp COLLECTIVES_DATAGRAMS=off"};
const TestedWire kUcx{"ucx", "COLLECTIVES_WIRE=ucx"};

std::vector<TestedWire> wires() {
  std::vector<TestedWire> all{kSharedMemory, kTcp, kTcpWithoutDatagrams};
#ifdef COLLECTIVES_TEST_UCX
  all.push_back(kUcx);
#endif
  return all;
}

/// Runs rank_program on `ranks` ranks with faults. Each rank claims a host of its own if the wire needs that.
Outcome run(int ranks, const std::string& inject, const std::string& arguments, const TestedWire& wire,
            const std::string& environment = "") {
  // A rank that is stopped is killed once two ranks have reported a timeout, because the launcher would wait for it.
  const auto end_the_stopped = [](const std::string& out) {
    if (occurrences(out, "rank [0-9]: timeout ") == 2) kill_stopped(kRankProgram);
  };
  const std::string hosts = wire.own_hosts ? "sh -c 'COLLECTIVES_HOST_ID=$RANK exec \"$0\" \"$@\"' " : "";
  return run_command("env COLLECTIVES_INJECT='" + inject + "' " + wire.environment + " " + environment + " " +
                         kCollectivesRun + " -n " + std::to_string(ranks) + " --grace 4s " + hosts + kRankProgram +
                         " " + arguments,
                     end_the_stopped);
}

int leftovers() { return processes_of(kRankProgram); }

TEST(InjectedKill, IsNamedByEverySurvivorInEachPhase) {
  for (const TestedWire& wire : wires())
    for (const std::string phase : {"begin", "sent", "wait", "end"}) {
      // Rank 1 waits in call 5, because rank 0 is late.
      const std::string late = phase == "wait" ? "delay rank=0 call=5 ms=200; " : "";
      const Outcome outcome = run(3, late + "kill rank=1 call=5 phase=" + phase, "loop 100000 8", wire);
      EXPECT_NE(outcome.status, 0);
      EXPECT_EQ(occurrences(outcome.out, "rank 1: injected: kill rank=1 call=5 phase=" + phase), 1) << outcome.out;
      EXPECT_EQ(occurrences(outcome.out, "rank [02]: peer_lost after at most 1.5 s: .*rank 1 was lost"), 2)
          << wire.name << ", " << phase << ": " << outcome.out;
      EXPECT_EQ(leftovers(), 0);
    }
}

TEST(InjectedKill, InTheConstructionFailsIt) {
  for (const std::string phase : {"begin", "sent", "end"}) {
    const Outcome outcome = run(3, "kill rank=1 call=0 phase=" + phase, "loop 100000 8", kSharedMemory);
    EXPECT_EQ(occurrences(outcome.out, "rank 1: injected: kill rank=1 call=0 phase=" + phase), 1) << outcome.out;
    EXPECT_EQ(occurrences(outcome.out, "rank -?[0-9]+: (peer_lost|bootstrap) .*rank 1"), 2) << phase << outcome.out;
    EXPECT_EQ(leftovers(), 0);
  }
}

TEST(InjectedKill, OfACommunicatorOfSplitIsNamedByItsRank) {
  const Outcome outcome = run(3, "none", "split 'kill rank=0 call=2'", kSharedMemory);
  // split() orders the ranks backwards, so rank 0 of the part is rank 2.
  EXPECT_EQ(occurrences(outcome.out, "rank [01]: peer_lost .*all_reduce #2: rank 0 was lost"), 2) << outcome.out;
}

TEST(InjectedStop, IsNamedWhenTheDeadlinePasses) {
  for (const TestedWire& wire : wires()) {
    const Outcome outcome = run(3, "stop rank=1 call=4", "loop 100000 100000", wire, "COLLECTIVES_TIMEOUT=1");
    EXPECT_EQ(occurrences(outcome.out, "rank [02]: timeout .*#4: .*rank 1 has not arrived"), 2)
        << wire.name << ": " << outcome.out;
    EXPECT_EQ(leftovers(), 0);
  }
}

TEST(InjectedCut, MakesEachEndNameTheOtherOne) {
  for (const TestedWire& wire : {kTcp, kTcpWithoutDatagrams})
    for (const std::string phase : {"begin", "end"}) {
      const Outcome outcome = run(2, "cut from=0 to=1 call=6 phase=" + phase, "loop 100000 8", wire);
      EXPECT_EQ(occurrences(outcome.out, "rank 0: peer_lost .*rank 1 was lost: its process or host is gone"), 1)
          << wire.name << ", " << phase << ": " << outcome.out;
      EXPECT_EQ(occurrences(outcome.out, "rank 1: peer_lost .*rank 0 was lost: its process or host is gone"), 1)
          << wire.name << ", " << phase << ": " << outcome.out;
      EXPECT_EQ(leftovers(), 0);
    }
}

TEST(InjectedDisconnect, IsNamedByEveryOtherRank) {
  const Outcome outcome = run(3, "disconnect rank=2 call=6", "loop 100000 8", kTcp);
  EXPECT_EQ(occurrences(outcome.out, "rank [01]: peer_lost .*rank 2 was lost"), 2) << outcome.out;
  EXPECT_EQ(occurrences(outcome.out, "rank 2: peer_lost .*rank [01] was lost"), 1) << outcome.out;
}

TEST(InjectedDrop, HealsByRetransmission) {
  const Outcome outcome =
      run(2, "drop from=0 to=1 call=3; drop from=1 to=0 call=5 count=2", "loop 40 8", kTcp, "COLLECTIVES_BACKEND=ring");
  EXPECT_EQ(outcome.status, 0) << outcome.out;
  EXPECT_EQ(occurrences(outcome.out, "rank [01]: ok"), 2) << outcome.out;
  EXPECT_EQ(occurrences(outcome.out, "rank 0: injected: drop from=0 to=1 call=3 count=1"), 1) << outcome.out;
  EXPECT_EQ(occurrences(outcome.out, "rank 1: injected: drop from=1 to=0 call=5 count=2"), 1) << outcome.out;
  EXPECT_EQ(occurrences(outcome.out, "the call sent only"), 0) << outcome.out;
}

TEST(Injection, RefusesFaultsThatTheWireDoesNotHave) {
  struct Case {
    std::string inject;
    const TestedWire& wire;
    std::string why;
  };
  std::vector<Case> cases{
      {"drop from=0 to=1 call=3", kSharedMemory, "all ranks share memory"},
      {"disconnect rank=0 call=3", kSharedMemory, "all ranks share memory"},
      {"drop from=0 to=1 call=3", kTcpWithoutDatagrams, "wire tcp sends no datagrams to rank 1"},
      {"kill rank=2 call=3", kTcp, "there is no rank 2"},
      {"kill rank=1 call=x", kTcp, "at character 18: \"x\" is no number"},
  };
#ifdef COLLECTIVES_TEST_UCX
  cases.push_back({"cut from=0 to=1 call=3", kUcx, "wire ucx cannot cut a connection"});
#endif
  for (const auto& [inject, wire, why] : cases) {
    const Outcome outcome = run(2, inject, "loop 10 8", wire);
    EXPECT_NE(outcome.status, 0) << inject;
    EXPECT_EQ(occurrences(outcome.out, "rank -?[01]: invalid_argument .*" + why), 2)
        << wire.name << ": " << outcome.out;
  }
}

TEST(Injection, WarnsOfACallThatNeverComes) {
  const Outcome outcome = run(2, "kill rank=1 call=1000", "loop 5 8", kSharedMemory);
  EXPECT_EQ(outcome.status, 0) << outcome.out;
  EXPECT_EQ(occurrences(outcome.out,
                        "rank 1: injected fault .kill rank=1 call=1000 phase=begin. has not happened: the "
                        "communicator ended after its call #5"),
            1)
      << outcome.out;
}

TEST(Injection, ShowsHowTheTrainerHandlesALostRank) {
  if (std::string(kTrainer).empty()) GTEST_SKIP() << "built without the trainer";
  const Outcome outcome = run_command(std::string("env -u MNIST_DIR COLLECTIVES_INJECT='kill rank=1 call=20' ") +
                                      kCollectivesRun + " -n 2 --grace 4s " + kTrainer +
                                      " --model softmax --epochs 1 --max-steps 400 --batch 64 --synthetic-train 4000"
                                      " --synthetic-test 100 --quiet");
  EXPECT_NE(outcome.status, 0);
  EXPECT_EQ(occurrences(outcome.out, "rank 1: injected: kill rank=1 call=20 phase=begin"), 1) << outcome.out;
  EXPECT_GE(occurrences(outcome.out, "#20.*: rank 1 was lost: its process ended"), 1) << outcome.out;
  EXPECT_EQ(processes_of(kTrainer), 0);
}

}  // namespace
}  // namespace collectives::testing
