// Implementation of the simulation of events. A Move is a Step of one rank with channels in place of peers. A channel
// carries the messages from one rank to another.
#include "tools/simulation/play.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <queue>
#include <stdexcept>
#include <unordered_map>
#include <utility>

#include "steps/schedule.hpp"

namespace collectives::simulation {
namespace {

/// A Step of one rank, with channels in place of peers.
struct Move {
  std::size_t bytes = 0;
  int depth = 0;
  std::uint32_t first = 0, from = 0, to = 0;  ///< channels [first, first + from) come in, the next `to` go out
  double work = 0;                            ///< us that a rank itself adds, encodes and decodes
  Step::Kind kind = Step::Kind::exchange;
  Subgroup subgroup = Subgroup::host;
};
struct Moves {
  std::vector<Move> moves;
  std::vector<std::uint32_t> channels;
  std::size_t size() const { return moves.size(); }
  const Move& operator[](std::size_t i) const { return moves[i]; }
  void clear() {
    moves.clear();
    channels.clear();
  }
};

class Play {
 public:
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
      first_of_host_.push_back(players_.size());
      for (const Rank rank : topology.hosts[index(h)]) players_.emplace_back().rank = rank;
    }
    make_subgroups();
  }

  /// Plays all events. Throws std::logic_error if ranks wait for each other for ever.
  void run() {
    for (std::uint32_t p = 0; p < players_.size(); ++p) {
      players_[p].schedule.start(call_.rounds, call_.issue_interval, emitter(p));
      progress_player(p);
    }
    while (!queue_.empty()) {
      const Event event = queue_.top();
      queue_.pop();
      now_ = event.time;
      ++result.events;
      switch (event.what) {
        case What::done: performed(event.who); break;
        case What::retry: progress_player(event.who); break;
        case What::departs: depart(event.who); break;
        case What::at_uplink: climb(event.who); break;
        case What::at_downlink: descend(event.who); break;
        case What::at_host: enter(event.who); break;
        case What::arrived: arrive(event.who); break;
      }
    }
    for (const Player& player : players_)
      if (player.schedule.current() != nullptr)
        throw std::logic_error(fmt::format("{}: rank {} waits for ever", call_.algorithm->name, player.rank));
  }

  Played result;

 private:
  enum class What : std::uint8_t { done, retry, departs, at_uplink, at_downlink, at_host, arrived };
  struct Event {
    double time;
    std::uint64_t number;  // orders the events of one time: the first scheduled happens first
    std::uint32_t who;     // player or message
    What what;
    bool operator<(const Event& other) const { return time != other.time ? time > other.time : number > other.number; }
  };
  struct Player {
    Rank rank = 0;
    Schedule<Moves> schedule;
    std::uint32_t hops = 0, from_ready = 0, to_ready = 0;  // of the move's channels
  };
  /// Messages from one rank to another. If one block is played for several, the source may be the rank of the block
  /// that does the same as the real source.
  struct Channel {
    std::uint32_t source = 0, destination = 0;           // players
    int out = 0, in = 0, up = 0, down = 0;               // hosts and switches
    std::uint32_t arrived = 0, untaken = 0, frames = 0;  // messages
    bool between_hosts = false, between_switches = false;
    bool source_waits = false, destination_waits = false;
  };
  /// A link carries messages in the order of their heads. If a message comes in slower than the link could carry it,
  /// the messages behind it use the rest of the link, as packets take turns.
  struct Link {
    double free = 0;
    /// Carries a message. Its head is here now, and its tail comes at `tail`. Returns when its head has passed, and
    /// sets `tail` to the time at which its tail has passed.
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
    double tail = 0;  // time at which its last byte has passed the newest link
  };
  struct SubgroupState {
    std::size_t size = 0, arrivals = 0;
    std::vector<std::uint32_t> players;
  };

