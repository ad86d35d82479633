#include "tools/simulation.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <optional>
#include <queue>
#include <stdexcept>
#include <unordered_map>
#include <utility>

#include "collectives/error.hpp"
#include "steps/algorithm.hpp"
#include "steps/schedule.hpp"

namespace collectives {
namespace {

std::size_t index(int i) { return static_cast<std::size_t>(i); }

/// A call as the sequence of rounds into which its plan cuts it.
struct Call {
  const Algorithm* algorithm = nullptr;
  RoundArgs args;
  std::size_t segment = 0, rounds = 1, issue_interval = 1;
  Coding coding = {};

  RoundArgs round(std::size_t index) const {
    RoundArgs now = args;
    if (rounds > 1) now.parts = args.parts.round(segment, index);
    return now;
  }
  void emit(const RankView& view, std::size_t index, StepSink& sink) const {
    algorithm->emit(view, round(index), sink);
  }
};

/// Returns the work of the busiest rank in a host Step, in elements.
std::size_t longest_share(const Step& step, const RankView& view) {
  return host_step_work(step, view.members(step.subgroup).size()).longest;
}

// ---- blocks of hosts that do the same ----

/// A block of `hosts` hosts that stands for all blocks. Host h of block b does the same as host h of block 0, with
/// peers moved by b blocks. A move adds to the number of a host modulo the number of hosts, or inverts bits of it
/// (`bits`).
struct Block {
  int hosts = 0, all = 0;
  bool bits = false;

  int of(int host) const { return host / hosts; }
  /// Returns the number of `host` relative to `block`, as if that block were block 0.
  int seen(int host, int block) const { return bits ? host ^ (block * hosts) : (host + all - block * hosts) % all; }
};

/// A digest of a rank's Steps with peers relative to its block. Ranks of two blocks that do the same have equal
/// digests.
class Digest final : public StepSink {
 public:
  Digest(const RankView& view, const Block& block) : view_(view), block_(block), mine_(block.of(view.grid.host)) {}

  void operator()(const Step& step) override {
    add((std::uint64_t{1} << 32) * static_cast<unsigned>(step.depth) + static_cast<unsigned>(step.kind) * 256u +
        static_cast<unsigned>(step.subgroup) * 4u + (step.reduce ? 1u : 0u));
    ++events;
    if (step.kind != Step::Kind::exchange) return add(longest_share(step, view_));
    add(step.range.count);
    std::uint64_t from = 0, to = 0;  // sums, which do not depend on the order of peers
    for (const Rank peer : step.from) from += mixed(relative(peer));
    for (const Rank peer : step.to) {
      to += mixed(relative(peer));
      ordered = mixed(ordered ^ relative(peer));
      if (peer != view_.world.self) events += view_.host_of(peer) == view_.grid.host ? 1 : kEventsOfMessage;
    }
    add(from);
    add(to);
  }

  std::uint64_t value = 0, ordered = 0;  ///< `ordered`: digest of the receivers in their order.
  std::size_t events = 0;                ///< Estimated number of events of these Steps.

