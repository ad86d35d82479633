// Implementation of the simulator of plans. It computes the duration of a collective on a machine. A round performs all
// Steps (actions of ranks) on one segment of each part of the vector. On a large machine, the simulator plays
// (simulates) only some hosts and some rounds. This file chooses them, and adds the time of the other rounds.
#include "tools/simulation.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "collectives/error.hpp"
#include "steps/algorithm.hpp"
#include "tools/simulation/model.hpp"
#include "tools/simulation/play.hpp"
#include "tools/simulation/symmetry.hpp"

namespace collectives {
namespace {

using simulation::index;

/// Simulation of one plan.
class Simulator {
 public:
  Simulator(const Request& request, const Plan& plan, const Topology& topology, const TuningParameters& tuning,
            const Fabric& network, const Effort& effort, Simulated& result)
      : request_(request),
        plan_(plan),
        topology_(topology),
        tuning_(tuning),
        network_(network),
        effort_(effort),
        everything_(static_cast<double>(effort.everything)),
        most_(static_cast<double>(effort.most)),
        rounds_(static_cast<double>(plan.rounds)),
        some_(std::max<std::size_t>(4, plan.rounds_in_flight)),
        may_add_(effort.some_rounds && request.counts.empty() && plan.rounds > 5 * some_),
        view_(topology, 0),
        what_{simulation::call_of(request, plan, topology, offsets_), {hosts(), hosts(), false}},
        each_(simulation::events_of_round(what_.call, view_, topology, hosts())),
        result_(result) {}

  void run() {
    if (each_ * rounds_ > everything_ && effort_.one_block && request_.counts.empty()) choose_block();
    const bool add = may_add_ && each_ * rounds_ > everything_;
    if (const double needed = add ? least() : each_ * rounds_; needed > most_)
      throw Error(Errc::unsupported, fmt::format("{} on {} takes about {:.0f} million events, more than {:.0f} million",
                                                 plan_.name, to_string(topology_), needed / 1e6, most_ / 1e6));
    if (add)
      play_some_rounds();
    else
      play(plan_.rounds);
  }

 private:
  /// Times in microseconds of the last two pieces. A piece consists of `some_` rounds. If both pieces take equally
  /// long, all later rounds are assumed to take as long.
  struct Pieces {
    double last = 0, before = 0;
    std::size_t bytes = 0;  ///< bytes out of the busiest host before the last piece

    /// Returns true if the times of the two pieces differ by more than kSteady.
    bool differ() const { return std::abs(last - before) > kSteady * last; }
  };
  static constexpr double kSteady = 0.002;  // Maximum relative difference of two equally long pieces.

  int hosts() const { return static_cast<int>(topology_.hosts.size()); }

  /// Returns about how many events the simulation needs at least, if it uses all permitted shortcuts.
  double least() const { return each_ * (may_add_ ? static_cast<double>(10 * some_) : rounds_); }

  /// Selects one block, a group of hosts, to be played in place of all hosts. Requires that all blocks do the same.
  void choose_block() {
    auto found = simulation::one_block(what_.call, view_, topology_, network_, true);
    if (!found && least() > most_) found = simulation::one_block(what_.call, view_, topology_, network_, false);
    if (!found) return;
    const std::size_t asked = request_.count, longer = found->call.args.parts.whole().count;
    what_ = *found;
    result_.hosts_played = what_.block.hosts;
    result_.notes.push_back(fmt::format("{} played, all do the same", simulation::hosts_of_block(what_.block)));
    if (!what_.ordered)
      result_.notes.push_back("hosts send to others in the same order, which was left out: it may take longer");
    if (static_cast<double>(longer - asked) > 0.01 * static_cast<double>(asked))
      result_.notes.push_back(fmt::format("{} elements were played as {}, equally many for each", asked, longer));
    each_ = simulation::events_of_round(what_.call, view_, topology_, what_.block.hosts);
  }

  /// Plays the call with only `rounds` rounds. Returns the length of its longest chain of messages, in which each
  /// message depends on the one before.
  std::size_t play(std::size_t rounds) {
    const simulation::Call call = rounds == plan_.rounds ? what_.call : simulation::shortened(what_.call, rounds);
    const simulation::Played played = simulation::play(call, view_, topology_, tuning_, network_, what_.block);
    result_.events += played.events;
    result_.rounds_played = rounds;
    result_.microseconds = played.finished_us;
    result_.bytes_out = std::ranges::max(played.bytes_out);
    return played.hops;
  }

  /// Plays rounds until one piece takes as long as the piece before. Adds the time of the rounds that are left. Rounds
  /// begin at equal intervals. The times of rounds differ until the first round has ended. On a long chain of hosts,
  /// this takes long. If all rounds have begun before the first one ends, the total time depends only on these
  /// intervals.
  void play_some_rounds() {
    const std::size_t beginning = play(1) / plan_.issue_interval * 9 / 8;
    const auto affordable =
        static_cast<std::size_t>(std::max(0.0, most_ - static_cast<double>(result_.events)) / each_ / 3);
    std::size_t played = std::max(2 * some_, plan_.rounds <= beginning ? 0 : std::min(beginning + some_, affordable));
    const bool too_early = plan_.rounds > beginning && played < beginning;
    // Plays all rounds if the shortcut, which needs up to three plays, would not save time.
    if (played + 2 * some_ >= plan_.rounds || (3 * played > plan_.rounds && each_ * rounds_ <= most_)) {
      play(plan_.rounds);
      return;
    }
    const Pieces pieces = play_until_steady(played);
    note_added(pieces, played);
    if (too_early)
      result_.notes.push_back(
          fmt::format("the first {} rounds are a beginning, later ones may take less or more", beginning));
    if (pieces.differ())
      result_.notes.push_back(fmt::format("rounds are not steady: the last ones differ by {:.1f} %",
                                          100 * std::abs(pieces.last - pieces.before) / pieces.last));
    add_rest(pieces, plan_.rounds - played);
  }

