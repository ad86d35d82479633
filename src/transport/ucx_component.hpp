// Functions that libcollectives_ucx exports. This shared library is the only part of the project that is linked to UCX.
// The core library loads libcollectives_ucx at run time, and finds the functions by their C names (ucx_loader.hpp). The
// core library therefore also runs on machines without UCX.
#pragma once

#include <cstddef>

#include "collectives/export.hpp"

namespace collectives {
class Network;
}

extern "C" {
/// Returns the version of libcollectives_ucx, which must be that of the core library.
COLLECTIVES_EXPORT const char* collectives_ucx_version();
/// Returns a new UcxNetwork, which the caller deletes. Returns null if UCX cannot be started, and writes the reason to
/// `why_not` in at most `bytes` bytes.
COLLECTIVES_EXPORT collectives::Network* collectives_ucx_network(char* why_not, std::size_t bytes);
/// Returns whether UCX finds a fast network device (1 or 0). Calls UcxWorker::has_fast_device(). If that function
/// throws, returns 0.
COLLECTIVES_EXPORT int collectives_ucx_has_fast_device();
}
