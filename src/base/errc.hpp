// Conversion of a number to an error code (Errc). The number may come from another process, so it may be no valid code.
#pragma once

#include <cstdint>

#include "collectives/error.hpp"

namespace collectives {

/// Returns whether the number is the value of an Errc.
constexpr bool is_errc(std::int64_t number) noexcept {
  return number >= static_cast<std::int64_t>(Errc::invalid_argument) &&
         number <= static_cast<std::int64_t>(Errc::system);
}

/// Returns the error code with this number, or Errc::bootstrap if no code has this number.
constexpr Errc errc_of(std::int64_t number) noexcept {
  return is_errc(number) ? static_cast<Errc>(number) : Errc::bootstrap;
}

}  // namespace collectives
