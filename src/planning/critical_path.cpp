// Finds the critical path of an algorithm: the longest chain of actions in which each action must wait for the previous
// one.
//
// The file simulates one round of all ranks. A Step is one action of a rank, such as to receive a message and add it.
// The simulation has one clock per rank. It performs the Steps of all ranks in the order of their times. Each Step
// moves the clock of its rank forward by the time that the Step takes. A Step that receives a message begins when the
// message has arrived. The latest clock at the end is the length of the critical path. StepPlayer
// (steps/step_player.hpp) decides which Step can run next.
#include "planning/critical_path.hpp"

#include <algorithm>
#include <cstdint>
#include <functional>
#include <limits>
#include <queue>
#include <utility>
#include <vector>

#include "steps/step_player.hpp"

namespace collectives {
namespace {

/// Maximum number of Steps, sends and receives in a round. A larger round is not simulated, because that would take
/// more than about 60 ms.
constexpr std::size_t kMostSteps = 100'000;

constexpr double kNotDue = std::numeric_limits<double>::infinity();

/// Costs of a Step: the time on a link, and the number of synchronizations.
struct StepTime {
  double wire = 0;              // microseconds for which each message occupies a link
  double synchronizations = 0;  // number of times that ranks of a host wait for one another in this Step
};

/// Arrival times of the messages that one rank has sent to another and that have not been received yet, oldest first. A
/// rank rarely has more than one such message from another rank.
class Arrivals {
 public:
  double front() const { return times_[first_]; }
  void push(double time) { times_.push_back(time); }
  void pop() {
    if (++first_ == times_.size()) clear();
  }
  void clear() { times_.clear(), first_ = 0; }

 private:
  std::vector<double> times_;
  std::size_t first_ = 0;
};

struct ChannelTimes {
  Arrivals arrivals;
  std::size_t out = 0, in = 0;  // hosts of the sender and of the receiver
  bool wire() const { return out != in; }
};

/// Simulation of one round of all ranks.
class Play final : private StepSink {
 public:
  using Player = StepPlayer<StepTime, ChannelTimes>;
  using Index = Player::Index;

  Play(const Topology& topology, const TuningParameters& tuning, const Coding& coding, bool barrier)
      : tuning_(tuning),
        coding_(coding),
        notices_(barrier),
        view_(topology, 0),
        clocks_(static_cast<std::size_t>(topology.ranks())),
        out_free_(topology.hosts.size()),
        in_free_(topology.hosts.size()) {
    for (std::size_t rank = 0; rank < clocks_.size(); ++rank) player_.add_rank();
    for_each_subgroup(topology, [this](Subgroup subgroup, const std::vector<Rank>& ranks) {
      player_.add_subgroup(subgroup, {ranks.begin(), ranks.end()});
    });
  }

  /// Adds the Steps of all ranks. Returns false if there are more than kMostSteps Steps, sends and receives together.
  bool add_all(const Algorithm& algorithm, const RoundArgs& args) {
    algorithm_ = &algorithm;
    args_ = &args;
    for (Index rank = 0; rank < clocks_.size(); ++rank) {
      player_.start(rank, 1, 1, *this);
      if (steps_ > kMostSteps) return false;
    }
    return true;
  }

  std::size_t messages() const { return messages_; }
  double bytes() const { return bytes_; }

  /// Returns the time in microseconds until all ranks are done. Counts the time that bytes take on links only if
  /// `with_bytes` is true.
  double run(const TuningParameters& tuning, bool with_bytes) {
    tuning_ = tuning;
    with_bytes_ = with_bytes;
    player_.rewind();
    for (Clock& clock : clocks_) clock.time = 0;
    std::ranges::fill(out_free_, 0);
    std::ranges::fill(in_free_, 0);
    for (Index rank = 0; rank < clocks_.size(); ++rank) wake(rank, 0);
    while (!due_.empty()) {
      const auto [time, rank] = due_.top();
      due_.pop();
      if (clocks_[rank].due != time) continue;  // an earlier time has been set for this rank
      clocks_[rank].due = kNotDue;
      now_ = time;
      player_.progress(rank, *this);
    }
    return std::ranges::max(clocks_, {}, &Clock::time).time;
  }

 private:
  friend Player;
  struct Clock {
    double time = 0;  // end of the last Step, or arrival of the newest message that the current Step awaits
    double due = kNotDue;
  };

  // ---- the visitor of the player ----

  void emit(Index rank, std::size_t, Player::Steps& steps) {
    view_.rebind(static_cast<Rank>(rank));
    emitted_ = &steps;
    algorithm_->emit(view_, *args_, *this);
  }

