// Implementation of init_communicator(), by which the ranks of a new communicator agree on settings and connect.
//
// Before they are connected, the ranks exchange texts over the bootstrap, such as TCP connections to rank 0. The
// initialization has five phases:
//
//   1  The ranks exchange peer information: one JSON object per rank with its host, its GPU and its settings.
//   2  If there are several hosts, the ranks connect the wire, the transport for messages between hosts.
//   3  The lowest rank of each host creates the arena, the memory that the ranks of the host share.
//   4  The other ranks of each host map the arena.
//   5  The ranks test in which ways they can access one another's memory.
//
// Between phases 1 and 2, the ranks may measure the tuning: the numbers from which the library estimates the times of
// algorithms. This measurement needs further exchanges of texts over the bootstrap (measured_tuning.hpp).
#include "communicator/communicator_init.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <climits>
#include <mutex>
#include <nlohmann/json.hpp>
#include <optional>

#include "base/environment.hpp"
#include "base/json_record.hpp"
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

/// Arguments and intermediate results of one initialization.
struct Construction {
  Bootstrap& bootstrap;
  const CommunicatorOptions& options;
  Settings& settings;                    ///< settings, filled in from `options`
  const TuningMeasurement* measure;      ///< functions that measure tuning values; null: built-in values are used
  WireFactory factory;                   ///< makes the wire that the bootstrap brings, such as MPI; empty: it has none
  std::exception_ptr refused;            ///< error of invalid settings, or null
  Deadline deadline;                     ///< time at which the initialization fails if it has not completed
  std::optional<GpuDiscovery> gpus{};    ///< GPU of this rank; set by exchange_peer_infos()
  std::vector<JsonRecord> peer_infos{};  ///< peer information by rank; set by exchange_peer_infos()
};

/// Throws Error{invalid_argument} if the settings name an unknown wire or transport. Checks the name of the wire even
/// if all ranks are on one host, so that a wrong name is an error on every topology.
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

/// Fills in `settings` from `options`. Returns the error of invalid settings, or null.
std::exception_ptr resolve_settings(const Bootstrap& bootstrap, const CommunicatorOptions& options,
                                    const WireFactory& factory, Settings& settings) {
  try {
    settings = resolve_options(options);
    check_names(settings, factory);
    check_ranks(settings.faults, bootstrap.size(), bootstrap.rank());
  } catch (const Error&) {
    settings.timeout = options.timeout.count() != 0 ? options.timeout : std::chrono::minutes(10);
    return std::current_exception();
  }
  return nullptr;
}

/// Logs a warning for each variable that has the library's prefix but that the library does not know. Does so once per
/// process.
void warn_of_unknown_variables() {
  static std::once_flag warned;
  std::call_once(warned, [] {
    for (const std::string& name : unknown_variables()) log_warning(0, "{}", unknown_variable_warning(name));
  });
}

/// Returns the peer information of this rank. Throws the error of invalid settings.
json peer_info_of(Construction& construction) {
  if (construction.refused != nullptr) std::rethrow_exception(construction.refused);
  const CommunicatorOptions& options = construction.options;
  const Settings& settings = construction.settings;
  const auto& next_context = construction.factory.next_context;
  const Rank rank = construction.bootstrap.rank();
  GpuDiscovery& gpus = construction.gpus.emplace(rank, settings.device_buffers, options.device_buffers.value_or(false));
  json peer_info = discover_host(construction.bootstrap, settings.transport);
  peer_info.update({{"protocol", kProtocol},
                    {"backends", fmt::format("{}", fmt::join(backend_names(), ","))},
                    {"transport", settings.transport},
                    {"wire", settings.wire},
                    {"backend", settings.backend},
                    {"deterministic", settings.deterministic},
                    {"gpu", gpus.peer_info(settings.backend)},
                    {"context", next_context ? next_context->load() : 0},
                    {"trace", trace_number(settings.trace)}});
  if (rank != 0) return peer_info;
  peer_info["token"] = fmt::format("{:016x}{:016x}", random_word(), random_word());
  if (const auto given = given_tuning(options)) {
    peer_info["tuning"] = to_json(*given);
    peer_info["tuning_source"] = given->source;
  }
  return peer_info;
}

