// Prover of algorithms. A Step is one action of a rank: it takes values, may combine them, keep them and send them. The
// prover runs the Steps of all ranks of one call on sets in place of numbers.
//
// A value is the set of ranks whose contributions are in it. The prover reports the first of these faults:
//
//   - a contribution that is lost, counted twice, finished twice, or taken for a partial result
//   - a message whose length its two ends disagree on, or that no rank receives
//   - a partial result that is used after another one has replaced it
//   - a sum of coded values that is rounded more than twice, or whose copies on different ranks are not rounded alike
//   - a deadlock. A round performs the Steps on one segment of the vector. A channel between two ranks holds one
//   message more than the number of rounds in flight. No transport holds fewer, so a schedule that can deadlock on any
//   transport does so here
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "collectives/plan.hpp"
#include "collectives/topology.hpp"
#include "core/collective.hpp"
#include "steps/algorithm.hpp"
#include "steps/step_player.hpp"

namespace collectives {

/// A value: the ranks whose contributions it holds, and its state.
struct Value {
  std::uint64_t ranks = 0;
  bool partial = false;  ///< true: a partial result, combined at least once; false: a plain contribution
  bool finished = false;
  std::size_t element = kNoElement;  ///< in an all-to-all: number of the element in the input of its rank
  static constexpr std::size_t kNoElement = ~std::size_t{0};
  // Fields for coded messages, whose values are rounded.
  int roundings = 0;                    ///< maximum number of roundings of any contribution in it
  std::size_t rounded_from = kNowhere;  ///< first element of the range with which it was rounded last
  static constexpr std::size_t kNowhere = ~std::size_t{0};

  bool operator==(const Value&) const = default;
  /// Returns the value as the receiver of a coded message decodes it. A second rounding as part of the same range
  /// changes nothing.
  Value rounded(Range range) const {
    Value value = *this;
    if (rounded_from != range.first) ++value.roundings;
    value.rounded_from = range.first;
    return value;
  }
};
using Values = std::vector<Value>;

/// A Step with copies of its lists of peers, which outlive the emitting call.
struct ProvedStep {
  explicit ProvedStep(const Step& emitted)
      : step(emitted), lists{copy_of(emitted.from), copy_of(emitted.to), copy_of(emitted.owners)} {
    step.from = lists[0];
    step.to = lists[1];
    step.owners = lists[2];
  }
  ProvedStep(ProvedStep&&) noexcept = default;  // the spans of `step` stay valid, as those of a copy would not
  ProvedStep& operator=(ProvedStep&&) noexcept = default;

  Step step;

 private:
  static std::vector<Rank> copy_of(Peers peers) { return {peers.begin(), peers.end()}; }
  std::array<std::vector<Rank>, 3> lists;
};
/// Values of the messages of a channel that have not been taken.
struct ProvedMessages {
  std::deque<Values> values;
};

struct Traffic {
  std::size_t messages = 0, elements = 0, elements_to_other_hosts = 0;
};

/// Blocks of one rank in an all-to-all whose pairs of ranks have counts of their own.
struct OwnBlocks {
  std::vector<std::size_t> out_firsts, out_ends, in_firsts, in_ends;  ///< ranges of the blocks, by peer
  Blocks blocks;
  Parts outgoing() const {
    return Parts::displaced(out_firsts.data(), out_ends.data(), static_cast<int>(out_firsts.size()));
  }
  Parts incoming() const {
    return Parts::displaced(in_firsts.data(), in_ends.data(), static_cast<int>(in_firsts.size()));
  }
};

/// Runs the Steps of all ranks of one call.
class StepProver {
 public:
  /// Runs the call. `rounds_in_flight` is the number of rounds under way at once. With `in_place` the input is the
  /// output buffer.
  StepProver(const Algorithm& algorithm, const Topology& topology, RoundArgs args, std::size_t segment,
             std::size_t rounds_in_flight = 1, bool in_place = false, const std::vector<OwnBlocks>* own = nullptr)
      : topology_(topology),
        args_(args),
        ranks_(topology.ranks()),
        capacity_(static_cast<Index>(rounds_in_flight + 1)),
        in_place_(in_place),
        own_(own),
        algorithm_(algorithm),
        segment_(segment),
        depths_(static_cast<std::size_t>(algorithm.depths(args, topology))) {
    auto count = args.parts.whole().first + args.parts.whole().count;
    for (Rank r = 0; r < ranks_; ++r) {
      if (own != nullptr)
        count = std::max(*std::ranges::max_element((*own)[index(r)].out_ends),
                         *std::ranges::max_element((*own)[index(r)].in_ends));
      views_.push_back(std::make_unique<RankView>(topology, r));
      Values input(count);
      for (std::size_t e = 0; e < count; ++e)
        if (contributes(r, e)) {
          input[e].ranks = std::uint64_t{1} << r;
          if (args.collective == Collective::all_to_all) input[e].element = e;
        }
      output_.push_back(in_place ? input : Values(count));
      input_.push_back(std::move(input));
      work_.emplace_back(count);
      heard_of_.push_back(std::uint64_t{1} << r);
      worked_.emplace_back();
      traffic.emplace_back();
    }
    const std::size_t longest = own != nullptr ? (*own)[0].blocks.longest : args.parts.longest();
    const std::size_t rounds = args.collective == Collective::barrier ? 1
                               : segment == 0                         ? 1
                                                                      : (longest + segment - 1) / segment;
    run(rounds, (depths_ + rounds_in_flight - 1) / rounds_in_flight);
  }

