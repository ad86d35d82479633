// Main function of collectives_run, which starts N ranks of a program on this host, without MPI.
//
//   collectives_run -n 4 ./trainer --epochs 3
//
// Each rank is a process in a process group of its own. Its environment holds RANK, WORLD_SIZE, LOCAL_RANK,
// LOCAL_WORLD_SIZE, MASTER_ADDR, MASTER_PORT and COLLECTIVES_JOB. The launcher opens the port MASTER_PORT itself. Rank
// 0 inherits the listening socket (COLLECTIVES_LISTEN_FD), so no other process can take the port before rank 0 uses it.
//
// After a failure, the launcher prints the number of the rank that failed first. The other ranks have a limited time,
// the grace (`--grace`), to report the failure and end. After the grace, the launcher ends the remaining ranks.
//
// The launcher forwards SIGINT and SIGTERM to the ranks. It kills the remaining ranks after the grace, even stopped
// ones. A second SIGINT kills all ranks at once. If the launcher itself is killed, a guard process kills all ranks.
#include <exception>

#include "tools/run/arguments.hpp"
#include "tools/run/launcher.hpp"
#include "tools/run/output.hpp"

int main(int argc, char** argv) {
  using namespace collectives::run;
  const Arguments arguments = parse(argc, argv);
  try {
    return launch(arguments);
  } catch (const std::exception& error) {
    say(error.what());
    return 1;
  }
}
