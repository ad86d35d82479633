// The proof of every algorithm: all ranks' Steps are run on sets instead of numbers. A value is the set of ranks whose
// contributions are in it, so a contribution that is lost, counted twice, finished twice or taken for something else is
// seen at once. Channels hold as many messages as the schedule counts on, two where rounds do not overlap, which is the
// least that any transport offers: so a schedule that can deadlock does.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <deque>
#include <map>
#include <memory>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "collectives/plan.hpp"
#include "collectives/topology.hpp"
#include "ring/ring.hpp"
#include "steps/algorithm.hpp"
#include "steps/schedule.hpp"

namespace collectives {
namespace {

/// Who is in a value, and what has been done to it.
struct Value {
  std::uint64_t ranks = 0;
  bool partial = false;  ///< combined at least once: no longer a plain contribution
  bool finished = false;
  // Of coded messages.
  int roundings = 0;                    ///< on the way from any contribution to here
  std::size_t rounded_from = kNowhere;  ///< where the range began as part of which it was rounded last
  static constexpr std::size_t kNowhere = ~std::size_t{0};

  bool operator==(const Value&) const = default;
  /// As the receiver of a coded message sees it. What was rounded as part of the same range stays as it is.
  Value rounded(Range range) const {
    Value value = *this;
    if (rounded_from != range.first) ++value.roundings;
    value.rounded_from = range.first;
    return value;
  }
};
using Values = std::vector<Value>;

/// A rank's Steps of one round, with their own copies of the peers.
class Recorder final : public StepSink {
 public:
  void operator()(const Step& step) override {
    Step mine = step;
    mine.from = keep(step.from);
    mine.to = keep(step.to);
    mine.which = keep(step.which);
    steps.push_back(mine);
  }
  void clear() {
    steps.clear();
    lists_.clear();
  }
  std::size_t size() const { return steps.size(); }
  const Step& operator[](std::size_t i) const { return steps[i]; }
  std::vector<Step> steps;

 private:
  Peers keep(Peers peers) {
    lists_.push_back(std::make_unique<std::vector<Rank>>(peers.begin(), peers.end()));
    return *lists_.back();
  }
  std::vector<std::unique_ptr<std::vector<Rank>>> lists_;
};

struct Traffic {
  std::size_t messages = 0, elements = 0, elements_to_other_hosts = 0;
};

/// All ranks of one call.
class Simulation {
 public:
  /// `lanes`: rounds under way at once. `in_place`: contributions lie where results will.
  Simulation(const Algorithm& algorithm, const Topology& topology, Task task, std::size_t segment,
             std::size_t lanes = 1, bool in_place = false)
      : topology_(topology), task_(task), ranks_(topology.ranks()), room_(lanes + 1), in_place_(in_place) {
    const auto count = task.parts.whole().count;
    for (Rank r = 0; r < ranks_; ++r) {
      seats_.push_back(std::make_unique<Seat>(topology, r));
      Values input(count);
      for (std::size_t e = 0; e < count; ++e)
        if (contributes(r, e)) input[e].ranks = std::uint64_t{1} << r;
      output_.push_back(in_place ? input : Values(count));
      input_.push_back(std::move(input));
      work_.emplace_back(count);
      heard_of_.push_back(std::uint64_t{1} << r);
      worked_.emplace_back();
      traffic.emplace_back();
    }
    const std::size_t longest = task.parts.longest();
    const std::size_t rounds = task.collective == Collective::barrier ? 1
                               : segment == 0                         ? 1
                                                                      : (longest + segment - 1) / segment;
    const auto depths = static_cast<std::size_t>(algorithm.depths(task, topology));
    const std::size_t stride = (depths + lanes - 1) / lanes;
    run(rounds, stride, [&](Rank r, std::size_t round, Recorder& steps) {
      Task now = task;
      if (segment > 0 && task.collective != Collective::barrier) now.parts = task.parts.round(segment, round);
      algorithm.emit(*seats_[index(r)], now, steps);
      for (std::size_t i = 0; i < steps.size(); ++i)
        if (const int before = i == 0 ? 0 : steps[i - 1].depth;
            steps[i].depth < before || static_cast<std::size_t>(steps[i].depth) >= depths)
          fail("depths that do not rise, or are not below " + std::to_string(depths));
    });
  }

