// Reads the environment of the process.
//
// The library reads its COLLECTIVES_ variables here. This file also finds the cores that the process may use, the name
// of the processor, and the memory that is still available. Functions that parse get the text as an argument, so tests
// can pass any text. Every call reads the environment anew.
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

/// Values of the variables. A field is empty if its variable is unset or empty. The last fields configure the drop-in.
/// The drop-in is a library that users preload into an MPI program. It performs the program's collectives in place of
/// MPI.
struct Environment {
  std::optional<std::string> backend;    ///< COLLECTIVES_BACKEND: name of a backend or algorithm, or auto
  std::optional<std::string> transport;  ///< COLLECTIVES_TRANSPORT: shared_memory, tcp, ucx or mpi, for all messages
  std::optional<std::string> wire;       ///< COLLECTIVES_WIRE: transport between hosts: tcp, ucx, mpi
  std::vector<std::string> interfaces;   ///< COLLECTIVES_INTERFACE: network interfaces, by name or address prefix
  std::optional<std::string> congestion_control;  ///< COLLECTIVES_CONGESTION: the kernel's congestion control for TCP
  std::optional<bool> datagrams;                  ///< COLLECTIVES_DATAGRAMS: whether tcp sends short messages by UDP
  std::optional<std::string> tuning;              ///< COLLECTIVES_TUNING: "default", or path of a JSON file with tuning
  std::optional<bool> gpu_peers;                  ///< COLLECTIVES_GPU_PEERS: whether ranks map GPU memory of peers
  std::optional<std::string> inject;              ///< COLLECTIVES_INJECT: faults to cause (injection/faults.hpp)
  std::optional<std::string> host_id;  ///< COLLECTIVES_HOST_ID: host name; ranks with equal names share memory
  std::optional<std::string> domain;   ///< COLLECTIVES_DOMAIN: name of this process's NUMA domain
  std::optional<std::chrono::nanoseconds> timeout;  ///< COLLECTIVES_TIMEOUT: time to the deadline; max(): no deadline
  std::optional<bool> deterministic;                ///< COLLECTIVES_DETERMINISTIC: whether all plans give equal bits
  std::optional<bool> progress_thread;              ///< COLLECTIVES_PROGRESS_THREAD: whether to start such threads
  std::optional<LogLevel> log;                      ///< COLLECTIVES_LOG: level of the log
  std::optional<std::string> trace;                 ///< COLLECTIVES_TRACE: path of the trace file
  std::optional<std::size_t> trace_bytes;           ///< COLLECTIVES_TRACE_BYTES: maximum size of a host's trace file
  std::optional<std::string> flight_recorder;       ///< COLLECTIVES_FLIGHT_RECORDER: prefix of the recorder's files
  /// COLLECTIVES_DUMP_SIGNAL: signal at which the flight recorder writes its files.
  std::optional<int> dump_signal;
  std::optional<int> port;       ///< COLLECTIVES_PORT: port on which rank 0 listens, 1 to 65535
  std::optional<int> cores;      ///< COLLECTIVES_CORES: number of cores that the ranks of this host may use
  std::optional<int> listen_fd;  ///< COLLECTIVES_LISTEN_FD: listening socket that rank 0 inherits from collectives_run
  std::optional<std::string> job;  ///< COLLECTIVES_JOB: name of the job; ranks of other jobs are refused at the start
  std::optional<bool>
      mpi_stats;  ///< COLLECTIVES_MPI_STATS: whether the drop-in prints the number of calls that it has performed
  /// COLLECTIVES_MPI_AFTER: number of first calls of each communicator that MPI performs, not the drop-in. In this
  /// count, a long call counts as several calls: one, and one more for each 512 bytes.
  std::optional<int> mpi_after;
  /// COLLECTIVES_MPI_WIRE: "bf16" if the drop-in sends the f32 values of sums as bf16.
  std::optional<std::string> mpi_wire;
  /// COLLECTIVES_MPI_WIRE_MIN_BYTES: minimum length of a vector that is sent as bf16.
  std::optional<std::size_t> mpi_wire_min_bytes;
};

