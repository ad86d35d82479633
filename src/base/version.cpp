#include "collectives/version.hpp"

namespace collectives {

std::string_view version() noexcept { return COLLECTIVES_VERSION; }

}  // namespace collectives
