// World: rank and number of ranks of this process, and the address of rank 0. The function world_of() finds them in the
// environment variables that launchers set. The function gets the variables as an argument, so that tests can pass any
// variables.
#pragma once

#include <optional>
#include <string>

#include "bootstrap/job.hpp"
#include "collectives/types.hpp"

namespace collectives {

struct World {
  Rank rank = 0;
  int size = 1;
  std::string address = {};  ///< Host name or IP address at which rank 0 listens; empty if size is 1.
  int port = 0;              ///< Port at which rank 0 listens; 0 if size is 1.
  std::string source = {};   ///< Source of these values: "RANK", "TF_CONFIG", "Open MPI", "PMI", "Slurm" or "nobody".
  Job job = {};              ///< Names of the job; world_of() does not set the user.
  std::string hint = {};  ///< Probable cause if other ranks do not come, such as "started without srun?"; may be empty.
};

/// Returns the first complete description among these variables:
///
///   RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT   Under torchrun (TORCHELASTIC_USE_AGENT_STORE=True) the agent
///                                                uses MASTER_PORT; rank 0 listens at the next port.
///   TF_CONFIG                                    {"cluster": {"chief": [...], "worker": [...]}, "task": {...}}
///                                                Rank 0 is the chief, or worker 0 if there is no chief. It listens
///                                                at its address in the cluster.
///   OMPI_COMM_WORLD_RANK, OMPI_COMM_WORLD_SIZE   Open MPI
///   PMI_RANK, PMI_SIZE                           MPICH and MPIs derived from it
///   SLURM_PROCID, SLURM_NTASKS                   srun
///
/// The variables of the last three launchers contain no address. MASTER_ADDR and MASTER_PORT are used if they are set.
/// Without MASTER_ADDR, rank 0 listens at 127.0.0.1 if all ranks are on one host. On several hosts, rank 0 listens at
/// the first host of a Slurm step, and the other two launchers require MASTER_ADDR. Without MASTER_PORT, the port is
/// computed from the id of the job (15000 to 29999).
///
/// `port` (COLLECTIVES_PORT) replaces any other port. `parent` is the process id of the parent. It replaces the id of
/// the job if PMI names none. Without any description the result is rank 0 of 1. Throws Error{bootstrap} with one line
/// that names the variable or key at fault.
World world_of(const Variables& variables, std::optional<int> port, long parent);

}  // namespace collectives
