// What nobody else can guess. std::random_device would ask the processor what it is, every time it is made, which under
// a hypervisor takes tens of microseconds.
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
