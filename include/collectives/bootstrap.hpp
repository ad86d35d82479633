// How ranks find one another. A bootstrap knows this process's rank, the number of ranks, and one way for all of them
// to exchange a few bytes; everything else (hosts, shared memory, plans) is built from that exchange.
//
//   Communicator comm(*bootstrap_from_environment());   // mpirun, srun, torchrun, TF_CONFIG, collectives_run
//   Communicator comm(*threads[rank]);                  // ranks are threads: auto threads = bootstrap_threads(4)
//   Communicator comm(MpiBootstrap(MPI_COMM_WORLD));    // collectives/mpi.hpp
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "collectives/deadline.hpp"
#include "collectives/export.hpp"
#include "collectives/transport.hpp"
#include "collectives/types.hpp"

namespace collectives {

/// Makes transports between hosts, beside those that the library has of its own. A communicator keeps it, for the
/// communicators that are split from it.
struct WireFactory {
  std::string_view name = {};  ///< of its wires: "mpi"
  /// Whether its wires come before the library's own.
  bool preferred = false;
  /// A wire with messages of up to `frame_bytes` among `members` (ranks of the bootstrap; member i becomes rank i of
  /// the wire). `context` tells apart the wires of one bootstrap that share members; it is equal on all members.
  std::function<std::unique_ptr<Wire>(const std::vector<Rank>& members, std::size_t context, std::size_t frame_bytes)>
      make = {};
  /// The next context that this process has not used; null when there is no `make`.
  std::shared_ptr<std::atomic<std::size_t>> next_context = {};
};

/// One rank's end of the rendezvous. One thread uses it at a time.
class Bootstrap {
 public:
  virtual ~Bootstrap() = default;
  /// "mpi", "environment", "threads".
  virtual std::string_view name() const noexcept = 0;
  virtual Rank rank() const noexcept = 0;
  virtual int size() const noexcept = 0;
  /// Every rank passes its bytes (lengths may differ, may be 0); every rank gets all of them, in rank order.
  /// Ranks call it equally often. Throws Error: timeout naming the ranks that did not come, bootstrap for a lost peer.
  virtual std::vector<std::string> all_gather(std::string_view mine, Deadline) = 0;
  /// The host this rank is on, for a bootstrap that knows better than the system does; empty: ask the system.
  virtual std::string host() const { return {}; }
  /// The domain of that host (a socket, a cache) this rank runs in, likewise; equal names share it.
  virtual std::string domain() const { return {}; }
  /// How to make transports between hosts; empty when this bootstrap brings none: then the library uses its own.
  virtual WireFactory wire_factory() { return {}; }
};

/// Ranks are threads of this process: element r is the bootstrap of rank r.
COLLECTIVES_EXPORT std::vector<std::unique_ptr<Bootstrap>> bootstrap_threads(int ranks);

/// Ranks are processes described by the environment. The first that is complete wins:
///   RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT     torchrun, collectives_run, by hand
///   TF_CONFIG                                      a TensorFlow cluster: chief (rank 0 when present), then workers
///   what mpirun (Open MPI, MPICH) and srun set
/// and with none of them this process is alone: rank 0 of 1.
/// Rank 0 listens at the address; the others connect until `timeout` has passed.
/// Throws Error{bootstrap} in one line naming the variable, port, host or key at fault; Error{timeout} naming the ranks
/// that did not come; Error{invalid_argument}, whose rank() is known, for a malformed COLLECTIVES_PORT.
COLLECTIVES_EXPORT std::unique_ptr<Bootstrap> bootstrap_from_environment(
    std::chrono::nanoseconds timeout = std::chrono::minutes(10));

}  // namespace collectives