  /// Plays `played` rounds, then further pieces until a piece takes as long as the piece before. Sets `played` to the
  /// number of all played rounds.
  Pieces play_until_steady(std::size_t& played) {
    Pieces pieces;
    play(played);
    do {
      const double time = result_.microseconds;
      pieces.bytes = result_.bytes_out;
      pieces.before = pieces.last;
      play(played += some_);
      pieces.last = result_.microseconds - time;
    } while ((pieces.before == 0 || pieces.differ()) && played + some_ < plan_.rounds &&
             static_cast<double>(result_.events) + each_ * static_cast<double>(played + some_) < most_);
    return pieces;
  }

  void note_added(const Pieces& pieces, std::size_t played) {
    result_.notes.push_back(fmt::format("{} of {} rounds were played, the rest added at {:.1f} us each", played,
                                        plan_.rounds, pieces.last / static_cast<double>(some_)));
  }

  /// Adds the time and the bytes of `rest` rounds.
  void add_rest(const Pieces& pieces, std::size_t rest) {
    result_.microseconds += static_cast<double>(rest) / static_cast<double>(some_) * pieces.last;
    result_.bytes_out += (result_.bytes_out - pieces.bytes) / some_ * rest;
  }

  const Request& request_;
  const Plan& plan_;
  const Topology& topology_;
  const TuningParameters& tuning_;
  const Fabric& network_;
  const Effort& effort_;
  const double everything_, most_;  // Maximum numbers of events without and with shortcuts (Effort).
  const double rounds_;
  const std::size_t some_;  // Number of rounds in a piece.
  const bool may_add_;      // Whether some rounds may be played and the rest added.
  RankView view_;
  std::vector<std::size_t> offsets_;
  simulation::BlockChoice what_;
  double each_;  // Approximate number of events of a round.
  Simulated& result_;
};

}  // namespace

double wire_bound_us(const Request& request, const Coding& coding, const Topology& topology, const Fabric& network) {
  const auto bytes = static_cast<double>(coding.bytes(request.count));
  // Each of n groups of hosts must receive the data of all other groups, or their contributions to the parts that the
  // group keeps. The group with the fewest ranks receives most.
  const auto bound = [&](const std::vector<std::size_t>& ranks_of, double us_per_byte) {
    if (ranks_of.size() < 2) return 0.0;
    const double lacks = 1 - static_cast<double>(std::ranges::min(ranks_of)) / topology.ranks();
    const auto n = static_cast<double>(ranks_of.size());
    switch (request.collective) {
      case Collective::all_reduce: return 2 * (n - 1) / n * bytes * us_per_byte;
      case Collective::reduce_scatter:
      case Collective::all_gather: return lacks * bytes * us_per_byte;
      case Collective::broadcast:
      case Collective::reduce: return bytes * us_per_byte;
      // The group that receives most: its ranks receive the parts of all ranks outside it.
      case Collective::all_to_all: {
        double most = 0;
        for (const std::size_t ranks : ranks_of) {
          const auto share = static_cast<double>(ranks) / topology.ranks();
          most = std::max(most, static_cast<double>(ranks) * (1 - share) * bytes * us_per_byte);
        }
        return most;
      }
      // The root's group has its own parts already. It may be the largest one.
      case Collective::gather:
      case Collective::scatter:
        return (1 - static_cast<double>(std::ranges::max(ranks_of)) / topology.ranks()) * bytes * us_per_byte;
      case Collective::scan:
      case Collective::exclusive_scan: return bytes * us_per_byte;
      case Collective::barrier: break;
    }
    return 0.0;
  };
  std::vector<std::size_t> hosts, switches;
  for (const auto& host : topology.hosts) {
    if (network.hosts_per_switch > 0 && hosts.size() % index(network.hosts_per_switch) == 0) switches.push_back(0);
    hosts.push_back(host.size());
    if (!switches.empty()) switches.back() += host.size();
  }
  return std::max(bound(hosts, network.us_per_byte), bound(switches, network.uplink_us_per_byte));
}

Simulated simulate(const Request& request, const Plan& plan, const Topology& topology, const TuningParameters& tuning,
                   const Fabric& network, const Effort& effort) {
  Simulated result;
  result.bound_us = wire_bound_us(request, coding_of(request, plan), topology, network);
  result.hosts_played = static_cast<int>(topology.hosts.size());
  if (plan.rounds == 0) return result;
  Simulator(request, plan, topology, tuning, network, effort, result).run();
  return result;
}

}  // namespace collectives
