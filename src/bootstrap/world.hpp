// What the environment says about this process's place among the ranks: a plain value, found by a pure function.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>

#include "collectives/types.hpp"

namespace collectives {

struct World {
  Rank rank = 0;
  int size = 1;
  std::string address;  ///< where rank 0 listens: host name or IP address; empty when size is 1
  int port = 0;         ///< 0 when size is 1
  std::string source;   ///< who said so: "RANK", "TF_CONFIG", "Open MPI", "PMI", "Slurm", "nobody"
};

using Variables = std::map<std::string, std::string, std::less<>>;

/// The first complete description among
///
///   RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT   Under torchrun, whose agent itself sits on MASTER_PORT
///                                                (TORCHELASTIC_USE_AGENT_STORE=True), the port is the one above it.
///   TF_CONFIG                                    {"cluster": {"chief": [...], "worker": [...]}, "task": {...}}
///                                                Rank 0 is the chief, or worker 0 when there is none; it listens at
///                                                the address the cluster gives it.
///   OMPI_COMM_WORLD_RANK, OMPI_COMM_WORLD_SIZE   Open MPI
///   PMI_RANK, PMI_SIZE                           MPICH and its kin
///   SLURM_PROCID, SLURM_NTASKS                   srun
///
/// The last three do not say where to meet: MASTER_ADDR and MASTER_PORT do if set. If not, ranks of one host meet at
/// 127.0.0.1, ranks of a Slurm step on its first host, at a port that the job's id decides (15000 to 29999).
/// `port` (COLLECTIVES_PORT) comes before any other; `parent` is the parent's process id, which stands for the job
/// where PMI names none. With no description at all the process is alone: rank 0 of 1. Throws Error{bootstrap} in one
/// line naming the variable or key at fault.
World world_of(const Variables& variables, std::optional<int> port, long parent);

}  // namespace collectives
