// Implementation of Topology, the list of hosts with the ranks of each host. Some functions make a topology from
// numbers of ranks or from host names. Other functions return properties of a topology, or describe it as text.
#include "collectives/topology.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <unordered_map>

#include "collectives/error.hpp"

namespace collectives {

Topology Topology::regular(int ranks, int ranks_per_host, int cores_per_host) {
  if (ranks < 1 || ranks_per_host < 1) {
    throw Error(Errc::invalid_argument,
                fmt::format("a topology of {} ranks, {} to a host: both must be at least 1", ranks, ranks_per_host));
  }
  Topology topology{.hosts = {}, .cores_per_host = cores_per_host};
  for (Rank rank = 0; rank < ranks; ++rank) {
    if (rank % ranks_per_host == 0) topology.hosts.emplace_back();
    topology.hosts.back().push_back(rank);
  }
  return topology;
}

Topology Topology::from_hosts(const std::vector<std::string>& names, int cores_per_host) {
  Topology topology{.hosts = {}, .cores_per_host = cores_per_host};
  std::unordered_map<std::string_view, std::size_t> host_of;
  for (std::size_t rank = 0; rank < names.size(); ++rank) {
    const auto [entry, is_new] = host_of.try_emplace(names[rank], topology.hosts.size());
    if (is_new) topology.hosts.emplace_back();
    topology.hosts[entry->second].push_back(static_cast<Rank>(rank));
  }
  return topology;
}

int Topology::ranks_of_machine(int machine) const noexcept {
  std::size_t ranks = 0;
  for (std::size_t h = 0; h < machines.size(); ++h)
    if (machines[h] == machine) ranks += hosts[h].size();
  return static_cast<int>(ranks);
}

double Topology::ranks_to_a_core() const noexcept {
  double most = 1;
  for (std::size_t m = 0; m < machine_cores.size(); ++m)
    if (machine_cores[m] > 0)
      most = std::max(most, static_cast<double>(ranks_of_machine(static_cast<int>(m))) / machine_cores[m]);
  return most;
}

std::vector<std::vector<Rank>> Topology::levels() const {
  if (!one_host() || domains.size() != hosts[0].size()) return {};
  std::vector<std::vector<Rank>> by_domain;
  for (const Rank rank : hosts[0]) {
    const auto domain = static_cast<std::size_t>(domains[static_cast<std::size_t>(rank)]);
    if (by_domain.size() <= domain) by_domain.resize(domain + 1);
    by_domain[domain].push_back(rank);
  }
  const auto fits = [&](const std::vector<Rank>& one) { return one.size() > 1 && one.size() == by_domain[0].size(); };
  return by_domain.size() > 1 && std::ranges::all_of(by_domain, fits) ? by_domain : std::vector<std::vector<Rank>>{};
}

std::string to_string(const Topology& topology) {
  const int ranks = topology.ranks();
  if (ranks == 1) return "1 rank";
  if (const auto levels = topology.levels(); !levels.empty())
    return fmt::format("{} ranks (1 host, {} domains x {})", ranks, levels.size(), levels.front().size());
  if (topology.one_host()) return fmt::format("{} ranks (1 host)", ranks);
  std::vector<std::size_t> sizes;
  std::ranges::transform(topology.hosts, std::back_inserter(sizes), &std::vector<Rank>::size);
  const bool alike = !sizes.empty() && std::ranges::adjacent_find(sizes, std::ranges::not_equal_to{}) == sizes.end();
  std::string text = alike ? fmt::format("{} ranks ({} hosts x {}", ranks, sizes.size(), sizes.front())
                           : fmt::format("{} ranks ({} hosts: {}", ranks, sizes.size(), fmt::join(sizes, " + "));
  if (const std::size_t machines = topology.machine_cores.size(); machines > 0)
    text += fmt::format(" on {} machine{} of {} cores", machines, machines == 1 ? "" : "s",
                        fmt::join(topology.machine_cores, " + "));
  return text + ')';
}

}  // namespace collectives