  /// The first fault; empty if there is none.
  std::string failure;
  std::vector<Traffic> traffic;

  /// Checks the result of every rank that receives one.
  void check_results() {
    const std::uint64_t all = ranks_ == 64 ? ~std::uint64_t{0} : (std::uint64_t{1} << ranks_) - 1;
    if (args_.collective == Collective::barrier &&
        std::ranges::any_of(heard_of_, [&](auto ranks) { return ranks != all; }))
      fail("a rank leaves before all have come");
    if (own_ != nullptr) return check_blocks();
    for (Rank r = 0; r < ranks_ && failure.empty(); ++r)
      for (std::size_t e = 0; e < output_[index(r)].size(); ++e) {
        if (!receives(r, e)) continue;
        const Value& value = output_[index(r)][e];
        const bool reduces = collectives::reduces(args_.collective);
        const int scanned = args_.collective == Collective::scan ? r + 1 : r;
        const std::uint64_t expected = is_scan(args_.collective) ? (std::uint64_t{1} << scanned) - 1
                                       : reduces                 ? all
                                                                 : std::uint64_t{1} << source_of(e);
        if (value.ranks != expected) return fail("rank " + std::to_string(r) + " has the wrong contributions");
        if (args_.collective == Collective::all_to_all && value.element != dealt_to(r, e))
          return fail("rank " + std::to_string(r) + " has an element for another place");
        // A scan passes results on, so they are not finished, unless contributions travel unsummed.
        const bool passed_on = is_scan(args_.collective) && !args_.needs_unreduced_exchange();
        if (value.finished != reduces && !passed_on)
          return fail("rank " + std::to_string(r) + " has an unfinished result");
        if (value.roundings > 2) return fail("rank " + std::to_string(r) + " has a result that was rounded thrice");
        const bool same_on_all = args_.collective == Collective::all_reduce ||
                                 args_.collective == Collective::all_gather ||
                                 args_.collective == Collective::broadcast;
        if (same_on_all && value != output_[0][e]) return fail("replicas were not rounded alike");
      }
  }

 private:
  /// Checks every block of an all-to-all with counts of its own.
  void check_blocks() {
    for (Rank to = 0; to < ranks_; ++to)
      for (Rank from = 0; from < ranks_; ++from) {
        const Range sent = (*own_)[index(from)].outgoing()[to], received = (*own_)[index(to)].incoming()[from];
        for (std::size_t i = 0; i < received.count; ++i) {
          const Value& value = output_[index(to)][received.first + i];
          if (value.ranks != std::uint64_t{1} << from || value.element != sent.first + i)
            return fail("rank " + std::to_string(to) + " has an element for another place");
        }
      }
  }

  using Player = StepPlayer<ProvedStep, ProvedMessages>;
  using Index = Player::Index;
  friend Player;

