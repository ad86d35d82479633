// Running the same loops with every instruction set, which must change nothing but the time.
#pragma once

#include <cstdint>
#include <vector>

#include "reduction/dispatch.hpp"
// Highway asks to know first which instruction sets to do without.
#include <hwy/targets.h>

namespace collectives {

/// The instruction sets that the library was compiled for and this processor has, one bit each; the plainest last.
inline std::vector<std::int64_t> instruction_sets() {
  std::vector<std::int64_t> sets;
  for (std::int64_t left = (hwy::SupportedTargets() | HWY_STATIC_TARGET) & HWY_TARGETS; left != 0; left &= left - 1) {
    sets.push_back(left & -left);
  }
  return sets;
}

/// Zero for what the processor is best at.
inline void use_instruction_set(std::int64_t set) {
  hwy::SetSupportedTargetsForTest(set);
  hwy::GetChosenTarget().DeInit();
}

}  // namespace collectives
