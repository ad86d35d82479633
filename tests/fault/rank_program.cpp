// One rank of a program that fails. processes_test starts it. It connects to the other ranks, does what its first
// argument says, and prints the error that it gets in one line on stdout.
//
//   rank_program reduce BYTES          all-reduces and checks; prints "ok"
//   rank_program die RANK SIGNAL       RANK ends by SIGNAL during a loop; the other ranks report
//   rank_program leave RANK            RANK returns from main during a loop
//   rank_program stop RANK             RANK stops during a loop; the other ranks time out after one second
//   rank_program tuning                makes two communicators, one after the other; prints the source of their tuning
//   rank_program die_early RANK US     RANK ends US microseconds after it has joined; the other ranks report
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "collectives/collectives.hpp"

int main(int argc, char** argv) {
  using namespace collectives;
  const std::string what = argc > 1 ? argv[1] : "reduce";
  const int argument = argc > 2 ? std::atoi(argv[2]) : 0;
  const auto began = [] { return std::chrono::steady_clock::now(); };
  auto last = began();
  Rank rank = kNoRank;
  try {
    if (what == "tuning" || what == "die_early") {
      const auto bootstrap = bootstrap_from_environment();
      rank = bootstrap->rank();
      if (what == "die_early" && rank == argument) ::ualarm(static_cast<useconds_t>(std::atoi(argv[3])), 0);
      for (int time = 1; time <= 2; ++time) {
        Communicator comm(*bootstrap);
        std::printf("rank %d: inline %zu in communicator %d, tuning %s\n", rank, comm.tuning().inline_bytes, time,
                    comm.tuning().source.c_str());
        while (what == "die_early") comm.barrier();
      }
      return 0;
    }
    CommunicatorOptions options;
    if (what == "stop") options.timeout = std::chrono::seconds(1);
    Communicator comm = Communicator::from_environment(options);
    rank = comm.rank();
    const std::size_t count = what == "reduce" ? static_cast<std::size_t>(argument) / sizeof(float) : 100'000;
    for (int lap = 0; lap < (what == "reduce" ? 3 : 1'000'000); ++lap) {
      std::vector<float> data(count, 1.f);
      last = began();
      comm.all_reduce(data, ReduceOp::sum, {.backend = lap % 2 == 0 ? "hierarchical" : "ring"});
      for (const float x : data)
        if (x != static_cast<float>(comm.size())) {
          std::printf("rank %d: wrong\n", rank);
          return 1;
        }
      if (lap == 20 && what != "reduce" && rank == argument) {
        if (what == "die") ::kill(::getpid(), std::atoi(argv[3]));
        if (what == "stop") ::raise(SIGSTOP);
        if (what == "leave") return 0;
      }
    }
    std::printf("rank %d: ok\n", rank);
    return 0;
  } catch (const Error& error) {
    const auto waited = std::chrono::duration<double>(std::chrono::steady_clock::now() - last).count();
    std::printf("rank %d: %s after %s s: %s\n", rank, std::string(to_string(error.code())).c_str(),
                waited < 1.5 ? "at most 1.5" : "more than 1.5", error.what());
    return 3;
  }
}
