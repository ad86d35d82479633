// Implementation of CommunicatorResources, which owns the objects that a communicator makes once, in its construction.
//
// The constructor connects the ranks. It then makes the executor, which performs calls on host memory, and the device
// paths, which perform calls on GPU memory. The executor needs a route to each rank, and the objects for intra-host
// collectives. Ranks of one host perform intra-host collectives together through shared memory.
#include "communicator/communicator_resources.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "communicator/init_trace.hpp"
#include "communicator/nccl_init.hpp"
#include "device/host_copy_path.hpp"
#include "device/kernel_path.hpp"
#include "device/multi_node_path.hpp"
#include "device/step_path.hpp"
#include "device/top_k_path.hpp"

namespace collectives {
namespace {

using DevicePaths = std::array<std::unique_ptr<PathExecutor>, kDevicePaths>;

/// Returns the names of the transports in use, such as "shared_memory+tcp". `inside`: name of the transport between the
/// ranks of a host.
std::string name_of_transports(const CommunicatorContext& context, std::string_view inside) {
  if (context.wire == nullptr) return std::string(inside);
  const bool alone_here = context.arena->ranks() == 1;
  return alone_here ? std::string(context.wire->name()) : fmt::format("{}+{}", inside, context.wire->name());
}

/// Returns one route per rank. A route names the transport that carries messages to a rank, and the number of this rank
/// in the transport. Messages to ranks of this host use `local`, and messages to other hosts use `wire`.
std::vector<Executor::Route> make_routes(const RankView& view, Transport* local, Transport* wire) {
  std::vector<Executor::Route> routes(view.world.members.size());
  for (const Rank peer : view.world.members) {
    if (view.host_of(peer) == view.grid.host)
      routes[static_cast<std::size_t>(peer)] = {local, view.local_of(peer)};
    else
      routes[static_cast<std::size_t>(peer)] = {wire, peer, true};
  }
  return routes;
}

/// Returns three objects that perform intra-host collectives. The first object serves all ranks of the host. The second
/// serves the ranks of this rank's NUMA domain, which share a socket or a last-level cache. The third serves this
/// rank's rail, which consists of one rank of each domain. The last two are null if the host has only one domain.
/// Requires that `context` and `peer_memory` outlive the result.
Executor::HostCollectives open_subgroups(const RankView& view, const CommunicatorContext& context,
                                         PeerMemory& peer_memory) {
  const bool oversubscribed = context.topology.oversubscribed(static_cast<std::size_t>(view.grid.host));
  Executor::HostCollectives subgroups;
  const auto open = [&](Subgroup subgroup, SubgroupMemory memory) {
    subgroups[static_cast<std::size_t>(subgroup)] =
        std::make_unique<HostCollective>(std::move(memory), context.tuning, peer_memory, oversubscribed);
  };
  open(Subgroup::host, SubgroupMemory(*context.arena));
  const Grid& inner = view.inner;
  if (inner.host_count() == 0) return subgroups;
  const auto members = [&](Peers ranks) {
    std::vector<int> locals;
    for (const Rank peer : ranks) locals.push_back(view.local_of(peer));
    return locals;
  };
  open(Subgroup::domain, SubgroupMemory(*context.arena, SubgroupMemory::kDomain, members(inner.here())));
  open(Subgroup::rail, SubgroupMemory(*context.arena, SubgroupMemory::kRail, members(inner.rail().members)));
  return subgroups;
}

/// Parts of a communicator that its device paths use.
struct PathParts {
  Bootstrap& bootstrap;
  const CommunicatorContext& context;
  const RankView& view;
  SharedMemoryTransport& local;
  FailureDetector& failure_detector;
  std::chrono::nanoseconds timeout;

