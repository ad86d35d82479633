// Bootstrap: the means by which ranks find one another and exchange first bytes, before they have a communicator.
//
// A bootstrap knows the number of this rank and the number of ranks. It lets all ranks exchange a few bytes. The
// constructor of a communicator uses these exchanges to find out which ranks share a host, and to connect the ranks.
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

/// Factory of wires that a bootstrap adds to the library's own wires. Wires are transports of messages between hosts. A
/// communicator keeps the factory for the communicators that its split() makes.
struct WireFactory {
  std::string_view name = {};  ///< Name of the wires that `make` returns, such as "mpi".
  /// True: the library uses a wire of this factory, unless the program or the environment names another wire.
  bool preferred = false;
  /// Makes a wire between `members`, which are ranks of the bootstrap. A message of the wire has up to `frame_bytes`
  /// bytes. Member i becomes rank i of the wire. `context` is a number that distinguishes wires of one bootstrap with
  /// common members. All members pass the same `context`.
  std::function<std::unique_ptr<Wire>(const std::vector<Rank>& members, std::size_t context, std::size_t frame_bytes)>
      make = {};
  /// Lowest context that this process has not used. Null if there is no `make`.
  std::shared_ptr<std::atomic<std::size_t>> next_context = {};
};

/// Base class of bootstraps. Each rank has an object of its own. Only one thread at a time may use the object.
class Bootstrap {
 public:
  virtual ~Bootstrap() = default;
  /// Returns the name of the bootstrap, such as "mpi", "environment" or "threads".
  virtual std::string_view name() const noexcept = 0;
  virtual Rank rank() const noexcept = 0;
  virtual int size() const noexcept = 0;
  /// Returns the bytes of all ranks in rank order. Every rank passes its own bytes `mine`. Lengths may differ and may
  /// be 0.
  ///
  /// All ranks call it equally often. Throws Error{timeout} that names the missing ranks, and Error{bootstrap} for a
  /// lost peer.
  virtual std::vector<std::string> all_gather(std::string_view mine, Deadline) = 0;
  /// Throws an Error that names the peer if a rank has ended or left. Does not block. Called again and again between
  /// two all_gather(), while ranks connect or measure. By default, does nothing. Then only the wires tcp and ucx notice
  /// a rank that ends while ranks connect or measure. Other losses are noticed at the deadline of all_gather().
  virtual void check_peers() {}
  /// Returns the name of the host of this rank. Empty: the library asks the system.
  virtual std::string host() const { return {}; }
  /// Returns the name of this rank's domain, a socket or a cache of the host. Ranks with equal names share the domain.
  /// Empty: the library asks the system.
  virtual std::string domain() const { return {}; }
  /// Returns the factory of transports between hosts. Empty by default: the library then uses its own transports.
  virtual WireFactory wire_factory() { return {}; }
};

/// Returns the bootstraps of `ranks` ranks that are threads of this process. Element r belongs to rank r.
COLLECTIVES_EXPORT std::vector<std::unique_ptr<Bootstrap>> bootstrap_threads(int ranks);

/// Returns the bootstrap that the environment describes. The ranks are processes. The first complete set of these
/// variables is used:
///
///   RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT     torchrun, collectives_run, by hand
///   TF_CONFIG                                      a TensorFlow cluster: chief (rank 0 if present), then workers
///   the variables of mpirun (Open MPI, MPICH) and srun
///
/// Without any of them this process is rank 0 of 1.
///
/// Rank 0 listens at an address that the variables give. The other ranks try to connect until `timeout` has passed.
/// Throws one of these errors:
///
///   bootstrap           one line that names the wrong variable, port, host or key
///   timeout             names the ranks that did not connect
///   invalid_argument    a malformed COLLECTIVES_PORT; Error::rank() returns the rank that has read it
COLLECTIVES_EXPORT std::unique_ptr<Bootstrap> bootstrap_from_environment(
    std::chrono::nanoseconds timeout = std::chrono::minutes(10));

}  // namespace collectives
