// Finds the NUMA domain of a rank: the last-level cache and the memory node that its cores share, according to hwloc.
#pragma once

#include <string>
#include <vector>

namespace collectives {

/// Returns a name that is equal for ranks of one domain, such as "L3 1, NUMA node 0". Returns an empty string if the
/// calling thread may run in several domains, or if the machine has only one domain. Without hwloc the string is always
/// empty. Reads /sys, which takes some milliseconds on a large machine.
std::string domain_of_this_thread();

/// Returns the name for a thread on `cores` of a synthetic machine. `machine` is in hwloc's notation, such as
/// "package:2 l3:2 core:4 pu:1". Throws Error{invalid_argument} if hwloc does not understand `machine`, and
/// Error{unsupported} without hwloc.
std::string domain_on(const std::string& machine, const std::vector<unsigned>& cores);

}  // namespace collectives
