// StepPlayer: simulates a call in one process. A Step is one action of a rank. A host Step is a collective that the
// ranks of one host perform without messages. The player processes the Steps of all ranks. A Step that receives a
// message comes after the Step that sends the message.
//
// A channel carries the messages from one rank to another, in the order in which they were sent. A frame is memory of a
// channel for one message. A frame is in use from the send of its message until the receiver has taken the message. The
// number of frames of a channel may be limited.
//
// The player only decides which Step can run next. It passes the Step to a visitor of the caller. There are three
// visitors, which compute different results:
//
//   the critical path (planning/critical_path.cpp)   when each Step ends, if channels have any number of frames
//   the simulator (tools/simulation/play.cpp)        when each Step begins and ends, and when its messages arrive
//   the prover (tests/support/step_prover.hpp)       for each value, the set of ranks whose inputs it contains; this
//                                                    proves that the result of the call is right
//
// A host Step is ready when all its ranks have reached it. Any other Step is ready if each of its incoming channels has
// a message, and each of its outgoing channels has a free frame. If no Step is ready and first_unfinished() returns a
// rank, the ranks are in a deadlock.
//
// The caller decides which rank advances next. The critical path and the simulator take ranks in the order of simulated
// time, because links carry messages in that order. The prover takes ranks in any order. At the start, the caller calls
// progress() for each rank. It calls progress() again when the player reports that the rank no longer has to wait.
//
// `StepData` and `ChannelData`: types of the data that the caller keeps for each Step and each channel.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

#include "collectives/topology.hpp"
#include "steps/schedule.hpp"
#include "steps/step.hpp"

namespace collectives {

/// Calls visit(subgroup, ranks) for all groups of ranks that perform host Steps together.
template <class Visit>
void for_each_subgroup(const Topology& topology, Visit&& visit) {
  for (const auto& host : topology.hosts) visit(Subgroup::host, host);
  const auto levels = topology.levels();
  for (const auto& domain : levels) visit(Subgroup::domain, domain);
  for (std::size_t i = 0; !levels.empty() && i < levels[0].size(); ++i) {
    std::vector<Rank> rail;
    for (const auto& domain : levels) rail.push_back(domain[i]);
    visit(Subgroup::rail, rail);
  }
}

template <class StepData, class ChannelData>
class StepPlayer {
 public:
  /// Number of a rank, in the order of add_rank(), or number of a channel.
  using Index = std::uint32_t;
  static constexpr Index kUnlimited = std::numeric_limits<Index>::max();

  /// Step of one rank, with channels in place of peers.
  struct PlayedStep : StepData {
    int depth = 0;
    Index first = 0, from = 0, to = 0;  ///< channels [first, first + from) come in, the next `to` go out
    Step::Kind kind = Step::Kind::exchange;
    Subgroup subgroup = Subgroup::host;
  };
  /// Steps of one rank in one round. A round handles one segment of each part of the vector.
  class Steps {
   public:
    /// Adds `step`. Calls incoming(peer) and outgoing(peer) to get the channels of the peers. The rank `self` has no
    /// channel to itself.
    template <class Incoming, class Outgoing>
    void add(const Step& step, StepData data, Rank self, Incoming&& incoming, Outgoing&& outgoing) {
      PlayedStep played{std::move(data)};
      played.depth = step.depth;
      played.first = static_cast<Index>(channels_.size());
      played.kind = step.kind;
      played.subgroup = step.subgroup;
      if (step.kind == Step::Kind::exchange) {
        for (const Rank peer : step.from)
          if (peer != self) channels_.push_back(incoming(peer));
        played.from = static_cast<Index>(channels_.size()) - played.first;
        for (const Rank peer : step.to)
          if (peer != self) channels_.push_back(outgoing(peer));
        played.to = static_cast<Index>(channels_.size()) - played.first - played.from;
      }
      steps_.push_back(std::move(played));
    }
    void clear() {
      steps_.clear();
      channels_.clear();
    }
    std::size_t size() const { return steps_.size(); }
    const PlayedStep& operator[](std::size_t i) const { return steps_[i]; }
    /// Returns the incoming or the outgoing channels of one of these Steps.
    std::span<const Index> incoming(const PlayedStep& step) const { return {channels_.data() + step.first, step.from}; }
    std::span<const Index> outgoing(const PlayedStep& step) const {
      return {channels_.data() + step.first + step.from, step.to};
    }

   private:
    std::vector<PlayedStep> steps_;
    std::vector<Index> channels_;
  };
  /// Channel: the messages from one rank to another.
  struct Channel : ChannelData {
    Index source = 0, destination = 0;
    Index frames = kUnlimited;
    /// Numbers of messages that the receiver has not taken. `untaken` counts all sent messages, and `arrived` those
    /// that have also arrived.
    Index arrived = 0, untaken = 0;
    bool source_waits = false, destination_waits = false;
  };

  Index add_rank() {
    players_.emplace_back();
    return static_cast<Index>(players_.size() - 1);
  }
  /// Returns the channel from `sender` to `receiver`. If there is none yet, adds the channel that make() returns.
  template <class Make>
  Index channel_between(Index sender, Index receiver, Make&& make) {
    const auto key = static_cast<std::uint64_t>(sender) << 32 | receiver;
    const auto [found, is_new] = channel_of_.try_emplace(key, static_cast<Index>(channels_.size()));
    if (is_new) channels_.push_back(make());
    return found->second;
  }
  /// Adds a group of ranks that perform the host Steps of `subgroup` together. Requires that all ranks have been added.
  void add_subgroup(Subgroup subgroup, std::vector<Index> ranks) {
    auto& subgroup_of = subgroup_of_[static_cast<std::size_t>(subgroup)];
    subgroup_of.resize(players_.size());
    for (const Index rank : ranks) subgroup_of[rank] = static_cast<Index>(subgroups_.size());
    subgroups_.push_back({std::move(ranks), 0});
  }

