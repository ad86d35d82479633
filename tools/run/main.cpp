// collectives_run: starts N ranks of a program on this host, without MPI.
//
//   collectives_run -n 4 ./trainer --epochs 3
//
// Each rank is a process in a process group of its own, told its place by RANK, WORLD_SIZE, LOCAL_RANK,
// LOCAL_WORLD_SIZE, MASTER_ADDR and MASTER_PORT. The port cannot be taken by somebody else in between: the launcher
// itself opens it and rank 0 inherits the listening socket (COLLECTIVES_LISTEN_FD).
//
// When a rank fails it is named, the others have `--grace` to report it themselves and end, then they are ended. Ranks
// never outlive the launcher: should it be killed, a guard process that notices kills their groups.
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
