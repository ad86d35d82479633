// What happens along a rail, one rank of every host: the part of the hierarchical algorithms that is on the wire. Which
// is best depends on the length: one message time of latency, or the fewest bytes, or the fewest hops in between.
//
// Each has all_reduce() of a slice, with Steps of `depths(hosts)` depths, and broadcast() of a slice, all of whose
// Steps are of depth 0: a chain or a tree overlaps by itself. `pieces(hosts)`: into how many messages, at least,
// all_reduce() divides a slice. Some have barrier(): nobody leaves before everyone has come.
#pragma once

#include <algorithm>

#include "reduce_to_one/reduce_to_one.hpp"
#include "ring/ring.hpp"
#include "steps/rank_group.hpp"

namespace collectives::hierarchical {

/// The fewest bytes, 2(H-1)/H of the slice out of each host, over 2(H-1) hops. For long vectors.
struct Ring {
  static constexpr int depths(int hosts) { return 2 * hosts; }
  static constexpr int pieces(int hosts) { return hosts; }

  template <class Run>
  static constexpr void all_reduce(const RankGroup& rail, Range slice, const Reduction& how, Run&& run) {
    const Parts pieces = Parts::equal(slice, rail.size());
    Descending deeper{run};
    ring::reduce_scatter(rail, pieces, how, deeper);
    ring::all_gather(rail, pieces, Place::output, deeper);
  }
  template <class Run>
  static constexpr void broadcast(const RankGroup& rail, int root, Range slice, Place source, Run&& run) {
    const Peers onward = rail.ahead(1) == root ? Peers{} : rail.next();
    run(rail.self == root ? spread(onward, slice, source) : forward(rail.previous(), onward, slice));
  }
};

/// Everyone sends everything to everyone and adds what comes in host order: one latency, H-1 slices out of each host.
/// For short vectors, and with two hosts for any, because there it is as few bytes as any other way.
struct OneShot {
  static constexpr int depths(int) { return 1 + kRoundsOnTheWire; }
  static constexpr int pieces(int) { return 1; }

  template <class Run>
  static constexpr void all_reduce(const RankGroup& rail, Range slice, const Reduction& how, Run&& run) {
    // Each begins with the host after it, so that no host is flooded.
    for (int stop = 1; stop < rail.size(); ++stop) run(send(rail.at(rail.ahead(stop)), slice, how.source));
    AtDepth later{run, kRoundsOnTheWire};
    later(complete(rail.members, {}, slice, how.source, how.unreduced(), how.finish, how.destination));
  }
  template <class Run>
  static constexpr void broadcast(const RankGroup& rail, int root, Range slice, Place source, Run&& run) {
    run(rail.self == root ? spread(rail.members, slice, source) : receive(rail.at(root), slice));
  }
  template <class Run>
  static constexpr void barrier(const RankGroup& rail, Run&& run) {
    for (int stop = 1; stop < rail.size(); ++stop) run(send(rail.at(rail.ahead(stop)), {}, Place::input));
    for (int stop = 1; stop < rail.size(); ++stop) run(receive(rail.at(rail.behind(stop)), {}));
  }
};

/// `Between` where the hosts' sums may not be added on their way, because each would be rounded again. One shot adds
/// them at every host anyway; all others give way to a direct exchange of pieces: each goes unsummed to its owner and
/// from there to all. As many bytes as a ring, in 2(H-1) messages and two latencies.
template <class Between>
struct Unsummed {
  static constexpr int depths(int) { return 1 + 2 * kRoundsOnTheWire; }
  static constexpr int pieces(int hosts) { return hosts; }

  template <class Run>
  static constexpr void all_reduce(const RankGroup& rail, Range slice, const Reduction& how, Run&& run) {
    const Parts pieces = Parts::equal(slice, rail.size());
    // Every message is taken equally many depths after it was sent (schedule.hpp).
    AtDepth owned{run, kRoundsOnTheWire}, later{run, 2 * kRoundsOnTheWire};
    for (int stop = 1; stop < rail.size(); ++stop)
      run(send(rail.at(rail.ahead(stop)), pieces[rail.ahead(stop)], how.source));
    owned(complete(rail.members, {}, pieces[rail.self], how.source, how.unreduced(), how.finish, how.destination));
    owned(spread(rail.members, pieces[rail.self], how.destination));
    for (int stop = 1; stop < rail.size(); ++stop)
      later(receive(rail.at(rail.behind(stop)), pieces[rail.behind(stop)]));
  }
};
template <>
struct Unsummed<OneShot> : OneShot {};

/// The hosts as a cube: as many as the last power of two that there are exchange with one another, at distances that
/// are powers of two; each of the `extras` beyond has one of them do it for both.
struct Cube {
  int hosts;
  constexpr int size() const {
    int power = 1;
    while (2 * power <= hosts) power *= 2;
    return power;
  }
  constexpr int extras() const { return hosts - size(); }
  constexpr int dimensions() const {
    int count = 0;
    for (int p = size(); p > 1; p /= 2) ++count;
    return count;
  }
  /// Of an all-reduce with `exchanges` exchanges inside.
  constexpr int depths(int exchanges) const { return exchanges + (extras() > 0 ? 3 : 1); }

