// Exported functions of libcollectives_ucx. They have C names, because the core library looks them up at run time
// (ucx_loader.hpp). It therefore also runs without UCX.
#pragma once

#include <cstddef>

#include "collectives/export.hpp"

namespace collectives {
class Network;
}

extern "C" {
/// Returns the version of the library; it must be the version of the core.
COLLECTIVES_EXPORT const char* collectives_ucx_version();
/// Returns a new UcxNetwork, which the caller deletes. Returns null if UCX cannot be started, and writes the reason to
/// `why_not` in at most `bytes` bytes.
COLLECTIVES_EXPORT collectives::Network* collectives_ucx_network(char* why_not, std::size_t bytes);
/// Returns UcxWorker::has_fast_device() as 0 or 1; 0 if it throws.
COLLECTIVES_EXPORT int collectives_ucx_has_fast_device();
}