  /// Turns Steps into Moves.
  struct Recorder final : StepSink {
    Recorder(Play& the_play, std::uint32_t the_player, Moves& to) : play(the_play), player(the_player), moves(to) {}
    void operator()(const Step& step) override {
      Move move{.depth = step.depth,
                .first = static_cast<std::uint32_t>(moves.channels.size()),
                .kind = step.kind,
                .subgroup = step.subgroup};
      if (step.kind != Step::Kind::exchange) {
        move.bytes = longest_share(step, play.view_) * play.call_.coding.element;
      } else {
        const Coding& coding = play.call_.coding;
        move.bytes = coding.bytes(step.range.count);
        move.work = static_cast<double>(step.range.count * coding.element) *
                    (static_cast<double>(terms(step)) * play.tuning_.reduce_us_per_byte +
                     static_cast<double>(coding.codings(step)) * play.tuning_.coding_us_per_byte);
        // An empty range takes no message, except in a barrier.
        if (step.range.count == 0 && play.call_.args.collective != Collective::barrier) return;
        const Rank self = play.view_.world.self;
        for (const Rank peer : step.from)
          if (peer != self) moves.channels.push_back(play.channel_from(peer, player));
        move.from = static_cast<std::uint32_t>(moves.channels.size()) - move.first;
        for (const Rank peer : step.to)
          if (peer != self) moves.channels.push_back(play.channel_to(peer, player));
        move.to = static_cast<std::uint32_t>(moves.channels.size()) - move.first - move.from;
      }
      moves.moves.push_back(move);
    }
    Play& play;
    std::uint32_t player;
    Moves& moves;
  };
  struct Emitter {
    Play& play;
    std::uint32_t player;
    void operator()(std::size_t round, Moves& moves) const {
      play.view_.rebind(play.players_[player].rank);
      Recorder recorder(play, player, moves);
      play.call_.emit(play.view_, round, recorder);
    }
  };
  Emitter emitter(std::uint32_t player) { return {*this, player}; }

  void make_subgroups() {
    const auto add = [this](std::vector<std::uint32_t> players, Subgroup subgroup) {
      for (const std::uint32_t p : players) {
        auto& subgroup_of = subgroup_of_[static_cast<std::size_t>(subgroup)];
        subgroup_of.resize(players_.size());
        subgroup_of[p] = static_cast<std::uint32_t>(subgroups_.size());
      }
      subgroups_.push_back({.size = players.size(), .arrivals = 0, .players = std::move(players)});
    };
    for (int h = 0; h < block_.hosts; ++h) {
      std::vector<std::uint32_t> host;
      for (std::size_t l = 0; l < topology_.hosts[index(h)].size(); ++l)
        host.push_back(static_cast<std::uint32_t>(first_of_host_[index(h)] + l));
      add(std::move(host), Subgroup::host);
    }
    const auto levels = topology_.levels();  // of one host, whose ranks have the numbers of its players
    for (const auto& domain : levels) {
      std::vector<std::uint32_t> inside;
      for (const Rank rank : domain) inside.push_back(player_at(0, view_.local_of(rank)));
      add(std::move(inside), Subgroup::domain);
    }
    for (std::size_t i = 0; !levels.empty() && i < levels[0].size(); ++i) {
      std::vector<std::uint32_t> rail;
      for (const auto& domain : levels) rail.push_back(player_at(0, view_.local_of(domain[i])));
      add(std::move(rail), Subgroup::rail);
    }
  }

  std::uint32_t player_at(int host, int local) const {
    return static_cast<std::uint32_t>(first_of_host_[index(host)] + index(local));
  }