/// Performs phase 1, one exchange: the ranks exchange hosts, library versions, settings and GPUs. Rank 0 adds a token
/// that identifies the job on the wire. It also adds the tuning, if the program or the environment gives one. No rank
/// sends a path that others open. A rank with invalid settings reports its error here, so that all ranks throw it.
void exchange_peer_infos(Construction& construction) {
  construction.peer_infos =
      exchange(construction.bootstrap, attempt([&] { return peer_info_of(construction); }), construction.deadline);
}

/// Throws Error{mismatch} if a setting that must be equal on all ranks differs between a rank and rank 0.
void agree_on_settings(const Construction& construction) {
  const std::vector<JsonRecord>& peer_infos = construction.peer_infos;
  for (const char* agreed : {"protocol", "backends", "transport", "wire", "deterministic"})
    for (std::size_t rank = 1; rank < peer_infos.size(); ++rank)
      if (peer_infos[rank].shown(agreed) != peer_infos[0].shown(agreed))
        throw Error(Errc::mismatch,
                    fmt::format("construction: rank {} has {} {}, rank 0 has {}", rank, agreed,
                                peer_infos[rank].shown(agreed), peer_infos[0].shown(agreed)),
                    construction.bootstrap.rank(), static_cast<Rank>(rank), "construction");
}

/// Fills in the topology and properties of this rank's host. Throws Error{unsupported} if a rank asks for NCCL, and
/// NCCL does not connect the ranks.
void set_topology(const Construction& construction, const HostMap& host_map, CommunicatorContext& context) {
  const std::vector<JsonRecord>& peer_infos = construction.peer_infos;
  context.oversubscribed = host_map.oversubscribed(context.rank);
  context.threads = host_map.host_of(context.rank).threads;
  context.topology = host_map.topology;
  context.topology.gpus = gpus_of(peer_infos);
  const auto insists =
      std::ranges::find_if(peer_infos, [](const JsonRecord& peer_info) { return peer_info.text("backend") == "nccl"; });
  if (insists != peer_infos.end() && !context.topology.gpus.nccl)
    throw Error(Errc::unsupported,
                fmt::format("construction: backend \"nccl\" was asked for: {}", context.topology.gpus.no_nccl),
                context.rank, kNoRank, "construction");
}

/// Returns the tuning of all ranks. If the program or the environment gives rank 0 a tuning, returns that tuning.
/// Otherwise the ranks measure one on `first_host`, the host of rank 0, in further exchanges (measured_tuning.hpp).
/// Without a function to measure, returns the built-in tuning.
TuningParameters choose_tuning(const Construction& construction, const Host& first_host) {
  const JsonRecord& of_rank_0 = construction.peer_infos[0];
  if (of_rank_0.has("tuning")) {
    TuningParameters tuning;
    read_json(of_rank_0.at("tuning"), tuning, "rank 0's options");
    tuning.source = of_rank_0.text("tuning_source", 2 * PATH_MAX);
    return tuning;
  }
  if (construction.measure == nullptr) return built_in_tuning();
  return construction.measure->of_machine(construction.bootstrap, first_host, construction.settings.timeout,
                                          construction.deadline);
}

/// Returns the lowest context number that no rank has used for a wire. A context number keeps the wires of several
/// communicators apart.
std::size_t unused_wire_context(const std::vector<JsonRecord>& peer_infos) {
  constexpr std::size_t kMostContexts = std::size_t{1} << 40;
  std::size_t context = 0;
  for (const JsonRecord& peer_info : peer_infos)
    context = std::max(context, peer_info.integer<std::size_t>("context", 0, kMostContexts));
  return context;
}

/// Number of characters of the token that identifies the job on the wire.
constexpr std::size_t kTokenDigits = 32;

