// Version of the library, as the build sets it.
#include "collectives/version.hpp"

namespace collectives {

std::string_view version() noexcept { return COLLECTIVES_VERSION; }

}  // namespace collectives
