#include "communicator/communicator_init.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <mutex>
#include <nlohmann/json.hpp>
#include <optional>

#include "base/environment.hpp"
#include "base/log.hpp"
#include "base/random_word.hpp"
#include "bootstrap/exchange.hpp"
#include "collectives/error.hpp"
#include "communicator/init_trace.hpp"
#include "core/tuning.hpp"
#include "device/gpu_discovery.hpp"
#include "shared_memory/peer_memory.hpp"
#include "shared_memory/staged.hpp"
#include "shared_memory/subgroup_memory.hpp"
#include "topology/host_map.hpp"
#include "transport/wires.hpp"

namespace collectives {
namespace {

using nlohmann::json;

/// Throws Error if the program names an unknown wire or transport. The name of the wire is checked even on one host,
/// which needs none.
void check_names(const Settings& settings, const WireFactory& factory) {
  std::vector<std::string_view> known{"tcp", "ucx", "mpi"};
  if (!factory.name.empty() && std::ranges::find(known, factory.name) == known.end()) known.push_back(factory.name);
  const auto check = [&](std::string_view what, const std::string& name) {
    if (!name.empty() && std::ranges::find(known, name) == known.end())
      throw Error(Errc::invalid_argument,
                  fmt::format("unknown {} \"{}\"; known: {}", what, name, fmt::join(known, ", ")));
  };
  if (settings.wire != settings.transport) check("wire", settings.wire);
  known.insert(known.begin(), "shared_memory");
  check("transport", settings.transport);
}

}  // namespace

CommunicatorContext init_communicator(Bootstrap& bootstrap, const CommunicatorOptions& options, Settings& settings,
                                      const TuningMeasurement* measure) {
  // A rank with invalid settings reports them in the first exchange, so that all ranks throw the error.
  const WireFactory factory = bootstrap.wire_factory();
  std::exception_ptr refused;
  try {
    settings = resolve_options(options);
    check_names(settings, factory);
  } catch (const Error&) {
    refused = std::current_exception();
    settings.timeout = options.timeout.count() != 0 ? options.timeout : std::chrono::minutes(10);
  }
  const Deadline deadline = Deadline::in(settings.timeout);
  CommunicatorContext context;
  context.rank = bootstrap.rank();
  const int ranks = bootstrap.size();
  static std::once_flag warned;  // the environment's variables are checked once per process
  if (context.rank == 0)
    std::call_once(warned, [] {
      for (const std::string& name : unknown_variables()) log_warning(0, "{}", unknown_variable_warning(name));
    });

  std::optional<GpuDiscovery> gpus;

  // 1. The ranks exchange hosts, library versions, settings and GPUs.
  const std::vector<json> peer_infos =
      exchange(bootstrap, attempt([&] {
                 if (refused != nullptr) std::rethrow_exception(refused);
                 gpus.emplace(context.rank, settings.device_buffers, options.device_buffers.value_or(false));
                 json peer_info = discover_host(bootstrap, settings.transport);
                 peer_info.update({{"protocol", kProtocol},
                                   {"backends", fmt::format("{}", fmt::join(backend_names(), ","))},
                                   {"transport", settings.transport},
                                   {"wire", settings.wire},
                                   {"backend", settings.backend},
                                   {"deterministic", settings.deterministic},
                                   {"gpu", gpus->peer_info(settings.backend)},
                                   {"context", factory.next_context ? factory.next_context->load() : 0}});
                 if (context.rank != 0) return peer_info;
                 peer_info["token"] = fmt::format("{:016x}{:016x}", random_word(), random_word());
                 peer_info["trace"] = has_trace_identity() ? "" : settings.trace;
                 if (const auto given = given_tuning(options)) {
                   peer_info["tuning"] = to_json(*given);
                   peer_info["tuning_source"] = given->source;
                 }
                 return peer_info;
               }),
               deadline);

  for (const char* agreed : {"protocol", "backends", "transport", "wire", "deterministic"})
    for (int rank = 1; rank < ranks; ++rank)
      if (peer_infos[static_cast<std::size_t>(rank)].at(agreed) != peer_infos[0].at(agreed))
        throw Error(
            Errc::mismatch,
            fmt::format("construction: rank {} has {} {}, rank 0 has {}", rank, agreed,
                        peer_infos[static_cast<std::size_t>(rank)].at(agreed).dump(), peer_infos[0].at(agreed).dump()),
            context.rank, rank, "construction");

  HostMap host_map(peer_infos);
  const Host& mine = host_map.host_of(context.rank);
  context.oversubscribed = host_map.oversubscribed(context.rank);
  context.threads = mine.threads;
  context.topology = host_map.topology;
  context.topology.gpus = gpus_of(peer_infos);
  std::size_t wire_context = 0;
  for (const json& peer_info : peer_infos)
    wire_context = std::max(wire_context, peer_info.at("context").get<std::size_t>());
  const auto insists =
      std::ranges::find_if(peer_infos, [](const json& peer_info) { return peer_info.at("backend") == "nccl"; });
  if (insists != peer_infos.end() && !context.topology.gpus.nccl)
    throw Error(Errc::unsupported,
                fmt::format("construction: backend \"nccl\" was asked for: {}", context.topology.gpus.no_nccl),
                context.rank, kNoRank, "construction");

  if (peer_infos[0].contains("tuning")) {
    read_json(peer_infos[0].at("tuning"), context.tuning, "rank 0's options");
    context.tuning.source = peer_infos[0].at("tuning_source").get<std::string>();
  } else if (measure == nullptr) {
    context.tuning = built_in_tuning();
  } else {
    context.tuning = measure->of_machine(bootstrap, host_map.hosts.front(), settings.timeout, deadline);
  }

  context.trace = peer_infos[0].value("trace", "");

  // 2. The hosts are connected.
  if (context.topology.one_host()) {
    if (factory.next_context) *factory.next_context = wire_context + 1;
  } else {
    if (settings.transport == "shared_memory")
      throw Error(Errc::unsupported,
                  fmt::format("transport shared_memory was asked for, and the ranks are on {} hosts",
                              context.topology.hosts.size()),
                  context.rank, kNoRank, "construction");
    Wires wires({.rank = context.rank,
                 .hosts = context.topology.hosts,
                 .token = peer_infos[0].at("token").get<std::string>(),
                 .frame_bytes = std::max(context.tuning.frame_bytes, context.tuning.wire_frame_bytes),
                 .asked_for = settings.wire,
                 .factory = factory,
                 .context = wire_context,
                 .deadline = deadline},
                [&](const std::function<json()>& said) {
                  return exchange(bootstrap, attempt(said), deadline, OnError::collect);
                });
    context.wire = wires.connect();
    settings.wire = context.wire->name();
    context.tuning.wire_frames = std::min(context.tuning.wire_frames, static_cast<std::size_t>(context.wire->frames()));
    if (!peer_infos[0].contains("tuning") && measure != nullptr)
      measure->of_wire(bootstrap, context.topology, *context.wire, context.tuning, deadline);
  }

  // 3. The lowest rank of each host creates the arena and shares its handle.
  const Rank leader = mine.ranks.front();
  const int local = static_cast<int>(std::ranges::find(mine.ranks, context.rank) - mine.ranks.begin());
  const ArenaShape shape{.ranks = static_cast<int>(mine.ranks.size()),
                         .subgroups = context.topology.levels().empty() ? 1 : SubgroupMemory::kSubgroups,
                         .inline_bytes = context.tuning.inline_bytes,
                         .chunk_bytes = Staged::longest_chunk(static_cast<int>(mine.ranks.size()), context.tuning),
                         .frame_bytes = context.tuning.frame_bytes};
  const std::vector<json> handles = exchange(bootstrap, attempt([&]() -> json {
                                               if (context.rank != leader) return json::object();
                                               context.arena = Arena::create(shape);
                                               return {{"arena", context.arena->handle()}};
                                             }),
                                             deadline);

  // 4. The other ranks of the host join. After this exchange every rank knows that all have joined.
  exchange(bootstrap, attempt([&] {
             if (context.rank != leader)
               context.arena =
                   Arena::join(handles[static_cast<std::size_t>(leader)].at("arena").get<std::string>(), shape, local);
             return json::object();
           }),
           deadline);

  // 5. The ranks test whether the kernel may copy between them, and whether GPUs reach one another. All ranks must have
  // joined the arena before. Threads need no copies by the kernel.
  const std::vector<json> answers =
      exchange(bootstrap, attempt([&] {
                 return json{{"refused", context.threads ? std::string() : PeerMemory::kernel_refuses(*context.arena)},
                             {"apart", gpus->why_no_peer_access(mine, peer_infos)}};
               }),
               deadline);
  context.nccl = gpus->nccl;
  context.no_device = gpus->no_device;
  context.device = gpus->release_device();
  const auto kept_out = std::ranges::find_if(answers, [](const json& one) { return one.at("refused") != ""; });
  context.kernel_copy_allowed = kept_out == answers.end();
  const auto apart = std::ranges::find_if(answers, [](const json& one) { return one.at("apart") != ""; });
  if (apart != answers.end())
    context.topology.gpus.apart =
        fmt::format("rank {}: {}", apart - answers.begin(), apart->at("apart").get<std::string>());
  context.topology.gpus.within_reach = context.topology.gpus.everywhere && apart == answers.end();
  agree_on_nccl_in_hosts(context.topology, peer_infos);
  if (!context.kernel_copy_allowed) {
    static std::atomic_flag said;
    Tuning& tuning = context.tuning;
    const bool wanted = std::min(tuning.single_copy_bytes, tuning.single_copy_reduce_bytes) != Tuning::kNever;
    if (context.rank == 0 && wanted && !said.test_and_set())
      log_warning(static_cast<Rank>(kept_out - answers.begin()),
                  "{}: long vectors take a copy more; see kernel.yama.ptrace_scope, the seccomp filter and "
                  "the capabilities of the container",
                  kept_out->at("refused").get<std::string>());
    tuning.single_copy_bytes = tuning.single_copy_reduce_bytes = Tuning::kNever;
  }
  return context;
}

}  // namespace collectives