 private:
  static constexpr std::size_t kEventsOfMessage = 3;
  static std::uint64_t mixed(std::uint64_t x) {
    x += 0x9e3779b97f4a7c15u;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
  }
  void add(std::uint64_t word) { value = mixed(value ^ word); }
  std::uint64_t relative(Rank peer) const {
    return static_cast<std::uint64_t>(block_.seen(view_.host_of(peer), mine_)) << 32 |
           static_cast<std::uint32_t>(view_.local_of(peer));
  }
  const RankView& view_;
  const Block& block_;
  int mine_;
};

/// Estimates the number of events of a round on the hosts [0, hosts) from up to 64 of their ranks and the root.
double events_of_round(const Call& call, RankView& view, const Topology& topology, int hosts) {
  constexpr int kSome = 64;
  std::vector<Rank> ranks;
  for (int h = 0; h < hosts; ++h)
    ranks.insert(ranks.end(), topology.hosts[index(h)].begin(), topology.hosts[index(h)].end());
  const auto n = ranks.size();
  const Block all{hosts, static_cast<int>(topology.hosts.size()), false};
  const auto count = [&](Rank rank) {
    view.rebind(rank);
    Digest digest(view, all);
    call.emit(view, 0, digest);
    return static_cast<double>(digest.events);
  };
  double sum = 0;
  if (n <= index(kSome)) {
    for (const Rank rank : ranks) sum += count(rank);
    return sum;
  }
  for (int i = 0; i < kSome; ++i) sum += count(ranks[(index(i) * 40503u + 1) % n]);
  return sum / kSome * static_cast<double>(n) + count(call.args.root);
}

/// Returns true if up to seven blocks do the same as block 0 in the first and the last round. `ordered` also requires
/// that ranks send in the same order.
bool alike(const Call& call, RankView& view, const Topology& topology, const Block& block, bool ordered) {
  const int blocks = block.all / block.hosts;
  std::vector<int> looked_at;
  for (const int b : {1, 2, 3, blocks / 3, blocks / 2, blocks - 2, blocks - 1})
    if (b > 0 && b < blocks && std::ranges::find(looked_at, b) == looked_at.end()) looked_at.push_back(b);
  for (int h = 0; h < block.hosts; ++h)
    for (std::size_t local = 0; local < topology.hosts[0].size(); ++local)
      for (const std::size_t round : {std::size_t{0}, call.rounds - 1}) {
        const auto digest_in = [&](int b) {
          view.rebind(topology.hosts[index(b * block.hosts + h)][local]);
          Digest digest(view, block);
          call.emit(view, round, digest);
          return std::pair(digest.value, ordered ? digest.ordered : 0);
        };
        const auto mine = digest_in(0);
        for (const int b : looked_at)
          if (digest_in(b) != mine) return false;
      }
  return true;
}

// ---- simulation ----

/// A Step as the simulation needs it, with channels in place of peers.
struct Move {
  std::size_t bytes = 0;
  int depth = 0;
  std::uint32_t first = 0, from = 0, to = 0;  ///< `from` incoming channels at `first`, then `to` outgoing ones.
  double work = 0;                            ///< Time in us in which a rank adds, encodes and decodes.
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
  Play(const Call& call, RankView& view, const Topology& topology, const Tuning& tuning, const Fabric& network,
       const Block& block)
      : call_(call), view_(view), topology_(topology), tuning_(tuning), network_(network), block_(block) {
    per_switch_ = network.hosts_per_switch > 0 ? network.hosts_per_switch : block.all;
    const int switches = (block.hosts + per_switch_ - 1) / per_switch_;
    links_out_.resize(index(block.hosts));
    links_in_.resize(index(block.hosts));
    up_.resize(index(switches));
    down_.resize(index(switches));
    bytes_out.resize(index(block.hosts));
    for (int h = 0; h < block.hosts; ++h) {
      first_of_host_.push_back(players_.size());
      for (const Rank rank : topology.hosts[index(h)]) players_.emplace_back().rank = rank;
    }
    make_subgroups();
  }

