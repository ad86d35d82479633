// Main function of collectives_info. Without a command, the program prints which backends, transports and kinds of
// memory this build and this machine have. Commands print plans, simulated times, or counters of processes. A plan is
// the algorithm and protocol that the library chooses for a call.
//
//   collectives_info             backends, transports, cores, shared memory, ... with a reason for what is missing
//   collectives_info --json
//   collectives_info explain all_reduce --bytes 64M --ranks 64 --ranks-per-host 8
//   collectives_info explain all_reduce --ranks 8 --sizes
//   collectives_info simulate all_reduce --bytes 100M --hosts 512 --ranks-per-host 8 --link 100gbit --latency 5us
//   collectives_info watch       counters and operations of the processes of this machine
//
// The commands `explain` and `simulate` choose plans by a tuning, a set of costs and limits. The variable
// COLLECTIVES_TUNING gives the tuning. For `simulate`, the option --tuning replaces this variable.
//
// Without a command, the program collects all results in one JSON value. It prints this value as text, or as JSON with
// the option --json. A bad argument or a bad environment variable causes an error of one line and the exit status 2.
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/statvfs.h>
#include <sys/uio.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <exception>
#include <fstream>
#include <memory>
#include <optional>
#include <ranges>
#include <stdexcept>
#include <string>
#include <system_error>
#include <thread>

#ifdef COLLECTIVES_HAVE_HWLOC
#include <hwloc.h>
#endif

#include "base/bytes.hpp"
#include "base/environment.hpp"
#include "base/json.hpp"
#include "base/json_record.hpp"
#include "base/text.hpp"
#include "collectives/error.hpp"
#include "collectives/memory.hpp"
#include "collectives/plan.hpp"
#include "collectives/topology.hpp"
#include "collectives/types.hpp"
#include "collectives/version.hpp"
#include "communicator/settings.hpp"
#include "core/tuning.hpp"
#include "device/loader.hpp"
#include "tools/arguments.hpp"
#include "tools/monitor.hpp"
#include "tools/named.hpp"
#include "tools/simulate.hpp"
#include "tuning/measured_tuning.hpp"
#include "tuning/tuning_cache.hpp"

