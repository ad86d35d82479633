// Implementation of tuning_of_machine() and measure_wire(). Both functions return tuning values: numbers by which the
// library chooses how to perform a call. They take the values from a file of rank 0, or measure them.
// tuning_of_machine() handles the values of the machine. measure_wire() handles the values of the wire, the transport
// between hosts.
//
// The distance between ranks is the time of a barrier, which is shorter if the cores of the ranks share a cache.
#include "tuning/measured_tuning.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <climits>
#include <nlohmann/json.hpp>
#include <string>

#include "base/environment.hpp"
#include "bootstrap/exchange.hpp"
#include "bootstrap/subset.hpp"
#include "collectives/error.hpp"
#include "collectives/version.hpp"
#include "communicator/communicator_init.hpp"
#include "communicator/wire_speed.hpp"
#include "core/tuning.hpp"
#include "shared_memory/peer_memory.hpp"
#include "tuning/calibration.hpp"

namespace collectives {
namespace {

using nlohmann::json;

#ifdef NDEBUG
constexpr std::string_view kBuild = "release";
#else
constexpr std::string_view kBuild = "debug";
#endif

/// Version of the built-in values and of the measurement. Increase it when a built-in value or the measurement changes.
/// Entries of the file with another version are then ignored.
constexpr int kBuiltIn = 4;

/// Measures the wire between the first ranks of two hosts, while all other hosts also measure in pairs. The result
/// shows whether the switches of the network are slower if all hosts send at once. The numbers of the two hosts of a
/// pair differ by half the number of hosts. Reason: hosts with neighbouring numbers may share a switch or a machine, so
/// messages between them would not use the other switches. If the number of hosts is odd, the last host does not
/// measure.
json measure_pair(const Topology& topology, WireEnd end, const WireSpeed& alone) {
  const auto& hosts = topology.hosts;
  const auto here = static_cast<std::size_t>(
      std::ranges::find_if(hosts, [&](const auto& ranks) { return ranks.front() == end.self; }) - hosts.begin());
  const std::size_t half = hosts.size() / 2;
  if (here >= 2 * half) return json::object();
  const std::size_t across = here < half ? here + half : here - half;
  end.other = hosts[across].front();
  return {{"us_per_byte", measure_together(end, alone)}};
}

}  // namespace

Situation situation_of(int cores, int ranks, bool kernel_copy, std::optional<double> barrier_ns) {
  return {.library = fmt::format("{}, protocol {}, numbers {}, {} build", version(), kProtocol, kBuiltIn, kBuild),
          .cpu = cpu_model(),
          .cores = cores,
          .ranks = ranks,
          .kernel_copy = kernel_copy,
          .barrier_ns = barrier_ns};
}

namespace {

/// Returns a tuning and the source of its values as JSON, for a message to other ranks.
json message_of(const TuningParameters& tuning) { return {{"tuning", to_json(tuning)}, {"source", tuning.source}}; }

/// Returns the built-in values. Sets their field `source` to a text with `why`, the reason why nothing was measured.
TuningParameters built_in_because(std::string_view why) {
  TuningParameters tuning = built_in_tuning();
  tuning.source += fmt::format(" ({})", why);
  return tuning;
}

/// Returns why values of `host` cannot be measured. Empty if they can.
std::string_view why_not_measured(const Host& host) {
  if (host.ranks.size() < 2) return "nothing to measure with one rank";
  if (host.threads) return "ranks that are threads are not measured";
  if (host.oversubscribed()) return "nothing to measure with more ranks than cores";
  return "";
}

/// Search for the values of one host, as one of its ranks sees it. Only rank 0 reads the file and makes decisions.
struct HostTuning {
  const Host& host;
  bool deciding;
  TuningCache cache;