  /// Processes events until none is left. Throws std::logic_error if ranks wait for one another for ever.
  void run() {
    for (std::uint32_t p = 0; p < players_.size(); ++p) {
      players_[p].schedule.start(call_.rounds, call_.issue_interval, emitter(p));
      progress_player(p);
    }
    while (!queue_.empty()) {
      const Event event = queue_.top();
      queue_.pop();
      now_ = event.time;
      ++events;
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

  double finished = 0;   ///< Time in us at which the last rank is done.
  std::size_t hops = 0;  ///< Length of the longest chain of messages, each sent after the one before.
  std::size_t events = 0;
  std::vector<std::size_t> bytes_out;  ///< Bytes sent to other hosts, by sending host.

 private:
  enum class What : std::uint8_t { done, retry, departs, at_uplink, at_downlink, at_host, arrived };
  struct Event {
    double time;
    std::uint64_t number;  // order of events of equal time
    std::uint32_t who;     // index of a player or a message
    What what;
    bool operator<(const Event& other) const { return time != other.time ? time > other.time : number > other.number; }
  };
  struct Player {
    Rank rank = 0;
    Schedule<Moves> schedule;
    std::uint32_t hops = 0, from_ready = 0, to_ready = 0;  // progress in the channels of the current move
  };
  /// A connection from one rank to another. If one block stands for all, `source` is the simulated player that does the
  /// same as the sender.
  struct Channel {
    std::uint32_t source = 0, destination = 0;           // players
    int out = 0, in = 0, up = 0, down = 0;               // indices of hosts and switches
    std::uint32_t arrived = 0, untaken = 0, frames = 0;  // numbers of messages
    bool between_hosts = false, between_switches = false;
    bool source_waits = false, destination_waits = false;
  };
  /// A link, which messages pass in the order of their heads. If a message arrives more slowly than it could pass, the
  /// messages behind it use the rest of the rate, because packets of several messages take turns.
  struct Link {
    double free = 0;
    /// Passes a message with its head here now and its tail at `tail`. Returns the time at which its head has passed,
    /// and sets `tail` to that of its tail.
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
    double tail = 0;  // time at which its last byte has passed its latest link
  };
  struct SubgroupState {
    std::size_t size = 0, arrivals = 0;
    std::vector<std::uint32_t> players;
  };

  /// Converts Steps to Moves.
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
        // An empty range has no message, except in a barrier.
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
    const auto levels = topology_.levels();  // levels of one host, whose players are numbered like its ranks
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

  /// Returns the channel of messages from `player` to `peer`. If `peer` is in another block, the simulated receiver is
  /// the player that does the same as `peer`. A channel is found by its receiving player and by its sender relative to
  /// the receiver's block.
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
    if (key == last.key) return last.channel;  // a rank of a ring has one channel in each direction
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

  /// Performs the moves of player `p` until it has to wait.
  void progress_player(std::uint32_t p) {
    Player& player = players_[p];
    for (;;) {
      const Move* const move = player.schedule.current();
      if (move == nullptr) {
        finished = std::max(finished, now_);
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

  /// Performs a move: takes and adds incoming messages, then sends messages one after another. Returns the time of its
  /// end.
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

  /// Ends a move: frees the frames of its incoming messages, and goes to the next move.
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

  /// Arrives at a host Step. The last rank to arrive sets the time at which all its ranks are done.
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
    bytes_out[index(channel.out)] += message.bytes;
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
    hops = std::max<std::size_t>(hops, longest);
    if (std::exchange(channel.destination_waits, false)) at(now_, What::retry, channel.destination);
  }
  double on_link(const Message& message) const { return static_cast<double>(message.bytes) * network_.us_per_byte; }
  double on_uplink(const Message& message) const {
    return static_cast<double>(message.bytes) * network_.uplink_us_per_byte;
  }

  static constexpr std::size_t kFramesInside = 2;  ///< Frames between two ranks of a host.

  const Call& call_;
  RankView& view_;
  const Topology& topology_;
  const Tuning& tuning_;
  const Fabric& network_;
  const Block block_;
  int per_switch_ = 0;
  double now_ = 0;
  std::uint64_t foreseen_ = 0;
  std::priority_queue<Event> queue_;
  std::vector<Player> players_;
  std::vector<std::size_t> first_of_host_;
  std::array<std::vector<std::uint32_t>, 3> subgroup_of_;  // by subgroup and player
  std::vector<SubgroupState> subgroups_;
  std::vector<Channel> channels_;
  std::unordered_map<std::uint64_t, std::uint32_t> channel_of_;
  struct Known {
    std::uint64_t key = ~std::uint64_t{0};
    std::uint32_t channel = 0;
  };
  std::array<Known, 2> last_;  // outgoing, incoming
  std::vector<Link> links_out_, links_in_, up_, down_;
  std::vector<Message> messages_;
  std::vector<std::uint32_t> free_;
};

// ---- shortcuts ----

Call call_of(const Request& request, const Plan& plan, const Topology& topology, std::vector<std::size_t>& offsets) {
  Call call{
      .algorithm = plan.algorithm,
      .args = {{request.collective, plan.partial_sums, plan.coded}, Parts::equal({0, request.count}, 1), request.root},
      .segment = plan.segment,
      .rounds = plan.rounds,
      .issue_interval = plan.issue_interval,
      .coding = coding_of(request, plan)};
  if (!plan.algorithm->by_part(call.args, topology)) return call;
  call.args.parts = Parts::equal({0, request.count}, topology.ranks());
  if (request.counts.empty()) return call;
  offsets.assign(1, 0);
  for (const std::size_t count : request.counts) offsets.push_back(offsets.back() + count);
  call.args.parts = Parts::listed(offsets.data(), topology.ranks());
  return call;
}

/// Returns `call` with its vector rounded up to a multiple of `unit` elements, in parts of equal length.
Call rounded_up(const Call& call, std::size_t unit) {
  Call longer = call;
  const Parts& parts = call.args.parts;
  longer.args.parts = Parts::equal({0, (parts.whole().count + unit - 1) / unit * unit}, parts.size());
  return longer;
}
/// Returns `call` with `rounds` rounds only, the last one among them.
Call shortened(const Call& call, std::size_t rounds) {
  Call shorter = call;
  const Parts& parts = call.args.parts;
  const std::size_t left_out = (call.rounds - rounds) * call.segment * index(parts.size());
  shorter.args.parts = Parts::equal({0, parts.whole().count - left_out}, parts.size());
  shorter.rounds = rounds;
  return shorter;
}

bool hosts_are_equal(const Topology& topology) {
  return std::ranges::all_of(topology.hosts, [&](const auto& host) { return host.size() == topology.hosts[0].size(); });
}
bool power_of_two(int n) { return (n & (n - 1)) == 0; }

struct Chosen {
  Call call;  ///< Its vector may be rounded up.
  Block block;
  bool ordered = true;
};

/// Returns a block that stands for all, or nothing. `ordered` also requires that blocks send in the same order.
std::optional<Chosen> one_block(const Call& call, RankView& view, const Topology& topology, const Fabric& network,
                                bool ordered) {
  const int hosts = static_cast<int>(topology.hosts.size());
  const int each = network.hosts_per_switch > 0 && network.hosts_per_switch < hosts ? network.hosts_per_switch : 1;
  if (!hosts_are_equal(topology) || hosts % each != 0 || hosts == each) return {};
  for (const bool bits : {false, true}) {
    if (bits && !(power_of_two(hosts) && power_of_two(each))) continue;
    const Block block{each, hosts, bits};
    for (const std::size_t unit : {std::size_t{1}, topology.hosts[0].size(), index(topology.ranks())})
      if (const Call longer = rounded_up(call, unit); alike(longer, view, topology, block, ordered))
        return Chosen{longer, block, ordered};
  }
  return {};
}

std::string hosts_of_block(const Block& block) {
  return block.hosts == 1 ? fmt::format("1 of {} hosts was", block.all)
                          : fmt::format("the {} hosts of 1 of {} switches were", block.hosts, block.all / block.hosts);
}

}  // namespace

double wire_bound_us(const Request& request, const Coding& coding, const Topology& topology, const Fabric& network) {
  const auto bytes = static_cast<double>(coding.bytes(request.count));
  // The group of hosts with the fewest ranks lacks the most bytes. In an all-gather these are the parts of all other
  // ranks, in a reduce-scatter the contributions of other groups to its own parts.
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

Simulated simulate(const Request& request, const Plan& plan, const Topology& topology, const Tuning& tuning,
                   const Fabric& network, const Effort& effort) {
  Simulated result;
  result.bound_us = wire_bound_us(request, coding_of(request, plan), topology, network);
  const int hosts = static_cast<int>(topology.hosts.size());
  result.hosts_played = hosts;
  if (plan.rounds == 0) return result;
  RankView view(topology, 0);
  std::vector<std::size_t> offsets;
  Chosen what{call_of(request, plan, topology, offsets), {hosts, hosts, false}};
  const auto rounds = static_cast<double>(plan.rounds);
  const auto everything = static_cast<double>(effort.everything), most = static_cast<double>(effort.most);

  double each = events_of_round(what.call, view, topology, hosts);
  // The number of rounds in one piece, by which the simulation is extended.
  const std::size_t some = std::max<std::size_t>(4, plan.rounds_in_flight);
  const bool may_add = effort.some_rounds && request.counts.empty() && plan.rounds > 5 * some;
  /// Returns the least number of events that a result takes.
  const auto least = [&] { return each * (may_add ? static_cast<double>(10 * some) : rounds); };
  if (each * rounds > everything && effort.one_block && request.counts.empty()) {
    auto found = one_block(what.call, view, topology, network, true);
    if (!found && least() > most) found = one_block(what.call, view, topology, network, false);
    if (found) {
      const std::size_t asked = request.count, longer = found->call.args.parts.whole().count;
      what = *found;
      result.hosts_played = what.block.hosts;
      result.notes.push_back(fmt::format("{} played, all do the same", hosts_of_block(what.block)));
      if (!what.ordered)
        result.notes.push_back("hosts send to others in the same order, which was left out: it may take longer");
      if (static_cast<double>(longer - asked) > 0.01 * static_cast<double>(asked))
        result.notes.push_back(fmt::format("{} elements were played as {}, equally many for each", asked, longer));
      each = events_of_round(what.call, view, topology, what.block.hosts);
    }
  }
  const bool add = may_add && each * rounds > everything;
  if (const double needed = add ? least() : each * rounds; needed > most)
    throw Error(Errc::unsupported, fmt::format("{} on {} takes about {:.0f} million events, more than {:.0f} million",
                                               plan.name, to_string(topology), needed / 1e6, most / 1e6));

  const auto play = [&](std::size_t of_rounds) {
    const Call call = of_rounds == plan.rounds ? what.call : shortened(what.call, of_rounds);
    Play all(call, view, topology, tuning, network, what.block);
    all.run();
    result.events += all.events;
    result.rounds_played = of_rounds;
    result.microseconds = all.finished;
    result.bytes_out = std::ranges::max(all.bytes_out);
    return all.hops;
  };
  if (!add) {
    play(plan.rounds);
    return result;
  }
  // A round starts issue_interval ticks after the round before. Rounds are steady only after the first one has ended,
  // which is late on a long chain of hosts. A shorter vector consists of starting rounds alone, which are steady, too.
  const std::size_t beginning = play(1) / plan.issue_interval * 9 / 8;
  const auto affordable = static_cast<std::size_t>(std::max(0.0, most - static_cast<double>(result.events)) / each / 3);
  std::size_t played = std::max(2 * some, plan.rounds <= beginning ? 0 : std::min(beginning + some, affordable));
  const bool too_early = plan.rounds > beginning && played < beginning;
  // Three partial simulations take no fewer events than one of all rounds.
  if (played + 2 * some >= plan.rounds || (3 * played > plan.rounds && each * rounds <= most)) {
    play(plan.rounds);
    return result;
  }
  // Rounds are steady if one more piece takes as long as the piece before, within 0.2 %.
  constexpr double kSteady = 0.002;
  double piece = 0, before = 0;
  std::size_t bytes = 0;
  play(played);
  do {
    const double time = result.microseconds;
    bytes = result.bytes_out;
    before = piece;
    play(played += some);
    piece = result.microseconds - time;
  } while ((before == 0 || std::abs(piece - before) > kSteady * piece) && played + some < plan.rounds &&
           static_cast<double>(result.events) + each * static_cast<double>(played + some) < most);
  const std::size_t rest = plan.rounds - played;
  const double pieces = static_cast<double>(rest) / static_cast<double>(some);
  result.notes.push_back(fmt::format("{} of {} rounds were played, the rest added at {:.1f} us each", played,
                                     plan.rounds, piece / static_cast<double>(some)));
  if (too_early)
    result.notes.push_back(
        fmt::format("the first {} rounds are a beginning, later ones may take less or more", beginning));
  if (std::abs(piece - before) > kSteady * piece)
    result.notes.push_back(
        fmt::format("rounds are not steady: the last ones differ by {:.1f} %", 100 * std::abs(piece - before) / piece));
  result.microseconds += pieces * piece;
  result.bytes_out += (result.bytes_out - bytes) / some * rest;
  return result;
}

}  // namespace collectives
