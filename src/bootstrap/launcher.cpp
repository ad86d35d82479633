// Implementation of launcher_of_several(), which finds out how many processes the launcher of this process has started.
// The function reads the environment variables of Open MPI, of MPIs that use PMI, and of Slurm.
#include "bootstrap/launcher.hpp"

#include <cstdlib>

namespace collectives {

std::optional<LauncherSize> launcher_of_several() {
  std::optional<LauncherSize> several;
  for (const char* const variable : {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_STEP_NUM_TASKS"}) {
    const char* const text = std::getenv(variable);
    const int processes = text == nullptr ? 0 : std::atoi(text);
    if (processes == 1) return std::nullopt;
    if (processes > 1 && !several) several = LauncherSize{variable, processes};
  }
  return several;
}

}  // namespace collectives