  static std::size_t index(Rank rank) { return static_cast<std::size_t>(rank); }
  Rank owner_of(std::size_t e) const {
    for (int i = 0; i < args_.parts.size(); ++i) {
      const Range part = args_.parts.full(i);
      if (e >= part.first && e < part.first + part.count) return i;
    }
    return -1;  // an element between displaced parts
  }
  Rank source_of(std::size_t e) const { return has_source() ? args_.root : owner_of(e); }
  /// Returns whether the root has the only source.
  bool has_source() const {
    return args_.collective == Collective::broadcast || args_.collective == Collective::scatter;
  }
  /// Returns which element of its sender's input element `e` of the output of rank `r` is in an all-to-all.
  std::size_t dealt_to(Rank r, std::size_t e) const {
    return args_.parts.full(r).first + e - args_.parts.full(owner_of(e)).first;
  }
  bool contributes(Rank r, std::size_t e) const {
    if (has_source()) return r == args_.root;
    return !has_part_as_input(args_.collective) || owner_of(e) == r;
  }
  bool receives(Rank r, std::size_t e) const {
    if (owner_of(e) < 0) return false;
    if (has_part_as_output(args_.collective)) return owner_of(e) == r;
    if (args_.collective == Collective::exclusive_scan) return r > 0;
    return (args_.collective != Collective::reduce && args_.collective != Collective::gather) || r == args_.root;
  }
  void fail(const std::string& what) {
    if (failure.empty()) failure = what;
  }

  /// Returns whether `range` lies in the partial result of rank `r`. A rank has room for one partial result.
  bool has_work(Rank r, Range range) const {
    const Range& kept = worked_[index(r)];
    return range.first >= kept.first && range.first + range.count <= kept.first + kept.count;
  }
  void keep_as_work(Rank r, Range range) {
    if (!has_work(r, range)) worked_[index(r)] = range;
  }
  void expect_work(Rank r, Range range) {
    if (range.count > 0 && !has_work(r, range)) fail("a partial result that something else has replaced");
  }

  Values& place(Rank r, Place where) {
    if (where == Place::work) return work_[index(r)];
    return where == Place::output || in_place_ ? output_[index(r)] : input_[index(r)];
  }

  void run(std::size_t rounds, std::size_t issue_interval) {
    for (Rank r = 0; r < ranks_; ++r) player_.add_rank();
    for_each_subgroup(topology_, [this](Subgroup subgroup, const std::vector<Rank>& members) {
      player_.add_subgroup(subgroup, {members.begin(), members.end()});
    });
    for (Index r = 0; r < static_cast<Index>(ranks_); ++r) {
      player_.start(r, rounds, issue_interval, *this);
      wake(r);
    }
    while (!awake_.empty() && failure.empty()) {
      const Index r = awake_.front();
      awake_.pop_front();
      player_.progress(r, *this);
    }
    if (const auto waits = player_.first_unfinished()) fail("deadlock: rank " + std::to_string(*waits));
    for (const Player::Channel& channel : player_.channels())
      if (channel.untaken > 0) fail("a message that nobody receives");
  }

  // The visitor of the player.

  void emit(Index r, std::size_t round, Player::Steps& steps) {
    RoundArgs now = args_;
    if (segment_ > 0 && args_.collective != Collective::barrier) now.parts = args_.parts.round(segment_, round);
    if (own_ != nullptr) {
      const OwnBlocks& mine = (*own_)[r];
      now.parts = mine.outgoing().round(segment_, round);
      now.incoming = mine.incoming().round(segment_, round);
      now.blocks = &mine.blocks;
    }
    Recorder recorder(*this, static_cast<Rank>(r), steps);
    algorithm_.emit(*views_[r], now, recorder);
  }
  void wake(Index r) { awake_.push_back(r); }
  bool perform(Index r, const Player::PlayedStep& played) {
    exchange(static_cast<Rank>(r), played.step);
    return failure.empty();
  }
  void perform_host(const std::vector<Index>& members, const Player::PlayedStep&) {
    for (const Index r : members)
      if (player_.round(r) != player_.round(members[0])) fail("ranks of a host at stages of different rounds");
    host_collective({members.begin(), members.end()});
    for (const Index r : members) {
      player_.finish(r, *this);
      wake(r);
    }
  }
  const Step& step_of(Rank r) const { return player_.current(static_cast<Index>(r))->step; }

