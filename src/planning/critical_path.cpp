// Implementation of the critical path: simulates one round in the order of time, with one Player per rank. A Moment is
// a Step reduced to the parts that take time. A Channel holds the arrival times of messages from one rank to another.
#include "planning/critical_path.hpp"

#include <algorithm>
#include <cstdint>
#include <functional>
#include <limits>
#include <queue>
#include <unordered_map>
#include <utility>
#include <vector>

namespace collectives {
namespace {

/// Largest number of Steps and messages that are simulated.
constexpr std::size_t kMostSteps = 100'000;

/// The parts of a Step that take time.
struct Moment {
  bool host_step = false;
  Subgroup subgroup = Subgroup::host;
  double synchronizations = 0;  // of a host Step: number of synchronizations that it takes
  std::vector<Rank> from, to;
  double wire = 0;  // us that each message occupies a link
};

/// Arrival times of messages from one rank to another, in order. There is hardly ever more than one message.
class Channel {
 public:
  bool empty() const { return first_ == times_.size(); }
  double front() const { return times_[first_]; }
  void push(double time) { times_.push_back(time); }
  void pop() {
    if (++first_ == times_.size()) times_.clear(), first_ = 0;
  }

 private:
  std::vector<double> times_;
  std::size_t first_ = 0;
};

constexpr double kNotDue = std::numeric_limits<double>::infinity();

/// Steps of one rank, and its progress in them.
struct Player {
  std::vector<Moment> moments;
  std::size_t at = 0;
  std::size_t heard = 0;  // messages of the current Step that are known to have arrived
  double time = 0;
  double due = kNotDue;
  const Moment* current() const { return at < moments.size() ? &moments[at] : nullptr; }
  void next() {
    ++at;
    heard = 0;
  }
};

/// Simulates one round of all ranks in the order of time.
class Play final : private StepSink {
 public:
  Play(const Topology& topology, const TuningParameters& tuning, const Coding& coding, bool barrier)
      : tuning_(tuning),
        coding_(coding),
        notices_(barrier),
        view_(topology, 0),
        players_(static_cast<std::size_t>(topology.ranks())),
        out_free_(topology.hosts.size()),
        in_free_(topology.hosts.size()) {}

  /// Adds the Steps of all ranks. Returns false if there are more than kMostSteps.
  bool add_all(const Algorithm& algorithm, const RoundArgs& args) {
    for (Rank rank = 0; rank < static_cast<Rank>(players_.size()); ++rank) {
      view_.rebind(rank);
      algorithm.emit(view_, args, *this);
      if (steps_ > kMostSteps) return false;
    }
    return true;
  }

  std::size_t messages() const { return messages_; }
  double bytes() const { return bytes_; }

  /// Returns the time at which all ranks are done, with or without the time that bytes take on links.
  double run(const TuningParameters& tuning, bool with_bytes) {
    tuning_ = tuning;
    with_bytes_ = with_bytes;
    for (Player& player : players_) player.at = player.heard = 0, player.time = 0;
    std::ranges::fill(out_free_, 0);
    std::ranges::fill(in_free_, 0);
    for (Rank rank = 0; rank < static_cast<Rank>(players_.size()); ++rank) wake(rank, 0);
    while (!due_.empty()) {
      const auto [time, rank] = due_.top();
      due_.pop();
      if (player(rank).due != time) continue;  // an earlier time has been set for this rank
      player(rank).due = kNotDue;
      if (const Moment* moment = player(rank).current())
        moment->host_step ? synchronize(rank, *moment) : exchange(rank, *moment, time);
    }
    return std::ranges::max(players_, {}, &Player::time).time;
  }

 private:
  void operator()(const Step& step) override {
    if (steps_ > kMostSteps) return;
    Moment moment;
    if (step.kind != Step::Kind::exchange) {
      moment = {true, step.subgroup, step.kind == Step::Kind::host_all_reduce ? 2.0 : 1.0, {}, {}, 0};
    } else {
      const auto bytes = static_cast<double>(coding_.bytes(step.range.count));
      moment.wire = bytes * tuning_.wire_us_per_byte;
      if (step.range.count == 0 && !notices_) return;
      const auto others = [&](Peers peers, std::vector<Rank>& to) {
        for (const Rank peer : peers)
          if (peer != view_.world.self) to.push_back(peer);
      };
      others(step.from, moment.from);
      others(step.to, moment.to);
      for (const Rank peer : moment.to)
        if (wire(view_.world.self, peer)) ++messages_, bytes_ += bytes;
      if (moment.from.empty() && moment.to.empty()) return;
    }
    steps_ += 1 + moment.from.size() + moment.to.size();
    player(view_.world.self).moments.push_back(std::move(moment));
  }

