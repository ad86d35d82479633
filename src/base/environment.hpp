// The environment of the process: every COLLECTIVES_ variable is read here and nowhere else in the library, and so are
// the cores that it may use, their name, and the memory that it may still have.
//
// Parsing is a function of the environment's text, so tests pass literals. Nothing is remembered between calls.
#pragma once

#include <chrono>
#include <cstddef>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/log.hpp"

namespace collectives {

/// What the variables say; empty where a variable is unset or empty.
struct Environment {
  std::optional<std::string> backend;               ///< COLLECTIVES_BACKEND: a name that choose_plan() knows
  std::optional<std::string> transport;             ///< COLLECTIVES_TRANSPORT: shared_memory, tcp, ucx, mpi
  std::optional<std::string> wire;                  ///< COLLECTIVES_WIRE: tcp, ucx, mpi
  std::vector<std::string> interfaces;              ///< COLLECTIVES_INTERFACE: names, or beginnings of addresses
  std::optional<std::string> congestion_control;    ///< COLLECTIVES_CONGESTION: of TCP connections
  std::optional<bool> datagrams;                    ///< COLLECTIVES_DATAGRAMS: beside TCP connections
  std::optional<std::string> tuning;                ///< COLLECTIVES_TUNING: "default", or the path of a JSON file
  std::optional<bool> gpu_peers;                    ///< COLLECTIVES_GPU_PEERS: GPUs of a host open one another's memory
  std::optional<std::string> host_id;               ///< COLLECTIVES_HOST_ID: the host this process claims to be on
  std::optional<std::string> domain;                ///< COLLECTIVES_DOMAIN: the domain it claims to run in
  std::optional<std::chrono::nanoseconds> timeout;  ///< COLLECTIVES_TIMEOUT; nanoseconds::max(): no deadline
  std::optional<bool> deterministic;                ///< COLLECTIVES_DETERMINISTIC
  std::optional<bool> progress_thread;              ///< COLLECTIVES_PROGRESS_THREAD
  std::optional<LogLevel> log;                      ///< COLLECTIVES_LOG
  std::optional<std::string> trace;                 ///< COLLECTIVES_TRACE: the path of a file
  std::optional<std::size_t> trace_bytes;           ///< COLLECTIVES_TRACE_BYTES: where the file of a host ends
  std::optional<std::string> flight_recorder;       ///< COLLECTIVES_FLIGHT_RECORDER: what paths begin with
  std::optional<int> dump_signal;                   ///< COLLECTIVES_DUMP_SIGNAL: SIGUSR1 or SIGUSR2
  std::optional<int> port;                          ///< COLLECTIVES_PORT: where rank 0 listens, 1 to 65535
  std::optional<int> cores;                         ///< COLLECTIVES_CORES: cores that ranks of this host may use
  std::optional<int> listen_fd;                     ///< COLLECTIVES_LISTEN_FD: rank 0's listening socket, inherited
  std::optional<bool> mpi_stats;                    ///< COLLECTIVES_MPI_STATS: the drop-in tells what it took over
  std::optional<int> mpi_after;                     ///< COLLECTIVES_MPI_AFTER: calls before it takes over
  std::optional<std::string> mpi_wire;              ///< COLLECTIVES_MPI_WIRE: bf16, how it sends sums of f32
  std::optional<std::size_t> mpi_wire_min_bytes;    ///< COLLECTIVES_MPI_WIRE_MIN_BYTES: from this length on
};

/// `variables`: "NAME=value" strings and a null at the end, as main's third argument.
/// Throws Error{invalid_argument} naming the variable, its value, and what is valid.
Environment parse_environment(const char* const* variables);

/// parse_environment() of this process, as it is now.
Environment environment();
/// Of that only what says where ranks meet: port and listen_fd. A mistake in another variable is for the communicator
/// to report, when all ranks can hear it.
Environment rendezvous_environment();

/// The COLLECTIVES_ variables that nothing here knows, in order of appearance.
std::vector<std::string> unknown_variables(const char* const* variables);
/// Those of this process.
std::vector<std::string> unknown_variables();

/// A line for the log: says which known variable is nearest to `name`, and lists all of them.
std::string unknown_variable_warning(std::string_view name);

/// "600" (seconds), "2.5", "500ms", "90s", "10min", "1h"; "0" and "none" are nanoseconds::max(). Empty if malformed.
std::optional<std::chrono::nanoseconds> parse_duration(std::string_view text);

/// Cores that this process may keep busy: COLLECTIVES_CORES, else its affinity mask within the quota of its control
/// groups. At least 1. Reads /proc and /sys.
int usable_cores();

/// The host that this process is on as NCCL counts hosts: NCCL_HOSTID, else the name of the machine or container.
std::string nccl_host();

/// Where programs keep what they can make again: XDG_CACHE_HOME, else .cache in HOME; empty when there is neither.
std::string cache_directory();

/// The processor's name as the system gives it, in one line. Reads /proc/cpuinfo.
std::string cpu_model();
/// `cpuinfo`: the contents of /proc/cpuinfo; empty when it names no processor.
std::string cpu_model(std::string_view cpuinfo);

/// Whole cores that a control group's quota allows, at least 1; empty when it sets none.
/// Version 2 says both numbers in cpu.max ("150000 100000", "max 100000"); version 1 has one file for each, and -1 for
/// no quota. Half a core more is not counted: a rank that spins on it would be stopped in mid-collective.
std::optional<int> cores_of_quota(std::string_view quota_and_period);

/// The directories below /sys/fs/cgroup whose limits on `controller` ("cpu", "memory") bind this process, its own group
/// first, then the groups around it. `text`: the contents of /proc/self/cgroup.
std::vector<std::string> control_groups(std::string_view text, std::string_view controller);

/// Memory that a process can still have before the kernel would end one to make room.
struct AvailableMemory {
  std::size_t bytes = std::numeric_limits<std::size_t>::max();
  std::string bound;  ///< what sets this limit, and what to change, in words
};

/// The least of what the machine and each control group of this process have left. Reads /proc and /sys.
AvailableMemory available_memory();

/// Bytes; empty when it is none. `limit`: memory.max, or memory.limit_in_bytes in version 1.
std::optional<std::size_t> limit_of_group(std::string_view limit);

/// What a control group has left: its limit less what it uses, of which pages of files can be given up. Empty when it
/// sets no limit. `usage`: memory.current, or memory.usage_in_bytes in version 1; `statistics`: memory.stat.
std::optional<std::size_t> available_in_group(std::string_view limit, std::string_view usage,
                                              std::string_view statistics);

/// MemAvailable and SwapFree of /proc/meminfo together, in bytes; empty when `meminfo` does not say.
std::optional<std::size_t> available_on_machine(std::string_view meminfo);

}  // namespace collectives
