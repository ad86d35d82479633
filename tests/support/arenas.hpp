// Ranks for tests of shared memory: threads that share an arena, the shared memory of a host, without a communicator.
#pragma once

#include <gtest/gtest.h>

#include <barrier>
#include <exception>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "shared_memory/arena.hpp"

namespace collectives::testing {

/// Runs `f(const Arena&, barrier)` on all ranks at the same time. Destroys the arenas when all ranks have returned.
template <class F>
void run_on_arenas(const ArenaShape& shape, F&& f) {
  std::vector<std::unique_ptr<Arena>> arenas;
  arenas.push_back(Arena::create(shape));
  for (int rank = 1; rank < shape.ranks; ++rank) arenas.push_back(Arena::join(arenas[0]->handle(), shape, rank));
  std::barrier barrier_of_threads(shape.ranks);
  const std::function<void()> barrier = [&] { barrier_of_threads.arrive_and_wait(); };
  std::vector<std::jthread> threads;
  for (const auto& arena : arenas)
    threads.emplace_back([&] {
      try {
        f(*arena, barrier);
      } catch (const std::exception& error) {
        ADD_FAILURE() << "rank " << arena->self() << ": " << error.what();
        barrier_of_threads.arrive_and_drop();  // other ranks need not wait for this rank any more
      }
    });
}

}  // namespace collectives::testing