namespace collectives {
namespace {

using Json = nlohmann::ordered_json;

std::string reason_of(int error) { return std::error_code(error, std::generic_category()).message(); }

/// Returns the first line of a file in /proc or /sys, or "unknown" if the file cannot be read.
std::string first_line(const char* path) {
  std::ifstream file(path);
  std::string line;
  return std::getline(file, line) ? line : "unknown";
}

struct Part {
  std::string_view name;
  bool built;
};
constexpr Part kParts[] = {{"MPI", COLLECTIVES_HAVE_MPI},
                           {"UCX", COLLECTIVES_HAVE_UCX},
                           {"CUDA", COLLECTIVES_HAVE_CUDA},
                           {"NCCL", COLLECTIVES_HAVE_NCCL},
                           {"oneDNN", COLLECTIVES_HAVE_ONEDNN}};

Json build() {
  Json found = Json::object();
  for (const Part& part : kParts) found[std::string(part.name)] = part.built ? "found" : "not found";
  return {{"version", version()},
          {"compiler", COLLECTIVES_COMPILER},
          {"build type", COLLECTIVES_BUILD_TYPE},
          {"found at build time", std::move(found)}};
}

Json backends() {
  Json backends = Json::object();
  for (const std::string_view name : backend_names()) backends[std::string(name)] = "available";
  std::string why_not;
  const std::unique_ptr<Device> device = find_device(why_not);
  const Nccl* const nccl = device != nullptr ? device->nccl(why_not) : nullptr;
  backends["nccl"] =
      nccl != nullptr ? "available, for device memory: " + nccl->description() : "not available: " + why_not;
  return backends;
}

/// Tries to create shared memory by the same system calls as the ranks of a host. Returns "works", or the system call
/// that failed and its error.
std::string try_memfd() {
  const int fd = memfd_create("collectives_info", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  if (fd < 0) return "memfd_create: " + reason_of(errno);
  const auto result = [&]() -> std::string {
    constexpr std::size_t kBytes = 1 << 16;
    if (ftruncate(fd, kBytes) != 0) return "ftruncate: " + reason_of(errno);
    if (fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) != 0) return "sealing: " + reason_of(errno);
    void* const memory = mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (memory == MAP_FAILED) return "mmap: " + reason_of(errno);
    *static_cast<volatile int*>(memory) = 1;
    munmap(memory, kBytes);
    return "works";
  }();
  close(fd);
  return result;
}

/// Tries to read memory of another process by the same system call as ranks. Returns "works", or the system call that
/// failed and its error.
std::string try_single_copy() {
  static volatile int secret = 0;
  int hold[2];
  if (pipe2(hold, O_CLOEXEC) != 0) return "pipe: " + reason_of(errno);
  const pid_t owner = fork();
  if (owner < 0) return "fork: " + reason_of(errno);
  if (owner == 0) {  // waits until the pipe is closed
    secret = 42;
    close(hold[1]);
    char end;
    (void)!read(hold[0], &end, 1);
    _exit(0);
  }
  const pid_t reader = fork();
  if (reader == 0) {
    int seen = 0;
    iovec mine{&seen, sizeof seen}, theirs{const_cast<int*>(&secret), sizeof secret};
    _exit(process_vm_readv(owner, &mine, 1, &theirs, 1, 0) == sizeof seen ? 0 : errno & 0xff);
  }
  int status = 0;
  if (reader > 0) waitpid(reader, &status, 0);
  close(hold[0]);
  close(hold[1]);
  waitpid(owner, nullptr, 0);
  if (reader < 0 || !WIFEXITED(status)) return "could not be tried";
  return WEXITSTATUS(status) == 0 ? "works" : "process_vm_readv: " + reason_of(WEXITSTATUS(status));
}

Json transports(const std::string& memfd) {
  return {{"local", "available (ranks are threads of one process)"},
          {"shared_memory", memfd == "works" ? "available (processes of one host)" : "not available: " + memfd},
          {"tcp", "available (between hosts)"},
          {"ucx", COLLECTIVES_HAVE_UCX ? "built (between hosts, component ucx)" : "not built: UCX was not found"},
          {"mpi", COLLECTIVES_HAVE_MPI ? "available (between hosts, component mpi)" : "not built: MPI was not found"}};
}

Json bootstraps() {
  return {{"environment", "available (mpirun, srun, torchrun, TF_CONFIG, collectives_run)"},
          {"threads", "available"},
          {"mpi", COLLECTIVES_HAVE_MPI ? "available (component mpi)" : "not built: MPI was not found"}};
}

#ifdef COLLECTIVES_HAVE_HWLOC
Json topology() {
  hwloc_topology_t topology;
  if (hwloc_topology_init(&topology) != 0) return {{"hwloc", "cannot start"}};
  Json result = Json::object();
  if (hwloc_topology_load(topology) == 0) {
    constexpr std::pair<const char*, hwloc_obj_type_t> kLevels[] = {
        {"packages", HWLOC_OBJ_PACKAGE},  {"NUMA nodes", HWLOC_OBJ_NUMANODE}, {"L3 caches", HWLOC_OBJ_L3CACHE},
        {"L2 caches", HWLOC_OBJ_L2CACHE}, {"cores", HWLOC_OBJ_CORE},          {"hardware threads", HWLOC_OBJ_PU}};
    for (const auto& [name, type] : kLevels) {
      const int count = hwloc_get_nbobjs_by_type(topology, type);
      result[name] = count;
      const hwloc_obj_t first = count > 0 ? hwloc_get_obj_by_type(topology, type, 0) : nullptr;
      if (first != nullptr && hwloc_obj_type_is_cache(type) != 0) {
        result[name] = fmt::format("{} of {} KiB", count, first->attr->cache.size >> 10);
      }
    }
  }
  hwloc_topology_destroy(topology);
  return result;
}
#else
Json topology() { return {{"hwloc", "not found at build time"}}; }
#endif

Json machine() {
  utsname system{};
  uname(&system);
  return {{"host", system.nodename},
          {"system", fmt::format("{} {} {}", system.sysname, system.release, system.machine)},
          {"cores online", std::thread::hardware_concurrency()},
          {"cores usable", usable_cores()},
          {"topology", topology()}};
}

/// Allocates 8 MiB of shared memory by the library's allocate(). Returns a description of the memory, or the error.
std::string try_allocation() {
  try {
    return SharedMemory(std::size_t{8} << 20).describe();
  } catch (const Error& error) {
    return error.what();
  }
}

Json shared_memory(const std::string& memfd) {
  Json result = {{"sealed memfd", memfd}, {"allocated memory", try_allocation()}};
  const AvailableMemory available = available_memory();
  result["room for more"] = available.bound.empty() ? "unknown" : available.bound;
  struct statvfs shm {};
  result["/dev/shm"] =
      statvfs("/dev/shm", &shm) == 0
          ? fmt::format("{} MiB, {} MiB free", shm.f_blocks * shm.f_frsize >> 20, shm.f_bavail * shm.f_frsize >> 20)
          : "cannot be read: " + reason_of(errno);
  result["transparent huge pages"] = first_line("/sys/kernel/mm/transparent_hugepage/enabled");
  result["the same for shared memory"] = first_line("/sys/kernel/mm/transparent_hugepage/shmem_enabled");
  result["reserved huge pages"] = first_line("/proc/sys/vm/nr_hugepages");
  result["of them free"] = first_line("/sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages");
  return result;
}

Json single_copy() {
  return {{"process_vm_readv between siblings", try_single_copy()},
          {"ptrace_scope", first_line("/proc/sys/kernel/yama/ptrace_scope")}};
}

/// Adds the numbers of one entry of the cache to `result`, if the entry is for this build and processor.
void add_entry(Json& result, const TuningCache& cache, const JsonRecord& entry) {
  constexpr int kMost = 1 << 30;
  const JsonRecord of = entry.object("of");
  const int ranks = of.integer("ranks", 0, kMost);
  const double barrier_ns = of.has("barrier ns") && !of.at("barrier ns").is_null() ? of.number("barrier ns", 0) : 0;
  const Situation here = situation_of(of.integer("cores", 0, kMost), ranks, of.boolean("kernel copies"), barrier_ns);
  if (!cache.find(here)) return;
  TuningParameters checked;
  read_json(entry.at("tuning"), checked, cache.path());
  Json& found = result[fmt::format("{} ranks on {} cores, a barrier in {} ns{}", ranks, here.cores, barrier_ns,
                                   here.kernel_copy ? "" : ", without copies by the kernel")];
  found = entry.at("tuning");
  found["measured"] = printable_text(entry.text("measured", 64));
}

/// Returns the tuning of this machine: the numbers that the environment gives, or else the built-in numbers. The
/// numbers that ranks have measured earlier follow.
Json tuning() {
  const auto given = given_tuning({});
  Json result = {{"in force", given ? given->source
                                    : "measured at the first use on a host with a core for each rank, else built-in"},
                 {given ? "numbers" : "built-in", to_json(given.value_or(built_in_tuning()))}};
  const TuningCache cache = TuningCache::of_user();
  result["kept in"] = cache.path().empty() ? "nowhere: neither XDG_CACHE_HOME nor HOME is set" : cache.path();
  std::string refused;
  const Json entries = cache.entries(&refused);
  if (!refused.empty()) result["ignored"] = fmt::format("{}: {}", cache.path(), refused);
  for (const Json& entry : entries) try {
      const JsonRecord record(nlohmann::json(entry), cache.path(), Errc::invalid_argument);
      if (record.object("of").has("wire")) continue;  // for hosts, which this program does not know
      add_entry(result, cache, record);
    } catch (const Error& error) {
      result["ignored"] = error.what();
    }
  return result;
}

/// Returns the GPU that a communicator of this process would use.
Json gpu() {
  std::string why_not;
  const std::unique_ptr<Device> device = find_device(why_not);
  return {{"device buffers", device == nullptr
                                 ? "not available: " + why_not
                                 : fmt::format("available, of GPU {}: {}", device->number(), device->name())}};
}

Json everything() {
  const std::string memfd = try_memfd();
  return {{"build", build()},
          {"backends", backends()},
          {"transports", transports(memfd)},
          {"bootstraps", bootstraps()},
          {"machine", machine()},
          {"shared memory", shared_memory(memfd)},
          {"single copy", single_copy()},
          {"GPU", gpu()},
          {"tuning", tuning()}};
}

void print(const Json& value, std::size_t indent = 0) {
  std::size_t width = 0;
  for (const auto& [key, item] : value.items()) width = std::max(width, item.is_object() ? 0 : key.size());
  for (const auto& [key, item] : value.items()) {
    if (item.is_object()) {
      fmt::print("{:{}}{}\n", "", indent, key);
      print(item, indent + 2);
    } else {
      fmt::print("{:{}}{:<{}}  {}\n", "", indent, key, width,
                 item.is_string() ? item.get<std::string>() : json_text(item));
    }
  }
}

void print_sizes(Request request, const Topology& topology, const TuningParameters& tuning) {
  constexpr std::size_t kSmallest = 8, kLargest = std::size_t{1} << 30;
  fmt::print("{}{}, {}, backend {}\n", to_string(request.collective), request.deterministic ? ", deterministic" : "",
             to_string(topology), request.backend);
  fmt::print("{:>12}  {:<32} {:>12} {:>10} {:>14} {:>14}  {}\n", "bytes", "plan", "estimate us", "messages",
             "bytes by rank", "bytes by host", "next best");
  for (std::size_t bytes = kSmallest; bytes <= kLargest; bytes *= 2) {
    request.count = bytes / size_of(request.type);
    const Plan plan = choose_plan(request, topology, tuning);
    const std::string name =
        plan.protocol.empty() ? std::string(plan.name) : fmt::format("{}/{}", plan.name, plan.protocol);
    const std::string next = plan.runners_up.empty() ? ""
                                                     : fmt::format("{} {:.1f}", plan.runners_up[0].algorithm,
                                                                   plan.runners_up[0].microseconds);
    fmt::print("{:>12}  {:<32} {:>12.1f} {:>10} {:>14} {:>14}  {}\n", bytes, name, plan.estimate.microseconds,
               plan.estimate.messages, plan.estimate.bytes_sent, plan.estimate.bytes_between_hosts, next);
  }
}

/// Prints the plan that `explain` asks for. Throws std::invalid_argument or Error with a text of one line.
void answer(const ExplainOptions& question) {
  Request request;
  request.collective = named("collective", question.collective, kCollectives);
  request.type = named("--type", question.type, kDataTypes);
  request.op = named("--op", question.op, kOps);
  request.root = question.root;
  request.deterministic = question.deterministic;
  request.codec = codec_named(question.wire, request.type);
  request.force = question.force;
  request.backend = question.backend;
  check_op(request.collective, request.type, request.op);
  if (question.root >= question.ranks) {
    throw std::invalid_argument(fmt::format("--root {}; valid: 0 to {}", question.root, question.ranks - 1));
  }
  const auto bytes = parse_bytes(question.bytes);
  if (!bytes) {
    throw std::invalid_argument(
        fmt::format("--bytes '{}' is no size; valid: whole bytes, or with K, M, G: 0, 8, 64K, 1M", question.bytes));
  }
  const int per_host = question.ranks_per_host > 0 ? question.ranks_per_host : question.ranks;
  Topology topology = Topology::regular(question.ranks, per_host, question.cores_per_host);
  if (question.domains > 1) {
    if (!topology.one_host() || question.ranks % question.domains != 0 || question.ranks / question.domains < 2)
      throw std::invalid_argument(
          fmt::format("--domains {}; valid: on one host, what divides its {} ranks into equal parts of two or more",
                      question.domains, question.ranks));
    for (Rank rank = 0; rank < question.ranks; ++rank)
      topology.domains.push_back(rank / (question.ranks / question.domains));
  }
  if (question.cores_together > 0) {
    if (topology.one_host())
      throw std::invalid_argument("--cores-together is about several hosts; valid: with --ranks-per-host");
    topology.machines.assign(topology.hosts.size(), 0);
    topology.machine_cores = {question.cores_together};
  }
  const TuningParameters tuning = given_tuning({}).value_or(TuningParameters{});
  if (question.sizes) return print_sizes(request, topology, tuning);
  request.count = *bytes / size_of(request.type);
  fmt::print("{}", explain(choose_plan(request, topology, tuning), request, topology));
}

int run(int argc, char** argv) {
  try {
    const std::optional<Arguments> arguments = parse_arguments(argc, argv);
    if (!arguments) return 0;
    resolve_options({});
    given_tuning({});
    switch (arguments->command) {
      case Command::explain: answer(arguments->explain); break;
      case Command::simulate: answer(arguments->simulate); break;
      case Command::watch: answer(arguments->watch); break;
      case Command::none:
        if (arguments->json) {
          fmt::print("{}\n", json_text(everything(), 2));
        } else {
          print(everything());
        }
    }
  } catch (const std::exception& error) {
    std::string line = error.what();
    std::ranges::replace(line, '\n', ' ');
    fmt::print(stderr, "collectives_info: {}\n", line);
    return 2;
  }
  return 0;
}

}  // namespace
}  // namespace collectives

int main(int argc, char** argv) { return collectives::run(argc, argv); }
