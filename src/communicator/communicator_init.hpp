// Initialization of a communicator: its ranks agree on the topology, the settings and the tuning, and connect.
//
// The ranks exchange their hosts, GPUs and settings over the bootstrap, by which ranks communicate before they are
// connected. The tuning is the set of numbers by which the library chooses algorithms. All ranks use the tuning of rank
// 0, so all ranks choose the same algorithms. A wire, the transport between hosts, connects the hosts (wires.hpp). The
// ranks of a host share memory, the arena. If initialization fails on one rank, all ranks throw an error.
//
// Price: the initialization makes four exchanges over the bootstrap, and at least four more if there are several hosts.
// To look up or to measure the tuning, the ranks make up to twelve more exchanges (measured_tuning.hpp). The rest of
// the construction may need two exchanges to open a trace, and up to four to connect by NCCL.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "collectives/bootstrap.hpp"
#include "collectives/communicator.hpp"
#include "collectives/deadline.hpp"
#include "collectives/plan.hpp"
#include "collectives/topology.hpp"
#include "communicator/settings.hpp"
#include "core/tuning_parameters.hpp"
#include "device/device.hpp"
#include "injection/injection.hpp"
#include "shared_memory/arena.hpp"
#include "topology/host_map.hpp"

namespace collectives {

/// Properties and connections of a communicator. init_communicator() fills them in.
struct CommunicatorContext {
  Rank rank = 0;
  Topology topology;
  TuningParameters tuning;
  Tuning public_tuning;              ///< `tuning` in the form that Communicator::tuning() returns
  std::unique_ptr<Arena> arena;      ///< shared memory of this host
  std::unique_ptr<Wire> wire;        ///< transport between hosts; null on one host
  std::unique_ptr<Wire> messages;    ///< another wire of the same kind, for point-to-point messages; null on one host
  std::shared_ptr<Device> device;    ///< GPU of this rank, if GPU buffers are allowed
  std::string no_device;             ///< reason why there is no `device`
  const Nccl* nccl = nullptr;        ///< NCCL library, if this rank can use it
  bool threads = false;              ///< whether all ranks of this host are threads of this process
  bool oversubscribed = false;       ///< whether this host, or its machine, has more ranks than cores
  bool kernel_copy_allowed = false;  ///< whether the kernel of every host copies between ranks' memories
  std::string trace;                 ///< path of this rank's trace, from its variable COLLECTIVES_TRACE
  /// One trace_number() per rank: a hash of the path of its trace, or an empty text if the rank opens no trace. Ranks
  /// of a host with equal hashes share a file.
  std::vector<std::string> trace_numbers;
  std::unique_ptr<Injection> injection;  ///< faults that this rank causes; null: none
};

/// Maximum number of exchanges over the bootstrap in the construction by split(), which measures no tuning and opens no
/// trace. Two of these exchanges connect all ranks by NCCL. Two others connect the ranks of each host by NCCL. Two
/// more connect the wire of point-to-point messages.
inline constexpr int kInitExchanges = 12;
/// Maximum number of exchanges in a construction on one host, without measured tuning, trace and NCCL.
inline constexpr int kInitExchangesOfOneHost = 4;

/// Functions that look tuning values up in a file of the user, or measure them. All ranks of the communicator call them
/// together.
struct TuningMeasurement {
  /// Returns a tuning for `host`, the host of rank 0. If the file has no tuning for this host, the ranks of the host
  /// measure it.
  TuningParameters (*of_machine)(Bootstrap&, const Host& host, std::chrono::nanoseconds timeout, Deadline);
  /// Stores the values for the wire in the tuning. If the file has no values for this wire, two or more ranks measure
  /// them.
  void (*of_wire)(Bootstrap&, const Topology&, Wire&, TuningParameters&, Deadline);
};
/// Initializes a communicator and fills in `settings` from `options`. If no tuning is given, calls `measure`. If
/// `measure` is null, uses built-in values. All ranks call init_communicator() together.
CommunicatorContext init_communicator(Bootstrap&, const CommunicatorOptions& options, Settings& settings,
                                      const TuningMeasurement* measure);

}  // namespace collectives
