// Number of processes that the launcher has started. Launchers such as mpirun and srun set environment variables that
// hold this number. The bootstrap over MPI compares the number with the number of ranks of MPI.
#pragma once

#include <optional>

namespace collectives {

struct LauncherSize {
  const char* variable;  ///< Name of the variable with the number.
  int processes;
};

/// Returns the number of processes if it is above 1. Returns nothing if no launcher states a number, or if any launcher
/// states 1. Reason: a launcher that runs inside another launcher may have started this process alone.
std::optional<LauncherSize> launcher_of_several();

}  // namespace collectives
