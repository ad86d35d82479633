// Functions that libcollectives_ucx exports. This shared library contains the code that needs UCX. The core library
// loads it at run time, and therefore also runs on machines without UCX.
#include "transport/ucx_component.hpp"

#include <cstdio>
#include <exception>

#include "ucx/ucx.hpp"

const char* collectives_ucx_version() { return COLLECTIVES_VERSION; }

collectives::Network* collectives_ucx_network(char* why_not, std::size_t bytes) {
  try {
    return new collectives::UcxNetwork;
  } catch (const std::exception& error) {
    std::snprintf(why_not, bytes, "%s", error.what());
    return nullptr;
  }
}

int collectives_ucx_has_fast_device() {
  try {
    return collectives::UcxWorker::has_fast_device() ? 1 : 0;
  } catch (const std::exception&) {
    return 0;
  }
}
