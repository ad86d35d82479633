// Implementation of play(), which simulates a collective event by event. It computes when Steps, the actions of ranks,
// begin and end, and when messages pass links. The class StepPlayer (steps/step_player.hpp) decides which Step can run
// next. A channel carries the messages from one rank to another. To play is to simulate.
#include "tools/simulation/play.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <queue>
#include <stdexcept>
#include <utility>

#include "steps/step_player.hpp"

namespace collectives::simulation {
namespace {

/// Properties of a Step that determine its duration.
struct StepWork {
  std::size_t bytes = 0;
  double work = 0;  ///< microseconds that the CPU of a rank takes to add, encode and decode
};
/// Links that the messages of a channel pass. If only one block (group of hosts) is played, its ranks also represent
/// the ranks of the other blocks.
struct ChannelLinks {
  int out = 0, in = 0;   // numbers of the sending and of the receiving host
  int up = 0, down = 0;  // numbers of the switches of these hosts
  bool between_hosts = false, between_switches = false;
};

class Play {
 public:
  using Player = StepPlayer<StepWork, ChannelLinks>;

  Play(const Call& call, RankView& view, const Topology& topology, const TuningParameters& tuning,
       const Fabric& network, const Block& block)
      : call_(call), view_(view), topology_(topology), tuning_(tuning), network_(network), block_(block) {
    per_switch_ = network.hosts_per_switch > 0 ? network.hosts_per_switch : block.all;
    const int switches = (block.hosts + per_switch_ - 1) / per_switch_;
    links_out_.resize(index(block.hosts));
    links_in_.resize(index(block.hosts));
    up_.resize(index(switches));
    down_.resize(index(switches));
    result.bytes_out.resize(index(block.hosts));
    for (int h = 0; h < block.hosts; ++h) {
      first_of_host_.push_back(ranks_.size());
      for (const Rank rank : topology.hosts[index(h)]) {
        ranks_.push_back(rank);
        player_.add_rank();
      }
    }
    hops_.resize(ranks_.size());
    for_each_subgroup(topology, [this](Subgroup subgroup, const std::vector<Rank>& members) {
      if (view_.host_of(members[0]) >= block_.hosts) return;
      std::vector<std::uint32_t> played;
      for (const Rank rank : members) played.push_back(played_rank(view_.host_of(rank), view_.local_of(rank)));
      player_.add_subgroup(subgroup, std::move(played));
    });
  }

  /// Plays all events. Throws std::logic_error if the ranks wait for one another forever.
  void run() {
    for (std::uint32_t p = 0; p < ranks_.size(); ++p) {
      player_.start(p, call_.rounds, call_.issue_interval, *this);
      progress(p);
    }
    while (!queue_.empty()) {
      const Event event = queue_.top();
      queue_.pop();
      now_ = event.time;
      ++result.events;
      switch (event.what) {
        case What::done: performed(event.who); break;
        case What::retry: progress(event.who); break;
        case What::departs: depart(event.who); break;
        case What::at_uplink: climb(event.who); break;
        case What::at_downlink: descend(event.who); break;
        case What::at_host: enter(event.who); break;
        case What::arrived: arrive(event.who); break;
      }
    }
    if (const auto waits = player_.first_unfinished())
      throw std::logic_error(fmt::format("{}: rank {} waits for ever", call_.algorithm->name, ranks_[*waits]));
  }

  Played result;

 private:
  friend Player;
  enum class What : std::uint8_t { done, retry, departs, at_uplink, at_downlink, at_host, arrived };
  struct Event {
    double time;
    // number in the order in which events were scheduled; decides the order of events at the same time
    std::uint64_t number;
    std::uint32_t who;  // number of a rank or of a message, depending on `what`
    What what;
    bool operator<(const Event& other) const { return time != other.time ? time > other.time : number > other.number; }
  };
  /// One direction of the connection of a host, or of a switch's uplink. The link carries messages in the order in
  /// which their first bytes arrive. If a message arrives slower than the link could carry it, the messages behind it
  /// use the rest of the rate, as packets would.
  struct Link {
    double free = 0;
    /// Carries a message whose first byte is here now and whose last byte arrives at `tail`. Returns the time at which
    /// the first byte has passed the link. Sets `tail` to the time at which the last byte has passed it.
    double pass(double now, double lasts, double& tail) {
      const double stretch = std::max(tail - now, lasts);
      free = std::max(now, free) + lasts;
      tail = std::max(tail, free);
      return std::max(now, tail - stretch);
    }
  };
  struct Message {
    std::uint32_t channel = 0;
    std::size_t bytes = 0;
    std::uint32_t hops = 0;
    double tail = 0;  // time at which the message's last byte has passed the link that it used last
  };
  /// Converts the Steps that an algorithm emits to Steps of the player.
  struct Recorder final : StepSink {
    Recorder(Play& the_play, std::uint32_t the_rank, Player::Steps& to) : play(the_play), rank(the_rank), steps(to) {}
    void operator()(const Step& step) override {
      StepWork data;
      const Coding& coding = play.call_.coding;
      if (step.kind != Step::Kind::exchange) {
        data.bytes = longest_share(step, play.view_) * coding.element;
      } else {
        // An empty range causes no message, except in a barrier.
        if (step.range.count == 0 && play.call_.args.collective != Collective::barrier) return;
        data.bytes = coding.bytes(sent_elements(step));
        data.work = static_cast<double>(step.range.count * coding.element) *
                    (static_cast<double>(terms(step)) * play.tuning_.reduce_us_per_byte +
                     static_cast<double>(coding.codings(step)) * play.tuning_.coding_us_per_byte);
      }
      steps.add(
          step, data, play.view_.world.self, [this](Rank peer) { return play.channel_from(peer, rank); },
          [this](Rank peer) { return play.channel_to(peer, rank); });
    }
    Play& play;
    std::uint32_t rank;
    Player::Steps& steps;
  };

