// In which domain of its host a rank runs: the last-level cache and the memory that its cores share, as hwloc knows
// them.
#pragma once

#include <string>
#include <vector>

namespace collectives {

/// A name that is equal for ranks of one domain: "L3 1, NUMA node 0". Empty when the calling thread may run in several,
/// when the machine has one only, and when the library was built without hwloc. Reads /sys; some milliseconds on a
/// large machine.
std::string domain_of_this_thread();

/// The same for a thread on `cores` of a made-up machine, in hwloc's synthetic notation: "package:2 l3:2 core:4 pu:1".
/// Throws Error{invalid_argument} when hwloc does not understand it, Error{unsupported} without hwloc.
std::string domain_on(const std::string& machine, const std::vector<unsigned>& cores);

}  // namespace collectives
