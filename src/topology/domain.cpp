// Implementation of domain_of_this_thread(), which finds the NUMA domain of a thread by the library hwloc. A domain is
// a set of cores that share a last-level cache and a memory node. In a build without hwloc, domain_of_this_thread()
// returns an empty name.
#include "topology/domain.hpp"

#ifdef COLLECTIVES_HAVE_HWLOC
#include <hwloc.h>

#include <memory>
#include <utility>
#endif

#include <fmt/format.h>

#include "collectives/error.hpp"

namespace collectives {

#ifdef COLLECTIVES_HAVE_HWLOC

namespace {

struct Destroy {
  void operator()(hwloc_topology_t topology) const { hwloc_topology_destroy(topology); }
  void operator()(hwloc_bitmap_t set) const { hwloc_bitmap_free(set); }
};
using Machine = std::unique_ptr<hwloc_topology, Destroy>;
using Cores = std::unique_ptr<hwloc_bitmap_s, Destroy>;

/// Loads the description of a machine by hwloc. If `made_up` is null, this is the machine on which the process runs.
/// Otherwise it is a synthetic machine, which `made_up` describes in hwloc's notation. Returns null if hwloc fails.
Machine load(const char* made_up) {
  hwloc_topology_t topology = nullptr;
  if (hwloc_topology_init(&topology) != 0) return nullptr;
  Machine machine(topology);
  if (made_up != nullptr && hwloc_topology_set_synthetic(topology, made_up) != 0) return nullptr;
  return hwloc_topology_load(topology) == 0 ? std::move(machine) : nullptr;
}

std::string domain_in(hwloc_topology_t machine, hwloc_const_bitmap_t cores) {
  std::string name;
  int most = 0;
  for (const auto& [type, word] : {std::pair(HWLOC_OBJ_L3CACHE, "L3"), std::pair(HWLOC_OBJ_NUMANODE, "NUMA node")}) {
    const int count = hwloc_get_nbobjs_by_type(machine, type);
    most = count > most ? count : most;
    for (int i = 0; i < count; ++i) {
      const hwloc_obj_t object = hwloc_get_obj_by_type(machine, type, static_cast<unsigned>(i));
      if (hwloc_bitmap_isincluded(cores, object->cpuset) != 0)
        name += fmt::format("{}{} {}", name.empty() ? "" : ", ", word, i);
      else if (i + 1 == count && name.find(word) == name.npos)
        return {};  // no object of this type contains all cores of the thread, so it may run in several domains
    }
  }
  return most > 1 ? name : std::string();
}

}  // namespace

std::string domain_of_this_thread() {
  const Machine machine = load(nullptr);
  const Cores cores(hwloc_bitmap_alloc());
  if (!machine || !cores || hwloc_get_cpubind(machine.get(), cores.get(), HWLOC_CPUBIND_THREAD) != 0) return {};
  return domain_in(machine.get(), cores.get());
}

std::string domain_on(const std::string& description, const std::vector<unsigned>& cores) {
  const Machine machine = load(description.c_str());
  const Cores set(hwloc_bitmap_alloc());
  if (!machine || !set) throw Error(Errc::invalid_argument, fmt::format("no machine: \"{}\"", description));
  for (const unsigned core : cores) hwloc_bitmap_set(set.get(), core);
  return domain_in(machine.get(), set.get());
}

#else

std::string domain_of_this_thread() { return {}; }
std::string domain_on(const std::string&, const std::vector<unsigned>&) {
  throw Error(Errc::unsupported, "built without hwloc");
}

#endif

}  // namespace collectives
