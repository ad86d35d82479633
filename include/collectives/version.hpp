// Which version of the library this is.
#pragma once

#include <string_view>

#include "collectives/export.hpp"

namespace collectives {

/// Of the library that is loaded: "0.1.0", major.minor.patch.
COLLECTIVES_EXPORT std::string_view version() noexcept;

}  // namespace collectives
