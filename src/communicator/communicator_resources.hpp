// CommunicatorResources: the values, connections and executors that the construction of a communicator makes.
//
// The constructor makes them in the order of their declaration. All ranks construct together. Communicator::Impl owns
// the object, and all parts of a communicator receive it by reference. Its members stay as they are until the
// communicator is destroyed. Exception: Communicator::Impl::retune() replaces the tuning.
//
// Lock: none to read what is constant. To progress an executor or a path, and to read its counters, hold
// ProgressThread::guard().
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>

#include "bootstrap/subset.hpp"
#include "collectives/communicator.hpp"
#include "communicator/communicator_init.hpp"
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
  /// Whether traces, the log and monitors show a communicator. The library hides communicators that it makes for
  /// itself.
  enum class Visibility : bool { hidden, visible };

  /// `nccl_comm`: the NCCL communicator of these ranks, if it has been split off already.
  /// `measure`: measures tuning values that neither `options` nor the environment give. Null: built-in values.
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
  /// Returns the path over NCCL; null if NCCL does not connect all ranks.
  NcclPath* nccl() const noexcept {
    return static_cast<NcclPath*>(paths[static_cast<std::size_t>(DevicePath::nccl)].get());
  }
  /// Calls visit() for the executor of host memory and for those of device paths.
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
  /// Returns the deadline for leaving. Until then, peers may still need what this rank has sent.
  Deadline leave_deadline() const noexcept;

  Settings settings;
  SubsetBootstrap::ParentInfo
      parent_info;  ///< host, domain and wires of the bootstrap; communicators made by split() use them too
  CommunicatorContext context;
  std::unique_ptr<RankView> view;
  std::string transport_name;
  std::unique_ptr<SharedMemoryTransport> local;  ///< between ranks of this host; the wire is in `context`
  std::unique_ptr<FailureDetector> failure_detector;
  std::unique_ptr<PeerMemory> peer_memory;
  std::unique_ptr<Executor> executor;
  std::unique_ptr<Planner> planner;
  std::array<std::unique_ptr<PathExecutor>, kDevicePaths> paths;  ///< by DevicePath; all null without a GPU
  bool progress_thread = false;                                   ///< whether the communicator has a progress thread
  std::unique_ptr<Observer> observer;
};

}  // namespace collectives