/// Performs phase 2, which connects hosts by a wire, and by another wire for point-to-point messages. Makes no exchange
/// with one host, and at least four with several. For each wire, the ranks first exchange which wires they have, and
/// later the result of each attempt to connect (wires.hpp). If no
/// tuning was given, they also measure the wire, unless its values are stored. Throws Error{unsupported} if the program
/// asks for shared memory and the ranks are on several hosts.
void connect_hosts(Construction& construction, CommunicatorContext& context) {
  Bootstrap& bootstrap = construction.bootstrap;
  Settings& settings = construction.settings;
  const JsonRecord& of_rank_0 = construction.peer_infos[0];
  const std::size_t wire_context = unused_wire_context(construction.peer_infos);
  if (context.topology.one_host()) {
    const auto& next_context = construction.factory.next_context;
    if (next_context) *next_context = wire_context + 1;
    return;
  }
  if (settings.transport == "shared_memory")
    throw Error(Errc::unsupported,
                fmt::format("transport shared_memory was asked for, and the ranks are on {} hosts",
                            context.topology.hosts.size()),
                context.rank, kNoRank, "construction");
  TuningParameters& tuning = context.tuning;
  const auto connect = [&](std::size_t number) {
    Wires wires({.rank = context.rank,
                 .hosts = context.topology.hosts,
                 .token = of_rank_0.text("token", kTokenDigits),
                 .frame_bytes = std::max({tuning.frame_bytes, tuning.wire_frame_bytes, UserOp::kMaxElementBytes}),
                 .asked_for = settings.wire,
                 .factory = construction.factory,
                 .context = number,
                 .deadline = construction.deadline,
                 .check_peers = [&bootstrap] { bootstrap.check_peers(); }},
                [&](const json& mine, bool is_last) {
                  const auto gather = is_last ? &exchange_result : &exchange;
                  return gather(bootstrap, mine, construction.deadline, OnError::collect);
                });
    return wires.connect();
  };
  context.wire = connect(wire_context);
  settings.wire = context.wire->name();
  context.messages = connect(wire_context + 1);
  tuning.wire_frames = std::min(tuning.wire_frames, static_cast<std::size_t>(context.wire->frames()));
  if (!of_rank_0.has("tuning") && construction.measure != nullptr)
    construction.measure->of_wire(bootstrap, context.topology, *context.wire, tuning, construction.deadline);
}

/// Performs phases 3 and 4, one exchange each, which create the arena of each host. `host` is the host of this rank.
/// The lowest rank of a host creates the arena and sends its handle in the first exchange. The other ranks then map the
/// arena. In the second exchange, ranks send only errors. After it, every rank knows that all have mapped the arena.
void create_arena(const Construction& construction, const Host& host, CommunicatorContext& context) {
  const int ranks = static_cast<int>(host.ranks.size());
  const Rank leader = host.ranks.front();
  const ArenaShape shape{.ranks = ranks,
                         .subgroups = context.topology.levels().empty() ? 1 : SubgroupMemory::kSubgroups,
                         .inline_bytes = context.tuning.inline_bytes,
                         .chunk_bytes = Staged::longest_chunk(ranks, context.tuning),
                         .frame_bytes = std::max(context.tuning.frame_bytes, UserOp::kMaxElementBytes)};
  const auto create = [&]() -> json {
    if (context.rank != leader) return json::object();
    context.arena = Arena::create(shape);
    return {{"arena", context.arena->handle()}};
  };
  const std::vector<JsonRecord> handles = exchange(construction.bootstrap, attempt(create), construction.deadline);

  const auto join = [&] {
    const int local = static_cast<int>(std::ranges::find(host.ranks, context.rank) - host.ranks.begin());
    if (context.rank != leader)
      context.arena = Arena::join(handles[static_cast<std::size_t>(leader)].text("arena"), shape, local);
    return json::object();
  };
  exchange(construction.bootstrap, attempt(join), construction.deadline);
}

/// Turns off the protocols in which the operating system copies between the memories of two ranks. The system refuses
/// to copy for the rank `refused`, for the reason `why`. If the tuning asks for these protocols, rank 0 logs a warning,
/// once per process.
void forbid_kernel_copy(CommunicatorContext& context, Rank refused, const std::string& why) {
  static std::atomic_flag said;
  TuningParameters& tuning = context.tuning;
  const bool wanted = std::min(tuning.single_copy_bytes, tuning.single_copy_reduce_bytes) != Tuning::kNever;
  if (context.rank == 0 && wanted && !said.test_and_set())
    log_warning(refused,
                "{}: long vectors take a copy more; see kernel.yama.ptrace_scope, the seccomp filter and "
                "the capabilities of the container",
                why);
  tuning.single_copy_bytes = tuning.single_copy_reduce_bytes = Tuning::kNever;
}

