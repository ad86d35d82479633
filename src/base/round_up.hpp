// Function that rounds a number of bytes up to a multiple of an alignment.
#pragma once

#include <cstddef>

namespace collectives {

constexpr std::size_t round_up(std::size_t bytes, std::size_t to) { return (bytes + to - 1) / to * to; }

}  // namespace collectives