  /// Connects the ranks `members` by NCCL. All ranks of the communicator call it.
  std::unique_ptr<NcclComm> connect(Peers members) const {
    return nccl_comm_init(bootstrap, context, members, failure_detector, timeout);
  }
};

/// Returns the device paths. All are null if this rank uses no GPU. `nccl_comm` is an NCCL communicator of all ranks.
/// If `nccl_comm` is null and all ranks can use NCCL, the ranks connect by NCCL now, which takes exchanges over the
/// bootstrap. All ranks call this function together.
DevicePaths make_device_paths(const PathParts& parts, std::unique_ptr<NcclComm> nccl_comm) {
  const CommunicatorContext& context = parts.context;
  const RankView& view = parts.view;
  const std::shared_ptr<Device>& device = context.device;
  DevicePaths paths;
  const auto add = [&](DevicePath path, std::unique_ptr<PathExecutor> made) -> PathExecutor& {
    return *(paths[static_cast<std::size_t>(path)] = std::move(made));
  };
  if (device != nullptr) {
    PathExecutor& host_copy = add(DevicePath::host_copy, std::make_unique<HostCopyPath>(*device, context.rank));
    add(DevicePath::top_k, std::make_unique<TopKPath>(device));
    const auto peers = std::make_shared<GpuPeers>(*device, *context.arena);
    add(DevicePath::steps, std::make_unique<StepPath>(*device, *context.arena, peers, view, context.topology,
                                                      parts.local, context.wire.get()));
    if (context.topology.one_host()) {
      add(DevicePath::kernels, std::make_unique<KernelPath>(*device, *context.arena, peers));
    } else {
      std::unique_ptr<NcclComm> in_host;
      if (context.topology.gpus.nccl_in_hosts) in_host = parts.connect(view.grid.here());
      add(DevicePath::multi_host, std::make_unique<MultiNodePath>(device, *context.arena, peers, view, context.topology,
                                                                  host_copy, std::move(in_host)));
    }
  }
  if (context.topology.gpus.nccl) {
    if (nccl_comm == nullptr) nccl_comm = parts.connect(view.world.members);
    add(DevicePath::nccl, std::make_unique<NcclPath>(*device, std::move(nccl_comm), view.world.size(), context.rank));
  }
  return paths;
}

/// Returns whether the communicator has a progress thread if neither the program nor the environment chooses. True if
/// all ranks share a host that has more cores than ranks. With NCCL, also true unless the wire, such as one over MPI,
/// does not allow control messages from a thread of the library.
bool has_progress_thread_by_default(const CommunicatorContext& context) {
  const Wire* const wire = context.wire.get();
  const bool spare_cores = context.topology.cores_per_host > context.arena->ranks();
  // With NCCL, operations run in GPU streams while the program computes. A progress thread watches them for failures.
  const bool watched = context.topology.gpus.nccl && (wire == nullptr || wire->control_is_thread_safe());
  return (spare_cores && wire == nullptr) || watched;
}

}  // namespace

CommunicatorResources::CommunicatorResources(Bootstrap& bootstrap, const CommunicatorOptions& options,
                                             const TuningMeasurement* measure, Visibility visibility,
                                             std::unique_ptr<NcclComm> nccl_comm)
    : context(init_communicator(bootstrap, options, settings, measure)) {
  parent_info = {bootstrap.host(), bootstrap.domain(), bootstrap.wire_factory()};
  view = std::make_unique<RankView>(context.topology, context.rank);
  const std::string_view inside = context.threads ? "local" : "shared_memory";
  local = std::make_unique<SharedMemoryTransport>(*context.arena, inside);
  transport_name = name_of_transports(context, inside);
  failure_detector = std::make_unique<FailureDetector>(*view, *context.arena, context.wire.get());
  peer_memory = std::make_unique<PeerMemory>(*context.arena, context.threads, context.kernel_copy_allowed);

  Executor::HostCollectives subgroups = open_subgroups(*view, context, *peer_memory);
  const HostCollective& host_collective = *subgroups[static_cast<std::size_t>(Subgroup::host)];
  executor = std::make_unique<Executor>(*view, make_routes(*view, local.get(), context.wire.get()),
                                        std::move(subgroups), context.wire.get());
  planner = std::make_unique<Planner>(
      *view, context.topology, context.tuning, host_collective,
      Planner::Defaults{.backend = settings.backend, .deterministic = settings.deterministic});
  paths =
      make_device_paths({bootstrap, context, *view, *local, *failure_detector, settings.timeout}, std::move(nccl_comm));

  progress_thread = size() > 1 && settings.progress_thread.value_or(has_progress_thread_by_default(context));
  locked = progress_thread || context.wire != nullptr;
  std::optional<TraceIdentity> seen_as;
  if (visibility == Visibility::visible) seen_as = trace_identity(bootstrap, context, Deadline::in(settings.timeout));
  observer = std::make_unique<Observer>(context, settings, transport_name, progress_thread, seen_as);
  for_each_executor([&](Executor& one) { one.observe(observer->trace()); });
}

std::uint64_t CommunicatorResources::moves() const noexcept {
  std::uint64_t moves = executor->moves();
  for (const auto& path : paths)
    if (path != nullptr) moves += path->moves();
  return moves;
}

std::uint64_t CommunicatorResources::bytes_sent() const noexcept {
  std::uint64_t bytes = 0;
  for_each_executor([&](const Executor& one) { bytes += one.bytes_sent(); });
  return bytes;
}

std::uint64_t CommunicatorResources::bytes_sent_to_other_hosts() const noexcept {
  std::uint64_t bytes = 0;
  for_each_executor([&](const Executor& one) { bytes += one.bytes_to_other_hosts(); });
  return bytes;
}

Deadline CommunicatorResources::leave_deadline() const noexcept {
  return Deadline::in(std::min(settings.timeout, std::chrono::nanoseconds(std::chrono::seconds(10))));
}

}  // namespace collectives
