// Finds libcollectives_ucx at run time. The core library is not linked to UCX, so one binary runs with it and without.
#pragma once

#include <memory>
#include <string>

#include "base/component.hpp"
#include "transport/network.hpp"

namespace collectives {

/// A network over UCX; null, and why in words, where there is none. The library is looked for in `directory`, then
/// where the system keeps libraries, and stays loaded. Costs some 10 ms the first time, 2 ms later.
std::unique_ptr<Network> load_ucx_network(std::string& why_not, const std::string& directory = own_directory());

/// Whether there is UCX and it finds a network device that it drives past the kernel; where it finds none, it is a
/// detour to TCP. `why_not`: in words, if not. Costs some milliseconds.
bool ucx_has_fast_device(std::string& why_not, const std::string& directory = own_directory());

}  // namespace collectives
