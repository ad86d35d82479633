// Topology: states which ranks run on which host, and which caches, cores and GPUs the ranks have. A host is a set of
// ranks that share memory. A communicator determines its topology at construction. A program can also make a topology,
// for example to plan a call for other machines.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "collectives/export.hpp"
#include "collectives/types.hpp"

namespace collectives {

/// Hosts, domains, machines and GPUs of the ranks.
struct Topology {
  /// Ranks of each host in ascending order. The hosts are in the order of their lowest rank.
  std::vector<std::vector<Rank>> hosts;
  /// Number of cores that the ranks of one host may use together: the minimum over all hosts. 0 if unknown.
  int cores_per_host = 0;
  /// Number of each rank's domain, if there is one host. Ranks of one domain share a cache or the memory of a socket.
  /// Domains are numbered from 0 in the order of first appearance. Empty if there is one domain, if domains are
  /// unknown, or if there are several hosts.
  std::vector<int> domains = {};
  /// Number of each host's machine. Hosts may be containers or namespaces of one machine. Hosts of one machine share
  /// its cores. Machines are numbered from 0 in the order of first appearance. Empty if every host is a machine of its
  /// own.
  std::vector<int> machines = {};
  /// Number of cores that the ranks of each machine may use together.
  std::vector<int> machine_cores = {};

  /// Properties of the ranks' GPUs, equal on all ranks.
  struct Gpus {
    bool everywhere = false;   ///< True: every rank has a GPU.
    bool peer_access = false;  ///< True: the GPUs of each host can access one another's memory.
    bool nccl = false;         ///< True: NCCL connects all ranks.
    /// True: NCCL connects the ranks of each host. Determined only if every rank has a GPU, `peer_access` is false,
    /// and one of several hosts has several ranks.
    bool nccl_in_hosts = false;
    std::string missing = {};  ///< Rank without a GPU, and the reason. Empty if every rank has one.
    std::string apart = {};  ///< Ranks whose GPUs cannot access one another's memory, and the reason. Empty if all can.
    std::string no_nccl = {};  ///< Reason why NCCL does not connect all ranks. Empty if it does.
    /// Reason why NCCL does not connect the ranks of each host. Empty if it does, or if that was not determined.
    std::string no_nccl_in_hosts = {};
    bool operator==(const Gpus&) const = default;
  };
  Gpus gpus = {};

  int ranks() const noexcept {
    std::size_t total = 0;
    for (const auto& host : hosts) total += host.size();
    return static_cast<int>(total);
  }
  bool one_host() const noexcept { return hosts.size() == 1; }
  /// Returns the ranks of each domain in ascending order. Empty unless there are at least two domains with equal
  /// numbers of ranks, and with at least two ranks each.
  COLLECTIVES_EXPORT std::vector<std::vector<Rank>> levels() const;
  /// Returns true if host h, or the machine that it shares with other hosts, has more ranks than cores.
  bool oversubscribed(std::size_t h) const noexcept {
    return (cores_per_host > 0 && hosts[h].size() > static_cast<std::size_t>(cores_per_host)) ||
           machine_oversubscribed(h);
  }
  /// Returns true if the machine that host h shares with other hosts has more ranks than cores.
  bool machine_oversubscribed(std::size_t h) const noexcept {
    return !machines.empty() && ranks_of_machine(machines[h]) > machine_cores[static_cast<std::size_t>(machines[h])];
  }
  /// Returns the number of ranks on all hosts of `machine`.
  COLLECTIVES_EXPORT int ranks_of_machine(int machine) const noexcept;
  /// Returns the maximum number of ranks per core over the machines that hosts share. Returns 1 if none has more ranks
  /// than cores.
  COLLECTIVES_EXPORT double ranks_to_a_core() const noexcept;
  bool operator==(const Topology&) const = default;

  /// Returns a topology of `ranks` ranks with `ranks_per_host` ranks per host, numbered host by host. The last host may
  /// have fewer.
  COLLECTIVES_EXPORT static Topology regular(int ranks, int ranks_per_host, int cores_per_host = 0);
  /// Returns the topology in which ranks with equal host names share a host. names[r] is the host of rank r.
  COLLECTIVES_EXPORT static Topology from_hosts(const std::vector<std::string>& names, int cores_per_host);
};

/// Returns a description: "8 ranks (2 hosts x 4)".
COLLECTIVES_EXPORT std::string to_string(const Topology&);

}  // namespace collectives
