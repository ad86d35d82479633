// Implementation of `collectives_info simulate`, which prints how long a collective would take on a machine that need
// not exist. This file reads the description of the machine, simulates plans on it, and prints the times. A plan is an
// algorithm for a call and its number of rounds.
#include "tools/simulate.hpp"

#include <fmt/format.h>

#include <chrono>
#include <cstdio>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/bytes.hpp"
#include "base/text.hpp"
#include "collectives/error.hpp"
#include "collectives/plan.hpp"
#include "collectives/topology.hpp"
#include "communicator/settings.hpp"
#include "core/tuning.hpp"
#include "planning/candidates.hpp"
#include "tools/named.hpp"
#include "tools/simulation.hpp"
#include "tools/units.hpp"

namespace collectives {
namespace {

/// Returns `value`, the result of parsing `text`. If `value` is empty, throws std::invalid_argument with `valid`,
/// examples of valid texts.
double parsed(std::string_view option, const std::string& text, std::optional<double> value, std::string_view valid) {
  if (!value) throw std::invalid_argument(fmt::format("{} '{}'; valid: {}", option, text, valid));
  return *value;
}

std::string rate_text(double us_per_byte) { return fmt::format("{:.4g} Gbit/s", 8e-3 / us_per_byte); }

double gigabytes_per_second(std::size_t bytes, double us) { return us > 0 ? static_cast<double>(bytes) / us / 1e3 : 0; }

std::string fraction_text(const Simulated& simulated) {
  return simulated.microseconds > 0 ? fmt::format("{:.1f} %", 100 * simulated.bound_us / simulated.microseconds) : "-";
}

class Machine {
 public:
  explicit Machine(const SimulateOptions& question)
      : topology(Topology::regular(question.hosts * question.ranks_per_host, question.ranks_per_host)),
        tuning(question.tuning.empty() ? given_tuning({}).value_or(TuningParameters{})
                                       : tuning_of_file(question.tuning)) {
    constexpr std::string_view kRates = "100gbit, 2.5mbit, 12.5GB";
    if (!question.link.empty())
      tuning.wire_us_per_byte = parsed("--link", question.link, parse_rate(question.link), kRates);
    if (!question.latency.empty())
      tuning.wire_us = parsed("--latency", question.latency, parse_us(question.latency), "5us, 800ns, 0.1ms");
    network = Fabric::of(tuning);
    if ((question.hosts_per_switch > 0) == question.uplink.empty())
      throw std::invalid_argument("--uplink and --hosts-per-switch belong together: one of them is missing");
    if (question.uplink.empty()) return;
    network.hosts_per_switch = question.hosts_per_switch;
    network.uplink_us_per_byte = parsed("--uplink", question.uplink, parse_rate(question.uplink), kRates);
  }

  Topology topology;
  TuningParameters tuning;
  Fabric network;