/// Parses "NAME=value" strings with a null at the end, like main's third argument. Throws Error{invalid_argument} that
/// names the variable, its value, and the valid values.
Environment parse_environment(const char* const* variables);

/// Returns the values of the variables that this process has now.
Environment environment();
/// Returns the values of port, listen_fd and job only, because the rendezvous uses these three. Ignores mistakes in
/// other variables. The communicator reports them once it can reach all ranks.
Environment rendezvous_environment();

/// Returns the COLLECTIVES_ variables that the library does not know, in order of appearance.
std::vector<std::string> unknown_variables(const char* const* variables);
/// Returns the unknown variables of this process.
std::vector<std::string> unknown_variables();

/// Returns a line for the log. It names the known variable that is nearest to `name`, and lists all known ones.
std::string unknown_variable_warning(std::string_view name);

/// Parses "600" (seconds), "2.5", "500ms", "90s", "10min", "1h". "0" and "none" are nanoseconds::max(). Returns nothing
/// for malformed text.
std::optional<std::chrono::nanoseconds> parse_duration(std::string_view text);

/// Returns the number of cores that this process may keep busy, at least 1. This is COLLECTIVES_CORES if set. Otherwise
/// it is the size of the affinity mask, limited by the quota of the control groups. Reads /proc and /sys.
int usable_cores();

/// Returns the host of this process as NCCL counts hosts: NCCL_HOSTID, otherwise the name of the machine or container.
std::string nccl_host();

/// Returns the directory for files that programs can recreate: XDG_CACHE_HOME, otherwise .cache in HOME. Empty if
/// neither is set.
std::string cache_directory();

/// Returns the name of the processor, as the system reports it, in one line. Reads /proc/cpuinfo.
std::string cpu_model();
/// Returns the name in `cpuinfo`, the contents of /proc/cpuinfo; empty if it names no processor.
std::string cpu_model(std::string_view cpuinfo);

/// Returns the whole cores that the quota of a control group allows, at least 1; empty if it sets no quota.
///
/// Version 2 has both numbers in cpu.max ("150000 100000", "max 100000"). Version 1 has one file for each, and -1 for
/// no quota. A fraction of a core does not count: the kernel would stop a rank that spins on it in the middle of a
/// collective.
std::optional<int> cores_of_quota(std::string_view quota_and_period);

/// Returns the directories below /sys/fs/cgroup whose limits on `controller` ("cpu", "memory") apply to this process.
/// Its own group is first, followed by the groups around it. `text` is the contents of /proc/self/cgroup.
std::vector<std::string> control_groups(std::string_view text, std::string_view controller);

/// Memory that a process can still use before the kernel would kill a process to free some.
struct AvailableMemory {
  std::size_t bytes = std::numeric_limits<std::size_t>::max();
  std::string bound;  ///< source of this limit and the setting to change, in words
};

/// Returns the minimum of the memory left on the machine and in each control group of this process. Reads /proc and
/// /sys.
AvailableMemory available_memory();

/// Returns the limit in bytes; empty if there is none. `limit` is memory.max, or memory.limit_in_bytes in version 1.
std::optional<std::size_t> limit_of_group(std::string_view limit);

/// Returns the memory that a control group has left: its limit minus its usage. Pages of files do not count as used,
/// because the kernel can drop them. Empty if the group sets no limit. `usage` is memory.current, or
/// memory.usage_in_bytes in version 1. `statistics` is memory.stat.
std::optional<std::size_t> available_in_group(std::string_view limit, std::string_view usage,
                                              std::string_view statistics);

/// Returns the sum of MemAvailable and SwapFree of /proc/meminfo in bytes; empty if `meminfo` lacks MemAvailable.
std::optional<std::size_t> available_on_machine(std::string_view meminfo);

}  // namespace collectives
