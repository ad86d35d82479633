// Construction and destruction of a communicator, its use after fork(), and its counters.
#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <functional>
#include <optional>
#include <system_error>
#include <utility>

#include "base/log.hpp"
#include "communicator/communicator_impl.hpp"
#include "communicator/init_trace.hpp"
#include "communicator/nccl_init.hpp"
#include "device/host_copy_path.hpp"
#include "device/kernel_path.hpp"
#include "device/multi_node_path.hpp"
#include "device/step_path.hpp"
#include "device/top_k_path.hpp"

namespace collectives {

// ---- construction ----

namespace {

using DevicePaths = std::array<std::unique_ptr<PathExecutor>, kDevicePaths>;

/// Returns the names of the transports in use. `inside`: name of the transport between the ranks of a host.
std::string name_of_transports(const CommunicatorContext& context, std::string_view inside) {
  if (context.wire == nullptr) return std::string(inside);
  const bool alone_here = context.arena->ranks() == 1;
  return alone_here ? std::string(context.wire->name()) : fmt::format("{}+{}", inside, context.wire->name());
}

/// Returns the routes to all ranks: over `local` to the ranks of this host, over `wire` to other hosts.
std::vector<Executor::Route> make_routes(const RankView& view, Transport* local, Transport* wire) {
  std::vector<Executor::Route> routes(view.world.members.size());
  for (const Rank peer : view.world.members) {
    if (view.host_of(peer) == view.grid.host)
      routes[static_cast<std::size_t>(peer)] = {local, view.local_of(peer)};
    else
      routes[static_cast<std::size_t>(peer)] = {wire, peer};
  }
  return routes;
}

/// Returns the intra-host collectives of this rank's host, domain and rail. The last two are null if the host has no
/// domains. Requires that `context` and `peer_memory` outlive the result.
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

  /// Connects `members` by NCCL. All ranks of the communicator call it.
  std::unique_ptr<NcclComm> connect(Peers members) const {
    return nccl_comm_init(bootstrap, context, members, failure_detector, timeout);
  }
};

/// Returns the device paths, which are null without a GPU. `nccl_comm` connects all ranks. If it is null,
/// the ranks now connect by NCCL if they can. All ranks call it. Only connecting by NCCL makes exchanges.
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

/// Returns whether there is a progress thread if the program leaves the choice to the library. Some wires must not be
/// used by a thread of the library. The program then has to ask for a progress thread.
bool has_progress_thread_by_default(const CommunicatorContext& context) {
  const Wire* const wire = context.wire.get();
  const bool spare_cores = context.topology.cores_per_host > context.arena->ranks();
  // A progress thread watches operations in flight while the program computes.
  const bool watched = context.topology.gpus.nccl && (wire == nullptr || wire->control_is_thread_safe());
  return (spare_cores && wire == nullptr) || watched;
}

/// Starts a thread that calls `loop`. If the system refuses, logs a warning and returns no thread.
std::thread start_progress_thread(Rank rank, std::function<void()> loop) {
  try {
    return std::thread(std::move(loop));
  } catch (const std::system_error& error) {
    log_warning(rank,
                "no progress thread: {}: operations move on in calls only; see RLIMIT_NPROC (ulimit -u) and pids.max "
                "of the control group",
                error.what());
    return {};
  }
}

}  // namespace

Communicator::Impl::Impl(Bootstrap& bootstrap, const CommunicatorOptions& options, const TuningMeasurement* measure,
                         Visibility visibility, std::unique_ptr<NcclComm> nccl_comm)
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

  threaded_ = size() > 1 && settings.progress_thread.value_or(has_progress_thread_by_default(context));
  std::optional<TraceIdentity> seen_as;
  if (visibility == Visibility::visible) seen_as = trace_identity(bootstrap, context, Deadline::in(settings.timeout));
  observer = std::make_unique<Observer>(context, settings, transport_name, threaded_, seen_as);
  for_each_executor([&](Executor& one) { one.observe(observer->trace()); });
  if (threaded_) {
    progress_thread_ = start_progress_thread(rank(), [this] { progress_loop(); });
    if (!progress_thread_.joinable()) threaded_ = false;
  }
}

