// Loader: loads the shared library libcollectives_ucx at run time. This library is the only part of the project that is
// linked to UCX. The core library is not linked to UCX, so the same binary runs on machines with and without UCX.
//
// Price: the core library cannot be a static library, because libcollectives_ucx and the program must use the same copy
// of the core library.
#pragma once

#include <memory>
#include <string>

#include "base/component.hpp"
#include "transport/network.hpp"

namespace collectives {

/// Returns a network over UCX. If UCX cannot be used, returns null and stores the reason in `why_not`. Looks for
/// libcollectives_ucx in `directory`, by default the folder of the core library. If it is not there, looks in the
/// system's library folders. The library stays loaded. The first call takes about 10 ms, later ones 2 ms.
std::unique_ptr<Network> load_ucx_network(std::string& why_not, const std::string& directory = own_directory());

/// Returns whether UCX is available and finds a network device that it drives without the kernel, such as InfiniBand.
/// Without such a device, UCX is slower than TCP. Writes the reason to `why_not` if the result is false. Takes some
/// milliseconds.
bool ucx_has_fast_device(std::string& why_not, const std::string& directory = own_directory());

}  // namespace collectives
