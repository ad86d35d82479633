// Random number of 64 bits from the kernel, which other processes cannot guess.
//
// This file does not use std::random_device. The constructor of that class executes an instruction that identifies the
// processor. Under a hypervisor, this instruction takes tens of microseconds.
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