Communicator::Impl::~Impl() {
  if (progress_engine_ != nullptr) progress_engine_->remove(*this);
  if (progress_thread_.joinable()) {
    {
      const std::lock_guard lock(mutex_);
      stop_ = true;
    }
    work_to_do_.notify_all();
    progress_thread_.join();
  }
  if (queue_.empty() && failure_ == nullptr) {  // results of calls that have returned may be in flight
    std::unique_lock<std::mutex> nobody_else;
    wait_for_in_flight(nobody_else, true);
  }
  if (!(queue_.empty() && in_flight_.empty())) {
    // Peers receive the failure before the buffers are freed.
    State& head = in_flight_.empty() ? queue_.front() : in_flight_.front();
    const std::string operation = FailureDetector::operation({head.sequence, head.call->signature, head.name});
    if (head.phase.load(std::memory_order_relaxed) == State::Phase::running)
      failure_detector->report_failure(
          Errc::peer_lost, rank(), operation,
          fmt::format("{}: rank {} was lost: it left the communicator before the end", operation, rank()));
    fail_all(head, std::make_exception_ptr(Error(
                       Errc::peer_lost, "the communicator was destroyed before the operation ended", rank(), rank())));
  }
  detach_memories();
  leave();
  for (const auto& state : pool_) {
    state->owner = nullptr;
    release_device_call(*state);
  }
  release_device_call(*blocking_);
  if (context.wire != nullptr) try {
      failure_detector->check_control_and_leave();  // sends a failure that other hosts have not received yet
      failure_detector->announce_leave();
    } catch (const std::exception&) {
      return;
    }
  if (context.wire != nullptr && failure_ == nullptr) try {
      context.wire->flush(leave_deadline());
    } catch (const std::exception& error) {
      log_warning(rank(), "leaving a communicator: {}", error.what());
    }
}

Deadline Communicator::Impl::leave_deadline() const noexcept {
  return Deadline::in(std::min(settings.timeout, std::chrono::nanoseconds(std::chrono::seconds(10))));
}

void Communicator::Impl::leave() noexcept {
  if (failure_ != nullptr) return;
  const auto* const two_level =
      static_cast<MultiNodePath*>(paths[static_cast<std::size_t>(DevicePath::multi_host)].get());
  if (two_level != nullptr && two_level->nccl_comm() != nullptr) leave(*two_level->nccl_comm());
  if (nccl() != nullptr) leave(nccl()->nccl_comm());
}

void Communicator::Impl::leave(NcclComm& nccl_comm) const noexcept {
  try {
    nccl_comm.leave();
    CollectiveBackoff backoff(context.oversubscribed);
    for (const Deadline patience = leave_deadline(); !nccl_comm.ready(); backoff.wait())
      if (patience.passed()) return nccl_comm.stop();
  } catch (const std::exception& error) {
    log_warning(rank(), "leaving a communicator: {}", error.what());
  }
}

std::unique_ptr<NcclComm> Communicator::Impl::split_nccl_comm(int color, int key) {
  if (nccl() == nullptr) return nullptr;
  auto lock = guard();
  wait_for_in_flight(lock, false);
  if (failure_ != nullptr) std::rethrow_exception(failure_);
  try {
    std::unique_ptr<NcclComm> part = nccl_comm_split(nccl()->nccl_comm(), color, key, sequence_ + 1, context,
                                                     *failure_detector, Deadline::in(settings.timeout));
    return color < 0 ? nullptr : std::move(part);
  } catch (...) {
    failure_ = std::current_exception();
    throw;
  }
}

// ---- in a child made by fork() ----

void Communicator::Impl::refuse_in_child(std::string_view operation) const {
  throw Error(
      Errc::invalid_argument,
      fmt::format("rank {}: {}: this communicator belongs to process {}, from which this one was forked: a child "
                  "makes its own",
                  rank(), operation, process()),
      rank(), rank(), std::string(operation));
}

/// Keeps the object in a list, where leak checkers find it.
void Communicator::Impl::leave_to_parent(std::unique_ptr<Impl> inherited) noexcept {
  static constinit std::atomic<Impl*> left{nullptr};
  Impl* const last = inherited.release();
  last->next_left_ = left.exchange(last);
}

// ---- counters ----

void Communicator::Impl::retune(const TuningParameters& tuning) {
  context.tuning = tuning;
  planner->forget();
  repeatable_ = false;
}

std::uint64_t Communicator::Impl::bytes_sent() {
  const auto lock = guard_reading();
  std::uint64_t bytes = 0;
  for_each_executor([&](const Executor& one) { bytes += one.bytes_sent(); });
  return bytes;
}

std::uint64_t Communicator::Impl::bytes_sent_to_other_hosts() {
  const auto lock = guard_reading();
  std::uint64_t bytes = 0;
  for_each_executor([&](const Executor& one) { bytes += one.bytes_to_other_hosts(); });
  return bytes;
}

CodingReport Communicator::Impl::coding() {
  const auto lock = guard_reading();
  return executor->coding();
}

std::vector<OperationRecord> Communicator::Impl::recent_operations() {
  const auto lock = guard_reading();
  std::vector<OperationRecord> records = observer->recorder().recent();
  std::uint64_t sequence = sequence_;
  queue_.for_each([&](const State& state) {
    if (state.phase.load(std::memory_order_relaxed) == State::Phase::queued)
      records.push_back(observer->recorder().record_of(++sequence, state.call->shape, state.name, state.issued_ticks));
  });
  return records;
}

Counters Communicator::Impl::counters() {
  const auto lock = guard_reading();
  return observer->recorder().counters();
}

}  // namespace collectives
