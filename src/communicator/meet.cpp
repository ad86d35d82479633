#include "communicator/meet.hpp"

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
#include "device/acquaintance.hpp"
#include "shared_memory/reach.hpp"
#include "shared_memory/stage_room.hpp"
#include "shared_memory/staged.hpp"
#include "topology/whereabouts.hpp"
#include "transport/wires.hpp"

namespace collectives {
namespace {

using nlohmann::json;

/// A wire that is not needed, on one host, is refused all the same if nobody could mean it.
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

Meeting meet(Bootstrap& bootstrap, const CommunicatorOptions& options, Settings& settings,
             const TuningMeasurement* measure) {
  // What is wrong with the settings of one rank is said in the first exchange, so that all ranks hear it.
  const WireFactory factory = bootstrap.wire_factory();
  std::exception_ptr refused;
  try {
    settings = settle(options);
    check_names(settings, factory);
  } catch (const Error&) {
    refused = std::current_exception();
    settings.timeout = options.timeout.count() != 0 ? options.timeout : std::chrono::minutes(10);
  }
  const Deadline deadline = Deadline::in(settings.timeout);
  Meeting meeting;
  meeting.rank = bootstrap.rank();
  const int ranks = bootstrap.size();
  static std::once_flag warned;  // of what does not change from one communicator to the next
  if (meeting.rank == 0)
    std::call_once(warned, [] {
      for (const std::string& name : unknown_variables()) log_warning(0, "{}", unknown_variable_warning(name));
    });

  std::optional<Acquaintance> gpus;

  // 1. Who is where, with which library and settings.
  const std::vector<json> cards =
      exchange(bootstrap, attempt([&] {
                 if (refused != nullptr) std::rethrow_exception(refused);
                 gpus.emplace(meeting.rank, settings.device_buffers, options.device_buffers.value_or(false));
                 json card = whereabouts(bootstrap, settings.transport);
                 card.update({{"protocol", kProtocol},
                              {"backends", fmt::format("{}", fmt::join(backend_names(), ","))},
                              {"transport", settings.transport},
                              {"wire", settings.wire},
                              {"backend", settings.backend},
                              {"deterministic", settings.deterministic},
                              {"gpu", gpus->card(settings.backend)},
                              {"context", factory.next_context ? factory.next_context->load() : 0}});
                 if (meeting.rank != 0) return card;
                 card["token"] = fmt::format("{:016x}{:016x}", random_word(), random_word());
                 card["trace"] = has_trace_identity() ? "" : settings.trace;
                 if (const auto given = given_tuning(options)) {
                   card["tuning"] = to_json(*given);
                   card["tuning_source"] = given->source;
                 }
                 return card;
               }),
               deadline);

  for (const char* agreed : {"protocol", "backends", "transport", "wire", "deterministic"})
    for (int rank = 1; rank < ranks; ++rank)
      if (cards[static_cast<std::size_t>(rank)].at(agreed) != cards[0].at(agreed))
        throw Error(Errc::mismatch,
                    fmt::format("construction: rank {} has {} {}, rank 0 has {}", rank, agreed,
                                cards[static_cast<std::size_t>(rank)].at(agreed).dump(), cards[0].at(agreed).dump()),
                    meeting.rank, rank, "construction");

  Places places(cards);
  const Host& mine = places.host_of(meeting.rank);
  meeting.crowded = places.crowded(meeting.rank);
  meeting.threads = mine.threads;
  meeting.topology = places.topology;
  meeting.topology.gpus = gpus_of(cards);
  std::size_t context = 0;
  for (const json& card : cards) context = std::max(context, card.at("context").get<std::size_t>());
  const auto insists = std::ranges::find_if(cards, [](const json& card) { return card.at("backend") == "nccl"; });
  if (insists != cards.end() && !meeting.topology.gpus.nccl)
    throw Error(Errc::unsupported,
                fmt::format("construction: backend \"nccl\" was asked for: {}", meeting.topology.gpus.no_nccl),
                meeting.rank, kNoRank, "construction");

  if (cards[0].contains("tuning")) {
    read_json(cards[0].at("tuning"), meeting.tuning, "rank 0's options");
    meeting.tuning.source = cards[0].at("tuning_source").get<std::string>();
  } else if (measure == nullptr) {
    meeting.tuning = built_in_tuning();
  } else {
    meeting.tuning = measure->of_machine(bootstrap, places.hosts.front(), settings.timeout, deadline);
  }

  meeting.trace = cards[0].value("trace", "");

  // 2. The hosts are connected.
  if (meeting.topology.one_host()) {
    if (factory.next_context) *factory.next_context = context + 1;
  } else {
    if (settings.transport == "shared_memory")
      throw Error(Errc::unsupported,
                  fmt::format("transport shared_memory was asked for, and the ranks are on {} hosts",
                              meeting.topology.hosts.size()),
                  meeting.rank, kNoRank, "construction");
    Wires wires({.rank = meeting.rank,
                 .hosts = meeting.topology.hosts,
                 .token = cards[0].at("token").get<std::string>(),
                 .frame_bytes = std::max(meeting.tuning.frame_bytes, meeting.tuning.wire_frame_bytes),
                 .asked_for = settings.wire,
                 .factory = factory,
                 .context = context,
                 .deadline = deadline},
                [&](const std::function<json()>& said) {
                  return exchange(bootstrap, attempt(said), deadline, Failures::told);
                });
    meeting.wire = wires.connect();
    settings.wire = meeting.wire->name();
    meeting.tuning.wire_frames = std::min(meeting.tuning.wire_frames, static_cast<std::size_t>(meeting.wire->frames()));
    if (!cards[0].contains("tuning") && measure != nullptr)
      measure->of_wire(bootstrap, meeting.topology, *meeting.wire, meeting.tuning, deadline);
  }

  // 3. The lowest rank of each host makes the arena and invites.
  const Rank leader = mine.ranks.front();
  const int local = static_cast<int>(std::ranges::find(mine.ranks, meeting.rank) - mine.ranks.begin());
  const ArenaShape shape{.ranks = static_cast<int>(mine.ranks.size()),
                         .rooms = meeting.topology.levels().empty() ? 1 : StageRoom::kRooms,
                         .inline_bytes = meeting.tuning.inline_bytes,
                         .chunk_bytes = Staged::longest_chunk(static_cast<int>(mine.ranks.size()), meeting.tuning),
                         .frame_bytes = meeting.tuning.frame_bytes};
  const std::vector<json> invitations = exchange(bootstrap, attempt([&]() -> json {
                                                   if (meeting.rank != leader) return json::object();
                                                   meeting.arena = Arena::create(shape);
                                                   return {{"arena", meeting.arena->invitation()}};
                                                 }),
                                                 deadline);

  // 4. The others of the host join. After this exchange everyone knows that everyone is in.
  exchange(bootstrap, attempt([&] {
             if (meeting.rank != leader)
               meeting.arena = Arena::join(invitations[static_cast<std::size_t>(leader)].at("arena").get<std::string>(),
                                           shape, local);
             return json::object();
           }),
           deadline);

  // 5. With everyone in: may the kernel copy between the ranks of a host? Threads do not need it to.
  const std::vector<json> answers =
      exchange(bootstrap, attempt([&] {
                 return json{{"refused", meeting.threads ? std::string() : Reach::kernel_refuses(*meeting.arena)},
                             {"apart", gpus->out_of_reach(mine, cards)}};
               }),
               deadline);
  meeting.nccl = gpus->nccl;
  meeting.no_device = gpus->no_device;
  meeting.device = gpus->give_device();
  const auto kept_out = std::ranges::find_if(answers, [](const json& one) { return one.at("refused") != ""; });
  meeting.kernel_reach = kept_out == answers.end();
  const auto apart = std::ranges::find_if(answers, [](const json& one) { return one.at("apart") != ""; });
  if (apart != answers.end())
    meeting.topology.gpus.apart =
        fmt::format("rank {}: {}", apart - answers.begin(), apart->at("apart").get<std::string>());
  meeting.topology.gpus.within_reach = meeting.topology.gpus.everywhere && apart == answers.end();
  agree_on_nccl_in_hosts(meeting.topology, cards);
  if (!meeting.kernel_reach) {
    static std::atomic_flag said;
    Tuning& tuning = meeting.tuning;
    const bool wanted = std::min(tuning.single_copy_bytes, tuning.single_copy_reduce_bytes) != Tuning::kNever;
    if (meeting.rank == 0 && wanted && !said.test_and_set())
      log_warning(static_cast<Rank>(kept_out - answers.begin()),
                  "{}: long vectors take a copy more; see kernel.yama.ptrace_scope, the seccomp filter and "
                  "the capabilities of the container",
                  kept_out->at("refused").get<std::string>());
    tuning.single_copy_bytes = tuning.single_copy_reduce_bytes = Tuning::kNever;
  }
  return meeting;
}

}  // namespace collectives
