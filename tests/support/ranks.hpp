// Ranks that are threads of the test. Each runs the same function. The first failure is rethrown, with the number of
// its rank before its text.
//
//   run_communicators(4, [](Communicator& comm) { comm.barrier(); });
#pragma once

#include <exception>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "collectives/bootstrap.hpp"
#include "collectives/communicator.hpp"
#include "collectives/error.hpp"

namespace collectives::testing {

/// Returns the exception that is being handled, with "rank 3: " before its text. An Error stays an Error of the same
/// code.
inline std::exception_ptr exception_of_rank(Rank rank) {
  const std::string prefix = "rank " + std::to_string(rank) + ": ";
  try {
    throw;
  } catch (const Error& error) {
    return std::make_exception_ptr(
        Error(error.code(), prefix + error.what(), error.rank(), error.peer(), error.operation()));
  } catch (const std::exception& error) {
    return std::make_exception_ptr(std::runtime_error(prefix + error.what()));
  } catch (...) {
    return std::make_exception_ptr(std::runtime_error(prefix + "an exception that is no std::exception"));
  }
}

/// The rank of the calling thread; 0 if run_ranks() did not start the thread.
inline thread_local Rank rank_of_thread = 0;

/// Calls f(Bootstrap&) for each of `ranks` ranks, each in a thread of its own, and joins them all. Rethrows the first
/// exception, because later ones are mostly its consequences in other ranks.
template <class F>
void run_ranks(int ranks, F&& f) {
  const std::vector<std::unique_ptr<Bootstrap>> bootstraps = bootstrap_threads(ranks);
  std::mutex mutex;
  std::exception_ptr first;
  {
    std::vector<std::jthread> threads;
    for (Rank rank = 0; rank < ranks; ++rank) {
      threads.emplace_back([&, rank] {
        rank_of_thread = rank;
        try {
          f(*bootstraps[static_cast<std::size_t>(rank)]);
        } catch (...) {
          const std::lock_guard lock(mutex);
          if (!first) first = exception_of_rank(rank);
        }
      });
    }
  }
  if (first) std::rethrow_exception(first);
}

/// Calls f(Communicator&) for each of `ranks` ranks that are threads; see run_ranks().
template <class F>
void run_communicators(int ranks, F&& f, const CommunicatorOptions& options = {}) {
  run_ranks(ranks, [&](Bootstrap& bootstrap) {
    Communicator comm(bootstrap, options);
    f(comm);
  });
}

}  // namespace collectives::testing