  /// Records the Steps of one rank in one round, and checks their depths. Empty ranges are not sent, except in
  /// barriers.
  struct Recorder final : StepSink {
    Recorder(StepProver& the_prover, Rank the_rank, Player::Steps& to)
        : prover(the_prover), self(the_rank), steps(to) {}
    void operator()(const Step& step) override {
      if (step.depth < before || static_cast<std::size_t>(step.depth) >= prover.depths_)
        prover.fail("depths that do not rise, or are not below " + std::to_string(prover.depths_));
      before = step.depth;
      if (step.kind == Step::Kind::exchange && step.range.count == 0 && prover.args_.collective != Collective::barrier)
        return;
      steps.add(
          step, ProvedStep(step), self, [this](Rank peer) { return prover.channel(peer, self); },
          [this](Rank peer) { return prover.channel(self, peer); });
    }
    StepProver& prover;
    Rank self;
    Player::Steps& steps;
    int before = 0;
  };
  /// Returns the number of a channel.
  Index channel(Rank from, Rank to) {
    return player_.channel_between(static_cast<Index>(from), static_cast<Index>(to), [&] {
      Player::Channel channel;
      channel.source = static_cast<Index>(from);
      channel.destination = static_cast<Index>(to);
      channel.frames = capacity_;
      return channel;
    });
  }
  /// Takes the values of the oldest message from `peer`.
  Values take(Rank peer, Rank r) {
    std::deque<Values>& values = player_.channel(channel(peer, r)).values;
    Values taken = std::move(values.front());
    values.pop_front();
    return taken;
  }
  void send(Rank r, Rank peer, const Values& values) {
    const Index to = channel(r, peer);
    player_.channel(to).values.push_back(values);
    player_.send(to);
    if (player_.arrive(to)) wake(static_cast<Index>(peer));
  }

  Value combine(const std::vector<Value>& values, bool finish) {
    Value sum{.partial = true};
    for (const Value& value : values) {
      if (value.ranks & sum.ranks) fail("a contribution twice");
      if (value.finished) fail("a finished value combined again");
      sum.ranks |= value.ranks;
      sum.roundings = std::max(sum.roundings, value.roundings);
    }
    sum.finished = finish;
    return sum;
  }

  /// Returns whether contributions of several ranks are in a value; of several hosts, if hosts may add.
  bool several_hosts(std::uint64_t ranks) const {
    std::vector<int> found;
    for (Rank r = 0; r < ranks_; ++r)
      if (ranks >> r & 1)
        found.push_back(args_.partial_sums == PartialSums::intra_host ? views_[0]->host_of(r) : static_cast<int>(r));
    return std::ranges::any_of(found, [&](int host) { return host != found.front(); });
  }