  /// What went wrong first; empty if nothing did.
  std::string failure;
  std::vector<Traffic> traffic;

  /// Checks that every rank that should have a result has the right one.
  void check_results() {
    const std::uint64_t all = ranks_ == 64 ? ~std::uint64_t{0} : (std::uint64_t{1} << ranks_) - 1;
    if (task_.collective == Collective::barrier &&
        std::ranges::any_of(heard_of_, [&](auto ranks) { return ranks != all; }))
      fail("a rank leaves before all have come");
    for (Rank r = 0; r < ranks_ && failure.empty(); ++r)
      for (std::size_t e = 0; e < output_[index(r)].size(); ++e) {
        if (!receives(r, e)) continue;
        const Value& value = output_[index(r)][e];
        const bool reduces = task_.collective == Collective::all_reduce ||
                             task_.collective == Collective::reduce_scatter || task_.collective == Collective::reduce;
        const std::uint64_t expected = reduces ? all : std::uint64_t{1} << source_of(e);
        if (value.ranks != expected) return fail("rank " + std::to_string(r) + " has the wrong contributions");
        if (value.finished != reduces) return fail("rank " + std::to_string(r) + " has an unfinished result");
        if (value.roundings > 2) return fail("rank " + std::to_string(r) + " has a result that was rounded thrice");
        const bool same_on_all =
            task_.collective != Collective::reduce_scatter && task_.collective != Collective::reduce;
        if (same_on_all && value != output_[0][e]) return fail("replicas were not rounded alike");
      }
  }

 private:
  static std::size_t index(Rank rank) { return static_cast<std::size_t>(rank); }
  Rank owner_of(std::size_t e) const {
    for (int i = 0; i < task_.parts.size(); ++i) {
      const Range part = task_.parts.full(i);
      if (e >= part.first && e < part.first + part.count) return i;
    }
    return 0;
  }
  Rank source_of(std::size_t e) const { return task_.collective == Collective::broadcast ? task_.root : owner_of(e); }
  bool contributes(Rank r, std::size_t e) const {
    if (task_.collective == Collective::broadcast) return r == task_.root;
    return task_.collective != Collective::all_gather || owner_of(e) == r;
  }
  bool receives(Rank r, std::size_t e) const {
    if (task_.collective == Collective::reduce_scatter) return owner_of(e) == r;
    return task_.collective != Collective::reduce || r == task_.root;
  }
  void fail(const std::string& what) {
    if (failure.empty()) failure = what;
  }

  /// Those who perform host Steps together.
  std::vector<std::pair<Among, std::vector<Rank>>> rooms() const {
    std::vector<std::pair<Among, std::vector<Rank>>> all;
    for (const auto& host : topology_.hosts) all.emplace_back(Among::host, host);
    const auto levels = topology_.levels();
    for (const auto& domain : levels) all.emplace_back(Among::domain, domain);
    for (std::size_t i = 0; !levels.empty() && i < levels[0].size(); ++i) {
      all.emplace_back(Among::rail, std::vector<Rank>{});
      for (const auto& domain : levels) all.back().second.push_back(domain[i]);
    }
    return all;
  }

  /// There is room for one partial result, and for pieces of it.
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

