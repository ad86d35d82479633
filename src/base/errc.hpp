// Conversion of a number to an error code. The number may come from a peer, so it may be no code.
#pragma once

#include <cstdint>

#include "collectives/error.hpp"

namespace collectives {

/// Returns whether the number is the value of an Errc.
constexpr bool is_errc(std::int64_t number) noexcept {
  return number >= static_cast<std::int64_t>(Errc::invalid_argument) && number <= static_cast<std::int64_t>(Errc::system);
}

/// Returns the code with this number, or Errc::bootstrap if there is none.
constexpr Errc errc_of(std::int64_t number) noexcept {
  return is_errc(number) ? static_cast<Errc>(number) : Errc::bootstrap;
}

}  // namespace collectives