  void exchange(Rank r, const Step& step) {
    if (args_.collective == Collective::barrier) return notify(r, step);
    std::map<Rank, Values> arrived;
    for (const Rank peer : step.from) {
      if (peer == r) continue;
      arrived[peer] = take(peer, r);
      if (arrived[peer].size() != received_elements(step)) fail("both ends of a message disagree on its length");
    }
    if (!failure.empty()) return;
    if (step.joins || step.rows > 0) return regroup(r, step, arrived);
    if (step.source == Place::work && (step.from.empty() || std::ranges::find(step.from, r) != step.from.end()))
      expect_work(r, step.range);
    if (step.destination == Place::work) keep_as_work(r, step.work.count > 0 ? step.work : step.range);
    Values made(step.range.count);
    for (std::size_t i = 0; i < made.size(); ++i) {
      const std::size_t e = step.range.first + i;
      if (!step.reduce) {
        made[i] = step.from.empty() ? place(r, step.source)[e] : arrived[step.from[0]][i];
        continue;
      }
      std::vector<Value> values;
      for (const Rank peer : step.from) {
        const bool rounds_own = args_.coded && step.from.size() > 1;
        const Value source = rounds_own ? place(r, step.source)[e].rounded(step.range) : place(r, step.source)[e];
        const Value value = peer == r ? source : arrived[peer][i];
        if (peer != r && value.partial == step.unreduced)
          fail("a contribution taken for a partial result, or the reverse");
        values.push_back(value);
      }
      made[i] = combine(values, step.finish);
      if (step.before == Place::nowhere) continue;
      values.pop_back();
      place(r, step.before)[e] = combine(values, step.finish);
    }
    // The executor codes a value when it sends or copies it. A received value has been rounded by its sender.
    const bool goes_out = std::ranges::any_of(step.to, [&](Rank peer) { return peer != r; });
    if (args_.coded && step.from.empty() && ranks_ > 1)
      for (Value& value : made) value = value.rounded(step.range);
    if (args_.coded && step.reduce && goes_out)
      for (Value& value : made) value = value.rounded(step.range);
    if (args_.coded && step.from.empty() && step.source == Place::output)
      std::copy(made.begin(), made.end(), output_[index(r)].begin() + static_cast<std::ptrdiff_t>(step.range.first));
    if (args_.coded && goes_out)
      for (const Value& value : made)
        if (!value.finished && several_hosts(value.ranks)) fail("a sum of several hosts on its way to another sum");
    if (step.destination != Place::nowhere)
      std::copy(made.begin(), made.end(),
                place(r, step.destination).begin() + static_cast<std::ptrdiff_t>(step.range.first));
    for (const Rank peer : step.to) {
      if (peer == r) continue;
      send(r, peer, made);
      ++traffic[index(r)].messages;
      traffic[index(r)].elements += made.size();
      if (views_[index(r)]->host_of(peer) != views_[index(r)]->grid.host)
        traffic[index(r)].elements_to_other_hosts += made.size();
    }
  }

  /// Performs an exchange that joins values to one message, or that divides a message.
  void regroup(Rank r, const Step& step, std::map<Rank, Values>& arrived) {
    const auto count = [&](Rank peer, std::size_t elements) {
      ++traffic[index(r)].messages;
      traffic[index(r)].elements += elements;
      if (views_[index(r)]->host_of(peer) != views_[index(r)]->grid.host)
        traffic[index(r)].elements_to_other_hosts += elements;
    };
    if (step.joins) {
      Values joined;
      for (const Rank peer : step.from)
        for (std::size_t i = 0; i < step.range.count; ++i)
          joined.push_back(peer == r ? place(r, step.source)[step.range.first + i] : arrived[peer][i]);
      send(r, step.to[0], joined);
      return count(step.to[0], joined.size());
    }
    const std::size_t rows = static_cast<std::size_t>(step.rows), each = step.range.count / rows;
    for (std::size_t of = 0; of < step.to.size(); ++of) {
      Values share;
      for (std::size_t i = 0; i < step.range.count; ++i)
        share.push_back(arrived[step.from[0]][(i / each * step.to.size() + of) * each + i % each]);
      const Rank peer = step.to[of];
      if (peer == r) {
        std::copy(share.begin(), share.end(),
                  place(r, step.destination).begin() + static_cast<std::ptrdiff_t>(step.range.first));
      } else {
        send(r, peer, share);
        count(peer, share.size());
      }
    }
  }

  /// Performs an exchange of a barrier: a message carries the set of ranks that have arrived.
  void notify(Rank r, const Step& step) {
    for (const Rank peer : step.from)
      if (peer != r) heard_of_[index(r)] |= take(peer, r)[0].ranks;
    for (const Rank peer : step.to)
      if (peer != r) send(r, peer, {Value{.ranks = heard_of_[index(r)]}});
  }

