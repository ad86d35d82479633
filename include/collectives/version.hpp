// Version of the library.
#pragma once

#include <string_view>

#include "collectives/export.hpp"

namespace collectives {

/// Returns the version of the loaded library as major.minor.patch, such as "0.2.0".
COLLECTIVES_EXPORT std::string_view version() noexcept;

}  // namespace collectives
