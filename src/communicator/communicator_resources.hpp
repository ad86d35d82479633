// CommunicatorResources: the parts that a communicator makes once, in its construction. They are settings, topology,
// connections to peers, and the objects that perform calls.
//
// All ranks run the constructor together, because they exchange data in it. Communicator::Impl owns the object. All
// parts of a communicator receive the object by reference. No member is replaced until the communicator is destroyed,
// except that Communicator::Impl::retune() replaces the tuning.
//
// Locking: settings and other constant values may be read without a lock. The executor performs calls on CPU memory,
// and device paths perform calls on GPU memory. Progressing them and reading their counters requires the communicator's
// lock, ProgressThread::guard().
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>

#include "bootstrap/subset.hpp"
#include "collectives/communicator.hpp"
#include "communicator/communicator_init.hpp"
#include "communicator/member_exchange.hpp"
#include "communicator/observer.hpp"
#include "communicator/operation.hpp"
#include "device/nccl_path.hpp"
#include "device/path_executor.hpp"
#include "execution/executor.hpp"
#include "monitoring/failure_detector.hpp"
#include "planning/planner.hpp"
#include "shared_memory/peer_memory.hpp"
#include "transport/shared_memory.hpp"

namespace collectives {

struct CommunicatorResources {
  /// Visibility of a communicator in traces, in the log and in monitoring programs. Communicators that the library
  /// makes for its own use are hidden.
  enum class Visibility : bool { hidden, visible };

  /// Connects the ranks and makes all parts. If neither `options` nor the environment gives a tuning, measures it with
  /// the functions in `measure`. If `measure` is null, uses a built-in tuning. `nccl_comm`: NCCL communicator that
  /// split() has made of these ranks, or null.
  CommunicatorResources(Bootstrap& bootstrap, const CommunicatorOptions& options, const TuningMeasurement* measure,
                        Visibility visibility, std::unique_ptr<NcclComm> nccl_comm);
  CommunicatorResources(const CommunicatorResources&) = delete;
  CommunicatorResources& operator=(const CommunicatorResources&) = delete;

  Rank rank() const noexcept { return context.rank; }
  int size() const noexcept { return view->world.size(); }

  /// Returns the device path of an operation on device memory.
  PathExecutor& path_of(const Operation& operation) const {
    return *paths[static_cast<std::size_t>(operation.call->plan.device_path)];
  }
  /// Returns the device path that uses NCCL. Null if NCCL does not connect all ranks.
  NcclPath* nccl() const noexcept {
    return static_cast<NcclPath*>(paths[static_cast<std::size_t>(DevicePath::nccl)].get());
  }
  /// Calls visit() for the executor of calls on host memory, and for the executors of device paths.
  template <class Visit>
  void for_each_executor(Visit&& visit) const {
    visit(*executor);
    for (const auto& path : paths)
      if (path != nullptr && path->executor() != nullptr) visit(*path->executor());
  }
  /// Returns a counter that changes whenever an operation progresses.
  std::uint64_t moves() const noexcept;
  std::uint64_t bytes_sent() const noexcept;
  std::uint64_t bytes_sent_to_other_hosts() const noexcept;
  /// Returns the time until which a leaving rank waits for peers that have not received all its data yet.
  Deadline leave_deadline() const noexcept;

  Settings settings;
  SubsetBootstrap::ParentInfo parent_info;  ///< data of the bootstrap that communicators made by split() also need
  CommunicatorContext context;
  std::unique_ptr<RankView> view;
  std::string transport_name;
  std::unique_ptr<SharedMemoryTransport> local;  ///< transport between ranks of this host
  std::unique_ptr<FailureDetector> failure_detector;
  std::unique_ptr<PeerMemory> peer_memory;
  std::unique_ptr<Executor> executor;
  std::unique_ptr<Planner> planner;
  std::array<std::unique_ptr<PathExecutor>, kDevicePaths> paths;  ///< by DevicePath; all null without a GPU
  bool progress_thread = false;                                   ///< whether the communicator has a progress thread
  /// Whether calls take the communicator's lock: with a progress thread or a wire. A thread in a point-to-point call
  /// takes it to read control messages of the wire.
  bool locked = false;
  mutable std::mutex mutex;  ///< communicator's lock, which ProgressThread::guard() takes
  std::unique_ptr<Observer> observer;
  CreationState creations;  ///< state of create_group(), which only the thread in such a call uses
};

}  // namespace collectives
