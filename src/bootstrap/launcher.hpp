// Number of processes that the launcher of this process has started, as mpirun and srun state it in variables. The
// bootstrap over MPI compares it with the number of ranks of MPI.
#pragma once

#include <optional>

namespace collectives {

struct LauncherSize {
  const char* variable;  ///< Variable that states the number.
  int processes;
};

/// Returns the launcher that has started several processes. Returns nothing if there is none, or if another launcher
/// has started this process alone: a launcher may run inside another one.
std::optional<LauncherSize> launcher_of_several();

}  // namespace collectives
