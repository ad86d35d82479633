// Implementation of world_of(), which finds the rank of this process, the number of ranks, and the address of rank 0.
// Each launcher sets environment variables with different names, so this file has one function per launcher.
#include "bootstrap/world.hpp"

#include <fmt/format.h>

#include <charconv>
#include <climits>
#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

#include "base/json.hpp"
#include "collectives/error.hpp"

namespace collectives {
namespace {

constexpr int kLargestPort = 65535;
constexpr int kMostRanks = 1'000'000;

[[noreturn]] void refuse(const std::string& what) { throw Error(Errc::bootstrap, what); }

/// Returns the value of the variable `name`, or null if the variable is unset or empty.
const std::string* find(const Variables& variables, std::string_view name) {
  const auto found = variables.find(name);
  return found == variables.end() || found->second.empty() ? nullptr : &found->second;
}

int number(std::string_view name, std::string_view text, int least, int most) {
  int value = 0;
  const auto [end, status] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (status != std::errc{} || end != text.data() + text.size() || value < least || value > most) {
    refuse(most == INT_MAX ? fmt::format("{}={}: not a whole number of at least {}", name, text, least)
                           : fmt::format("{}={}: not a whole number from {} to {}", name, text, least, most));
  }
  return value;
}

/// Reads rank and size from the variables named `rank` and `size`. Checks each value, then that the rank is below the
/// size.
World place(const Variables& variables, std::string_view rank, std::string_view size, std::string_view source) {
  World world;
  world.size = number(size, *find(variables, size), 1, kMostRanks);
  world.rank = number(rank, *find(variables, rank), 0, INT_MAX);
  if (world.rank >= world.size) refuse(fmt::format("{}={}: not less than {}={}", rank, world.rank, size, world.size));
  world.source = source;
  return world;
}

/// Returns a port for a job, from 15000 to 29999. By default, Linux uses other ports for outgoing connections.
int port_of_job(std::string_view job) {
  std::uint32_t hash = 2166136261u;  // FNV-1a gives the same value on every rank and in every build.
  for (const char c : job) hash = (hash ^ static_cast<unsigned char>(c)) * 16777619u;
  return static_cast<int>(15000u + hash % 15000u);
}

/// Returns the first host of a host list of Slurm. Example: "node07-ib" for "node[07-09,12]-ib,gpu1".
std::string first_host(std::string_view list) {
  std::string host;
  bool skipping = false;  // True from the end of the first number in a bracket to the end of the bracket.
  bool inside = false;
  for (const char c : list) {
    if (c == '[') {
      inside = true;
    } else if (c == ']') {
      inside = skipping = false;
    } else if (inside && (c == ',' || c == '-')) {
      skipping = true;
    } else if (c == ',') {
      break;
    } else if (!skipping) {
      host += c;
    }
  }
  return host;
}

/// Sets the address and port of rank 0 for a launcher that provides none. Uses MASTER_ADDR and MASTER_PORT if they are
/// set.
void choose_rendezvous_point(World& world, const Variables& variables, std::string_view fallback_host,
                             std::string_view job) {
  const auto* address = find(variables, "MASTER_ADDR");
  const auto* port = find(variables, "MASTER_PORT");
  if (!address && fallback_host.empty()) {
    refuse(fmt::format("{} started ranks on several hosts: set MASTER_ADDR to the host of rank 0, and MASTER_PORT",
                       world.source));
  }
  world.address = address ? *address : fallback_host;
  world.port = port ? number("MASTER_PORT", *port, 1, kLargestPort) : port_of_job(job);
  // Without MASTER_PORT, the port is computed from the id of the job, so all ranks that connect at this port have the
  // same id. With MASTER_PORT, ranks of one job may have different ids on different hosts.
  if (!port && !job.empty()) world.job.text = fmt::format("{} {}", world.source, job);
}

/// Returns 127.0.0.1 if all ranks are on this host, else an empty text. The variable `local_size` holds the number of
/// ranks on this host. If it is not set, all ranks count as local.
std::string_view if_one_host(const World& world, const Variables& variables, std::string_view local_size) {
  const auto* local = find(variables, local_size);
  return !local || number(local_size, *local, 1, INT_MAX) == world.size ? "127.0.0.1" : "";
}

std::string first_of(const Variables& variables, std::initializer_list<std::string_view> names) {
  for (const std::string_view name : names) {
    if (const auto* value = find(variables, name)) return *value;
  }
  return {};
}

std::optional<World> from_rank(const Variables& variables, std::optional<int> port) {
  const auto* rank = find(variables, "RANK");
  const auto* size = find(variables, "WORLD_SIZE");
  if (!rank || !size) return std::nullopt;
  World world = place(variables, "RANK", "WORLD_SIZE", "RANK");
  if (world.size == 1) return world;
  const auto* address = find(variables, "MASTER_ADDR");
  const auto* master_port = find(variables, "MASTER_PORT");
  if (!address || (!master_port && !port)) return std::nullopt;
  world.address = *address;
  if (port) return world;
  const auto* agent = find(variables, "TORCHELASTIC_USE_AGENT_STORE");
  const bool occupied = agent && *agent == "True";
  world.port = number("MASTER_PORT", *master_port, 1, occupied ? kLargestPort - 1 : kLargestPort) + (occupied ? 1 : 0);
  return world;
}

using Json = nlohmann::json;

const Json& member(const Json& object, std::string_view key, std::string_view path) {
  const auto found = object.find(key);
  if (found == object.end()) refuse(fmt::format("TF_CONFIG: no key \"{}\"", path));
  return *found;
}

/// Task of this process in TF_CONFIG: the job "chief", "worker" or "evaluator", and the index of the task there.
struct TfTask {
  std::string job;
  std::int64_t index;
};

/// Returns the entry "task" of TF_CONFIG.
TfTask read_tf_task(const Json& task) {
  const Json& type = member(task, "type", "task.type");
  const Json& index = member(task, "index", "task.index");
  if (!type.is_string()) refuse("TF_CONFIG: \"task.type\" is not a string");
  if (!index.is_number_integer()) refuse("TF_CONFIG: \"task.index\" is not a whole number");
  return {type.get<std::string>(), index.get<std::int64_t>()};
}

/// Refuses parameter servers, unknown jobs, and jobs that are no lists of addresses.
void check_tf_cluster(const Json& cluster, const TfTask& self) {
  if (cluster.contains("ps") || self.job == "ps") {
    refuse("TF_CONFIG: \"ps\": parameter servers are not supported; use chief and worker tasks only");
  }
  for (const auto& [job, tasks] : cluster.items()) {
    if (job != "chief" && job != "worker" && job != "evaluator") {
      refuse(fmt::format("TF_CONFIG: \"cluster.{}\": known are chief, worker, evaluator", job));
    }
    bool addresses = tasks.is_array();
    for (const Json& each : tasks) addresses = addresses && each.is_string();
    if (!addresses) refuse(fmt::format("TF_CONFIG: \"cluster.{}\" is not a list of \"host:port\"", job));
  }
}

/// Refuses a task that is no rank, or that the cluster does not have.
void check_tf_task(const TfTask& self, const Json& cluster) {
  if (self.job == "evaluator") {
    refuse(
        fmt::format("TF_CONFIG: this process is evaluator {}, which stands outside the world of ranks: "
                    "it takes no part in collectives",
                    self.index));
  }
  if (self.job != "chief" && self.job != "worker") {
    refuse(fmt::format("TF_CONFIG: \"task.type\" is \"{}\": known are chief, worker, evaluator", self.job));
  }
  if (!cluster.contains(self.job))
    refuse(fmt::format("TF_CONFIG: \"task.type\" is \"{0}\", but \"cluster\" has no \"{0}\"", self.job));
  const auto tasks = static_cast<std::int64_t>(cluster[self.job].size());
  if (self.index < 0 || self.index >= tasks) {
    refuse(fmt::format("TF_CONFIG: \"task.index\" is {}, but \"cluster.{}\" has {} task{}", self.index, self.job, tasks,
                       tasks == 1 ? "" : "s"));
  }
}

/// Sets the address and port of rank 0, which is the first task of `job`.
void set_tf_address(World& world, const Json& cluster, std::string_view job) {
  const auto first = cluster[job][0].get<std::string>();
  const auto colon = first.rfind(':');
  const std::string path = fmt::format("TF_CONFIG: cluster.{}[0]", job);
  if (colon == std::string::npos || colon == 0) refuse(fmt::format("{}={}: not \"host:port\"", path, first));
  world.address = first.substr(0, colon);
  if (world.address.front() == '[' && world.address.back() == ']') {  // IPv6.
    world.address = world.address.substr(1, world.address.size() - 2);
  }
  world.port = number(path + " port", std::string_view(first).substr(colon + 1), 1, kLargestPort);
}

std::optional<World> from_tf_config(const Variables& variables) {
  const auto* text = find(variables, "TF_CONFIG");
  if (!text) return std::nullopt;
  const Json config = parse_json(*text);
  if (!config.is_object()) refuse("TF_CONFIG: not a JSON object");
  const Json& cluster = member(config, "cluster", "cluster");
  const Json& task = member(config, "task", "task");
  if (!cluster.is_object()) refuse("TF_CONFIG: \"cluster\" is not an object");
  if (!task.is_object()) refuse("TF_CONFIG: \"task\" is not an object");
  const TfTask self = read_tf_task(task);
  check_tf_cluster(cluster, self);
  check_tf_task(self, cluster);
  const std::size_t chiefs = cluster.contains("chief") ? cluster["chief"].size() : 0;
  const std::size_t workers = cluster.contains("worker") ? cluster["worker"].size() : 0;
  if (chiefs > 1) refuse(fmt::format("TF_CONFIG: \"cluster.chief\" has {} tasks: at most 1", chiefs));

  World world;
  world.size = static_cast<int>(chiefs + workers);
  world.rank = static_cast<Rank>(self.index) + (self.job == "worker" ? static_cast<Rank>(chiefs) : 0);
  world.source = "TF_CONFIG";
  if (world.size > 1) set_tf_address(world, cluster, chiefs == 1 ? "chief" : "worker");
  return world;
}

std::optional<World> from_open_mpi(const Variables& variables) {
  if (!find(variables, "OMPI_COMM_WORLD_RANK") || !find(variables, "OMPI_COMM_WORLD_SIZE")) return std::nullopt;
  World world = place(variables, "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "Open MPI");
  if (world.size > 1) {
    choose_rendezvous_point(
        world, variables, if_one_host(world, variables, "OMPI_COMM_WORLD_LOCAL_SIZE"),
        first_of(variables, {"PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid", "OMPI_MCA_orte_hnp_uri"}));
  }
  return world;
}

std::optional<World> from_pmi(const Variables& variables, long parent) {
  if (!find(variables, "PMI_RANK") || !find(variables, "PMI_SIZE")) return std::nullopt;
  World world = place(variables, "PMI_RANK", "PMI_SIZE", "PMI");
  if (world.size > 1) {
    const std::string job = first_of(variables, {"PMI_PORT"});
    choose_rendezvous_point(world, variables, if_one_host(world, variables, "MPI_LOCALNRANKS"),
                            job.empty() ? fmt::format("parent {}", parent) : job);
  }
  return world;
}

std::optional<World> from_slurm(const Variables& variables) {
  if (!find(variables, "SLURM_PROCID") || !find(variables, "SLURM_NTASKS")) return std::nullopt;
  World world = place(variables, "SLURM_PROCID", "SLURM_NTASKS", "Slurm");
  if (world.size > 1) {
    const std::string nodes = first_of(variables, {"SLURM_STEP_NUM_NODES", "SLURM_NNODES"});
    const std::string host =
        first_host(first_of(variables, {"SLURM_STEP_NODELIST", "SLURM_NODELIST", "SLURM_JOB_NODELIST"}));
    const std::string step = first_of(variables, {"SLURM_JOB_ID"}) + "." + first_of(variables, {"SLURM_STEP_ID"});
    choose_rendezvous_point(world, variables, nodes == "1" || (nodes.empty() && host.empty()) ? "127.0.0.1" : host,
                            step);
    world.job.text = "Slurm step " + step;
  }
  return world;
}

/// Returns a hint if the processes of a batch job of Slurm were not started by srun. In the shell of a batch job, Slurm
/// sets SLURM_JOB_ID and the number of tasks, but not SLURM_STEP_ID.
std::string hint_of(const World& world, const Variables& variables) {
  const auto* tasks = find(variables, "SLURM_NTASKS");
  const bool in_batch_shell = find(variables, "SLURM_JOB_ID") && !find(variables, "SLURM_STEP_ID");
  return in_batch_shell && tasks && *tasks == std::to_string(world.size)
             ? "started without srun? SLURM_JOB_ID is set, and SLURM_STEP_ID is not"
             : "";
}

}  // namespace

World world_of(const Variables& variables, std::optional<int> port, long parent) {
  auto world = from_rank(variables, port);
  if (!world) world = from_tf_config(variables);
  if (!world) world = from_open_mpi(variables);
  if (!world) world = from_pmi(variables, parent);
  if (!world) world = from_slurm(variables);
  if (world) {
    if (port && world->size > 1) {
      world->port = *port;
      if (world->source == "PMI") world->job = {};  // Its id names the parent process, of which each host has one.
    }
    world->job = job_of(variables, world->job.text);
    world->hint = hint_of(*world, variables);
    return *std::move(world);
  }

  // An incomplete description is an error, not a world of one rank.
  if (find(variables, "RANK") || find(variables, "WORLD_SIZE")) {
    for (const std::string_view name : {"RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"}) {
      if (!find(variables, name)) {
        refuse(fmt::format("{} is not set; RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT belong together", name));
      }
    }
  }
  World alone;
  alone.source = "nobody";
  return alone;
}

}  // namespace collectives
