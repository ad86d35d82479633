// What libcollectives_ucx exports: C names, found by the core library at run time, so that it runs without UCX too.
#pragma once

#include <cstddef>

#include "collectives/export.hpp"

namespace collectives {
class Network;
}

extern "C" {
/// The version of the library it belongs to, which must be that of the core.
COLLECTIVES_EXPORT const char* collectives_ucx_version();
/// A new UcxNetwork, which the caller deletes; null, and why in up to `bytes` bytes, where UCX cannot be started.
COLLECTIVES_EXPORT collectives::Network* collectives_ucx_network(char* why_not, std::size_t bytes);
/// UcxWorker::has_fast_device(): 0 or 1.
COLLECTIVES_EXPORT int collectives_ucx_has_fast_device();
}
