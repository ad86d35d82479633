#include "meet.hpp"

#include <fmt/format.h>
#include <sched.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <fstream>
#include <mutex>
#include <nlohmann/json.hpp>

#include "bootstrap/subset.hpp"
#include "calibration.hpp"
#include "collectives/error.hpp"
#include "collectives/version.hpp"
#include "device/loader.hpp"
#include "domain.hpp"
#include "environment.hpp"
#include "exchange.hpp"
#include "log.hpp"
#include "shared_memory/reach.hpp"
#include "shared_memory/sealed_file.hpp"
#include "shared_memory/stage_room.hpp"
#include "shared_memory/staged.hpp"
#include "text.hpp"
#include "trace.hpp"
#include "tuning.hpp"
#include "wire_speed.hpp"
#include "wires.hpp"

namespace collectives {
namespace {

using nlohmann::json;

#ifdef NDEBUG
constexpr std::string_view kBuild = "release";
#else
constexpr std::string_view kBuild = "debug";
#endif

/// Of a file that every Linux has. Throws Error{system} when it cannot be read.
std::string first_line(const char* path) {
  std::ifstream file(path);
  std::string line;
  if (!std::getline(file, line)) throw Error(Errc::system, fmt::format("opening {}: {}", path, open_error_text(errno)));
  return line;
}

std::string inode_of(const char* path) {
  struct stat status {};
  return ::stat(path, &status) == 0 ? std::to_string(status.st_ino) : "?";
}

/// Processes with the same host name here can share an arena: one kernel, one PID namespace (the arena is found through
/// /proc), one user namespace (or /proc would not open it), one network namespace (so that hosts made of namespaces
/// count as hosts).
std::string host_name(const Bootstrap& bootstrap, const Environment& settings, std::string_view transport) {
  std::string name = bootstrap.host();
  if (name.empty() && settings.host_id) name = *settings.host_id;
  if (name.empty())
    name = first_line("/proc/sys/kernel/random/boot_id") + ':' + inode_of("/proc/self/ns/pid") + ':' +
           inode_of("/proc/self/ns/user") + ':' + inode_of("/proc/self/ns/net");
  if (!transport.empty() && transport != "shared_memory")
    name += fmt::format(":rank {}", bootstrap.rank());  // every rank on a host of its own
  return name;
}

/// Two levels need four ranks at least.
std::string domain_name(const Bootstrap& bootstrap, const Environment& settings) {
  std::string name = bootstrap.domain();
  if (name.empty() && settings.domain) name = *settings.domain;
  return name.empty() && bootstrap.size() >= 4 ? domain_of_this_thread() : name;
}

std::vector<int> affinity() {
  cpu_set_t set;
  CPU_ZERO(&set);
  std::vector<int> cores;
  if (::sched_getaffinity(0, sizeof set, &set) != 0) return cores;
  for (int core = 0; core < CPU_SETSIZE; ++core)
    if (CPU_ISSET(static_cast<std::size_t>(core), &set)) cores.push_back(core);
  return cores;
}

/// Cores that the ranks of one host may use together: the launcher may have bound each to a core of its own.
int cores_together(const std::vector<const json*>& ranks) {
  std::vector<int> all;
  int sum = 0, most = 0;
  bool same = true;
  for (const json* rank : ranks) {
    const auto mine = rank->at("affinity").get<std::vector<int>>();
    all.insert(all.end(), mine.begin(), mine.end());
    same = same && mine == ranks.front()->at("affinity").get<std::vector<int>>();
    const int cores = rank->at("cores").get<int>();
    sum += cores;
    most = std::max(most, cores);
  }
  if (same) return most;
  std::sort(all.begin(), all.end());
  all.erase(std::unique(all.begin(), all.end()), all.end());
  return std::min(sum, static_cast<int>(all.size()));
}

/// The machine under all its containers and namespaces; empty where nobody says.
std::string machine_name() {
  std::ifstream file("/proc/sys/kernel/random/boot_id");
  std::string line;
  std::getline(file, line);
  return line;
}

/// Where several hosts are namespaces or containers of one machine: which share one, and how many cores they have. A
/// host uses at most its own, and all together those that there are, unless somebody has said otherwise.
void find_machines(Topology& topology, const std::vector<json>& cards) {
  std::vector<std::string> names;
  std::vector<std::vector<int>> cores;  // by number, of each machine
  std::vector<bool> said;
  for (const auto& members : topology.hosts) {
    std::vector<const json*> here;
    for (const Rank rank : members) here.push_back(&cards[static_cast<std::size_t>(rank)]);
    const auto name = here.front()->at("machine").get<std::string>();
    const auto found = name.empty() ? names.end() : std::ranges::find(names, name);
    const auto machine = static_cast<std::size_t>(found - names.begin());
    if (found == names.end()) {
      names.push_back(name);
      topology.machine_cores.push_back(0);
      cores.emplace_back();
      said.push_back(false);
    }
    topology.machines.push_back(static_cast<int>(machine));
    topology.machine_cores[machine] += cores_together(here);
    for (const json* card : here) {
      const auto mine = card->at("affinity").get<std::vector<int>>();
      cores[machine].insert(cores[machine].end(), mine.begin(), mine.end());
      said[machine] = said[machine] || card->at("cores_said").get<bool>();
    }
  }
  if (names.size() == topology.hosts.size()) {
    topology.machines.clear();
    topology.machine_cores.clear();
  }
  for (std::size_t machine = 0; machine < topology.machine_cores.size(); ++machine) {
    auto& all = cores[machine];
    std::ranges::sort(all);
    const auto different = static_cast<int>(std::unique(all.begin(), all.end()) - all.begin());
    if (!said[machine]) topology.machine_cores[machine] = std::min(topology.machine_cores[machine], different);
  }
}

/// The GPU of this rank, where its buffers may be those of one. Throws Error{unsupported} where the program says that
/// they are and there is none.
void find_gpu(Meeting& meeting, bool wanted, bool required) {
  meeting.no_device = "device_buffers is off, as it is by default in a process that has not used CUDA yet";
  if (!wanted) return;
  meeting.device = find_device(meeting.no_device);
  if (meeting.device == nullptr && required)
    throw Error(Errc::unsupported,
                fmt::format("rank {}: device_buffers is on, and {}", meeting.rank, meeting.no_device), meeting.rank,
                meeting.rank, "construction");
}

/// A little memory of a GPU on which peers try whether they can open it.
class Trial {
 public:
  explicit Trial(Device& device) : device_(device) {
    try {
      memory_ = device.allocate(256);
      handle_ = device.share(memory_);
    } catch (const Error& error) {
      refused_ = error.what();
    }
  }
  ~Trial() {
    if (memory_ != nullptr) device_.free(memory_);
  }
  Trial(const Trial&) = delete;
  Trial& operator=(const Trial&) = delete;

