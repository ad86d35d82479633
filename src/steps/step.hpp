// The vocabulary of algorithms. An algorithm is a function that emits this rank's Steps, and nothing else; the Steps
// are performed (executor), counted (plan), printed (explain) and proved (tests).
//
// A Step takes one range from some ranks (or nobody), combines it or not, keeps it or not, and hands it to some ranks
// (or nobody). Both ends of a message compute the same range, so messages need no description of what they hold.
// A host Step is a whole stage among the ranks of this host, which share memory and need no messages for it.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

#include "collectives/types.hpp"
#include "steps/parts.hpp"

namespace collectives {

/// Some ranks, in the order in which contributions are combined. Valid while the emitting call runs.
using Peers = std::span<const Rank>;

/// Where a rank's own value is read or kept.
enum class Place : std::uint8_t {
  nowhere,
  input,   ///< the caller's contribution
  output,  ///< the caller's result
  work     ///< a partial result that has no room in the output: one range at a time, or pieces of it
};

/// Who performs a host Step together.
enum class Subgroup : std::uint8_t {
  host,    ///< all ranks of this host
  domain,  ///< those of this rank's domain: they share a cache or a memory
  rail     ///< one rank of each domain of this host
};

struct Step {
  enum class Kind : std::uint8_t { exchange, host_reduce_scatter, host_all_gather, host_all_reduce, host_barrier };

  Kind kind = Kind::exchange;
  Peers from = {};                     ///< whose values; this rank among them stands for its own value
  Peers to = {};                       ///< who receives the value
  Range range = {};                    ///< of the value
  bool reduce = false;                 ///< combine the values in the order of `from`
  bool unreduced = false;              ///< what peers send are contributions, not partial results
  bool finish = false;                 ///< the value is complete: divide, round
  Place source = Place::input;         ///< where the own value is read
  Place destination = Place::nowhere;  ///< where the value is kept
  int depth = 0;                       ///< how far into its round, where rounds overlap (schedule.hpp)

  // Of host Steps: rank l of those who perform it deals with parts[which[l]], or with nothing beyond the end of
  // `owners`.
  Subgroup subgroup = Subgroup::host;
  Parts parts = {};
  Peers owners = {};
  int root = -1;  ///< when >= 0: this one of them alone deals with parts[0]
};

/// My value goes out as it is.
constexpr Step send(Peers to, Range range, Place source) { return {.to = to, .range = range, .source = source}; }
/// Their value comes in and stays.
constexpr Step receive(Peers from, Range range) { return {.from = from, .range = range, .destination = Place::output}; }
/// Their value comes in, stays and goes on.
constexpr Step forward(Peers from, Peers to, Range range) {
  return {.from = from, .to = to, .range = range, .destination = Place::output};
}
/// My value goes out and becomes the result.
constexpr Step spread(Peers to, Range range, Place source) {
  return {.to = to, .range = range, .source = source, .destination = Place::output};
}
/// My value from one place to another.
constexpr Step copy(Range range, Place source, Place destination) {
  return {.range = range, .source = source, .destination = destination};
}

/// Between sending and receiving where nothing else is to be done meanwhile: so many rounds can be on the wire at once.
inline constexpr int kRoundsOnTheWire = 4;

/// Hands Steps on, each one deeper than the one before.
template <class Run>
struct Descending {
  Run& run;
  int depth = 0;
  constexpr void operator()(Step step) {
    step.depth = depth++;
    run(step);
  }
};
/// Hands Steps on as parts of something longer, that many depths into it.
template <class Run>
struct Deeper {
  Run& run;
  int by;
  constexpr void operator()(Step step) {
    step.depth += by;
    run(step);
  }
};
/// Hands Steps on, all of one depth.
template <class Run>
struct AtDepth {
  Run& run;
  int depth;
  constexpr void operator()(Step step) {
    step.depth = depth;
    run(step);
  }
};

/// Whether `step` hands on a sum of one term, which is that term for most ops, and does nothing else with it.
constexpr bool only_hands_on(const Step& step) {
  return step.reduce && !step.finish && step.from.size() == 1 && step.destination == Place::nowhere;
}
/// How many values whoever performs `step` adds up.
constexpr std::size_t terms(const Step& step) { return step.reduce && !only_hands_on(step) ? step.from.size() : 0; }

/// What the ranks of a host Step have to do, in elements of a vector whose work they share evenly: what one does alone
/// counts as many times as there are ranks.
struct HostStepWork {
  std::size_t average = 0;  ///< of a rank
  std::size_t longest = 0;  ///< of the one who has most to do, for whom the others wait
};
/// Whoever keeps sums makes them alone, of what all `ranks` have; other stages are everybody's, or everybody helps.
constexpr HostStepWork host_step_work(const Step& step, std::size_t ranks) {
  std::size_t all = 0, longest = 0;
  const auto count = [&](std::size_t elements) {
    all += elements;
    longest = std::max(longest, elements);
  };
  if (step.root >= 0)
    count(step.parts[0].count);
  else
    for (const Rank part : step.owners) count(step.parts[part].count);
  const bool alone = step.kind == Step::Kind::host_reduce_scatter && (step.root < 0 || step.destination == Place::work);
  return {all, alone ? ranks * longest : all};
}

/// The values of `from`, this rank's own among them, become one partial result, which goes on.
constexpr Step combine(Peers from, Peers to, Range range, Place source, bool unreduced) {
  return {.from = from, .to = to, .range = range, .reduce = true, .unreduced = unreduced, .source = source};
}
/// The same, complete and kept; it may go on as well.
constexpr Step complete(Peers from, Peers to, Range range, Place source, bool unreduced, bool finish,
                        Place destination) {
  return {.from = from,
          .to = to,
          .range = range,
          .reduce = true,
          .unreduced = unreduced,
          .finish = finish,
          .source = source,
          .destination = destination};
}

}  // namespace collectives
