// Algorithms between hosts. A rail is one rank of every host, all with the same local number. A slice is the range of
// the vector that one rail handles. Each algorithm of this file reduces or broadcasts a slice among the ranks of its
// rail.
//
// The fastest algorithm depends on the length of the slice and on H, the number of hosts. A hop is the transfer of a
// message from one host to another, which takes one network latency. Messages that are sent at the same time count as
// one hop. The table shows the cost of an all-reduce, with the length of a slice as the unit of traffic. The costs of
// Doubling and Halving apply if H is a power of two.
//
//   algorithm  hops       slices out of each host   suits
//   Ring       2(H-1)     2(H-1)/H, the minimum     long slices
//   OneShot    1          H-1                       short slices, and all slices of two hosts
//   Doubling   log2(H)    log2(H)                   short slices of many hosts
//   Halving    2 log2(H)  2(H-1)/H                  slices of medium length
//   Unsummed   2          2(H-1)/H                  messages that a codec encodes
//
// Each algorithm is a type with three functions for all-reduce. The function all_reduce() emits Steps. A Step is one
// action of a rank, such as a send. A long slice is divided into segments. In each round, a rank performs Steps for one
// segment. The depth of a Step is a number that orders the Steps of a round (steps/schedule.hpp). The function
// depths(hosts) returns the number of depths of an all-reduce. The function pieces(hosts) returns a number n: no
// message of an all-reduce is longer than 1/n of the slice.
//
// All types but Unsummed also have a function broadcast(). All Steps of a broadcast have depth 0, because each rank
// forwards a segment as soon as the segment arrives. OneShot and Doubling also have barrier(), a synchronization: no
// rank leaves it before all ranks have entered it.
#pragma once

#include <algorithm>

#include "reduce_to_one/reduce_to_one.hpp"
#include "ring/ring.hpp"
#include "steps/rank_group.hpp"

namespace collectives::hierarchical {

/// Ring: sends the fewest bytes and is for long slices. Each host sends 2(H-1)/H of the slice in 2(H-1) hops.
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

/// One-shot: each host sends the whole slice to all other hosts. Each host adds the values of all hosts in host order.
///
/// An all-reduce takes one latency and sends H-1 slices out of each host. It is for short slices. With two hosts it is
/// for slices of any length, because no other algorithm then sends fewer bytes.
struct OneShot {
  static constexpr int depths(int) { return 1 + kRoundsOnTheWire; }
  static constexpr int pieces(int) { return 1; }

  template <class Run>
  static constexpr void all_reduce(const RankGroup& rail, Range slice, const Reduction& how, Run&& run) {
    // Starts with the next host, so that not all hosts send to the same host at once.
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

/// Replaces the algorithm `Between` if ranks must not forward sums of several hosts. With a codec, each such sum would
/// be rounded again when it is encoded.
///
/// OneShot is used unchanged, because with OneShot every host receives the sums of the other hosts directly. A direct
/// exchange replaces all other types. It divides the slice into one piece per host. Each host sends its values of a
/// piece to the owner of the piece. The owner adds the values and sends the sum to all hosts. The exchange sends as
/// many bytes as a ring, in 2(H-1) messages and two latencies.
template <class Between>
struct Unsummed {
  static constexpr int depths(int) { return 1 + 2 * kRoundsOnTheWire; }
  static constexpr int pieces(int hosts) { return hosts; }

  template <class Run>
  static constexpr void all_reduce(const RankGroup& rail, Range slice, const Reduction& how, Run&& run) {
    const Parts pieces = Parts::equal(slice, rail.size());
    // A message is received equally many depths after its send (steps/schedule.hpp).
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

/// Cube: the hosts that exchange data at distances 1, 2, 4, ... Their number is a power of two.
///
/// The first size() hosts form the cube. size() is the largest power of two that does not exceed the number of hosts.
/// The remaining extras() hosts are outside. A host outside passes its slice to a host of the cube, which then takes
/// part for both.
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
  /// Returns the number of depths of an all-reduce with `exchanges` exchanges inside the cube.
  constexpr int depths(int exchanges) const { return exchanges + (extras() > 0 ? 3 : 1); }

  /// Emits an all-reduce around the exchanges of `inside`.
  ///
  /// First, hosts outside the cube send their slice. Then hosts of the cube call inside(source, unreduced_from, depth).
  /// At the end, hosts outside receive the sum. Hosts numbered from `unreduced_from` on still hold contributions, and
  /// the hosts before them hold partial sums.
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

/// Ranks of this and of another host, in host order. Their values are added in this order.
struct Pair {
  Rank ranks[2];
  constexpr Pair(const RankGroup& rail, int other)
      : ranks{rail.at(std::min(rail.self, other))[0], rail.at(std::max(rail.self, other))[0]} {}
};

/// Recursive doubling: each host exchanges the whole slice with one host at distance 1, then 2, 4, ...
///
/// If H is a power of two, an all-reduce takes log2(H) latencies, and sends log2(H) slices out of each host. The
/// algorithm is for short slices, and for more hosts than suit OneShot. The broadcast is a binomial tree. The barrier
/// is a dissemination barrier for any number of hosts (Hensgen, Finkel and Manber, "Two algorithms for barrier
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

/// Recursive halving, then recursive doubling (Rabenseifner, "Optimization of collective reduction operations", 2004).
///
/// If H is a power of two, it sends the bytes of Ring in 2 log2(H) hops. Otherwise it takes two more hops and one more
/// slice.
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
  /// All-reduces a range among the 2 * `distance` hosts whose numbers agree with this host's above the bit `distance`.
  ///
  /// Exchanges halves with the host at that distance. Then all-reduces the remaining half among the `distance` nearer
  /// hosts. Then exchanges the halves back.
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
