// Tests of the flight recorder: the last operations, which a communicator records, and the file to which it writes them
// after a failure.
#include <gtest/gtest.h>

#include <atomic>
#include <barrier>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "collectives/communicator.hpp"
#include "support/child.hpp"
#include "support/hosts.hpp"
#include "support/programs.hpp"
#include "support/ranks.hpp"
#include "support/system.hpp"

namespace collectives::testing {
namespace {

using namespace std::chrono_literals;
using State = OperationRecord::State;

/// Sets COLLECTIVES_FLIGHT_RECORDER to the beginning of file names in a new folder. The destructor removes the folder.
class FlightRecorder : public ::testing::Test {
 protected:
  FlightRecorder() {
    std::string name = (std::filesystem::temp_directory_path() / "flight_recorder_test.XXXXXX").string();
    directory_ = ::mkdtemp(name.data());
    ::setenv("COLLECTIVES_FLIGHT_RECORDER", (directory_ / "flight").c_str(), 1);
  }
  ~FlightRecorder() override {
    ::unsetenv("COLLECTIVES_FLIGHT_RECORDER");
    ::unsetenv("COLLECTIVES_DUMP_SIGNAL");
    std::filesystem::remove_all(directory_);
  }
  std::string written_by(Rank rank) const {
    std::ostringstream text;
    text << std::ifstream(directory_ / ("flight.rank" + std::to_string(rank))).rdbuf();
    return text.str();
  }
  std::filesystem::path directory_;
};

// The next two tests run first, each in a child process, because they need the first communicator of a process.
TEST_F(FlightRecorder, ReportsAnUnwritableFileAtConstruction) {
  ::setenv("COLLECTIVES_FLIGHT_RECORDER", (directory_ / "nowhere" / "flight").c_str(), 1);
  Child child([](Line&) {
    const StderrCapture stderr_capture;
    Communicator comm(*bootstrap_threads(1)[0]);
    return occurrences(stderr_capture.text(), "/nowhere: No such file or directory: nothing can be written there\n") ==
                   1
               ? 0
               : 1;
  });
  EXPECT_EQ(child.wait(), 0);
}

TEST_F(FlightRecorder, IsWrittenOutAtASignalHoweverLongThePath) {
  if (kThreadSanitized) GTEST_SKIP() << "the thread sanitizer delivers no signal to a child of fork()";
  std::filesystem::path far = directory_;
  for (int part = 0; part < 6; ++part) far /= std::string(200, 'x');
  std::filesystem::create_directories(far);
  ::setenv("COLLECTIVES_FLIGHT_RECORDER", (far / "flight").c_str(), 1);
  ::setenv("COLLECTIVES_DUMP_SIGNAL", "USR2", 1);
  Child child([&](Line&) {
    Communicator comm(*bootstrap_threads(1)[0]);
    comm.barrier();
    ::raise(SIGUSR2);
    return std::filesystem::exists(far / "flight.rank0") ? 0 : 1;
  });
  EXPECT_EQ(child.wait(), 0);
}

TEST_F(FlightRecorder, RemembersWhatWasCalled) {
  const auto before = OperationRecord::Time::clock::now() - 1ms;  // 1 ms allows for errors of converted times
  run_communicators(3, [&](Communicator& comm) {
    std::vector<float> data(5000, 1.f);
    comm.barrier();
    comm.all_reduce(data, ReduceOp::max, {.backend = "ring", .name = "fc1"});
    comm.broadcast(std::span(data).first(7), 2);
    const auto records = comm.recent_operations();
    ASSERT_EQ(records.size(), 3u);
    EXPECT_EQ(records[0].collective, Collective::barrier);
    EXPECT_EQ(records[1].sequence, 2u);
    EXPECT_EQ(records[1].collective, Collective::all_reduce);
    EXPECT_EQ(records[1].count, 5000u);
    EXPECT_EQ(records[1].type, DataType::f32);
    EXPECT_EQ(records[1].op, ReduceOp::Kind::max);
    EXPECT_EQ(records[1].plan, "ring");
    EXPECT_EQ(records[1].name, "fc1");
    EXPECT_EQ(records[2].count, 7u);
    for (const OperationRecord& record : records) EXPECT_EQ(record.state, State::finished);
    // Every call of 20 kB is timed; of shorter ones only some are.
    EXPECT_GE(records[1].issued, before);
    EXPECT_GE(records[1].started, records[1].issued);
    EXPECT_GE(records[1].finished, records[1].started);
    // 1 ms allows for errors of converted times.
    EXPECT_LE(records[1].finished, OperationRecord::Time::clock::now() + 1ms);
  });
}

TEST_F(FlightRecorder, KeepsTheLast64) {
  run_communicators(2, [](Communicator& comm) {
    for (int call = 0; call < 200; ++call) comm.barrier();
    const auto records = comm.recent_operations();
    ASSERT_EQ(records.size(), 64u);
    for (std::size_t i = 0; i < records.size(); ++i) EXPECT_EQ(records[i].sequence, 137 + i);
  });
}

TEST_F(FlightRecorder, ShowsWhatIsQueuedAndWhoIsWaitedFor) {
  std::atomic<bool> seen{false};
  run_communicators(3, [&](Communicator& comm) {
    std::vector<float> a(10), b(10);
    if (comm.rank() == 1)
      while (!seen) std::this_thread::sleep_for(1ms);
    Work first = comm.all_reduce_async(a, a), second = comm.all_reduce_async(b, b, ReduceOp::sum, {.name = "second"});
    if (comm.rank() == 0) {
      std::vector<OperationRecord> records;
      do {
        first.wait_for(1ms);
        records = comm.recent_operations();
        ASSERT_EQ(records.size(), 2u);
      } while (records[0].waited_for == kNoRank);
      EXPECT_EQ(records[0].waited_for, 1);
      EXPECT_EQ(records[0].state, State::started);
      EXPECT_EQ(records[1].state, State::issued);
      EXPECT_EQ(records[1].sequence, 2u);
      EXPECT_EQ(records[1].name, "second");
      seen = true;
    }
    second.wait();
    first.wait();
    for (const OperationRecord& record : comm.recent_operations()) EXPECT_EQ(record.state, State::finished);
  });
}

TEST_F(FlightRecorder, IsWrittenOutWhenARankIsLate) {
  for (const std::vector<int>& hosts : {std::vector{0, 0, 0}, std::vector{0, 0, 1}}) {
    std::atomic<int> failed{0};
    run_hosts(hosts,
              [&](Communicator& comm) {
                comm.barrier();
                std::vector<float> data(10);
                if (comm.rank() == 2)
                  while (failed < 2) std::this_thread::sleep_for(1ms);
                EXPECT_THROW(comm.all_reduce(data, ReduceOp::sum, {.name = "late", .timeout = 1s}), Error);
                ++failed;
                EXPECT_EQ(comm.recent_operations().back().state, State::failed);
                EXPECT_EQ(comm.recent_operations().back().sequence, 2U);
              },
              {.timeout = 20s});
  }
  for (const Rank rank : {0, 1}) {
    const std::string text = written_by(rank);
    EXPECT_EQ(occurrences(text, "rank " + std::to_string(rank) +
                                    " of 3, communicator .*: all_reduce #2 .late.: timed "
                                    "out after"),
              2)
        << text;
    EXPECT_EQ(occurrences(text, "#1 barrier, [a-z_/-]+: (took|over)"), 2) << text;
    EXPECT_EQ(occurrences(text, "#2 all_reduce 10 x f32 sum .late., .*: failed after .*, had waited for rank 2"), 2)
        << text;
  }
  // The file of a rank states the last operation of each rank that shares memory with it.
  EXPECT_EQ(occurrences(written_by(0),
                        "ranks 0-1 in all_reduce #2; rank 2 after barrier #1|rank 2 after barrier #1; "
                        "ranks 0-1 in all_reduce #2"),
            1)
      << written_by(0);
  // Rank 2 enters the second call too late, and it fails there as well.
  EXPECT_EQ(occurrences(written_by(2), "#1 barrier"), 2) << written_by(2);
  EXPECT_EQ(occurrences(written_by(2), "#2 all_reduce 10 x f32 sum .late., .*: failed"), 2) << written_by(2);
}

TEST_F(FlightRecorder, IsWrittenOutByTheReportOfAStall) {
  std::atomic<bool> reported{false};
  run_communicators(2,
                    [&](Communicator& comm) {
                      if (comm.rank() == 1)
                        while (!reported) std::this_thread::sleep_for(1ms);
                      Work work = comm.barrier_async();
                      while (comm.rank() == 0 && !reported) {
                        work.wait_for(1ms);
                        reported = occurrences(written_by(0), "has waited for .*: rank 1 has not arrived") == 1;
                      }
                      work.wait();
                    },
                    {.stall_report = 50ms});
  EXPECT_EQ(occurrences(written_by(0), "#1 barrier, .*: not finished, waits for rank 1"), 1) << written_by(0);
}

TEST_F(FlightRecorder, IsWrittenOutAtASignal) {
  ::setenv("COLLECTIVES_DUMP_SIGNAL", "USR2", 1);
  std::barrier together(2);
  run_communicators(2, [&](Communicator& comm) {
    std::vector<float> data(10);
    comm.all_reduce(data);
    together.arrive_and_wait();
    if (comm.rank() == 0) ::raise(SIGUSR2);
    together.arrive_and_wait();
  });
  for (const Rank rank : {0, 1})
    EXPECT_EQ(occurrences(written_by(rank), "asked by a signal\n  #1 all_reduce 10 x f32 sum, "), 1)
        << written_by(rank);
}

TEST_F(FlightRecorder, LeavesASignalToTheProgramThatHandlesIt) {
  if (kThreadSanitized) GTEST_SKIP() << "the thread sanitizer delivers no signal to a child of fork()";
  ::setenv("COLLECTIVES_DUMP_SIGNAL", "USR1", 1);
  static volatile std::sig_atomic_t handled = 0;
  Child child([&](Line&) {
    std::signal(SIGUSR1, [](int) { handled = 1; });
    Communicator(*bootstrap_threads(1)[0]).barrier();
    ::raise(SIGUSR1);
    return handled == 1 ? 0 : 1;
  });
  EXPECT_EQ(child.wait(), 0);
  EXPECT_EQ(written_by(0), "");
}

}  // namespace
}  // namespace collectives::testing