  /// Extras hand in their slice, the others do `inside(source, unreduced_from, depth)`, extras get the sum.
  /// `unreduced_from`: hosts from here on still hold contributions.
  template <class At, class Inside>
  constexpr void all_reduce(const RankGroup& rail, Range slice, const Reduction& how, int exchanges, At& at,
                            Inside&& inside) const {
    const int self = rail.self, last = depths(exchanges) - 1;
    if (self >= size()) {
      at(0, send(rail.at(self - size()), slice, how.source));
      return at(last, receive(rail.at(self - size()), slice));
    }
    const bool twofold = self < extras();
    if (twofold) {
      const Rank both[] = {rail.me()[0], rail.at(self + size())[0]};
      at(1, complete(both, {}, slice, how.source, how.unreduced(), false, Place::output));
    }
    inside(twofold ? Place::output : how.source, how.unreduced() ? extras() : kNobody, extras() > 0 ? 1 : 0);
    if (twofold) at(last - 1, send(rail.at(self + size()), slice, Place::output));
  }
  static constexpr int kNobody = 1 << 30;
};

/// This host and another, in host order, which is the order of the sum.
struct Pair {
  Rank ranks[2];
  constexpr Pair(const RankGroup& rail, int other)
      : ranks{rail.at(std::min(rail.self, other))[0], rail.at(std::max(rail.self, other))[0]} {}
};

/// Recursive doubling: everything to one host at a time, at distances 1, 2, 4, ...: log2(H) latencies, as many slices
/// out of each host. For short vectors of more hosts than one shot is good for. A broadcast is a binomial tree, a
/// barrier disseminates, whatever the number of hosts (Hensgen, Finkel and Manber, "Two algorithms for barrier
/// synchronization", 1988).
struct Doubling {
  static constexpr int depths(int hosts) { return Cube{hosts}.depths(Cube{hosts}.dimensions()); }
  static constexpr int pieces(int) { return 1; }

  template <class Run>
  static constexpr void all_reduce(const RankGroup& rail, Range slice, const Reduction& how, Run&& run) {
    const Cube cube{rail.size()};
    auto at = [&](int depth, Step step) {
      step.depth = depth;
      run(step);
    };
    cube.all_reduce(rail, slice, how, cube.dimensions(), at, [&](Place source, int unreduced_from, int depth) {
      for (int distance = 1; distance < cube.size(); distance *= 2) {
        const int other = rail.self ^ distance;
        at(depth, send(rail.at(other), slice, source));
        at(++depth, complete(Pair(rail, other).ranks, {}, slice, source, distance == 1 && other >= unreduced_from,
                             how.finish && 2 * distance == cube.size(), Place::output));
        source = Place::output;
      }
    });
  }
  template <class Run>
  static constexpr void broadcast(const RankGroup& rail, int root, Range slice, Place source, Run&& run) {
    const reduce_to_one::Tree tree{rail, root};
    tree.broadcast(slice, source, run);
  }
  template <class Run>
  static constexpr void barrier(const RankGroup& rail, Run&& run) {
    for (int distance = 1; distance < rail.size(); distance *= 2) {
      run(send(rail.at(rail.ahead(distance)), {}, Place::input));
      run(receive(rail.at(rail.behind(distance)), {}));
    }
  }
};

/// Recursive halving, then recursive doubling (Rabenseifner, "Optimization of collective reduction operations", 2004):
/// the bytes of the ring in 2 log2(H) hops when H is a power of two, a slice and two hops more otherwise.
struct Halving {
  static constexpr int depths(int hosts) { return Cube{hosts}.depths(2 * Cube{hosts}.dimensions()); }
  static constexpr int pieces(int hosts) { return Cube{hosts}.extras() > 0 ? 1 : 2; }

  template <class Run>
  static constexpr void all_reduce(const RankGroup& rail, Range slice, const Reduction& how, Run&& run) {
    const Cube cube{rail.size()};
    auto at = [&](int depth, Step step) {
      step.depth = depth;
      run(step);
    };
    cube.all_reduce(rail, slice, how, 2 * cube.dimensions(), at, [&](Place source, int unreduced_from, int depth) {
      halve(rail, slice, cube.size() / 2, source, unreduced_from, how.finish, depth, at);
    });
  }
  template <class Run>
  static constexpr void broadcast(const RankGroup& rail, int root, Range slice, Place source, Run&& run) {
    Doubling::broadcast(rail, root, slice, source, run);
  }

 private:
  /// All-reduce among the 2 * `distance` hosts whose numbers differ from this one's below that bit only: swap halves
  /// with the host at that distance, all-reduce the half that is left among those nearer, swap back.
  template <class At>
  static constexpr void halve(const RankGroup& rail, Range range, int distance, Place source, int unreduced_from,
                              bool finish, int depth, At& at) {
    const int other = rail.self ^ distance;
    const bool upper = other < rail.self;
    const Range mine = part(range, 2, upper ? 1 : 0), theirs = part(range, 2, upper ? 0 : 1);
    const int back = depth + 1 + 2 * Cube{distance}.dimensions();
    at(depth, send(rail.at(other), theirs, source));
    at(depth + 1, complete(Pair(rail, other).ranks, {}, mine, source, other >= unreduced_from, finish && distance == 1,
                           Place::output));
    if (distance > 1) halve(rail, mine, distance / 2, Place::output, Cube::kNobody, finish, depth + 1, at);
    at(back, send(rail.at(other), mine, Place::output));
    at(back + 1, receive(rail.at(other), theirs));
  }
};

}  // namespace collectives::hierarchical