  template <class Emit>
  void run(std::size_t rounds, std::size_t stride, Emit&& emit) {
    const auto emit_of = [&](Rank r) { return [&emit, r](std::size_t round, Recorder& to) { emit(r, round, to); }; };
    std::vector<Schedule<Recorder>> schedules(index(ranks_));
    for (Rank r = 0; r < ranks_; ++r) schedules[index(r)].start(rounds, stride, emit_of(r));
    const auto current = [&](Rank r) { return schedules[index(r)].current(); };
    for (bool moved = true; moved && failure.empty();) {
      moved = false;
      for (Rank r = 0; r < ranks_; ++r)
        while (current(r) != nullptr && current(r)->kind == Step::Kind::exchange && failure.empty() &&
               exchange(r, *current(r))) {
          schedules[index(r)].advance(emit_of(r));
          moved = true;
        }
      for (const auto& [among, room] : rooms()) {
        const bool together = std::all_of(room.begin(), room.end(), [&, among = among](Rank r) {
          return current(r) != nullptr && current(r)->kind != Step::Kind::exchange && current(r)->among == among;
        });
        if (!together) continue;
        const std::size_t round = schedules[index(room[0])].round();
        for (const Rank r : room)
          if (schedules[index(r)].round() != round) fail("ranks of a host at stages of different rounds");
        host_stage(room, current);
        for (const Rank r : room) schedules[index(r)].advance(emit_of(r));
        moved = true;
      }
    }
    for (Rank r = 0; r < ranks_; ++r)
      if (current(r) != nullptr) fail("deadlock: rank " + std::to_string(r));
    for (const auto& [pair, queue] : channels_)
      if (!queue.empty()) fail("a message that nobody receives");
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

  /// Of ranks, where only hosts may add: of hosts.
  bool several_hosts(std::uint64_t ranks) const {
    std::vector<int> found;
    for (Rank r = 0; r < ranks_; ++r)
      if (ranks >> r & 1) found.push_back(task_.sums == Sums::in_hosts ? seats_[0]->host_of(r) : static_cast<int>(r));
    return std::ranges::any_of(found, [&](int host) { return host != found.front(); });
  }

  bool exchange(Rank r, const Step& step) {
    if (step.range.count == 0 && task_.collective != Collective::barrier) return true;
    for (const Rank peer : step.from)
      if (peer != r && channels_[{peer, r}].empty()) return false;
    for (const Rank peer : step.to)
      if (peer != r && channels_[{r, peer}].size() >= room_) return false;
    if (task_.collective == Collective::barrier) return notify(r, step);
    std::map<Rank, Values> arrived;
    for (const Rank peer : step.from) {
      if (peer == r) continue;
      arrived[peer] = channels_[{peer, r}].front();
      channels_[{peer, r}].pop_front();
      if (arrived[peer].size() != step.range.count) fail("both ends of a message disagree on its length");
    }
    if (!failure.empty()) return true;
    if (step.own == Place::work && (step.from.empty() || std::ranges::find(step.from, r) != step.from.end()))
      expect_work(r, step.range);
    if (step.keep == Place::work) keep_as_work(r, step.range);
    Values made(step.range.count);
    for (std::size_t i = 0; i < made.size(); ++i) {
      const std::size_t e = step.range.first + i;
      if (!step.reduce) {
        made[i] = step.from.empty() ? place(r, step.own)[e] : arrived[step.from[0]][i];
        continue;
      }
      std::vector<Value> values;
      for (const Rank peer : step.from) {
        const bool rounds_own = task_.coded && step.from.size() > 1;
        const Value own = rounds_own ? place(r, step.own)[e].rounded(step.range) : place(r, step.own)[e];
        const Value value = peer == r ? own : arrived[peer][i];
        if (peer != r && value.partial == step.raw) fail("a contribution taken for a partial result, or the reverse");
        values.push_back(value);
      }
      made[i] = combine(values, step.finish);
    }
    // As the executor codes: what is handed on, or copied beside it; what has come has been rounded.
    const bool goes_out = std::ranges::any_of(step.to, [&](Rank peer) { return peer != r; });
    if (task_.coded && step.from.empty() && ranks_ > 1)
      for (Value& value : made) value = value.rounded(step.range);
    if (task_.coded && step.reduce && goes_out)
      for (Value& value : made) value = value.rounded(step.range);
    if (task_.coded && step.from.empty() && step.own == Place::output)
      std::copy(made.begin(), made.end(), output_[index(r)].begin() + static_cast<std::ptrdiff_t>(step.range.first));
    if (task_.coded && goes_out)
      for (const Value& value : made)
        if (!value.finished && several_hosts(value.ranks)) fail("a sum of several hosts on its way to another sum");
    if (step.keep != Place::nowhere)
      std::copy(made.begin(), made.end(), place(r, step.keep).begin() + static_cast<std::ptrdiff_t>(step.range.first));
    for (const Rank peer : step.to) {
      if (peer == r) continue;
      channels_[{r, peer}].push_back(made);
      ++traffic[index(r)].messages;
      traffic[index(r)].elements += made.size();
      if (seats_[index(r)]->host_of(peer) != seats_[index(r)]->grid.host)
        traffic[index(r)].elements_to_other_hosts += made.size();
    }
    return true;
  }

  /// A message of a barrier says who has come.
  bool notify(Rank r, const Step& step) {
    for (const Rank peer : step.from) {
      if (peer == r) continue;
      heard_of_[index(r)] |= channels_[{peer, r}].front()[0].ranks;
      channels_[{peer, r}].pop_front();
    }
    for (const Rank peer : step.to)
      if (peer != r) channels_[{r, peer}].push_back({Value{.ranks = heard_of_[index(r)]}});
    return true;
  }

  template <class Current>
  void host_stage(const std::vector<Rank>& host, const Current& current) {
    const auto step_of = [&](Rank r) -> const Step& { return *current(r); };
    const Step& first = step_of(host[0]);
    for (const Rank r : host)
      if (step_of(r).kind != first.kind) return fail("ranks of a host at different stages");
    if (first.kind == Step::Kind::host_barrier) {
      std::uint64_t together = 0;
      for (const Rank r : host) together |= heard_of_[index(r)];
      for (const Rank r : host) heard_of_[index(r)] = together;
      return;
    }
    const bool combines = first.kind != Step::Kind::host_all_gather;
    const bool shows_all = first.kind != Step::Kind::host_reduce_scatter;
    for (std::size_t local = 0; local < host.size(); ++local) {
      Range slice{};
      if (first.only >= 0) {
        if (first.only == static_cast<int>(local)) slice = first.parts[0];
      } else if (local < first.which.size()) {
        slice = first.parts[first.which[local]];
      }
      const Rank owner = host[local];
      if (step_of(owner).keep == Place::work) keep_as_work(owner, slice);
      for (std::size_t e = slice.first; e < slice.first + slice.count; ++e) {
        std::vector<Value> values;
        if (combines)
          for (const Rank r : host) values.push_back(place(r, step_of(r).own)[e]);
        const Value value = combines ? combine(values, first.finish) : place(owner, step_of(owner).own)[e];
        for (const Rank r : host)
          if (shows_all || r == owner) place(r, step_of(r).keep)[e] = value;
      }
    }
  }

  Topology topology_;
  Task task_;
  int ranks_;
  std::size_t room_;  // messages of a channel
  bool in_place_;
  std::vector<std::unique_ptr<Seat>> seats_;
  std::vector<Values> input_, output_, work_;
  std::vector<Range> worked_;            // what is in work_
  std::vector<std::uint64_t> heard_of_;  // of a barrier: the ranks that are known to have come
  std::map<std::pair<Rank, Rank>, std::deque<Values>> channels_;
};

std::vector<Topology> topologies() {
  std::vector<Topology> all;
  for (int n = 1; n <= 17; ++n) all.push_back(Topology::regular(n, n));
  all.push_back(Topology::regular(32, 32));
  for (const auto& [ranks, per_host] : {std::pair(2, 1),
                                        {4, 2},
                                        {6, 2},
                                        {6, 3},
                                        {7, 3},
                                        {9, 4},
                                        {12, 4},
                                        {5, 1},
                                        {13, 5},
                                        {16, 4},
                                        {17, 8},
                                        {32, 8},
                                        {6, 1},
                                        {7, 1},
                                        {8, 1},
                                        {12, 2},
                                        {14, 2}})
    all.push_back(Topology::regular(ranks, per_host));
  all.push_back(Topology::from_hosts({"a", "b", "a", "b", "b", "c"}, 0));
  all.push_back(Topology::from_hosts({"a", "b", "b", "b"}, 0));
  all.push_back(Topology::from_hosts({"b", "b", "b", "b", "a"}, 0));
  for (const auto& [ranks, domains] : {std::pair(4, 2), {6, 2}, {6, 3}, {12, 3}, {16, 2}}) {
    Topology side_by_side = Topology::regular(ranks, ranks), in_turn = side_by_side;
    for (int r = 0; r < ranks; ++r) {
      side_by_side.domains.push_back(r / (ranks / domains));
      in_turn.domains.push_back(r % domains);
    }
    all.push_back(side_by_side);
    all.push_back(in_turn);
  }
  return all;
}

/// Every way in which a collective may be asked for.
std::vector<Aim> aims_of(Collective collective) {
  const bool reduces = collective == Collective::all_reduce || collective == Collective::reduce_scatter ||
                       collective == Collective::reduce;
  std::vector<Aim> aims{{collective, Sums::anywhere, false}};
  if (reduces) {
    aims.push_back({collective, Sums::at_owner, false});
    aims.push_back({collective, Sums::at_owner, true});
    aims.push_back({collective, Sums::in_hosts, true});
  } else if (collective != Collective::barrier) {
    aims.push_back({collective, Sums::anywhere, true});
  }
  return aims;
}
std::string describe(const Aim& aim) {
  return std::string(aim.sums == Sums::at_owner   ? " direct"
                     : aim.sums == Sums::in_hosts ? " direct between hosts"
                                                  : "") +
         (aim.coded ? " coded " : " ");
}

bool possible(const Algorithm& algorithm, const Aim& aim, const Topology& topology) {
  return algorithm.possible == nullptr || algorithm.possible(aim, topology);
}
bool several_rounds(const Algorithm& algorithm, const Aim& aim) {
  return algorithm.in_one_message == nullptr || !algorithm.in_one_message(aim);
}

Parts parts_for(const Algorithm& algorithm, const Aim& aim, const Topology& topology, std::size_t count) {
  const bool by_part = algorithm.by_part(aim, topology);
  return Parts::equal({0, count}, by_part ? topology.ranks() : 1);
}

class EveryAlgorithm : public ::testing::TestWithParam<std::size_t> {
 protected:
  const Algorithm& algorithm() const { return algorithms()[GetParam()]; }
};

TEST_P(EveryAlgorithm, UsesEachContributionExactlyOnceAndNeverDeadlocks) {
  for (const Topology& topology : topologies()) {
    const auto n = static_cast<std::size_t>(topology.ranks());
    for (const Collective collective : kCollectives)
      for (const Aim& aim : aims_of(collective))
        for (const std::size_t count : {std::size_t{0}, std::size_t{1}, n - 1, n, n + 1, 3 * n + 2})
          for (const std::size_t segment : {0u, 2u})
            for (const Rank root : {0, topology.ranks() / 2, topology.ranks() - 1}) {
              const bool rooted = collective == Collective::broadcast || collective == Collective::reduce;
              if (!rooted && root != 0) continue;
              if (!possible(algorithm(), aim, topology) || (segment > 0 && !several_rounds(algorithm(), aim))) continue;
              const std::size_t elements = collective == Collective::barrier ? 0 : count;
              const Task task{aim, parts_for(algorithm(), aim, topology, elements), root};
              for (const std::size_t lanes : {1u, 2u, 3u, 7u}) {
                if (segment == 0 && lanes > 1) continue;
                const bool in_place = (count + lanes) % 2 == 0;
                Simulation simulation(algorithm(), topology, task, segment, lanes, in_place);
                simulation.check_results();
                ASSERT_EQ(simulation.failure, "")
                    << algorithm().name << ' ' << to_string(collective) << describe(aim) << count
                    << " elements in segments of " << segment << ", " << lanes << " rounds at once, root " << root
                    << (in_place ? ", in place, " : ", ") << to_string(topology);
              }
            }
  }
}

TEST_P(EveryAlgorithm, PartsOfUnequalLength) {
  for (const Topology& topology : topologies()) {
    std::vector<std::size_t> offsets{0};
    for (int r = 0; r < topology.ranks(); ++r) offsets.push_back(offsets.back() + static_cast<std::size_t>(r * 7 % 5));
    for (const Collective collective : {Collective::reduce_scatter, Collective::all_gather})
      for (const Aim& aim : aims_of(collective)) {
        if (!possible(algorithm(), aim, topology)) continue;
        const Task task{aim, Parts::listed(offsets.data(), topology.ranks()), 0};
        for (const bool in_place : {false, true}) {
          Simulation simulation(algorithm(), topology, task, several_rounds(algorithm(), aim) ? 3 : 0, 1, in_place);
          simulation.check_results();
          ASSERT_EQ(simulation.failure, "") << algorithm().name << ' ' << to_string(collective)
                                            << (in_place ? " in place, " : ", ") << to_string(topology);
        }
      }
  }
}

INSTANTIATE_TEST_SUITE_P(, EveryAlgorithm, ::testing::Range(std::size_t{0}, algorithms().size()),
                         [](const auto& parameter) { return std::string(algorithms()[parameter.param].name); });

/// The traffic of the busiest rank.
Traffic busiest(std::string_view name, const Topology& topology, Collective collective, std::size_t count,
                Sums sums = Sums::anywhere) {
  const auto found = std::find_if(algorithms().begin(), algorithms().end(),
                                  [&](const Algorithm& algorithm) { return algorithm.name == name; });
  const Aim aim{.collective = collective, .sums = sums};
  const Task task{aim, parts_for(*found, aim, topology, count), 0};
  Simulation simulation(*found, topology, task, 0);
  EXPECT_EQ(simulation.failure, "");
  Traffic most;
  for (const Traffic& traffic : simulation.traffic) {
    most.messages = std::max(most.messages, traffic.messages);
    most.elements = std::max(most.elements, traffic.elements);
  }
  return most;
}

TEST(Ring, AllReduceSendsTwoNMinusOneOverNOfTheBuffer) {
  for (const int n : {2, 3, 5, 8, 16}) {
    const std::size_t count = static_cast<std::size_t>(n) * 10;
    const Traffic traffic = busiest("ring", Topology::regular(n, n), Collective::all_reduce, count);
    EXPECT_EQ(traffic.messages, 2 * static_cast<std::size_t>(n - 1));
    EXPECT_EQ(traffic.elements, 2 * static_cast<std::size_t>(n - 1) * 10);
  }
}

TEST(DirectExchange, CostsTheBytesOfARing) {
  for (const int n : {2, 3, 8}) {
    const std::size_t count = static_cast<std::size_t>(n) * 10;
    const Topology topology = Topology::regular(n, n);
    EXPECT_EQ(busiest("ring", topology, Collective::reduce_scatter, count, Sums::at_owner).elements,
              busiest("ring", topology, Collective::reduce_scatter, count).elements);
  }
}

TEST(ReduceToOne, TreeSendsAtMostLogNMessages) {
  for (const int n : {2, 3, 5, 8, 17, 32}) {
    const Topology topology = Topology::regular(n, n);
    const auto depth = static_cast<std::size_t>(std::ceil(std::log2(n)));
    EXPECT_LE(busiest("reduce_to_one_tree", topology, Collective::broadcast, 10).messages, depth);
    EXPECT_EQ(busiest("reduce_to_one_tree", topology, Collective::reduce, 10).messages, 1u);
    EXPECT_EQ(busiest("reduce_to_one_direct", topology, Collective::broadcast, 10).messages,
              static_cast<std::size_t>(n - 1));
  }
}

TEST(Leaders, ScatterAndGatherInLogHMessages) {
  for (const int hosts : {3, 4, 5, 6, 7, 8, 13, 16}) {
    const bool power = (hosts & (hosts - 1)) == 0;
    const auto log = static_cast<std::size_t>(std::ceil(std::log2(hosts)));
    for (const Collective collective : {Collective::reduce_scatter, Collective::all_gather}) {
      const Traffic one = busiest("hierarchical_halving", Topology::regular(hosts, 1), collective, 10 * 13 * 16);
      EXPECT_LE(one.messages, power ? log : 2 * log) << hosts;  // beyond the last host it goes on with the first
      EXPECT_LE(one.elements, 10 * 13 * 16 - 130u) << "the bytes of a direct exchange, " << hosts;
      const Traffic two = busiest("hierarchical_leaders_halving", Topology::regular(2 * hosts, 2), collective, 960);
      EXPECT_LE(two.messages, (power ? log : 2 * log) + (collective == Collective::reduce_scatter ? 1 : 0)) << hosts;
    }
  }
}

TEST(Hierarchical, SendsNoMessagesInsideOneHost) {
  for (const Collective collective : kCollectives)
    EXPECT_EQ(busiest("hierarchical", Topology::regular(6, 6), collective, 60).messages, 0u) << to_string(collective);
}

TEST(Hierarchical, CarriesEveryByteOncePerHost) {
  for (const auto& [hosts, local] : {std::pair(2, 2), {3, 4}, {4, 2}}) {
    const Topology topology = Topology::regular(hosts * local, local);
    const std::size_t count = static_cast<std::size_t>(hosts * local) * 6;
    const auto found = std::find_if(algorithms().begin(), algorithms().end(),
                                    [](const Algorithm& algorithm) { return algorithm.name == "hierarchical"; });
    const auto out_of_a_host = [&](Collective collective) {
      const Aim aim{.collective = collective};
      const Task task{aim, parts_for(*found, aim, topology, count), 0};
      Simulation simulation(*found, topology, task, 0);
      EXPECT_EQ(simulation.failure, "");
      std::size_t most = 0;
      for (const auto& host : topology.hosts) {
        std::size_t sum = 0;
        for (const Rank r : host) sum += simulation.traffic[static_cast<std::size_t>(r)].elements_to_other_hosts;
        most = std::max(most, sum);
      }
      return most;
    };
    const auto h = static_cast<std::size_t>(hosts);
    EXPECT_EQ(out_of_a_host(Collective::all_reduce), 2 * (h - 1) * count / h);
    EXPECT_EQ(out_of_a_host(Collective::reduce_scatter), (h - 1) * count / h);
    EXPECT_EQ(out_of_a_host(Collective::all_gather), (h - 1) * (count / h));
    EXPECT_EQ(out_of_a_host(Collective::broadcast), count);
    EXPECT_EQ(out_of_a_host(Collective::reduce), count);
  }
}

// Algorithms are plain functions over values: a compiler can run them.
constexpr std::size_t count_ring_steps(int n) {
  Rank ranks[8] = {0, 1, 2, 3, 4, 5, 6, 7};
  std::size_t steps = 0;
  const Circle circle{Peers(ranks, static_cast<std::size_t>(n)), 1};
  const auto count = [&](const Step&) { ++steps; };
  ring::reduce_scatter(circle, Parts::equal({0, 100}, n), {}, count);
  ring::all_gather(circle, Parts::equal({0, 100}, n), Place::output, count);
  return steps;
}
static_assert(count_ring_steps(2) == 4);
static_assert(count_ring_steps(8) == 16);

}  // namespace
}  // namespace collectives