  void add_to(json& card) const {
    if (refused_.empty())
      card["opened by"] = handle_;
    else
      card["not opened"] = refused_;
  }

 private:
  Device& device_;
  void* memory_ = nullptr;
  Device::Handle handle_{};
  std::string refused_;
};

/// What all know of one another's GPUs, and of NCCL there.
json card_of(Meeting& meeting, std::string_view backend, const Trial* trial) {
  if (meeting.device == nullptr) return {{"missing", meeting.no_device}};
  std::string no_nccl;
  if (backend != "auto" && backend != "nccl")
    no_nccl = fmt::format("backend \"{}\" was asked for when the communicator was made", backend);
  else
    meeting.nccl = meeting.device->nccl(no_nccl);
  json card{{"identity", meeting.device->identity()},
            {"number", meeting.device->number()},
            {"host", nccl_host()},
            {"nccl", meeting.nccl == nullptr ? 0 : meeting.nccl->major()},
            {"no_nccl", no_nccl}};
  trial->add_to(card);
  return card;
}

/// Why NCCL does not connect the GPUs of all ranks; empty where it can.
std::string agree_on_nccl(const Topology::Gpus& gpus, const std::vector<json>& cards) {
  if (!gpus.everywhere) return gpus.missing;
  const auto gpu = [&](std::size_t rank) -> const json& { return cards[rank].at("gpu"); };
  for (std::size_t rank = 0; rank < cards.size(); ++rank) {
    if (gpu(rank).at("nccl") == 0) return fmt::format("rank {}: {}", rank, gpu(rank).at("no_nccl").get<std::string>());
    if (gpu(rank).at("nccl") != gpu(0).at("nccl"))
      return fmt::format("rank {} has NCCL {}, rank 0 has NCCL {}", rank, gpu(rank).at("nccl").get<int>(),
                         gpu(0).at("nccl").get<int>());
    for (std::size_t before = 0; before < rank; ++before)
      if (gpu(before).at("identity") == gpu(rank).at("identity") && gpu(before).at("host") == gpu(rank).at("host"))
        return fmt::format(
            "ranks {} and {} are on one GPU, which NCCL refuses: make another one current for each (cudaSetDevice), or "
            "set NCCL_HOSTID differently for each, which makes hosts of them",
            before, rank);
  }
  return "";
}

/// What nobody else can guess: 128 bits.
std::string random_token() {
  unsigned char bytes[16];
  if (::getrandom(bytes, sizeof bytes, 0) != sizeof bytes) throw Error(Errc::system, "getrandom");
  return fmt::format("{:02x}", fmt::join(bytes, ""));
}

/// The domain of each rank of one host; empty unless all know theirs.
std::vector<int> domains_of(const std::vector<json>& cards) {
  std::vector<std::string> names;
  std::vector<int> domains;
  for (const json& card : cards) {
    const auto name = card.at("domain").get<std::string>();
    if (name.empty()) return {};
    const auto found = std::ranges::find(names, name);
    domains.push_back(static_cast<int>(found - names.begin()));
    if (found == names.end()) names.push_back(name);
  }
  return domains;
}

/// What is known of a host from the cards of its ranks.
struct Host {
  Host(const std::vector<Rank>& members, const std::vector<json>& cards) : ranks(members) {
    std::vector<const json*> theirs;
    for (const Rank rank : ranks) theirs.push_back(&cards[static_cast<std::size_t>(rank)]);
    cores = cores_together(theirs);
    threads = std::all_of(theirs.begin(), theirs.end(),
                          [&](const json* card) { return card->at("pid") == theirs.front()->at("pid"); });
    for (const json* card : theirs) processes.push_back(card->at("pid").get<int>());
  }
  bool crowded() const { return static_cast<int>(ranks.size()) > cores; }
  bool has(Rank rank) const { return std::find(ranks.begin(), ranks.end(), rank) != ranks.end(); }

