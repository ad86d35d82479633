// CodedStep: performs a Step whose messages are coded.
//
// A codec has a fixed rate and no state. It is applied where a value enters or leaves a frame, which is memory of a
// transport for one message. Algorithms know only that their messages are coded. Partial sums may not travel, because
// each hop would round them again. Contributions therefore reach the owner of their part unsummed
// (PartialSums::intra_host). Contributions of one host are added inside it before, in f32. That sum is not rounded.
//
// A rank keeps sent values as its peers will see them: encoded and decoded. Its part of the result may be copied and
// sent in separate Steps. Each of them rounds it in the same way. Received messages are passed on without being coded
// again. A broadcast along several rails codes a value twice. It stays equal, because every codec fulfills
// encode(decode(wire)) == wire. The proofs check that values are rounded at most twice, and equally on all ranks.
//
// Sums are computed in tiles. Decoded values are then still in the first-level cache when they are added. A codec
// therefore needs no loop of its own for adding.
//
// Price: p - 1 messages per rank instead of two neighbours. Recursive halving and doubling cannot be used.
#pragma once

#include <cstddef>
#include <vector>

#include "collectives/codec.hpp"
#include "execution/job.hpp"
#include "execution/step_messages.hpp"
#include "execution/value_places.hpp"
#include "steps/algorithm.hpp"
#include "steps/step.hpp"

namespace collectives {

class CodedStep {
 public:
  /// All arguments must outlive the object.
  CodedStep(const RankView& view, StepMessages& messages, const ValuePlaces& places)
      : view_(view), messages_(messages), places_(places) {}

  /// Begins an operation that has a codec.
  void start(const Job& job);
  /// Performs `step`. Requires that its messages have arrived and that its outgoing messages have frames.
  void perform(const Step& step);
  /// Returns the bytes and the time of coding since construction.
  const CodingReport& report() const noexcept { return report_; }

 private:
  void add(const Step& step, std::byte* destination, std::byte* frame);
  void round(const std::byte* values, std::byte* seen, std::byte* frame, std::size_t count);
  void encode(const std::byte* values, std::size_t count, std::byte* wire);
  void decode(const std::byte* wire, std::byte* values, std::size_t count);
  /// Calls visit(first, elements) for consecutive tiles of the elements [0, count).
  template <class Visit>
  void for_each_tile(std::size_t count, Visit&& visit) const;

  const RankView& view_;
  StepMessages& messages_;
  const ValuePlaces& places_;
  const Job* job_ = nullptr;
  const Codec* codec_ = nullptr;
  std::size_t tile_ = 0;  // number of elements that are coded and added at a time
  CodingReport report_;
  std::vector<Source> sources_;     // terms of the current sum
  std::vector<float> decoded_;      // one tile of each source, and one of their sum
  std::vector<float> aligned_;      // one tile, for values whose memory is not aligned for float
  std::vector<std::byte> encoded_;  // one encoded tile
};

}  // namespace collectives
