// Implementation of the host map, which tells which ranks share a host. Each rank sends a description of itself to all
// ranks: the name of its host, its cores and its NUMA domain. From these descriptions, each rank computes the map.
#include "topology/host_map.hpp"

#include <fmt/format.h>
#include <sched.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstdint>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

#include "base/environment.hpp"
#include "base/error_text.hpp"
#include "base/sealed_file.hpp"
#include "collectives/error.hpp"
#include "topology/domain.hpp"

namespace collectives {
namespace {

using nlohmann::json;

/// Returns the first line of a file in /proc or /sys. Throws Error{system} if the file cannot be read.
std::string first_line(const char* path) {
  std::ifstream file(path);
  std::string line;
  if (!std::getline(file, line)) throw Error(Errc::system, fmt::format("opening {}: {}", path, error_text(errno)));
  return line;
}

std::string inode_of(const char* path) {
  struct stat status {};
  return ::stat(path, &status) == 0 ? std::to_string(status.st_ino) : "?";
}

/// Returns the name of this rank's host. Ranks with equal names share an arena, the shared memory of a host. The
/// bootstrap or COLLECTIVES_HOST_ID may set the name. Otherwise the name identifies the kernel and three namespaces.
/// PID and user namespace must be equal, because ranks open the arena through /proc. The network namespace is included,
/// because tests use one network namespace per host. If ranks must not use shared memory, the name also contains the
/// number of the rank, so that no two ranks share a name.
std::string host_name(const Bootstrap& bootstrap, const Environment& settings, std::string_view transport) {
  std::string name = bootstrap.host();
  if (name.empty() && settings.host_id) name = *settings.host_id;
  if (name.empty())
    name = first_line("/proc/sys/kernel/random/boot_id") + ':' + inode_of("/proc/self/ns/pid") + ':' +
           inode_of("/proc/self/ns/user") + ':' + inode_of("/proc/self/ns/net");
  if (!transport.empty() && transport != "shared_memory")
    name += fmt::format(":rank {}", bootstrap.rank());  // every rank gets a host of its own
  return name;
}

/// Returns the name of this rank's NUMA domain. The bootstrap or COLLECTIVES_DOMAIN may set the name. Otherwise the
/// library hwloc finds the domain. With fewer than four ranks, the name stays empty, because algorithms with domains
/// need at least two domains of two ranks.
std::string domain_name(const Bootstrap& bootstrap, const Environment& settings) {
  std::string name = bootstrap.domain();
  if (name.empty() && settings.domain) name = *settings.domain;
  return name.empty() && bootstrap.size() >= 4 ? domain_of_this_thread() : name;
}

std::vector<int> affinity() {
  cpu_set_t set;
  CPU_ZERO(&set);
  std::vector<int> cores;
  if (::sched_getaffinity(0, sizeof set, &set) != 0) return cores;
  for (int core = 0; core < CPU_SETSIZE; ++core)
    if (CPU_ISSET(static_cast<std::size_t>(core), &set)) cores.push_back(core);
  return cores;
}

/// Returns the boot id of the kernel, which all containers of a machine share. Returns an empty string if the id cannot
/// be read.
std::string machine_name() {
  std::ifstream file("/proc/sys/kernel/random/boot_id");
  std::string line;
  std::getline(file, line);
  return line;
}

/// Maximum number of cores of a machine. Linux permits 8192 on x86-64 and 4096 on ARM.
constexpr int kMostCores = 1 << 20;

/// Returns the numbers of the cores that a rank may use. Affinity masks have CPU_SETSIZE cores.
std::vector<int> affinity_of(const JsonRecord& peer_info) {
  return peer_info.integers("affinity", 0, kMostCores, CPU_SETSIZE);
}

/// Returns the number of cores that the ranks of one host may use together. If the ranks have different affinity masks,
/// counts the cores that occur in any mask. The count is at most the sum of the cores of all ranks.
int cores_together(const std::vector<const JsonRecord*>& ranks) {
  std::vector<int> all;
  std::int64_t sum = 0;
  int most = 0;
  bool same = true;
  for (const JsonRecord* rank : ranks) {
    const auto mine = affinity_of(*rank);
    all.insert(all.end(), mine.begin(), mine.end());
    same = same && mine == affinity_of(*ranks.front());
    const int cores = rank->integer("cores", 1, kMostCores);
    sum += cores;
    most = std::max(most, cores);
  }
  if (same) return most;
  std::sort(all.begin(), all.end());
  all.erase(std::unique(all.begin(), all.end()), all.end());
  return static_cast<int>(std::min(sum, static_cast<std::int64_t>(all.size())));
}

/// Finds machines that several hosts share. Containers or namespaces can divide one machine into several hosts. Sets
/// the number of cores of each machine to the sum over its hosts. Limits the sum to the number of different cores in
/// the affinity masks, unless a rank of the machine has COLLECTIVES_CORES. If no two hosts share a machine, the lists
/// of machines stay empty.
void find_machines(Topology& topology, const std::vector<JsonRecord>& peer_infos) {
  std::vector<std::string> names;
  std::vector<std::vector<int>> cores;  // cores of each machine
  std::vector<bool> cores_set;
  for (const auto& members : topology.hosts) {
    std::vector<const JsonRecord*> here;
    for (const Rank rank : members) here.push_back(&peer_infos[static_cast<std::size_t>(rank)]);
    const auto name = here.front()->text("machine");
    const auto found = name.empty() ? names.end() : std::ranges::find(names, name);
    const auto machine = static_cast<std::size_t>(found - names.begin());
    if (found == names.end()) {
      names.push_back(name);
      topology.machine_cores.push_back(0);
      cores.emplace_back();
      cores_set.push_back(false);
    }
    topology.machines.push_back(static_cast<int>(machine));
    topology.machine_cores[machine] += cores_together(here);
    for (const JsonRecord* peer_info : here) {
      const auto mine = affinity_of(*peer_info);
      cores[machine].insert(cores[machine].end(), mine.begin(), mine.end());
      cores_set[machine] = cores_set[machine] || peer_info->boolean("cores_set");
    }
  }
  if (names.size() == topology.hosts.size()) {
    topology.machines.clear();
    topology.machine_cores.clear();
  }
  for (std::size_t machine = 0; machine < topology.machine_cores.size(); ++machine) {
    auto& all = cores[machine];
    std::ranges::sort(all);
    const auto different = static_cast<int>(std::unique(all.begin(), all.end()) - all.begin());
    if (!cores_set[machine]) topology.machine_cores[machine] = std::min(topology.machine_cores[machine], different);
  }
}

/// Returns the number of each rank's domain, for the ranks of one host. Returns an empty list if any rank has no domain
/// name.
std::vector<int> domains_of(const std::vector<JsonRecord>& peer_infos) {
  std::vector<std::string> names;
  std::vector<int> domains;
  for (const JsonRecord& peer_info : peer_infos) {
    const std::string name = peer_info.text("domain");
    if (name.empty()) return {};
    const auto found = std::ranges::find(names, name);
    domains.push_back(static_cast<int>(found - names.begin()));
    if (found == names.end()) names.push_back(name);
  }
  return domains;
}

}  // namespace

json discover_host(const Bootstrap& bootstrap, std::string_view transport) {
  const Environment here = environment();
  return {{"host", host_name(bootstrap, here, transport)},
          {"machine", machine_name()},
          {"domain", domain_name(bootstrap, here)},
          {"affinity", affinity()},
          {"cores", here.cores.value_or(usable_cores())},
          {"cores_set", here.cores.has_value()},
          {"pid", ::getpid()}};
}

Host::Host(const std::vector<Rank>& members, const std::vector<JsonRecord>& peer_infos) : ranks(members) {
  std::vector<const JsonRecord*> theirs;
  for (const Rank rank : ranks) theirs.push_back(&peer_infos[static_cast<std::size_t>(rank)]);
  cores = cores_together(theirs);
  for (const JsonRecord* peer_info : theirs) processes.push_back(peer_info->integer("pid", 0, INT_MAX));
  threads = std::ranges::all_of(processes, [&](int process) { return process == processes.front(); });
}

bool Host::has(Rank rank) const { return std::ranges::find(ranks, rank) != ranks.end(); }

HostMap::HostMap(const std::vector<JsonRecord>& peer_infos) {
  std::vector<std::string> names;
  for (const JsonRecord& peer_info : peer_infos) names.push_back(peer_info.text("host"));
  topology = Topology::from_hosts(names, 0);
  if (topology.one_host())
    topology.domains = domains_of(peer_infos);
  else
    find_machines(topology, peer_infos);
  for (const auto& members : topology.hosts) hosts.emplace_back(members, peer_infos);
  topology.cores_per_host = std::ranges::min(hosts, {}, &Host::cores).cores;
}

const Host& HostMap::host_of(Rank rank) const {
  return *std::ranges::find_if(hosts, [&](const Host& host) { return host.has(rank); });
}

bool HostMap::oversubscribed(Rank rank) const {
  const Host& host = host_of(rank);
  return host.oversubscribed() || topology.machine_oversubscribed(static_cast<std::size_t>(&host - hosts.data()));
}

}  // namespace collectives