  /// Returns the channel to a peer. A message into another block stands for the equal message that this block receives
  /// from a further block. The key of a channel is its receiver, a player, and its sender as seen from the receiver.
  std::uint32_t channel_to(Rank peer, std::uint32_t player) {
    const int to = view_.host_of(peer), block = block_.of(to);
    return channel(block_.seen(view_.grid.host, block), view_.grid.local,
                   player_at(to - block * block_.hosts, view_.local_of(peer)), to - block * block_.hosts, player, 0);
  }
  std::uint32_t channel_from(Rank peer, std::uint32_t player) {
    const int from = view_.host_of(peer), local = view_.local_of(peer);
    return channel(from, local, player, view_.grid.host, player_at(from % block_.hosts, local), 1);
  }
  std::uint32_t channel(int from_host, int from_local, std::uint32_t destination, int to_host, std::uint32_t source,
                        std::size_t direction) {
    const auto from = static_cast<std::uint64_t>(topology_.hosts[index(from_host)][index(from_local)]);
    const std::uint64_t key = from << 32 | destination;
    Known& last = last_[direction];
    if (key == last.key) return last.channel;  // a ring has one in each direction
    const auto [found, is_new] = channel_of_.try_emplace(key, static_cast<std::uint32_t>(channels_.size()));
    if (is_new) {
      const bool between_hosts = from_host != to_host;
      const int out = from_host % block_.hosts;
      channels_.push_back({.source = source,
                           .destination = destination,
                           .out = out,
                           .in = to_host,
                           .up = out / per_switch_,
                           .down = to_host / per_switch_,
                           .frames = static_cast<std::uint32_t>(between_hosts ? tuning_.wire_frames : kFramesInside),
                           .between_hosts = between_hosts,
                           .between_switches = from_host / per_switch_ != to_host / per_switch_});
    }
    last = {key, found->second};
    return found->second;
  }

  void at(double time, What what, std::uint32_t who) { queue_.push({time, foreseen_++, who, what}); }

  // ---- ranks ----

  /// Performs Steps of `p` until it has to wait.
  void progress_player(std::uint32_t p) {
    Player& player = players_[p];
    for (;;) {
      const Move* const move = player.schedule.current();
      if (move == nullptr) {
        result.finished_us = std::max(result.finished_us, now_);
        return;
      }
      if (move->kind != Step::Kind::exchange) return come_to_host_step(p, *move);
      const std::uint32_t* const channels = player.schedule.list().channels.data() + move->first;
      for (; player.from_ready < move->from; ++player.from_ready)
        if (Channel& from = channels_[channels[player.from_ready]]; from.arrived == 0) {
          from.destination_waits = true;
          return;
        }
      for (; player.to_ready < move->to; ++player.to_ready)
        if (Channel& to = channels_[channels[move->from + player.to_ready]]; to.untaken >= to.frames) {
          to.source_waits = true;
          return;
        }
      const double done = perform(*move, channels, player.hops);
      if (done > now_) return at(done, What::done, p);
      finish_move(player);
    }
  }

  /// Takes and adds all messages, then hands out one message after the other. Returns the time at which it is done.
  double perform(const Move& move, const std::uint32_t* channels, std::uint32_t hops_so_far) {
    const auto bytes = static_cast<double>(move.bytes);
    double time = now_ + move.work;
    std::uint32_t inside_in = 0, inside_out = 0;
    for (std::uint32_t i = 0; i < move.from; ++i) {
      const bool wire = channels_[channels[i]].between_hosts;
      time += wire ? tuning_.wire_message_us : tuning_.message_us / 2;
      inside_in += wire ? 0u : 1u;
    }
    for (std::uint32_t i = 0; i < move.to; ++i)
      inside_out += channels_[channels[move.from + i]].between_hosts ? 0u : 1u;
    time += bytes * std::max(inside_in, inside_out) * tuning_.message_us_per_byte;
    for (std::uint32_t i = 0; i < move.to; ++i) {
      const std::uint32_t id = channels[move.from + i];
      Channel& to = channels_[id];
      time += to.between_hosts ? tuning_.wire_message_us : tuning_.message_us / 2;
      ++to.untaken;
      const std::uint32_t message = new_message({id, move.bytes, hops_so_far + 1, 0});
      if (time > now_)
        at(time, What::departs, message);
      else
        depart(message);
    }
    return time;
  }

