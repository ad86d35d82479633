// How a communicator comes to be: its ranks tell one another who they are, agree on the topology and the tuning,
// connect the hosts (wires.hpp), and those of a host meet in one arena. Four exchanges over the bootstrap, two more
// between hosts, and nine where a host's ranks find the numbers of their machine (measured_tuning.hpp); whatever fails
// on one rank fails on all, with the same words.
#pragma once

#include <memory>
#include <string>

#include "collectives/bootstrap.hpp"
#include "collectives/communicator.hpp"
#include "collectives/deadline.hpp"
#include "collectives/plan.hpp"
#include "collectives/topology.hpp"
#include "communicator/settings.hpp"
#include "device/device.hpp"
#include "shared_memory/arena.hpp"
#include "topology/host_map.hpp"

namespace collectives {

struct CommunicatorContext {
  Rank rank = 0;
  Topology topology;
  Tuning tuning;
  std::unique_ptr<Arena> arena;      ///< of this host
  std::unique_ptr<Wire> wire;        ///< null on one host
  std::shared_ptr<Device> device;    ///< the GPU of this rank, if its buffers may be those of one
  std::string no_device;             ///< why there is none, in words
  const Nccl* nccl = nullptr;        ///< where that can be used, by this rank
  bool threads = false;              ///< all ranks of this host are threads of this process
  bool oversubscribed = false;       ///< more ranks than cores on this host, or on its machine
  bool kernel_copy_allowed = false;  ///< the kernel copies between the ranks of every host
  std::string trace;  ///< which these ranks should now begin, as rank 0 says; empty: none, or there is one
};

/// Exchanges that the ranks of a new communicator make at most when the tuning and, between hosts, the wire are given,
/// with those by which NCCL connects all of them, and those of each host; otherwise there are more.
inline constexpr int kInitExchanges = 10;
/// Likewise of ranks of one host that begin no trace.
inline constexpr int kInitExchangesOfOneHost = 4;

/// Functions that measure tuning values at the first use on a machine. All ranks of the communicator call them
/// together.
struct TuningMeasurement {
  /// Returns values for the ranks of `host`, the host of rank 0.
  Tuning (*of_machine)(Bootstrap&, const Host& host, std::chrono::nanoseconds timeout, Deadline);
  /// Fills in values of the wire between hosts.
  void (*of_wire)(Bootstrap&, const Topology&, Wire&, Tuning&, Deadline);
};
/// Fills in `settings` from `options`. `measure` is called if nothing gives a tuning; null: built-in values are used.
CommunicatorContext init_communicator(Bootstrap&, const CommunicatorOptions& options, Settings& settings,
                                      const TuningMeasurement* measure);

}  // namespace collectives