  std::uint32_t played_rank(int host, int local) const {
    return static_cast<std::uint32_t>(first_of_host_[index(host)] + index(local));
  }

  /// Returns the channel to a peer. Only one block is played, and all blocks do the same. A message to another block
  /// therefore also stands for an equal message: the one that the played block receives from another block. A channel
  /// is identified by its receiver, a played rank, and by its sender as seen from the receiver.
  std::uint32_t channel_to(Rank peer, std::uint32_t played) {
    const int to = view_.host_of(peer), block = block_.of(to);
    return channel(block_.seen(view_.grid.host, block), view_.grid.local,
                   played_rank(to - block * block_.hosts, view_.local_of(peer)), to - block * block_.hosts, played, 0);
  }
  std::uint32_t channel_from(Rank peer, std::uint32_t played) {
    const int from = view_.host_of(peer), local = view_.local_of(peer);
    return channel(from, local, played, view_.grid.host, played_rank(from % block_.hosts, local), 1);
  }
  std::uint32_t channel(int from_host, int from_local, std::uint32_t destination, int to_host, std::uint32_t source,
                        std::size_t direction) {
    const auto from = static_cast<std::uint32_t>(topology_.hosts[index(from_host)][index(from_local)]);
    Known& last = last_[direction];
    if (from == last.from && destination == last.destination) return last.channel;  // a ring has one channel each way
    last = {from, destination, player_.channel_between(from, destination, [&] {
              const bool between_hosts = from_host != to_host;
              const int out = from_host % block_.hosts;
              Player::Channel channel;
              channel.source = source;
              channel.destination = destination;
              channel.out = out;
              channel.in = to_host;
              channel.up = out / per_switch_;
              channel.down = to_host / per_switch_;
              channel.frames = static_cast<std::uint32_t>(between_hosts ? tuning_.wire_frames : kFramesInside);
              channel.between_hosts = between_hosts;
              channel.between_switches = from_host / per_switch_ != to_host / per_switch_;
              return channel;
            })};
    return last.channel;
  }

  void at(double time, What what, std::uint32_t who) { queue_.push({time, foreseen_++, who, what}); }

  // ---- ranks ----

  /// Performs Steps of `p` until it has to wait.
  void progress(std::uint32_t p) {
    player_.progress(p, *this);
    if (player_.current(p) == nullptr) result.finished_us = std::max(result.finished_us, now_);
  }
  void performed(std::uint32_t p) {
    player_.finish(p, *this);
    progress(p);
  }

  // The visitor of the player.