  std::vector<Rank> ranks;
  std::vector<int> processes;
  int cores = 0;
  bool threads = false;  ///< all of them are threads of one process
};

/// The numbers of this machine, which nobody has given: those in rank 0's cache, else the ranks of its host measure
/// them now. What is measured anywhere else would say little of how ranks exchange data that are processes and have a
/// core each.
Tuning tuning_of_machine(Bootstrap& bootstrap, const Host& host, std::chrono::nanoseconds timeout, Deadline deadline) {
  Tuning tuning = built_in_tuning();
  const auto built_in = [&](std::string_view why) {
    tuning.source += fmt::format(" ({})", why);
    return tuning;
  };
  if (host.ranks.size() < 2) return built_in("nothing to measure with one rank");
  if (host.threads) return built_in("ranks that are threads are not measured");
  if (host.crowded()) return built_in("nothing to measure with more ranks than cores");

  const bool deciding = bootstrap.rank() == 0;
  const TuningCache cache = deciding ? TuningCache::of_user() : TuningCache("");
  Situation situation;
  const auto card = [](const Tuning& found) { return json{{"tuning", to_json(found)}, {"source", found.source}}; };
  json told = exchange(bootstrap, attempt([&] {
                         if (!deciding) return json::object();
                         const bool kernel_copy = std::ranges::all_of(host.processes, Reach::kernel_permits);
                         situation = situation_of(host.cores, static_cast<int>(host.ranks.size()), kernel_copy);
                         const auto found = cache.find(situation, tuning);
                         return found ? card(*found) : json::object();
                       }),
                       deadline)[0];
  if (!told.contains("tuning")) {
    SubsetBootstrap here("calibration", bootstrap.rank(), host.ranks, kMeetExchanges,
                         [&](std::string_view text, Deadline until) { return bootstrap.all_gather(text, until); }, {});
    const auto measured = [&] {
      const Calibration calibration(here, timeout);
      if (!calibration.conclusive()) return built_in("the machine was too busy to measure");
      const json found = calibration.tuning();
      cache.keep(situation, found, calibration.measurements());
      read_json(found, tuning, "the calibration");
      tuning.source = "measured on this machine just now";
      return tuning;
    };
    told = exchange(bootstrap, attempt([&] {
                      json mine = json::object();
                      std::exception_ptr failure;
                      try {
                        if (host.has(bootstrap.rank())) mine = card(measured());
                      } catch (const Error& error) {
                        // What the system refuses here it may grant to the communicator, which needs less.
                        if (error.code() == Errc::system)
                          mine = card(built_in(error.what()));
                        else
                          failure = std::current_exception();
                      } catch (...) {
                        failure = std::current_exception();
                      }
                      here.keep_company(deadline);
                      if (failure != nullptr) std::rethrow_exception(failure);
                      return mine;
                    }),
                    deadline)[0];
  }
  read_json(told.at("tuning"), tuning = Tuning{}, "rank 0's cache");
  tuning.source = told.at("source").get<std::string>();
  return tuning;
}

/// What the first rank of a host finds out with that of a host half the hosts away, while all others do: neighbours may
/// have a switch or a machine to themselves.
json measure_pair(const Meeting& meeting, const WireSpeed& alone, Deadline deadline) {
  const auto& hosts = meeting.topology.hosts;
  const auto here = static_cast<std::size_t>(
      std::ranges::find_if(hosts, [&](const auto& ranks) { return ranks.front() == meeting.rank; }) - hosts.begin());
  const std::size_t half = hosts.size() / 2;
  if (here >= 2 * half) return json::object();
  const std::size_t across = here < half ? here + half : here - half;
  return {{"us_per_byte", measure_together(*meeting.wire, hosts[across].front(), alone, deadline)}};
}

/// Links that are slower by less, when all are busy, are independent of one another.
constexpr double kNoticeable = 1.1;

/// The numbers of the wire, which nobody has given: those in rank 0's cache, else the first ranks of two hosts measure
/// them now, while the others wait.
void measure_wire(Bootstrap& bootstrap, Meeting& meeting, Deadline deadline) {
  const Rank one = meeting.topology.hosts[0][0], other = meeting.topology.hosts[1][0];
  const TuningCache cache = meeting.rank == one ? TuningCache::of_user() : TuningCache("");
  Situation situation = situation_of(0, 0, false);
  const auto card = [](const Tuning& found) { return json{{"tuning", to_json(found)}, {"source", found.source}}; };
  json told = exchange(bootstrap, attempt([&] {
                         if (meeting.rank != one) return json::object();
                         const std::string link = meeting.wire->link(other);
                         if (link.empty()) return json::object();
                         situation.wire = fmt::format("{} from {}, {} hosts", meeting.wire->name(), link,
                                                      meeting.topology.hosts.size());
                         const auto found = cache.find(situation, meeting.tuning);
                         return found ? card(*found) : json::object();
                       }),
                       deadline)[static_cast<std::size_t>(one)];
  const bool known = told.contains("tuning");
  if (!known)
    told = exchange(bootstrap, attempt([&] {
                      if (meeting.rank != one && meeting.rank != other) return json::object();
                      const bool first = meeting.rank == one;
                      Tuning tuning = meeting.tuning;
                      measure(*meeting.wire, first ? other : one, first, deadline).put_into(tuning);
                      return first ? card(tuning) : json::object();
                    }),
                    deadline)[static_cast<std::size_t>(one)];
  const std::string source = meeting.tuning.source;
  read_json(told.at("tuning"), meeting.tuning, "rank 0's cache");
  meeting.tuning.source = source + "; the wire's measured";
  if (known) return;
  WireSpeed speed = WireSpeed::from(meeting.tuning);
  if (meeting.topology.hosts.size() >= 4) {
    double sum = 0;
    int pairs = 0;
    for (const json& one_of_pair :
         exchange(bootstrap, attempt([&] { return measure_pair(meeting, speed, deadline); }), deadline))
      if (one_of_pair.contains("us_per_byte")) sum += one_of_pair.at("us_per_byte").get<double>(), ++pairs;
    if (sum / pairs > kNoticeable * speed.us_per_byte) speed.together_us_per_byte = sum / pairs;
    speed.put_into(meeting.tuning);
  }
  if (meeting.rank == one && !situation.wire.empty()) cache.keep(situation, speed.to_json(), {});
}

/// Why this rank's GPU does not reach those of the others of its host; empty where it does.
std::string out_of_reach(Device* device, const Host& host, const std::vector<json>& cards) {
  if (device == nullptr) return "";
  for (const Rank peer : host.ranks) {
    const json& card = cards[static_cast<std::size_t>(peer)];
    const json& gpu = card.at("gpu");
    if (gpu.contains("missing")) continue;
    std::string why;
    if (card.at("pid") == ::getpid()) {
      why = device->reach(gpu.at("identity").get<Device::Identity>());
    } else if (gpu.contains("not opened")) {
      why = gpu.at("not opened").get<std::string>();
    } else {
      try {
        device->close(device->open(gpu.at("opened by").get<Device::Handle>()));
      } catch (const Error& error) {
        why = error.what();
      }
    }
    if (!why.empty()) return fmt::format("{} (memory of rank {})", why, peer);
  }
  return "";
}

}  // namespace

Situation situation_of(int cores, int ranks, bool kernel_copy) {
  return {.library = fmt::format("{}, protocol {}, {} build", version(), kProtocol, kBuild),
          .cpu = cpu_model(),
          .cores = cores,
          .ranks = ranks,
          .kernel_copy = kernel_copy};
}

std::optional<Tuning> given_tuning(const CommunicatorOptions& options) {
  if (options.tuning) {
    Tuning tuning = *options.tuning;
    if (tuning.source == Tuning{}.source) tuning.source = "the program";  // else it took another communicator's
    return tuning;
  }
  const std::optional<std::string> said = environment().tuning;
  if (!said) return std::nullopt;
  Tuning tuning = built_in_tuning();
  if (*said != "default") tuning = tuning_of_file(*said);
  tuning.source += " (COLLECTIVES_TUNING)";
  return tuning;
}

Settings settle(const CommunicatorOptions& options) {
  const Environment from_environment = environment();
  Settings settings;
  settings.backend = !options.backend.empty() ? options.backend : from_environment.backend.value_or("auto");
  settings.timeout = options.timeout.count() != 0
                         ? options.timeout
                         : from_environment.timeout.value_or(std::chrono::nanoseconds(std::chrono::minutes(10)));
  settings.stall_report = options.stall_report;
  settings.deterministic = options.deterministic.value_or(from_environment.deterministic.value_or(false));
  settings.progress_thread =
      options.progress_thread.has_value() ? options.progress_thread : from_environment.progress_thread;
  settings.device_buffers = options.device_buffers.value_or(cuda_is_in_use() || settings.backend == "nccl");
  settings.transport = !options.transport.empty() ? options.transport : from_environment.transport.value_or("");
  const auto known = backend_names();
  if (std::find(known.begin(), known.end(), settings.backend) == known.end())
    throw Error(Errc::invalid_argument,
                fmt::format("unknown backend \"{}\"; known: {}", settings.backend, fmt::join(known, ", ")));
  settings.trace = from_environment.trace.value_or("");
  settings.flight_recorder = from_environment.flight_recorder.value_or("");
  settings.dump_signal = from_environment.dump_signal;
  settings.wire = !options.wire.empty() ? options.wire : from_environment.wire.value_or("");
  if (!settings.transport.empty() && settings.transport != "shared_memory") settings.wire = settings.transport;
  return settings;
}

Meeting meet(Bootstrap& bootstrap, const CommunicatorOptions& options, Settings& settings) {
  // What is wrong with the settings of one rank is said in the first exchange, so that all ranks hear it.
  std::exception_ptr refused;
  try {
    settings = settle(options);
  } catch (const Error&) {
    refused = std::current_exception();
    settings.timeout = options.timeout.count() != 0 ? options.timeout : std::chrono::minutes(10);
  }
  const Deadline deadline = Deadline::in(settings.timeout);
  Meeting meeting;
  meeting.rank = bootstrap.rank();
  const int ranks = bootstrap.size();
  const WireFactory factory = bootstrap.wire_factory();
  static std::once_flag warned;  // of what does not change from one communicator to the next
  if (meeting.rank == 0)
    std::call_once(warned, [] {
      for (const std::string& name : unknown_variables()) log_warning(0, "{}", unknown_variable_warning(name));
    });

  std::optional<Trial> trial;

  // 1. Who is where, with which library and settings.
  const std::vector<json> cards =
      exchange(bootstrap, attempt([&] {
                 if (refused != nullptr) std::rethrow_exception(refused);
                 const Environment here = environment();
                 find_gpu(meeting, settings.device_buffers, options.device_buffers.value_or(false));
                 if (meeting.device != nullptr) trial.emplace(*meeting.device);
                 json card{{"protocol", kProtocol},
                           {"backends", fmt::format("{}", fmt::join(backend_names(), ","))},
                           {"host", host_name(bootstrap, here, settings.transport)},
                           {"machine", machine_name()},
                           {"affinity", affinity()},
                           {"cores", here.cores.value_or(usable_cores())},
                           {"cores_said", here.cores.has_value()},
                           {"pid", ::getpid()},
                           {"transport", settings.transport},
                           {"wire", settings.wire},
                           {"backend", settings.backend},
                           {"deterministic", settings.deterministic},
                           {"domain", domain_name(bootstrap, here)},
                           {"gpu", card_of(meeting, settings.backend, trial ? &*trial : nullptr)},
                           {"context", factory.next_context ? factory.next_context->load() : 0}};
                 if (meeting.rank != 0) return card;
                 card["token"] = random_token();
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

  std::vector<std::string> names;
  std::size_t context = 0;
  for (const json& card : cards) {
    names.push_back(card.at("host").get<std::string>());
    context = std::max(context, card.at("context").get<std::size_t>());
  }
  meeting.topology = Topology::from_hosts(names, 0);
  if (meeting.topology.one_host())
    meeting.topology.domains = domains_of(cards);
  else
    find_machines(meeting.topology, cards);
  std::vector<Host> hosts;
  for (const auto& members : meeting.topology.hosts) hosts.emplace_back(members, cards);
  meeting.topology.cores_per_host = std::ranges::min(hosts, {}, &Host::cores).cores;
  const Host& mine = *std::ranges::find_if(hosts, [&](const Host& host) { return host.has(meeting.rank); });
  meeting.crowded = mine.crowded() || meeting.topology.machine_crowded(static_cast<std::size_t>(&mine - hosts.data()));
  meeting.threads = mine.threads;
  const auto without = std::ranges::find_if(cards, [](const json& card) { return card.at("gpu").contains("missing"); });
  meeting.topology.gpus.everywhere = without == cards.end();
  if (without != cards.end())
    meeting.topology.gpus.missing = fmt::format("rank {} has no GPU: {}", without - cards.begin(),
                                                without->at("gpu").at("missing").get<std::string>());
  meeting.topology.gpus.no_nccl = agree_on_nccl(meeting.topology.gpus, cards);
  meeting.topology.gpus.nccl = meeting.topology.gpus.no_nccl.empty();
  const auto insists = std::ranges::find_if(cards, [](const json& card) { return card.at("backend") == "nccl"; });
  if (insists != cards.end() && !meeting.topology.gpus.nccl)
    throw Error(Errc::unsupported,
                fmt::format("construction: backend \"nccl\" was asked for: {}", meeting.topology.gpus.no_nccl),
                meeting.rank, kNoRank, "construction");

  if (cards[0].contains("tuning")) {
    read_json(cards[0].at("tuning"), meeting.tuning, "rank 0's options");
    meeting.tuning.source = cards[0].at("tuning_source").get<std::string>();
  } else {
    meeting.tuning = tuning_of_machine(bootstrap, hosts.front(), settings.timeout, deadline);
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
                 .frame_bytes = meeting.tuning.frame_bytes,
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
    if (!cards[0].contains("tuning")) measure_wire(bootstrap, meeting, deadline);
  }

  // 3. The lowest rank of each host makes the arena and invites.
  const Rank leader = mine.ranks.front();
  const int local = static_cast<int>(std::ranges::find(mine.ranks, meeting.rank) - mine.ranks.begin());
  const ArenaShape shape{.ranks = static_cast<int>(mine.ranks.size()),
                         .rooms = meeting.topology.levels().empty() ? 1 : StageRoom::kRooms,
                         .inline_bytes = meeting.tuning.inline_bytes,
                         .chunk_bytes = meeting.tuning.chunk_bytes * Staged::kChunkGrowth,
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
                             {"apart", out_of_reach(meeting.device.get(), mine, cards)}};
               }),
               deadline);
  trial.reset();
  const auto kept_out = std::ranges::find_if(answers, [](const json& one) { return one.at("refused") != ""; });
  meeting.kernel_reach = kept_out == answers.end();
  const auto apart = std::ranges::find_if(answers, [](const json& one) { return one.at("apart") != ""; });
  if (apart != answers.end())
    meeting.topology.gpus.apart =
        fmt::format("rank {}: {}", apart - answers.begin(), apart->at("apart").get<std::string>());
  meeting.topology.gpus.within_reach = meeting.topology.gpus.everywhere && apart == answers.end();
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