  void host_collective(const std::vector<Rank>& host) {
    const Step& first = step_of(host[0]);
    for (const Rank r : host)
      if (step_of(r).kind != first.kind) return fail("ranks of a host at different stages");
    if (first.kind == Step::Kind::host_barrier) {
      std::uint64_t together = 0;
      for (const Rank r : host) together |= heard_of_[index(r)];
      for (const Rank r : host) heard_of_[index(r)] = together;
      return;
    }
    if (first.kind == Step::Kind::host_all_to_all) return deal(host);
    if (scans(first.kind)) return host_scan(host, first);
    if (first.kind == Step::Kind::host_gather || first.kind == Step::Kind::host_scatter)
      return host_rooted(host, first);
    const bool combines = first.kind != Step::Kind::host_all_gather;
    const bool shows_all = first.kind != Step::Kind::host_reduce_scatter;
    for (std::size_t local = 0; local < host.size(); ++local) {
      Range slice{};
      if (first.root >= 0) {
        if (first.root == static_cast<int>(local)) slice = first.parts[0];
      } else if (local < first.owners.size()) {
        slice = first.parts[first.owners[local]];
      }
      const Rank owner = host[local];
      if (step_of(owner).destination == Place::work) keep_as_work(owner, slice);
      for (std::size_t e = slice.first; e < slice.first + slice.count; ++e) {
        std::vector<Value> values;
        if (combines)
          for (const Rank r : host) values.push_back(place(r, step_of(r).source)[e]);
        const Value value = combines ? combine(values, first.finish) : place(owner, step_of(owner).source)[e];
        for (const Rank r : host)
          if (shows_all || r == owner) place(r, step_of(r).destination)[e] = value;
      }
    }
  }

  /// Performs an all-to-all of the ranks of a host.
  void deal(const std::vector<Rank>& host) {
    std::vector<Values> inputs;
    for (const Rank r : host) inputs.push_back(place(r, step_of(r).source));
    for (std::size_t from = 0; from < host.size(); ++from)
      for (std::size_t to = 0; to < host.size(); ++to) {
        const Step &sends = step_of(host[from]), &receives = step_of(host[to]);
        const Parts incoming =
            receives.blocks == nullptr ? receives.parts : receives.blocks->incoming.in_round_of(receives.parts);
        const Range sent = sends.parts[sends.owners[to]], received = incoming[receives.owners[from]];
        if (sent.count != received.count) return fail("both ends of a block disagree on its length");
        for (std::size_t i = 0; i < sent.count; ++i)
          place(host[to], receives.destination)[received.first + i] = inputs[from][sent.first + i];
      }
  }

  /// Performs a gather or scatter of a host: the rank with index `root` exchanges the parts of all owners.
  void host_rooted(const std::vector<Rank>& host, const Step& first) {
    const bool gathers = first.kind == Step::Kind::host_gather;
    const Rank root = host[static_cast<std::size_t>(first.root)];
    for (std::size_t local = 0; local < std::min(host.size(), first.owners.size()); ++local) {
      const Rank owner = host[local], from = gathers ? owner : root, to = gathers ? root : owner;
      const Range slice = first.parts[first.owners[local]];
      if (step_of(from).source == Place::work) expect_work(from, slice);
      if (step_of(to).destination == Place::work)
        keep_as_work(to, step_of(to).work.count > 0 ? step_of(to).work : slice);
      for (std::size_t e = slice.first; e < slice.first + slice.count; ++e)
        place(to, step_of(to).destination)[e] = place(from, step_of(from).source)[e];
    }
  }

  /// Performs a scan of a host. Begins with the last rank, whose result in place replaces only its own value.
  void host_scan(const std::vector<Rank>& host, const Step& first) {
    const std::size_t own = first.kind == Step::Kind::host_scan ? 1 : 0;
    for (std::size_t local = host.size(); local-- > 0;) {
      if (local + own == 0) continue;
      for (const Rank owner : first.owners) {
        const Range slice = first.parts[owner];
        for (std::size_t e = slice.first; e < slice.first + slice.count; ++e) {
          std::vector<Value> values;
          for (std::size_t before = 0; before < local + own; ++before)
            values.push_back(place(host[before], step_of(host[before]).source)[e]);
          place(host[local], step_of(host[local]).destination)[e] = combine(values, first.finish);
        }
      }
    }
  }

  Topology topology_;
  RoundArgs args_;
  int ranks_;
  Index capacity_;  // messages that a channel holds
  bool in_place_;
  const std::vector<OwnBlocks>* own_;  // null: all blocks are equally long
  Algorithm algorithm_;
  std::size_t segment_, depths_;
  Player player_;
  std::deque<Index> awake_;  // ranks that may be able to advance
  std::vector<std::unique_ptr<RankView>> views_;
  std::vector<Values> input_, output_, work_;
  std::vector<Range> worked_;            // the range of each partial result in work_
  std::vector<std::uint64_t> heard_of_;  // barriers: the ranks that each rank knows to have arrived
};

}  // namespace collectives
