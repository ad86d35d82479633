// How a communicator comes to be: its ranks tell one another who they are, agree on the topology and the tuning, and
// those of a host meet in one arena. Four exchanges over the bootstrap; whatever fails on one rank fails on all, with
// the same words.
#pragma once

#include <chrono>
#include <memory>
#include <string>

#include "collectives/bootstrap.hpp"
#include "collectives/communicator.hpp"
#include "collectives/plan.hpp"
#include "collectives/topology.hpp"
#include "shared_memory/arena.hpp"

namespace collectives {

/// A CommunicatorOptions with every default filled in.
struct Settings {
  std::string backend;
  std::chrono::nanoseconds timeout{};
  std::chrono::nanoseconds stall_report{};
  bool deterministic = false;
  std::optional<bool> progress_thread;
  std::string transport;  ///< empty: shared memory inside a host, the bootstrap's wire between hosts
};

/// What the program says, else the environment, else the default. Throws Error{invalid_argument}.
Settings settle(const CommunicatorOptions&);

struct Meeting {
  Rank rank = 0;
  Topology topology;
  Tuning tuning;
  std::unique_ptr<Arena> arena;  ///< of this host
  std::unique_ptr<Wire> wire;    ///< null on one host
  bool threads = false;          ///< all ranks of this host are threads of this process
  bool crowded = false;          ///< more ranks than cores on this host
  bool kernel_reach = false;     ///< the kernel copies between the ranks of every host
};

/// Exchanges that meet() makes, whatever happens.
inline constexpr int kMeetExchanges = 4;
/// Fills in `settings` from `options`.
Meeting meet(Bootstrap&, const CommunicatorOptions& options, Settings& settings);

}  // namespace collectives
