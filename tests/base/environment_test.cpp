// Tests of the library's environment variables: how their texts are parsed, and errors for invalid ones. The tests pass
// variables as literals to parse_environment(), so none of them sets a variable of this process. Also tests the log.
#include "base/environment.hpp"

#include <gtest/gtest.h>

#include <csignal>
#include <functional>
#include <initializer_list>

#include "collectives/error.hpp"

namespace collectives {
namespace {

using namespace std::chrono_literals;

std::vector<const char*> list(std::initializer_list<const char*> variables) {
  std::vector<const char*> result(variables);
  result.push_back(nullptr);
  return result;
}

Environment parse(std::initializer_list<const char*> variables) { return parse_environment(list(variables).data()); }

std::string error_of(std::initializer_list<const char*> variables) {
  try {
    parse(variables);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Errc::invalid_argument);
    return error.what();
  }
  return "no error";
}

TEST(EnvironmentTest, HasDefaultsIfNothingIsSet) {
  const Environment empty = parse({});
  EXPECT_FALSE(empty.backend || empty.transport || empty.host_id || empty.timeout || empty.deterministic ||
               empty.progress_thread || empty.log || empty.port || empty.cores || empty.listen_fd || empty.tuning);
  EXPECT_FALSE(parse_environment(nullptr).backend);
}

TEST(EnvironmentTest, ReadsEveryVariable) {
  const Environment all = parse({"PATH=/bin",
                                 "COLLECTIVES_BACKEND=ring",
                                 "COLLECTIVES_TIMEOUT=2.5",
                                 "COLLECTIVES_DETERMINISTIC=1",
                                 "COLLECTIVES_TRANSPORT=mpi",
                                 "COLLECTIVES_PROGRESS_THREAD=off",
                                 "COLLECTIVES_HOST_ID=left=right",
                                 "COLLECTIVES_LOG=debug",
                                 "COLLECTIVES_PORT=29500",
                                 "COLLECTIVES_CORES=3",
                                 "COLLECTIVES_LISTEN_FD=7",
                                 "COLLECTIVES_JOB=mine",
                                 "COLLECTIVES_TUNING=/etc/tuning.json",
                                 "COLLECTIVES_WIRE=tcp",
                                 "COLLECTIVES_INTERFACE=eth0,10.77.",
                                 "COLLECTIVES_CONGESTION=reno",
                                 "COLLECTIVES_DATAGRAMS=off",
                                 "COLLECTIVES_GPU_PEERS=0",
                                 "COLLECTIVES_TRACE=trace.json",
                                 "COLLECTIVES_FLIGHT_RECORDER=/tmp/flight",
                                 "COLLECTIVES_DUMP_SIGNAL=USR2",
                                 "COLLECTIVES_MPI_STATS=1",
                                 "COLLECTIVES_MPI_AFTER=0",
                                 "COLLECTIVES_MPI_WIRE=bf16",
                                 "COLLECTIVES_MPI_WIRE_MIN_BYTES=4096"});
  EXPECT_EQ(all.mpi_stats, true);
  EXPECT_EQ(all.mpi_after, 0);
  EXPECT_EQ(all.mpi_wire, "bf16");
  EXPECT_EQ(all.mpi_wire_min_bytes, 4096U);
  EXPECT_EQ(all.backend, "ring");
  EXPECT_EQ(all.timeout, 2500ms);
  EXPECT_EQ(all.deterministic, true);
  EXPECT_EQ(all.transport, "mpi");
  EXPECT_EQ(all.wire, "tcp");
  EXPECT_EQ(all.interfaces, (std::vector<std::string>{"eth0", "10.77."}));
  EXPECT_EQ(all.congestion_control, "reno");
  EXPECT_EQ(all.datagrams, false);
  EXPECT_EQ(all.gpu_peers, false);
  EXPECT_EQ(all.progress_thread, false);
  EXPECT_EQ(all.trace, "trace.json");
  EXPECT_EQ(all.flight_recorder, "/tmp/flight");
  EXPECT_EQ(all.dump_signal, SIGUSR2);
  EXPECT_EQ(all.host_id, "left=right");
  EXPECT_EQ(all.log, LogLevel::debug);
  EXPECT_EQ(all.port, 29500);
  EXPECT_EQ(all.cores, 3);
  EXPECT_EQ(all.listen_fd, 7);
  EXPECT_EQ(all.job, "mine");
  EXPECT_EQ(all.tuning, "/etc/tuning.json");
}

TEST(EnvironmentTest, SizesMayHaveUnits) {
  EXPECT_EQ(parse({"COLLECTIVES_TRACE_BYTES=64K"}).trace_bytes, 65536U);
  EXPECT_EQ(parse({"COLLECTIVES_TRACE_BYTES=0"}).trace_bytes, 0U);
  EXPECT_EQ(parse({"COLLECTIVES_MPI_WIRE_MIN_BYTES=1M"}).mpi_wire_min_bytes, 1048576U);
}

TEST(EnvironmentTest, TheProcessorHasAName) {
  EXPECT_EQ(
      cpu_model("processor\t: 0\nvendor_id\t: X\nmodel\t\t: 143\nmodel name\t: Some CPU @ 3 GHz\n\nprocessor: 1\n"),
      "Some CPU @ 3 GHz");
  EXPECT_EQ(cpu_model("processor\t: 0\nBogoMIPS\t: 50\nCPU implementer\t: 0x41\nCPU part\t: 0xd0c\n\nCPU part\t: 1\n"),
            "CPU 0x41 0xd0c");
  EXPECT_EQ(cpu_model(""), "");
  EXPECT_FALSE(cpu_model().empty());
}

TEST(EnvironmentTest, AnEmptyValueIsUnset) {
  EXPECT_FALSE(parse({"COLLECTIVES_BACKEND=", "COLLECTIVES_TIMEOUT="}).backend);
}

TEST(EnvironmentTest, TakesTheFirstOfARepeatedName) {
  EXPECT_EQ(parse({"COLLECTIVES_BACKEND=ring", "COLLECTIVES_BACKEND=auto"}).backend, "ring");
}

TEST(EnvironmentTest, SwitchesTakeTheUsualWords) {
  for (const char* const on : {"1", "on", "yes", "true"}) {
    EXPECT_EQ(parse({("COLLECTIVES_DETERMINISTIC=" + std::string(on)).c_str()}).deterministic, true) << on;
  }
  for (const char* const off : {"0", "off", "no", "false"}) {
    EXPECT_EQ(parse({("COLLECTIVES_DETERMINISTIC=" + std::string(off)).c_str()}).deterministic, false) << off;
  }
}

TEST(EnvironmentTest, ABadValueIsAnErrorThatNamesVariableValueAndWhatIsValid) {
  EXPECT_EQ(error_of({"COLLECTIVES_DETERMINISTIC=maybe"}),
            "COLLECTIVES_DETERMINISTIC=maybe: valid is on, off, yes, no, true, false, 1, 0");
  EXPECT_EQ(error_of({"COLLECTIVES_TRANSPORT=pigeon"}),
            "COLLECTIVES_TRANSPORT=pigeon: valid is shared_memory, tcp, ucx, mpi");
  EXPECT_EQ(error_of({"COLLECTIVES_LOG=loud"}), "COLLECTIVES_LOG=loud: valid is off, error, warning, info, debug");
  EXPECT_EQ(error_of({"COLLECTIVES_PORT=65536"}), "COLLECTIVES_PORT=65536: valid is a port from 1 to 65535");
  for (const char* const bad :
       {"COLLECTIVES_TIMEOUT=soon", "COLLECTIVES_PORT=0", "COLLECTIVES_PORT=80x", "COLLECTIVES_CORES=-1",
        "COLLECTIVES_LISTEN_FD=3.5", "COLLECTIVES_WIRE=pigeon", "COLLECTIVES_INTERFACE=eth0,,eth1"}) {
    EXPECT_NE(error_of({bad}).find(bad), std::string::npos);
  }
}

TEST(EnvironmentTest, UnknownVariablesAreNamedAndTheNearestSuggested) {
  const auto variables = list({"COLLECTIVES_TIMOUT=3", "HOME=/", "COLLECTIVES_BACKEND=ring", "COLLECTIVES_SPEED=fast",
                               "COLLECTIVES_TEST_WATCHDOG=5"});
  EXPECT_EQ(unknown_variables(variables.data()), (std::vector<std::string>{"COLLECTIVES_TIMOUT", "COLLECTIVES_SPEED"}));
  const std::string near = unknown_variable_warning("COLLECTIVES_TIMOUT");
  EXPECT_NE(near.find("COLLECTIVES_TIMOUT is not a variable"), std::string::npos) << near;
  EXPECT_NE(near.find("did you mean COLLECTIVES_TIMEOUT?"), std::string::npos) << near;
  EXPECT_NE(near.find("COLLECTIVES_TRANSPORT"), std::string::npos) << near;
  EXPECT_EQ(unknown_variable_warning("COLLECTIVES_EXTRAORDINARY").find("did you mean"), std::string::npos);
}

TEST(Duration, TakesSecondsAndUnits) {
  EXPECT_EQ(parse_duration("600"), 600s);
  EXPECT_EQ(parse_duration("2.5"), 2500ms);
  EXPECT_EQ(parse_duration("500ms"), 500ms);
  EXPECT_EQ(parse_duration("90s"), 90s);
  EXPECT_EQ(parse_duration("10min"), 10min);
  EXPECT_EQ(parse_duration("1h"), 1h);
}

TEST(Duration, ZeroAndNoneAndAgesAreNoDeadline) {
  for (const char* const text : {"0", "0s", "none", "1e30", "1e9h", "inf"}) {
    EXPECT_EQ(parse_duration(text), std::chrono::nanoseconds::max()) << text;
  }
  EXPECT_EQ(parse_duration("1e-30"), 1ns);
}

TEST(Duration, RefusesMalformedText) {
  for (const char* const text : {"", "-1", "ten", "5 s", "5days", "nan"}) {
    EXPECT_FALSE(parse_duration(text)) << text;
  }
}

TEST(Cores, QuotaIsInWholeCores) {
  EXPECT_EQ(cores_of_quota("200000 100000\n"), 2);
  EXPECT_EQ(cores_of_quota("150000 100000\n"), 1);
  EXPECT_EQ(cores_of_quota("50000 100000\n"), 1);
  EXPECT_EQ(cores_of_quota("400000\n100000\n"), 4);
}

TEST(Cores, AreUnlimitedWithoutAQuota) {
  for (const char* const text : {"max 100000\n", "-1\n100000\n", "", "garbage", "100000", "100000 0"}) {
    EXPECT_FALSE(cores_of_quota(text)) << text;
  }
}

TEST(Cores, ControlGroupsOfBothVersions) {
  EXPECT_EQ(control_groups("0::/user.slice/job\n", "cpu"),
            (std::vector<std::string>{"/sys/fs/cgroup/user.slice/job", "/sys/fs/cgroup/user.slice", "/sys/fs/cgroup"}));
  EXPECT_EQ(
      control_groups("12:pids:/a\n4:cpu,cpuacct:/docker/b\n1:cpuset:/c\n", "cpu"),
      (std::vector<std::string>{"/sys/fs/cgroup/cpu/docker/b", "/sys/fs/cgroup/cpu/docker", "/sys/fs/cgroup/cpu"}));
  EXPECT_EQ(control_groups("0::/\n", "cpu"), (std::vector<std::string>{"/sys/fs/cgroup"}));
  EXPECT_TRUE(control_groups("", "cpu").empty());
  EXPECT_EQ(control_groups("4:memory:/job\n1:cpu:/\n", "memory"),
            (std::vector<std::string>{"/sys/fs/cgroup/memory/job", "/sys/fs/cgroup/memory"}));
}

TEST(Cores, ThereIsAtLeastOne) { EXPECT_GE(usable_cores(), 1); }

TEST(AvailableMemory, OfAControlGroupIsItsLimitMinusUnreclaimableBytes) {
  EXPECT_EQ(available_in_group("1000\n", "400\n", ""), 600u);
  EXPECT_EQ(available_in_group("1000\n", "400\n", "anon 100\ninactive_file 200\nactive_file 50\nshmem 50\n"), 850u);
  EXPECT_EQ(available_in_group("1000\n", "400\n", "inactive_file 7\ntotal_inactive_file 200\ntotal_active_file 0\n"),
            800u);
  EXPECT_EQ(available_in_group("1000\n", "1200\n", ""), 0u);
  EXPECT_EQ(available_in_group("1000\n", "100\n", "active_file 200\n"), 1000u);
  EXPECT_FALSE(available_in_group("max\n", "400\n", ""));
  EXPECT_FALSE(available_in_group("9223372036854771712\n", "400\n",
                                  ""));  // the value that version 1 of control groups has for "max"
  EXPECT_FALSE(available_in_group("", "", ""));
}

TEST(AvailableMemory, OfTheMachineIsAvailableBytesAndFreeSwap) {
  EXPECT_EQ(available_on_machine("MemTotal: 900 kB\nMemFree: 1 kB\nMemAvailable:   20 kB\nSwapFree: 3 kB\n"),
            23u << 10);
  EXPECT_FALSE(available_on_machine("MemTotal: 900 kB\n"));
  EXPECT_GT(available_memory().bytes, 0u);
  EXPECT_NE(available_memory().bound, "");
}

/// Returns the text that `speak` writes to stderr while the log level is `level`.
std::string logged(LogLevel level, const std::function<void()>& speak) {
  const LogLevel before = log_level();
  set_log_level(level);
  ::testing::internal::CaptureStderr();
  speak();
  set_log_level(before);
  return ::testing::internal::GetCapturedStderr();
}

TEST(Log, OneLineWithLevelAndRank) {
  EXPECT_EQ(logged(LogLevel::warning, [] { log_warning(3, "{} is late by {} s", "rank 1", 30); }),
            "collectives: warning: rank 3: rank 1 is late by 30 s\n");
  EXPECT_EQ(logged(LogLevel::warning, [] { log_error(kNoRank, "no ranks"); }), "collectives: error: no ranks\n");
  EXPECT_EQ(logged(LogLevel::warning, [] { log_error(kNoRank, "tensor \"{}\"", "w\x1b[1m\nü"); }),
            "collectives: error: tensor \"w [1m ü\"\n");
}

TEST(Log, LevelsBelowTheOneInForceAreSilent) {
  EXPECT_EQ(logged(LogLevel::warning, [] { log_info(0, "quiet"); }), "");
  EXPECT_EQ(logged(LogLevel::off, [] { log_error(0, "quiet"); }), "");
  EXPECT_EQ(logged(LogLevel::debug, [] { log_debug(0, "loud"); }), "collectives: debug: rank 0: loud\n");
}

}  // namespace
}  // namespace collectives
