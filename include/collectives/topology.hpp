// Who shares a host with whom: a plain value. Finding it out is the bootstrap's business; tests write it as literals.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "collectives/export.hpp"
#include "collectives/types.hpp"

namespace collectives {

struct Topology {
  /// hosts[h] lists the ranks of host h in ascending order; hosts are in order of their lowest rank.
  std::vector<std::vector<Rank>> hosts;
  /// Cores that the ranks of one host may use together (the fewest of any host); 0 if unknown.
  int cores_per_host = 0;
  /// On one host: the domain that each rank runs in, a cache or memory that it shares with the others of that number,
  /// counted from 0 in order of first appearance. Empty if there is one, if nobody knows, and with several hosts.
  std::vector<int> domains = {};
  /// Hosts may be containers or namespaces of one machine, and share its cores: machines[h] is that of host h, counted
  /// from 0 in order of first appearance. Empty if every host is a machine.
  std::vector<int> machines = {};
  /// Cores that the ranks of each machine may use together.
  std::vector<int> machine_cores = {};

  /// What all ranks know of their GPUs, since they met.
  struct Gpus {
    bool everywhere = false;            ///< every rank has one
    bool within_reach = false;          ///< and those of a host reach one another's memory
    bool nccl = false;                  ///< and NCCL connects them
    bool nccl_in_hosts = false;         ///< or those of each host, on several hosts where they are not within reach
    std::string missing = {};           ///< who has none and why, in words; empty where everybody has one
    std::string apart = {};             ///< who does not reach whom and why; empty where all do
    std::string no_nccl = {};           ///< why NCCL does not connect them; empty where it does
    std::string no_nccl_in_hosts = {};  ///< nor those of each host, where that would be of use
    bool operator==(const Gpus&) const = default;
  };
  Gpus gpus = {};

  int ranks() const noexcept {
    std::size_t total = 0;
    for (const auto& host : hosts) total += host.size();
    return static_cast<int>(total);
  }
  bool one_host() const noexcept { return hosts.size() == 1; }
  /// Ranks by domain, ascending, where two levels make sense: at least two domains, each with equally many ranks and at
  /// least two. Empty otherwise.
  COLLECTIVES_EXPORT std::vector<std::vector<Rank>> levels() const;
  /// Whether host h, or the machine that it shares with others, has more ranks than cores.
  bool oversubscribed(std::size_t h) const noexcept {
    return (cores_per_host > 0 && hosts[h].size() > static_cast<std::size_t>(cores_per_host)) ||
           machine_oversubscribed(h);
  }
  /// Whether the machine that host h shares with others has more ranks than cores.
  bool machine_oversubscribed(std::size_t h) const noexcept {
    return !machines.empty() && ranks_of_machine(machines[h]) > machine_cores[static_cast<std::size_t>(machines[h])];
  }
  /// Ranks on all hosts of that machine.
  COLLECTIVES_EXPORT int ranks_of_machine(int machine) const noexcept;
  /// Of the machines that hosts share, the most ranks to a core; 1 where none has more ranks than cores.
  COLLECTIVES_EXPORT double ranks_to_a_core() const noexcept;
  bool operator==(const Topology&) const = default;

  /// `ranks` ranks, `ranks_per_host` to a host (the last may have fewer), numbered host by host.
  COLLECTIVES_EXPORT static Topology regular(int ranks, int ranks_per_host, int cores_per_host = 0);
  /// Groups ranks by equal host names: names[r] is the host of rank r.
  COLLECTIVES_EXPORT static Topology from_hosts(const std::vector<std::string>& names, int cores_per_host);
};

/// "8 ranks (2 hosts x 4)"
COLLECTIVES_EXPORT std::string to_string(const Topology&);

}  // namespace collectives