  std::string describe() const {
    std::string text =
        fmt::format("{} and {:.4g} us between hosts", rate_text(network.us_per_byte), network.latency_us);
    if (network.hosts_per_switch > 0)
      text += fmt::format(", {} hosts per switch with an uplink of {}", network.hosts_per_switch,
                          rate_text(network.uplink_us_per_byte));
    return text;
  }
};

struct Timed {
  Simulated simulated;
  double seconds = 0;  ///< seconds that the simulator needed
};
Timed timed(const Request& request, const Plan& plan, const Machine& machine) {
  const auto begin = std::chrono::steady_clock::now();
  Simulated simulated = simulate(request, plan, machine.topology, machine.tuning, machine.network);
  return {std::move(simulated), std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count()};
}

/// Simulates a plan and returns its results as text.
std::string play(const Request& request, const Plan& plan, const Machine& machine) {
  const auto [simulated, seconds] = timed(request, plan, machine);
  std::string text = fmt::format("  {}", plan.name);
  if (plan.rounds > 1)
    text +=
        fmt::format(", {} rounds of segments of {}{}", plan.rounds, bytes_text(plan.segment * size_of(request.type)),
                    plan.rounds_in_flight > 1 ? fmt::format(", {} under way at once", plan.rounds_in_flight) : "");
  text += fmt::format("\n    simulated: {:.1f} us, {:.3f} GB/s (estimate {:.1f} us)\n", simulated.microseconds,
                      gigabytes_per_second(request.count * size_of(request.type), simulated.microseconds),
                      plan.estimate.microseconds);
  text += fmt::format("    the wire needs: {:.1f} us, {} of the time; {} out of the busiest host\n", simulated.bound_us,
                      fraction_text(simulated), bytes_text(simulated.bytes_out));
  text += fmt::format("    {} events played in {:.2f} s\n", simulated.events, seconds);
  for (const std::string& note : simulated.notes) text += fmt::format("    {}\n", note);
  return text;
}

void print_sizes(Request request, const Machine& machine) {
  constexpr std::size_t kSmallest = 8, kLargest = std::size_t{1} << 30;
  fmt::print("{:>12}  {:<32} {:>14} {:>14} {:>10} {:>10} {:>10}  {}\n", "bytes", "plan", "simulated us", "estimate us",
             "GB/s", "of bound", "events", "played");
  for (std::size_t bytes = kSmallest; bytes <= kLargest; bytes *= 2) {
    request.count = bytes / size_of(request.type);
    const Plan plan = choose_plan(request, machine.topology, machine.tuning);
    fmt::print("{:>12}  {:<32} ", bytes, plan.name);
    try {
      const Simulated simulated = timed(request, plan, machine).simulated;
      fmt::print("{:>14.1f} {:>14.1f} {:>10.3f} {:>10} {:>10}  {} of {} hosts, {} of {} rounds\n",
                 simulated.microseconds, plan.estimate.microseconds,
                 gigabytes_per_second(bytes, simulated.microseconds), fraction_text(simulated), simulated.events,
                 simulated.hosts_played, machine.topology.hosts.size(), simulated.rounds_played, plan.rounds);
    } catch (const Error& error) {
      if (error.code() != Errc::unsupported) throw;
      fmt::print("{:>14} {:>14.1f} {:>10} {:>10} {:>10}  too many events\n", "-", plan.estimate.microseconds, "-", "-",
                 "-");
    }
    std::fflush(stdout);
  }
}

}  // namespace

void answer(const SimulateOptions& question) {
  Request request;
  request.collective = named("collective", question.collective, kCollectives);
  request.type = named("--type", question.type, kDataTypes);
  request.op = named("--op", question.op, kOps);
  request.root = question.root;
  request.deterministic = question.deterministic;
  request.codec = codec_named(question.wire, request.type);
  request.force = question.force;
  request.backend = question.backend;
  check_op(request.collective, request.type, request.op);
  if (question.hosts > SimulateOptions::kMostRanks / question.ranks_per_host)
    throw std::invalid_argument(fmt::format("--hosts {} with {} ranks each; valid: up to {} ranks", question.hosts,
                                            question.ranks_per_host, SimulateOptions::kMostRanks));
  const int ranks = question.hosts * question.ranks_per_host;
  if (question.root >= ranks)
    throw std::invalid_argument(fmt::format("--root {}; valid: 0 to {}", question.root, ranks - 1));
  const auto bytes = parse_bytes(question.bytes);
  if (!bytes)
    throw std::invalid_argument(
        fmt::format("--bytes '{}' is no size; valid: whole bytes, or with K, M, G: 0, 8, 64K, 1M", question.bytes));
  const Machine machine(question);
  request.count = request.collective == Collective::barrier ? 0 : *bytes / size_of(request.type);

  // This line throws all errors before any output.
  const std::vector<Plan> plans = candidate_plans(request, machine.topology, machine.tuning);
  const std::string setting = fmt::format("{} on {}: {}; tuning: {}\n", to_string(request.collective),
                                          to_string(machine.topology), machine.describe(), machine.tuning.source);
  if (question.sizes) {
    fmt::print("{}", setting);
    return print_sizes(request, machine);
  }
  const std::string best = play(request, plans.front(), machine);
  fmt::print("{}  {} {}{}\n{}", setting, bytes_text(request.count * size_of(request.type)), to_string(request.type),
             request.deterministic ? ", deterministic" : "", best);
  for (std::size_t i = 1; question.all && i < plans.size(); ++i) {
    std::fflush(stdout);
    try {
      fmt::print("{}", play(request, plans[i], machine));
    } catch (const Error& error) {
      if (error.code() != Errc::unsupported) throw;
      fmt::print("  {}\n", error.what());
    }
  }
}

}  // namespace collectives
