// One rank of a program that tests of launchers start. It connects to the other ranks by the variables of the launcher,
// and prints their numbers:
//
//   bootstrap_probe            "2 of 4 met 0123", exit status 0
//   bootstrap_probe --lose 2   then rank 2 kills itself; the others print the Error they get, exit status 3
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>

#include "collectives/bootstrap.hpp"
#include "collectives/error.hpp"

int main(int argc, char** argv) {
  using namespace collectives;
  const int lost = argc == 3 && std::string_view(argv[1]) == "--lose" ? std::atoi(argv[2]) : kNoRank;
  try {
    const auto bootstrap = bootstrap_from_environment(std::chrono::minutes(1));
    const Deadline deadline = Deadline::in(std::chrono::minutes(1));
    std::string gathered;
    for (const auto& rank : bootstrap->all_gather(std::to_string(bootstrap->rank()), deadline)) gathered += rank;
    std::printf("%d of %d met %s\n", bootstrap->rank(), bootstrap->size(), gathered.c_str());
    std::fflush(stdout);
    if (lost == kNoRank) return 0;
    if (bootstrap->rank() == lost) std::raise(SIGKILL);
    bootstrap->all_gather("still here", deadline);
    return 0;
  } catch (const Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 3;
  }
}