  Situation situation(std::optional<double> barrier_ns) const {
    const bool kernel_copy = std::ranges::all_of(host.processes, PeerMemory::kernel_permits);
    return situation_of(host.cores, static_cast<int>(host.ranks.size()), kernel_copy, barrier_ns);
  }
  /// Returns the values in the file, if there are any. Without `barrier_ns`, accepts values for any distance between
  /// the ranks.
  std::optional<TuningParameters> known(std::optional<double> barrier_ns) const {
    return deciding ? cache.find(situation(barrier_ns)) : std::nullopt;
  }
  /// Returns values of this machine in the file, even if they are for another distance between the ranks. If there are
  /// none, returns the built-in values.
  TuningParameters without_measuring(std::string_view why) const {
    auto found = known({});
    if (!found) return built_in_because(why);
    found->source += fmt::format(" ({})", why);
    return *found;
  }
  /// Returns the values in the file, or measures them if there are none. All ranks of the host call it. A timed barrier
  /// shows the distance for which the values must have been measured. `here` connects the ranks of the host.
  TuningParameters find_or_measure(Bootstrap& here, std::chrono::nanoseconds timeout) const {
    Calibration calibration(here, timeout);
    if (const auto barrier_ns = calibration.barrier_ns()) {
      const auto found = known(barrier_ns);
      if (calibration.told(found.has_value())) return found.value_or(built_in_tuning());
      calibration.measure();
    }
    if (!calibration.conclusive()) return without_measuring("the machine was too busy to measure");
    const json numbers = calibration.tuning();
    if (deciding) cache.keep(situation(calibration.barrier_ns()), numbers, calibration.measurements());
    TuningParameters tuning = built_in_tuning();
    read_json(numbers, tuning, "the calibration");
    tuning.source = "measured on this machine just now";
    return tuning;
  }
};

}  // namespace

/// Takes the values from the file of rank 0, else measures them on its host. Measures only if ranks are processes with
/// a core each. Ranks that share a core delay one another, and times of threads do not apply to processes.
TuningParameters tuning_of_machine(Bootstrap& bootstrap, const Host& host, std::chrono::nanoseconds timeout,
                                   Deadline deadline) {
  if (const std::string_view why = why_not_measured(host); !why.empty()) return built_in_because(why);
  const bool deciding = bootstrap.rank() == 0;
  const HostTuning of_host{host, deciding, deciding ? TuningCache::of_user() : TuningCache("")};
  SubsetBootstrap here("calibration", bootstrap.rank(), host.ranks, Calibration::kExchanges,
                       [&](std::string_view text, Deadline until) { return bootstrap.all_gather(text, until); }, {});
  const auto find = [&] {
    json mine = json::object();
    std::exception_ptr failure;
    try {
      if (host.has(bootstrap.rank())) mine = message_of(of_host.find_or_measure(here, timeout));
    } catch (const Error& error) {
      // The calibration needs more resources than the communicator itself. If the system refuses them, nothing is
      // measured.
      if (error.code() == Errc::system)
        mine = message_of(of_host.without_measuring(error.what()));
      else
        failure = std::current_exception();
    } catch (...) {
      failure = std::current_exception();
    }
    here.join_remaining_exchanges(deadline);
    if (failure != nullptr) std::rethrow_exception(failure);
    return mine;
  };
  const JsonRecord told = exchange(bootstrap, attempt(find), deadline)[0];
  TuningParameters tuning;
  read_json(told.at("tuning"), tuning, "rank 0's cache");
  tuning.source = told.text("source", 2 * PATH_MAX);
  return tuning;
}

/// Minimum factor by which links slow down when all send. A smaller factor is not stored, and the links then count as
/// independent.
constexpr double kNoticeable = 1.1;

/// Takes the values from the file of rank 0. If they are not there, the first ranks of two hosts measure them, while
/// the other ranks wait. With four hosts or more, all hosts then measure in pairs at once. Measuring in pairs takes one
/// exchange and 40 ms more.
void measure_wire(Bootstrap& bootstrap, const Topology& topology, Wire& wire, TuningParameters& numbers,
                  Deadline deadline) {
  const Rank rank = bootstrap.rank();
  const Rank one = topology.hosts[0][0], other = topology.hosts[1][0];
  const WireEnd end{wire, rank, rank == one ? other : one, deadline, [&] { bootstrap.check_peers(); }};
  const TuningCache cache = rank == one ? TuningCache::of_user() : TuningCache("");
  Situation situation = situation_of(0, 0, false, {});
  JsonRecord told = exchange(bootstrap, attempt([&] {
                               if (rank != one) return json::object();
                               const std::string link = wire.link(other);
                               if (link.empty()) return json::object();
                               situation.wire =
                                   fmt::format("{} from {}, {} hosts", wire.name(), link, topology.hosts.size());
                               const auto found = cache.find(situation, numbers);
                               return found ? message_of(*found) : json::object();
                             }),
                             deadline)[static_cast<std::size_t>(one)];
  const bool known = told.has("tuning");
  if (!known)
    told = exchange_result(bootstrap, attempt([&] {
                             if (rank != one && rank != other) return json::object();
                             const bool first = rank == one;
                             TuningParameters tuning = numbers;
                             measure(end, first).put_into(tuning);
                             return first ? message_of(tuning) : json::object();
                           }),
                           deadline)[static_cast<std::size_t>(one)];
  const std::string source = numbers.source;
  read_json(told.at("tuning"), numbers, "rank 0's cache");
  numbers.source = source + "; the wire's measured";
  if (known) return;
  WireSpeed speed = WireSpeed::from(numbers);
  if (topology.hosts.size() >= 4) {
    double sum = 0;
    int pairs = 0;
    for (const JsonRecord& one_of_pair :
         exchange_result(bootstrap, attempt([&] { return measure_pair(topology, end, speed); }), deadline))
      if (one_of_pair.has("us_per_byte")) sum += one_of_pair.number("us_per_byte", 0), ++pairs;
    if (pairs > 0 && sum / pairs > kNoticeable * speed.us_per_byte) speed.together_us_per_byte = sum / pairs;
    speed.put_into(numbers);
  }
  if (rank == one && !situation.wire.empty()) cache.keep(situation, speed.to_json(), {});
}

}  // namespace collectives