  /// Schedules a rank for `time`. If it is scheduled already, the earlier time holds.
  void wake(Rank rank, double time) {
    if (player(rank).due <= time) return;
    player(rank).due = time;
    due_.emplace(time, rank);
  }

  Player& player(Rank rank) { return players_[static_cast<std::size_t>(rank)]; }
  Channel& channel(Rank from, Rank to) {
    return channels_[static_cast<std::uint64_t>(from) << 32 | static_cast<std::uint32_t>(to)];
  }
  bool wire(Rank a, Rank b) const { return view_.host_of(a) != view_.host_of(b); }

  /// Returns the arrival time of a message that is sent at `time` over two links, the sender's and the receiver's. Each
  /// link carries one message after another.
  double over_wire(Rank from, Rank to, double time, double busy) {
    if (!with_bytes_) return time + tuning_.wire_us;
    double& out = out_free_[static_cast<std::size_t>(view_.host_of(from))];
    double& in = in_free_[static_cast<std::size_t>(view_.host_of(to))];
    const double begun = std::max({time, out, in});
    out = in = begun + busy;
    return begun + busy + tuning_.wire_us;
  }

  /// Performs a Step if all its messages have arrived. Steps must be performed in the order of time. Otherwise links
  /// would carry later messages first.
  void exchange(Rank rank, const Moment& moment, double time) {
    Player& self = player(rank);
    for (; self.heard < moment.from.size(); ++self.heard) {
      const Channel& awaited = channel(moment.from[self.heard], rank);
      if (awaited.empty()) return;
      self.time = std::max(self.time, awaited.front());
    }
    if (self.time > time) return wake(rank, self.time);
    for (const Rank peer : moment.from) channel(peer, rank).pop();
    for (const Rank peer : moment.from)
      if (wire(rank, peer)) self.time += tuning_.wire_message_us;
    for (const Rank peer : moment.to) {
      if (wire(rank, peer)) self.time += tuning_.wire_message_us;
      const double comes =
          wire(rank, peer) ? over_wire(rank, peer, self.time, moment.wire) : self.time + tuning_.message_us;
      channel(rank, peer).push(comes);
      wake(peer, comes);
    }
    self.next();
    wake(rank, self.time);
  }

  /// Performs a host Step once all members have reached it. They leave it together.
  void synchronize(Rank rank, const Moment& moment) {
    view_.rebind(rank);
    const Peers members = view_.members(moment.subgroup);
    double time = 0;
    for (const Rank other : members) {
      const Moment* at = player(other).current();
      if (at == nullptr || !at->host_step || at->subgroup != moment.subgroup) return;
      time = std::max(time, player(other).time);
    }
    const bool crosses = view_.inner.host_count() > 1 && moment.subgroup != Subgroup::domain;
    time += moment.synchronizations * (tuning_.host_latency_us + (crosses ? tuning_.domain_us : 0));
    for (const Rank other : members) {
      player(other).time = time;
      player(other).next();
      wake(other, time);
    }
  }

  TuningParameters tuning_;
  const Coding coding_;
  bool with_bytes_ = false;
  const bool notices_;  // empty messages count, too
  RankView view_;
  std::vector<Player> players_;
  std::vector<double> out_free_, in_free_;  // time at which the link of each host is free
  std::size_t steps_ = 0;                   // Steps and their messages
  std::size_t messages_ = 0;
  double bytes_ = 0;  // bytes between hosts
  std::unordered_map<std::uint64_t, Channel> channels_;
  using Due = std::pair<double, Rank>;  // time at which a rank may continue, and the rank
  std::priority_queue<Due, std::vector<Due>, std::greater<>> due_;
};

}  // namespace

std::optional<CriticalPath> critical_path(const Algorithm& algorithm, const RoundArgs& args, const Coding& coding,
                                          const Topology& topology, const TuningParameters& tuning) {
  Play play(topology, tuning, coding, args.collective == Collective::barrier);
  if (!play.add_all(algorithm, args)) return std::nullopt;
  TuningParameters nothing_but_hops = tuning;
  nothing_but_hops.wire_us = 1;
  nothing_but_hops.wire_message_us = nothing_but_hops.message_us = nothing_but_hops.host_latency_us =
      nothing_but_hops.domain_us = 0;
  const double latency = play.run(tuning, false);
  return CriticalPath{.latency = latency,
                      .wire = std::max(0.0, play.run(tuning, true) - latency),
                      .hops = play.run(nothing_but_hops, false),
                      .messages = play.messages(),
                      .bytes = play.bytes()};
}

}  // namespace collectives