  /// Starts the Steps of a rank, which does not advance yet. visitor.emit(rank, round, steps) adds the Steps of a
  /// round.
  template <class Visitor>
  void start(Index rank, std::size_t rounds, std::size_t issue_interval, Visitor& visitor) {
    players_[rank].schedule.start(rounds, issue_interval, emitter(rank, visitor));
  }
  /// Returns ranks to their first Step and empties all channels. Requires that there is one round.
  void rewind() {
    for (Player& player : players_) {
      player.schedule.rewind();
      player.from_ready = player.to_ready = 0;
      player.reached = false;
    }
    for (Channel& channel : channels_) {
      channel.arrived = channel.untaken = 0;
      channel.source_waits = channel.destination_waits = false;
    }
    for (Group& group : subgroups_) group.arrivals = 0;
  }

  /// Performs the Steps of a rank until it has to wait. Calls of the visitor:
  ///
  ///   visitor.perform(rank, step)         performs an exchange that is ready. Returns false if the caller itself calls
  ///                                       finish(), at once or later. The rank then stops here.
  ///   visitor.perform_host(ranks, step)   performs a host Step that is ready, for all ranks of the subgroup. The
  ///                                       caller calls finish() for each of them, at once or later.
  ///   visitor.wake(rank)                  reports that a rank need not wait for a frame any more
  template <class Visitor>
  void progress(Index rank, Visitor& visitor) {
    while (const PlayedStep* const step = current(rank)) {
      if (step->kind != Step::Kind::exchange) return enter_host_step(rank, *step, visitor);
      if (!is_ready(rank, *step) || !visitor.perform(rank, *step)) return;
      finish(rank, visitor);
    }
  }
  /// Ends the current Step of a rank: frees the frames of its incoming messages.
  template <class Visitor>
  void finish(Index rank, Visitor& visitor) {
    Player& player = players_[rank];
    for (const Index id : incoming(rank)) {
      Channel& channel = channels_[id];
      --channel.arrived;
      --channel.untaken;
      if (std::exchange(channel.source_waits, false)) visitor.wake(channel.source);
    }
    player.from_ready = player.to_ready = 0;
    player.reached = false;
    player.schedule.progress(emitter(rank, visitor));
  }
  /// Sends a message, which has not arrived yet.
  void send(Index channel) { ++channels_[channel].untaken; }
  /// Notes that the oldest message that has not arrived has now arrived. Returns whether the destination waits for it.
  bool arrive(Index channel) {
    ++channels_[channel].arrived;
    return std::exchange(channels_[channel].destination_waits, false);
  }

  /// Returns the current Step of a rank, or null after the last one.
  const PlayedStep* current(Index rank) const { return players_[rank].schedule.current(); }
  /// Returns the round of the current Step.
  std::size_t round(Index rank) const { return players_[rank].schedule.round(); }
  /// Return the channels of the current Step.
  std::span<const Index> incoming(Index rank) const { return players_[rank].schedule.list().incoming(*current(rank)); }
  std::span<const Index> outgoing(Index rank) const { return players_[rank].schedule.list().outgoing(*current(rank)); }
  Channel& channel(Index id) { return channels_[id]; }
  const std::vector<Channel>& channels() const { return channels_; }
  /// Returns the first rank that has Steps left.
  std::optional<Index> first_unfinished() const {
    for (Index rank = 0; rank < players_.size(); ++rank)
      if (current(rank) != nullptr) return rank;
    return {};
  }

 private:
  struct Player {
    Schedule<Steps> schedule;
    Index from_ready = 0, to_ready = 0;  // numbers of incoming and outgoing channels of the current Step that are ready
    bool reached = false;                // whether the rank has been counted at its host Step
  };
  struct Group {
    std::vector<Index> ranks;
    std::size_t arrivals = 0;
  };

  template <class Visitor>
  static auto emitter(Index rank, Visitor& visitor) {
    return [rank, &visitor](std::size_t round, Steps& steps) { visitor.emit(rank, round, steps); };
  }
  bool is_ready(Index rank, const PlayedStep& step) {
    Player& player = players_[rank];
    const Steps& steps = player.schedule.list();
    for (const auto from = steps.incoming(step); player.from_ready < from.size(); ++player.from_ready)
      if (Channel& channel = channels_[from[player.from_ready]]; channel.arrived == 0) {
        channel.destination_waits = true;
        return false;
      }
    for (const auto to = steps.outgoing(step); player.to_ready < to.size(); ++player.to_ready)
      if (Channel& channel = channels_[to[player.to_ready]]; channel.untaken >= channel.frames) {
        channel.source_waits = true;
        return false;
      }
    return true;
  }
  /// Counts a rank at its host Step. The last rank begins the host Step for all.
  template <class Visitor>
  void enter_host_step(Index rank, const PlayedStep& step, Visitor& visitor) {
    if (std::exchange(players_[rank].reached, true)) return;
    Group& group = subgroups_[subgroup_of_[static_cast<std::size_t>(step.subgroup)][rank]];
    if (++group.arrivals < group.ranks.size()) return;
    group.arrivals = 0;
    visitor.perform_host(group.ranks, step);
  }

  std::vector<Player> players_;
  std::vector<Channel> channels_;
  std::unordered_map<std::uint64_t, Index> channel_of_;
  std::array<std::vector<Index>, 3> subgroup_of_;  // by Subgroup and rank
  std::vector<Group> subgroups_;
};

}  // namespace collectives
