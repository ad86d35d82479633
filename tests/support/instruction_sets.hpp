// Helpers for tests that run vector loops with every instruction set of this processor. The results must be equal.
#pragma once

#include <cstdint>
#include <vector>

#include "reduction/dispatch.hpp"
// Included second, because Highway needs dispatch.hpp's list of unwanted instruction sets first.
#include <hwy/targets.h>

namespace collectives {

/// Returns the instruction sets that the library was compiled for and this processor has, one bit each. The last one is
/// the simplest.
inline std::vector<std::int64_t> instruction_sets() {
  std::vector<std::int64_t> sets;
  for (std::int64_t left = (hwy::SupportedTargets() | HWY_STATIC_TARGET) & HWY_TARGETS; left != 0; left &= left - 1) {
    sets.push_back(left & -left);
  }
  return sets;
}

/// Makes the loops use an instruction set. Zero stands for the best one of the processor.
inline void use_instruction_set(std::int64_t set) {
  hwy::SetSupportedTargetsForTest(set);
  hwy::GetChosenTarget().DeInit();
}

}  // namespace collectives