  void emit(std::uint32_t p, std::size_t round, Player::Steps& steps) {
    view_.rebind(ranks_[p]);
    Recorder recorder(*this, p, steps);
    call_.emit(view_, round, recorder);
  }
  void wake(std::uint32_t p) { at(now_, What::retry, p); }
  /// Takes and adds all messages of a Step, then sends its messages one after the other. Returns whether all of this
  /// takes no time.
  bool perform(std::uint32_t p, const Player::PlayedStep& step) {
    const auto bytes = static_cast<double>(step.bytes);
    double time = now_ + step.work;
    std::uint32_t inside_in = 0, inside_out = 0;
    for (const std::uint32_t id : player_.incoming(p)) {
      const bool wire = player_.channel(id).between_hosts;
      time += wire ? tuning_.wire_message_us : tuning_.message_us / 2;
      inside_in += wire ? 0u : 1u;
    }
    for (const std::uint32_t id : player_.outgoing(p)) inside_out += player_.channel(id).between_hosts ? 0u : 1u;
    time += bytes * std::max(inside_in, inside_out) * tuning_.message_us_per_byte;
    const std::uint32_t hops = hops_[p] + 1;
    for (const std::uint32_t id : player_.outgoing(p)) {
      time += player_.channel(id).between_hosts ? tuning_.wire_message_us : tuning_.message_us / 2;
      player_.send(id);
      const std::uint32_t message = new_message({id, step.bytes, hops, 0});
      if (time > now_)
        at(time, What::departs, message);
      else
        depart(message);
    }
    if (time > now_) at(time, What::done, p);
    return time <= now_;
  }
  /// Performs a host Step, which ranks of one host perform together. All these ranks are done at the same time.
  void perform_host(const std::vector<std::uint32_t>& ranks, const Player::PlayedStep& step) {
    const double times = step.kind == Step::Kind::host_all_reduce ? 2 : 1, bytes = static_cast<double>(step.bytes);
    double lasts = times * (tuning_.host_latency_us + bytes * tuning_.host_us_per_byte);
    if (const int domains = view_.inner.host_count(); domains >= 2 && step.subgroup != Subgroup::domain)
      lasts += times * (tuning_.domain_us + bytes * tuning_.domain_us_per_byte * (domains - 1) / domains);
    for (const std::uint32_t rank : ranks) at(now_ + lasts, What::done, rank);
  }

  // ---- messages ----

  std::uint32_t new_message(Message message) {
    if (free_.empty()) {
      messages_.push_back(message);
      return static_cast<std::uint32_t>(messages_.size() - 1);
    }
    const std::uint32_t m = free_.back();
    free_.pop_back();
    messages_[m] = message;
    return m;
  }

  void depart(std::uint32_t m) {
    Message& message = messages_[m];
    const Player::Channel& channel = player_.channel(message.channel);
    if (!channel.between_hosts) return arrive(m);
    result.bytes_out[index(channel.out)] += message.bytes;
    message.tail = now_;
    const double head = links_out_[index(channel.out)].pass(now_, on_link(message), message.tail);
    if (channel.between_switches) return at(head, What::at_uplink, m);
    cross(m, head);
  }
  void climb(std::uint32_t m) {
    Message& message = messages_[m];
    Link& up = up_[index(player_.channel(message.channel).up)];
    at(up.pass(now_, on_uplink(message), message.tail), What::at_downlink, m);
  }
  void descend(std::uint32_t m) {
    Message& message = messages_[m];
    Link& down = down_[index(player_.channel(message.channel).down)];
    cross(m, down.pass(now_, on_uplink(message), message.tail));
  }
  void cross(std::uint32_t m, double head) {
    messages_[m].tail += network_.latency_us;
    at(head + network_.latency_us, What::at_host, m);
  }
  void enter(std::uint32_t m) {
    Message& message = messages_[m];
    links_in_[index(player_.channel(message.channel).in)].pass(now_, on_link(message), message.tail);
    at(message.tail, What::arrived, m);
  }
  void arrive(std::uint32_t m) {
    const std::uint32_t id = messages_[m].channel, destination = player_.channel(id).destination;
    free_.push_back(m);
    const bool waits = player_.arrive(id);
    std::uint32_t& longest = hops_[destination];
    longest = std::max(longest, messages_[m].hops);
    result.hops = std::max<std::size_t>(result.hops, longest);
    if (waits) at(now_, What::retry, destination);
  }
  double on_link(const Message& message) const { return static_cast<double>(message.bytes) * network_.us_per_byte; }
  double on_uplink(const Message& message) const {
    return static_cast<double>(message.bytes) * network_.uplink_us_per_byte;
  }

  static constexpr std::size_t kFramesInside = 2;  ///< frames between two ranks of a host (transport.hpp)

  const Call& call_;
  RankView& view_;
  const Topology& topology_;
  const TuningParameters& tuning_;
  const Fabric& network_;
  const Block block_;
  int per_switch_ = 0;
  double now_ = 0;
  std::uint64_t foreseen_ = 0;
  std::priority_queue<Event> queue_;
  Player player_;
  std::vector<Rank> ranks_;          // rank in the topology, by played rank
  std::vector<std::uint32_t> hops_;  // by played rank: messages in the longest chain that ends there
  std::vector<std::size_t> first_of_host_;
  struct Known {
    std::uint32_t from = ~std::uint32_t{0}, destination = 0, channel = 0;
  };
  std::array<Known, 2> last_;  // last channel found: [0] for sending, [1] for receiving
  std::vector<Link> links_out_, links_in_, up_, down_;
  std::vector<Message> messages_;
  std::vector<std::uint32_t> free_;
};

}  // namespace

Played play(const Call& call, RankView& view, const Topology& topology, const TuningParameters& tuning,
            const Fabric& network, const Block& block) {
  Play all(call, view, topology, tuning, network, block);
  all.run();
  return std::move(all.result);
}

}  // namespace collectives::simulation
