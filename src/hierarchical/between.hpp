// What happens along a rail, one rank of every host: the part of the hierarchical algorithms that is on the wire. Which
// is best depends on the length: one message time of latency, or the fewest bytes, or the fewest hops in between.
//
// Each has all_reduce() of a slice, with Steps of `depths(hosts)` depths, and broadcast() of a slice, all of whose
// Steps are of depth 0: a chain or a tree overlaps by itself. `pieces(hosts)`: into how many messages, at least,
// all_reduce() divides a slice.
#pragma once

#include "circle.hpp"
#include "reduce_to_one/reduce_to_one.hpp"
#include "ring/ring.hpp"

namespace collectives::hierarchical {

/// The fewest bytes, 2(H-1)/H of the slice out of each host, over 2(H-1) hops. For long vectors.
struct Ring {
  static constexpr int depths(int hosts) { return 2 * hosts; }
  static constexpr int pieces(int hosts) { return hosts; }

  template <class Run>
  static constexpr void all_reduce(const Circle& rail, Range slice, const Reduction& how, Run&& run) {
    const Parts pieces = Parts::equal(slice, rail.size());
    Descending deeper{run};
    ring::reduce_scatter(rail, pieces, how, deeper);
    ring::all_gather(rail, pieces, Place::output, deeper);
  }
  template <class Run>
  static constexpr void broadcast(const Circle& rail, int root, Range slice, Place own, Run&& run) {
    const Peers onward = rail.ahead(1) == root ? Peers{} : rail.next();
    run(rail.self == root ? spread(onward, slice, own) : forward(rail.previous(), onward, slice));
  }
};

/// Everyone sends everything to everyone and adds what comes in host order: one latency, H-1 slices out of each host.
/// For short vectors, and with two hosts for any, because there it is as few bytes as any other way.
struct OneShot {
  static constexpr int depths(int) { return 2; }
  static constexpr int pieces(int) { return 1; }

  template <class Run>
  static constexpr void all_reduce(const Circle& rail, Range slice, const Reduction& how, Run&& run) {
    Descending deeper{run};
    deeper(send(rail.members, slice, how.own));
    deeper(complete(rail.members, {}, slice, how.own, how.raw(), how.finish, how.keep));
  }
  template <class Run>
  static constexpr void broadcast(const Circle& rail, int root, Range slice, Place own, Run&& run) {
    run(rail.self == root ? spread(rail.members, slice, own) : receive(rail.at(root), slice));
  }
};

/// Recursive halving, then recursive doubling (Rabenseifner, "Optimization of collective reduction operations", 2004):
/// the bytes of the ring in 2 log2(H) hops when H is a power of two. Otherwise hosts beyond the last power of two hand
/// their slice to a host before it and get the sum back: a slice and two hops more. A broadcast is a binomial tree.
struct Halving {
  static constexpr int power(int hosts) {
    int power = 1;
    while (2 * power <= hosts) power *= 2;
    return power;
  }
  /// Exchanges there and back among the first hosts.
  static constexpr int exchanges(int hosts) {
    int count = 0;
    for (int p = power(hosts); p > 1; p /= 2) count += 2;
    return count;
  }
  static constexpr int depths(int hosts) { return exchanges(hosts) + (power(hosts) < hosts ? 3 : 1); }
  static constexpr int pieces(int hosts) { return power(hosts) < hosts ? 1 : 2; }

  template <class Run>
  static constexpr void all_reduce(const Circle& rail, Range slice, const Reduction& how, Run&& run) {
    const int p = power(rail.size()), extras = rail.size() - p, self = rail.self;
    const auto at = [&](int depth, Step step) {
      step.depth = depth;
      run(step);
    };
    if (self >= p) {
      at(0, send(rail.at(self - p), slice, how.own));
      return at(depths(rail.size()) - 1, receive(rail.at(self - p), slice));
    }
    const bool twofold = self < extras;  // for another host, too
    if (twofold) {
      const Rank both[] = {rail.me()[0], rail.at(self + p)[0]};
      at(1, complete(both, {}, slice, how.own, how.raw(), false, Place::output));
    }
    halve(rail, slice, p / 2, twofold ? Place::output : how.own, how.raw() ? extras : kNobody, how.finish, extras > 0,
          at);
    if (twofold) at(depths(rail.size()) - 2, send(rail.at(self + p), slice, Place::output));
  }

  template <class Run>
  static constexpr void broadcast(const Circle& rail, int root, Range slice, Place own, Run&& run) {
    const reduce_to_one::Tree tree{rail, root};
    tree.broadcast(slice, own, run);
  }

 private:
  /// All-reduce among the 2 * `distance` hosts whose numbers differ from this one's below that bit only: swap halves
  /// with the host at that distance, all-reduce the half that is left among those nearer, swap back. Hosts from
  /// `raw_from` on still hold contributions.
  template <class At>
  static constexpr void halve(const Circle& rail, Range range, int distance, Place own, int raw_from, bool finish,
                              int depth, At& at) {
    const int self = rail.self, other = self ^ distance;
    const bool upper = other < self;
    const Range mine = part(range, 2, upper ? 1 : 0), theirs = part(range, 2, upper ? 0 : 1);
    const Rank pair[] = {rail.at(upper ? other : self)[0], rail.at(upper ? self : other)[0]};
    const int back = depth + 1 + exchanges(distance);
    at(depth, send(rail.at(other), theirs, own));
    at(depth + 1, complete(pair, {}, mine, own, other >= raw_from, finish && distance == 1, Place::output));
    if (distance > 1) halve(rail, mine, distance / 2, Place::output, kNobody, finish, depth + 1, at);
    at(back, send(rail.at(other), mine, Place::output));
    at(back + 1, receive(rail.at(other), theirs));
  }
  static constexpr int kNobody = 1 << 30;  // nobody holds contributions any more
};

}  // namespace collectives::hierarchical
