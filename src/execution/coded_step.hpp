// CodedStep: performs a Step whose messages a codec encodes. A Step is one action of a rank. A Step takes values, may
// add them, and may store and send the result.
//
// A codec converts f32 values to fewer bytes and back. The number of bytes depends only on the number of values. A
// codec has no state. A frame is the memory of a transport for one message. Values are encoded when they are written to
// a frame, and decoded when they are read from one. Partial sums are not passed from host to host, because each message
// would round them again. Instead, each part (range) of the vector has a rank that owns it. The owner adds the
// contributions of all ranks, or of all hosts (PartialSums::intra_host). The contribution of a host is the sum over its
// ranks, made in f32 before it is encoded.
//
// All ranks get equal results. An owner sends its part of the result in encoded form, which rounds the values. The
// owner therefore stores the rounded values, too. A rank that passes a received message on sends the received bytes. A
// Step may encode values that an earlier Step has decoded. The bytes stay the same, because encode(decode(wire)) ==
// wire for every codec. Each value is rounded at most twice, and equally on all ranks.
//
// Sums are computed tile by tile. A tile has about 1,024 elements. The decoded values of a tile are thus still in the
// first-level cache when they are added.
//
// Price: each owner exchanges messages with all other hosts, not only with two neighbours as in a ring. Algorithms that
// send partial sums on, such as recursive halving and doubling, cannot be used.
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

  /// Begins the operation of `job`. Requires that the job has a codec.
  void start(const Job& job);
  /// Performs `step`. Requires that its messages have arrived and that its outgoing messages have frames.
  void perform(const Step& step);
  /// Returns the bytes sent before and after encoding, and the time of coding, since construction.
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
  std::size_t tile_ = 0;  // number of elements of a tile
  CodingReport report_;
  std::vector<Source> sources_;     // terms of the current sum
  std::vector<float> decoded_;      // one tile of each source, and one of their sum
  std::vector<float> aligned_;      // one tile, for values whose memory is not aligned for float
  std::vector<std::byte> encoded_;  // one encoded tile
};

}  // namespace collectives