/// Refuses injected faults that have no meaning here. Requires that the hosts are connected.
void check_faults(CommunicatorContext& context) {
  if (context.injection == nullptr) return;
  std::vector<Rank> remote;
  for (const std::vector<Rank>& host : context.topology.hosts)
    if (std::ranges::count(host, context.rank) == 0) remote.insert(remote.end(), host.begin(), host.end());
  context.injection->connect(context.wire.get(), std::move(remote));
}

/// Causes the injected faults of a phase of the construction, which is call 0.
void cause_faults(const CommunicatorContext& context, Fault::Phase phase) {
  if (context.injection != nullptr) context.injection->enter(0, phase);
}

/// Performs phase 5, one exchange. The ranks test whether the operating system copies between their memories, and
/// whether their GPUs can access one another's memory. They exchange the reasons of failed tests. Requires that all
/// ranks have mapped the arena. Ranks that are threads of one process need no copies by the system.
void probe_copies(Construction& construction, const Host& host, CommunicatorContext& context) {
  GpuDiscovery& gpus = *construction.gpus;
  const auto probe = [&] {
    check_faults(context);
    return json{{"refused", context.threads ? std::string() : PeerMemory::kernel_refuses(*context.arena)},
                {"apart", gpus.why_no_peer_access(host, construction.peer_infos)}};
  };
  const std::vector<JsonRecord> answers = exchange(construction.bootstrap, attempt(probe), construction.deadline);
  context.nccl = gpus.nccl;
  context.no_device = gpus.no_device;
  context.device = gpus.release_device();

  const auto refused =
      std::ranges::find_if(answers, [](const JsonRecord& one) { return !one.text("refused").empty(); });
  context.kernel_copy_allowed = refused == answers.end();
  if (!context.kernel_copy_allowed)
    forbid_kernel_copy(context, static_cast<Rank>(refused - answers.begin()), refused->text("refused"));

  const auto apart = std::ranges::find_if(answers, [](const JsonRecord& one) { return !one.text("apart").empty(); });
  if (apart != answers.end())
    context.topology.gpus.apart = fmt::format("rank {}: {}", apart - answers.begin(), apart->text("apart"));
  context.topology.gpus.peer_access = context.topology.gpus.everywhere && apart == answers.end();
  agree_on_nccl_in_hosts(context.topology, construction.peer_infos);
}

}  // namespace

CommunicatorContext init_communicator(Bootstrap& bootstrap, const CommunicatorOptions& options, Settings& settings,
                                      const TuningMeasurement* measure) {
  const WireFactory factory = bootstrap.wire_factory();
  const std::exception_ptr refused = resolve_settings(bootstrap, options, factory, settings);
  CommunicatorContext context;
  context.rank = bootstrap.rank();
  Construction construction{.bootstrap = bootstrap,
                            .options = options,
                            .settings = settings,
                            .measure = measure,
                            .factory = factory,
                            .refused = refused,
                            .deadline = Deadline::in(settings.timeout)};
  if (context.rank == 0) warn_of_unknown_variables();

  exchange_peer_infos(construction);
  agree_on_settings(construction);
  const HostMap host_map(construction.peer_infos);
  const Host& host = host_map.host_of(context.rank);
  set_topology(construction, host_map, context);
  context.injection = Injection::of_rank(settings.faults, context.rank, context.threads && host.ranks.size() > 1);
  context.tuning = choose_tuning(construction, host_map.hosts.front());
  context.trace = settings.trace;
  for (const JsonRecord& peer_info : construction.peer_infos) context.trace_numbers.push_back(peer_info.text("trace"));

  cause_faults(context, Fault::Phase::begin);
  connect_hosts(construction, context);
  cause_faults(context, Fault::Phase::sent);
  create_arena(construction, host, context);
  probe_copies(construction, host, context);
  cause_faults(context, Fault::Phase::end);
  context.public_tuning = context.tuning;
  return context;
}

}  // namespace collectives