  /// Performs a Step with messages, at the time at which the last of its incoming messages has arrived. Steps are
  /// performed in the order of time, because links must carry earlier messages first.
  bool perform(Index rank, const Player::PlayedStep& step) {
    double& time = clocks_[rank].time;
    for (const Index from : player_.incoming(rank)) time = std::max(time, player_.channel(from).arrivals.front());
    if (time > now_) {
      wake(rank, time);
      return false;
    }
    for (const Index from : player_.incoming(rank)) {
      player_.channel(from).arrivals.pop();
      if (player_.channel(from).wire()) time += tuning_.wire_message_us;
    }
    for (const Index to : player_.outgoing(rank)) {
      Player::Channel& channel = player_.channel(to);
      if (channel.wire()) time += tuning_.wire_message_us;
      const double comes = channel.wire() ? over_wire(channel, time, step.wire) : time + tuning_.message_us;
      channel.arrivals.push(comes);
      player_.send(to);
      if (player_.arrive(to)) wake(channel.destination, comes);
    }
    player_.finish(rank, *this);
    wake(rank, time);
    return false;  // other ranks may come before the next Step
  }

  /// Performs a host Step, in which ranks of one host work together through shared memory. All of them end it at the
  /// same time.
  void perform_host(const std::vector<Index>& ranks, const Player::PlayedStep& step) {
    double time = 0;
    for (const Index rank : ranks) time = std::max(time, clocks_[rank].time);
    const bool crosses = view_.inner.host_count() > 1 && step.subgroup != Subgroup::domain;
    time += step.synchronizations * (tuning_.host_latency_us + (crosses ? tuning_.domain_us : 0));
    for (const Index rank : ranks) {
      clocks_[rank].time = time;
      player_.finish(rank, *this);
      wake(rank, time);
    }
  }

  void wake(Index) {}  // no rank waits for space in a channel, because channels are unlimited here

  // ---- times ----

  /// Makes a rank continue at `time`, or earlier if that is planned already.
  void wake(Index rank, double time) {
    if (clocks_[rank].due <= time) return;
    clocks_[rank].due = time;
    due_.emplace(time, rank);
  }

  /// Returns the arrival time of a message that is sent at `time` over two links, the sender's and the receiver's. Each
  /// link carries one message after another.
  double over_wire(const Player::Channel& channel, double time, double busy) {
    if (!with_bytes_) return time + tuning_.wire_us;
    double& out = out_free_[channel.out];
    double& in = in_free_[channel.in];
    const double begun = std::max({time, out, in});
    out = in = begun + busy;
    return begun + busy + tuning_.wire_us;
  }

  // ---- recording ----

  void operator()(const Step& step) override {
    if (steps_ > kMostSteps) return;
    const Rank self = view_.world.self;
    StepTime data;
    if (step.kind != Step::Kind::exchange) {
      data.synchronizations = step.kind == Step::Kind::host_all_reduce ? 2.0 : 1.0;
    } else {
      const auto other = [self](Rank peer) { return peer != self; };
      if (step.range.count == 0 && !notices_) return;
      if (std::ranges::none_of(step.from, other) && std::ranges::none_of(step.to, other)) return;
      const auto bytes = static_cast<double>(coding_.bytes(sent_elements(step)));
      data.wire = bytes * tuning_.wire_us_per_byte;
      for (const Rank peer : step.to)
        if (view_.host_of(self) != view_.host_of(peer)) ++messages_, bytes_ += bytes;
    }
    emitted_->add(
        step, data, self, [&](Rank peer) { return channel(peer, self); },
        [&](Rank peer) { return channel(self, peer); });
    const Player::PlayedStep& played = (*emitted_)[emitted_->size() - 1];
    steps_ += 1 + played.from + played.to;
  }
  Index channel(Rank from, Rank to) {
    const auto source = static_cast<Index>(from), destination = static_cast<Index>(to);
    return player_.channel_between(source, destination, [&] {
      Player::Channel channel;
      channel.source = source;
      channel.destination = destination;
      channel.out = static_cast<std::size_t>(view_.host_of(from));
      channel.in = static_cast<std::size_t>(view_.host_of(to));
      return channel;
    });
  }

  TuningParameters tuning_;
  const Coding coding_;
  bool with_bytes_ = false;
  const bool notices_;  // whether messages without data are sent, as in a barrier
  RankView view_;
  const Algorithm* algorithm_ = nullptr;
  const RoundArgs* args_ = nullptr;
  Player player_;
  Player::Steps* emitted_ = nullptr;  // Steps of the rank whose Steps are being recorded
  std::vector<Clock> clocks_;
  double now_ = 0;
  std::vector<double> out_free_, in_free_;  // time at which the link of each host is free
  std::size_t steps_ = 0;                   // number of Steps, sends and receives of all ranks
  std::size_t messages_ = 0;
  double bytes_ = 0;                     // bytes between hosts
  using Due = std::pair<double, Index>;  // time at which a rank may continue, and the rank
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
