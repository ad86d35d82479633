#include "critical_path.hpp"

#include <algorithm>
#include <cstdint>
#include <deque>
#include <memory>
#include <unordered_map>
#include <vector>

namespace collectives {
namespace {

constexpr int kMostRanks = 512;
constexpr std::size_t kMostSteps = 100'000;

/// A Step as far as it takes time.
struct Moment {
  bool meeting = false;
  Among among = Among::host;
  double meetings = 0;  // a host stage: how many it amounts to
  std::vector<Rank> from, to;
};

/// What one rank does, and how far it has come.
struct Player final : StepSink {
  Player(const Topology& topology, Rank rank, bool barrier) : seat(topology, rank), notices(barrier) {}
  void operator()(const Step& step) override {
    if (step.kind != Step::Kind::exchange) {
      moments.push_back({true, step.among, step.kind == Step::Kind::host_all_reduce ? 2.0 : 1.0, {}, {}});
      return;
    }
    if (step.range.count == 0 && !notices) return;
    Moment moment;
    const auto others = [&](Peers peers, std::vector<Rank>& to) {
      for (const Rank peer : peers)
        if (peer != seat.world.self) to.push_back(peer);
    };
    others(step.from, moment.from);
    others(step.to, moment.to);
    if (!moment.from.empty() || !moment.to.empty()) moments.push_back(std::move(moment));
  }
  const Moment* current() const { return at < moments.size() ? &moments[at] : nullptr; }

  const Seat seat;
  const bool notices;  // also messages that carry nothing
  std::vector<Moment> moments;
  std::size_t at = 0;
  double time = 0;
};

class Play {
 public:
  Play(const Topology& topology, const Tuning& tuning) : topology_(topology), tuning_(tuning) {}

  bool add(const Algorithm& algorithm, const Task& task, Rank rank) {
    players_.push_back(std::make_unique<Player>(topology_, rank, task.collective == Collective::barrier));
    algorithm.emit(players_.back()->seat, task, *players_.back());
    return (steps_ += players_.back()->moments.size()) <= kMostSteps;
  }

  double run() {
    std::vector<Rank> movable;
    for (Rank rank = static_cast<Rank>(players_.size()) - 1; rank >= 0; --rank) movable.push_back(rank);
    while (!movable.empty()) {
      const Rank rank = movable.back();
      movable.pop_back();
      while (const Moment* moment = player(rank).current())
        if (!(moment->meeting ? meet(rank, *moment, movable) : exchange(rank, *moment, movable))) break;
    }
    double last = 0;
    for (const auto& player : players_) last = std::max(last, player->time);
    return last;
  }

 private:
  Player& player(Rank rank) const { return *players_[static_cast<std::size_t>(rank)]; }
  std::deque<double>& channel(Rank from, Rank to) {
    return channels_[static_cast<std::uint64_t>(from) << 32 | static_cast<std::uint32_t>(to)];
  }
  bool wire(Rank a, Rank b) const { return player(a).seat.host_of(a) != player(a).seat.host_of(b); }

  bool exchange(Rank rank, const Moment& moment, std::vector<Rank>& movable) {
    Player& self = player(rank);
    for (const Rank peer : moment.from)
      if (channel(peer, rank).empty()) return false;
    for (const Rank peer : moment.from) {
      self.time = std::max(self.time, channel(peer, rank).front());
      channel(peer, rank).pop_front();
    }
    for (const Rank peer : moment.from)
      if (wire(rank, peer)) self.time += tuning_.wire_message_us;
    for (const Rank peer : moment.to) {
      if (wire(rank, peer)) self.time += tuning_.wire_message_us;
      channel(rank, peer).push_back(self.time + (wire(rank, peer) ? tuning_.wire_us : tuning_.message_us));
      movable.push_back(peer);
    }
    ++self.at;
    return true;
  }

  /// All who are in the room have come, and leave together.
  bool meet(Rank rank, const Moment& moment, std::vector<Rank>& movable) {
    const Seat& seat = player(rank).seat;
    const Peers room = moment.among == Among::host     ? seat.grid.here()
                       : moment.among == Among::domain ? seat.inner.here()
                                                       : seat.inner.rail().members;
    double time = 0;
    for (const Rank other : room) {
      const Moment* at = player(other).current();
      if (at == nullptr || !at->meeting || at->among != moment.among) return false;
      time = std::max(time, player(other).time);
    }
    const bool crosses = seat.inner.host_count() > 1 && moment.among != Among::domain;
    time += moment.meetings * (tuning_.host_latency_us + (crosses ? tuning_.domain_us : 0));
    for (const Rank other : room) {
      player(other).time = time;
      ++player(other).at;
      if (other != rank) movable.push_back(other);
    }
    return true;
  }

  const Topology& topology_;
  const Tuning& tuning_;
  std::vector<std::unique_ptr<Player>> players_;
  std::size_t steps_ = 0;
  std::unordered_map<std::uint64_t, std::deque<double>> channels_;
};

}  // namespace

std::optional<double> critical_path_us(const Algorithm& algorithm, const Task& task, const Topology& topology,
                                       const Tuning& tuning) {
  if (topology.ranks() > kMostRanks) return std::nullopt;
  Play play(topology, tuning);
  for (Rank rank = 0; rank < topology.ranks(); ++rank)
    if (!play.add(algorithm, task, rank)) return std::nullopt;
  return play.run();
}

}  // namespace collectives
