// Random number of 64 bits that other processes cannot guess.
//
// std::random_device is not used, because its constructor queries the processor's identity. The query takes tens of
// microseconds under a hypervisor.
#pragma once

#include <sys/random.h>

#include <cstdint>

#include "collectives/error.hpp"

namespace collectives {

inline std::uint64_t random_word() {
  std::uint64_t word = 0;
  if (::getrandom(&word, sizeof word, 0) != sizeof word) throw Error(Errc::system, "getrandom");
  return word;
}

}  // namespace collectives
