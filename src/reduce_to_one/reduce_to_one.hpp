// Algorithms of the backend `reduce_to_one`. All data pass through one of the n ranks, the root. An all-reduce, for
// example, reduces the values to the root, which broadcasts the result.
//
// A collective of this file has up to two phases. In the first phase, ranks reduce or send their data to the root. In
// the second phase, the root broadcasts or sends data to the ranks. A reduce or a broadcast has one of two shapes:
//
//   Star   the root exchanges messages with every other rank, one step each way, and adds in rank order
//   Tree   a binomial tree, at most log2 n steps each way, rounded up
//
// The tree is that of Thakur, Rabenseifner and Gropp, "Optimization of collective communication operations in MPICH",
// 2005.
//
// Price: the network link and the arithmetic of the root are the bottleneck for long vectors.
#pragma once

#include <array>

#include "steps/direct_exchange.hpp"
#include "steps/rank_group.hpp"

namespace collectives::reduce_to_one {

/// Reduce and broadcast in which the root exchanges messages with every other rank. A reduce takes one step, and so
/// does a broadcast. The root receives n - 1 vectors in a reduce, and sends n - 1 vectors in a broadcast.
struct Star {
  const RankGroup& group;
  int root;

  template <class Run>
  constexpr void reduce(Range range, const Reduction& how, Run&& run) const {
    direct_exchange::reduce(group, root, range, how, run);
  }
  template <class Run>
  constexpr void broadcast(Range range, Place source, Run&& run) const {
    if (group.self == root)
      run(Step{.to = group.members, .range = range, .source = source, .destination = Place::output});
    else
      run(receive(group.at(root), range));
  }
};

/// Reduce and broadcast along a binomial tree.
///
/// The position of a rank is its distance from the root, which has position 0. The children of position v are the
/// positions v+1, v+2, v+4 and so on. The added number must be below the lowest set bit of v. For position 0, the root,
/// there is no such limit. A reduce or a broadcast takes at most log2 n steps, rounded up.
///
/// Order of the sum: a rank adds the values of its children to its own value, in ascending order of their positions. A
/// subtree has consecutive positions, so all values are added in the order of positions. In a broadcast, a rank sends
/// to its child with the highest position first, because that child has the largest subtree.
struct Tree {
  const RankGroup& group;
  int root;

  template <class Run>
  constexpr void reduce(Range range, const Reduction& how, Run&& run) const {
    const Family family(*this);
    if (group.self == root)
      run(complete(family.me_and_children(), {}, range, how.source, false, how.finish, how.destination));
    else
      run(combine(family.me_and_children(), family.parent(), range, how.source, false));
  }
  template <class Run>
  constexpr void broadcast(Range range, Place source, Run&& run) const {
    const Family family(*this);
    if (group.self == root)
      run(Step{.to = family.farthest_first(), .range = range, .source = source, .destination = Place::output});
    else
      run(forward(family.parent(), family.farthest_first(), range));
  }

 private:
  class Family {
   public:
    constexpr explicit Family(const Tree& tree) {
      const RankGroup& group = tree.group;
      const int n = group.size(), position = (group.self - tree.root + n) % n;
      members_[count_++] = group.members[static_cast<std::size_t>(group.self)];
      int bit = 1;
      for (; bit < n && (position & bit) == 0; bit <<= 1)
        if (position + bit < n) members_[count_++] = group.members[static_cast<std::size_t>((group.self + bit) % n)];
      parent_ = group.members[static_cast<std::size_t>((group.self - bit % n + n) % n)];
      for (std::size_t child = 1; child < count_; ++child) farthest_first_[count_ - 1 - child] = members_[child];
    }
    constexpr Peers me_and_children() const { return {members_.data(), count_}; }
    constexpr Peers farthest_first() const { return {farthest_first_.data(), count_ - 1}; }
    constexpr Peers parent() const { return {&parent_, 1}; }

   private:
    std::array<Rank, 32> members_{}, farthest_first_{};
    std::size_t count_ = 0;
    Rank parent_ = 0;
  };
};

template <class Shape, class Run>
constexpr void all_reduce(const Shape& shape, Range range, const Reduction& how, Run&& run) {
  shape.reduce(range, how, run);
  shape.broadcast(range, Place::output, run);
}

/// Emits a reduce-scatter. For each part in turn, ranks reduce the part at the root. The root sends the result to the
/// part's owner.
template <class Shape, class Run>
constexpr void reduce_scatter(const Shape& shape, const Parts& parts, Reduction how, Run&& run) {
  const RankGroup& group = shape.group;
  const Place result = how.destination;
  for (int owner = 0; owner < group.size(); ++owner) {
    how.destination = owner == shape.root ? result : Place::work;
    shape.reduce(parts[owner], how, run);
    if (owner == shape.root) continue;
    if (group.self == shape.root) run(send(group.at(owner), parts[owner], Place::work));
    if (group.self == owner) run(receive(group.at(shape.root), parts[owner]));
  }
}

/// Emits an all-gather. For each part in turn: the owner sends the part to the root, which broadcasts it.
template <class Shape, class Run>
constexpr void all_gather(const Shape& shape, const Parts& parts, Place source, Run&& run) {
  const RankGroup& group = shape.group;
  if (group.self != shape.root) run(send(group.at(shape.root), parts[group.self], source));
  for (int owner = 0; owner < group.size(); ++owner) {
    const bool mine = owner == shape.root;
    if (group.self == shape.root && !mine) run(receive(group.at(owner), parts[owner]));
    shape.broadcast(parts[owner], mine ? source : Place::output, run);
  }
}

}  // namespace collectives::reduce_to_one