  /// Frees the frames of the messages that the move has taken.
  void finish_move(Player& player) {
    const Move& move = *player.schedule.current();
    const std::uint32_t* const channels = player.schedule.list().channels.data() + move.first;
    for (std::uint32_t i = 0; i < move.from; ++i) {
      Channel& from = channels_[channels[i]];
      --from.arrived;
      --from.untaken;
      if (std::exchange(from.source_waits, false)) at(now_, What::retry, from.source);
    }
    player.from_ready = player.to_ready = 0;
    player.schedule.progress(emitter(static_cast<std::uint32_t>(&player - players_.data())));
  }

  void performed(std::uint32_t p) {
    finish_move(players_[p]);
    progress_player(p);
  }

  /// Counts an arrival. The last rank to arrive begins the host Step for all.
  void come_to_host_step(std::uint32_t p, const Move& move) {
    SubgroupState& state = subgroups_[subgroup_of_[static_cast<std::size_t>(move.subgroup)][p]];
    if (++state.arrivals < state.size) return;
    state.arrivals = 0;
    const double times = move.kind == Step::Kind::host_all_reduce ? 2 : 1, bytes = static_cast<double>(move.bytes);
    double lasts = times * (tuning_.host_latency_us + bytes * tuning_.host_us_per_byte);
    if (const int domains = view_.inner.host_count(); domains >= 2 && move.subgroup != Subgroup::domain)
      lasts += times * (tuning_.domain_us + bytes * tuning_.domain_us_per_byte * (domains - 1) / domains);
    for (const std::uint32_t member : state.players) at(now_ + lasts, What::done, member);
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
    const Channel& channel = channels_[message.channel];
    if (!channel.between_hosts) return arrive(m);
    result.bytes_out[index(channel.out)] += message.bytes;
    message.tail = now_;
    const double head = links_out_[index(channel.out)].pass(now_, on_link(message), message.tail);
    if (channel.between_switches) return at(head, What::at_uplink, m);
    cross(m, head);
  }
  void climb(std::uint32_t m) {
    Message& message = messages_[m];
    Link& up = up_[index(channels_[message.channel].up)];
    at(up.pass(now_, on_uplink(message), message.tail), What::at_downlink, m);
  }
  void descend(std::uint32_t m) {
    Message& message = messages_[m];
    Link& down = down_[index(channels_[message.channel].down)];
    cross(m, down.pass(now_, on_uplink(message), message.tail));
  }
  void cross(std::uint32_t m, double head) {
    messages_[m].tail += network_.latency_us;
    at(head + network_.latency_us, What::at_host, m);
  }
  void enter(std::uint32_t m) {
    Message& message = messages_[m];
    links_in_[index(channels_[message.channel].in)].pass(now_, on_link(message), message.tail);
    at(message.tail, What::arrived, m);
  }
  void arrive(std::uint32_t m) {
    Channel& channel = channels_[messages_[m].channel];
    free_.push_back(m);
    ++channel.arrived;
    std::uint32_t& longest = players_[channel.destination].hops;
    longest = std::max(longest, messages_[m].hops);
    result.hops = std::max<std::size_t>(result.hops, longest);
    if (std::exchange(channel.destination_waits, false)) at(now_, What::retry, channel.destination);
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
  std::vector<Player> players_;
  std::vector<std::size_t> first_of_host_;
  std::array<std::vector<std::uint32_t>, 3> subgroup_of_;  // by Subgroup and player
  std::vector<SubgroupState> subgroups_;
  std::vector<Channel> channels_;
  std::unordered_map<std::uint64_t, std::uint32_t> channel_of_;
  struct Known {
    std::uint64_t key = ~std::uint64_t{0};
    std::uint32_t channel = 0;
  };
  std::array<Known, 2> last_;  // of sending and of receiving
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
