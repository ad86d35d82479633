// Finds the NUMA domain of a rank. A domain is a set of cores that share a last-level cache and a memory node. The
// library hwloc provides these facts about the machine. Copies inside a domain are faster than copies between domains.
#pragma once

#include <string>
#include <vector>

namespace collectives {

/// Returns the name of the domain of the calling thread, such as "L3 1, NUMA node 0". Returns an empty string if the
/// thread may run in several domains, or if the machine has only one. In a build without hwloc, always returns an empty
/// string. Reads /sys, which takes some milliseconds on a large machine.
std::string domain_of_this_thread();

/// Returns the name of the domain of a thread that may run on `cores` of a synthetic machine, for tests. `machine`
/// describes that machine in hwloc's notation, such as "package:2 l3:2 core:4 pu:1". Throws Error{invalid_argument} if
/// hwloc does not understand `machine`, and Error{unsupported} without hwloc.
std::string domain_on(const std::string& machine, const std::vector<unsigned>& cores);

}  // namespace collectives
