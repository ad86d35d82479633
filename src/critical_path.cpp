#include "critical_path.hpp"

#include <algorithm>
#include <cstdint>
#include <deque>
#include <unordered_map>
#include <vector>

namespace collectives {
namespace {

constexpr std::size_t kMostSteps = 100'000;

/// A Step as far as it takes time.
struct Moment {
  bool meeting = false;
  Among among = Among::host;
  double meetings = 0;  // a host stage: how many it amounts to
  std::vector<Rank> from, to;
};

/// What one rank does, and how far it has come.
struct Player {
  std::vector<Moment> moments;
  std::size_t at = 0;
  std::size_t heard = 0;  // messages of the current one that are known to be there
  double time = 0;
  const Moment* current() const { return at < moments.size() ? &moments[at] : nullptr; }
  void next() {
    ++at;
    heard = 0;
  }
};

class Play final : private StepSink {
 public:
  Play(const Topology& topology, const Tuning& tuning, bool barrier)
      : tuning_(tuning), notices_(barrier), seat_(topology, 0), players_(static_cast<std::size_t>(topology.ranks())) {}

  /// False when that is too much.
  bool add_all(const Algorithm& algorithm, const Task& task) {
    for (Rank rank = 0; rank < static_cast<Rank>(players_.size()); ++rank) {
      seat_.sit(rank);
      algorithm.emit(seat_, task, *this);
      if (steps_ > kMostSteps) return false;
    }
    return true;
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
    return std::ranges::max(players_, {}, &Player::time).time;
  }

 private:
  void operator()(const Step& step) override {
    if (steps_ > kMostSteps) return;
    Moment moment;
    if (step.kind != Step::Kind::exchange) {
      moment = {true, step.among, step.kind == Step::Kind::host_all_reduce ? 2.0 : 1.0, {}, {}};
    } else {
      if (step.range.count == 0 && !notices_) return;
      const auto others = [&](Peers peers, std::vector<Rank>& to) {
        for (const Rank peer : peers)
          if (peer != seat_.world.self) to.push_back(peer);
      };
      others(step.from, moment.from);
      others(step.to, moment.to);
      if (moment.from.empty() && moment.to.empty()) return;
    }
    steps_ += 1 + moment.from.size() + moment.to.size();
    player(seat_.world.self).moments.push_back(std::move(moment));
  }

  Player& player(Rank rank) { return players_[static_cast<std::size_t>(rank)]; }
  std::deque<double>& channel(Rank from, Rank to) {
    return channels_[static_cast<std::uint64_t>(from) << 32 | static_cast<std::uint32_t>(to)];
  }
  bool wire(Rank a, Rank b) const { return seat_.host_of(a) != seat_.host_of(b); }

  bool exchange(Rank rank, const Moment& moment, std::vector<Rank>& movable) {
    Player& self = player(rank);
    for (; self.heard < moment.from.size(); ++self.heard)
      if (channel(moment.from[self.heard], rank).empty()) return false;
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
    self.next();
    return true;
  }

  /// All who are in the room have come, and leave together.
  bool meet(Rank rank, const Moment& moment, std::vector<Rank>& movable) {
    seat_.sit(rank);
    const Peers room = moment.among == Among::host     ? seat_.grid.here()
                       : moment.among == Among::domain ? seat_.inner.here()
                                                       : seat_.inner.rail().members;
    double time = 0;
    for (const Rank other : room) {
      const Moment* at = player(other).current();
      if (at == nullptr || !at->meeting || at->among != moment.among) return false;
      time = std::max(time, player(other).time);
    }
    const bool crosses = seat_.inner.host_count() > 1 && moment.among != Among::domain;
    time += moment.meetings * (tuning_.host_latency_us + (crosses ? tuning_.domain_us : 0));
    for (const Rank other : room) {
      player(other).time = time;
      player(other).next();
      if (other != rank) movable.push_back(other);
    }
    return true;
  }

  const Tuning& tuning_;
  const bool notices_;  // messages that carry nothing count, too
  Seat seat_;
  std::vector<Player> players_;
  std::size_t steps_ = 0;  // with their messages
  std::unordered_map<std::uint64_t, std::deque<double>> channels_;
};

}  // namespace

std::optional<double> critical_path_us(const Algorithm& algorithm, const Task& task, const Topology& topology,
                                       const Tuning& tuning) {
  Play play(topology, tuning, task.collective == Collective::barrier);
  if (!play.add_all(algorithm, task)) return std::nullopt;
  return play.run();
}

}  // namespace collectives
