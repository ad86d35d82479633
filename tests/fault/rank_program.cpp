// One rank of a program that fails. processes_test starts it. It connects to the other ranks, does what its first
// argument says, and prints the error that it gets in one line on stdout.
//
//   rank_program reduce BYTES...       all-reduces vectors of these sizes and checks; prints "ok"
//   rank_program endless               all-reduces long vectors until an error. COLLECTIVES_INJECT causes one
//   rank_program die RANK SIGNAL       RANK ends by SIGNAL during a loop; the other ranks report
//   rank_program leave RANK            RANK returns from main during a loop
//   rank_program loop CALLS BYTES      all-reduces and checks; prints "ok". COLLECTIVES_INJECT causes faults
//   rank_program split FAULTS          makes a communicator of the ranks in reverse order, with injected faults
//   rank_program tuning                makes two communicators, one after the other; prints the source of their tuning
//   rank_program die_early RANK US     RANK ends US microseconds after it has joined; the other ranks report
//   rank_program stop_in_call RANK     RANK stops when it has waited in a call for 0.3 s; the others enter it later
//   rank_program die_in_pair           the last rank ends in a communicator of two; the other one of them leaves
//   rank_program die_after_leave       the last rank but one leaves, then the last one ends; the others make a group
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <numeric>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "collectives/collectives.hpp"

namespace {

using namespace collectives;

/// Splits the ranks into pairs. The last rank ends. The other rank of its pair throws, and leaves both communicators.
/// All other ranks call barrier() after that.
void lose_a_pair(Communicator& world) {
  std::optional<Communicator> pair = world.split(world.rank() / 2);
  pair->barrier();
  if (world.rank() + 1 == world.size()) ::kill(::getpid(), SIGKILL);
  if (world.rank() + 2 == world.size()) pair->barrier();
  ::usleep(300'000);
  world.barrier();
}

/// Stops rank `victim` in a call, after the other ranks have been told that it has entered the call.
void stop_in_call(Communicator& world, Rank victim) {
  std::vector<float> data(1'000'000, 1.f);  // too long for `victim` to do its part before the others enter the call
  if (world.rank() == victim) {
    std::signal(SIGALRM, [](int) { ::raise(SIGSTOP); });
    ::ualarm(300'000, 0);
  } else {
    ::usleep(600'000);
  }
  world.all_reduce(data);
}

/// Returns on the last rank but one, which then leaves. The last rank ends 50 ms later. All other ranks meanwhile make
/// a communicator of all ranks, and throw.
void lose_a_leaver(Communicator& world) {
  world.barrier();
  if (world.rank() + 2 == world.size()) return;
  if (world.rank() + 1 == world.size()) {
    ::usleep(50'000);
    ::kill(::getpid(), SIGKILL);
  }
  std::vector<Rank> all(static_cast<std::size_t>(world.size()));
  std::iota(all.begin(), all.end(), 0);
  (void)world.create_group(all);
}

}  // namespace

int main(int argc, char** argv) {
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
    Communicator world = Communicator::from_environment();
    rank = world.rank();
    if (what == "die_in_pair") lose_a_pair(world);
    if (what == "stop_in_call") stop_in_call(world, argument);
    if (what == "die_after_leave") {
      lose_a_leaver(world);
      return 0;
    }
    Communicator comm = what == "split" ? std::move(*world.split(0, -rank, {.inject = argv[2]})) : std::move(world);
    const auto count_of = [&](int at) { return static_cast<std::size_t>(std::atoi(argv[at])) / sizeof(float); };
    const int sizes = what == "reduce" ? argc - 2 : 1;
    const int laps = what == "reduce" ? 3 * sizes : what == "loop" ? argument : 1'000'000;
    for (int lap = 0; lap < laps; ++lap) {
      const std::size_t count = what == "reduce" ? count_of(2 + lap / 3) : what == "loop" ? count_of(3) : 100'000;
      std::vector<float> data(count, 1.f);
      last = began();
      const char* const in_turn = lap % 2 == 0 ? "hierarchical" : "ring";
      comm.all_reduce(data, ReduceOp::sum, {.backend = what == "loop" ? "" : in_turn});
      for (const float x : data)
        if (x != static_cast<float>(comm.size())) {
          std::printf("rank %d: wrong\n", rank);
          return 1;
        }
      if (lap == 20 && rank == argument) {
        if (what == "die") ::kill(::getpid(), std::atoi(argv[3]));
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
